"""`./lab skeletons`: derives every skeleton from its solution, or checks that the committed ones are the derived ones."""

import argparse
from collections.abc import Sequence

from lab import derive, manifest, paths, state
from lab.console import console
from lab.errors import LabError
from lab.manifest import Part, Task

HELP = "derive the skeletons from the solutions; --check only compares"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a skeleton differs")


def run(args: argparse.Namespace) -> int:
    everything = manifest.load_parts()
    parts = [part for part in everything if part.has("solution")]
    if not parts:
        console.print("nothing to derive: no part has a solution/ folder here", markup=False)
        return 0
    derived = _derive_all(parts)  # everything, before the first file is written
    drifted = [task for task, text in derived.items() if not _is_current(task, text)]
    if args.check:
        for line in _drift(drifted):
            console.print(line, markup=False, soft_wrap=True)
        problems = [line for part in everything for line in manifest.lint_files(part)]
        for line in problems:
            console.print(line, markup=False, soft_wrap=True)
        if drifted or problems:
            return 1
        console.print(f"{len(derived)} skeletons equal the ones derived from solution/", markup=False)
        return 0
    for task in drifted:
        if task.path().is_file():
            console.print(f"the old one is kept: {paths.relative(state.keep_copy(task.path()))}", markup=False, soft_wrap=True)
        derive.write_exact(task.path(), derived[task])
        console.print(f"wrote {task.shown_path()}", markup=False, soft_wrap=True)
    console.print(f"{len(derived)} skeletons, {len(drifted)} of them written", markup=False)
    return 0


def _derive_all(parts: Sequence[Part]) -> dict[Task, str]:
    for part in parts:
        problems = [line for line in manifest.lint_files(part) if "/skeleton/" not in line]
        if problems:
            raise LabError(problems[0])
    return {task: derive.derive_task(task) for part in parts for task in part.tasks}


def _is_current(task: Task, text: str) -> bool:
    return task.path().is_file() and derive.read_exact(task.path()) == text


def _drift(tasks: Sequence[Task]) -> list[str]:
    lines = [f"{task.shown_path()} differs from the one derived from solution/." for task in tasks if task.path().is_file()]
    if lines:
        parts = " ".join(dict.fromkeys(task.part for task in tasks))
        lines.append(f"If you are solving the task, that is as it should be: your command is ./lab check {parts}.")
        lines.append("If you changed the solution, run ./lab skeletons.")
    return lines
