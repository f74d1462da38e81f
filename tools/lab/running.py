"""Runs a task's judge once and reads what it says: the cases that there are, the one that runs, and
how each ended. The judge starts the runners, which hold the student's code (tests/README.md).
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab import build, console, paths
from lab.errors import LabError
from lab.manifest import Task
from lab.outcomes import (CRASHED, ELSEWHERE, EXCEPTION, NEEDS_CHECKS, NEEDS_GPU, NOT_RUN,
                          NOT_STARTED, PASSED, TIMED_OUT, WRONG, CaseResult)
from lab.text import plain

LIST_TIMEOUT = 60.0  # seconds
END_TIMEOUT = 5.0  # seconds that a judge without a report may take to end

_REPORTED = {"passed": PASSED, "failed": WRONG, "not_started": NOT_STARTED, "needs_gpu": NEEDS_GPU,
             "needs_checks": NEEDS_CHECKS, "error": EXCEPTION, "crashed": CRASHED,
             "timed_out": TIMED_OUT, "not_run": NOT_RUN}


@dataclass(frozen=True)
class Settings:
    implementation: str = "skeleton"
    seed: int = 1
    case: str | None = None  # run this one alone
    timeout: float | None = None  # seconds a call; None: as the judge thinks best
    notify: Callable[[str], None] = lambda line: None  # takes a line that says what is running
    stop: threading.Event = field(default_factory=threading.Event)  # set: end everything
    explain: bool = False  # show failed cases with small numbers
    folder: Path | None = None  # with the libraries; None: those of the build
    variables: Mapping[str, str] = field(default_factory=dict)  # for the runner
    quiet: bool = False  # the command is not shown
    profile: bool = False  # the runner counts what it runs, so that nothing is run a second time


def judge_of(task: Task) -> str:
    """The CMake target of the judge, which has the same name."""
    return f"{task.part}_judge"


def runner_of(backend: str) -> str:
    return "flash_runner" + ("" if backend == "cpu" else f"_{backend}")


def case_names(task: Task, backend: str, only_checks: bool = False) -> list[str]:
    command = [build.binary(judge_of(task)), "--task", task.id, "--backend", backend,
               "--list-cases", *["--needs-checks"] * only_checks]
    try:
        listed = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True,
                                timeout=LIST_TIMEOUT, stdin=subprocess.DEVNULL, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{judge_of(task)} --list-cases did not work: {error}") from None
    if listed.returncode:
        raise LabError(f"{judge_of(task)} --list-cases: {_last_line(listed.stderr)}")
    return [line for line in listed.stdout.splitlines() if line]


def library(task: Task, implementation: str, backend: str, folder: Path | None = None) -> Path:
    folder = folder or build.binary("").parent / "lib"
    return folder / f"lib{task.target(implementation, backend)}.so"


def command_of(task: Task, backend: str, how: Settings, cases: Sequence[str] | None = None,
               only_checks: bool = False) -> list[str | Path]:
    """Of the judge."""
    libraries = [library(task, how.implementation, backend, how.folder)]
    words: list[str | Path] = [build.binary(judge_of(task)), "--task", task.id,
                               "--library", *libraries]
    if task.other_task:
        other = library(replace(task, id=task.other_task), how.implementation, backend)
        if other.exists():
            libraries.append(other)
            words += ["--other-library", other]
    words += [*["--needs-checks"] * only_checks, "--seed", str(how.seed),
              *["--explain"] * how.explain, *["--profile"] * how.profile]
    if how.timeout is not None:
        words += ["--call-seconds", f"{how.timeout:g}"]
    words += [word for name in cases or () for word in ("--case", name)]
    if how.variables:
        set_to = [f"{name}={value}" for name, value in how.variables.items()]
        words += ["--", "env", *set_to, build.binary(runner_of(backend)), *libraries]
    return words


def run(task: Task, backend: str, how: Settings, cases: Sequence[str] | None = None,
        only_checks: bool = False, cut: threading.Event | None = None) -> list[CaseResult]:
    """Runs these cases, or all, or only those that need the checks, with one library; of a run that
    is `cut`, those that have ended. LabError where the judge does not come to its end, which is
    never a student's fault."""
    command = command_of(task, backend, how, cases, only_checks)
    if not how.quiet:
        console.print_command(command)
    run = _Run(task, how, cases, cut)
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as report, tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                [command[0], "--report", f"/dev/fd/{write}", "--out", os.devnull, *command[1:]],
                cwd=paths.ROOT,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
                pass_fds=(write,), start_new_session=True)
        except OSError as error:
            os.close(write)
            raise LabError(f"{judge_of(task)} does not start: {error.strerror}") from None
        os.close(write)
        try:
            run.follow(report)
            if not run.complete and not run.was_cut:  # it ends by itself, which is told below
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_TIMEOUT)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if run.was_cut:
            return list(run.ended.values())
        if how.variables and not run.known:
            raise LabError("AddressSanitizer does not start on this machine, so check without it: "
                           f"./lab check {task.name}")
        if not run.complete:
            said.seek(0)
            raise LabError(f"{judge_of(task)} did not come to its end "
                           f"({_how_it_ended(process.returncode)}): "
                           f"{_last_line(said.read().decode(errors='replace'))}")
    return list(run.ended.values())


