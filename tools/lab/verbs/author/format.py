"""`./lab format`: clang-format over the C++ and CUDA files, by the version that the course pins."""

import argparse
import re
import sys
from pathlib import Path

from lab import console, paths
from lab.console import say
from lab.errors import LabError
from lab.instructor import release

HELP = "format C++ and CUDA files; --check only names those that differ"

SOURCES = (".cpp", ".hpp", ".cu", ".h")
TOOL = Path(sys.executable).with_name("clang-format")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", help="default: all that git tracks")
    parser.add_argument("--check", action="store_true",
                        help="change nothing; exit with 1 when a file differs")


def run(args: argparse.Namespace) -> int:
    if not TOOL.is_file():
        raise LabError(f"there is no {paths.relative(TOOL)}: tools/requirements.txt has it, and "
                       "./lab installs that where PyPI can be reached")
    files = args.files or [file for file in release.tracked() if file.endswith(SOURCES)]
    differ = differing(files)
    if args.check:
        for file in differ:
            say(file)
        if differ:
            raise LabError(f"{len(differ)} of {len(files)} files are not formatted: ./lab format")
    elif differ:
        console.stream([TOOL, "-i", *differ], "formatting")
    say(f"{len(files)} files, {len(differ)} of them formatted anew" if not args.check else
        f"{len(files)} files are formatted")
    return 0


def differing(files: list[str]) -> list[str]:
    done = console.stream([TOOL, "--dry-run", "--fno-color-diagnostics", *files],
                          "looking")
    found = re.findall(r"^(.+?):\d+:\d+: warning: code should be clang-formatted", done.output,
                       re.MULTILINE)
    return list(dict.fromkeys(found))
