"""Builds a task's tests, runs them, and says how each graded case ended.

The student's code runs in the test binary's process, and may crash it, hang or call exit(0). So the
return code is never trusted: a case passes only when its own report line says so in a process whose
report is complete. A case during which the process ends gets the blame, and the remaining cases run
again without it.
"""

import concurrent.futures
import contextlib
import json
import math
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

from lab import build, console, paths, where
from lab.backends import CHECKED, CPU, EMULATED, GPU, Backends, choose
from lab.build import BuildResult
from lab.errors import LabError
from lab.manifest import Part, Task

# Seconds that a graded case may take, at least four times what the slowest of a solution does.
CASE_TIMEOUT = {CPU: 8.0, EMULATED: 8.0, CHECKED: 10.0, GPU: 20.0}
START_TIMEOUT = 60.0  # seconds to the first line of the report: a GPU can take long to start
TIMEOUTS_PER_TASK = 2  # then the rest is not run: an endless loop is rarely alone
HUNG_BEFORE = 2.0  # seconds after which a case that is where the last one hung is not waited for
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
    requirement: str = ""  # of its task, which it belongs to
    points: float = 0  # what the case is worth
    counts: float = 1  # the part of that which it earns when it passes: see with_points()
    backend: str = CPU  # that ran it
    challenge: bool = False  # beyond the task: no points, and failing it is no failure
    diagnosis: str = ""  # the name of the mistake, where the harness is sure of it
    explanation: str = ""  # the same mistake with small numbers, where that was asked for

    @property
    def earned(self) -> float:
        return self.points * self.counts if self.status == PASSED else 0.0


@dataclass
class TaskResult:
    task: Task
    implementation: str
    status: str
    cases: list[CaseResult] = field(default_factory=list)
    first_error: str = ""  # of the compiler, "file:line: message"
    out_of_reach: bool = False  # this machine cannot run the task
    backend: str | None = CPU  # that ran it, or most of it
    warnings: list[str] = field(default_factory=list)  # of the compiler, if it ran now

    @property
    def earned(self) -> float:
        return math.fsum(case.earned for case in self.cases)

    @property
    def missing(self) -> dict[str, float]:
        """The points that are not counted here, by what it takes to count them."""
        gpu = "a GPU or the emulator"
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
        """The one that says most comes first."""
        return in_order([case for case in self.cases if not case.challenge
                         and case.status not in (PASSED, NOT_STARTED, *ELSEWHERE)])

    @property
    def challenges(self) -> list[CaseResult]:
        return [case for case in self.cases if case.challenge]

    @property
    def done(self) -> bool:
        """Nothing is left to do here: all passed, or only another machine can tell."""
        return self.status in (PASSED, *ELSEWHERE)

    def _share(self, status: str) -> float:
        return math.fsum(case.points for case in self.cases if case.status == status)

    @property
    def requirements(self) -> list[tuple[str, float, float]]:
        """Name, points earned, points that can be earned here; in the order of tasks.toml."""
        found = []
        for name in self.task.requirements:
            here = [case for case in self.cases
                    if case.requirement == name and case.status not in ELSEWHERE]
            found.append((name, sum(case.earned for case in here),
                          sum(case.points for case in here)))
        return [one for one in found if one[2]]


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


# A requirement that is broken in one place is broken. Of the others whose share is large, most is
# worth half. Each step pays for itself: whoever breaks one breaks another requirement, too.
EACH_BY_ITSELF = "steps"
ALL_OR_NOTHING = ("memory", "order and races")
LARGE, MOST = 20, 0.75


