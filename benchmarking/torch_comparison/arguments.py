"""Values of the command line: a wrong one is a line that names the option, the value and what it has to be."""

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message.removeprefix('argument ')}\n")


def integer(text: str, least: int = 1, most: int = 1 << 20) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"it is '{text}'; it must be an integer from {least} to {most}")
    return int(text)


def several(one: Callable[[str], Any]) -> Callable[[str], tuple]:
    """The type of an option whose value is a list with commas."""
    def parse(text: str) -> tuple:
        values = tuple(one(word) for word in text.split(","))
        if len(set(values)) != len(values):
            raise argparse.ArgumentTypeError(f"it is '{text}'; each may be there once")
        return values

    return parse


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"it is '{text}'; it must be one of {', '.join(choices)}")
        return text

    return parse


def batch_heads(text: str) -> tuple[int, int]:
    """ "8" is one batch of 8 heads."""
    words = text.split("x")
    if len(words) > 2:
        raise argparse.ArgumentTypeError(f"it is '{text}'; it must be HEADS or BATCHxHEADS, as in 8 or 2x4")
    batch, heads = (integer(word) for word in (words if len(words) == 2 else ["1", *words]))
    return batch, heads


def causal(text: str) -> tuple[bool, ...]:
    return {"no": (False,), "yes": (True,), "both": (False, True)}[one_of(("no", "yes", "both"))(text)]


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"it is '{text}'; it must be a number of seconds, at least 0")
    return value
