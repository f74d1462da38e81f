"""The next command to type, from how a check ended."""

import contextlib
import re
from collections.abc import Sequence

from lab import benchmarks, hints, manifest, outcomes, paths, state
from lab.backends import CHECKED, EMULATED, Backends
from lab.manifest import Task
from lab.outcomes import PartResult, TaskResult

NEEDS = {outcomes.NEEDS_GPU: "a GPU, or the emulator (Linux on x86-64 or AArch64)",
         outcomes.NEEDS_CHECKS: "the emulator's checks, which need g++"}


def next_step(results: Sequence[PartResult], case: str | None = None) -> list[str]:
    """What to do now, in one or two lines. `case` is the case that was run alone, if one was."""
    pairs = [(task, result) for result in results for task in result.tasks]
    for task, result in pairs:  # work that was begun comes before work that was not
        if not task.done and task.status not in (outcomes.NOT_STARTED, outcomes.UNFINISHED):
            return [_fix(task, result.seed, result.backends, case), *_about(task, result.backends, case)]
    left = [task.task for task, _ in pairs if not task.done]
    if any(task.points for task in left) or left and not any(task.task.points for task, _ in pairs):
        return [_write(left[0])]  # whoever has all points has left out the warm-up on purpose
    if all(task.status in NEEDS for task, _ in pairs):
        needs = {NEEDS[task.status] for task, _ in pairs}
        return [f"Nothing of this can run here: it needs {'; or '.join(sorted(needs))}."]
    solution = results[0].implementation == "solution"
    if results[0].backends.asked == CHECKED and not case:
        names = " ".join(task.task.name for task, _ in pairs)
        return ["The checks found nothing. They are too slow for some cases, which did not run. "
                f"Next: ./lab check {names}{' --solution' * solution}"]
    if case:
        return [f"Next: ./lab check {pairs[0][0].task.name}{' --solution' * solution}"]
    return [] if solution else _all_green(results)


def first_unfinished(tasks: Sequence[Task]) -> Task | None:
    """The first task that the last check did not see pass; those that cannot run here come last."""
    last = {name: result.status for name, result in state.load().results.items()}
    unfinished = [task for task in tasks if last.get(task.id) != outcomes.PASSED]
    runnable = [task for task in unfinished if last.get(task.id) not in NEEDS]
    return next(iter(runnable or unfinished), None)


# In the line or the message: what only nvcc can read, and what compilers have no clear words for.
_CLEARER = (
    (re.compile("<<<"),
     "launch with launch() (common/cuda/launch.hpp), because <<<...>>> is for nvcc only"),
    (re.compile(r"\bextern\s+__shared__"), "write FLASH_DYNAMIC_SHARED(T, name) "
     "(common/cuda/launch.hpp), because extern __shared__ is for nvcc only"),
    (re.compile(r"\basm\b"),
     "use a wrapper of common/cuda/ (mma, ldmatrix, cp.async, ...), because PTX is for nvcc only"),
    (re.compile("template .*launch.* matches the argument"),
     "give launch() the kernel's arguments, each of its type, and .shared_bytes as a std::size_t, "
     "which no int becomes by itself"),
    (re.compile("calling a .*__host__ function"),
     "in a kernel write fmaxf, expf, exp2f, INFINITY and such, because std:: is for the host"),
)


def _fix(result: TaskResult, seed: int, backends: Backends, case: str | None) -> str:
    task, option = result.task, " --solution" if result.implementation == "solution" else ""
    if task.is_cuda and backends.asked:
        option += " --check-races" if backends.asked == CHECKED else " --emulate"
    option += " --sanitize" * backends.sanitizes(task)
    if result.status == outcomes.BUILD_FAILED:
        line = _line_of(result.first_error) + result.first_error if task.is_cuda else ""
        correct = next((words for pattern, words in _CLEARER if pattern.search(line)),
                       "correct what the error names")
        return f"Next: {correct}, then ./lab check {task.name}{option}"
    if result.status == outcomes.REFUSED:
        return f"Next: write it without that, then ./lab check {task.name}{option}"
    failed = result.failures[0]
    # The checks often name the line where a wrong result only names the element.
    unchecked = (failed.backend == EMULATED and failed.status in (outcomes.WRONG, outcomes.CRASHED)
                 and backends.has_checks(task))
    stray = failed.status == outcomes.CRASHED or re.search(
        "^It writes outside of|what lies outside of the inputs", failed.message, re.MULTILINE)
    unsanitized = (not task.is_cuda and stray and backends.config.asan and not backends.sanitize)
    if case:
        file = task.shown_path(result.implementation)
        again = "run the same again"
        if unchecked:
            again += ", or with --check-races, which finds races and stray accesses"
        if unsanitized:
            again += ", or with --sanitize, which finds the first access out of bounds"
        return f"Next: edit {file} and {again}; ./lab hint {task.name} has a hint"
    if unchecked:
        option = option.removesuffix(" --emulate") + " --check-races"
    if unsanitized:
        option += " --sanitize"
    return f'Next: ./lab check {task.name} --case "{failed.name}" --seed {seed}{option}'


