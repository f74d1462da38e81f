"""`./lab skeletons`: derives every skeleton from its solution, or checks the committed ones."""

import argparse
from collections.abc import Sequence

from lab import derive, disk, manifest, paths, state
from lab.console import say
from lab.errors import LabError
from lab.manifest import Part, Task

HELP = "derive the skeletons from the solutions; --check only compares"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true",
                        help="write nothing; exit with 1 when a skeleton differs")


def run(args: argparse.Namespace) -> int:
    everything = manifest.load_parts()
    parts = [part for part in everything if part.has("solution")]
    if not parts:
        say("nothing to derive: no part has a solution/ folder here")
        return 0
    derived = _derive_all(parts)  # everything, before the first file is written
    drifted = [task for task, text in derived.items()
               if not task.path().is_file() or disk.read_exact(task.path()) != text]
    if args.check:
        problems = _drift(drifted) + [line for part in everything
                                      for line in manifest.lint_files(part)]
        for line in problems or [f"{len(derived)} skeletons equal the ones derived from solution/"]:
            say(line)
        return 1 if problems else 0
    for task in drifted:
        if task.path().is_file():
            say(f"the old one is kept: {paths.relative(state.keep_copy(task.path()))}")
        disk.write_exact(task.path(), derived[task])
        say(f"wrote {task.shown_path()}")
    say(f"{len(derived)} skeletons, {len(drifted)} of them written")
    return 0


def _derive_all(parts: Sequence[Part]) -> dict[Task, str]:
    for part in parts:
        problems = [line for line in manifest.lint_files(part) if "/skeleton/" not in line]
        if problems:
            raise LabError(problems[0])
    return {task: derive.derive_task(task) for part in parts for task in part.tasks}


def _drift(tasks: Sequence[Task]) -> list[str]:
    lines = [f"{task.shown_path()} differs from the one derived from solution/."
             for task in tasks if task.path().is_file()]
    if lines:
        parts = " ".join(dict.fromkeys(task.part for task in tasks))
        lines += ["If you are solving the task, this is expected: your command is "
                  f"./lab check {parts}.",
                  "If you changed the solution, run ./lab skeletons."]
    return lines
