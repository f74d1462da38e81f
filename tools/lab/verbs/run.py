"""`./lab run`: everything there is, once: set up, build, grade the reference solutions, measure, plot, report card."""

import argparse
from collections.abc import Sequence

from lab import build, card, grading, main, manifest, system
from lab.console import console
from lab.errors import LabError
from lab.manifest import Part
from lab.paths import OUTPUTS, relative

HELP = "set up, build, grade the reference solutions, quick benchmarks, plots, report card"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="install missing packages without asking")


def run(args: argparse.Namespace) -> int:
    _step("Set up")
    system.ensure(args.yes)
    config = build.configure()
    console.print(f"{config.compiler}, Catch2 {config.catch2}", markup=False)

    parts = [part for part in manifest.load_parts() if part.has("solution")]
    results = []
    if parts:
        _step("Build")
        _build(parts)
        _step("Grade the reference solutions")
        with card.live_line() as notify:
            results = [grading.grade_part(part, "solution", notify=notify) for part in parts]
            notify("")
    else:
        console.print("no part has a solution/ folder here: ./lab check grades what you wrote")

    troubles = [trouble for verb, arguments in (("bench", ["--quick"]), ("plot", [])) if (trouble := _verb(verb, arguments))]

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


def _verb(verb: str, arguments: list[str]) -> str:
    """Runs another verb as a step of this one; what went wrong, in one line, or "". The card is printed in any case."""
    if verb not in main.verbs():
        return ""
    _step(f"./lab {' '.join([verb, *arguments])}")
    try:
        code = main.run([verb, *arguments])
        return f"./lab {verb} ended with exit code {code}" if code else ""
    except LabError as error:
        return f"./lab {verb}: {error}"


def _step(title: str) -> None:
    console.print(f"\n{title}", style="bold", markup=False)
