"""Builds tasks' libraries and lets their judges run them."""

import concurrent.futures
import contextlib
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab import build, running
from lab.backends import CHECKED, GPU, Backends, choose
from lab.build import BuildResult
from lab.errors import LabError
from lab.manifest import Part, Task
from lab.outcomes import (BUILD_FAILED, NEEDS_CHECKS, NEEDS_GPU, NOT_RUN, CaseResult, PartResult,
                          TaskResult, status_of, with_points)
from lab.running import Settings

_ONE_ON_THE_GPU = threading.Lock()  # some tests depend on how much of the GPU's memory is free


@dataclass(frozen=True)
class TaskBuild:
    result: BuildResult
    unchecked: str = ""  # why the checked library did not build, where only that one failed


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
    """Runs one task that was built."""
    backend, kind = backends.of(task), how.implementation
    out_of_reach = backends.out_of_reach(task)
    ending = TaskResult(task, kind, NEEDS_GPU, out_of_reach=out_of_reach, backend=backend)
    if backend is None:
        return ending
    if built is None or not built.result.ok:
        missing = f"{task.shown_path(kind)} does not exist; ./lab reset {task.name} brings it back"
        error = built.result.first_error if built else missing
        return replace(ending, status=BUILD_FAILED, first_error=error)
    if backends.sanitizes(task):
        how = replace(how, folder=build.binary("").parent / "lib/sanitized",
                      variables=backends.environment())
    used = [backend] if built.unchecked else backends.to_build(task)
    result = run_task(task, how, used, [how.case] if how.case else None)
    if built.unchecked:
        why = f"not run: it does not compile for the emulator's checks:\n{built.unchecked}"
        cases = [replace(case, status=NOT_RUN, message=why) if case.status == NEEDS_CHECKS else case
                 for case in result.cases]
        result = replace(result, status=status_of(cases), cases=with_points(task, cases))
    return replace(result, out_of_reach=out_of_reach,
                   warnings=build.warnings(built.result.log, task.shown_path(kind)))


def build_tasks(tasks: Sequence[Task], kind: str, backends: Backends) -> dict[str, TaskBuild]:
    """Builds what a check of the tasks may run: in one go, so that no core waits, and where that
    fails each alone, to know whose error it is."""
    if len(tasks) > 1:
        targets = [target for task in tasks for target in _targets(task, kind, backends)]
        built = build.build(list(dict.fromkeys(targets)), keep_going=True)
        if built.ok:
            return {task.id: TaskBuild(built) for task in tasks}
    return {task.id: _build_task(task, kind, backends) for task in tasks}


def _targets(task: Task, kind: str, backends: Backends) -> list[str]:
    used = backends.to_build(task)
    libraries = [task.target(kind, backend) for backend in used]
    if backends.sanitizes(task):
        libraries.append(f"{libraries[0]}_sanitized")
    return [*libraries, running.judge_of(task), *map(running.runner_of, used)]


def _build_task(task: Task, implementation: str, backends: Backends) -> TaskBuild:
    targets = _targets(task, implementation, backends)
    built = build.build(targets)
    if not built.ok and "unknown target" in built.log:  # CMake last ran without the task's file
        build.configure()
        built = build.build(targets)
    checked = [task.target(implementation, CHECKED), running.runner_of(CHECKED)]
    if not built.ok and backends.of(task) == GPU and checked[0] in targets:  # nvcc accepts more
        alone = build.build([target for target in targets if target not in checked])
        return TaskBuild(alone, built.first_error if alone.ok else "")
    return TaskBuild(built)


def run_task(task: Task, how: Settings, backends: Sequence[str],
             cases: Sequence[str] | None = None) -> TaskResult:
    """Runs a task's cases, or the given ones, with the libraries of these backends."""
    with _ONE_ON_THE_GPU if GPU in backends else contextlib.nullcontext():
        ended: list[CaseResult] = running.run(task, backends, how, cases)
    most = Counter(case.backend for case in ended).most_common(1)[0][0]
    return TaskResult(task, how.implementation, status_of(ended), with_points(task, ended),
                      backend=most)
