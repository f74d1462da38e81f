"""`./lab reset`: puts a task's file back to what was handed out, and keeps the old one."""

import argparse

from lab import disk, manifest, paths, released, state, system
from lab.console import say
from lab.errors import LabError

HELP = "put a task's file back to the skeleton, keeping a copy of yours"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TASK", help="fused_cpu or part1.fused_cpu")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    task = manifest.select_one(manifest.load_parts(), args.name, "reset")
    path, shown = task.path(), task.shown_path()
    skeleton = released.skeleton(task)
    if skeleton is None:
        raise LabError(f"{shown} cannot be reset: this course has neither solution/ to derive it "
                       f"from, nor the file in {released.ORIGINALS}")
    if path.is_file():
        if path.read_bytes() == skeleton:
            say(f"nothing to reset: {shown} equals the skeleton")
            return 0
        question = f"Put {shown} back to the skeleton? Your version is kept. [y/N] "
        if not args.yes and not system.agreed(question):
            say("nothing was changed (--yes resets without asking)")
            return 1
        say(f"your version is kept: {paths.relative(state.keep_copy(path))}")
    disk.write_exact(path, skeleton)
    with state.edit() as student:
        student.results.pop(task.id, None)
    say(f"{shown} is the skeleton again")
    return 0
