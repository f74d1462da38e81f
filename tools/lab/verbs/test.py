"""`./lab test`: the whole suite, and the CPU tests once more under AddressSanitizer and UndefinedBehaviorSanitizer.

What continuous integration calls.
"""

import argparse
import subprocess
import sys
import time

from lab import build, paths, system
from lab.console import console, print_command
from lab.errors import LabError

HELP = "the whole suite, then the CPU tests under ASan and UBSan"

# Name on the screen, configure preset, ctest preset.
SUITES = (("suite", "default", "all"), ("sanitizers", "asan", "asan"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="install missing packages without asking")


def run(args: argparse.Namespace) -> int:
    system.ensure(args.yes)
    summary, ok = [], True
    for name, configure_preset, test_preset in SUITES:
        begin = time.monotonic()
        outcome = _suite(configure_preset, test_preset)
        ok = ok and outcome == "passed"
        summary.append(f"{name}: {outcome} in {time.monotonic() - begin:.0f} s")
    console.print("\n" + ", ".join(summary), style="green" if ok else "red", markup=False)
    return 0 if ok else 1


def _suite(configure_preset: str, test_preset: str) -> str:
    """Builds and runs one preset's tests: "passed", "failed" or "did not build". A suite that fails does not keep the next one
    from running."""
    console.print()
    build.configure(configure_preset)
    built = build.build("all", configure_preset, keep_going=True)
    if not built.ok:
        console.print(build.failure(built.log), markup=False, soft_wrap=True)
        console.print(built.first_error, style="red", markup=False, soft_wrap=True)
        return "did not build"
    command = ["ctest", "--preset", test_preset]
    print_command(command)
    sys.stdout.flush()
    try:
        # --progress keeps to one line on a terminal, and shows the failures.
        options = ["--progress"] if console.is_terminal else []
        code = subprocess.run([*command, *options], cwd=paths.ROOT, stdin=subprocess.DEVNULL).returncode
    except FileNotFoundError as error:
        raise LabError("ctest is not installed: it comes with CMake; ./lab doctor says more") from error
    return "passed" if code == 0 else "failed"
