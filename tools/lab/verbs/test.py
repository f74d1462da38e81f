"""`./lab test`: the whole suite; the CPU tests once more under AddressSanitizer and UndefinedBehaviorSanitizer; and, where nvcc is,
graded cases of CUDA tasks once more in a build without it, as a laptop has it.

What continuous integration calls.
"""

import argparse
import subprocess
import sys
import time

from lab import build, manifest, paths, system
from lab.backends import EMULATED
from lab.console import console, print_command
from lab.errors import LabError

HELP = "the whole suite, once more under sanitizers, and CUDA tasks without nvcc"

# Name on the screen, configure preset, ctest preset.
SUITES = (("suite", "default", "all"), ("sanitizers", "asan", "asan"))
WITHOUT_NVCC = ("without nvcc", "cpu", "cpu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="install missing packages without asking")


def run(args: argparse.Namespace) -> int:
    system.ensure(args.yes)
    summary, ok = [], True
    for name, configure_preset, test_preset in (*SUITES, WITHOUT_NVCC):
        if configure_preset == "cpu" and (build.configured().cuda == "none" or not build.configured().emulated):
            continue  # the suite itself was without nvcc, or there is nothing that runs a CUDA task without it
        begin = time.monotonic()
        outcome = _suite(configure_preset, test_preset, _graded_tests() if configure_preset == "cpu" else ["all"])
        ok = ok and outcome == "passed"
        summary.append(f"{name}: {outcome} in {time.monotonic() - begin:.0f} s")
    console.print("\n" + ", ".join(summary), style="green" if ok else "red", markup=False)
    return 0 if ok else 1


def _graded_tests() -> list[str]:
    """The targets that hold the emulated graded cases of the first part's CUDA tasks, of the solution where there is one. One part
    shows it: to tasks in plain C++ and to the emulator's checks nvcc makes no difference, and CMake makes all parts alike."""
    first = next(part for part in manifest.load_parts() if any(task.is_cuda for task in part.tasks))
    return [task.target("solution" if first.has("solution") else "skeleton", EMULATED) for task in first.tasks
            if task.is_cuda and not task.needs_gpu]


def _suite(configure_preset: str, test_preset: str, targets: list[str]) -> str:
    """Builds and runs one preset's tests: "passed", "failed" or "did not build". A suite that fails does not keep the next one
    from running."""
    console.print()
    build.configure(configure_preset)
    built = build.build(targets, configure_preset, keep_going=True)
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
