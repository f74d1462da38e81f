"""Builds a task's tests, runs them, and says how each graded case ended.

The student's code runs in the test binary's process, and may crash it, hang or call exit(0). So the
return code is never trusted: a case passes only when its own report line says so in a process whose
report is complete. A case during which the process ends gets the blame, and the remaining cases run
again without it.
"""

import concurrent.futures
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab import build, console, paths
from lab.backends import CHECKED, CPU, GPU, Backends, choose
from lab.build import BuildResult
from lab.errors import LabError
from lab.manifest import Part, Task

CASE_TIMEOUT = 60.0  # seconds; the slowest graded case of a correct solution takes a few
TIMEOUTS_PER_TASK = 3  # then the rest is not run: an endless loop is rarely alone
_ONE_ON_THE_GPU = threading.Lock()  # some tests depend on how much of the GPU's memory is free
OUTPUT_LIMIT = 64 * 1024  # bytes kept of what a program prints, half from each end

# How a case or a task can end. NEEDS_GPU and NEEDS_CHECKS are left out of every total; BUILD_FAILED
# and UNFINISHED are for tasks only.
PASSED, WRONG, NOT_STARTED, CRASHED = "passed", "wrong", "not started", "crashed"
TIMED_OUT, EXCEPTION, NOT_RUN = "timed out", "exception", "not run"
NEEDS_GPU, NEEDS_CHECKS = "needs a GPU", "needs checks"
BUILD_FAILED, UNFINISHED = "does not compile", "unfinished"
ELSEWHERE = (NEEDS_GPU, NEEDS_CHECKS)  # only another machine can tell

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
    status: str
    message: str = ""  # the verdict: its first line is the summary
    output: str = ""  # what the program printed, where that helps
    weight: float = 0
    points: float = 0  # what the case is worth
    backend: str = CPU  # that ran it
    challenge: bool = False  # beyond the task: no points, and failing it is no failure


@dataclass
class TaskResult:
    task: Task
    implementation: str
    status: str
    cases: list[CaseResult] = field(default_factory=list)
    first_error: str = ""  # of the compiler, "file:line: message"
    out_of_reach: bool = False  # this machine cannot run the task
    backend: str | None = CPU  # that ran it, or most of it

    @property
    def earned(self) -> float:
        return self._share(PASSED)

    @property
    def missing(self) -> dict[str, float]:
        """The points that are not counted here, by what it takes to count them: {"a GPU": 3}."""
        gpu = "a GPU" if self.task.needs_gpu else "a GPU or the emulator"
        if self.out_of_reach:
            return {gpu: self.task.points} if self.task.points else {}
        shares = (gpu, NEEDS_GPU), ("the emulator's checks (g++)", NEEDS_CHECKS)
        return {what: share for what, status in shares if (share := self._share(status))}

    @property
    def possible(self) -> float:
        """Points that can be earned here."""
        return self.task.points - sum(self.missing.values())

    @property
    def failures(self) -> list[CaseResult]:
        return [case for case in self.cases
                if not case.challenge and case.status not in (PASSED, NOT_STARTED, *ELSEWHERE)]

    @property
    def challenges(self) -> list[CaseResult]:
        return [case for case in self.cases if case.challenge]

    @property
    def done(self) -> bool:
        """Nothing is left to do here: all passed, or only another machine can tell."""
        return self.status in (PASSED, *ELSEWHERE)

    def _share(self, status: str) -> float:
        total = sum(case.weight for case in self.cases)
        share = sum(case.weight for case in self.cases if case.status == status)
        return self.task.points * share / total if total else 0.0


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
    def done(self) -> bool:
        return all(task.done for task in self.tasks)


def sum_by_key(tables: Iterable[Mapping[str, float]]) -> dict[str, float]:
    return dict(sum(map(Counter, tables), Counter()))


@dataclass(frozen=True)
class TaskBuild:
    result: BuildResult
    unchecked: str = ""  # why the checked binary did not build, where only that one failed


@dataclass(frozen=True)
class Settings:
    implementation: str = "skeleton"
    seed: int = 1
    case: str | None = None  # run this one alone
    timeout: float = CASE_TIMEOUT
    notify: Notify = lambda line: None
    stop: threading.Event = field(default_factory=threading.Event)  # set: end everything


