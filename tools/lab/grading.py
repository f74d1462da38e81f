"""Builds a task's tests, runs them, and says how each graded case ended.

The student's code runs in the test binary's process, so that anything can happen to that process: a crash, a hang, an exit(0).
Its return code is never trusted. A case passes only when its own report line says so in a process whose report is complete; a
case during which the process ends is named as the one that ended it, and the rest runs again without it.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import build, console, paths
from lab.backends import CHECKED, CPU, GPU, Backends, choose
from lab.build import BuildResult
from lab.errors import LabError
from lab.manifest import Part, Task

CASE_TIMEOUT = 60.0  # seconds; the slowest graded case of a right solution takes a few
TIMEOUTS_PER_TASK = 3  # after as many the rest is not run: an endless loop is rarely alone
_ONE_ON_THE_GPU = threading.Lock()  # tasks would share its memory, and how much is free is part of what they test
OUTPUT_LIMIT = 64 * 1024  # bytes kept of what a program prints, half from its beginning and half from its end

# How a case or a task can end. What NEEDS something is left out of every total; BUILD_FAILED and UNFINISHED are a task's alone.
PASSED, WRONG, NOT_STARTED, CRASHED = "passed", "wrong", "not started", "crashed"
TIMED_OUT, EXCEPTION, NOT_RUN = "timed out", "exception", "not run"
NEEDS_GPU, NEEDS_CHECKS = "needs a GPU", "needs checks"
BUILD_FAILED, UNFINISHED = "does not compile", "unfinished"

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


@dataclass
class CaseResult:
    name: str  # empty: the test program ended before its first case
    weight: float
    points: float  # what the case is worth
    status: str
    message: str = ""  # the verdict: its first line is the summary
    seconds: float = 0.0
    output: str = ""  # what the program printed, where that helps
    backend: str = CPU  # that ran it
    challenge: bool = False  # beyond the task: no points, and no failure where it is not met


@dataclass
class TaskResult:
    task: Task
    implementation: str
    status: str
    cases: list[CaseResult] = field(default_factory=list)
    first_error: str = ""  # of the compiler, "file:line: message"
    log: str = ""  # of the build that failed
    out_of_reach: bool = False  # this machine cannot run the task
    backend: str | None = CPU  # that ran it, or most of it

    @property
    def earned(self) -> float:
        return self._share(PASSED)

    @property
    def missing(self) -> dict[str, float]:
        """What would decide the points that are not counted here, and how many it would: {"a GPU": 3}."""
        gpu = "a GPU" if self.task.needs_gpu else "a GPU or the emulator"
        points = {gpu: self.task.points if self.out_of_reach else self._share(NEEDS_GPU),
                  "the emulator's checks (g++)": 0.0 if self.out_of_reach else self._share(NEEDS_CHECKS)}
        return {what: value for what, value in points.items() if value}

    @property
    def uncounted(self) -> float:
        return sum(self.missing.values())

    @property
    def possible(self) -> float:
        """Points that can be earned here."""
        return self.task.points - self.uncounted

    @property
    def failures(self) -> list[CaseResult]:
        return [case for case in self.cases
                if not case.challenge and case.status not in (PASSED, NOT_STARTED, NEEDS_GPU, NEEDS_CHECKS)]

    @property
    def challenges(self) -> list[CaseResult]:
        return [case for case in self.cases if case.challenge]

    @property
    def done(self) -> bool:
        """Nothing is left to do here: all passed, or only another machine can tell."""
        return self.status in (PASSED, NEEDS_GPU, NEEDS_CHECKS)

    def _share(self, status: str) -> float:
        total = sum(case.weight for case in self.cases)
        return self.task.points * sum(case.weight for case in self.cases if case.status == status) / total if total else 0.0


@dataclass
class PartResult:
    part: Part
    implementation: str
    seed: int
    backends: Backends
    tasks: list[TaskResult] = field(default_factory=list)

    @property
    def earned(self) -> float:
        return sum(task.earned for task in self.tasks)

    @property
    def possible(self) -> float:
        return sum(task.possible for task in self.tasks)

    @property
    def missing(self) -> dict[str, float]:
        return sum_by_key(task.missing for task in self.tasks)

    @property
    def uncounted(self) -> float:
        return sum(self.missing.values())

    @property
    def done(self) -> bool:
        return all(task.done for task in self.tasks)


def sum_by_key(tables: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for what, value in (item for table in tables for item in table.items()):
        total[what] = total.get(what, 0) + value
    return total


@dataclass(frozen=True)
class TaskBuild:
    """The build of what a check of one task may run."""

    result: BuildResult
    unchecked: str = ""  # why the checked binary could not be built, where only that one failed


def grade_part(part: Part, implementation: str = "skeleton", seed: int = 1, *, tasks: Sequence[Task] | None = None,
               backends: Backends | None = None, case: str | None = None, timeout: float = CASE_TIMEOUT,
               notify: Notify = lambda line: None) -> PartResult:
    """Grades a part, or the given tasks of it: builds them in one go, then runs as many at once as there are cores. One that
    does not compile costs only itself. `case` runs that case alone."""
    if not part.has(implementation):
        raise LabError(f"{part.folder.name}/{implementation}/ does not exist: there is nothing of that kind to check here")
    result = PartResult(part, implementation, seed, backends or choose(build.configured()))
    chosen = part.tasks if tasks is None else tasks
    _no_core_files()
    notify("")
    builds = build_tasks([task for task in chosen if result.backends.of(task) and task.path(implementation).is_file()],
                         implementation, result.backends)
    notify("")
    stop = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        running = [pool.submit(_grade_task, task, implementation, seed, result.backends, builds.get(task.id), case=case,
                               timeout=timeout, notify=notify, stop=stop) for task in chosen]
        try:
            result.tasks += [each.result() for each in running]
        except BaseException:  # of one task, or ctrl-C: the others are ended, not waited for
            stop.set()
            raise
    return result


def _grade_task(task: Task, implementation: str, seed: int, backends: Backends, built: TaskBuild | None, *, case: str | None,
                timeout: float, notify: Notify, stop: threading.Event) -> TaskResult:
    """Runs one task that was built. Cases that ask for the emulator's checks, and were not run in the task's own backend for
    that, are run in the checked one."""
    backend = backends.of(task)
    ending = TaskResult(task, implementation, NEEDS_GPU, out_of_reach=backends.out_of_reach(task), backend=backend)
    if backend is None:
        return ending
    if built is None:
        missing = f"{task.shown_path(implementation)} does not exist; ./lab reset {task.name} brings it back"
        return dataclasses.replace(ending, status=BUILD_FAILED, first_error=missing)
    if not built.result.ok:
        return dataclasses.replace(ending, status=BUILD_FAILED, first_error=built.result.first_error, log=built.result.log)

    def run(backend: str, cases: Sequence[str] | None, probe: bool = False) -> TaskResult:
        binary = build.binary(task.target(implementation, backend))
        with _ONE_ON_THE_GPU if backend == GPU else contextlib.nullcontext():
            return run_task(task, binary, implementation, seed, backend=backend, cases=cases, alone=case is not None, probe=probe,
                            timeout=timeout, notify=notify, stop=stop)

    checks = backends.has_checks(task)
    result = run(backend, [case] if case else None, probe=checks and case is not None)
    asking = [each.name for each in result.cases if each.status == NEEDS_CHECKS]
    if asking and checks:
        unchecked = built.unchecked
        result = _with_checks(result, _unchecked(asking, unchecked) if unchecked else run(CHECKED, asking).cases)
    return dataclasses.replace(result, out_of_reach=ending.out_of_reach)


def build_tasks(tasks: Sequence[Task], implementation: str, backends: Backends) -> dict[str, TaskBuild]:
    """Builds what a check of the tasks may run, by the tasks' ids: in one go, so that no core waits, and where that fails each
    alone, to know whose error it is."""
    if len(tasks) > 1:
        targets = [task.target(implementation, backend) for task in tasks for backend in backends.to_build(task)]
        built = build.build(targets, keep_going=True)
        if built.ok:
            return {task.id: TaskBuild(built) for task in tasks}
    return {task.id: build_task(task, implementation, backends) for task in tasks}


def build_task(task: Task, implementation: str, backends: Backends) -> TaskBuild:
    """Builds what a check of the task may run."""
    targets = [task.target(implementation, backend) for backend in backends.to_build(task)]
    built = build.build(targets)
    if not built.ok and "unknown target" in built.log:  # its file was not there when CMake last looked
        build.configure()
        built = build.build(targets)
    if not built.ok and len(targets) > 1 and backends.of(task) == GPU:  # nvcc takes what g++ may not take
        alone = build.build(targets[:1])
        return TaskBuild(alone, built.first_error if alone.ok else "")
    return TaskBuild(built)


def case_names(binary: Path) -> list[str]:
    """The graded cases that a test binary holds."""
    try:
        listed = subprocess.run([binary, "--list-cases"], cwd=paths.ROOT, capture_output=True, text=True, timeout=CASE_TIMEOUT,
                                stdin=subprocess.DEVNULL, errors="replace", check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{binary.name} --list-cases did not work: {error}") from None
    if listed.returncode:
        raise LabError(f"{binary.name} --list-cases {_how_it_ended(listed.returncode)}: {_last_line(listed.stderr)}")
    return [line for line in listed.stdout.splitlines() if line]


def _with_checks(result: TaskResult, checked: Sequence[CaseResult]) -> TaskResult:
    """The result with the cases that only the checked binary runs in their places."""
    ran = {case.name: case for case in checked}
    cases = []
    for case in result.cases:
        if case.status == NEEDS_CHECKS:  # ran[""]: the checked binary ended before its first case
            case = dataclasses.replace(ran.get(case.name) or ran[""], name=case.name, weight=case.weight, points=case.points)
        cases.append(case)
    backend = CHECKED if len(cases) == len(checked) else result.backend
    return dataclasses.replace(result, status=_status_of(cases), cases=cases, backend=backend)


def _unchecked(names: Sequence[str], trouble: str) -> list[CaseResult]:
    message = f"not run, because it does not compile for the emulator's checks:\n{trouble}"
    return [CaseResult(name, 0, 0, NOT_RUN, message, backend=CHECKED) for name in names]


def run_task(task: Task, binary: Path, implementation: str, seed: int, *, backend: str = CPU, cases: Sequence[str] | None = None,
             alone: bool = False, probe: bool = False, timeout: float = CASE_TIMEOUT,
             notify: Notify = lambda line: None, stop: threading.Event | None = None) -> TaskResult:
    """Runs a task's test binary, as often as it takes for every case, or the given ones, to have a result. `alone`: what a case
    printed is kept, however it ended. `probe`: the command is not shown when nothing ran, for want of the emulator's checks.
    Setting `stop` ends it, by a LabError."""
    command = [paths.relative(binary), "--seed", seed, *(word for name in cases or () for word in ("--case", name))]
    if not probe:
        console.print_command(command)
    weights: dict[str, float] = {}  # all cases of the task, in their order
    challenges: set[str] = set()
    results: dict[str, CaseResult] = {}
    pending: list[str] | None = list(cases) if cases else None  # None: all of them
    timeouts = 0
    while pending is None or pending:  # each round gives at least one case its result
        process = _Process(task, binary, implementation, backend, seed, pending, timeout, notify, stop or threading.Event())
        process.run()
        weights = weights or process.weights
        challenges = challenges or process.challenges
        if pending is None:
            pending = list(weights)
        if not weights:
            return TaskResult(task, implementation, CRASHED, [_nothing_ran(process)], backend=backend)
        for name in cases or ():
            if name not in weights:
                raise LabError(f'{binary.name} has no case called "{name}"')

        for name, ended in process.ended.items():
            if name in pending and (process.complete or ended.status != PASSED):
                results[name] = ended
        if not process.complete:
            # A case that has ended keeps a bad verdict of its own; a pass does not outlive its process.
            culprit = process.culprit(pending)
            if culprit not in results:
                results[culprit] = process.verdict_on(culprit)
                timeouts += results[culprit].status == TIMED_OUT
        for name in pending if process.complete else ():
            results.setdefault(name, CaseResult(name, 0, 0, NOT_RUN, "the test program did not run this case"))
        pending = [name for name in pending if name not in results]
        if timeouts >= TIMEOUTS_PER_TASK:
            for name in pending:
                results[name] = CaseResult(name, 0, 0, NOT_RUN, f"not run, because {timeouts} cases before it timed out")
            pending = []

    if probe and any(result.status != NEEDS_CHECKS for result in results.values()):
        console.print_command(command)
    for result in results.values() if alone else ():
        if result.status not in (NOT_STARTED, NEEDS_GPU, NEEDS_CHECKS):
            result.output = process.output
    total = sum(weights.values())
    ended = []
    for name, weight in weights.items():
        if name in results:
            points = task.points * weight / total if total else 0.0
            ended.append(dataclasses.replace(results[name], weight=weight, points=points, backend=backend,
                                             challenge=name in challenges))
    return TaskResult(task, implementation, _status_of(ended), ended, backend=backend)


def _status_of(cases: Sequence[CaseResult]) -> str:
    """What a task's cases come to in one word: its worst news first."""
    found = {case.status for case in cases if not case.challenge} or {case.status for case in cases}
    if found <= {NEEDS_GPU, NEEDS_CHECKS}:
        return NEEDS_GPU if NEEDS_GPU in found or not found else NEEDS_CHECKS
    found -= {NEEDS_GPU, NEEDS_CHECKS}
    for status in (CRASHED, TIMED_OUT, EXCEPTION, WRONG, NOT_RUN):
        if status in found:
            return status
    if found == {NOT_STARTED}:
        return NOT_STARTED
    return UNFINISHED if NOT_STARTED in found else PASSED


