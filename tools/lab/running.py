"""One run of a task's test binary: follows its report, and kills it when nothing comes any more.

The student's code runs in the binary's process, and may crash it, hang or call exit(0). So the
return code is never trusted: a case passes only when its own report line says so in a process whose
report is complete.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import paths, where
from lab.backends import CHECKED, CPU, EMULATED, GPU
from lab.errors import LabError
from lab.manifest import Task
from lab.outcomes import (CRASHED, EXCEPTION, NEEDS_CHECKS, NEEDS_GPU, NOT_RUN, NOT_STARTED, PASSED,
                          TIMED_OUT, WRONG, CaseResult)

# Seconds that a graded case may take, at least four times what the slowest of a solution does.
CASE_TIMEOUT = {CPU: 8.0, EMULATED: 8.0, CHECKED: 10.0, GPU: 20.0}
START_TIMEOUT = 60.0  # seconds to the first line of the report: a GPU can take long to start
HUNG_BEFORE = 2.0  # seconds after which a case that is where the last one hung is not waited for
OUTPUT_LIMIT = 64 * 1024  # bytes kept of what a program prints, half from each end

_REPORTED = {"passed": PASSED, "failed": WRONG, "not_started": NOT_STARTED, "needs_gpu": NEEDS_GPU,
             "needs_checks": NEEDS_CHECKS, "error": EXCEPTION}

_SIGNALS = {
    signal.SIGSEGV: "segmentation fault: an index or a pointer outside of its memory",
    signal.SIGBUS: "bus error: an index or a pointer outside of its memory",
    signal.SIGABRT: "aborted: an assert, a corrupted heap, or an exception that nothing caught",
    signal.SIGFPE: "arithmetic error: an integer division by zero",
    signal.SIGILL: "illegal instruction: often the end of a function that returns nothing",
    signal.SIGKILL: "killed: often for using too much memory",
}

Notify = Callable[[str], None]  # takes a line that says what is running, "" for nothing


@dataclass(frozen=True)
class Settings:
    implementation: str = "skeleton"
    seed: int = 1
    case: str | None = None  # run this one alone
    timeout: float | None = None  # seconds a case; None: as CASE_TIMEOUT says
    notify: Notify = lambda line: None
    environment: Mapping[str, str] = field(default_factory=dict)  # of tasks in C++
    stop: threading.Event = field(default_factory=threading.Event)  # set: end everything
    explain: bool = False  # show failed cases with small numbers
    library_path: str = ""  # a folder with libraries that come before those of the build
    quiet: bool = False  # the command is not shown


def case_names(binary: Path) -> list[str]:
    try:
        listed = subprocess.run([binary, "--list-cases"], cwd=paths.ROOT, capture_output=True,
                                text=True, timeout=START_TIMEOUT, stdin=subprocess.DEVNULL,
                                errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{binary.name} --list-cases did not work: {error}") from None
    if listed.returncode:
        said = printable(listed.stderr).strip().splitlines() or ["it printed nothing"]
        raise LabError(f"{binary.name} --list-cases {_how_it_ended(listed.returncode)}: {said[-1]}")
    return [line for line in listed.stdout.splitlines() if line]


def options(how: Settings, cases: Sequence[str] | None) -> list[str]:
    return ["--seed", str(how.seed), *["--explain"] * how.explain,
            *(word for name in cases or () for word in ("--case", name))]


class Process:
    """One run of a test binary, which is killed in the end with all that it started."""

    def __init__(self, task: Task, binary: Path, backend: str, how: Settings,
                 cases: Sequence[str] | None, hung_at: where.Spot | None = None) -> None:
        self.task, self.binary, self.backend = task, binary, backend
        self.how, self.cases = how, cases
        self.limit = CASE_TIMEOUT[backend] if how.timeout is None else how.timeout
        self.hung_at = hung_at  # where an earlier process was when its time was over
        self.places = where.Places()
        self.spot: where.Spot | None = None  # where this one was, or where it crashed
        self.known: dict[str, CaseResult] = {}  # what the task has
        self.ended: dict[str, CaseResult] = {}
        self.open_case = ""  # begun and not ended
        self.last_case = ""  # the last one that ended
        self.complete = self.timed_out = False
        self.how_it_ended = self.output = ""
        self._unread = b""

    def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="lab-") as folder:
            report = Path(folder) / "report.jsonl"
            report.touch()
            # Catch2's own output repeats the report; what is left is what the student printed.
            command = [self.binary, *options(self.how, self.cases), "--report", report,
                       "--out", os.devnull]
            try:
                environment = dict(self.how.environment if self.backend == CPU else {})
                if self.how.library_path:
                    environment["LD_LIBRARY_PATH"] = self.how.library_path
                process = subprocess.Popen(command, cwd=paths.ROOT, stdin=subprocess.DEVNULL,
                                           env=os.environ | environment,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                           start_new_session=True)
            except OSError as error:
                raise LabError(f"{self.binary.name} does not start: {error.strerror}") from None
            printed = _Output(process.stdout)
            try:
                with report.open("rb") as lines:
                    self._watch(process, lines)
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                # The harness prints a verdict line for ctest.
                self.output = re.sub(r"^verdict:.*\n", "", printed.text(), flags=re.MULTILINE)
        if not self.timed_out:
            self.how_it_ended = _how_it_ended(process.returncode)
            if process.returncode < 0 and self.places.seen:
                self.spot = self.places.spot(self._source())
        if self.spot:
            self.how_it_ended += f" {self.spot}"
            if self.timed_out:
                self.how_it_ended += ("\nA loop around these lines does not end, or takes far too "
                                      "long.")

    def _watch(self, process: subprocess.Popen, lines) -> None:
        """Follows the report until it is complete, or the process ends, or nothing comes for longer
        than the timeout. LabError when `stop` is set."""
        last_sign = time.monotonic()
        was_asked = False
        while True:
            ended = process.poll() is not None  # before the read, so that no line is missed
            if self._read(lines):
                last_sign, was_asked = time.monotonic(), False
            if self.complete:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=2)  # it may write the rest of its output when it ends
            if self.complete or ended:
                return
            waited = time.monotonic() - last_sign
            if waited > (self.limit if self.known else max(self.limit, START_TIMEOUT)):
                self.spot = self._look(process, lines)
                self.timed_out, self.how_it_ended = True, f"timed out after {self.limit:g} s"
                return
            if self.hung_at and self.known and waited > HUNG_BEFORE and not was_asked:
                was_asked = True
                spot = self._look(process, lines)
                if self.hung_at.same(spot):
                    self.timed_out, self.spot = True, spot
                    self.how_it_ended = "not waited for: it was where the case before it hung,"
                    return
            if self.how.stop.wait(0.02):
                raise LabError("stopped")

    def _source(self) -> Path:
        return self.task.path(self.how.implementation)

    def _look(self, process: subprocess.Popen, lines) -> where.Spot | None:
        """Where the process is, if that is in the student's file."""
        where.look_at(process.pid, self.places)
        self._read(lines)
        spot = self.places.spot(self._source())
        self.places.seen.clear()
        return spot

    def _read(self, lines) -> bool:
        """Takes in the new whole lines of the report; True when a case began or ended."""
        *whole, self._unread = (self._unread + lines.read()).split(b"\n")
        for line in whole:
            # Other lines than the harness's are ignored: a case without its lines has no result.
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                event = json.loads(line)
                self.places.take(event)
                self._take(event)
        return any(b'"where"' not in line for line in whole)

    def _take(self, event: dict) -> None:
        kind = event["event"]
        if kind == "begin":
            found = event["task"], event["implementation"], event.get("backend", CPU)
            wanted = self.task.id, self.how.implementation, self.backend
            if found != wanted:
                raise LabError("{0} reports {1} ({2}, {3}); it must report {4} ({5}, {6})".format(
                    self.binary.name, *found, *wanted))
            self.known = {
                case["name"]: CaseResult(case["name"], NOT_RUN, requirement=case["requirement"],
                                         challenge=bool(case.get("challenge")))
                for case in event["cases"]}
        elif kind == "start" and event["case"] in self.known:
            self.open_case = event["case"]
            number, total = len(self.ended) + 1, len(self.cases or self.known)
            self.how.notify(f"{self.task.name}: case {number} of {total}: {self.open_case}")
        elif kind == "end" and event["case"] == self.open_case:
            status = _REPORTED.get(event["status"], EXCEPTION)
            message = str(event.get("message", ""))
            self.ended[self.open_case] = CaseResult(self.open_case, status, message)
            self.last_case, self.open_case = self.open_case, ""
        elif kind == "diagnosis" and event["case"] == self.last_case:
            seen = self.ended[self.last_case]
            seen.diagnosis, seen.kind = str(event["name"]), str(event["kind"])
            seen.message = f"{event['text']}\n{seen.message}"
        elif kind == "explanation" and event["case"] == self.last_case:
            self.ended[self.last_case].explanation = str(event["text"])
        elif kind == "complete":
            self.complete = not self.open_case

    def culprit(self, pending: Sequence[str]) -> str:
        """The case to blame for an early end: the open one, else the last one that ended, else the
        first that was to run."""
        return next((name for name in (self.open_case, self.last_case) if name in pending),
                    pending[0])

    def verdict_on(self, name: str) -> CaseResult:
        message = self.how_it_ended
        if name != self.open_case:
            when = "right after" if name == self.last_case else "before"
            message = (f"{when} this case: {message}" if self.spot else
                       f"{message}, {when} this case")
        if message.startswith("ended early"):
            message += ": something called exit()"
        status, clue = TIMED_OUT if self.timed_out else CRASHED, _clue(self.output)
        if clue and self.how.environment and not self.timed_out:
            return CaseResult(name, status, clue)  # a sanitizer's says all, its output too much
        lines = "\n".join(filter(None, (message, clue)))
        return CaseResult(name, status, lines, self.output)