def grade_part(part: Part, implementation: str = "skeleton", seed: int = 1, *,
               tasks: Sequence[Task] | None = None, backends: Backends | None = None,
               **settings: object) -> PartResult:
    """Grades a part, or the given tasks of it. A task that does not compile costs only itself."""
    if not part.has(implementation):
        raise LabError(f"{part.folder.name}/{implementation}/ does not exist: there is nothing of "
                       "that kind to check here")
    result = PartResult(part, implementation, seed, backends or choose(build.configured()))
    how = Settings(implementation, seed, **settings)
    chosen = part.tasks if tasks is None else tasks
    # Crashes must not fill the disk with core files.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    how.notify("")
    builds = build_tasks([task for task in chosen
                          if result.backends.of(task) and task.path(implementation).is_file()],
                         implementation, result.backends)
    how.notify("")
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        running = [pool.submit(_grade_task, task, how, result.backends, builds.get(task.id))
                   for task in chosen]
        try:
            result.tasks += [each.result() for each in running]
        except BaseException:  # an error of one task, or ctrl-C: the others are not waited for
            how.stop.set()
            raise
    return result


def _grade_task(task: Task, how: Settings, backends: Backends,
                built: TaskBuild | None) -> TaskResult:
    """Runs one task that was built. Cases that need the emulator's checks, and that the task's own
    backend left out, run in the checked one."""
    backend, kind = backends.of(task), how.implementation
    out_of_reach = backends.out_of_reach(task)
    ending = TaskResult(task, kind, NEEDS_GPU, out_of_reach=out_of_reach, backend=backend)
    if backend is None:
        return ending
    if built is None or not built.result.ok:
        missing = f"{task.shown_path(kind)} does not exist; ./lab reset {task.name} brings it back"
        error = built.result.first_error if built else missing
        return replace(ending, status=BUILD_FAILED, first_error=error)

    checks = backends.has_checks(task)
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        ahead, early = [], None
        if checks and not built.unchecked and not how.case:  # at the same time: the student waits
            ahead = _names_of_checks(build.binary(task.target(kind, backend)))
            early = beside.submit(run_task, task, how, CHECKED, ahead) if ahead else None
        result = run_task(task, how, backend, [how.case] if how.case else None,
                          probe=checks and how.case is not None)
        asking = [case.name for case in result.cases if case.status == NEEDS_CHECKS]
        if asking and checks:
            if built.unchecked:
                message = ("not run: it does not compile for the emulator's checks:\n"
                           f"{built.unchecked}")
                checked = [CaseResult(name, NOT_RUN, message, backend=CHECKED) for name in asking]
            else:
                checked = (early.result() if asking == ahead
                           else run_task(task, how, CHECKED, asking)).cases
            result = _with_checks(result, checked)
    return replace(result, out_of_reach=out_of_reach)


def build_tasks(tasks: Sequence[Task], kind: str, backends: Backends) -> dict[str, TaskBuild]:
    """Builds what a check of the tasks may run: in one go, so that no core waits, and where that
    fails each alone, to know whose error it is."""
    if len(tasks) > 1:
        targets = [task.target(kind, each) for task in tasks for each in backends.to_build(task)]
        built = build.build(targets, keep_going=True)
        if built.ok:
            return {task.id: TaskBuild(built) for task in tasks}
    return {task.id: _build_task(task, kind, backends) for task in tasks}


def _build_task(task: Task, implementation: str, backends: Backends) -> TaskBuild:
    targets = [task.target(implementation, backend) for backend in backends.to_build(task)]
    built = build.build(targets)
    if not built.ok and "unknown target" in built.log:  # CMake last ran without the task's file
        build.configure()
        built = build.build(targets)
    if not built.ok and len(targets) > 1 and backends.of(task) == GPU:  # nvcc accepts more than g++
        alone = build.build(targets[:1])
        return TaskBuild(alone, built.first_error if alone.ok else "")
    return TaskBuild(built)


