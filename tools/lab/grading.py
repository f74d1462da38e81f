"""Builds tasks' tests and runs them, as often as it takes for every case to have a result: the case
during which a process ends gets the blame, and the remaining cases run again without it.
"""

import concurrent.futures
import contextlib
import os
import resource
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab import build, console, where
from lab.backends import CHECKED, CPU, GPU, Backends, choose
from lab.build import BuildResult
from lab.errors import LabError
from lab.manifest import Part, Task
from lab.outcomes import (BUILD_FAILED, CRASHED, ELSEWHERE, NEEDS_CHECKS, NEEDS_GPU, NOT_RUN,
                          NOT_STARTED, PASSED, CaseResult, PartResult, TaskResult, status_of,
                          with_points)
from lab.running import Process, Settings, case_names, options

TIMEOUTS_PER_TASK = 2  # then the rest is not run: an endless loop is rarely alone
_ONE_ON_THE_GPU = threading.Lock()  # some tests depend on how much of the GPU's memory is free


@dataclass(frozen=True)
class TaskBuild:
    result: BuildResult
    unchecked: str = ""  # why the checked binary did not build, where only that one failed


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
        running = [pool.submit(grade_task, task, how, result.backends, builds.get(task.id))
                   for task in chosen]
        try:
            result.tasks += [each.result() for each in running]
        except BaseException:  # an error of one task, or ctrl-C: the others are not waited for
            how.stop.set()
            raise
    return result


def grade_task(task: Task, how: Settings, backends: Backends,
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
        result = run_task(task, replace(how, quiet=how.quiet or elsewhere), backend,
                          [how.case] if how.case else None)
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
    return replace(result, status=status_of(cases), cases=with_points(result.task, cases),
                   backend=backend)


def run_task(task: Task, how: Settings, backend: str,
             cases: Sequence[str] | None = None) -> TaskResult:
    """Runs a task's test binary, as often as it takes for every case, or the given ones, to have a
    result."""
    binary = build.binary(task.target(how.implementation, backend))
    if not how.quiet:
        variables = how.environment if backend == CPU else {}
        console.print_command([*(f"{name}={value}" for name, value in variables.items()), binary,
                               *options(how, cases)])
    known: dict[str, CaseResult] = {}  # all cases of the task, in their order
    results: dict[str, CaseResult] = {}
    pending: list[str] | None = list(cases) if cases else None  # None: all of them
    timeouts = 0
    hung_at: where.Spot | None = None
    passed: set[str] = set()  # in a process that perhaps did not come to its end
    last_round = False
    while pending is None or pending:  # each round gives at least one case its result
        process = Process(task, binary, backend, how, pending, hung_at)
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
    return TaskResult(task, how.implementation, status_of(ended), with_points(task, ended),
                      backend=backend)
