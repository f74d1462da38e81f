"""`./lab profile`: part 3's forward kernel under Nsight Compute (profiler.py makes the figures)."""

import argparse
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from lab import build, console, profiler, results, system
from lab.build import Config
from lab.console import say
from lab.errors import LabError
from lab.verbs import bench

GROUP = "Measurements"
HELP = "run part 3's kernel under Nsight Compute (on a GPU): five figures and what they say"

PART = "part3"
# What is profiled by default: one problem that fills any GPU, and no more passes than needed.
DEFAULTS = {"--batch": "8", "--seq-lens": "4096", "--causal": "off", "--warmups": "1",
            "--passes": "1"}
# The plain backward pass is given in part 3: it needs no bonus.
PASSES = {"--forward": "flash", "--backward": "plain"}
WIDTH = 100
ENVIRONMENT = {"LC_ALL": "C"}  # numbers as 6,392,320.5, whatever the user's locale


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("part", nargs="?", default=PART, choices=[PART],
                        help=f"{PART} (the default)")
    parser.add_argument("--solution", action="store_true",
                        help="profile the reference solution instead of what you wrote")
    parser.options_example = ("./lab profile -- --seq-lens 1024 --causal on; ./lab profile -- "
                              "--help lists all")


def run(args: argparse.Namespace) -> int:
    implementation = "solution" if args.solution else "skeleton"
    if "--help" in args.options or "-h" in args.options:
        return bench.run_program(args.part, implementation, ["--help"])
    given = {word.split("=")[0] for word in args.options}
    if "--output" in given:
        raise LabError("--output is not for a profile: a time taken under a profiler is no result")
    ncu = _ready(build.configured())
    program = bench.built(args.part, implementation)
    defaults = DEFAULTS | ({} if "--impl" in given else PASSES)  # another name of --forward
    options = bench.with_defaults(args.options, defaults)
    with tempfile.TemporaryDirectory(prefix="flash-profile-") as folder:
        output = Path(folder) / "attention.csv"
        _profile(ncu, [*program, *options, "--output", output], output)
    return 0


def _ready(config: Config) -> str:
    """The path of ncu. LabError where something that a profile needs is missing."""
    if config.cuda == "none":
        raise LabError("this build has no CUDA, and a profile needs a kernel on a GPU: nvcc 12.0 "
                       "or newer has to be in PATH (./lab doctor says more)")
    if config.cuda != "gpu":
        raise LabError("there is no GPU here, and a profile needs one: the emulator measures no "
                       "time (./lab doctor says more)")
    ncu = system.find_ncu()
    if ncu is None:
        package = "-".join(["cuda-nsight-compute", *config.cuda_version.split(".")[:2]])
        raise LabError("there is no ncu (Nsight Compute) in PATH or beside nvcc: it is part of "
                       f"NVIDIA's CUDA Toolkit, and the package {package} of NVIDIA's apt "
                       "repository; put its folder in PATH")
    return ncu


def _profile(ncu: str, program: Sequence[str | Path], output: Path) -> None:
    """Prints the figures of one launch of `program`, which writes its CSV to `output`."""
    # Once without the profiler: the tuner (part3_flash_cuda/tuning.hpp) launches the kernel too
    # when a problem is new, and leaves its choice in a file; errors are seen without ncu's lines;
    # and the row says what the problem is.
    environment = ["/usr/bin/env", f"FLASH_TUNING_FILE={output.with_name('tuning.txt')}"]
    alone = _run([*environment, *program], "running once without the profiler")
    found = results.groups(results.load(output)) if output.is_file() else []
    if alone.code != 0 or not found or not found[0].rows[0].forward_ms:
        raise LabError(profiler.program_trouble(alone.code, alone.output))

    # The first timed launch comes after the one whose result is checked, and the warm-ups. The
    # clocks are left alone, so that the time is the benchmark's; ncu empties caches.
    words = [word for each in program for word in str(each).split("=", 1)]
    skipped = 1 + int(words[words.index("--warmups") + 1])
    options = ["--csv", "--print-units", "base", "--clock-control", "none",
               "--kernel-name", f"regex:{profiler.KERNEL}", "--launch-skip", str(skipped),
               "--launch-count", "1", "--metrics", ",".join(profiler.METRICS)]
    profiled = _run([*environment, ncu, *options, *program], "profiling")
    profile = profiler.parse(profiled.output)
    if profile is None or not profile.metrics:
        raise LabError(
            profiler.profiler_trouble(profiled.code, profiled.output, system.is_root()))
    _print(profile, found[0])


def _run(command: Sequence[str | Path], description: str) -> console.Finished:
    console.print_command(command)
    return console.stream(command, description=description, env=ENVIRONMENT)


def _print(profile: profiler.Profile, group: results.Group) -> None:
    tiles, problem = profile.tiles, group.rows[0]
    cut = f"; {tiles.queries} queries x {tiles.keys} keys, {tiles.warps} warps" if tiles else ""
    say(f"\n{group.title}, seq_len {problem.size}, {'' if problem.mask else 'not '}causal{cut}")
    width = min(console.console.width, WIDTH)
    for number, figure in enumerate(profiler.figures(profile, problem), 1):
        say(f"\n{number}  {figure.title}", "bold")
        wide = max(len(label) for label, _ in figure.rows)
        for label, value in figure.rows:
            say(f"   {label:<{wide}}  {value}")
        if figure.meaning:
            say(textwrap.fill(figure.meaning, width, initial_indent="   ", subsequent_indent="   "))
