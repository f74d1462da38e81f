"""`./lab bench`: builds a part's benchmark and runs it."""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import build, console, manifest, paths
from lab.errors import LabError

HELP = "build and run a part's benchmark: --quick on a laptop, -- --help for its own options"
GROUP = "Measurements"

# Linked with the solution; with the skeleton it is called <name>_skeleton. And the options that
# make it a part's.
PROGRAMS = {"part1": ("bench_softmax_matmul", ()), "part2": ("bench_attention", ()),
            "part3": ("bench_attention", ("--device", "cuda")),
            "bonus": ("bench_attention", ("--device", "cuda"))}
NEED_GPU = ("part3", "bonus")

TORCH = ("torch==2.15.0", "numpy==2.4.6")  # without numpy torch warns on import
TORCH_VENV = paths.ROOT / ".venv-torch"


def can_run(part: str, config: build.Config) -> bool:
    return part not in NEED_GPU or config.cuda == "gpu"


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
    return run_program(args.part, "solution" if args.solution else "skeleton", options)


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


def with_defaults(options: Sequence[str], defaults: Mapping[str, str]) -> list[str]:
    """The options of a program, after the defaults that they do not replace."""
    given = {word.split("=")[0] for word in options}
    return [word for option, value in defaults.items() if option not in given
            for word in (option, value)] + [*options]


def built(part: str, implementation: str) -> list[object]:
    """Builds the part's program; the first words of its command."""
    program, fixed = PROGRAMS[part]
    target = program + ("" if implementation == "solution" else "_skeleton")
    if not any(one.name == part and one.has(implementation) for one in manifest.load_parts()):
        raise LabError(f"{part} has no {implementation}/ folder here")
    result = build.build(target)
    if not result.ok:
        raise LabError(f"{target} does not build: {result.first_error}")
    return [build.binary(target), *fixed]


def run_program(part: str, implementation: str, options: Sequence[str]) -> int:
    """Builds the program and runs it in the foreground, its output on the screen as it comes;
    returns its exit code."""
    if not can_run(part, build.configured()) and not {"--help", "-h"} & set(options):
        raise LabError(f"the benchmark of {part} needs a GPU, and there is none here; ./lab bench "
                       f"part2 runs on a CPU, and ./lab check {part} needs no GPU")
    command = [*built(part, implementation), *options]
    console.print_command(command)
    return console.foreground(command)
