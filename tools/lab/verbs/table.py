"""`./lab table`: the README's results tables, regenerated from the committed CSVs."""

import argparse
import os

from lab import paths, tables
from lab.console import console
from lab.errors import LabError

HELP = "regenerate the results tables of README.md from outputs/reference/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 when the table is out of date")


def run(args: argparse.Namespace) -> int:
    readme = paths.ROOT / "README.md"
    try:
        old = readme.read_text(encoding="utf-8")
    except OSError as error:
        raise LabError(f"README.md cannot be read: {error.strerror}") from None
    new = tables.updated(old, "README.md")
    if new == old:
        console.print("README.md: the results tables are up to date")
        return 0
    if args.check:
        raise LabError("a results table of README.md is not what outputs/reference/ gives; to regenerate it: ./lab table")
    temporary = readme.with_name(".README.md.tmp")
    temporary.write_text(new, encoding="utf-8")
    os.replace(temporary, readme)
    console.print("README.md: the results tables are regenerated")
    return 0
