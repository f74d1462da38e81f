"""Builds tasks' libraries and lets their judges run them."""

import concurrent.futures
import contextlib
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lab import build, console, libraries, paths, running
from lab.backends import CHECKED, GPU, Backends, choose
from lab.build import BuildResult
from lab.errors import LabError
from lab.manifest import Part, Task
from lab.outcomes import (BUILD_FAILED, NEEDS_CHECKS, NEEDS_GPU, NOT_RUN, PASSED, CaseResult,
                          PartResult, TaskResult, status_of, with_points)
from lab.running import Settings

_ONE_ON_THE_GPU = threading.Lock()  # some tests depend on how much of the GPU's memory is free


@dataclass(frozen=True)
class TaskBuild:
    result: BuildResult
    unchecked: str = ""  # why the checked library did not build, where only that one failed


class Building:
    """The build of tasks' libraries. A judge waits for its library here, and starts as soon as it
    is there."""

    def __init__(self, tasks: Sequence[Task], kind: str, backends: Backends) -> None:
        self._of = tasks, kind, backends
        self._ready = {task.target(kind, backend): threading.Event()
                       for task in tasks for backend in backends.to_build(task)}
        self._over = threading.Event()
        self._builds: dict[str, TaskBuild] = {}

    def run(self) -> None:
        try:
            self._builds = build_tasks(*self._of, lambda library: self._ready[library].set())
        finally:
            for event in (self._over, *self._ready.values()):
                event.set()

    def of(self, task: Task) -> TaskBuild | None:
        """How it ended; None for a task that was not to be built."""
        self._over.wait()
        return self._builds.get(task.id)

    def has(self, task: Task, backend: str) -> bool:
        """Whether the task's library can be run, as soon as that is known."""
        if ready := self._ready.get(task.target(self._of[1], backend)):
            ready.wait()
        if ready and not self._over.is_set():
            return True
        built = self.of(task)
        return bool(built and built.result.ok and not (backend == CHECKED and built.unchecked))


def grade_part(part: Part, implementation: str = "skeleton", seed: int = 1, *,
               tasks: Sequence[Task] | None = None, backends: Backends | None = None,
               **settings: object) -> PartResult:
    """Grades a part, or the given tasks of it. A task that does not compile costs only itself."""
    if not part.has(implementation):
        raise LabError(f"{part.folder.name}/{implementation}/ does not exist: there is nothing of "
                       "that kind to check here")
    result = PartResult(part, implementation, seed, backends or choose(build.configured()))
    line = console.LiveLine()
    how = Settings(implementation, seed, notify=line.show, **settings)
    chosen = part.tasks if tasks is None else tasks
    building = Building([task for task in chosen if result.backends.of(task)
                         and task.path(implementation).is_file()], implementation, result.backends)
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        running = [pool.submit(grade_task, task, how, result.backends, building) for task in chosen]
        try:
            building.run()  # with a progress bar of its own: two cannot share the screen
            with line:
                result.tasks += [each.result() for each in running]
        except BaseException:  # an error of one task, or ctrl-C: nothing else is waited for
            how.stop.set()
            raise
    return result


def grade_task(task: Task, how: Settings, backends: Backends, building: Building) -> TaskResult:
    """Runs one task."""
    backend, kind = backends.of(task), how.implementation
    out_of_reach = backends.out_of_reach(task)
    ending = TaskResult(task, kind, NEEDS_GPU, out_of_reach=out_of_reach, backend=backend)
    if backend is None:
        return ending
    if backends.sanitizes(task):
        how = replace(how, folder=build.binary("").parent / "lib/sanitized",
                      variables=backends.environment())
        building.of(task)  # waits for that library, too
    is_there = building.has(task, backend)
    used = backends.to_build(task)
    if is_there and how.case:
        if len(used) > 1 and building.has(task, CHECKED) and how.case in running.case_names(
                task, CHECKED, only_checks=True):
            used = [CHECKED]
        result = run_task(task, how, used[:1], [how.case])
    elif is_there:
        result = run_task(task, how, used, has=building.has, refused=lambda: refused_by_nvcc(
            task, kind, backends))
    built = building.of(task)
    if is_there and result.status == BUILD_FAILED:
        return result
    if built is None or not built.result.ok:
        missing = f"{task.shown_path(kind)} does not exist; ./lab reset {task.name} brings it back"
        error = built.result.first_error if built else missing
        return replace(ending, status=BUILD_FAILED, first_error=error)
    if built.unchecked:
        why = f"not run: it does not compile for the emulator's checks:\n{built.unchecked}"
        cases = [replace(case, status=NOT_RUN, message=why) if case.status == NEEDS_CHECKS else case
                 for case in result.cases]
        result = replace(result, status=status_of(cases), cases=with_points(task, cases))
    return replace(result, out_of_reach=out_of_reach, warnings=build.warnings(
        built.result.log, task.shown_path(kind)))


