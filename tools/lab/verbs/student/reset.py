"""`./lab reset`: puts a task's file back to what was handed out, and keeps the old one."""

import argparse

from lab import derive, handout, manifest, paths, state, system
from lab.console import say
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
    if path.is_file():
        if path.read_bytes() == original:
            say(f"nothing to reset: {shown} equals {source}")
            return 0
        question = f"Put {shown} back to {source}? Your version is kept. [y/N] "
        if not args.yes and not system.agreed(question):
            say("nothing was changed (--yes resets without asking)")
            return 1
        say(f"your version is kept: {paths.relative(state.keep_copy(path))}")
    derive.write_exact(path, original)
    with state.edit() as student:
        student.results.pop(task.id, None)
    say(f"{shown} is {source} again")
    return 0


def _original(task: Task) -> tuple[bytes, str]:
    """What was handed out, and where it comes from."""
    if task.path("solution").is_file():
        return derive.derive_task(task).encode("utf-8", "surrogateescape"), "the skeleton"
    kept = handout.original(paths.ROOT, task.shown_path())
    if kept is None:
        raise LabError(f"{task.shown_path()} cannot be reset: this course has neither solution/ to "
                       f"derive it from, nor the file in {handout.ORIGINALS}")
    return kept, "the skeleton that was handed out"
