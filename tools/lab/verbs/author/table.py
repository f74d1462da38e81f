"""`./lab table`: the tables of the README pages, generated from results and ladders."""

import argparse

from lab import disk, paths, tables
from lab.console import say
from lab.errors import LabError

HELP = "regenerate the tables of the README pages"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true",
                        help="change nothing; exit with 1 when a table is out of date")


def run(args: argparse.Namespace) -> int:
    stale = []
    for page in tables.pages():
        old = page.read_text()
        new = tables.updated(old, page)
        if new == old:
            continue
        stale.append(paths.relative(page))
        if not args.check:
            disk.write_exact(page, new)
    if not stale:
        say("the tables of all README pages are up to date")
    elif args.check:
        raise LabError(f"a table of {', '.join(stale)} is not what its sources give; "
                       "to regenerate it: ./lab table")
    else:
        say(f"regenerated the tables of {', '.join(stale)}")
    return 0
