"""The zoo: wrong programs that the harness must catch and name, and right ones in other styles that
must get full marks.

A member is a small edit of a task's solution, an entry of tests/wrong/TASK.toml or of
tests/right/TASK.toml:

    [no_rescale_of_o]
    edit = ["o(i, c) *= alpha;", ""]                    # old, new, old, new, ...; in a new text …
                                                        # stands for the old one
    case = "block_2 divides d2: 2 x 32 x 64 x 32"       # must be among the failed; without: that
                                                        # above all entries of the file
    named = "accumulator not rescaled"                  # the diagnosis; without: none may be given
    alone = true                                        # no other case catches it; or these only:
                                                        # ["half: block_2 divides d2"]
    least = 0.25                                        # share of the points; without: a tenth
    breaks = "strides"                                  # costs this requirement's price alone
    passes = ["one", "two"]                             # cases that must not fail: half a solution

A member that no case catches is caught all the same if a class would refuse its file.

A wrong member *changes an output* if the verdict that a student sees first is a difference of
values: it has a diagnosis, or its first line counts wrong elements. All other verdicts say the
cause themselves: a race, a stray access or a crash with its line, memory, traffic, an input that
was changed, results that were kept. `./lab zoo` says how many of those that change an output have a
name. Not among them are half solutions (`passes`), whose verdict names the function that is
missing, and members without a name that are wrong for one size alone, to read what a requirement
costs (`breaks`).

`old` has to occur exactly once in the solution, so that a member cannot rot silently. "region: "
and the beginning of a prompt stands for all that is between that BEGIN SOLUTION and its END
SOLUTION.
"""

import datetime
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab import build, checking, libraries, manifest, outcomes, paths, running
from lab.backends import CPU, EMULATED, Backends
from lab.build import Config
from lab.errors import LabError
from lab.manifest import Task
from lab.outcomes import PASSED, TaskResult

KINDS = ("wrong", "right")
# Kernels are emulated, also where there is a GPU.
HERE = Backends(Config("", "", "none", "", "", emulated=True, checked=True))
DIFFERENCE = re.compile(r"\A.*elements? (is|are) wrong|\AEvery element is within its own bound")
TIMEOUT = 20.0  # seconds for a case; those of the solution take 2 at most


@dataclass(frozen=True)
class Member:
    kind: str
    task: Task
    name: str
    edit: tuple[str, ...]
    case: str = ""  # that has to catch it
    named: str = ""  # the diagnosis that has to be given; "": none may be
    also: tuple[str, ...] = ()  # diagnoses that other cases may give, where they are right too
    alone: bool | tuple[str, ...] = False  # no other case catches it, or these and no other
    passes: tuple[str, ...] = ()  # cases that must pass
    least: float = 0.0  # the share of the task's points that it has to cost, beside the usual tenth
    breaks: str = ""  # the requirement that it breaks, and no other

    @property
    def id(self) -> str:
        return f"{self.task.name}/{self.name}"

    def source(self) -> str:
        return edited(self.task.path("solution").read_text(), self.edit, self.id)


@dataclass
class Seen:
    """What the harness said of a member."""

    member: Member
    result: TaskResult | None = None
    refused: list[str] = field(default_factory=list)  # why a class would not run it
    problems: list[str] = field(default_factory=list)  # in which it is not what it has to be
    seconds: float = 0

    @property
    def changes_output(self) -> bool:
        failed = self.result.failures if self.result else []
        if not failed or self.member.kind == "right" or self.member.passes:
            return False
        is_named = bool(self.member.named or failed[0].diagnosis)
        return is_named or not self.member.breaks and bool(DIFFERENCE.search(failed[0].message))

    @property
    def lost(self) -> float:
        points = self.result.task.points if self.result else 0
        return 1 - self.result.earned / points if points else 0.0


def folder() -> Path:
    return paths.ROOT / "tests"


def edited(text: str, edit: Sequence[str], name: str) -> str:
    """LabError where an old text does not occur exactly once."""
    if len(edit) % 2:
        raise LabError(f"{name}: edit has {len(edit)} texts; it must have pairs of old and new")
    for old, new in zip(edit[::2], edit[1::2]):
        if old.startswith("region: "):
            prompt = re.escape(old.removeprefix("region: "))
            found = re.findall(rf"// BEGIN SOLUTION {prompt}.*?// END SOLUTION", text, re.DOTALL)
            count, old = len(found), found[0] if found else old
        else:
            count = text.count(old)
        if count != 1:
            raise LabError(f"{name}: this occurs {count} times in the solution; "
                           f"it must occur once: {old.strip().splitlines()[0]}")
        text = text.replace(old, new.replace("…", old))
    return text


def load(tasks: Sequence[Task]) -> list[Member]:
    members = []
    for kind in KINDS:
        for task in tasks:
            file = folder() / kind / f"{task.name}.toml"
            if not file.is_file() or not task.path("solution").is_file():
                continue
            content = manifest.read_toml(file)
            usual = {"case": content.pop("case")} if "case" in content else {}
            for name, entry in content.items():
                values = {key: tuple(value) if isinstance(value, list) else value
                          for key, value in (usual | entry).items()}
                try:
                    member = Member(kind, task, name, **values)
                except TypeError as error:
                    raise LabError(f"{kind}/{task.name}/{name}: {error}") from None
                if (kind == "wrong") != bool(member.case):
                    raise LabError(f"{kind}/{member.id}: a wrong member, and no other, has a case")
                member.source()
                members.append(member)
    return members


MOST = 12  # mistakes that ./lab list shows of a task


