"""The next command to type, from how a check ended."""

import shutil
from collections.abc import Sequence

from lab import grading, manifest, state
from lab.grading import PartResult, TaskResult
from lab.manifest import Task


def next_step(results: Sequence[PartResult], case: str | None = None) -> list[str]:
    """What to do now, in one line or a few. `case` is the case that was run alone, if one was."""
    pairs = [(task, result) for result in results for task in result.tasks]
    for task, result in pairs:  # work that was begun comes before work that was not
        if not task.done and task.status not in (grading.NOT_STARTED, grading.UNFINISHED):
            return _fix(task, result.seed, case)
    for task, _ in pairs:
        if not task.done:
            return _write(task.task)
    if case and not all(task.status == grading.NEEDS_GPU for task, _ in pairs):
        return [f"Next: ./lab check {name}{_kind(results)}" for name in dict.fromkeys(task.task.name for task, _ in pairs)][:1]
    if all(task.status == grading.NEEDS_GPU for task, _ in pairs):
        return ["Nothing of this can run here: it needs a GPU."]
    return _all_green(results)


def first_unfinished(tasks: Sequence[Task]) -> Task | None:
    """The first task that the last check did not see pass; one that this machine cannot run comes last."""
    last = {name: result.status for name, result in state.load().results.items()}
    unfinished = [task for task in tasks if last.get(task.id) != grading.PASSED]
    # Before the first check nothing is known of this machine; the driver's own tool comes with every GPU.
    no_gpu = shutil.which("nvidia-smi") is None
    runnable = [task for task in unfinished
                if last.get(task.id) != grading.NEEDS_GPU and not (task.needs_gpu and task.id not in last and no_gpu)]
    return next(iter(runnable or unfinished), None)


def _fix(result: TaskResult, seed: int, case: str | None) -> list[str]:
    task, option = result.task, " --solution" if result.implementation == "solution" else ""
    if result.status == grading.BUILD_FAILED:
        return [f"Next: correct what the error names, then ./lab check {task.name}{option}"]
    failed = result.failures[0]
    if not failed.name:
        return [f"Next: run build/default/bin/{task.target(result.implementation)} by itself and see how it starts"]
    if case:
        file = task.shown_path(result.implementation)
        return [f"Next: edit {file} and run the same again; ./lab hint {task.name} has a hint"]
    return [f'Next: ./lab check {task.name} --test "{failed.name}" --seed {seed}{option}']


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
        if rest and not _needs_gpu(rest):
            return _write(rest)
    lines = ["All green. Next: ./lab bench measures how fast it is"]
    other = first_unfinished([task for part in parts for task in part.tasks])
    if other and not _needs_gpu(other):
        lines.append(f"      then {other.part}: {other.folder.name}/README.md")
    return lines


def _needs_gpu(task: Task) -> bool:
    last = state.load().results.get(task.id)
    return last is not None and last.status == grading.NEEDS_GPU
