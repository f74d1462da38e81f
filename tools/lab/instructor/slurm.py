"""Grades a class on a cluster: `./lab grade --slurm` submits a job array, waits, and collects.

A task of the array grades one submission, or every n-th where there are more than an array may
have. It runs this module on a node, and leaves a record as a run on one computer does; so an
interrupted command goes on where it was, whoever graded what is there. The course, the submissions
and the results must be in folders that all nodes see.
"""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lab import console, manifest, paths
from lab.errors import LabError
from lab.instructor import judging, sandbox
from lab.instructor.grader import Grader, write
from lab.instructor.reports import INFRA_ERROR, Record
from lab.instructor.submissions import Submission

FOLDER = "slurm"     # of the results: what was submitted, and what each task printed
MOST_TASKS = 1000    # of an array; Slurm's own limit is 1001 unless it is configured
POLL = 2.0           # seconds
LATE = 60.0          # that a record may take from a node to here, after its job has ended
TROUBLES = 30        # of squeue in a row, before the command gives up


def grade(grader: Grader, everyone: Sequence[Submission], options: Sequence[str],
          at_once: int | None) -> list[Record]:
    if shutil.which("sbatch") is None or shutil.which("squeue") is None:
        raise LabError("sbatch and squeue are not installed here; run this where jobs of the "
                       "cluster are submitted")
    todo = [one for one in everyone if not _is_graded(grader, one)]
    if todo:
        job = _job_that_runs(grader, todo) or _submit(grader, todo, options, at_once)
        _wait(job, grader, todo)
    return [grader.kept(one) or Record(
        one.id, "", INFRA_ERROR, grader.version,
        error=f"its job left no record; {grader.output / FOLDER} has what it printed")
        for one in everyone]


def _ask(argv: Sequence[str]) -> subprocess.CompletedProcess:
    return subprocess.run(argv, capture_output=True, text=True)


def _is_graded(grader: Grader, one: Submission) -> bool:
    record = grader.kept(one)
    return record is not None and record.status != INFRA_ERROR


def _note(grader: Grader) -> Path:
    return grader.output.absolute() / FOLDER / "job.json"


def _same(grader: Grader) -> str:
    """What two jobs must have in common for one to do the other's work."""
    return hashlib.sha256(f"{grader.fingerprint} {grader.output.absolute()}".encode()).hexdigest()


def _submit(grader: Grader, todo: Sequence[Submission], options: Sequence[str],
            at_once: int | None) -> str:
    note = _note(grader)
    # First: a task may start before sbatch has returned. The number of the job comes after.
    content = {"of": _same(grader), "output": str(grader.output.absolute()),
               "tasks": [task.id for task in grader.tasks], "left_out": list(grader.left_out),
               "seconds": grader.bench.seconds_a_call, "build": str(grader.bench.folder),
               "submissions": [[one.id, str(one.place.absolute())] for one in todo]}
    write(note, json.dumps(content, indent=1) + "\n")
    command = [sys.executable, "-P", "-m", "lab.instructor.slurm", str(note)]
    script = note.with_name("job.sh")
    write(script, "#!/bin/bash\n"
                  f"cd {shlex.quote(str(paths.ROOT))}\n"
                  f"PYTHONPATH={shlex.quote(str(paths.REPOSITORY / 'tools'))} "
                  f"exec {shlex.join(command)}\n")
    tasks = min(len(todo), MOST_TASKS)
    argv = ["sbatch", "--parsable", "--job-name=lab-grade", "--requeue",
            f"--array=0-{tasks - 1}{f'%{at_once}' if at_once else ''}",
            f"--output={note.parent}/%a.out", *options, str(script)]
    console.print_command(argv)
    done = _ask(argv)
    if done.returncode:
        raise LabError(f"sbatch refuses the job: {' '.join(done.stderr.split())}")
    job = done.stdout.strip().split(";")[0]
    write(note, json.dumps(content | {"job": job}, indent=1) + "\n")
    return job


def _job_that_runs(grader: Grader, todo: Sequence[Submission]) -> str:
    """The job of an earlier command that was interrupted, if it still works on these."""
    try:
        known = json.loads(_note(grader).read_text())
        job = known["job"]
    except (OSError, ValueError, KeyError):
        return ""
    if not _tasks_left(job):
        return ""
    console.say(f"job {job} of an earlier command still runs")
    if known["of"] != _same(grader) or not {one.id for one in todo} <= {
            name for name, _ in known["submissions"]}:
        raise LabError(f"job {job} grades other submissions, or with other options, into "
                       f"{grader.output}; wait for its end, or: scancel {job}")
    return job


def _tasks_left(job: str) -> int:
    troubles = 0
    while True:
        done = _ask(["squeue", "--noheader", "--array", "--format=%i", f"--jobs={job}"])
        if done.returncode == 0:
            return len(done.stdout.split())
        if "Invalid job id" in done.stderr:  # so long ago that Slurm has forgotten it
            return 0
        troubles += 1  # a controller that starts again, or does not answer for a while
        if troubles >= TROUBLES:
            raise LabError(f"squeue fails: {done.stderr.strip()}; job {job} may still run, and "
                           "the same command waits for it")
        time.sleep(POLL)


def _wait(job: str, grader: Grader, todo: Sequence[Submission]) -> None:
    console.say(f"job {job}: {len(todo)} submissions. You may stop this command: the job goes on, "
                "and the same command waits for it again")
    with console.progress("grading") as update:
        while left := _tasks_left(job):
            tasks = min(len(todo), MOST_TASKS)
            update(len(todo) * max(tasks - left, 0) // tasks, len(todo))
            time.sleep(POLL)
    until = time.monotonic() + LATE
    while time.monotonic() < until and any(grader.kept(one) is None for one in todo):
        time.sleep(POLL)


def main(note: Path) -> int:
    """On a node: grades what is this task's of the array."""
    job = json.loads(note.read_text())
    mine = job["submissions"][int(os.environ["SLURM_ARRAY_TASK_ID"])::MOST_TASKS]
    known = {task.id: task for part in manifest.load_parts() for task in part.tasks}
    tasks = [known[name] for name in job["tasks"]]
    if trouble := sandbox.trouble():
        raise LabError(trouble)
    with tempfile.TemporaryDirectory(prefix="lab-grade-") as folder:
        bench = judging.set_up(tasks, Path(folder), Path(job["build"]), job["seconds"])
        grader = Grader(tasks, tuple(job["left_out"]), bench, Path(job["output"]))
        for name, place in mine:
            record = grader.one(Submission(name, Path(place)))
            print(f"{name}: {record.status} {record.error}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except LabError as error:
        sys.exit(f"lab: {error}")
