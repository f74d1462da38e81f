"""Points for speed, as an option of ./lab grade: a submission is measured on a board of the
leaderboard, and what counts is how many times as fast as the reference it is in the same run."""

import contextlib
import dataclasses
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.instructor.reports import SPEED
from lab.leaderboard import boards, machine, measuring
from lab.leaderboard.boards import Board
from lab.leaderboard.measuring import Site
from lab.leaderboard.result import TURNS, Busy, NoResult, result_of
from lab.submission.judging import FAILED, GRADED, NOT_RUN, PASSED, Case, Judged
from lab.submission.sandbox import InfraError
from lab.submission.submissions import Content


@dataclass(frozen=True)
class Threshold:
    board: Board
    least: float   # speed-up over the reference
    points: float

    @property
    def name(self) -> str:
        return f"at least {self.least:g} times as fast as the reference"

    def not_run(self, done: Sequence[Judged]) -> Judged | None:
        """The verdict where a task of the board does not pass all of its cases."""
        wrong = [task.task for task in done if task.task in self.board.tasks and not (
            task.status == GRADED and all(case.status == PASSED for case in task.cases))]
        return self.judged(NOT_RUN, f"Not run, because {', '.join(wrong)} does not pass all of its "
                                    "cases.") if wrong else None

    def judged(self, status: str, message: str) -> Judged:
        return Judged(SPEED + self.board.name, self.points, GRADED, cases=(
            Case(self.name, status, message, "", "speed", self.points),))


@dataclass(frozen=True)
class Speed:
    wanted: Threshold
    where: Site | None  # None where the jobs of a cluster are submitted, which measure

    def judge(self, done: Sequence[Judged], content: Content) -> Judged:
        """After the board's tasks were judged, each with its cases. InfraError where the machine is
        busy: that says nothing about the submission."""
        if blocked := self.wanted.not_run(done):
            return blocked
        with tempfile.TemporaryDirectory(dir=self.where.work) as folder:
            where = dataclasses.replace(self.where, work=Path(folder))
            try:
                libraries = measuring.libraries(where, content.files)
            except LabError as error:  # a board of a GPU compiles with nvcc
                return self.wanted.judged(FAILED, str(error))
            try:
                machine.refuse_if_busy(where.board)
                samples = measuring.measure(where, libraries, TURNS).samples
                found = result_of(where.board, samples)
            except Busy as error:
                raise InfraError(str(error)) from None
            except NoResult as error:
                return self.wanted.judged(FAILED, str(error))
        said = f"It is {found.speedup:.2f} times as fast, +- {100 * found.uncertainty:.1f} %."
        return self.wanted.judged(PASSED if found.speedup >= self.wanted.least else FAILED, said)


def threshold(text: str) -> Threshold:
    """"part2-cpu=2:1": one point for twice the speed of the reference."""
    found = re.fullmatch(r"([\w-]+)=(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)", text)
    if not found or not float(found[2]) > 0 or not float(found[3]) > 0:
        raise LabError(f"--speed is {text!r}; it must be BOARD=SPEEDUP:POINTS, as in part2-cpu=2:1")
    return Threshold(boards.find(found[1]), float(found[2]), float(found[3]))


def check(wanted: Threshold, tasks: Sequence[str]) -> None:
    """LabError where the board needs tasks that are not graded."""
    if missing := [name for name in wanted.board.tasks if name not in tasks]:
        raise LabError(f"--speed {wanted.board.name} needs {', '.join(missing)}, which --tasks "
                       "leaves out, or which has no judge here")


@contextlib.contextmanager
def ready(wanted: Threshold, tasks: Sequence[str]) -> Iterator[Speed]:
    """The board on this machine. LabError where it cannot be measured here."""
    check(wanted, tasks)
    with measuring.site(wanted.board) as where:
        yield Speed(wanted, where)