def _about(result: TaskResult, backends: Backends, case: str | None) -> list[str]:
    """Where to learn more of what failed."""
    if result.implementation == "solution" or not result.failures:
        return []
    failed, task = result.failures[0], result.task.name
    lines = []
    if hints.of(failed.kind, result.task.hints) and not case:
        lines.append(f"./lab hint {task} has a hint for this mistake")
    if failed.explainable:
        lines += [f"./lab check {task} --explain shows it with small numbers, if it can"]
    if "\nfirst at " in failed.message and backends.has_checks(result.task):
        lines.append(f'./lab look {task} --case "{failed.name}" draws the run, and opens at the '
                     "first wrong element")
    elif failed.requirement == "access patterns":
        lines.append(f"./lab profile {task} names the lines, and ./lab look {task} draws them")
    return [f"      {line}" for line in lines]


def _line_of(error: str) -> str:
    """The line of source that a compiler's error names, "" where there is none."""
    place = re.match(r"([^:]+):(\d+):", error)
    with contextlib.suppress(TypeError, OSError, IndexError):
        text = (paths.ROOT / place[1]).read_text(errors="replace")
        return text.splitlines()[int(place[2]) - 1]
    return ""


def _write(task: Task) -> str:
    todo = "fill in its TODOs"
    with contextlib.suppress(OSError):
        text = task.path().read_text(errors="replace")
        if written := re.search(r"^constexpr int kWritten = (\d);", text, re.MULTILINE):
            number = int(written[1]) + 1
            todo = f"write kernel {number}; the check runs it once you set kWritten to {number}"
        elif "TODO" not in text:
            todo = ("remove its throw NotYetImplemented(...)" if "throw NotYetImplemented" in text
                    else "write what is missing")
    return f"Next: open {task.shown_path()} and {todo}; ./lab hint {task.name} has a hint"


def _all_green(results: Sequence[PartResult]) -> list[str]:
    for result in results:
        tasks, here = result.part.tasks, [task.task for task in result.tasks]
        # Behind a warm-up that was checked alone comes the next one.
        behind = () if any(task.points for task in here) else tasks[tasks.index(here[-1]):]
        rest = first_unfinished([task for task in tasks if task.points or task in behind])
        if rest and not _out_of_reach(rest):
            last = state.load().results.get(rest.id)
            begun = last and last.status not in (outcomes.NOT_STARTED, outcomes.UNFINISHED)
            return [f"Next: ./lab check {rest.name}" if begun else _write(rest)]
    part, config = results[-1].part, results[-1].backends.config
    name, can_bench = part.name, benchmarks.can_run(results[-1].part.name, config)
    measures = f"./lab bench {name} measures how fast it is"
    lines = [f"All green. Next: {measures}" if can_bench
             else f"All green. On a machine with a GPU {measures}."]
    if any(task.results for task in part.tasks):
        run = name if config.cuda == "gpu" else f"{name if can_bench else 'part2'} --quick"
        lines = [f"All green. Next: ./lab bench {run}, then ./lab plot, then ./lab bundle {name}"]
        can_bench = True
    other = first_unfinished([task for part in manifest.load_parts() for task in part.tasks
                              if task.points])
    if other and not _out_of_reach(other):
        then = "      then" if can_bench else "Next:"
        lines.append(f"{then} {other.part}: {other.folder.name}/README.md")
    return lines


def _out_of_reach(task: Task) -> bool:
    last = state.load().results.get(task.id)
    return last is not None and last.status in NEEDS