def case_names(binary: Path) -> list[str]:
    try:
        listed = subprocess.run([binary, "--list-cases"], cwd=paths.ROOT, capture_output=True,
                                text=True, timeout=CASE_TIMEOUT, stdin=subprocess.DEVNULL,
                                errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{binary.name} --list-cases did not work: {error}") from None
    if listed.returncode:
        said = _printable(listed.stderr).strip().splitlines() or ["it printed nothing"]
        raise LabError(f"{binary.name} --list-cases {_how_it_ended(listed.returncode)}: {said[-1]}")
    return [line for line in listed.stdout.splitlines() if line]


def _names_of_checks(binary: Path) -> list[str]:
    """The cases that need the emulator's checks, which the harness wants to be called so."""
    with contextlib.suppress(LabError):  # a binary that crashes gets its verdict when it is run
        return [name for name in case_names(binary) if name.startswith("checks: ")]
    return []


def _with_checks(result: TaskResult, checked: Sequence[CaseResult]) -> TaskResult:
    """The result with the cases that only the checked binary runs in their places."""
    ran = {case.name: case for case in checked}  # [""]: it ended before its first case
    cases = [replace(ran.get(case.name) or ran[""], name=case.name, weight=case.weight,
                     points=case.points) if case.status == NEEDS_CHECKS else case
             for case in result.cases]
    backend = CHECKED if len(cases) == len(checked) else result.backend
    return replace(result, status=_status_of(cases), cases=cases, backend=backend)


def run_task(task: Task, how: Settings, backend: str, cases: Sequence[str] | None = None,
             probe: bool = False) -> TaskResult:
    """Runs a task's test binary, as often as it takes for every case, or the given ones, to have a
    result. With `probe` the command is not shown when no case ran for want of the checks."""
    binary = build.binary(task.target(how.implementation, backend))
    command = [binary, *_options(how, cases)]
    if not probe:
        console.print_command(command)
    known: dict[str, CaseResult] = {}  # all cases of the task, in their order
    results: dict[str, CaseResult] = {}
    pending: list[str] | None = list(cases) if cases else None  # None: all of them
    timeouts = 0
    while pending is None or pending:  # each round gives at least one case its result
        process = _Process(task, binary, backend, how, pending)
        with _ONE_ON_THE_GPU if backend == GPU else contextlib.nullcontext():
            process.run()
        known = known or process.known
        if not known:
            message = f"the test program {process.how_it_ended} before its first case"
            nothing = CaseResult("", CRASHED, message, process.output, 1, task.points, backend)
            return TaskResult(task, how.implementation, CRASHED, [nothing], backend=backend)
        pending = list(known) if pending is None else pending
        for name in cases or ():
            if name not in known:
                raise LabError(f'{binary.name} has no case called "{name}"')

        for name, ended in process.ended.items():
            if name in pending and (process.complete or ended.status != PASSED):
                results[name] = ended
        if process.complete:
            skipped = "the test program did not run this case"
            for name in pending:
                results.setdefault(name, CaseResult(name, NOT_RUN, skipped))
        else:
            # A case that has ended keeps a bad verdict; a pass does not outlive its process.
            culprit = process.culprit(pending)
            if culprit not in results:
                results[culprit] = process.verdict_on(culprit)
                timeouts += results[culprit].status == TIMED_OUT
        pending = [name for name in pending if name not in results]
        if timeouts >= TIMEOUTS_PER_TASK:
            why = f"not run, because {timeouts} cases before it timed out"
            results |= {name: CaseResult(name, NOT_RUN, why) for name in pending}
            pending = []

    if probe and any(result.status != NEEDS_CHECKS for result in results.values()):
        console.print_command(command)
    total = sum(case.weight for case in known.values())
    ended = []
    for name, case in known.items():
        if result := results.get(name):
            if how.case and result.status not in (NOT_STARTED, *ELSEWHERE):
                result.output = process.output  # of a case alone, however it ended
            points = task.points * case.weight / total if total else 0.0
            ended.append(replace(result, weight=case.weight, points=points, backend=backend,
                                 challenge=case.challenge))
    return TaskResult(task, how.implementation, _status_of(ended), ended, backend=backend)


def _options(how: Settings, cases: Sequence[str] | None) -> list[str]:
    return ["--seed", str(how.seed), *(word for name in cases or () for word in ("--case", name))]


def _status_of(cases: Sequence[CaseResult]) -> str:
    found = {case.status for case in cases if not case.challenge} or {case.status for case in cases}
    if found <= set(ELSEWHERE):
        return NEEDS_CHECKS if found == {NEEDS_CHECKS} else NEEDS_GPU
    if {NOT_STARTED, PASSED} <= found:
        found.add(UNFINISHED)
    order = CRASHED, TIMED_OUT, EXCEPTION, WRONG, NOT_RUN, UNFINISHED, NOT_STARTED, PASSED
    return next(status for status in order if status in found)


class _Process:
    """One run of a test binary, which is killed in the end with all that it started."""

    def __init__(self, task: Task, binary: Path, backend: str, how: Settings,
                 cases: Sequence[str] | None) -> None:
        self.task, self.binary, self.backend = task, binary, backend
        self.how, self.cases = how, cases
        self.known: dict[str, CaseResult] = {}  # what the task has, with weights
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
            command = [self.binary, *_options(self.how, self.cases), "--report", report,
                       "--out", os.devnull]
            try:
                process = subprocess.Popen(command, cwd=paths.ROOT, stdin=subprocess.DEVNULL,
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
        self.how_it_ended = (f"timed out after {self.how.timeout:g} s" if self.timed_out
                             else _how_it_ended(process.returncode))

    def _watch(self, process: subprocess.Popen, lines) -> None:
        """Follows the report until it is complete, or the process ends, or nothing comes for longer
        than the timeout. LabError when `stop` is set."""
        last_sign = time.monotonic()
        while True:
            ended = process.poll() is not None  # before the read, so that no line is missed
            if self._read(lines):
                last_sign = time.monotonic()
            if self.complete:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=2)  # it may write the rest of its output when it ends
            if self.complete or ended:
                return
            # A GPU can take long to start, so the first case gets more time.
            allowed = max(self.how.timeout, 0 if self.known else CASE_TIMEOUT)
            if time.monotonic() - last_sign > allowed:
                self.timed_out = True
                return
            if self.how.stop.wait(0.02):
                raise LabError("stopped")

    def _read(self, lines) -> bool:
        """Takes in the new whole lines of the report; True when there were any."""
        *whole, self._unread = (self._unread + lines.read()).split(b"\n")
        for line in whole:
            # Other lines than the harness's are ignored: a case without its lines has no result.
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                self._take(json.loads(line))
        return bool(whole)

    def _take(self, event: dict) -> None:
        kind = event["event"]
        if kind == "begin":
            found = event["task"], event["implementation"], event.get("backend", CPU)
            wanted = self.task.id, self.how.implementation, self.backend
            if found != wanted:
                raise LabError("{0} reports {1} ({2}, {3}); it must report {4} ({5}, {6})".format(
                    self.binary.name, *found, *wanted))
            self.known = {
                case["name"]: CaseResult(case["name"], NOT_RUN, weight=float(case["weight"]),
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
            message += ", " + ("right after" if name == self.last_case else "before") + " this case"
        if message.startswith("ended early"):
            message += ": something called exit()"
        status = TIMED_OUT if self.timed_out else CRASHED
        lines = "\n".join(filter(None, (message, _clue(self.output))))
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
        return _printable((self._head + gap + self._tail).decode("utf-8", "replace"))


def _printable(text: str) -> str:
    """Without terminal control codes: a program's output must not repaint the card."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r\n", "\n"))
    return "".join(char if char in "\n\t" or char.isprintable() else "\N{REPLACEMENT CHARACTER}"
                   for char in text)


def _clue(output: str) -> str:
    """The line in which a sanitizer, the C++ runtime or the C library says what happened."""
    signs = ("ERROR: AddressSanitizer", "runtime error:", "what():", "terminate called",
             "Assertion ", "free(): ", "malloc")
    return next((line.strip() for sign in signs for line in output.splitlines() if sign in line),
                "")


def _how_it_ended(code: int) -> str:
    if code < 0:
        name = _SIGNALS.get(-code) or signal.strsignal(-code) or "unknown"
        return f"crashed with signal {-code} ({name})"
    return f"ended early with exit code {code}"
