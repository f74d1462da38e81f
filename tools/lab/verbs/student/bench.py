"""`./lab bench`: builds a part's benchmark and runs it."""

import argparse
import subprocess
import sys
from pathlib import Path

from lab import build, console, paths, results, worklog
from lab.benchmarks import PROGRAMS, run_program, value
from lab.errors import LabError

HELP = "build and run a part's benchmark: --quick on a laptop, -- --help for its own options"

TORCH = ("torch==2.15.0", "numpy==2.4.6")  # without numpy torch warns on import
TORCH_VENV = paths.ROOT / ".venv-torch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("part", nargs="?", default="part1", choices=list(PROGRAMS),
                        help=f"{', '.join(PROGRAMS)} (default: part1)")
    parser.add_argument("--quick", action="store_true",
                        help="a smaller problem: seconds, on a laptop too")
    parser.add_argument("--solution", action="store_true",
                        help="measure the reference solution instead of what you wrote")
    parser.add_argument("--torch", nargs="?", const="", metavar="PYTHON",
                        help="measure PyTorch's kernels as well, from here on: those of PYTHON; "
                        f"without it {TORCH[0]} is installed into {TORCH_VENV.name}, once "
                        "(several GB)")
    parser.options_example = "./lab bench -- --d2 64,128; ./lab bench -- --help lists all"


def run(args: argparse.Namespace) -> int:
    if args.torch in PROGRAMS:  # ./lab bench --torch part2
        args.part, args.torch = args.torch, ""
    options = (["--quick"] if args.quick and "--quick" not in args.options else []) + args.options
    if args.torch is not None:
        use_torch(args.torch)
    kind = next((kind for kind in results.KINDS
                 if PROGRAMS[args.part][0].endswith(kind.table)), None)  # times that are handed in
    if not kind or args.solution or value(options, "--output"):  # or no run of the student's own
        return run_program(args.part, "solution" if args.solution else "skeleton", options)
    before = worklog.size_of(kind)
    code = run_program(args.part, "skeleton", options)
    if worklog.size_of(kind) > before:
        worklog.note_machine()
        worklog.add(" ".join(["bench", args.part, *options]), worklog.measured(kind, before))
    return code


def use_torch(python: str) -> None:
    """Configures the build with the PyTorch of `python`, or of an environment that is made here."""
    chosen = Path(python).expanduser().absolute() if python else TORCH_VENV / "bin" / "python"
    if not python and not _has_torch(chosen):
        console.say(f"installing {TORCH[0]} into {TORCH_VENV.name}: several GB, once")
        for command in ([sys.executable, "-m", "venv", "--clear", TORCH_VENV],
                        [chosen, "-m", "pip", "install", "--no-input", "--only-binary", ":all:",
                         *TORCH]):
            console.print_command(command)
            if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
                raise LabError(
                    f"{TORCH[0]} cannot be installed; on a machine without a network name a Python "
                    "that has PyTorch: ./lab bench --torch PYTHON")
    if not _has_torch(chosen):
        raise LabError(f"--torch is {chosen}; it must be a Python that can import torch")
    build.configure(options=[f"-DFLASH_TORCH_PYTHON={chosen}"])


def _has_torch(python: Path) -> bool:
    try:
        done = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0
