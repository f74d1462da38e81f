"""What is written about graded submissions: for Gradescope, for the student, for a class.

All of it is made from records (`Record`), so that a report can be written again without grading.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from markdown_it import MarkdownIt
from markupsafe import Markup

from lab import text
from lab.instructor import export, web
from lab.outcomes import BUILD_FAILED, EACH_BY_ITSELF, NOT_RUN, NOT_STARTED, PASSED
from lab.submission.judging import GRADED, MISSING, REFUSED, Case, Judged, rounded

INFRA_ERROR = "infra_error"
# No tasks, but they have points: what was measured on a board, and results that were handed in.
SPEED, RESULTS = "speed.", "results."


@dataclass(frozen=True)
class Record:
    """All that is known about one submission."""

    id: str
    folder: str
    key: str            # fingerprint of what was graded, and with what
    status: str         # GRADED or INFRA_ERROR
    version: str        # of the course
    judge: str          # fingerprint of what it was graded with: cases, runners, options
    tasks: tuple[Judged, ...] = ()
    error: str = ""     # of the environment
    note: str = ""      # for the student: about the submission as a whole
    left_out: tuple[str, ...] = ()  # tasks that this grader has no judge for
    seconds: float = field(default=0, compare=False)
    # Of the results that were handed in: what to know about them, the work log, the plots' names.
    results: tuple[str, ...] = ()
    log: str = ""
    plots: tuple[str, ...] = ()
    times: tuple[str, ...] = ()  # the measured ones: nobody else has the same

    @property
    def earned(self) -> float:
        return rounded(task.earned for task in self.tasks)

    @property
    def points(self) -> float:
        return sum(task.points for task in self.tasks)


def to_json(record: Record) -> str:
    return json.dumps(asdict(record), indent=1) + "\n"


def from_json(text: str) -> Record:
    data = json.loads(text)
    tasks = tuple(Judged(**task | {"cases": tuple(Case(**case) for case in task["cases"])})
                  for task in data["tasks"])
    lists = {name: tuple(data.get(name, ())) for name in ("left_out", "results", "plots", "times")}
    return Record(**data | {"tasks": tasks} | lists)


def shown(points: float) -> str:
    return f"{round(points, 3):g}"


def again(task: Judged, case: Case) -> str:
    """The command that runs a case as it was graded; "" for a case that students do not have."""
    if task.task.startswith(SPEED):
        return f"./lab submit {task.task.removeprefix(SPEED)} --mode benchmark"
    if task.task.startswith(RESULTS):
        return f"./lab bundle {task.task.removeprefix(RESULTS)}"
    if case.name.startswith("hidden: "):
        return ""
    name = task.task.split(".", 1)[1]
    return f'./lab check {name} --case "{case.name}" --seed {task.seed}'


def gradescope(record: Record) -> str:
    """results.json, as Gradescope specifies it. None is written for an error of the environment:
    Gradescope then says that the autograder failed, and gives no zero."""
    tests = []
    for number, task in enumerate(record.tasks, 1):
        if task.status != GRADED:
            tests.append({"name": task.task, "number": str(number), "score": 0.0,
                          "max_score": task.points, "status": "failed",
                          "output": f"{task.status}\n{task.message}"})
        place = 0
        for place, (name, earned, points, cases) in enumerate(task.requirements if task.points
                                                              else (), 1):
            tests.append({"name": f"{task.task}: {name}", "number": f"{number}.{place}",
                          "score": earned, "max_score": points, "output": _passed(cases),
                          "status": "passed" if earned == points else "failed"})
        for place, case in enumerate(task.cases, place + 1):
            # Without points, which its requirement has: for information.
            passed = case.status == PASSED
            tests.append({"name": f"{task.task}: {case.name}", "number": f"{number}.{place}",
                          "status": "passed" if passed else "failed",
                          "output": "" if passed else f"{case.status}\n{case.message}\n" + "".join(
                              f"\nTo see it again: {command}" for command in [again(task, case)]
                              if command)})
    return json.dumps({
        "score": record.earned, "execution_time": round(record.seconds),
        "output": markdown(record), "output_format": "md", "test_output_format": "text",
        "visibility": "visible", "stdout_visibility": "hidden", "tests": tests,
        "extra_data": {"version": record.version, "key": record.key,
                       "seeds": {task.task: task.seed for task in record.tasks},
                       "not_graded": list(record.left_out)}}, indent=1) + "\n"


def markdown(record: Record) -> str:
    """The report that a student reads."""
    partly = {name for task in record.tasks if not _is_not_started(task)
              for name, earned, points, _ in task.requirements if earned < points}
    said = {line for task in record.tasks for case in task.cases for line in case.message.split("\n")}
    return web.page(
        "report.md", record=record, results=[line for line in record.results if line not in said],
        title=_title(record), shown=shown, summary=_summary, passed=_passed, again=again, fenced=text.fenced, code=text.code, why=_WHY,
        wrong_in=_wrong, partly=partly, infra_error=INFRA_ERROR, not_run=_not_run,
        to_check=(BUILD_FAILED, MISSING), alone=EACH_BY_ITSELF, has_cases=any(
            task.cases for task in record.tasks if not task.task.startswith((SPEED, RESULTS))))


def html(record: Record) -> str:
    """The same, to read in a browser."""
    _, _, body = markdown(record).partition("\n")
    return web.page("report.html", title=_title(record),
                    body=Markup(_HTML.render(body)))


_HTML = MarkdownIt("commonmark", {"html": False}).enable("table")


def _title(record: Record) -> str:
    points = f"{shown(record.earned)} of {shown(record.points)} points"
    return f"{record.id}: {'not graded yet' if record.status == INFRA_ERROR else points}"


_VERDICTS = 2  # of one mistake: it can fail fifty cases
_NO_MISTAKE = (PASSED, NOT_STARTED, NOT_RUN)
_WHY = {MISSING: "is missing",
        REFUSED: "was not run, because its code does what no solution needs"}


def _wrong(task: Judged) -> list[tuple[str, list[tuple[str, list[Case]]], list[Case]]]:
    """What is wrong, by the name of the mistake, or behind these by the requirement where the
    harness could name none: some verdicts with their cases, and the cases whose verdicts are left
    out. A race that three cases meet is said once."""
    found: dict[tuple[bool, str], dict[str, list[Case]]] = {}
    for case in task.cases:
        if case.status not in _NO_MISTAKE:
            found.setdefault((not case.diagnosis, case.diagnosis or case.requirement), {}).setdefault(
                case.message, []).append(case)
    return [(name, list(verdicts.items())[:_VERDICTS],
             [case for cases in list(verdicts.values())[_VERDICTS:] for case in cases])
            for (_, name), verdicts in sorted(found.items(), key=lambda item: item[0][0])]


def _not_run(task: Judged) -> list[Case]:
    """Of a task that was begun."""
    return [case for case in task.cases if case.status in (NOT_RUN, NOT_STARTED)
            and not _is_not_started(task)]


def _summary(task: Judged) -> str:
    if task.status != GRADED:
        return task.status
    if _is_not_started(task):
        return NOT_STARTED
    return _passed(task.cases)


def _passed(cases: Sequence[Case]) -> str:
    return f"{sum(case.status == PASSED for case in cases)} of {len(cases)} cases"


def _is_not_started(task: Judged) -> bool:
    return all(case.status == NOT_STARTED for case in task.cases)


def why(record: Record) -> str:
    """Why the submission, or tasks of it, have no points; "" where each task has some."""
    if whole := _why_nothing(record):
        return whole
    found: dict[str, list[str]] = {}
    for task in record.tasks:
        if word := _why_zero(task):
            found.setdefault(word, []).append(task.task)
    return "; ".join(f"{word}: {', '.join(names)}" for word, names in found.items())


def _why_nothing(record: Record) -> str:
    """Of a submission as a whole, which cannot be read or could not be graded."""
    unread = any(task.message and task.message == record.note for task in record.tasks)
    return text.line(record.error or (record.note if unread else ""))


def _why_zero(task: Judged) -> str:
    if task.earned or not task.points:
        return ""
    if task.status != GRADED:
        return task.status
    if task.task.startswith((SPEED, RESULTS)):
        return task.cases[0].status
    return NOT_STARTED if _is_not_started(task) else "wrong"


def row(record: Record) -> list[str]:
    """Of grades.csv, but for its tasks. One that was not graded has empty fields, and no zero."""
    done = record.status != INFRA_ERROR
    return [record.id, record.folder, record.status,
            *([shown(record.earned), shown(record.points)] if done else ["", ""]), why(record),
            record.version, record.judge[:12]]


def grades(records: Sequence[Record]) -> str:
    """grades.csv: nothing in it depends on the time or on a seed."""
    tasks = list(dict.fromkeys(task.task for record in records for task in record.tasks))
    rows = [["id", "folder", "status", *tasks, "score", "max_score", "why", "course", "judge"]]
    for record in sorted(records, key=lambda record: record.id):
        earned = {task.task: _earned(task) for task in record.tasks}
        first, rest = row(record)[:3], row(record)[3:]
        rows.append([*first, *(earned.get(task, "") for task in tasks), *rest])
    return text.table(rows)


def _earned(task: Judged) -> str:
    """A warm-up has no points, and says how far it is."""
    return shown(task.earned) if task.points else _summary(task)


def mistakes(records: Sequence[Record]) -> list[tuple[int, str, str]]:
    """The commonest ones: how many submissions, the task and mistake, an example of its message. A
    submission counts once for each mistake, however many cases fail by it. Where the harness could
    name none it is the first case that fails."""
    count: Counter[str] = Counter()
    example: dict[str, str] = {}
    for record in records:
        for task in record.tasks:
            wrong = [case for case in task.cases if case.status not in _NO_MISTAKE]
            found = {case.diagnosis: case.message for case in wrong if case.diagnosis} or {
                case.name: case.message for case in wrong[:1]}
            if task.status not in (GRADED, MISSING):
                found = {task.status: task.message}
            for name, message in found.items():
                name = f"{task.task}: {name}"
                count[name] += 1
                example.setdefault(name, text.line(message.partition("\n")[0]))
    return [(number, name, example[name]) for name, number in count.most_common(10)]


def page(records: Sequence[Record], title: str) -> str:
    """One page about a class. Of two that a person handed in one after the other the later one
    counts as that of a student."""
    after = dict(export.twice(record.id for record in records))
    everyone, records = records, [record for record in records if record.id not in after]
    done = [record for record in records if record.status != INFRA_ERROR]
    scores = sorted(record.earned for record in done)
    most = max((record.points for record in done), default=0)
    facts = f"{len(records)} submissions, {len(records) - len(done)} not graded"
    if after:
        facts += f", and {len(after)} that a later one of the same person replaces"
    if scores:
        middle = (scores[len(scores) // 2] + scores[(len(scores) - 1) // 2]) / 2
        facts += (f"; of {shown(most)} points: mean {sum(scores) / len(scores):.2f}, median "
                  f"{middle:.2f}, from {shown(scores[0])} to {shown(scores[-1])}")
    rows = [{"id": text.line(record.id), "folder": record.folder,
             "why": f"replaced by {text.line(after[record.id])}" if record.id in after else
                    _why_nothing(record),
             "graded": record.status != INFRA_ERROR, "points": shown(record.earned),
             "results": [*map(text.line, record.results + _copied(record, records))],
             "tasks": {task.task: (_earned(task), _why_zero(task)) for task in record.tasks}}
            for record in sorted(everyone, key=lambda record: record.id)]
    return web.page("class.html", title=title, facts=facts, histogram=_histogram(scores, most),
                    tasks=list(dict.fromkeys(name for row in rows for name in row["tasks"])),
                    has_results=any(row["results"] for row in rows),
                    rows=rows, mistakes=mistakes(records))


def _copied(record: Record, everyone: Sequence[Record]) -> tuple[str, ...]:
    """With whom it shares times that were measured, to the last digit."""
    own = {*record.times}
    same = sorted(other.id for other in everyone if other is not record
                  and len(own.intersection(other.times)) >= 3)
    return (f"the same times, to the last digit, as {', '.join(same)}",) if same else ()


def _histogram(scores: Sequence[float], most: float) -> str:
    """"" where nothing is graded yet."""
    if not scores or not most:
        return ""
    drawn: list[str] = []
    with web.figure(6, 2.2, "histogram of points", drawn) as axes:
        counts, edges, bars = axes.hist(scores, 10, range=(0, most), rwidth=0.9, color="#2b6cb0")
        axes.bar_label(bars, [f"{count:g}" if count else "" for count in counts])
        axes.set_xticks(edges, [shown(edge) for edge in edges])
        axes.yaxis.set_visible(False)
        axes.spines[["left", "top", "right"]].set_visible(False)
    return drawn[0]
