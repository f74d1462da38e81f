"""Reads the command line and hands it to one verb: a module below lab/verbs/, found by its name.

Needs the standard library only and imports no verb before it runs one: `./lab`, `./lab --help` and
`./lab doctor` work on a machine where nothing is installed yet.
"""

import argparse
import ast
import difflib
import importlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from lab import text
from lab.errors import LabError

VERBS_FOLDER = Path(__file__).parent / "verbs"
USERS = {"student": "Student", "instructor": "Instructor", "author": "Author of the course"}

FIRST_COMMANDS = (
    ("./lab run", "see everything work: setup, build, grades, benchmarks, plots"),
    ("./lab check part1", "grade your own files of part 1 (part1_softmax_matmul/skeleton/)"),
    ("./lab hint fused_cpu", "show one more hint for that task"),
)


class UsageError(LabError):
    """A command line that cannot be read; exit code 2."""


class Parser(argparse.ArgumentParser):
    """argparse with its errors in one line; and what follows -- becomes `options`, for the program
    that the verb starts, where `options_example` shows some."""

    options_example = ""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (./{self.prog} --help says more)")

    def parse(self, words: list[str]) -> argparse.Namespace:
        if not self.options_example:
            return self.parse_args(words)
        self.usage = f"{self.format_usage()[len('usage: '):].strip()} [-- OPTIONS OF THE PROGRAM]"
        self.epilog = f"What follows -- goes to the program, as in {self.options_example}."
        cut = words.index("--") if "--" in words else len(words)
        # argparse would take the first word after -- for an argument of the verb.
        return self.parse_args(words[:cut], argparse.Namespace(options=words[cut + 1:]))


def verbs(users: Iterable[str] = USERS) -> dict[str, Path]:
    """Each verb's module. A release has the students' only."""
    return {path.stem: path for user in users
            for path in sorted((VERBS_FOLDER / user).glob("[!_]*.py"))}


def help_of(verb: str) -> str:
    """HELP of the verb's module. It is read from the source, because importing the module may need
    packages that are not installed yet."""
    for node in ast.parse(verbs()[verb].read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="HELP")]):
                return str(ast.literal_eval(node.value))
    return ""


def overview(users: Iterable[str]) -> str:
    """What `./lab` prints when it is called alone (for students) or as `./lab help`."""
    lines = ["usage: ./lab VERB [arguments]      ./lab VERB --help explains a verb's arguments"]
    for user in users:
        if members := verbs([user]):
            lines += ["", USERS[user], *(f"  {verb:<13}{help_of(verb)}" for verb in members)]
    first = [line for line in FIRST_COMMANDS if line[0].split()[1] in verbs()]
    lines += ["", "First commands", *(f"  {command:<24}{does}" for command, does in first)]
    if left := [USERS[user].lower() for user in USERS if user not in users and verbs([user])]:
        lines += ["", f"./lab help also lists the verbs for the {' and the '.join(left)}."]
    return "\n".join(lines)


def load(verb: str) -> object:
    try:
        return importlib.import_module(f"lab.verbs.{verbs()[verb].parent.name}.{verb}")
    except ModuleNotFoundError as error:
        if error.name and not error.name.startswith("lab"):
            raise LabError(f"{sys.executable} has no package {error.name}: start the course's tool "
                           "as ./lab, which keeps its packages in .venv") from error
        raise


def run(argv: list[str]) -> int:
    """Runs one command line; raises LabError."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(overview(USERS if argv else ("student",)))
        return 0
    verb, arguments = argv[0], argv[1:]
    if verb not in verbs():
        near = difflib.get_close_matches(verb, verbs(), n=1, cutoff=0.5)
        hint = f"did you mean ./lab {near[0]}?" if near else "./lab help lists the verbs"
        raise UsageError(f"there is no verb '{verb}': {hint}")
    return int(load(verb).run(parsed(verb, arguments)) or 0)


def parsed(verb: str, words: list[str]) -> argparse.Namespace:
    parser = Parser(prog=f"lab {verb}", description=help_of(verb), allow_abbrev=False)
    load(verb).add_arguments(parser)
    return parser.parse(words)


def main(argv: list[str]) -> int:
    """The exit code of one command line: 0 success, 1 an error (printed as one line), 2 a command
    line that cannot be read, 130 interrupted."""
    try:
        code = run(argv)
        sys.stdout.flush()
        return code
    except LabError as error:
        sys.stdout.flush()
        print(f"lab: {text.plain(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("\nlab: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `./lab list | head`: the reader has ended. Without this, Python's flush at exit fails too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
