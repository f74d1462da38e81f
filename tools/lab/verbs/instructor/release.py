"""`./lab release`: the students' repository, without solutions."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from lab import manifest
from lab.console import say
from lab.errors import LabError
from lab.instructor import release
from lab.manifest import Part

HELP = "make the students' repository: skeletons and handouts, no solutions"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write, new or empty")
    parser.add_argument("--parts", metavar="PART,...",
                        help="hand out these parts only (default: all)")
    parser.add_argument("--open", metavar="PART,...",
                        help="hand these parts out with their solutions and ladders (default: "
                             "none)")


def run(args: argparse.Namespace) -> int:
    everything = manifest.load_parts()
    parts = _parts(everything, args.parts) if args.parts else everything
    opened = _parts(parts, args.open) if args.open else []
    made = release.release(args.out.absolute(), parts, opened)
    say(f"{args.out}: {len(made.files)} files of version {made.version}")
    for part in parts:
        say(f"  {part.name}: {'with its solutions' if part in opened else 'without solutions'}")
    if made.version.commit.endswith("-dirty"):
        say("  the repository has changes that are not committed; they were handed out too",
            "yellow")
    say("next: make it a git repository, or a zip")
    return 0


def _parts(known: Sequence[Part], names: str) -> list[Part]:
    by_name = {part.name: part for part in known}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in by_name:
            raise LabError(f'no part is called "{name}"{manifest.nearest(name, by_name)}; there '
                           f"are {', '.join(by_name)}")
    if not wanted:
        raise LabError("no part is named; a list of parts looks like part1,part2")
    return [part for part in known if part.name in wanted]
