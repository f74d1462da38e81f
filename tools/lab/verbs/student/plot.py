"""`./lab plot`: figures from the benchmarks' CSV files."""

import argparse
from pathlib import Path

from lab import paths, results
from lab.console import say
from lab.errors import LabError

HELP = "draw time, speed and memory from the benchmarks' CSV files"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--csv", type=Path, metavar="FILE",
                        help="what to draw, of any benchmark (default: all that outputs/csv has)")
    parser.add_argument("--out", type=Path, metavar="DIR", default=paths.OUTPUTS / "plots",
                        help="where the PNG files go (default: outputs/plots)")


def run(args: argparse.Namespace) -> int:
    from lab import plots  # matplotlib takes a second to import: not for --help

    files = [args.csv.resolve()] if args.csv else [
        kind.csv for kind in results.KINDS if kind.csv.exists()]
    if not files:
        raise LabError("outputs/csv has no results yet: ./lab bench PART writes some")
    for file in files:
        for figure in plots.plot(file, args.out.resolve()):
            say(paths.relative(figure))
    return 0
