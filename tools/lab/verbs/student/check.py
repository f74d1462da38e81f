"""`./lab check`: grades what the student wrote, and says what is wrong and what to type next."""

import argparse
import dataclasses
from collections.abc import Sequence

from lab import build, card, checking, hints, manifest, outcomes, released, running, state, worklog
from lab.backends import CHECKED, Backends, choose
from lab.console import say
from lab.errors import LabError
from lab.manifest import Task
from lab.outcomes import PartResult, TaskResult
from lab.submission import at_home

HELP = "grade your files: points, what is wrong and why, the next command"
TRIED = 4  # failed cases that --explain runs again, until one can be shown with small numbers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="PART|TASK",
                        help="part1, fused_cpu, part1.fused_cpu or 1.A (default: all)")
    parser.add_argument("--case", metavar="NAME",
                        help="run this one case alone, with its full verdict")
    parser.add_argument("--seed", type=int, default=1, help="seed of the inputs (default: 1)")
    parser.add_argument("--explain", action="store_true",
                        help="show the first failure with small numbers: each step, and what is "
                             "expected beside what was found")
    parser.add_argument("--all-failures", action="store_true",
                        help=f"show all failed cases, not {card.SHOWN_FAILURES} of each task")
    parser.add_argument("--solution", action="store_true",
                        help="grade the reference solution instead of the skeleton")
    add_backend_arguments(parser)


def add_backend_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--emulate", action="store_true",
                        help="emulate CUDA tasks on the CPU, also where there is a GPU")
    parser.add_argument("--check-races", action="store_true",
                        help="emulate CUDA tasks and check each access of their kernels: races, "
                             "missing barriers, accesses out of bounds; slower")
    parser.add_argument("--sanitize", action="store_true",
                        help="run tasks in C++ with AddressSanitizer and UBSan: they name the line "
                             "of an access out of bounds, of an overflow and the like")


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.seed < 10**18:
        raise LabError(f"--seed is {args.seed}; it must be at least 0, with at most 18 digits")
    if args.all_failures and args.case is not None:
        raise LabError("--all-failures does nothing beside --case, which shows the whole verdict "
                       "of one case: leave one of them out")
    tasks = manifest.select(manifest.load_parts(), args.names)
    implementation = "solution" if args.solution else "skeleton"
    backends = choose(build.configured(), args.emulate, args.check_races, args.sanitize, tasks)
    if args.case is not None:
        tasks = tasks_with(tasks, args.case, implementation, backends)
    if args.explain:
        return explain(tasks, implementation, args.seed, backends, args.case)
    return check(tasks, implementation, args.seed, backends=backends,
                 all_failures=args.all_failures, case=args.case)


def check(tasks: Sequence[Task], implementation: str = "skeleton", seed: int = 1, *,
          backends: Backends, all_failures: bool = False, case: str | None = None) -> int:
    """Grades the tasks and prints the card; 0 when all that can run here passed."""
    results = []
    for part in manifest.load_parts():
        if chosen := [task for task in tasks if task.part == part.name]:
            results.append(checking.grade_part(part, implementation, seed, tasks=chosen,
                                              backends=backends, case=case))
            results[-1].tasks = [_audited(task) for task in results[-1].tasks]
    changed: list[str] = []
    if implementation == "skeleton":
        _remember(results, case is None, backends)
        changed = released.changed_given_files(result.part for result in results)
    card.print_card(results, all_failures=all_failures, case=case, changed=changed)
    return 0 if all(result.done for result in results) else 1


def _audited(result: TaskResult) -> TaskResult:
    """As it would end in a class."""
    found = [] if result.status == outcomes.BUILD_FAILED else at_home.findings(
        result.task, result.implementation)
    if found:
        return dataclasses.replace(result, status=outcomes.REFUSED, cases=[],
                                   first_error="\n".join(found))
    return dataclasses.replace(result, warnings=at_home.warnings(
        result.task, result.implementation, result.warnings))


