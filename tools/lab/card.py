"""The report card: what was earned, what is wrong and why, and what to type next."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from lab import advice, outcomes
from lab.backends import CHECKED
from lab.console import console, say
from lab.manifest import Task
from lab.outcomes import CaseResult, PartResult, TaskResult

SHOWN_FAILURES = 3  # a task's failed cases that are shown in full
SHOWN_WARNINGS = 3  # about a task's file
SHOWN_OUTPUT = 8  # lines of what a program printed before it crashed
SINGLE_OUTPUT = 60  # the same for a case that is run alone
STATUS_WIDTH = len(outcomes.BUILD_FAILED)

STYLES = {
    outcomes.PASSED: "green", outcomes.NOT_STARTED: "blue", outcomes.UNFINISHED: "blue",
    outcomes.NEEDS_GPU: "yellow", outcomes.NEEDS_CHECKS: "yellow", outcomes.NOT_RUN: "dim",
}


def style_of(status: str) -> str:
    return STYLES.get(status, "red")


def print_card(results: Sequence[PartResult], *, all_failures: bool = False,
               case: str | None = None, changed: Sequence[str] = ()) -> None:
    """`case` is the case that was run alone: it is shown in full, without points. `changed`: lines
    about given files that the student changed."""
    for result in results:
        console.print()
        for line in _part(result, all_failures, case):
            console.print(line, soft_wrap=True)
    console.print()
    for line in changed:
        say(line, "yellow")
    for line in [*(total_lines(results) if case is None else []), *advice.next_step(results, case)]:
        say(line)


def _part(result: PartResult, all_failures: bool, case: str | None) -> Iterator[Text]:
    heading = Text(f"{result.part.name}  {result.part.title}", "bold")
    note = ["the solution"] if result.implementation == "solution" else []
    note += [f"seed {result.seed}"] if result.seed != 1 else []
    yield Text.assemble(heading, (f"  ({', '.join(note)})", "not bold") if note else "")
    ran = [task.backend for task in result.tasks if task.task.is_cuda]
    if ran:  # a task may have no case without the checks
        where = next((backend for backend in ran if backend != CHECKED), ran[0])
        yield Text(f"  CUDA tasks: {result.backends.words(where)}", "dim")
    line = _layout([task.task for task in result.tasks])
    for task in result.tasks:
        yield line(task, case is None)
        begun = task.failures or task.status == outcomes.UNFINISHED
        if case is None and begun and task.requirements:
            yield Text("      " + ", ".join(f"{name} {points(earned)} of {points(possible)}"
                                            for name, earned, possible in task.requirements), "dim")
        yield from _details(task, all_failures, case)


def total_lines(results: Sequence[PartResult]) -> list[str]:
    lines = [_total(each.part.name, each.earned, each.possible, each.missing) for each in results
             if each.possible or each.missing]
    lines += for_results([task.task for each in results for task in each.tasks])
    if len(results) > 1:
        missing = outcomes.sum_by_key(each.missing for each in results)
        lines.append(_total("all parts", sum(each.earned for each in results),
                            sum(each.possible for each in results), missing))
    return lines


def for_results(tasks: Sequence[Task]) -> list[str]:
    more = sum(task.results for task in tasks)
    return [f"{_points(more)} more for the results of your benchmarks: ./lab bundle"] if more else []


def points(value: float) -> str:
    """At most two decimals, never rounded up: 2.999 is not 3."""
    return f"{math.floor(value * 100 + 1e-6) / 100:.2f}".rstrip("0").rstrip(".")


def _points(value: float) -> str:
    return f"{points(value)} point{'' if value == 1 else 's'}"


def _total(name: str, earned: float, possible: float, missing: Mapping[str, float]) -> str:
    needs = [f"{_points(value)} need{'s' if value == 1 else ''} {what}"
             for what, value in missing.items()]
    not_counted = f"; {', '.join(needs)}: not counted here" if needs else ""
    return f"{name}: {points(earned)} of {_points(possible)}{not_counted}"


def _layout(tasks: Sequence[Task]):
    """A function that makes the line of a task's result, with aligned columns for all `tasks`."""
    label = max(len(label_of(task)) for task in tasks)
    name = max(len(task.name) for task in tasks)
    room = console.width - (label + name + STATUS_WIDTH + 32)
    title = min(max(len(task.title) for task in tasks), max(0, room))

    def line(result: TaskResult, with_points: bool) -> Text:
        task = result.task
        text = Text.assemble(f"  {label_of(task):<{label}}  ", (f"{task.name:<{name}}", "bold"))
        if title >= 12:
            short = task.title if len(task.title) <= title else task.title[:title - 3] + "..."
            text.append(f"  {short:<{title}}", "dim")
        text.append(f"  {result.status:<{STATUS_WIDTH}}", style_of(result.status))
        if with_points:
            text.append(f"  {_points_of(result):<13}")
            cases = [case for case in result.cases
                     if case.name and case.status not in outcomes.ELSEWHERE]
            passed = sum(case.status == outcomes.PASSED for case in cases)
            text.append(f"  {passed} of {len(cases)} cases" if cases else "", "dim")
        text.rstrip()
        return text

    return line


