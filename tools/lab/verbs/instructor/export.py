"""`./lab export`: what Gradescope, Canvas and Moodle take."""

import argparse
import csv
from pathlib import Path

from lab import disk, manifest, paths
from lab.console import say
from lab.errors import LabError
from lab.instructor import export, grader, release

HELP = "an autograder for Gradescope (OUT.zip), or grades for Canvas and Moodle (OUT.csv)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT",
                        help="OUT.zip: the autograder; OUT.csv: the table with the grades in it")
    parser.add_argument("--tasks", metavar="PART|TASK,...",
                        help="of the autograder: it grades only these (default: all)")
    parser.add_argument("--into", type=Path, metavar="CSV",
                        help="of the grades: Canvas' gradebook or Moodle's grading worksheet, as "
                             "it was downloaded")
    parser.add_argument("--column", default="", metavar="NAME",
                        help="of the grades: the assignment's column (Moodle: Grade)")
    parser.add_argument("--grades", type=Path, default=paths.OUTPUTS / "grades", metavar="DIR",
                        help="of the grades: the results of ./lab grade (default: outputs/grades)")


def run(args: argparse.Namespace) -> int:
    if args.out.suffix == ".zip":
        tasks = manifest.select(manifest.load_parts(),
                                () if args.tasks is None else args.tasks.split(","))
        hidden = [file.relative_to(paths.ROOT).as_posix() for file in grader.hidden_cases()]
        number = export.autograder(args.out, tasks, sorted({*release.tracked(), *hidden}))
        say(f"{args.out}: {number} files; in Gradescope, choose Configure Autograder, and upload "
            "it there")
        return 0
    if args.out.suffix != ".csv" or args.into is None:
        raise LabError("OUT must be a .zip, or a .csv with --into")
    try:
        with (args.grades / "grades.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
            grades = [(row["id"], row["score"]) for row in rows]
    except (OSError, UnicodeDecodeError, KeyError) as error:
        raise LabError(f"no table to read: {error}; --grades is where ./lab grade wrote") from None
    filled = export.fill(export.roster(args.into), grades, args.column)
    disk.write_exact(args.out, filled.text)
    most = ", ".join({row.get("max_score") or "?" for row in rows}) or "?"
    say(f"{args.out}: {filled.students} student{'s' * (filled.students != 1)} with a grade, of at "
        f"most {most} points: the assignment there must have the same maximum")
    for line in filled.replaced:
        say(f"replaced: {line}", "yellow")
    if filled.without:
        shown = ", ".join(filled.without[:10]) + ", ..." * (len(filled.without) > 10)
        say(f"without a submission: {shown}")
    if filled.late:
        say(f"late, with all points: {', '.join(filled.late)}; deduct there what that costs",
            "yellow")
    for line in (*filled.earlier, *filled.left):
        say(f"not exported: {line}", "yellow")
    return 1 if filled.left else 0
