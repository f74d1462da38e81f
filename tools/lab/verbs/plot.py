"""`./lab plot`: figures from the benchmarks' CSV."""

import argparse
from pathlib import Path

from lab import paths, results
from lab.console import console

HELP = "draw time, speed-up and peak memory over d2 from the benchmark's CSV"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--csv", type=Path, metavar="FILE", default=results.SOFTMAX_MATMUL_CSV,
                        help="what to draw (default: outputs/csv/softmax_matmul_benchmark.csv)")
    parser.add_argument("--out", type=Path, metavar="DIR", default=paths.OUTPUTS / "plots",
                        help="where the PNG files go (default: outputs/plots)")


def run(args: argparse.Namespace) -> int:
    from lab import plots  # matplotlib takes a second to import: not for --help

    for file in plots.plot_softmax_matmul(args.csv.resolve(), args.out.resolve()):
        console.print(paths.relative(file), markup=False, soft_wrap=True)
    return 0