def with_points(task: Task, cases: Sequence[CaseResult]) -> list[CaseResult]:
    """A requirement's points are shared out among its cases. They count when all of them pass, or,
    of a large one, half when most do; those of a step count when it passes."""
    sizes = Counter(case.requirement for case in cases if not case.challenge)
    for name in sizes:
        if task.points and name not in task.requirements:
            raise LabError(f'{task.id} has a case of the requirement "{name}", which its entry in '
                           f"tasks.toml lacks")
    counts = {}
    for name in sizes:
        ran = [case.status == PASSED for case in cases if case.requirement == name
               and not case.challenge and case.status not in ELSEWHERE]
        large = name not in ALL_OR_NOTHING and task.requirements.get(name, 0) >= LARGE
        most = large and sum(ran) >= MOST * len(ran)
        # Half of the whole, shared out among those that pass.
        whole = all(ran) or name == EACH_BY_ITSELF
        counts[name] = 1 if whole else 0.5 * len(ran) / sum(ran) if most else 0
    return [replace(case, points=0 if case.challenge or not task.points else
                    task.points * task.requirements[case.requirement] / 100
                    / sizes[case.requirement],
                    counts=0 if case.challenge else counts[case.requirement]) for case in cases]


def in_order(failures: Sequence[CaseResult]) -> list[CaseResult]:
    """Endless loops, because of which other cases did not run, then races and stray accesses, which
    come with file and line, then a mistake that has a name, then the others, and those that did not
    run; among equals the order of the task, whose simple cases come first."""
    return sorted(failures, key=lambda case: 0 if case.status == TIMED_OUT
                  else 1 if case.message.startswith("kernel ") else 2 if case.diagnosis
                  else 4 if case.status == NOT_RUN else 3)


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
    timeout: float | None = None  # seconds a case; None: as CASE_TIMEOUT says
    notify: Notify = lambda line: None
    environment: Mapping[str, str] = field(default_factory=dict)  # of tasks in C++
    stop: threading.Event = field(default_factory=threading.Event)  # set: end everything
    explain: bool = False  # show failed cases with small numbers
    library_path: str = ""  # a folder with libraries that come before those of the build


def grade_part(part: Part, implementation: str = "skeleton", seed: int = 1, *,
               tasks: Sequence[Task] | None = None, backends: Backends | None = None,
               **settings: object) -> PartResult:
    """Grades a part, or the given tasks of it. A task that does not compile costs only itself."""
    if not part.has(implementation):
        raise LabError(f"{part.folder.name}/{implementation}/ does not exist: there is nothing of "
                       "that kind to check here")
    result = PartResult(part, implementation, seed, backends or choose(build.configured()))
    how = Settings(implementation, seed, environment=result.backends.environment(), **settings)
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
        elsewhere = checks and (how.case or "").startswith("checks: ")  # this run says so, no more
        result = run_task(task, how, backend, [how.case] if how.case else None, quiet=elsewhere)
        asking = [case.name for case in result.cases if case.status == NEEDS_CHECKS]
        if asking and checks:
            if built.unchecked:
                message = ("not run: it does not compile for the emulator's checks:\n"
                           f"{built.unchecked}")
                checked = [CaseResult(name, NOT_RUN, message, backend=CHECKED) for name in asking]
            else:
                checked = (early.result() if asking == ahead
                           else run_task(task, how, CHECKED, asking)).cases
            result = with_checks(result, checked)
    return replace(result, out_of_reach=out_of_reach,
                   warnings=build.warnings(built.result.log, task.shown_path(kind)))


def build_tasks(tasks: Sequence[Task], kind: str, backends: Backends) -> dict[str, TaskBuild]:
    """Builds what a check of the tasks may run: in one go, so that no core waits, and where that
    fails each alone, to know whose error it is."""
    if len(tasks) > 1:
        targets = [target for task in tasks for target in _targets(task, kind, backends)]
        built = build.build(targets, keep_going=True)
        if built.ok:
            return {task.id: TaskBuild(built) for task in tasks}
    return {task.id: _build_task(task, kind, backends) for task in tasks}


def _targets(task: Task, kind: str, backends: Backends) -> list[str]:
    targets = [task.target(kind, backend) for backend in backends.to_build(task)]
    return [*targets, *[f"{task.library(kind)}_sanitized"] * backends.sanitizes(task)]


def _build_task(task: Task, implementation: str, backends: Backends) -> TaskBuild:
    targets = _targets(task, implementation, backends)
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
                                text=True, timeout=START_TIMEOUT, stdin=subprocess.DEVNULL,
                                errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{binary.name} --list-cases did not work: {error}") from None
    if listed.returncode:
        said = printable(listed.stderr).strip().splitlines() or ["it printed nothing"]
        raise LabError(f"{binary.name} --list-cases {_how_it_ended(listed.returncode)}: {said[-1]}")
    return [line for line in listed.stdout.splitlines() if line]


