"""Grades a class on a cluster: `./lab grade --slurm` submits job arrays, waits, and collects.

There is an array for each stage: C++ and what is emulated, CUDA on GPUs, and what is timed, alone
on a node. A task of an array does one submission's part, or every n-th's where there are more than
an array may have. It runs this module on a node, and leaves a record in the stage's folder; so an
interrupted command goes on where it was. The course, the submissions and the results must be in
folders that all nodes see.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import console, manifest, paths
from lab.backends import CHECKED, EMULATED, GPU
from lab.errors import LabError
from lab.instructor import reports, speed
from lab.instructor.grader import RECORD, Grader, write
from lab.instructor.reports import INFRA_ERROR, Record
from lab.instructor.speed import Speed
from lab.manifest import Task
from lab.submission import judging, sandbox
from lab.submission.judging import Judged
from lab.submission.submissions import Content, Submission

FOLDER = "slurm"     # of the results: a folder for each stage, with its job and its records
MOST_TASKS = 1000    # of an array; Slurm's own limit is 1001 unless it is configured
POLL = 2.0           # seconds
LATE = 60.0          # that a record may take from a node to here, after its job has ended
TROUBLES = 30        # of squeue in a row, before the command gives up


@dataclass(frozen=True)
class Plan:
    """What a node has to know about its stage."""

    tasks: tuple[str, ...]     # ids
    backends: tuple[str, ...]  # of CUDA tasks
    build: str
    seconds: float
    seed: int                  # the same in all stages: a report has one for each task
    speed: str = ""            # the option of that name, in the stage that measures


class Stage(Grader):
    """Grades for one stage: leaves records, and no reports. Where the jobs are submitted it knows
    which records are there."""

    def __init__(self, plan: Plan, output: Path, headers: Path, measured: Speed | None = None,
                 options: Sequence[str] = (), at_once: int | None = None) -> None:
        known = {task.id: task for part in manifest.load_parts() for task in part.tasks}
        tasks = [known[name] for name in plan.tasks]
        bench = judging.set_up(tasks, headers, Path(plan.build), plan.seconds, plan.backends)
        super().__init__(tasks, (), bench, output, measured, plan.seed)
        self.fingerprint += f" {plan.backends}"  # which say what cases a record has
        self.plan, self.options, self.at_once = plan, options, at_once

    def _judge(self, content: Content) -> tuple[Judged, ...]:
        return (self.speed.judge((), content),) if self.speed else super()._judge(content)

    def _report(self, folder: Path, record: Record) -> None:
        write(folder / RECORD, reports.to_json(record))


def grade(grader: Grader, everyone: Sequence[Submission], options: Sequence[str],
          of_gpu: Sequence[str] | None, measured: str, at_once: int | None,
          headers: Path) -> list[Record]:
    """`options` of sbatch; with `of_gpu` there is a stage with these for the GPU. `measured` is
    the text of --speed."""
    if shutil.which("sbatch") is None or shutil.which("squeue") is None:
        raise LabError("sbatch and squeue are not installed here; run this where jobs of the "
                       "cluster are submitted")
    everyone = grader.numbered(everyone)
    todo = [one for one in everyone if not _is_graded(grader, one)]
    if todo:
        folder = grader.output / FOLDER

        def stage(name: str, tasks: Iterable[str], backends: tuple[str, ...], of_job: Sequence[str],
                  at_once: int | None = at_once, speed: str = "") -> Stage:
            plan = Plan(tuple(tasks), backends, str(grader.bench.folder),
                        grader.bench.seconds_a_call, _seed(folder), speed)
            return Stage(plan, folder / name, headers, grader.speed if speed else None, of_job,
                         at_once)

        on_gpu = of_gpu is not None and any(task.is_cuda for task in grader.tasks)
        stages = [stage("cpu", (task.id for task in grader.tasks),
                        (CHECKED,) if on_gpu else (EMULATED, CHECKED), options)]
        if on_gpu:
            cuda = (task.id for task in grader.tasks if task.is_cuda)
            stages.insert(0, stage("gpu", cuda, (GPU,), of_gpu))
        records = _run(stages, todo)
        judged = {name: _merged(grader.tasks, found) for name, found in records.items()
                  if all(one is not None and one.status != INFRA_ERROR for one in found)}
        if grader.speed:
            on_gpu = grader.speed.wanted.board.device == "cuda"
            timing = stage("speed", grader.speed.wanted.board.tasks,
                           (GPU,) if on_gpu else (EMULATED,),
                           [*(of_gpu or () if on_gpu else options), "--exclusive"], 1, measured)
            judged = _with_times(timing, todo, records, judged)
        for one in todo:
            found = [record for record in records[one.id] if record is not None]
            if error := next((record.error for record in found if record.error), ""):
                grader.finish(one, (), error=error)
            elif one.id in judged:
                grader.finish(one, judged[one.id], sum(record.seconds for record in found))
    return [grader.kept(one) or Record(
        one.id, one.folder, "", INFRA_ERROR, grader.version, grader.fingerprint,
        error=f"its job left no record; {grader.output / FOLDER} has what it printed")
        for one in everyone]


def _with_times(timing: Stage, todo: Sequence[Submission], records: dict[str, list[Record | None]],
                judged: dict[str, tuple[Judged, ...]]) -> dict[str, tuple[Judged, ...]]:
    """What was judged, and how fast it is where that could be found out. Adds the stage's records
    to `records`."""
    wanted = timing.speed.wanted
    times = {name: (verdict,) for name, tasks in judged.items()
             if (verdict := wanted.not_run(tasks))}
    ready = [one for one in todo if one.id in judged and one.id not in times]
    for name, found in _run([timing], ready).items():
        records[name] += found
        if found[0] is not None:
            times[name] = found[0].tasks
    return {name: tasks + times[name] for name, tasks in judged.items() if name in times}


def _merged(tasks: Sequence[Task], records: Sequence[Record]) -> tuple[Judged, ...]:
    """What all stages found, task by task."""
    return tuple(functools.reduce(
        functools.partial(judging.merged, task),
        [found for record in records for found in record.tasks if found.task == task.id])
        for task in tasks)


def _seed(folder: Path) -> int:
    file = folder / "seed"
    if not file.exists():
        write(file, f"{secrets.randbelow(10**17) + 10**17}\n")
    return int(file.read_text())


def _run(stages: Sequence[Stage], todo: Sequence[Submission]) -> dict[str, list[Record | None]]:
    """The records of all stages, by the ids of the submissions."""
    jobs = []
    for stage in stages:
        mine = [one for one in todo if not _is_graded(stage, one)]
        jobs.append((mine, mine and (_job_that_runs(stage, mine) or _submit(stage, mine))))
    for stage, (mine, job) in zip(stages, jobs):
        if mine:
            _wait(job, stage, mine)
    return {one.id: [stage.kept(one) for stage in stages] for one in todo}


def _ask(argv: Sequence[str]) -> subprocess.CompletedProcess:
    return subprocess.run(argv, capture_output=True, text=True)


def _is_graded(grader: Grader, one: Submission) -> bool:
    record = grader.kept(one)
    return record is not None and record.status != INFRA_ERROR


def _note(stage: Stage) -> Path:
    return stage.output.absolute() / "job.json"


def _same(stage: Stage) -> str:
    """What two jobs must have in common for one to do the other's work."""
    return hashlib.sha256(f"{stage.fingerprint} {stage.output.absolute()}".encode()).hexdigest()


