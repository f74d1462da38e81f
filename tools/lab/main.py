"""Parses the command line and hands it to one verb.

Needs the standard library only, and imports a verb no earlier than it runs: `./lab`, `./lab --help` and `./lab doctor` work
on a machine where nothing is installed yet.
"""

import argparse
import ast
import difflib
import importlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from lab.errors import LabError

VERBS_FOLDER = Path(__file__).parent / "verbs"

# The order of the overview. A verb that is listed and has no module yet is left out; one that is not listed comes last.
GROUPS = {
    "Everything at once": ("run", "test", "doctor"),
    "Student": ("list", "check", "watch", "hint", "reset"),
    "Measurements": ("bench", "profile", "plot", "table", "submit"),
    "Instructor": ("skeletons", "release", "grade"),
}

FIRST_COMMANDS = (
    ("./lab run", "see everything work: set-up, build, grades, benchmarks, plots"),
    ("./lab check part1", "grade your own files of part 1 (part1_softmax_matmul/skeleton/)"),
    ("./lab hint fused_cpu", "one more hint for that task"),
)


class UsageError(LabError):
    """A command line that cannot be read; exit code 2."""


class Parser(argparse.ArgumentParser):
    """argparse with its errors in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (./{self.prog} --help says more)")


def verbs() -> list[str]:
    """The verbs that exist, in the order of the overview."""
    present = sorted(path.stem for path in VERBS_FOLDER.glob("*.py") if not path.stem.startswith("_"))
    order = [verb for group in GROUPS.values() for verb in group]
    return sorted(present, key=lambda verb: order.index(verb) if verb in order else len(order))


def help_of(verb: str) -> str:
    """The verb's HELP line, read from its source: importing it would need packages that may not be there yet."""
    for node in ast.parse((VERBS_FOLDER / f"{verb}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "HELP" for target in targets):
                return str(ast.literal_eval(node.value))
    return ""


def overview() -> str:
    """What `./lab` prints when it is called alone."""
    present = verbs()
    listed = {verb for group in GROUPS.values() for verb in group}
    groups = GROUPS | {"Other": tuple(verb for verb in present if verb not in listed)}
    lines = ["usage: ./lab VERB [arguments]      ./lab VERB --help says what a verb takes"]
    for title, members in groups.items():
        shown = [verb for verb in members if verb in present]
        if shown:
            lines += ["", title, *(f"  {verb:<11}{help_of(verb)}" for verb in shown)]
    lines += ["", "First commands", *(f"  {command:<24}{purpose}" for command, purpose in FIRST_COMMANDS)]
    return "\n".join(lines)


def load(verb: str) -> object:
    """The verb's module. A package that this interpreter lacks is named in one line."""
    try:
        return importlib.import_module(f"lab.verbs.{verb}")
    except ModuleNotFoundError as error:
        if error.name and not error.name.startswith("lab"):
            raise LabError(f"{sys.executable} has no package {error.name}: start the course's tool as ./lab, "
                           "which keeps its packages in .venv") from error
        raise


def run(argv: list[str]) -> int:
    """One command line; raises LabError."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    verb, arguments = argv[0], argv[1:]
    if verb not in verbs():
        near = difflib.get_close_matches(verb, verbs(), n=1, cutoff=0.5)
        suggestion = f": did you mean ./lab {near[0]}?" if near else ": ./lab alone lists the verbs"
        raise UsageError(f"there is no verb '{verb}'{suggestion}")
    module = load(verb)
    parser = Parser(prog=f"lab {verb}", description=help_of(verb), allow_abbrev=False)
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(arguments)) or 0)


def main(argv: list[str]) -> int:
    """The exit code of one command line: 0 well, 1 an error in one line, 2 a wrong command line, 130 interrupted."""
    try:
        code = run(argv)
        sys.stdout.flush()
        return code
    except LabError as error:
        sys.stdout.flush()
        print(f"lab: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("\nlab: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `./lab list | head`: the reader has gone. Python's own flush at exit would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
