"""`./lab hint`: after a check that named a mistake, or failed in a case of one kind, the hint for
that; otherwise one more hint for the task, from a nudge to nearly the answer."""

import argparse
import re

from rich.text import Text

from lab import advice, hints, manifest, state
from lab.console import console, say
from lab.manifest import Task

HELP = "show one more hint for a task (default: the first unfinished one)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="TASK",
                        help="fused_cpu; for a part, its first unfinished task")


def run(args: argparse.Namespace) -> int:
    tasks = manifest.select(manifest.load_parts(), [args.name] if args.name else [])
    task = tasks[0] if len(tasks) == 1 else advice.first_unfinished(tasks)
    if task is None:
        say(f"All of these tasks are finished. To see a hint anyway: ./lab hint {tasks[0].name}")
        return 0
    with state.edit() as student:
        mistake, kind = student.named.pop(task.id, ("", ""))
        if hint := hints.of(kind, task.hints):
            show_for(task, mistake, hint)
            return 0
        shown = min(student.hints.get(task.id, 0), len(task.hints))
        student.hints[task.id] = min(shown + 1, len(task.hints))
    show(task, shown)
    return 0


def flowing(hint: str) -> str:
    """The hint with each paragraph as one line, for rich to wrap; indented lines and lists stay."""
    lines: list[str] = []
    for line in hint.splitlines():
        starts = re.match(r"\s|\*|-|\d+\. |$", line)
        goes_on = lines and not starts and re.match(r"\S", lines[-1])
        lines[-1:] = [f"{lines[-1]} {line}"] if goes_on else [*lines[-1:], line]
    return "\n".join(lines)


def show_for(task: Task, mistake: str, hint: str) -> None:
    console.print(_heading(task), soft_wrap=True)
    say(f"\nhint for what the last check found: {mistake}", "bold")
    console.print(Text(flowing(hint)))
    say(f"\nThe task's own hints: ./lab hint {task.name}", "dim")


def _heading(task: Task) -> Text:
    return Text.assemble((task.name, "bold"), f"  {task.title}  ({task.shown_path()})")


def show(task: Task, already: int) -> None:
    total = len(task.hints)
    console.print(_heading(task), soft_wrap=True)
    for number, hint in enumerate(task.hints[:already + 1], 1):
        new = number == already + 1
        say(f"\nhint {number} of {total}", "bold" if new else "dim")
        console.print(Text(flowing(hint), "" if new else "dim"))
    if already >= total:
        say(f"\nAll {total} hints are shown. ./lab check {task.name} says what is still wrong.")
    else:
        say("\nThat was the last hint." if already + 1 == total
            else f"\nThe next one: ./lab hint {task.name}", "dim")
