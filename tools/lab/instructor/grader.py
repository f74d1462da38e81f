"""Grades submissions, one by one and several at a time; what is done is kept in a folder.

A record says what it is of (`key`): the same files, judges and options are not graded again.
"""

import concurrent.futures
import hashlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from lab import console, handout, manifest, paths
from lab.derive import write_exact as write
from lab.errors import LabError
from lab.instructor import reports
from lab.instructor.reports import INFRA_ERROR, SPEED, Record
from lab.instructor.speed import Speed
from lab.judge import judging, submissions
from lab.judge.judging import MISSING, Bench, Judged
from lab.judge.submissions import Content, Submission
from lab.manifest import Task

RECORD = "record.json"
TRIES = 2  # of a submission, when the environment fails


class Grader:
    """What is done is in the folder `output`, a folder a submission."""

    def __init__(self, tasks: Sequence[Task], left_out: tuple[str, ...], bench: Bench,
                 output: Path, speed: Speed | None = None, seed: int | None = None) -> None:
        self.tasks, self.left_out, self.bench, self.output = tasks, left_out, bench, output
        self.speed, self.seed = speed, seed  # without a seed each task has one of its own
        self.version = str(handout.version_of(paths.ROOT))
        self.stop = threading.Event()
        parts = [f"{bench.seconds_a_call} {left_out}", *([str(speed.wanted)] if speed else [])]
        for task in tasks:
            judge = bench.folder / "bin" / judging.judge_of(task)
            files = [judge, *judging.runners_of(task, bench)]
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
            except BaseException as error:  # what is graded stays, and the rest is not begun
                self.stop.set()
                if isinstance(error, KeyboardInterrupt):
                    console.say("the same command goes on with what is missing")
                pool.shutdown(cancel_futures=True)
                raise
        return sorted(records, key=lambda record: record.id)

    def one(self, submission: Submission) -> Record:
        content, key = self._read(submission)
        kept = self._record(submission, key)
        if kept is not None and kept.status != INFRA_ERROR:
            return kept
        begin = time.monotonic()
        for attempt in range(TRIES):
            try:
                return self.finish(submission, self._judge(content), time.monotonic() - begin)
            except LabError:
                raise  # all others have the same problem
            except Exception as error:  # whatever it is, the other submissions are graded
                why = f"{type(error).__name__}: {error}"
        return self.finish(submission, (), error=why)

    def finish(self, submission: Submission, judged: Sequence[Judged], seconds: float = 0,
               error: str = "") -> Record:
        """Writes the record and the reports; those of an infra_error where there is an error."""
        content, key = self._read(submission)
        note = content.problem
        if content.version and content.version != self.version:
            note = (f"This was written for version {content.version} of the course, and graded "
                    f"with version {self.version}.")
        record = Record(submission.id, key, INFRA_ERROR if error else judging.GRADED, self.version,
                        tuple(judged), error, note, self.left_out, seconds)
        self._report(self.output / submission.id, record)
        return record

    def kept(self, submission: Submission) -> Record | None:
        """The record of this submission as it is now, from an earlier run or another computer."""
        return self._record(submission, self._read(submission)[1])

    def earlier(self, named: Sequence[Submission]) -> tuple[list[Record], list[str]]:
        """The records of other submissions that are in the folder, by their ids; and the ids of
        those that are of other tasks, which would have this homework's points otherwise."""
        kept, other = [], []
        for file in sorted(self.output.glob(f"*/{RECORD}")):
            record = _read_record(file)
            if record is None or record.id in {one.id for one in named}:
                continue
            tasks = [task.task for task in record.tasks if not task.task.startswith(SPEED)]
            same = tasks == [task.id for task in self.tasks] or record.status == INFRA_ERROR
            (kept if same else other).append(record)
        return kept, [record.id for record in other]

    def _read(self, submission: Submission) -> tuple[Content, str]:
        content = submissions.read(submission, self.tasks)
        key = hashlib.sha256(f"{self.fingerprint} {content.digest()}".encode()).hexdigest()
        return content, key

    def _record(self, submission: Submission, key: str) -> Record | None:
        record = _read_record(self.output / submission.id / RECORD)
        return record if record is not None and record.key == key else None

    def _judge(self, content: Content) -> tuple[Judged, ...]:
        judged = tuple(self._task(task, content) for task in self.tasks)
        return (*judged, self.speed.judge(judged, content)) if self.speed else judged

    def _task(self, task: Task, content: Content) -> Judged:
        if self.stop.is_set():
            raise LabError("stopped")
        source = content.files.get(task.shown_path())
        if source is None:
            near = [name for name in content.others if Path(task.file).stem in name.lower()]
            why = content.problem or (
                f"the submission has no {task.shown_path()}, and no other {task.file}"
                + f"; it has {', '.join(near[:3])}" * bool(near))
            return Judged(task.id, task.points, MISSING, why)
        return judging.judge(task, source, self.bench, self.seed, content.files)

    def _report(self, folder: Path, record: Record) -> None:
        results = folder / "results.json"
        if record.status == INFRA_ERROR:
            results.unlink(missing_ok=True)
        else:
            write(results, reports.gradescope(record))
        write(folder / "junit.xml", reports.junit(record))
        write(folder / "report.md", reports.markdown(record))
        write(folder / RECORD, reports.to_json(record))  # last: then the others are there


def hidden_cases() -> list[Path]:
    """The files of grading/hidden/. LabError for one that the build would not look at."""
    possible = {f"{task.part}_{task.name}.cpp"
                for task in manifest.select(manifest.load_parts())}
    found = sorted(file for file in (paths.ROOT / "grading/hidden").glob("*")
                   if not file.name.startswith("."))
    for file in found:
        if file.name not in possible:
            raise LabError(f"{paths.relative(file)} is of no task"
                           f"{manifest.nearest(file.name, possible)}; there may be "
                           f"{', '.join(sorted(possible))}")
    return found


def _read_record(file: Path) -> Record | None:
    try:
        return reports.from_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError):
        return None
