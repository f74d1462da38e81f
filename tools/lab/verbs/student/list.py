"""`./lab list`: the tasks, and how far the student has come; of some, what earns their points."""

import argparse
from collections.abc import Sequence

from rich import box
from rich.table import Column, Table
from rich.text import Text

from lab import card, manifest, outcomes, paths, released, state
from lab.console import console, say
from lab.manifest import Task
from lab.state import LastResult, State

HELP = "list all tasks with points, time, hints shown, and how the last check ended"

BAR = 40  # columns
WITH_TITLES = 100  # columns of a screen that has room for them


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="PART|TASK",
                        help="list only these, with what their points are for and the mistakes "
                             "that the report names (default: all, without)")


def run(args: argparse.Namespace) -> int:
    tasks = manifest.select(manifest.load_parts(), args.names)
    student = state.load()
    console.print(_table(tasks, student))
    console.print(_progress(tasks, student), soft_wrap=True)
    for line in card.for_results(tasks):
        say(line)
    for task in tasks if args.names else ():
        _show(task)
    return 0


def _table(tasks: Sequence[Task], student: State) -> Table:
    titles = console.width >= WITH_TITLES
    table = Table(
        Column(no_wrap=True), Column("task", no_wrap=True),
        *[Column("title", min_width=16)] * titles,
        *(Column(head, justify="right", no_wrap=True) for head in ("points", "minutes", "hints")),
        Column("in", no_wrap=True), Column("last check", min_width=16),
        box=box.SIMPLE_HEAD, pad_edge=False)
    for before, task in zip([None, *tasks], tasks):
        if before and task.part != before.part:
            table.add_section()
        last = student.results.get(task.id)
        points = card.points(task.points)
        if last and task.points:
            points = f"{card.points(last.earned)} of {points}"
        hints = f"{min(student.hints.get(task.id, 0), len(task.hints))}/{len(task.hints)}"
        language = "CUDA" if task.is_cuda else "C++"
        table.add_row(card.label_of(task), Text(task.name, "bold"), *[task.title] * titles, points,
                      str(task.minutes), hints, language, _status(task, last))
    return table


def _show(task: Task) -> None:
    shares = (f"{name} {task.points * share / 100:g}" for name, share in task.requirements.items())
    named = _mistakes(task)
    if task.points or named:
        earns = ", ".join(shares) if task.points else "no points"
        console.print(Text.assemble((f"\n{task.name}", "bold"), f": {earns}"))
    if named:
        table = Table("the report says, among other names", "a case that finds it",
                      box=box.SIMPLE_HEAD, pad_edge=False)
        for name, case in named:
            table.add_row(name, case)
        console.print(table)


def _mistakes(task: Task) -> Sequence[Sequence[str]]:
    if course := released.read(paths.ROOT):  # which comes without the zoo
        return course.mistakes.get(task.id, ())
    from lab import zoo
    return zoo.mistakes(task)


def _status(task: Task, last: LastResult | None) -> Text:
    if last is None:
        return Text("never checked", "dim")
    edited = ", edited since" if released.sha256(task.path()) != last.source else ""
    return Text.assemble((last.status, card.style_of(last.status)), (edited, "dim"))


def _progress(tasks: Sequence[Task], student: State) -> Text:
    total = sum(task.points for task in tasks)
    checked = [(task, student.results[task.id]) for task in tasks if task.id in student.results]
    earned = sum(min(last.earned, task.points) for task, last in checked)
    done = sum(last.status == outcomes.PASSED for _, last in checked)
    filled = int(BAR * earned / total) if total else 0
    counts = f"{card.points(earned)} of {card.points(total)} points"
    bar = ("#" * filled, "green"), ("-" * (BAR - filled), "dim")
    passed = f", {done} of {len(tasks)} tasks passed"
    return Text.assemble("[", *bar, "]  ", (counts, "bold"), passed)