def _submit(stage: Stage, todo: Sequence[Submission]) -> str:
    note, at_once = _note(stage), stage.at_once
    # First: a task may start before sbatch has returned. The number of the job comes after.
    content = {"of": _same(stage), "plan": dataclasses.asdict(stage.plan),
               "submissions": [[one.id, str(one.place.absolute()), one.folder] for one in todo]}
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
            f"--output={note.parent}/%a.out", *stage.options, str(script)]
    console.print_command(argv)
    done = _ask(argv)
    if done.returncode:
        raise LabError(f"sbatch refuses the job: {' '.join(done.stderr.split())}")
    job = done.stdout.strip().split(";")[0]
    write(note, json.dumps(content | {"job": job}, indent=1) + "\n")
    return job


def _job_that_runs(stage: Stage, todo: Sequence[Submission]) -> str:
    """The job of an earlier command that was interrupted, if it still works on these."""
    try:
        known = json.loads(_note(stage).read_text())
        job = known["job"]
    except (OSError, ValueError, KeyError):
        return ""
    if not _tasks_left(job):
        return ""
    console.say(f"job {job} of an earlier command still runs")
    if known["of"] != _same(stage) or not {one.id for one in todo} <= {
            name for name, *_ in known["submissions"]}:
        raise LabError(f"job {job} grades other submissions, or with other options, into "
                       f"{stage.output}; wait for its end, or: scancel {job}")
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


def _wait(job: str, stage: Stage, todo: Sequence[Submission]) -> None:
    console.say(f"job {job}, {stage.output.name}: {len(todo)} submissions. You may stop this "
                "command: the job goes on, and the same command waits for it again")
    with console.progress("grading") as update:
        while left := _tasks_left(job):
            tasks = min(len(todo), MOST_TASKS)
            update(len(todo) * max(tasks - left, 0) // tasks, len(todo))
            time.sleep(POLL)
    until = time.monotonic() + LATE
    while time.monotonic() < until and any(stage.kept(one) is None for one in todo):
        time.sleep(POLL)


def main(note: Path) -> int:
    """On a node: grades what is this task's of the array."""
    job = json.loads(note.read_text())
    mine = job["submissions"][int(os.environ["SLURM_ARRAY_TASK_ID"])::MOST_TASKS]
    plan = Plan(**{name: tuple(value) if isinstance(value, list) else value
                   for name, value in job["plan"].items()})
    if trouble := sandbox.trouble(GPU in plan.backends):
        raise LabError(trouble)
    with tempfile.TemporaryDirectory(prefix="lab-grade-") as folder, \
            speed.ready(speed.threshold(plan.speed), plan.tasks) if plan.speed else \
            contextlib.nullcontext() as measured:
        stage = Stage(plan, note.parent, Path(folder), measured)
        for name, place, number in mine:
            record = stage.one(Submission(name, Path(place), number))
            console.say(f"{name}: {record.status} {record.error}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except LabError as error:
        sys.exit(f"lab: {error}")
