"""Grades submissions, one by one and several at a time; what is done is kept in a folder.

A record says what it is of (`key`): the same files, judges and options are not graded again.
Whatever one submission makes any stage raise becomes its own row, and the class goes on.
"""

import concurrent.futures
import contextlib
import hashlib
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from lab import console, handed_in, manifest, outcomes, paths, released, worklog
from lab.disk import write_exact as write
from lab.errors import LabError
from lab.instructor import reports
from lab.instructor.reports import INFRA_ERROR, RESULTS, Record
from lab.instructor.speed import Speed
from lab.manifest import Task
from lab.submission import judging, submissions
from lab.submission.judging import FAILED, GRADED, MISSING, Bench, Case, Judged
from lab.submission.sandbox import InfraError
from lab.submission.submissions import Content, Submission

RECORD = "record.json"
TRIES = 2  # of a submission, when the environment fails


class Grader:
    """What is done is in the folder `output`, a folder a submission."""

    def __init__(self, tasks: Sequence[Task], left_out: tuple[str, ...], bench: Bench,
                 output: Path, speed: Speed | None = None, seed: int | None = None) -> None:
        self.tasks, self.left_out, self.bench, self.output = tasks, left_out, bench, output
        self.speed, self.seed = speed, seed  # without a seed each task has one of its own
        self.version = str(released.version_of(paths.ROOT))
        self.stop = threading.Event()
        parts = [f"{bench.seconds_a_call} {left_out}", *([str(speed.wanted)] if speed else [])]
        for task in tasks:
            judge = bench.folder / "bin" / judging.judge_of(task)
            files = [judge, *judging.runners_of(task, bench)]
            parts.append(f"{task.id} {task.points} {task.results} "
                         f"{[released.sha256(file) for file in files]}")
        self.fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def grade(self, everyone: Sequence[Submission], jobs: int) -> list[Record]:
        records, everyone = [], self.numbered(everyone)
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
        begin = time.monotonic()
        for attempt in range(TRIES):
            try:
                kept = self.kept(submission)
                if kept is not None and kept.status != INFRA_ERROR:
                    return kept
                content, key = self._read(submission)
                return self.finish(submission, self._judge(content), time.monotonic() - begin)
            except Exception as error:
                if self.stop.is_set():
                    raise
                why = _words(error)
        return self.finish(submission, (), error=why)

    def finish(self, submission: Submission, judged: Sequence[Judged], seconds: float = 0,
               error: str = "") -> Record:
        """Writes the record and the reports; those of an infra_error where there is an error."""
        record = Record(submission.id, submission.folder, "", GRADED, self.version,
                        self.fingerprint, tuple(judged), "", "", self.left_out, seconds)
        try:
            content, key = self._read(submission)
            note = content.problem
            if content.version and content.version != self.version:
                note = (f"This was written for version {content.version} of the course, and graded "
                        f"with version {self.version}.")
            note = "\n".join(filter(None, (note, *content.chosen)))
            record = replace(record, key=key, note=note, **self._results(submission, content))
            if error:
                raise InfraError(error)
            self._report(self.output / submission.folder, record)
        except Exception as failed:
            record = replace(record, status=INFRA_ERROR, tasks=(), note="",
                             error=error or _words(failed))
            with contextlib.suppress(Exception):  # where nothing can be written, the row says why
                self._report(self.output / submission.folder, record)
        return record

    def numbered(self, everyone: Sequence[Submission]) -> list[Submission]:
        """With the folders of their results: those of an earlier run, or the next free."""
        has = {record.id: record.folder for record in self._records()}
        free = (name for name in map("{:03}".format, itertools.count(1))
                if not (self.output / name).exists())
        return [replace(one, folder=has.get(one.id) or next(free)) for one in everyone]

    def kept(self, submission: Submission) -> Record | None:
        """The record of this submission as it is now, from an earlier run or another computer."""
        record = _read_record(self.output / submission.folder / RECORD)
        key = ""  # of one that cannot be read
        with contextlib.suppress(Exception):
            key = self._read(submission)[1]
        same = record is not None and (record.id, record.key) == (submission.id, key)
        return replace(record, version=self.version) if same else None

    def earlier(self, named: Sequence[Submission]) -> tuple[list[Record], list[str]]:
        """The records of other submissions that are in the folder, by their ids; and the ids of
        those that other judges or for other tasks made: no table holds both."""
        records = [record for record in self._records()
                   if record.id not in {one.id for one in named}]
        return ([replace(record, version=self.version) for record in records
                 if record.judge == self.fingerprint],
                [record.id for record in records if record.judge != self.fingerprint])

    def _records(self) -> Iterator[Record]:
        for file in sorted(self.output.glob(f"[0-9]*/{RECORD}")):
            record = _read_record(file)
            if record is not None and record.folder == file.parent.name:
                yield record

    def _read(self, submission: Submission) -> tuple[Content, str]:
        content = submissions.read(submission.place, self.tasks)
        key = hashlib.sha256(f"{self.fingerprint} {content.digest()}".encode()).hexdigest()
        return content, key

    def _judge(self, content: Content) -> tuple[Judged, ...]:
        end = time.monotonic() + judging.JUDGE.seconds
        made: judging.Libraries = {}
        judged = (*(self._task(task, content, end, made) for task in self.tasks),
                  *(_of_results(task, content) for task in self.tasks if task.results))
        return (*judged, self.speed.judge(judged, content)) if self.speed else judged

    def _task(self, task: Task, content: Content, end: float,
              made: judging.Libraries) -> Judged:
        if self.stop.is_set():
            raise LabError("stopped")
        source = content.files.get(task.shown_path())
        if source is None:
            near = [name for name in content.others if Path(task.file).stem in name.lower()]
            why = content.problem or (
                f"the submission has no {task.shown_path()}, and no other {task.file}"
                + f"; it has {', '.join(near[:3])}" * bool(near))
            return Judged(task.id, task.points, MISSING, why)
        return judging.judge(task, source, self.bench, self.seed, content.files,
                             end - time.monotonic(), made)

    def _results(self, submission: Submission, content: Content) -> dict[str, object]:
        """What the record says of the results that were handed in; the plots go beside it."""
        drawn = handed_in.plots(content.results)
        for name, picture in drawn.items():
            write(self.output / submission.folder / name, picture)
        log = worklog.to_read(content.results.get(worklog.PAGE, b"").decode("utf-8", "replace"))
        return {"results": handed_in.findings(content.results, self.tasks), "log": log,
                "plots": tuple(drawn), "times": handed_in.times(content.results, self.tasks)}

    def _report(self, folder: Path, record: Record) -> None:
        results = folder / "results.json"
        if record.status == INFRA_ERROR:
            results.unlink(missing_ok=True)
        else:
            write(results, reports.gradescope(record))
        write(folder / "report.md", reports.markdown(record))
        write(folder / "report.html", reports.html(record))
        reports.row(record), reports.mistakes([record])  # and what a class' table needs of it
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
    except Exception:  # damaged, or an earlier version's
        return None


def _of_results(task: Task, content: Content) -> Judged:
    """The points for the results that were handed in."""
    good, lines = handed_in.of_task(content.results, task)
    case = Case("results are complete and plausible", outcomes.PASSED if good else FAILED,
                "" if good else "\n".join(lines), requirement="results", points=task.results,
                diagnosis="" if good else "results are incomplete, or not plausible")
    return Judged(RESULTS + task.part, task.results, GRADED, cases=(case,))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
