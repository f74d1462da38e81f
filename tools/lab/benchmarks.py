"""The benchmark programs: which one is a part's, and how it is built and run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import build, console, disk, manifest, paths
from lab.errors import LabError

# Linked with the solution; with the skeleton it is called <name>_skeleton. And the options that
# make it a part's.
PROGRAMS = {"part1": ("bench_softmax_matmul", ()), "part2": ("bench_attention", ()),
            "part3": ("bench_attention", ("--device", "cuda")),
            "bonus": ("bench_attention", ("--device", "cuda")),
            "decode": ("bench_decode", ("--device", "cuda"))}


def can_run(part: str, config: build.Config) -> bool:
    return "cuda" not in PROGRAMS[part][1] or config.cuda == "gpu"


def with_defaults(options: Sequence[str], defaults: Mapping[str, str]) -> list[str]:
    """The options of a program, after the defaults that they do not replace."""
    given = {word.split("=")[0] for word in options}
    return [word for option, value in defaults.items() if option not in given
            for word in (option, value)] + [*options]


def value(options: Sequence[object], option: str) -> str:
    """What an option of a program is given; "" where it is not there."""
    words = [word for each in options for word in str(each).split("=", 1)]
    return words[words.index(option) + 1] if option in words[:-1] else ""


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
    if not {"--help", "-h"} & set(options):
        if not can_run(part, build.configured()):
            raise LabError(f"the benchmark of {part} needs a GPU, and there is none here; ./lab "
                           f"bench part2 runs on a CPU, and ./lab check {part} needs no GPU")
        output = value(options, "--output") or paths.OUTPUTS / "csv" / "any"
        disk.check_writable(Path(output).parent)
    return console.foreground([*built(part, implementation), *options])
