"""`./lab hint`: one more hint for a task, from a nudge to nearly the answer."""

import argparse
import re

from rich.text import Text

from lab import advice, manifest, state
from lab.console import console
from lab.manifest import Task

HELP = "reveal one more hint for a task (default: the first unfinished one)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="TASK", help="fused_cpu; of a part, its first unfinished task")
    parser.add_argument("--forget", action="store_true", help="hide the task's hints again")


def run(args: argparse.Namespace) -> int:
    tasks = manifest.select(manifest.load_parts(), [args.name] if args.name else [])
    task = tasks[0] if len(tasks) == 1 else advice.first_unfinished(tasks)
    if task is None:
        console.print(f"Nothing is unfinished. A hint all the same: ./lab hint {tasks[0].name}", markup=False)
        return 0
    if args.forget:
        with state.edit() as student:
            student.hints.pop(task.id, None)
        console.print(f"{task.name}: its {len(task.hints)} hints are hidden again", markup=False)
        return 0
    with state.edit() as student:
        revealed = min(student.hints.get(task.id, 0), len(task.hints))
        student.hints[task.id] = min(revealed + 1, len(task.hints))
    show(task, revealed)
    return 0


def flowing(hint: str) -> str:
    """The hint with its paragraphs as one line each, to be wrapped to the screen; indented lines and lists stay as they are."""
    lines: list[str] = []
    for line in hint.splitlines():
        goes_on = lines and re.match(r"\S", lines[-1]) and re.match(r"[^\s*-]", line) and not re.match(r"\d+\. ", line)
        lines[-1:] = [f"{lines[-1]} {line}"] if goes_on else [*lines[-1:], line]
    return "\n".join(lines)


def show(task: Task, already: int) -> None:
    """Prints the hints that were revealed before, dimmer, and the next one."""
    total = len(task.hints)
    console.print(Text.assemble((task.name, "bold"), f"  {task.title}  ({task.shown_path()})"), soft_wrap=True)
    for number, hint in enumerate(task.hints[:already + 1], 1):
        new = number == already + 1
        console.print(f"\nhint {number} of {total}", style="bold" if new else "dim", markup=False)
        console.print(Text(flowing(hint), "" if new else "dim"))
    if already >= total:
        console.print(f"\nAll {total} hints are shown. ./lab check {task.name} says what is still wrong.", markup=False)
    elif already + 1 == total:
        console.print("\nThat was the last hint.", style="dim", markup=False)
    else:
        console.print(f"\nThe next one: ./lab hint {task.name}", style="dim", markup=False)
