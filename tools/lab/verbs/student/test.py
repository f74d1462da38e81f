"""`./lab test`: the whole suite, and the CPU tests again under AddressSanitizer and UBSan."""

import argparse
import os
import re
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import build, console, paths, system
from lab.console import say
from lab.errors import LabError

HELP = "run the whole test suite, and the CPU tests again under sanitizers"

# Name on the screen, configure preset, ctest preset.
SUITES = (("suite", "default", "all"), ("sanitizers", "asan", "asan"))

REPORT = "test-report.xml"  # in the build folder
AGAIN = "test-report-again.xml"  # of the tests that failed beside others, alone
MOST_AGAIN = 20  # where more fail, it is not an accident
LOG = Path("Testing", "Temporary", "LastTest.log")  # ctest writes there what every test printed
# Why a test was skipped, by what the harness prints last (cmake/FlashTargets.cmake).
SKIPPED = {"verdict:needs-gpu": "need a GPU",
           "verdict:not-started": "not started",
           "verdict:needs-checks": "need the emulator's checks"}
OTHER = "for another reason"


@dataclass
class Stage:
    name: str
    log: Path
    passed: int = 0
    failed: list[str] = field(default_factory=list)  # names, each with how it ended
    alone: list[str] = field(default_factory=list)  # those that passed when run again; passed, too
    skipped: Counter[str] = field(default_factory=Counter)  # by the reason
    building: float = 0.0  # seconds
    testing: float = 0.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true",
                        help="install missing packages without asking")


def run(args: argparse.Namespace) -> int:
    system.ensure(args.yes)
    stages = [_stage(*suite) for suite in SUITES]
    say("")
    for line in summary(stages):
        say(line, "red" if any(stage.failed for stage in stages) else "green")
    return 1 if any(stage.failed for stage in stages) else 0


def summary(stages: Sequence[Stage]) -> list[str]:
    lines = [f"{stage.name}: {counts([stage])}; "
             f"build {stage.building:.0f} s, tests {stage.testing:.0f} s"
             for stage in stages]
    lines += [f"passed only when run again, alone: {name}"
              for stage in stages for name in stage.alone]
    lines += [f"failed ({stage.name}): {name}" for stage in stages for name in stage.failed]
    reasons = sum((stage.skipped for stage in stages), Counter())
    if reasons:
        kinds = (f"{count} {why}" for why, count in reasons.most_common())
        lines.append(f"skipped: {', '.join(kinds)}")
    logs = [paths.relative(stage.log) for stage in stages if stage.testing]
    return [*lines, *[f"full logs: {', '.join(logs)}"] * bool(logs), counts(stages)]


def counts(stages: Sequence[Stage]) -> str:
    passed = sum(stage.passed for stage in stages)
    failed = sum(len(stage.failed) for stage in stages)
    return f"{passed} passed, {failed} failed, {sum(s.skipped.total() for s in stages)} skipped"


def _stage(name: str, preset: str, tests: str) -> Stage:
    """Builds and runs one preset's tests. A failure is counted, and the next stage still runs."""
    folder = paths.build_folder(preset)
    stage = Stage(name, folder / LOG)
    say("")
    begin = time.monotonic()
    try:
        build.configure(preset)
        built = build.build("all", preset, keep_going=True)
        stage.building = time.monotonic() - begin
        if not built.ok:
            say(build.failure(built.log))
            raise LabError(f"the build: {built.first_error}")
        _ctest(stage, folder / REPORT, tests)
    except LabError as error:
        say(str(error), "red")
        stage.failed.append(str(error))
    return stage


def _ctest(stage: Stage, report: Path, preset: str) -> None:
    command = ["ctest", "--preset", preset, "--output-junit", REPORT]
    if build.configured().cuda != "gpu":  # whose memory the tests would share
        command += ["--parallel", str((os.cpu_count() or 1) + 1)]  # some tests only wait
    console.print_command(command)
    done, cases = _run(command, report, f"testing {stage.name}")
    stage.testing = done.seconds
    ends = dict(re.findall(r"^\t *\d+ - (.*) \((.*)\)$", done.output, re.MULTILINE))
    failed: dict[str, str] = {}  # name -> with how it ended
    for case in cases:
        test, output = case.get("name", ""), case.findtext("system-out") or ""
        skipped = case.find("skipped")
        by_itself = skipped is not None and skipped.get("message", "").startswith("SKIP_")
        if case.get("status") == "run":
            stage.passed += 1
        elif by_itself or case.get("status") == "disabled":
            said = [word for word in SKIPPED if word in output]
            stage.skipped[SKIPPED[said[0]] if said else OTHER] += 1
        else:
            failed[test] = f"{test} ({ends.get(test, 'Failed')})"
            say(f"\n{failed[test]}", "bold red")
            say(output)
    if done.code != 0 and not failed:
        say(done.output)
        raise LabError(f"ctest ended with exit code {done.code}")
    if 0 < len(failed) <= MOST_AGAIN:
        before = stage.log.read_bytes()
        command = ["ctest", "--preset", preset, "--rerun-failed", "--parallel", "1",
                   "--output-junit", AGAIN]
        console.print_command(command)
        done, cases = _run(command, report.with_name(AGAIN), "testing again what failed")
        stage.testing += done.seconds
        stage.log.write_bytes(before + stage.log.read_bytes())
        stage.alone = [test for case in cases if case.get("status") == "run"
                       and failed.pop(test := case.get("name", ""), "")]
        stage.passed += len(stage.alone)
    stage.failed += failed.values()


def _run(command: list[str], report: Path, title: str) -> tuple[console.Finished, list]:
    """Runs ctest; its test cases, as its report has them."""
    report.unlink(missing_ok=True)
    done = console.stream(command, title, counted=r" *(\d+)/(\d+) Test +#\d+: ")
    try:
        return done, ElementTree.parse(report).getroot().findall("testcase")
    except (OSError, ElementTree.ParseError) as error:
        say(done.output)
        raise LabError(f"ctest left no report ({error})") from None
