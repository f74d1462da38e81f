"""`./lab profile`: part 3's forward kernel under Nsight Compute, in five figures (profiler.py makes them)."""

import argparse
import os
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from lab import attention_results, build, console, manifest, profiler, system
from lab.build import Config
from lab.errors import LabError
from lab.verbs import bench

HELP = "part 3's kernel under Nsight Compute: five figures, and what they say (on a GPU)"

PARTS = ("part3",)
PROGRAM = bench.PROGRAMS["part3"][0]

# What is profiled as long as nothing else is asked for: one problem that fills any GPU, and no more passes than it takes.
DEFAULTS = {"--device": "cuda", "--impl": "flash", "--batch": "8", "--seq-lens": "4096", "--causal": "off", "--warmups": "1",
            "--passes": "1"}
WIDTH = 116
ENVIRONMENT = {"LC_ALL": "C"}  # numbers as 6,392,320.5, whatever the user's locale


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab profile [PART] [--skeleton | --solution] [-- OPTIONS OF THE PROGRAM]"
    parser.add_argument("part", nargs="?", default="part3", choices=list(PARTS), help="part3 (the default)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--skeleton", action="store_true", help="profile what you wrote (the default)")
    which.add_argument("--solution", action="store_true", help="profile the reference solution")
    bench.pass_options_on(parser, "./lab profile -- --seq-lens 1024 --causal on; ./lab profile -- --help")


def run(args: argparse.Namespace) -> int:
    implementation = "solution" if args.solution else "skeleton"
    if "--help" in args.options or "-h" in args.options:
        return bench.run_program(args.part, implementation, ["--help"])
    if not any(one.name == args.part and one.has(implementation) for one in manifest.load_parts()):
        raise LabError(f"{args.part} has no {implementation}/ folder here")
    given = {word.split("=")[0] for word in args.options}
    if "--output" in given:
        raise LabError("--output is not for a profile: a time that was taken under a profiler is no result")
    ncu = _ready(build.configured())
    target = PROGRAM + ("" if implementation == "solution" else "_skeleton")
    built = build.build(target)
    if not built.ok:
        raise LabError(f"{target} does not build: {built.first_error}")
    options = [word for name, value in DEFAULTS.items() if name not in given for word in (name, value)] + args.options
    with tempfile.TemporaryDirectory(prefix="flash-profile-") as folder:
        output = Path(folder) / "attention.csv"
        _profile(ncu, [build.binary(target), *options, "--output", output], output)
    return 0


def _ready(config: Config) -> str:
    """ncu, on a machine that has all that a profile needs."""
    if config.cuda == "none":
        raise LabError("this build has no CUDA, and a profile is of a kernel on a GPU: nvcc 12.0 or newer has to be in PATH "
                       "(./lab doctor says more)")
    if config.cuda != "gpu":
        raise LabError("there is no GPU here, and a profile is of a kernel on one: the emulator is no clock (./lab doctor says "
                       "more)")
    ncu = system.find_ncu()
    if ncu is None:
        package = "-".join(["cuda-nsight-compute", *config.cuda_version.split(".")[:2]])
        raise LabError("there is no ncu (Nsight Compute) in PATH or beside nvcc: it is part of NVIDIA's CUDA Toolkit, and the "
                       f"package {package} of NVIDIA's apt repository; put its folder in PATH")
    return ncu


def _profile(ncu: str, program: Sequence[str | Path], output: Path) -> None:
    """Prints the figures of one launch of `program`, which writes its CSV to `output`."""
    # Once without the profiler. The kernel's configurations are timed when a problem is new: under ncu one of those launches
    # would be profiled. What stops the program is said here without ncu's words around it, and the row says what the
    # problem is.
    environment = _tuning(output.parent)
    alone = _run([*_shown(environment), *program], "running once without the profiler")
    rows = attention_results.load(output) if output.is_file() else []
    if alone.code != 0 or not rows or rows[0].forward_ms is None:
        raise LabError(profiler.program_trouble(alone.code, alone.output))
    problem = profiler.Problem(rows[0].dtype, rows[0].batch, rows[0].heads, rows[0].seq_len, rows[0].d_model // rows[0].heads,
                               rows[0].causal)

    # The launch to look at is the first timed one: it comes after the one whose result is checked, and the warm-ups. The clocks
    # are left alone, so that the time is the benchmark's; caches ncu empties by itself.
    skipped = 1 + _warmups(program)
    options = ["--csv", "--print-units", "base", "--clock-control", "none", "--kernel-name", f"regex:{profiler.KERNEL}",
               "--launch-skip", str(skipped), "--launch-count", "1", "--metrics", ",".join(profiler.METRICS)]
    profiled = _run([*_shown(environment), ncu, *options, *program], "profiling")
    profile = profiler.parse(profiled.output)
    if profile is None or not profile.metrics:
        raise LabError(profiler.profiler_trouble(profiled.code, profiled.output, system.is_root()))
    _print(profile, problem, rows[0].gpu)


def _tuning(folder: Path) -> dict[str, str]:
    """The environment in which the tuner (part3_flash_cuda/tuning.hpp) remembers from run to run what it found: a file in
    `folder` where it cannot write its own."""
    cache = os.environ.get("XDG_CACHE_HOME", str(Path(os.environ.get("HOME", "/tmp")) / ".cache"))
    file = Path(os.environ.get("FLASH_TUNING_FILE", str(Path(cache) / "flash" / "forward_tuning.txt")))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        writable = os.access(file.parent, os.W_OK)
    except OSError:
        writable = False
    return {} if writable else {"FLASH_TUNING_FILE": str(folder / "tuning.txt")}


def _shown(environment: dict[str, str]) -> list[str]:
    """As a part of the command, so that it does the same where it is copied to."""
    return ["env", *(f"{name}={value}" for name, value in environment.items())] if environment else []


def _warmups(program: Sequence[str | Path]) -> int:
    """The program has taken it: it is a number."""
    words = [str(word) for word in program]
    place = next(number for number, word in enumerate(words) if word.split("=")[0] == "--warmups")
    return int(words[place].split("=")[1] if "=" in words[place] else words[place + 1])


def _run(command: Sequence[str | Path], description: str) -> console.Finished:
    console.print_command(command)
    return console.stream(command, description=description, env=ENVIRONMENT)


def _print(profile: profiler.Profile, problem: profiler.Problem, gpu: str) -> None:
    tiles = profile.tiles
    cut = f"; {tiles.queries} queries x {tiles.keys} keys, {tiles.warps} warps" if tiles else ""
    console.console.print(f"\n{gpu}, {problem.title}{cut}", markup=False, soft_wrap=True)
    for number, figure in enumerate(profiler.figures(profile, problem), 1):
        console.console.print(f"\n{number}  {figure.title}", style="bold", markup=False)
        wide = max(len(label) for label, _ in figure.rows)
        for label, value in figure.rows:
            console.console.print(f"   {label:<{wide}}  {value}", markup=False, soft_wrap=True)
        if figure.meaning:
            width = min(console.console.width, WIDTH)
            meaning = textwrap.fill(figure.meaning, width, initial_indent="   ", subsequent_indent="   ")
            console.console.print(meaning, markup=False, soft_wrap=True)
