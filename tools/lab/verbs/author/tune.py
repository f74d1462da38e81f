"""`./lab tune`: compiles a rung of a GPU's ladder with other tiles, and measures all of them.

A rung says what to try, in a comment above its table of configurations:

    // ./lab tune: Config<D, 64|128, 32|64|96|128, 4|8, 2|3|4, 1|2>

D is the width of a head. Every combination is compiled as a copy of the rung whose tables have this
configuration alone, and becomes a library that bench_attention loads. A configuration that does not
compile, or spills registers, is left out.
"""

import argparse
import itertools
import math
import os
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import benchmarks, build, console, derive, libraries, paths, results, tables
from lab.backends import GPU
from lab.console import say
from lab.errors import LabError

HELP = "compile a rung of a GPU's ladder with other tiles, and find the fastest (on a GPU)"

SPACE = re.compile(r"^// \./lab tune: Config<(.*)>$", re.MULTILINE)
TABLE = re.compile(r"\bTable<Config<.*?>>;", re.DOTALL)
DIRECTIONS = {"part3": "forward", "bonus": "backward"}
SHOWN = 10
DEFAULTS = {"--batch": "4", "--seq-lens": "4096", "--warmups": "2", "--passes": "6"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rung", help="3_pipelined")
    parser.add_argument("--head-dim", type=int, default=128, choices=(64, 128, 256),
                        help="the width of a head (default: 128)")
    parser.add_argument("--space", metavar="CONFIG",
                        help="what to try in place of what the rung says: 'D, 128, 64|96, 4|8, 2, "
                             "2'")
    parser.add_argument("--compile-only", action="store_true",
                        help="only say which of them compile; needs nvcc and no GPU")
    parser.options_example = ("./lab tune 3_pipelined -- --seq-lens 1024 --causal on; ./lab bench "
                              "part3 -- --help lists all")


def run(args: argparse.Namespace) -> int:
    part, name, file = tables.find_rung(args.rung)
    text = file.read_text()
    said = SPACE.search(text)
    if file.suffix != ".cu" or part not in DIRECTIONS or not (said or args.space):
        raise LabError(f"{paths.relative(file)} does not say what to try: a line "
                       "// ./lab tune: Config<D, 64|128, ...> above its table does")
    configs = space(args.space or said[1], args.head_dim)
    config = build.configured()
    if config.cuda != "gpu" and not args.compile_only:
        raise LabError("./lab tune measures on a GPU; --compile-only says which tiles compile")
    derive.check_writable(paths.OUTPUTS / "csv")
    folder = paths.build_folder() / "tune" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = compile_command(file)
    say(f"compiling {len(configs)} configurations of {name}")
    made, refused = {}, Counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool, console.progress("compiling") as update:
        tried = pool.map(lambda one: compile_one(command, folder, name, text, one), configs)
        for count, (one, (library, reason)) in enumerate(zip(configs, tried), 1):
            update(count, len(configs))
            if library is None:
                refused[reason] += 1
            else:
                made[library.stem] = (library, one)
    for reason, count in refused.most_common():
        say(f"left out: {count} ({reason})")
    say(f"{len(made)} of {len(configs)} configurations compile")
    if args.compile_only or not made:
        return 0 if made else 1

    csv = paths.OUTPUTS / f"csv/tune_{name}.csv"
    csv.unlink(missing_ok=True)
    defaults = DEFAULTS | {"--dtype": "float32" if ".float32" in text else "bfloat16",
                           "--heads": str(2048 // args.head_dim)}
    passes = {"--forward": "flash", "--backward": "none"}
    direction = DIRECTIONS[part]
    passes[f"--{direction}"] = ",".join([name, *made])
    options = [*benchmarks.with_defaults(args.options, defaults), "--head-dim", str(args.head_dim),
               "--load", ",".join(str(library) for library, _ in made.values()),
               *(word for option, value in passes.items() for word in (option, value)),
               "--output", str(csv)]
    if code := benchmarks.run_program(part, "solution", options):
        return code
    times = defaultdict(list)
    for row in results.groups(results.load(csv))[0].rows:
        times[row.pass_name(direction)].append(row.ms(direction) if row.ok else math.inf)
    for line in ranking(name, {key: one for key, (_, one) in made.items()}, times):
        say(line)
    return 0


def space(text: str, head_dim: int) -> list[str]:
    """All combinations, as they stand between Config< and >."""
    axes = [[str(head_dim) if value.strip() == "D" else value.strip() for value in axis.split("|")]
            for axis in text.split(",")]
    return [", ".join(values) for values in itertools.product(*axes)]


def compile_command(file: Path) -> list[str]:
    library = libraries.load(paths.build_folder()).get((file, GPU))
    if not library:
        raise LabError(f"the build does not compile {paths.relative(file)} with nvcc here")
    return library.command()


def compile_one(command: list[str], folder: Path, name: str, text: str,
                config: str) -> tuple[Path | None, str]:
    """The library, or why there is none."""
    stem = f"{name}-{re.sub(r'[^0-9a-z]+', '-', config)}"
    source, library = folder / f"{stem}.cu", folder / f"{stem}.so"
    source.write_text(TABLE.sub(f"Table<Config<{config}>>;", text))
    # A runtime of its own would not know the kernel that our launch() hands to the program's.
    done = subprocess.run([*command, "-DFLASH_RUNG=enter_rung", "-shared", "-cudart=shared",
                           str(source), "-o", str(library)],
                          capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return library, ""
    output = done.stdout + done.stderr
    if "static assertion" in output or "static_assert" in output:
        return None, "the rung's assertions forbid it"
    return None, "spills registers" if "spill" in output.lower() else build.first_error(
        output, paths.build_folder())


def ranking(name: str, configs: Mapping[str, str], times: Mapping[str, list[float]]) -> list[str]:
    """The fastest first, by the geometric mean of its times over those of the rung as it is."""
    def mean(key: str) -> float:
        return math.prod(a / b for a, b in zip(times[key], times[name])) ** (1 / len(times[name]))
    order = sorted(configs, key=mean)
    lines = [f"\ntime over that of {name} as it is:"]
    lines += [f"  {mean(key):5.3f}  Config<{configs[key]}>" for key in order[:SHOWN]
              if math.isfinite(mean(key))]
    unfit = sum(not math.isfinite(mean(key)) for key in order)
    return lines + [f"{unfit} of {len(order)} do not fit on this GPU"] * bool(unfit)
