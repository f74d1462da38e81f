"""`./lab run`: everything there is, once: set up, build, grade the reference solutions, measure, plot, report card."""

import argparse
from collections.abc import Sequence

from lab import build, card, grading, main, manifest, system
from lab.console import console
from lab.errors import LabError
from lab.manifest import Part
from lab.paths import OUTPUTS, relative
from lab.verbs import bench

HELP = "set up, build, grade the reference solutions, quick benchmarks, plots, report card"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="install missing packages without asking")


def run(args: argparse.Namespace) -> int:
    _step("Set up")
    system.ensure(args.yes)
    config = build.configure()
    console.print(f"{config.compiler}, Catch2 {config.catch2}", markup=False)

    parts = manifest.load_parts()
    solved = [part for part in parts if part.has("solution")]
    results = []
    if solved:
        _step("Build")
        _build(solved)
        _step("Grade the reference solutions")
        with card.live_line() as notify:
            results = [grading.grade_part(part, "solution", notify=notify) for part in solved]
            notify("")
    else:
        console.print("no part has a solution/ folder here: ./lab check grades what you wrote")

    measured = [part for part in parts if part.name in bench.PROGRAMS and bench.can_run(part.name, config)]
    measured = list({bench.PROGRAMS[part.name]: part for part in reversed(measured)}.values())[::-1]  # the first part of each program
    commands = [["bench", part.name, "--quick", "--solution" if part in solved else "--skeleton"] for part in measured]
    troubles = [trouble for command in [*commands, ["plot"]] if (trouble := _verb(command))]

    _step("Report card")
    if results:
        card.print_card(results)
    for file in sorted([*OUTPUTS.glob("csv/*.csv"), *OUTPUTS.glob("plots/*.png")]):
        console.print(f"  {relative(file)}", markup=False, soft_wrap=True)
    for trouble in troubles:
        console.print(f"  {trouble}", style="red", markup=False, soft_wrap=True)
    return 0 if all(result.done for result in results) and not troubles else 1


def _build(parts: Sequence[Part]) -> None:
    """All at once, so that one bar says how long it takes; what fails here costs its own task in the card."""
    built = build.build([f"{part.name}_solution_tests" for part in parts], keep_going=True)
    if not built.ok:
        console.print(built.first_error, style="red", markup=False, soft_wrap=True)


def _verb(command: list[str]) -> str:
    """Runs another verb as a step of this one; what went wrong, in one line, or "". The card is printed in any case."""
    shown = f"./lab {' '.join(command)}"
    _step(shown)
    try:
        code = main.run(command)
        return f"{shown} ended with exit code {code}" if code else ""
    except LabError as error:
        return f"{shown}: {error}"


def _step(title: str) -> None:
    console.print(f"\n{title}", style="bold", markup=False)
