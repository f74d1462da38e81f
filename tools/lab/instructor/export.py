"""What other systems take: an autograder for Gradescope, and grades for Canvas and Moodle."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import bundles, paths, released, system
from lab.errors import LabError
from lab.manifest import Task
from lab.released import OPEN, Release
from lab.submission import judging

TEMPLATES = "grading/gradescope"
_LEFT_OUT = r"outputs/reference/.*\.png$"  # megabytes that no grading needs
_PACKAGES = ("bubblewrap", "binutils", "python3")


def autograder(out: Path, tasks: Sequence[Task], tracked: Sequence[str]) -> int:
    """Writes the zip that Gradescope's "Configure autograder" takes; how many files it holds."""
    words = {"@PACKAGES@": " ".join([*(need.apt for need in system.NEEDS), *_PACKAGES]),
             "@TARGETS@": judging.TARGET, "@TASKS@": ",".join(task.id for task in tasks)}
    files = [path for path in tracked if not re.match(_LEFT_OUT, path)]
    version = released.version_of(paths.ROOT)
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
    packed[f"course/{released.RECORD}"] = released.text_of(record).encode(), 0o644
    bundles.pack(out, packed)
    return len(files)


@dataclass(frozen=True)
class Filled:
    """A table of a learning platform with grades in it."""

    text: str
    students: int           # rows that got a grade
    left: tuple[str, ...]   # submissions that gave no row one, each with the reason
    earlier: tuple[str, ...]   # those after which the same person handed in another
    replaced: tuple[str, ...]  # whose row had another grade
    without: tuple[str, ...]   # who of the table has no submission
    late: tuple[str, ...]      # whose grade is of what Canvas calls late


@dataclass(frozen=True)
class Roster:
    """The rows of a table that Canvas or Moodle exported."""

    rows: list[list[str]]
    name: int   # columns
    number: int
    platform: str

    def fits(self, handed_in: str) -> list[tuple[int, int]]:
        """The rows that a submission of this name can be of, and its order among theirs."""
        return [(place, order) for place, row in enumerate(self.rows)
                if (order := self.order(row, handed_in)) is not None]

    def number_of(self, row: Sequence[str]) -> re.Match | None:
        """None of a row that is no person's."""
        return re.fullmatch(r"(?:Participant )?(\d+)", row[self.number].strip()) if (
            len(row) > max(self.name, self.number)) else None

    def order(self, row: Sequence[str], handed_in: str) -> int | None:
        """None where the name of a submission is not the row's."""
        found = self._written(row, handed_in)
        return int(found[1] or 0) if found else None

    def is_late(self, row: Sequence[str], handed_in: str) -> bool:
        found = self._written(row, handed_in)
        return bool(found) and found[0].startswith("_LATE_")

    def _written(self, row: Sequence[str], handed_in: str) -> re.Match | None:
        """What the platform writes behind the person's name: a number, in Canvas also one of the
        file, which grows. What stands behind that is the student's, and says nothing."""
        number = self.number_of(row)
        if number is None:
            return None
        pattern = (rf"_{number[1]}_assignsubmission_file(?:_|$)()" if self.platform == "Moodle" else
                   rf"(?:_LATE)?_{number[1]}_(\d+)_")
        for found in re.finditer(pattern, handed_in):
            # Moodle writes "Participant" where the grader must not know the names.
            if _letters(handed_in[:found.start()]) in (_letters(row[self.name]), *(
                    ["participant"] if self.platform == "Moodle" else [])):
                return found
        return None


def _letters(name: str) -> str:
    """What both platforms keep of a name."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name).casefold()))


def twice(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Of those that a person handed in one after the other, by the names that Canvas writes: each
    with the one that came after it."""
    last: dict[tuple[str, str], str] = {}
    found = [(int(parts[3]), (_letters(parts[1]), parts[2]), name) for name in names
             if (parts := re.match(r"(.+?)(?:_LATE)?_(\d+)_(\d+)_", name))]
    for _, person, name in sorted(found):
        if person in last:
            yield last[person], name
        last[person] = name


def roster(file: Path) -> Roster:
    try:
        text = file.read_bytes().decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabError(f"{file} is no table: {error}") from None
    head = rows[0] if rows else []
    for number, name, needed, platform in (("Identifier", "Full name", "Grade", "Moodle"),
                                           ("ID", "Student", "Student", "Canvas")):
        if {number, needed} <= set(head):
            return Roster(rows, head.index(name if name in head else number), head.index(number),
                          platform)
    raise LabError(f"{file} is neither Moodle's grading worksheet (it has the columns Identifier "
                   "and Grade) nor Canvas' gradebook (Student and ID)")


def fill(roster: Roster, graded: Sequence[tuple[str, str]], column: str) -> Filled:
    """Puts scores (name of a submission, score; "" where it was not graded) into the table. Its
    other rows and columns stay as they are."""
    head = roster.rows[0]
    column = column or "Grade" * (roster.platform == "Moodle")
    named = [place for place, title in enumerate(head) if column and (
        title == column or re.fullmatch(re.escape(column) + r" \(\d+\)", title))]
    if len(named) != 1:
        what = f'the table has no column "{column}"' if column else "--column is missing"
        raise LabError(f"{what}; it names the assignment's: {', '.join(head)}")
    mine: dict[int, list[tuple[int, str, str]]] = {}
    left, earlier = [], []
    for name, score in graded:
        fits = roster.fits(name)
        if len(fits) == 1:
            mine.setdefault(fits[0][0], []).append((fits[0][1], name, score))
        else:
            left.append(f"{name}: it is of {len(fits) or 'no'} row{'s' * (len(fits) > 1)} of the "
                        "table, by the name and number that the platform wrote; enter its points "
                        "there by hand")
    students = 0
    replaced, late = [], []
    for place, of_row in mine.items():
        last, name, score = max(of_row)
        together = sum(order == last for order, *_ in of_row) > 1
        why = ("it is one of several files that were handed in together; choose one by hand"
               if together else "" if score else "it is not graded yet")  # which is no zero
        left += [f"{other}: {why}" for order, other, _ in sorted(of_row) if why and order == last]
        earlier += [f"{other}: {name} was handed in after it"
                    for order, other, _ in sorted(of_row) if order < last]
        if not why:
            row = roster.rows[place]
            row += [""] * (named[0] + 1 - len(row))
            before = row[named[0]].strip()
            if before and not _same(before, score):
                replaced.append(f"{row[roster.name]} had {before}, and has {score} now")
            row[named[0]] = score
            if roster.is_late(row, name):
                late.append(row[roster.name])
            students += 1
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(roster.rows)
    without = (row[roster.name] for place, row in enumerate(roster.rows)
               if roster.number_of(row) and place not in mine)
    return Filled(out.getvalue(), students, tuple(left), tuple(earlier), tuple(replaced),
                  tuple(without), tuple(late))


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other
