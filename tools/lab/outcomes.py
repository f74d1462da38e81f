"""How graded cases, tasks and parts ended, and the points that they earn."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lab.backends import CPU, Backends
from lab.errors import LabError
from lab.manifest import Part, Task

# How a case or a task can end. NEEDS_GPU and NEEDS_CHECKS are left out of every total; BUILD_FAILED,
# UNFINISHED and REFUSED are for tasks only.
PASSED, WRONG, NOT_STARTED, CRASHED = "passed", "wrong", "not started", "crashed"
TIMED_OUT, EXCEPTION, NOT_RUN = "timed out", "exception", "not run"
NEEDS_GPU, NEEDS_CHECKS = "needs a GPU", "needs checks"
BUILD_FAILED, UNFINISHED, REFUSED = "does not compile", "unfinished", "refused"
ELSEWHERE = (NEEDS_GPU, NEEDS_CHECKS)  # only another machine can tell


@dataclass
class CaseResult:
    name: str  # empty: the test program ended before its first case
    status: str
    message: str = ""  # the verdict: its first line is the summary
    output: str = ""  # what the program printed, where that helps
    requirement: str = ""  # of its task, which it belongs to
    points: float = 0  # what the case is worth
    counts: float = 1  # the part of that which it earns when it passes: see with_points()
    backend: str = CPU  # that ran it
    diagnosis: str = ""  # the name of the mistake, where the harness is sure of it
    kind: str = ""  # of the mistake: what its hint is found by
    explainable: bool = False  # --explain may have something to show
    explanation: str = ""  # the same mistake with small numbers, where that was asked for

    @property
    def earned(self) -> float:
        return self.points * self.counts if self.status == PASSED else 0.0


@dataclass
class TaskResult:
    task: Task
    implementation: str
    status: str
    cases: list[CaseResult] = field(default_factory=list)
    first_error: str = ""  # of the compiler, "file:line: message"
    out_of_reach: bool = False  # this machine cannot run the task
    backend: str | None = CPU  # that ran it, or most of it
    # Of the compiler, if it ran now, and about variables that nobody set.
    warnings: list[str] = field(default_factory=list)

    @property
    def earned(self) -> float:
        return math.fsum(case.earned for case in self.cases)

    @property
    def missing(self) -> dict[str, float]:
        """The points that are not counted here, by what it takes to count them."""
        gpu = "a GPU or the emulator"
        if self.out_of_reach:
            return {gpu: self.task.points} if self.task.points else {}
        shares = (gpu, NEEDS_GPU), ("the emulator's checks (g++)", NEEDS_CHECKS)
        return {what: share for what, status in shares if (share := self._share(status))}

    @property
    def possible(self) -> float:
        return self.task.points - sum(self.missing.values())

    @property
    def failures(self) -> list[CaseResult]:
        """The one that says most comes first."""
        return in_order([case for case in self.cases
                         if case.status not in (PASSED, NOT_STARTED, *ELSEWHERE)])

    @property
    def done(self) -> bool:
        """Nothing is left to do here: all passed, or only another machine can tell."""
        return self.status in (PASSED, *ELSEWHERE)

    def _share(self, status: str) -> float:
        return math.fsum(case.points for case in self.cases if case.status == status)

    @property
    def requirements(self) -> list[tuple[str, float, float]]:
        """Name, points earned, points that can be earned here; in the order of tasks.toml."""
        found = []
        for name in self.task.requirements:
            here = [case for case in self.cases
                    if case.requirement == name and case.status not in ELSEWHERE]
            found.append((name, sum(case.earned for case in here),
                          sum(case.points for case in here)))
        return [one for one in found if one[2]]


@dataclass
class PartResult:
    part: Part
    implementation: str
    seed: int
    backends: Backends
    tasks: list[TaskResult] = field(default_factory=list)

    @property
    def earned(self) -> float:
        return sum(task.earned for task in self.tasks)

    @property
    def possible(self) -> float:
        return sum(task.possible for task in self.tasks)

    @property
    def missing(self) -> dict[str, float]:
        return sum_by_key(task.missing for task in self.tasks)

    @property
    def done(self) -> bool:
        return all(task.done for task in self.tasks)


# A requirement that is broken in one place is broken. Of the others whose share is large, most is
# worth half. Each step pays for itself: whoever breaks one breaks another requirement, too.
EACH_BY_ITSELF = "steps"
ALL_OR_NOTHING = ("memory", "order and races")
LARGE, MOST = 20, 0.75


def with_points(task: Task, cases: Sequence[CaseResult]) -> list[CaseResult]:
    """A requirement's points are shared out among its cases. They count when all of them pass, or,
    of a large one, half when most do; those of a step count when it passes."""
    sizes = Counter(case.requirement for case in cases)
    for name in sizes:
        if task.points and name not in task.requirements:
            raise LabError(f'{task.id} has a case of the requirement "{name}", which its entry in '
                           f"tasks.toml lacks")
    counts = {}
    for name in sizes:
        ran = [case.status == PASSED for case in cases
               if case.requirement == name and case.status not in ELSEWHERE]
        large = name not in ALL_OR_NOTHING and task.requirements.get(name, 0) >= LARGE
        most = large and sum(ran) >= MOST * len(ran)
        # Half of the whole, shared out among those that pass.
        whole = all(ran) or name == EACH_BY_ITSELF
        counts[name] = 1 if whole else 0.5 * len(ran) / sum(ran) if most else 0
    return [replace(case, points=0 if not task.points else
                    task.points * task.requirements[case.requirement] / 100
                    / sizes[case.requirement], counts=counts[case.requirement]) for case in cases]


# Numbers that are hard in one way only: what else fails says more.
HARD = re.compile(
    r"^(?!step ).*(NaN|inf|\bscores|values that|one key a query|no keys|one element)")
RARE = 6  # a name that one case has of more than so many that fail explains too little of them


def in_order(failures: Sequence[CaseResult]) -> list[CaseResult]:
    """Endless loops, because of which other cases did not run, then races and stray accesses, which
    come with file and line, then a mistake that has a name, or results that were kept between calls,
    then the first step that fails, then the others, and those that did not run; among equals
    ordinary numbers, in the order of the task, whose simple cases come first."""
    wrong = [case.diagnosis for case in failures
             if case.status == WRONG and not case.message.startswith("kernel ")]
    named = Counter(wrong)
    stopped = any(case.status == NOT_RUN for case in failures)
    step = next((case.name for case in failures if case.requirement == EACH_BY_ITSELF), "")

    def rank(case: CaseResult) -> int:
        if case.status == TIMED_OUT and stopped:
            return 0
        if case.message.startswith("kernel "):
            return 1
        is_named = case.diagnosis and (named[case.diagnosis] > 1 or len(wrong) <= RARE)
        if case.requirement == EACH_BY_ITSELF and case.name != step:
            is_named = False  # functions of the step before it are not right either
        if is_named or case.message.startswith("The call before this one, "):
            return 2
        return 5 if case.status == NOT_RUN else 3 if case.name == step else 4

    return sorted(failures, key=lambda case: (rank(case), bool(HARD.search(case.name)),
                                              case.name != step))


# What some cases have in common: they fail, and no other does.
KINDS = {"causal": "causal", "NaN": "NaN", "strides": "strides: ", "half": "^half", "bfloat16":
         "^bfloat16", "double": "^double", "dQ": "^dQ: ", "dK": "^dK: ", "dV": "^dV: "}


def clue(cases: Sequence[CaseResult]) -> str:
    """What the cases that passed tell of those that failed; "" where they tell nothing."""
    ran = [case for case in cases if case.status not in (NOT_STARTED, NOT_RUN, *ELSEWHERE)]
    failed = {case.name for case in ran if case.status != PASSED}
    for words, pattern in KINDS.items():
        alike = {case.name for case in ran if re.search(pattern, case.name)}
        if len(failed) > 1 and failed <= alike and 2 * len(failed) >= len(alike):
            return (f"Only cases of one kind fail ({words}: {len(failed)} of {len(alike)}); all "
                    f"{len(ran) - len(alike)} others pass.")
    return ""


def sum_by_key(tables: Iterable[Mapping[str, float]]) -> dict[str, float]:
    return dict(sum(map(Counter, tables), Counter()))


def status_of(cases: Sequence[CaseResult]) -> str:
    found = {case.status for case in cases}
    if found <= set(ELSEWHERE):
        return NEEDS_CHECKS if found == {NEEDS_CHECKS} else NEEDS_GPU
    if {NOT_STARTED, PASSED} <= found:
        found.add(UNFINISHED)
    order = CRASHED, TIMED_OUT, EXCEPTION, WRONG, NOT_RUN, UNFINISHED, NOT_STARTED, PASSED
    return next(status for status in order if status in found)