def _names_of_checks(binary: Path) -> list[str]:
    """The cases that need the emulator's checks, which the harness wants to be called so."""
    with contextlib.suppress(LabError):  # a binary that crashes gets its verdict when it is run
        return [name for name in case_names(binary) if name.startswith("checks: ")]
    return []


def with_checks(result: TaskResult, checked: Sequence[CaseResult]) -> TaskResult:
    """The result with the cases that only the checked binary runs in their places."""
    ran = {case.name: case for case in checked}  # [""]: it ended before its first case
    cases = [replace(ran.get(case.name) or ran[""], name=case.name,
                     requirement=case.requirement) if case.status == NEEDS_CHECKS else case
             for case in result.cases]
    backend = CHECKED if len(cases) == len(checked) else result.backend
    return replace(result, status=_status_of(cases), cases=with_points(result.task, cases),
                   backend=backend)


def run_task(task: Task, how: Settings, backend: str, cases: Sequence[str] | None = None,
             quiet: bool = False) -> TaskResult:
    """Runs a task's test binary, as often as it takes for every case, or the given ones, to have a
    result. With `quiet` the command is not shown."""
    binary = build.binary(task.target(how.implementation, backend))
    if not quiet:
        variables = how.environment if backend == CPU else {}
        console.print_command([*(f"{name}={value}" for name, value in variables.items()), binary,
                               *_options(how, cases)])
    known: dict[str, CaseResult] = {}  # all cases of the task, in their order
    results: dict[str, CaseResult] = {}
    pending: list[str] | None = list(cases) if cases else None  # None: all of them
    timeouts = 0
    hung_at: where.Spot | None = None
    passed: set[str] = set()  # in a process that perhaps did not come to its end
    last_round = False
    while pending is None or pending:  # each round gives at least one case its result
        process = _Process(task, binary, backend, how, pending, hung_at)
        with _ONE_ON_THE_GPU if backend == GPU else contextlib.nullcontext():
            process.run()
        known = known or process.known
        if not known:
            message = f"the test program {process.how_it_ended} before its first case"
            nothing = CaseResult("", CRASHED, message, process.output, "", task.points,
                                 backend=backend)
            return TaskResult(task, how.implementation, CRASHED, [nothing], backend=backend)
        pending = list(known) if pending is None else pending
        for name in cases or ():
            if name not in known:
                raise LabError(f'{binary.name} has no case called "{name}"')

        passed |= {name for name, ended in process.ended.items() if ended.status == PASSED}
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
                if process.timed_out:
                    timeouts += 1
                    hung_at = process.spot
        pending = [name for name in pending if name not in results]
        if timeouts >= TIMEOUTS_PER_TASK:
            # What came before the endless loop runs once more, to its end this time.
            once_more = set() if last_round else passed.intersection(pending)
            why = f"not run, because {timeouts} cases before it timed out"
            results |= {name: CaseResult(name, NOT_RUN, why) for name in pending
                        if name not in once_more}
            pending = [name for name in pending if name in once_more]
            last_round = True

    ended = []
    for name, case in known.items():
        if result := results.get(name):
            if how.case and result.status not in (NOT_STARTED, *ELSEWHERE):
                result.output = process.output  # of a case alone, however it ended
            ended.append(replace(result, requirement=case.requirement, backend=backend,
                                 challenge=case.challenge))
    return TaskResult(task, how.implementation, _status_of(ended), with_points(task, ended),
                      backend=backend)


def _options(how: Settings, cases: Sequence[str] | None) -> list[str]:
    return ["--seed", str(how.seed), *["--explain"] * how.explain,
            *(word for name in cases or () for word in ("--case", name))]


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
            command = [self.binary, *_options(self.how, self.cases), "--report", report,
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
            seen.diagnosis = str(event["name"])
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
        # Around the harness's tensors memory is "poisoned": tests/harness/padded_tensor.hpp.
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