class _Output:
    """Reads all that a program prints, so that it never blocks, and keeps a bounded part of it."""

    def __init__(self, pipe) -> None:
        self._pipe = pipe
        self._head, self._tail = b"", b""
        self._dropped = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        half = OUTPUT_LIMIT // 2
        while block := os.read(self._pipe.fileno(), 65536):
            room = half - len(self._head)
            self._head += block[:room]
            tail = self._tail + block[room:]
            self._dropped += max(0, len(tail) - half)
            self._tail = tail[-half:]

    def text(self) -> str:
        self._thread.join(timeout=2)
        # a child that left the process group may keep the pipe open
        if not self._thread.is_alive():
            self._pipe.close()
        gap = f"\n... {self._dropped} bytes left out ...\n".encode() if self._dropped else b""
        return printable((self._head + gap + self._tail).decode("utf-8", "replace"))


def printable(text: str) -> str:
    """Without terminal control codes: a program's output must not repaint the card."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r\n", "\n"))
    return "".join(char if char in "\n\t" or char.isprintable() else "\N{REPLACEMENT CHARACTER}"
                   for char in text)


def _clue(output: str) -> str:
    """The line in which a sanitizer, the C++ runtime or the C library says what happened."""
    if found := re.search(r"ERROR: (AddressSanitizer: [\w-]+)", output):
        place = re.search(r"(?m)^    #\d+ .* (\S+/(?:skeleton|solution)/\S+?:\d+)", output)
        # Around the harness's tensors memory is "poisoned": tests/harness/cases/padded_tensor.hpp.
        kind = found[1].replace("use-after-poison", "an access before or after a tensor")
        return kind + (f" at {paths.relative(place[1])}" if place else "")
    signs = ("runtime error:", "what():", "terminate called", "Assertion ", "free(): ", "malloc")
    return next((line.strip().removeprefix(f"{paths.ROOT}/") for sign in signs
                 for line in output.splitlines() if sign in line), "")


def _how_it_ended(code: int) -> str:
    if code < 0:
        name = _SIGNALS.get(-code) or signal.strsignal(-code) or "unknown"
        return f"crashed with signal {-code} ({name})"
    return f"ended early with exit code {code}"
