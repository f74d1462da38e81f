"""The next command to type, from how a check ended."""

import re
import shutil
from collections.abc import Sequence

from lab import grading, manifest, paths, state
from lab.backends import CHECKED, EMULATED, Backends
from lab.grading import PartResult, TaskResult
from lab.manifest import Task
from lab.verbs import bench

NEEDS = {grading.NEEDS_GPU: "a GPU, or the emulator (Linux on x86-64 or AArch64)",
         grading.NEEDS_CHECKS: "the emulator's checks, and they need g++"}


def next_step(results: Sequence[PartResult], case: str | None = None) -> list[str]:
    """What to do now, in one line or a few. `case` is the case that was run alone, if one was."""
    pairs = [(task, result) for result in results for task in result.tasks]
    for task, result in pairs:  # work that was begun comes before work that was not
        if not task.done and task.status not in (grading.NOT_STARTED, grading.UNFINISHED):
            return _fix(task, result.seed, result.backends, case)
    for task, _ in pairs:
        if not task.done:
            return _write(task.task)
    if all(task.status in NEEDS for task, _ in pairs):
        needs = sorted({NEEDS[task.status] if not task.task.needs_gpu else "a GPU" for task, _ in pairs})
        return [f"Nothing of this can run here: it needs {'; or '.join(needs)}."]
    if case:
        return [f"Next: ./lab check {name}{_kind(results)}" for name in dict.fromkeys(task.task.name for task, _ in pairs)][:1]
    return _all_green(results)


def first_unfinished(tasks: Sequence[Task]) -> Task | None:
    """The first task that the last check did not see pass; one that this machine cannot run comes last."""
    last = {name: result.status for name, result in state.load().results.items()}
    unfinished = [task for task in tasks if last.get(task.id) != grading.PASSED]
    # Before the first check nothing is known of this machine; the driver's own tool comes with every GPU.
    no_gpu = shutil.which("nvidia-smi") is None
    runnable = [task for task in unfinished
                if last.get(task.id) not in NEEDS and not (task.needs_gpu and task.id not in last and no_gpu)]
    return next(iter(runnable or unfinished), None)


# What g++ has no clear words for.
_NVCC_ONLY = (
    (re.compile("<<<"), "launch with launch() (common/cuda/launch.hpp), since <<<...>>> is for nvcc only"),
    (re.compile(r"\bextern\s+__shared__"),
     "write FLASH_DYNAMIC_SHARED(T, name) (common/cuda/launch.hpp), since extern __shared__ is for nvcc only"),
)


def _fix(result: TaskResult, seed: int, backends: Backends, case: str | None) -> list[str]:
    task, option = result.task, " --solution" if result.implementation == "solution" else ""
    if task.is_cuda and backends.asked:
        option += " --check-races" if backends.asked == CHECKED else " --emulate"
    if result.status == grading.BUILD_FAILED:
        line = _line_of(result.first_error) if task.is_cuda else ""
        correct = next((words for pattern, words in _NVCC_ONLY if pattern.search(line)), "correct what the error names")
        return [f"Next: {correct}, then ./lab check {task.name}{option}"]
    failed = result.failures[0]
    if not failed.name:
        target = task.target(result.implementation, failed.backend)
        return [f"Next: run build/default/bin/{target} by itself and see how it starts"]
    # The checks often name the line where a wrong result only names the element.
    unchecked = failed.backend == EMULATED and failed.status in (grading.WRONG, grading.CRASHED) and backends.has_checks(task)
    if case:
        file = task.shown_path(result.implementation)
        checks = ", or with --check-races, which finds races and stray accesses" if unchecked else ""
        return [f"Next: edit {file} and run the same again{checks}; ./lab hint {task.name} has a hint"]
    if unchecked:
        option = option.removesuffix(" --emulate") + " --check-races"
    return [f'Next: ./lab check {task.name} --test "{failed.name}" --seed {seed}{option}']


def _line_of(error: str) -> str:
    """The line of source that a compiler's error names, "" where there is none."""
    place = re.match(r"([^:]+):(\d+):", error)
    try:
        lines = (paths.ROOT / place[1]).read_text(encoding="utf-8", errors="replace").splitlines() if place else []
    except OSError:
        return ""
    return lines[int(place[2]) - 1] if place and 0 < int(place[2]) <= len(lines) else ""


def _write(task: Task) -> list[str]:
    return [f"Next: open {task.shown_path()} and fill in its TODOs; ./lab hint {task.name} has a hint"]


def _kind(results: Sequence[PartResult]) -> str:
    return " --solution" if results[0].implementation == "solution" else ""


def _all_green(results: Sequence[PartResult]) -> list[str]:
    if _kind(results):
        return []
    parts = manifest.load_parts()
    for result in results:
        rest = first_unfinished(result.part.tasks)
        if rest and not _out_of_reach(rest):
            return _write(rest)
    name = results[-1].part.name
    can_bench = bench.can_run(name, results[-1].backends.config)
    measures = f"./lab bench {name} measures how fast it is"
    lines = [f"All green. Next: {measures}" if can_bench else f"All green. On a machine with a GPU {measures}."]
    other = first_unfinished([task for part in parts for task in part.tasks])
    if other and not _out_of_reach(other):
        lines.append(f"{'      then' if can_bench else 'Next:'} {other.part}: {other.folder.name}/README.md")
    return lines


def _out_of_reach(task: Task) -> bool:
    last = state.load().results.get(task.id)
    return last is not None and last.status in NEEDS