def mistakes(task: Task) -> list[tuple[str, str]]:
    """Mistakes that the harness names, each with a case that finds it: some of each sort, as
    neighbours in the file are alike."""
    cases = {member.named: member.case for member in reversed(load([task])) if member.named}
    found = list(cases.items())[::-1]
    return [found[n * len(found) // MOST] for n in range(MOST)] if len(found) > MOST else found


def sample(members: Sequence[Member], count: int, day: datetime.date | None = None) -> list[Member]:
    """Others each day."""
    chance = random.Random((day or datetime.date.today()).toordinal())
    return chance.sample(members, min(count, len(members)))


# ---- compiling and running ----------------------------------------------------------------------


def can_run(task: Task, known: libraries.Known) -> bool:
    return all((task.path("solution"), backend) in known for backend in HERE.to_build(task))


def compile_member(member: Member, backend: str, known: libraries.Known) -> Path:
    """The folder with a library that takes the solution's place. LabError with the first error."""
    library = known[member.task.path("solution"), backend]
    place = paths.BUILD / "zoo" / member.kind / member.id
    source = place / member.task.shown_path("solution")
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(member.source())
    made = running.library(member.task, "solution", backend, place)
    for step in ([*library.command(), "-Wno-error", "-c", source, "-o", place / "member.o"],
                 [library.linker, "-shared", f"-Wl,-soname,{made.name}", *library.link, "-o", made,
                  place / "member.o"]):
        done = subprocess.run(step, cwd=paths.BUILD, capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"{member.kind}/{member.id} does not compile: "
                           f"{build.first_error(done.stderr, paths.BUILD)}")
    return place


Audit = Callable[[Task, str, Path], list[str]]  # lab.submission.at_home.of_object


def run(member: Member, known: libraries.Known, audit: Audit = lambda *of: []) -> Seen:
    """Compiles a member, lets it be audited, runs all graded cases on it, and compares what the
    harness says with what it has to say."""
    seen, begin = Seen(member), time.monotonic()
    try:
        for backend in HERE.to_build(member.task):
            place = compile_member(member, backend, known)
            if backend in (CPU, EMULATED):
                seen.refused = audit(member.task, member.source(), place / "member.o")
    except LabError as error:
        seen.problems.append(str(error))
        return seen
    how = running.Settings("solution", timeout=TIMEOUT, folder=place, quiet=True)
    seen.result = checking.run_task(member.task, how, HERE.to_build(member.task))
    if seen.refused and not seen.result.failures:
        seen.result = TaskResult(member.task, "solution", outcomes.REFUSED)
        seen.problems = seen.refused if member.kind == "right" else []
        return seen
    seen.problems = list(problems(seen))
    if member.kind == "wrong" and seen.result.failures and seen.result.failures[0].explainable:
        first = seen.result.failures[0]
        case, = running.run(member.task, first.backend, replace(how, explain=True), [first.name])
        seen.problems += unclear(case.explanation)
    seen.seconds = time.monotonic() - begin
    return seen


def problems(seen: Seen) -> Iterator[str]:
    member, failed = seen.member, seen.result.failures
    names = {case.name for case in failed}
    diagnoses = {case.diagnosis for case in failed} - {""}
    if member.kind == "right":
        for case in seen.result.cases:
            if case.status != PASSED:
                yield f'"{case.name}" is {case.status}: {case.message.splitlines()[0]}'
        return
    if not failed:
        yield "passes"
        return
    if member.case not in {case.name for case in seen.result.cases}:
        yield f'the task has no case "{member.case}"'
    elif member.case not in names:
        yield f'"{member.case}" does not catch it'
    passed = {case.name for case in seen.result.cases if case.status == PASSED}
    for name in member.passes:
        if name not in passed:
            yield f'"{name}" does not pass'
    also = set() if isinstance(member.alone, bool) else {*member.alone}
    if member.alone and (different := names ^ {member.case, *also}):
        yield f"caught by other cases than it says: {', '.join(sorted(different))}"
    if wrong := diagnoses - {member.named, *member.also}:
        yield f"misnamed: {', '.join(sorted(wrong))}"
    first = failed[0]
    if first.diagnosis != member.named:
        yield (f'first shown is "{first.name}", which says '
               f'{first.diagnosis or "no name"}, not {member.named}')
    if member.breaks:
        yield from _price(member, seen.result)
        return
    least = max(member.least, 0.1)
    if seen.result.task.points and seen.lost < least - 1e-9:
        yield f"costs {seen.lost:.0%} of the points; it must cost {least:.0%}"


def unclear(explanation: str) -> Iterator[str]:
    """What one cannot follow in what --explain shows; it may show nothing."""
    if not explanation:
        return
    queries, keys = map(int, re.search(r"(?:d1|queries|rows) (\d+), (?:d2|keys|parts) (\d+)",
                                       explanation).groups())
    if (queries > 4 or keys > 6) and not re.search(
            "No problem of at most 4 queries and 6|sizes are the step's own", explanation):
        yield f"--explain shows {queries} queries and {keys} keys, and does not say why"
    marked = [line.split("<--")[0].split() for line in explanation.splitlines() if "<--" in line]
    if len(marked) != 1 or marked[0][-2] == marked[0][-1]:
        yield "--explain shows no difference"


def _price(member: Member, result: TaskResult) -> Iterator[str]:
    """What is not as tasks.toml says: a requirement's share, or half of a large one."""
    lost = {name: possible - earned for name, earned, possible in result.requirements
            if earned < possible - 1e-9}
    share = member.task.points * member.task.requirements[member.breaks] / 100
    if [*lost] != [member.breaks]:
        yield f"breaks {', '.join(lost) or 'nothing'}; it must break {member.breaks} alone"
    elif member.breaks != outcomes.EACH_BY_ITSELF and not any(
            abs(lost[member.breaks] - price) < 1e-9 for price in (share, share / 2)):
        yield f"costs {lost[member.breaks]} points; {member.breaks} is worth {share}"