def explain(tasks: Sequence[Task], implementation: str, seed: int, backends: Backends,
            case: str | None) -> int:
    """Shows the first failed case of the tasks that has one with the smallest problem that still
    fails; 0 when nothing failed."""
    failed = False
    for task in tasks:
        part = next(part for part in manifest.load_parts() if part.name == task.part)

        def grade(case: str | None, explained: bool) -> TaskResult:
            return checking.grade_part(part, implementation, seed, tasks=[task], backends=backends,
                                      case=case, explain=explained).tasks[0]

        result = grade(case, False)
        if result.status == outcomes.BUILD_FAILED:
            raise LabError(f"{task.name} does not compile: {result.first_error}")
        failed = failed or bool(result.failures)
        for one in result.failures[:TRIED]:
            again = next(iter(grade(one.name, True).cases), one) if one.name else one
            if again.explanation:
                say(f"\n{task.name}: {one.name}", "bold")
                say(f"{again.message.splitlines()[0]}\n")
                say("The smallest problem found that still fails, otherwise like that case:")
                say(again.explanation)
                return 1
    names = ", ".join(task.name for task in tasks)
    if not failed:
        say(f"{names}: no case failed, so there is nothing to explain.")
        return 0
    say(f"--explain does not apply to what failed in {names}: it shows wrong outputs of attention "
        "and softmax-matmul with small numbers, and no small problem that was tried gave one.\n"
        f"What failed, and why: ./lab check {tasks[0].name}")
    return 1


def _remember(results: Sequence[PartResult], complete: bool, backends: Backends) -> None:
    """Keeps how the tasks ended, if all of their cases ran, and the mistake to give a hint for."""
    with state.edit() as student:
        for result in (task for part in results for task in part.tasks):
            # Of a program that the sanitizers ended, most cases may be right; of a CUDA task not
            # all cases can run with --check-races.
            checked = backends.asked == CHECKED == result.backend
            if complete and not (backends.sanitize and result.status == outcomes.CRASHED) and not (
                    checked and result.status == outcomes.PASSED):
                last = state.LastResult(
                    result.status, result.earned, released.sha256(result.task.path()))
                if last != student.results.get(result.task.id) and (
                        result.status != outcomes.NOT_STARTED):
                    points = f"{card.points(last.earned)} of {card.points(result.task.points)} points"
                    worklog.add(f"check {result.task.name}", f"{last.status}, {points}")
                student.results[result.task.id] = last
            student.named.pop(result.task.id, None)
            if result.failures:
                first = result.failures[0]
                kind = first.kind if first.diagnosis else hints.kind_of(first.name, first.requirement)
                student.named[result.task.id] = first.diagnosis or f'"{first.name}" fails', kind


def tasks_with(tasks: Sequence[Task], case: str, implementation: str,
                backends: Backends) -> list[Task]:
    """The tasks that have a graded case of that name. Several may: tasks share cases."""
    known: dict[str, list[Task]] = {}
    left_out = []
    builds = checking.build_tasks([task for task in tasks if backends.of(task)], implementation,
                                 backends)
    for task in tasks:
        backend = backends.of(task)
        if backend is None:
            left_out.append(f"{task.name} needs a GPU or the emulator")
        elif not (built := builds[task.id].result).ok:
            left_out.append(f"{task.name} does not compile: {built.first_error}")
        else:
            for name in running.case_names(task, backend):
                known.setdefault(name, []).append(task)
    if case in known:
        return known[case]
    if not known:
        raise LabError("; ".join(left_out))
    words = case.lower().split()
    alike = [name for name in known if words and all(word in name.lower() for word in words)]
    meant = f' (did you mean "{alike[0]}"?)' if alike else manifest.nearest(case, known)
    which = f' with "{case}"' if alike else ""
    say(f"The cases of {', '.join(task.name for task in tasks)}{which}:")
    for line in [*(alike or known), *(f"({reason})" for reason in left_out)]:
        say(f"  {line}")
    raise LabError(f'no case is called "{case}"{meant}; the cases{which} are listed above')
