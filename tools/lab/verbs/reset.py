"""`./lab reset`: puts a task's file back to what was handed out, and keeps the old one."""

import argparse
import subprocess

from lab import derive, manifest, paths, state
from lab.console import console
from lab.errors import LabError
from lab.manifest import Task

HELP = "put a task's file back to the skeleton, keeping a copy of yours"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TASK", help="fused_cpu or part1.fused_cpu")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    task = manifest.select_one(manifest.load_parts(), args.name, "reset")
    path, shown = task.path(), task.shown_path()
    original, source = _original(task)
    if path.is_file() and derive.read_exact(path) == original:
        console.print(f"nothing to reset: {shown} equals {source}", markup=False, soft_wrap=True)
        return 0
    if path.is_file():
        if not args.yes and not _agreed(f"Put {shown} back to {source}? Your version is kept. [y/N] "):
            console.print("nothing was changed", markup=False)
            return 1
        kept = paths.relative(state.keep_copy(path))
        console.print(f"your version is kept: {kept}", markup=False, soft_wrap=True)
    derive.write_exact(path, original)
    with state.edit() as student:
        student.results.pop(task.id, None)
    console.print(f"{shown} is {source} again", markup=False, soft_wrap=True)
    return 0


def _original(task: Task) -> tuple[str, str]:
    """The text that was handed out, and where it comes from."""
    if task.path("solution").is_file():
        return derive.derive_task(task), "the skeleton"
    shown = task.shown_path()
    try:
        shown_by_git = subprocess.run(["git", "show", f"HEAD:./{shown}"], cwd=paths.ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        raise LabError(f"{shown} cannot be reset: there is no solution/ to derive it from, and git is not installed") from None
    if shown_by_git.returncode:
        raise LabError(f"{shown} cannot be reset: there is no solution/ to derive it from, and git HEAD does not have it")
    return shown_by_git.stdout.decode("utf-8", "surrogateescape"), "the version of the last commit (git HEAD)"


def _agreed(question: str) -> bool:
    try:
        return console.input(question, markup=False).strip().lower() in ("y", "yes")
    except EOFError:
        raise LabError("there is nobody to ask: --yes resets without asking") from None
