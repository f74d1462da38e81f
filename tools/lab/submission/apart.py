"""Calls a function of ours on a stranger's text in a process of its own, with limits. Some text can
always be found that takes hours to read, and meanwhile no other thread of this process goes on."""

import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.submission import sandbox

LIMITS = sandbox.Limits(seconds=60, file=256 * sandbox.MIB)
_NO_MEMORY = 9  # how the process ends then


class TooMuch(Exception):
    """The limits were not enough; the words are for who wrote the text."""


def call(function: Callable[..., Any], *given: object) -> Any:
    """What function(*given) returns, or raises. The function is one of a module of lab, and all can
    be pickled."""
    with tempfile.TemporaryDirectory(prefix="lab-apart-") as folder:
        asked, answer = Path(folder, "asked"), Path(folder, "answer")
        asked.write_bytes(pickle.dumps((function, given)))
        ended = sandbox.run([sys.executable, "-m", __name__, str(asked), str(answer)], LIMITS,
                            os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])})
        if ended.timed_out or ended.code < 0 or ended.code == _NO_MEMORY:
            raise TooMuch(f"reading its text was stopped after {LIMITS.seconds:g} s or because of the "
                          "memory that it took: no ordinary file takes as much")
        if ended.code:
            raise sandbox.InfraError(f"{__name__} failed: {ended.output.strip()[-500:]}")
        result, raised = pickle.loads(answer.read_bytes())
    if raised:
        raise raised
    return result


def _main(asked: str, answer: str) -> None:
    function, given = pickle.loads(Path(asked).read_bytes())
    result, raised = None, None
    try:
        result = function(*given)
    except MemoryError:
        os._exit(_NO_MEMORY)
    except Exception as error:
        raised = error
    Path(answer).write_bytes(pickle.dumps((result, raised)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
