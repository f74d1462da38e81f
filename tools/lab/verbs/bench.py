"""`./lab bench`: builds a part's benchmark and runs it."""

import argparse
import subprocess
from collections.abc import Sequence

from lab import build, console, manifest
from lab.errors import LabError

HELP = "build and run a part's benchmark: --quick on a laptop, -- --help for its own options"

# Linked with the solution; with the skeleton it is called <name>_skeleton. And the options that make it a part's.
PROGRAMS = {"part1": ("bench_softmax_matmul", ()), "part2": ("bench_attention", ()),
            "part3": ("bench_attention", ("--device", "cuda")), "bonus": ("bench_attention", ("--device", "cuda"))}
NEED_GPU = ("part3", "bonus")


def can_run(part: str, config: build.Config) -> bool:
    """Whether the part's benchmark can measure here."""
    return part not in NEED_GPU or config.cuda == "gpu"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab bench [PART] [--quick] [--skeleton | --solution] [-- OPTIONS OF THE PROGRAM]"
    parser.add_argument("part", nargs="?", default="part1", choices=list(PROGRAMS),
                        help=f"{', '.join(PROGRAMS)} (default: part1)")
    parser.add_argument("--quick", action="store_true", help="a smaller problem: seconds, on a laptop too")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--skeleton", action="store_true", help="measure what you wrote (the default)")
    which.add_argument("--solution", action="store_true", help="measure the reference solution")
    pass_options_on(parser, "./lab bench -- --d2 64,128; ./lab bench -- --help")


def pass_options_on(parser: argparse.ArgumentParser, example: str) -> None:
    """What follows -- becomes args.options, for the program. `example` ends with a command that lists its options."""
    parser.epilog = f"What follows -- goes to the program, as in {example} lists it all."

    # argparse would take the first word after -- for PART, and refuse the others when an option stands before them.
    parse_before = parser.parse_args

    def parse_args(argv: Sequence[str]) -> argparse.Namespace:
        cut = argv.index("--") if "--" in argv else len(argv)
        args = parse_before(argv[:cut])
        args.options = list(argv[cut + 1:])
        return args

    parser.parse_args = parse_args  # type: ignore[method-assign, assignment]


def run(args: argparse.Namespace) -> int:
    options = (["--quick"] if args.quick and "--quick" not in args.options else []) + args.options
    return run_program(args.part, "solution" if args.solution else "skeleton", options)


def run_program(part: str, implementation: str, options: Sequence[str]) -> int:
    """Builds the program and runs it in the foreground, its output on the screen as it comes; returns its exit code."""
    program, fixed = PROGRAMS[part]
    target = program + ("" if implementation == "solution" else "_skeleton")
    if not any(one.name == part and one.has(implementation) for one in manifest.load_parts()):
        raise LabError(f"{part} has no {implementation}/ folder here")
    build.configured()
    built = build.build(target)
    if not built.ok:
        raise LabError(f"{target} does not build: {built.first_error}")
    command = [build.binary(target), *fixed, *options]
    console.print_command(command)
    return _foreground([str(word) for word in command])


def _foreground(command: list[str]) -> int:
    """A progress line needs the terminal itself, so nothing is captured. Ctrl-C goes to the program, which shows what it has
    and leaves by itself."""
    try:
        process = subprocess.Popen(command)  # in the caller's folder: --output may be relative to it
    except OSError as error:
        raise LabError(f"{command[0]} cannot be run: {error.strerror}") from None
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:
            continue
    return code if code >= 0 else 128 - code
