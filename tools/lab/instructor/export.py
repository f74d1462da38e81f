"""What other systems take: an autograder for Gradescope, and grades for Canvas and Moodle."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import bundles, handout, paths, system
from lab.errors import LabError
from lab.handout import OPEN, Release
from lab.judge import judging
from lab.manifest import Task

TEMPLATES = "grading/gradescope"
_LEFT_OUT = ("outputs/reference/",)  # megabytes that no grading needs
_PACKAGES = ("bubblewrap", "binutils", "python3")


def autograder(out: Path, tasks: Sequence[Task], tracked: Sequence[str]) -> int:
    """Writes the zip that Gradescope's "Configure autograder" takes; how many files it holds."""
    words = {"@PACKAGES@": " ".join([*(need.apt for need in system.NEEDS), *_PACKAGES]),
             "@TARGETS@": judging.TARGET, "@TASKS@": ",".join(task.id for task in tasks)}
    files = [path for path in tracked if not path.startswith(_LEFT_OUT)]
    version = handout.version_of(paths.ROOT)
    record = Release(version, dict.fromkeys(dict.fromkeys(task.part for task in tasks), OPEN), {},
                     ())
    packed = {}
    for name in ("setup.sh", "run_autograder"):
        text = (paths.ROOT / TEMPLATES / name).read_text()
        for word, value in words.items():
            text = text.replace(word, value)
        packed[name] = text.encode(), 0o755
    for path in files:
        file = paths.ROOT / path
        packed[f"course/{path}"] = file.read_bytes(), file.stat().st_mode & 0o777
    # There is no git: this says which version it is.
    packed[f"course/{handout.RECORD}"] = handout.text_of(record).encode(), 0o644
    bundles.pack(out, packed)
    return len(files)


@dataclass(frozen=True)
class Filled:
    """A table of a learning platform with grades in it."""

    text: str
    students: int             # rows that got a grade
    unknown: tuple[str, ...]  # submissions that belong to no row


def fill(worksheet: str, grades: Mapping[str, str], column: str) -> Filled:
    """Puts the scores (submission -> score; "" where it was not graded) into the table that Canvas
    or Moodle exported. Its other rows and columns stay as they are."""
    rows = list(csv.reader(io.StringIO(worksheet.removeprefix("\ufeff"))))
    head = rows[0] if rows else []
    if {"Identifier", "Grade"} <= set(head):  # Moodle's grading worksheet
        who, where = head.index("Identifier"), head.index(column or "Grade") \
            if (column or "Grade") in head else -1
        number, pattern = r"Participant (\d+)", r"_{}_assignsubmission"
    elif {"Student", "ID"} <= set(head):      # Canvas' gradebook
        who = head.index("ID")
        named = [name for name in head if column and (name == column or re.fullmatch(
            re.escape(column) + r" \(\d+\)", name))]
        where = head.index(named[0]) if len(named) == 1 else -1
        number, pattern = r"(\d+)", r"(^|_){}_"
    else:
        raise LabError("the table is neither Moodle's grading worksheet (it has the columns "
                       "Identifier and Grade) nor Canvas' gradebook (Student and ID)")
    if where < 0:
        what = f'the table has no column "{column}"' if column else "--column is missing"
        raise LabError(f"{what}; it names the assignment's: {', '.join(head)}")
    used: set[str] = set()
    filled = 0
    for row in rows[1:]:
        found = re.fullmatch(number, row[who].strip()) if len(row) > max(who, where) else None
        mine = [name for name in grades
                if found and re.search(pattern.format(found[1]), name)]
        if len(mine) > 1:
            raise LabError(f"{' and '.join(mine)} would both be of the row {row[who]}: delete one "
                           "of these folders in the results, and grade again")
        used.update(mine)
        if mine and grades[mine[0]]:  # one that was not graded gets no zero
            row[where] = grades[mine[0]]
            filled += 1
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return Filled(out.getvalue(), filled, tuple(name for name in grades if name not in used))
