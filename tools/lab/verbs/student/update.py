"""`./lab update`: a newer release of the course, into the folder of a student."""

import argparse
from pathlib import Path

from lab import paths, released
from lab.console import say
from lab.errors import LabError

HELP = "bring a newer release into this folder, merged with what you changed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("release", type=Path, metavar="NEW",
                        help="the folder of the newer release, unpacked")


def run(args: argparse.Namespace) -> int:
    if args.release.resolve() == paths.ROOT:
        raise LabError("NEW is this folder; it must be the newer release, unpacked elsewhere")
    student = paths.ROOT
    before = released.read(student)
    count = 0
    for path, done in released.update(args.release, student):
        say(f"  {path}: {done}")
        count += 1
    after = released.version_of(student)
    was = f" (it was {before.version})" if before and before.version != after else ""
    say(f"{student}: version {after}{was}; {count} files differed" if count else
        f"{student}: version {after}{was}; no file changed")
    return 0
