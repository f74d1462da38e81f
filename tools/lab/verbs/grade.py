"""`./lab grade`: grades submissions, from bundles to a table of grades."""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from lab import build, console, derive, handout, manifest, paths
from lab.console import say
from lab.errors import LabError
from lab.instructor import judging, reports, sandbox, submissions
from lab.instructor.judging import MISSING, Bench, Judged
from lab.instructor.reports import INFRA_ERROR, Record
from lab.instructor.submissions import Submission
from lab.manifest import Task

GROUP = "Instructor"
HELP = "grade submissions: bundles, zips, folders; points, reports, a page of the class"

PRESET = "cpu"
RECORD = "record.json"
TRIES = 2  # of a submission, when the environment fails


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("places", nargs="+", type=Path, metavar="FILE_OR_DIR",
                        help="a bundle, a zip or a folder; or a folder of such")
    parser.add_argument("--output", type=Path, default=paths.OUTPUTS / "grades", metavar="DIR",
                        help="where results go (default: outputs/grades); what is there and still "
                             "holds is not graded again")
    parser.add_argument("--tasks", metavar="PART|TASK,...", help="grade only these (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N",
                        help="submissions that are graded at the same time (default: one a core)")
    parser.add_argument("--seconds", type=float, default=20, metavar="S",
                        help="that one call of a student's function may take (default: 20)")


def run(args: argparse.Namespace) -> int:
    if args.jobs < 1 or not args.seconds > 0:
        raise LabError("--jobs must be at least 1, and --seconds above 0")
    if trouble := sandbox.trouble():
        raise LabError(trouble)
    wanted = manifest.select(manifest.load_parts(), args.tasks.split(",") if args.tasks else ())
    everyone = submissions.find(args.places, wanted)
    tasks, left_out = _set_up(wanted)
    with tempfile.TemporaryDirectory(prefix="lab-grade-") as folder:
        bench = judging.set_up(tasks, Path(folder), build.build_folder(PRESET), args.seconds)
        grader = Grader(tasks, left_out, bench, args.output)
        records = grader.grade(everyone, args.jobs)
    _write(args.output / "grades.csv", reports.grades(records))
    _write(args.output / "index.html", reports.page(records, "Grades"))
    failed = [record for record in records if record.status == INFRA_ERROR]
    for record in failed:
        say(f"{record.id} was not graded: {record.error}", "red")
    if left_out:
        say(f"no judge yet, and not in the points: {', '.join(left_out)}", "yellow")
    say(f"{len(records) - len(failed)} graded, {len(failed)} not graded; "
        f"{paths.relative((args.output / 'grades.csv').absolute())}, index.html, and a folder a "
        "submission")
    if failed:
        say("the same command again grades what is missing")
    return 1 if failed else 0


def _set_up(wanted: Sequence[Task]) -> tuple[list[Task], tuple[str, ...]]:
    """Builds the judges. The tasks that have one, and the ids of the others."""
    known = build.configured(PRESET)
    libraries = [judging.solution_of(task) for task in wanted if known.checked or not task.is_cuda]
    built = build.build([judging.TARGET, *libraries], PRESET)
    if not built.ok:
        raise LabError(f"the judges do not build: {built.first_error}")
    folder = build.build_folder(PRESET)
    tasks = [task for task in wanted if judging.can_judge(task, folder)]
    if not tasks:
        raise LabError("none of these tasks has a judge")
    return tasks, tuple(task.id for task in wanted if task not in tasks and task.points)


class Grader:
    """Grades submissions one by one, several at a time. What is done is in the folder `output`."""

    def __init__(self, tasks: Sequence[Task], left_out: tuple[str, ...], bench: Bench,
                 output: Path) -> None:
        self.tasks, self.left_out, self.bench, self.output = tasks, left_out, bench, output
        self.version = str(handout.version_of(paths.ROOT))
        self.stop = threading.Event()
        parts = [f"{bench.seconds_a_call} {left_out}"]
        for task in tasks:
            judge = bench.folder / "bin" / judging.judge_of(task)
            files = [judge, *judging.runner_of(task, bench.folder)]
            parts.append(f"{task.id} {task.points} {[handout.sha256(file) for file in files]}")
        self.fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def grade(self, everyone: Sequence[Submission], jobs: int) -> list[Record]:
        records = []
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool, \
                console.progress("grading") as update:
            running = [pool.submit(self.one, submission) for submission in everyone]
            try:
                for done in concurrent.futures.as_completed(running):
                    records.append(done.result())
                    update(len(records), len(running))
            except BaseException:  # ctrl-C: what is graded stays, and the rest is not begun
                self.stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        return sorted(records, key=lambda record: record.id)

    def one(self, submission: Submission) -> Record:
        content = submissions.read(submission, self.tasks)
        key = hashlib.sha256(f"{self.fingerprint} {content.digest()}".encode()).hexdigest()
        folder = self.output / submission.id
        if kept := self._kept(folder, key):
            return kept
        note = content.problem
        if content.version and content.version != self.version:
            note = (f"This was written for version {content.version} of the course, and graded "
                    f"with version {self.version}.")
        begin = time.monotonic()
        record = Record(submission.id, key, judging.GRADED, self.version, note=note,
                        left_out=self.left_out)
        for attempt in range(TRIES):
            try:
                judged = tuple(self._task(task, content) for task in self.tasks)
                record = _changed(record, tasks=judged, seconds=time.monotonic() - begin)
                break
            except LabError:
                raise  # all others have the same problem
            except Exception as error:  # whatever it is, the other submissions are graded
                if attempt == TRIES - 1:
                    error_text = f"{type(error).__name__}: {error}"
                    record = _changed(record, status=INFRA_ERROR, error=error_text)
        self._report(folder, record)
        return record

    def _kept(self, folder: Path, key: str) -> Record | None:
        """The record of an earlier run, if it is of the same files, judges and options."""
        try:
            record = reports.from_json((folder / RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return record if record.key == key and record.status != INFRA_ERROR else None

    def _task(self, task: Task, content: submissions.Content) -> Judged:
        if self.stop.is_set():
            raise LabError("stopped")
        source = content.files.get(task.shown_path())
        if source is None:
            why = content.problem or f"the submission has no {task.shown_path()}"
            return Judged(task.id, task.points, MISSING, why)
        return judging.judge(task, source, self.bench)

    def _report(self, folder: Path, record: Record) -> None:
        results = folder / "results.json"
        if record.status == INFRA_ERROR:
            results.unlink(missing_ok=True)
        else:
            _write(results, reports.gradescope(record))
        _write(folder / "junit.xml", reports.junit(record))
        _write(folder / "report.md", reports.markdown(record))
        _write(folder / RECORD, reports.to_json(record))  # last: then the others are there


def _changed(record: Record, **values: object) -> Record:
    return dataclasses.replace(record, **values)


def _write(file: Path, text: str) -> None:
    try:
        derive.write_exact(file, text)
    except OSError as error:
        raise LabError(f"{file} cannot be written ({error.strerror})") from None