class Report:
    """What a judge has said so far."""

    def __init__(self) -> None:
        self.known: dict[str, CaseResult] = {}  # all cases, in their order
        self.ended: dict[str, CaseResult] = {}
        self.complete = False

    def take(self, line: str) -> dict:
        event = json.loads(line)
        kind, name = event["event"], event.get("case", "")
        if kind == "begin":
            self.known = {
                case["name"]: CaseResult(case["name"], NOT_RUN, requirement=case["requirement"])
                for case in event["cases"]}
        elif kind == "end":
            result = self.ended[name] = self.known[name]
            result.status = _REPORTED[event["status"]]
            result.message, result.backend = plain(event["message"]), event["backend"]
        elif kind == "diagnosis":
            self.ended[name].diagnosis, self.ended[name].kind = event["name"], event["kind"]
            self.ended[name].message = f"{event['text']}\n{self.ended[name].message}"
        elif kind == "explainable":
            self.ended[name].explainable = True
        elif kind == "explanation":
            self.ended[name].explanation = event["text"]
        elif kind == "complete":
            self.complete = True
        return event


class _Run(Report):
    """Follows a judge that runs."""

    def __init__(self, task: Task, how: Settings, cases: Sequence[str] | None,
                 cut: threading.Event | None) -> None:
        super().__init__()
        self.task, self.how, self.cases, self.cut = task, how, cases, cut

    @property
    def was_cut(self) -> bool:
        return self.cut is not None and self.cut.is_set()

    def follow(self, report) -> None:
        """Until the end of the report, or until it is cut. LabError when `stop` is set."""
        unread = b""
        while not self.complete:
            if self.how.stop.is_set():
                raise LabError("stopped")
            if self.was_cut:
                return
            if not select.select([report], [], [], 0.1)[0]:
                continue
            block = report.read(65536)
            if not block:
                return
            *lines, unread = (unread + block).split(b"\n")
            for line in lines:
                self.take(line.decode("utf-8", "replace"))

    def take(self, line: str) -> dict:
        event = super().take(line)
        if event["event"] == "start":
            number, total = len(self.ended) + 1, len(self.cases or self.known)
            self.how.notify(f"{self.task.name}: case {number} of {total}: {event['case']}")
        elif event["event"] == "end":
            result = self.ended[event["case"]]
            if result.status in (CRASHED, TIMED_OUT) or (
                    self.how.case and result.status not in (NOT_STARTED, *ELSEWHERE)):
                result.output = plain(event["output"])
            clue = result.message.partition("\n")[2]
            if self.how.variables and result.status == CRASHED and clue:
                result.message, result.output = clue, ""  # a sanitizer's says all
        return event


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"signal {-code}, {signal.strsignal(-code)}" + (
        ": this machine may have run out of memory" if code == -signal.SIGKILL else "")


def _last_line(text: str) -> str:
    return (plain(text).strip().splitlines() or ["it printed nothing"])[-1]
