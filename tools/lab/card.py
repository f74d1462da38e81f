"""The report card: what was earned, what is wrong and in which words, and what to type next."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.text import Text

from lab import advice, grading
from lab.console import PLAIN_INTERVAL, console, is_terminal
from lab.grading import CaseResult, Notify, PartResult, TaskResult
from lab.manifest import Task

SHOWN_FAILURES = 3  # a task's failed cases that are shown in full
SHOWN_OUTPUT = 8  # lines of what a program printed before it crashed
SINGLE_OUTPUT = 60  # the same for a case that is run alone

STYLES = {
    grading.PASSED: "green", grading.WRONG: "red", grading.NOT_STARTED: "blue", grading.UNFINISHED: "blue",
    grading.CRASHED: "red", grading.TIMED_OUT: "red", grading.EXCEPTION: "red", grading.BUILD_FAILED: "red",
    grading.NOT_RUN: "dim", grading.NEEDS_GPU: "yellow", grading.NEEDS_CHECKS: "yellow",
}


def print_card(results: Sequence[PartResult], *, all_failures: bool = False, case: str | None = None) -> None:
    """Prints the card of one or more parts. `case` is the case that was run alone: it is shown in full, without points."""
    for result in results:
        console.print()
        console.print(_heading(result))
        for line in _cuda_line(result):
            console.print(line, soft_wrap=True)
        titles = _Columns(result)
        for task in result.tasks:
            console.print(titles.line(task, with_points=case is None), soft_wrap=True)
            for line in _details(task, all_failures, case):
                console.print(line, soft_wrap=True)
    console.print()
    if case is None:
        for line in total_lines(results):
            console.print(line, markup=False, soft_wrap=True)
    for line in advice.next_step(results, case):
        console.print(line, markup=False, soft_wrap=True)


def total_lines(results: Sequence[PartResult]) -> list[str]:
    """One line a part, and one for all of them where there are several."""
    lines = [_total(result.part.name, result.earned, result.possible, result.missing) for result in results]
    if len(results) > 1:
        earned, possible = (sum(getattr(result, key) for result in results) for key in ("earned", "possible"))
        lines.append(_total("all parts", earned, possible, grading.sum_by_key(result.missing for result in results)))
    return lines


def points(value: float) -> str:
    """At most two decimals, never rounded up: 2.999 is not 3."""
    return f"{math.floor(value * 100 + 1e-6) / 100:.2f}".rstrip("0").rstrip(".")


def _total(name: str, earned: float, possible: float, missing: Mapping[str, float]) -> str:
    needs = ", ".join(f"{_points(value)} need{'s' if value == 1 else ''} {what}" for what, value in missing.items())
    return f"{name}: {points(earned)} of {_points(possible)}" + (f"; {needs}: not counted here" if needs else "")


def _points(value: float) -> str:
    return f"{points(value)} point{'' if value == 1 else 's'}"


def _heading(result: PartResult) -> Text:
    heading = Text.assemble((result.part.name, "bold"), "  ", (result.part.title, "bold"))
    note = ["the solution"] if result.implementation == "solution" else []
    note += [f"seed {result.seed}"] if result.seed != 1 else []
    return heading.append(f"  ({', '.join(note)})") if note else heading


def _cuda_line(result: PartResult) -> Iterator[Text]:
    """Where the CUDA tasks ran, if there are any; one that needs a GPU says so in its own line."""
    ran = [task.backend for task in result.tasks if task.task.is_cuda and not task.task.needs_gpu]
    if ran:
        yield Text(f"  CUDA tasks: {result.backends.words(ran[0])}", "dim")


class _Columns:
    """Lays the lines of a part's tasks out below one another."""

    def __init__(self, result: PartResult) -> None:
        tasks = [task.task for task in result.tasks]
        self.label = max(len(label_of(task)) for task in tasks)
        self.name = max(len(task.name) for task in tasks)
        rest = self.label + self.name + len(grading.BUILD_FAILED) + 32
        self.title = min(max(len(task.title) for task in tasks), max(0, console.width - rest))

    def line(self, result: TaskResult, with_points: bool) -> Text:
        task = result.task
        line = Text(f"  {label_of(task):<{self.label}}  ")
        line.append(f"{task.name:<{self.name}}", "bold")
        if self.title >= 12:
            title = task.title if len(task.title) <= self.title else task.title[:self.title - 3] + "..."
            line.append(f"  {title:<{self.title}}", "dim")
        line.append(f"  {result.status:<{len(grading.BUILD_FAILED)}}", STYLES[result.status])
        if with_points:
            line.append(f"  {points_of(result):<13}")
            cases = [case for case in result.cases
                     if case.name and not case.challenge and case.status not in (grading.NEEDS_GPU, grading.NEEDS_CHECKS)]
            passed = sum(case.status == grading.PASSED for case in cases)
            line.append(f"  {passed} of {len(cases)} cases" if cases else "", "dim")
        line.rstrip()
        return line