def _nothing_ran(process: "_Process") -> CaseResult:
    message = f"the test program {process.how_it_ended} before its first case"
    return CaseResult("", 1, process.task.points, CRASHED, message, output=process.output, backend=process.backend)


class _Process:
    """One run of a test binary: watched over its report, killed with all that it started, judged by what it reported."""

    def __init__(self, task: Task, binary: Path, implementation: str, backend: str, seed: int, cases: Sequence[str] | None,
                 timeout: float, notify: Notify, stop: threading.Event) -> None:
        self.task, self.binary, self.implementation, self.backend = task, binary, implementation, backend
        self.seed, self.cases, self.timeout, self.notify, self.stop = seed, cases, timeout, notify, stop
        self.weights: dict[str, float] = {}
        self.challenges: set[str] = set()
        self.ended: dict[str, CaseResult] = {}
        self.open_case = ""  # begun and not ended
        self.last_case = ""  # the last one that ended
        self.complete = False
        self.timed_out = False
        self.how_it_ended = ""
        self.output = ""
        self._unread = b""
        self._opened_at = 0.0

    def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="lab-") as folder:
            report = Path(folder) / "report.jsonl"
            report.touch()
            # Catch2 says in words what the report says in data; what is left on stdout is what the student printed.
            command = [str(self.binary), "--seed", str(self.seed), "--report", str(report), "--out", os.devnull]
            for name in self.cases or ():
                command += ["--case", name]
            self._run(command, report)

    def _run(self, command: list[str], report: Path) -> None:
        try:
            process = subprocess.Popen(command, cwd=paths.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            raise LabError(f"{self.binary.name} does not start: {error.strerror}") from None
        printed = _Output(process.stdout)
        try:
            with report.open("rb") as lines:
                self._watch(process, lines)
        finally:
            _kill_group(process)
            self.output = re.sub(r"^verdict:.*\n", "", printed.text(), flags=re.MULTILINE)  # the harness's word to ctest
        self.how_it_ended = f"timed out after {self.timeout:g} s" if self.timed_out else _how_it_ended(process.returncode)

    def _watch(self, process: subprocess.Popen, lines) -> None:
        """Follows the report until the process ends, says that it is complete, or is silent for longer than the timeout. LabError when
        it is to stop."""
        last_sign = time.monotonic()
        while True:
            ended = process.poll() is not None  # asked before the read, so that nothing written before the end is missed
            if self._read(lines):
                last_sign = time.monotonic()
            if self.complete:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=2)  # what it printed is written when it ends
                return
            if ended:
                return
            allowed = self.timeout if self.weights else max(self.timeout, CASE_TIMEOUT)  # a GPU takes its time to wake
            if time.monotonic() - last_sign > allowed:
                self.timed_out = True
                return
            if self.stop.wait(0.02):
                raise LabError("stopped")

    def _read(self, lines) -> bool:
        """Takes in the report lines that are new and whole; True when there were any."""
        *whole, self._unread = (self._unread + lines.read()).split(b"\n")
        for line in whole:
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # not a line of the harness: without its lines a case has no result, which is result enough
        return bool(whole)

    def _take(self, event: dict) -> None:
        kind = event["event"]
        if kind == "begin":
            backend = event.get("backend", CPU)
            if (event["task"], event["implementation"], backend) != (self.task.id, self.implementation, self.backend):
                raise LabError(f"{self.binary.name} reports {event['task']} ({event['implementation']}, {backend}); "
                               f"it must report {self.task.id} ({self.implementation}, {self.backend})")
            self.weights = {case["name"]: float(case["weight"]) for case in event["cases"]}
            self.challenges = {case["name"] for case in event["cases"] if case.get("challenge")}
        elif kind == "start" and event["case"] in self.weights:
            self.open_case = event["case"]
            self._opened_at = time.monotonic()
            total = len(self.cases or self.weights)
            self.notify(f"{self.task.name}: case {len(self.ended) + 1} of {total}: {self.open_case}")
        elif kind == "end" and event["case"] == self.open_case:
            status = _REPORTED.get(event["status"], EXCEPTION)
            self.ended[self.open_case] = CaseResult(self.open_case, 0, 0, status, str(event.get("message", "")),
                                                    float(event.get("seconds", 0)))
            self.last_case, self.open_case = self.open_case, ""
        elif kind == "complete":
            self.complete = not self.open_case

    def culprit(self, pending: Sequence[str]) -> str:
        """The case to blame for an early end: the open one, else the last one that ended, else the first that was to run."""
        return next((name for name in (self.open_case, self.last_case) if name in pending), pending[0])

    def verdict_on(self, name: str) -> CaseResult:
        """The result of the case that is to blame."""
        status = TIMED_OUT if self.timed_out else CRASHED
        when = "" if name == self.open_case else ", right after this case" if name == self.last_case else ", before this case"
        why = ": something called exit()" if self.how_it_ended.startswith("ended early") else ""
        message = self.how_it_ended + when + why
        clue = _clue(self.output)
        seconds = time.monotonic() - self._opened_at if self._opened_at and self.timed_out else 0.0
        return CaseResult(name, 0, 0, status, f"{message}\n{clue}" if clue else message, seconds, self.output)


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
            self._head += block[:room] if room > 0 else b""
            tail = self._tail + (block[room:] if room > 0 else block)
            self._dropped += max(0, len(tail) - half)
            self._tail = tail[-half:]

    def text(self) -> str:
        self._thread.join(timeout=2)
        if not self._thread.is_alive():  # a child that left the process group may hold the pipe open; it is not waited for
            self._pipe.close()
        gap = f"\n... {self._dropped} bytes left out ...\n".encode() if self._dropped else b""
        return _printable((self._head + gap + self._tail).decode("utf-8", "replace"))


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(_printable(text).splitlines()) if line.strip()), "it printed nothing")


def _printable(text: str) -> str:
    """Without terminal control codes: a program's output must not repaint the card."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r\n", "\n"))
    return "".join(char if char in "\n\t" or char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _clue(output: str) -> str:
    """The line in which a sanitizer, the C++ runtime or the C library says what happened."""
    signs = ("ERROR: AddressSanitizer", "runtime error:", "what():", "terminate called", "Assertion ", "free(): ", "malloc")
    found = (line.strip() for sign in signs for line in output.splitlines() if sign in line)
    return next(found, "")


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "did not end"
    if code < 0:
        name = _SIGNALS.get(-code) or signal.strsignal(-code) or "unknown"
        return f"crashed with signal {-code} ({name})"
    return f"ended early with exit code {code}"


def _no_core_files() -> None:
    """Of this process and of those that it starts from here on: a student's crash is no reason to fill the disk."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _kill_group(process: subprocess.Popen) -> None:
    """Ends the process and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
