"""`./lab plot`: figures from the benchmarks' CSVs."""

import argparse
from pathlib import Path

from lab import attention_results, paths, results
from lab.console import console
from lab.errors import LabError

HELP = "draw time, speed and memory from the benchmarks' CSVs"

CSVS = (results.SOFTMAX_MATMUL_CSV, attention_results.ATTENTION_CSV)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--csv", type=Path, metavar="FILE",
                        help="what to draw, of any benchmark (default: what there is of those in outputs/csv)")
    parser.add_argument("--out", type=Path, metavar="DIR", default=paths.OUTPUTS / "plots",
                        help="where the PNG files go (default: outputs/plots)")


def run(args: argparse.Namespace) -> int:
    from lab import attention_plots, plots  # matplotlib takes a second to import: not for --help

    files = [args.csv.resolve()] if args.csv else [file for file in CSVS if file.exists()]
    if not files:
        names = " nor ".join(file.name for file in CSVS)
        raise LabError(f"{paths.relative(CSVS[0].parent)} has neither {names} yet: ./lab bench PART writes one")
    for file in files:
        draw = attention_plots.plot_attention if _is_of_attention(file) else plots.plot_softmax_matmul
        for figure in draw(file, args.out.resolve()):
            console.print(paths.relative(figure), markup=False, soft_wrap=True)
    return 0


def _is_of_attention(file: Path) -> bool:
    """By its header; what cannot be read is reported by whoever reads it."""
    try:
        with file.open(encoding="utf-8") as stream:
            return stream.readline().split(",")[0] == attention_results.COLUMNS[0]
    except (OSError, UnicodeDecodeError):
        return False