def label_of(task: Task) -> str:
    return task.label if task.points else "warm-up"


def points_of(result: TaskResult) -> str:
    if not result.task.points:
        return "no points"
    if not result.possible:
        return "not counted"
    return f"{points(result.earned)} of {points(result.possible)}"


def _details(result: TaskResult, all_failures: bool, case: str | None) -> Iterator[Text]:
    if result.status == grading.BUILD_FAILED:
        yield from _indented(result.first_error, 6)
        lost = f"{_points(result.possible)} lost until it compiles; " if result.possible else ""
        command = f"cmake --build build/default --target {result.task.target(result.implementation, result.backend or '')}"
        yield Text(f"      {lost}the compiler's words: {command}", "dim")
        return
    failures = result.failures
    shown = failures if all_failures or case else failures[:SHOWN_FAILURES]
    if case:
        shown = result.cases
    for failed in shown:
        yield from _case(failed, SINGLE_OUTPUT if case else SHOWN_OUTPUT)
    if len(failures) > len(shown):
        yield Text(f"      and {len(failures) - len(shown)} more: --all-failures", "dim")
    for challenge in result.challenges if not case else ():
        yield from _challenge(challenge)


def _case(case: CaseResult, output_lines: int) -> Iterator[Text]:
    if case.name:
        yield Text.assemble("      ", (case.status, STYLES[case.status]), f": {case.name}")
    yield from _indented(case.message, 10)
    printed = case.output.strip("\n").splitlines()
    if printed:
        left_out = len(printed) - output_lines
        yield Text(f"          it printed{f', last {output_lines} lines of {len(printed)}' if left_out > 0 else ''}:", "dim")
        for line in printed[-output_lines:]:
            yield Text(f"          | {line}", "dim")


def _challenge(case: CaseResult) -> Iterator[Text]:
    """One line, and where it is not met the first of why; nothing as long as it is not started."""
    if case.status == grading.PASSED:
        yield Text.assemble("      ", ("challenge met", "green"), f": {case.name}")
    elif case.status != grading.NOT_STARTED:
        yield Text.assemble("      ", ("challenge open", "yellow"), f": {case.name} (no points)")
        yield from _indented(case.message.split("\n")[0], 10)


def _indented(message: str, by: int) -> Iterator[Text]:
    """The first line strong, the others below it and further in."""
    for number, line in enumerate(message.strip("\n").splitlines()):
        yield Text(" " * (by + 2 * (number > 0)) + line, "" if number else "bold")


@contextmanager
def live_line() -> Iterator[Notify]:
    """Shows what is running: one line that changes on a terminal, now and then a line of its own elsewhere."""
    if is_terminal():
        status = console.status("")

        def show(line: str) -> None:
            status.update(Text(line))
            status.start() if line else status.stop()  # a build has a bar of its own: two would fight over the screen

        try:
            yield show
        finally:
            status.stop()
        return

    last = time.monotonic()

    def say(line: str) -> None:
        nonlocal last
        if not line:
            last = time.monotonic()  # a build has been on the screen since
        elif time.monotonic() - last >= PLAIN_INTERVAL:
            last = time.monotonic()
            console.print(f"  {line}", markup=False, soft_wrap=True)

    yield say
