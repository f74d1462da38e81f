"""`./lab zoo`: grades the grader: wrong programs that it must name, right ones that must pass."""

import argparse
import concurrent.futures
import csv
import datetime
import io
import time

from lab import build, checking, disk, libraries, manifest, outcomes, paths, zoo
from lab.console import say
from lab.errors import LabError
from lab.submission import at_home

HELP = "run the wrong and the right programs of tests/wrong and tests/right through the harness"

COLUMNS = ("task", "member", "kind", "caught", "failed_cases", "points_lost", "first_case",
           "diagnosis", "expected", "changes_output", "seconds", "problems")
FILE = paths.OUTPUTS / "csv" / "zoo.csv"
PARALLEL = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help="a part, a task, or a member: fused_cpu/no_rescale_of_o")
    parser.add_argument("--sample", type=int, metavar="N",
                        help="only so many members, others each day")
    parser.add_argument("--verdicts", action="store_true",
                        help="print what the report card shows first of each member")
    parser.add_argument("--no-build", action="store_true",
                        help="take the test programs as they are")


def run(args: argparse.Namespace) -> int:
    everything = zoo.load(manifest.select(manifest.load_parts()))
    if unknown := [name for name in args.names
                   if not any(name in _names(member) for member in everything)]:
        raise LabError(f'nothing in the zoo is called "{unknown[0]}"')
    members = [member for member in everything
               if not args.names or set(args.names) & _names(member)]
    if args.sample is not None:
        members = zoo.sample(members, args.sample)
        say(f"{len(members)} of {len(everything)} members, those of {datetime.date.today()}")
    complete = not (args.sample is not None or args.names)
    if complete:
        disk.check_writable(FILE.parent)
    if not args.no_build:
        build.configured()
    tasks = [] if args.no_build else list(dict.fromkeys(member.task for member in members))
    for built in checking.build_tasks(tasks, "solution", zoo.HERE).values():
        if not built.result.ok:
            raise LabError(built.result.first_error)
    begin, rows, bad = time.monotonic(), [], 0
    known = libraries.load(paths.BUILD)
    here = [member for member in members if zoo.can_run(member.task, known)]
    if len(here) < len(members):
        say(f"{len(members) - len(here)} members are left out: they need the emulator's checks")
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        for seen in pool.map(lambda one: zoo.run(one, known, at_home.of_object), here):
            rows.append(_row(seen))
            for problem in seen.problems:
                say(f"{seen.member.kind}/{seen.member.id}: {problem}", "red")
            bad += bool(seen.problems)
            if args.verdicts and seen.result and seen.result.failures:
                first = seen.result.failures[0]
                say(f"{seen.member.id}: {first.name}\n    " +
                    "\n    ".join(first.message.splitlines()[:6]))
    if complete:
        _write(rows)
    wrong = [row for row in rows if row["kind"] != "right"]
    changing = [row for row in wrong if row["changes_output"]]
    named = sum(bool(row["diagnosis"]) and row["diagnosis"] == row["expected"] for row in changing)
    say(f"{sum(row['caught'] for row in wrong)} of {len(wrong)} wrong programs are caught; "
        f"{named} of {len(changing)} that change an output are named"
        f"{f' ({named / len(changing):.1%})' if changing else ''}; "
        f"{sum('misnamed' in row['problems'] for row in wrong)} are misnamed; "
        f"{sum(not row['failed_cases'] for row in rows if row['kind'] == 'right')} of "
        f"{len(rows) - len(wrong)} right ones pass; {time.monotonic() - begin:.0f} s")
    return 1 if bad else 0


def _names(member: zoo.Member) -> set[str]:
    return {member.id, member.name, member.task.name, member.task.part,
            f"{member.kind}/{member.id}"}


def _row(seen: zoo.Seen) -> dict[str, object]:
    failed = seen.result.failures if seen.result else []
    return {"task": seen.member.task.id, "member": seen.member.name, "kind": seen.member.kind,
            "caught": bool(failed) or (seen.result is not None
                                       and seen.result.status == outcomes.REFUSED),
            "failed_cases": len(failed),
            "points_lost": f"{seen.lost:.2f}", "first_case": failed[0].name if failed else "",
            "diagnosis": failed[0].diagnosis if failed else "", "expected": seen.member.named,
            "changes_output": seen.changes_output, "seconds": f"{seen.seconds:.1f}",
            "problems": "; ".join(seen.problems)}


def _write(rows: list[dict[str, object]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: (row["task"], row["kind"], row["member"])))
    disk.write_exact(FILE, text.getvalue())
    say(f"wrote {paths.relative(FILE)}")
