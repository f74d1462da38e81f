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

import re

from lab import disk
from lab.errors import LabError
from lab.manifest import Task

_MENTION = re.compile(r"BEGIN SOLUTION|END SOLUTION|//[ \t]*STUB\b")
_REGION = re.compile(
    r"^(?P<indent>[ \t]*)//[ \t]*BEGIN SOLUTION[ \t]+(?P<prompt>\S.*\n(?:[ \t]*//   .*\S.*\n)*)"
    r"(?P<stubs>(?:[ \t]*//[ \t]*STUB[ \t]+\S.*\n)*)"
    rf"(?:(?!.*(?:{_MENTION.pattern})).*\n)*"
    r"[ \t]*//[ \t]*END SOLUTION[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
_NOT_YET = re.compile(r'NotYetImplemented\("([^"]*)"\)')


def derive(text: str, name: str) -> str:
    """The skeleton of a solution's text; errors name the file `name`."""
    # Without its regions a text has no marker, else one of them does not fit.
    rest = _REGION.sub(lambda region: "\n" * region[0].count("\n"), text)
    if marker := _MENTION.search(rest):
        line = rest[:marker.start()].count("\n") + 1
        raise LabError(
            f"{name}:{line}: {marker[0]} does not fit: a region is // BEGIN SOLUTION with a "
            "prompt, which says what to write and in about how many lines, then // STUB lines with "
            "code, then the solution, then // END SOLUTION; each is a comment on a line of its "
            "own, and no region is inside of another")
    if rest == text:
        raise LabError(f"{name}:1: no BEGIN SOLUTION in this file; its skeleton would be the "
                       "solution itself")
    return _REGION.sub(lambda region: f"{region['indent']}// TODO {region['prompt']}" + re.sub(
        r"//[ \t]*STUB[ \t]+", "", region["stubs"]), text)


def derive_task(task: Task) -> str:
    """The skeleton of a task, checked to throw NotYetImplemented with the task's own name."""
    name = task.shown_path("solution")
    skeleton = derive(disk.read_exact(task.path("solution")), name)
    named = set(_NOT_YET.findall(skeleton))
    if named != {task.id}:
        found = ", ".join(f'"{other}"' for other in sorted(named)) or "nothing"
        raise LabError(f"{name}: its skeleton throws NotYetImplemented of {found}; "
                       f'it must be of "{task.id}"')
    return skeleton