def build_tasks(tasks: Sequence[Task], kind: str, backends: Backends,
                on_ready: Callable[[str], None] = lambda library: None) -> dict[str, TaskBuild]:
    """Builds what a check of the tasks may run: in one go, so that no core waits, and where that
    fails each alone, to know whose error it is. `on_ready` gets the name of each library with which
    a judge can start."""
    if len(tasks) > 1:
        targets = [target for task in tasks for target in _targets(task, kind, backends)]
        built = build.build(targets, keep_going=True, on_ready=on_ready)
        if built.ok:
            return {task.id: TaskBuild(built) for task in tasks}
    return {task.id: _build_task(task, kind, backends, on_ready) for task in tasks}


def _targets(task: Task, kind: str, backends: Backends) -> list[str]:
    libraries = [task.target(kind, backend) for backend in backends.to_build(task)]
    return [*(f"{library}_ready" for library in libraries),
            *[f"{libraries[0]}_sanitized"] * backends.sanitizes(task)]


def _build_task(task: Task, implementation: str, backends: Backends,
                on_ready: Callable[[str], None]) -> TaskBuild:
    targets = _targets(task, implementation, backends)
    built = build.build(targets, keep_going=True, on_ready=on_ready)
    if error := build.error_of_given(built.log, build.build_folder("default")):
        raise LabError("a file that is not yours does not compile, so nothing was graded; if you "
                       f"changed it, put it back as you got it: {error}")
    if not built.ok and "unknown target" in built.log:  # CMake last ran without the task's file
        build.configure()
        built = build.build(targets)
    if build.LACKS_ENTRY in built.first_error:
        return TaskBuild(replace(built, first_error=task.lacks_entry(implementation)))
    if not built.ok and len(targets) > 1 and backends.of(task) == GPU:  # nvcc accepts more
        alone = build.build(targets[0])
        return TaskBuild(alone, built.first_error if alone.ok else "")
    return TaskBuild(built)


def run_task(task: Task, how: Settings, backends: Sequence[str], cases: Sequence[str] | None = None,
             has: Callable[[Task, str], bool] = lambda task, backend: True,
             refused: Callable[[], str] = lambda: "") -> TaskResult:
    """Runs a task's cases, or the given ones, with its library for the first backend. Beside that,
    those that need the checks run with the library for the second one, as soon as it `has` that.
    When no case of the first one fails, `refused` says whether another compiler refuses the file.
    """
    hung = threading.Event()

    def run(number: int) -> list[CaseResult]:
        if number and not has(task, backends[number]):
            return []
        with _ONE_ON_THE_GPU if backends[number] == GPU else contextlib.nullcontext():
            return running.run(task, backends[number], how, cases, number > 0,
                               hung if number else None)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        beside = [pool.submit(run, number) for number in range(1, len(backends))]
        try:
            ended = run(0)
        except BaseException:
            hung.set()
            raise
        if any(case.status == NOT_RUN for case in ended):  # the judge has given up
            hung.set()
        error = pool.submit(refused) if {case.status for case in ended} <= {
            PASSED, NEEDS_CHECKS} else None
    if error and error.result():
        return TaskResult(task, how.implementation, BUILD_FAILED, first_error=error.result(),
                          backend=GPU)
    checked = {case.name: case for half in beside for case in half.result()}
    for n, case in enumerate(ended):
        if case.status == NEEDS_CHECKS and hung.is_set():
            ended[n] = replace(case, status=NOT_RUN, message="Not run, because calls before it "
                               "took too long.")
        if case.status == NEEDS_CHECKS and case.name in checked:
            ended[n] = checked[case.name]
    most = Counter(case.backend for case in ended).most_common(1)[0][0]
    return TaskResult(task, how.implementation, status_of(ended), with_points(task, ended),
                      backend=most)


def refused_by_nvcc(task: Task, kind: str, backends: Backends) -> str:
    """The first error of nvcc in a CUDA task's file, where it is there and the file was compiled by
    another compiler alone: "" if there is none."""
    if not task.is_cuda or backends.of(task) == GPU or backends.config.cuda == "none":
        return ""
    folder = build.build_folder("default")
    library = libraries.load(folder).get((task.path(kind), GPU))
    if library is None:
        return ""
    ended = subprocess.run(["nice", *library.device_pass(), task.path(kind), "-o", os.devnull],
                           capture_output=True, text=True, errors="replace", cwd=paths.ROOT)
    if not ended.returncode:
        return ""
    return build.first_error(ended.stderr + ended.stdout, folder) + "\nnvcc says so, which " \
        "compiles the file for a GPU"
