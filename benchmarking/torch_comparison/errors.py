"""What can go wrong, and how it is said: in one line that a person can act on."""

import re
import textwrap
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


class ComparisonError(Exception):
    """One line that a person can act on; the program shows it and stops."""


class Failed(Exception):
    """What a contender cannot do: the status of its row."""

    status = "error"


class Unsupported(Failed):
    status = "unsupported"


class OutOfMemory(Failed):
    status = "OOM"


def status_of(failure: BaseException) -> str:
    """The status of a row that came to this end; PyTorch says most of what it cannot do by a RuntimeError."""
    if isinstance(failure, Failed):
        return failure.status
    if isinstance(failure, MemoryError) or re.search("allocate memory|not enough memory|out of memory", str(failure)):
        return "OOM"
    return "unsupported" if re.search("No available kernel|No viable backend", str(failure)) else "error"


def shown(file: Path) -> str:
    """A path as a person reads it."""
    return str(file).removeprefix(f"{REPOSITORY}/")


def one_line(error: BaseException) -> str:
    return textwrap.shorten(str(error), 200, placeholder=" ...") or type(error).__name__
