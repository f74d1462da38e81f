"""Derives a skeleton from a solution.

A solution marks what the student is to write:

    // BEGIN SOLUTION the running max and sum of one row, about 6 lines
    //   (a prompt may go on over lines that begin with two slashes and three spaces)
    // STUB throw NotYetImplemented("part1.fused_cpu");
    ...
    // END SOLUTION

In the skeleton the region is the prompt, as a TODO, and the code of the STUB lines. Every other byte is the solution's.
"""

import re
from pathlib import Path

from lab.errors import LabError
from lab.manifest import Task

_MARKER = re.compile(r"(?P<indent>[ \t]*)//[ \t]*(?P<kind>BEGIN SOLUTION|END SOLUTION|STUB)\b[ \t]*(?P<rest>.*?)[ \t]*")
_MENTION = re.compile(r"BEGIN SOLUTION|END SOLUTION|//[ \t]*STUB\b")
_PROMPT_GOES_ON = re.compile(r"[ \t]*//   .*\S.*")
_NOT_YET = re.compile(r'NotYetImplemented\("([^"]*)"\)')


def derive(text: str, name: str) -> str:
    """The skeleton of a solution's text; `name` is the file as errors name it."""
    out: list[str] = []
    begin = 0  # line of the open BEGIN SOLUTION; 0 outside a region
    regions = 0
    head = ""  # within a region: "prompt" and "stubs" while they may still come, then "body"

    def fail(line: int, message: str) -> None:
        raise LabError(f"{name}:{line}: {message}")

    for number, line in enumerate(re.split(r"(?<=\n)", text), 1):
        content = line.rstrip("\r\n")
        ending = line[len(content):]
        marker = _MARKER.fullmatch(content)
        if not marker and _MENTION.search(content):
            fail(number, "a marker must stand on a line of its own, as a // comment")
        kind = marker["kind"] if marker else ""

        if kind == "BEGIN SOLUTION":
            if begin:
                fail(number, f"BEGIN SOLUTION inside the region that line {begin} begins; regions do not nest")
            if not marker["rest"]:
                fail(number, "BEGIN SOLUTION without a prompt; say what to write and in about how many lines")
            out.append(f"{marker['indent']}// TODO {marker['rest']}{ending}")
            begin, head, regions = number, "prompt", regions + 1
        elif kind == "END SOLUTION":
            if not begin:
                fail(number, "END SOLUTION without a BEGIN SOLUTION before it")
            if marker["rest"]:
                fail(number, f'END SOLUTION is followed by "{marker["rest"]}"; nothing may follow it')
            begin = 0
        elif kind == "STUB":
            if not begin:
                fail(number, "STUB outside of a region; it stands right after BEGIN SOLUTION and its prompt")
            if head == "body":
                fail(number, f"STUB after code; it stands right after BEGIN SOLUTION (line {begin}) and its prompt")
            if not marker["rest"]:
                fail(number, "STUB without code")
            out.append(f"{marker['indent']}{marker['rest']}{ending}")
            head = "stubs"
        elif not begin:
            out.append(line)
        elif head == "prompt" and _PROMPT_GOES_ON.fullmatch(content):
            out.append(line)
        else:
            head = "body"
    if begin:
        fail(begin, "BEGIN SOLUTION without an END SOLUTION after it")
    if not regions:
        fail(1, "no BEGIN SOLUTION in this file; its skeleton would be the solution itself")
    return "".join(out)


def derive_task(task: Task) -> str:
    """The skeleton of a task, derived from its solution's file and checked to name the task as not started."""
    name = task.shown_path("solution")
    skeleton = derive(read_exact(task.path("solution")), name)
    named = set(_NOT_YET.findall(skeleton))
    if named != {task.id}:
        found = ", ".join(f'"{other}"' for other in sorted(named)) or "nothing"
        raise LabError(f'{name}: its skeleton throws NotYetImplemented of {found}; it must be of "{task.id}"')
    return skeleton


def read_exact(path: Path) -> str:
    """A file's text such that write_exact gives the same bytes back, whatever its line ends and encoding."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def write_exact(path: Path, text: str) -> None:
    """Writes the whole file or nothing of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(text.encode("utf-8", "surrogateescape"))
    temporary.replace(path)
