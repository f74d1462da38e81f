"""Derives a skeleton from a solution.

A solution marks what the student is to write:

    // BEGIN SOLUTION the running max and sum of one row, about 6 lines
    //   (a prompt may go on over lines that begin with two slashes and three spaces)
    // STUB throw NotYetImplemented("part1.fused_cpu");
    ...
    // END SOLUTION

In the skeleton the region is the prompt, as a TODO, and the code of the STUB lines. Every other
byte is the solution's.
"""

import contextlib
import re
from pathlib import Path

from lab.errors import LabError
from lab.manifest import Task

_MARKER = re.compile(r"(?P<indent>[ \t]*)//[ \t]*(?P<kind>BEGIN SOLUTION|END SOLUTION|STUB)\b[ \t]*"
                     r"(?P<rest>.*?)[ \t]*")
_MENTION = re.compile(r"BEGIN SOLUTION|END SOLUTION|//[ \t]*STUB\b")
_PROMPT_GOES_ON = re.compile(r"[ \t]*//   .*\S.*")
_NOT_YET = re.compile(r'NotYetImplemented\("([^"]*)"\)')


def derive(text: str, name: str) -> str:
    """The skeleton of a solution's text; errors name the file `name`."""
    out: list[str] = []
    begin = 0  # line of the open BEGIN SOLUTION; 0 outside a region
    head = ""  # in a region: "prompt" and "stubs" while they may still come, then "body"

    def require(condition: object, message: str, line: int = 0) -> None:
        if not condition:
            raise LabError(f"{name}:{line or number}: {message}")

    for number, line in enumerate(re.split(r"(?<=\n)", text), 1):
        content = line.rstrip("\r\n")
        ending = line[len(content):]
        marker = _MARKER.fullmatch(content)
        require(marker or not _MENTION.search(content),
                "a marker must be a // comment on a line of its own")
        kind, rest = (marker["kind"], marker["rest"]) if marker else ("", "")
        if kind == "BEGIN SOLUTION":
            require(not begin, f"BEGIN SOLUTION inside the region that line {begin} begins; "
                    "regions cannot be nested")
            require(rest, "BEGIN SOLUTION without a prompt; say what to write and in about how "
                          "many lines")
            out.append(f"{marker['indent']}// TODO {rest}{ending}")
            begin, head = number, "prompt"
        elif kind == "END SOLUTION":
            require(begin, "END SOLUTION without a BEGIN SOLUTION before it")
            require(not rest, f'END SOLUTION is followed by "{rest}"; nothing may follow it')
            begin = 0
        elif kind == "STUB":
            require(begin and head != "body" and rest,
                    "STUB must have code, and come right after BEGIN SOLUTION and its prompt")
            out.append(f"{marker['indent']}{rest}{ending}")
            head = "stubs"
        elif not begin or head == "prompt" and _PROMPT_GOES_ON.fullmatch(content):
            out.append(line)
        else:
            head = "body"
    require(not begin, "BEGIN SOLUTION without an END SOLUTION after it", begin)
    require(head, "no BEGIN SOLUTION in this file; its skeleton would be the solution itself", 1)
    return "".join(out)


def derive_task(task: Task) -> str:
    """The skeleton of a task, checked to throw NotYetImplemented with the task's own name."""
    name = task.shown_path("solution")
    skeleton = derive(read_exact(task.path("solution")), name)
    named = set(_NOT_YET.findall(skeleton))
    if named != {task.id}:
        found = ", ".join(f'"{other}"' for other in sorted(named)) or "nothing"
        raise LabError(f"{name}: its skeleton throws NotYetImplemented of {found}; "
                       f'it must be of "{task.id}"')
    return skeleton


def read_exact(path: Path) -> str:
    """A file's text such that write_exact gives the same bytes back."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def write_exact(path: Path, text: str | bytes) -> None:
    """Writes the whole file or nothing of it."""
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    temporary = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # such as a disk that is full
            temporary.unlink(missing_ok=True)
        raise LabError(f"{path} cannot be written ({error.strerror})") from None
