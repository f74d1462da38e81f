"""`./lab run`: sets up, builds, grades the reference solutions, measures, plots."""

import argparse

from lab import benchmarks, build, card, checking, main, manifest, paths, system
from lab.console import say
from lab.errors import LabError

HELP = "set up, build, grade the reference solutions, quick benchmarks, plots, report card"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true",
                        help="install missing packages without asking")


def run(args: argparse.Namespace) -> int:
    _step("Set up")
    system.ensure(args.yes)
    config = build.configure()
    say(f"{config.compiler}, Catch2 {config.catch2}")

    parts = manifest.load_parts()
    solved = [part for part in parts if part.has("solution")]
    results = []
    if solved:
        _step("Build and grade the reference solutions")
        results = [checking.grade_part(part, "solution") for part in solved]
    else:
        say("no part has a solution/ folder here: ./lab check grades what you wrote")

    measured: dict[object, list[str]] = {}  # of each benchmark program the first part that has it
    for part in parts:
        if benchmarks.can_run(part.name, config):
            command = ["bench", part.name, "--quick", *["--solution"] * (part in solved)]
            measured.setdefault(benchmarks.PROGRAMS[part.name], command)
    troubles = list(filter(None, map(_verb, [*measured.values(), ["plot"]])))

    _step("Report card")
    if results:
        card.print_card(results)
    for file in sorted([*paths.OUTPUTS.glob("csv/*.csv"), *paths.OUTPUTS.glob("plots/*.png")]):
        say(f"  {paths.relative(file)}")
    for trouble in troubles:
        say(f"  {trouble}", "red")
    return 0 if all(result.done for result in results) and not troubles else 1


def _verb(command: list[str]) -> str:
    """Runs another verb as a step of this one. Returns what went wrong, in one line, or ""."""
    shown = f"./lab {' '.join(command)}"
    _step(shown)
    try:
        code = main.run(command)
        return f"{shown} ended with exit code {code}" if code else ""
    except LabError as error:
        return f"{shown}: {error}"


def _step(title: str) -> None:
    say(f"\n{title}", "bold")
