"""`./lab release`: the students' repository, without solutions; or a newer course for a folder."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab import manifest, released
from lab.console import say
from lab.errors import LabError
from lab.instructor import release
from lab.manifest import Part
from lab.released import OPEN
from lab.verbs.student import update

HELP = "make the students' repository: skeletons and handouts, no solutions"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("out", nargs="?", type=Path, metavar="OUT",
                       help="the folder to write, new or empty")
    where.add_argument("--update", type=Path, metavar="DIR",
                       help="bring this course into a student's folder, merged with what the "
                            "student changed")
    parser.add_argument("--parts", metavar="PART,...",
                        help="hand out these parts only (default: all; with --update: those of "
                             "the student's folder)")
    parser.add_argument("--open", metavar="PART,...",
                        help="hand these parts out with their solutions and ladders (default: "
                             "none; with --update: those that are open in the student's folder)")


def run(args: argparse.Namespace) -> int:
    everything = manifest.load_parts()
    if args.update is not None:
        return _update(args, everything)
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


def _update(args: argparse.Namespace, everything: Sequence[Part]) -> int:
    before = released.read(args.update)
    if before is None:
        raise LabError(f"{args.update} is not a released course: it has no {released.RECORD}")
    parts = _parts(everything, args.parts or ",".join(before.parts))
    was_open = ",".join(name for name, state in before.parts.items() if state == OPEN)
    opened = _parts(parts, args.open or was_open) if args.open or was_open else []
    with tempfile.TemporaryDirectory(prefix="lab-release-") as folder:
        new = Path(folder) / "course"
        release.release(new, parts, opened)
        return update.lay_over(new, args.update)


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