def label_of(task: Task) -> str:
    return task.label if task.points else "warm-up"


def _points_of(result: TaskResult) -> str:
    if result.possible:
        return f"{points(result.earned)} of {points(result.possible)}"
    return "not counted" if result.task.points else "no points"


def _details(result: TaskResult, all_failures: bool, case: str | None) -> Iterator[Text]:
    if result.status == outcomes.BUILD_FAILED:
        yield from _indented(result.first_error, 6)
        lost = f"{_points(result.possible)} lost until it compiles. " if result.possible else ""
        target = result.task.target(result.implementation, result.backend or "")
        command = f"cmake --build build/default --target {target}"
        yield Text(f"      {lost}Full compiler output: {command}", "dim")
        return
    if result.status == outcomes.REFUSED:
        yield from _indented(result.first_error, 6)
        yield Text("      A class' grader does not run such a file: "
                   f"{_points(result.possible)} lost until it is gone.", "dim")
        return
    for warning in result.warnings[:SHOWN_WARNINGS]:
        yield Text.assemble("      ", ("warning", "yellow"), f": {warning}")
    failures = result.failures
    shown = result.cases if case else failures if all_failures else failures[:SHOWN_FAILURES]
    if not case and (words := outcomes.clue(result.cases)):
        yield Text(f"      {words}", "yellow")
    for failed in shown:
        yield from _case(failed, SINGLE_OUTPUT if case else SHOWN_OUTPUT)
    if len(failures) > len(shown):
        yield Text(f"      and {len(failures) - len(shown)} more: --all-failures", "dim")


def _case(case: CaseResult, output_lines: int) -> Iterator[Text]:
    if case.name:
        earns = f"  ({case.requirement})" if case.points else ""
        yield Text.assemble("      ", (case.status, style_of(case.status)), f": {case.name}",
                            (earns, "dim"))
    findings, more = re.split(r"\n(?=kernel |d[QKV]: )", case.message), 0
    if output_lines < SINGLE_OUTPUT:  # one missing barrier is a race in several pairs of lines
        some = [one for n, one in enumerate(findings) if n == 0 or not one.startswith("kernel ")]
        findings, more = some, len(findings) - len(some)
    for finding in findings:
        yield from _indented(finding, 10)
    if more:
        yield Text(f"          and {more} more finding{'s' * (more > 1)}: --case shows all", "dim")
    printed = case.output.strip("\n").splitlines()
    if printed:
        too_many = len(printed) > output_lines
        cut = f", last {output_lines} lines of {len(printed)}" if too_many else ""
        yield Text(f"          it printed{cut}:", "dim")
        for line in printed[-output_lines:]:
            yield Text(f"          | {line}", "dim")


def _indented(message: str, by: int) -> Iterator[Text]:
    for number, line in enumerate(message.strip("\n").splitlines()):
        yield Text(" " * (by + 2 * (number > 0)) + line, "" if number else "bold")

