"""`./lab tune`: compiles a kernel with other tiles, measures them, and says what limits each.

The file of a task for a GPU, or a rung of a GPU's ladder, says what to try in a comment:

    // ./lab tune: Config<D, 64|128, 32|64|96|128, 4|8, 2|3|4, 1|2>

D is the width of a head. Every combination is compiled as a copy of the file whose tables have this
configuration alone, and becomes a library that bench_attention loads. A task's table is in a given
header, of which there is a copy then, too.
"""

import argparse
import itertools
import math
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from lab import (benchmarks, build, console, disk, libraries, manifest, occupancy, paths, results,
                 tables)
from lab.backends import EMULATED, GPU
from lab.console import say
from lab.errors import LabError

HELP = "compile a kernel with many tiles; say which is fastest (on a GPU) and what limits each"

SPACE = re.compile(r"^// \./lab tune: Config<(.*)>$", re.MULTILINE)
TABLE = re.compile(r"\bTable<Config<.*?>>;", re.DOTALL)
GIVEN = re.compile(r'^#include "(\w+/given/\w+\.hpp)"$', re.MULTILINE)
DIRECTIONS = {"part3": "forward", "bonus": "backward"}
FASTEST = 3
DEFAULTS = {"--batch": "4", "--seq-lens": "1024,4096", "--warmups": "2", "--passes": "6",
            "--forward": "flash", "--backward": "none"}

# What a copy ends with. A linker's symbol has a size, and so says a number without being run.
NUMBERS = """
namespace {namespace} {{
namespace {{
using TunedConfig = Config<{config}>;
template <class C>
constexpr int tuned_rows(bool own) {{
  if constexpr (requires {{ C::kBlockQ; C::kBlockK; }}) return own ? C::kBlockQ : C::kBlockK;
  else if constexpr (requires {{ C::kOwn; C::kStream; }}) return own ? C::kOwn : C::kStream;
  else return 1;
}}
}}
extern "C" {{
FLASH_EXPORT char tuned_shared_bytes[TunedConfig::kSharedBytes];
FLASH_EXPORT char tuned_threads[TunedConfig::kThreads];
FLASH_EXPORT char tuned_own[tuned_rows<TunedConfig>(true)];
FLASH_EXPORT char tuned_streamed[tuned_rows<TunedConfig>(false)];
}}
}}
"""
TASK_ENTRY = """
#include "common/registry.hpp"
FLASH_ENTER(registry, name) {{
  const auto run = [](const flash::Attention{Direction}<float>& pass) {{
    flash::flash_attention_{direction}_cuda(pass);
  }};
  registry.{direction}.add({{.name = name, .device = flash::DeviceKind::kGpu,
                             .run = {{.float32 = run}}}});
}}
"""


@dataclass(frozen=True)
class Tuned:
    """What is compiled: a task's file or a rung's."""

    part: str
    name: str
    file: Path
    implementation: str  # whose benchmark measures it
    is_task: bool

    @property
    def baseline(self) -> str:
        return "flash" if self.is_task else self.name


@dataclass(frozen=True)
class Tried:
    """A configuration, and what the compiler says of it."""

    config: str
    library: Path | None = None
    error: str = ""
    registers: int | None = None  # of a thread; None without nvcc
    spilled: int = 0              # bytes of a thread
    shared: int = 0               # bytes of a block
    threads: int = 0
    own: int = 1                  # rows of a block's tile
    streamed: int = 1             # rows of each step

    def blocks(self, capability: int) -> tuple[int, str]:
        """How many blocks a multiprocessor holds, and what allows no more."""
        return occupancy.blocks(capability, self.shared, self.threads, self.registers)

    def warps(self, capability: int) -> int:
        return self.blocks(capability)[0] * math.ceil(self.threads / 32)

    @property
    def reuse(self) -> float:
        """Products for each row of the tile that is read."""
        return self.own * self.streamed / (self.own + self.streamed)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="flash_forward_cuda, flash_backward_cuda, or a rung such "
                                     "as 3_pipelined")
    parser.add_argument("--solution", action="store_true",
                        help="tune the reference solution instead of what you wrote")
    parser.add_argument("--head-dim", type=int, default=128, choices=(32, 64, 128, 256),
                        help="the width of a head (default: 128)")
    parser.add_argument("--space", metavar="CONFIG",
                        help="what to try in place of what the file says: 'D, 128, 64|96, 4|8, 2'")
    parser.options_example = ("./lab tune flash_forward_cuda -- --seq-lens 1024 --causal on; "
                              "./lab bench part3 -- --help lists all")


def run(args: argparse.Namespace) -> int:
    tuned = find(args.name, args.solution)
    said = SPACE.search(tuned.file.read_text())
    if tuned.file.suffix != ".cu" or tuned.part not in DIRECTIONS or not (said or args.space):
        raise LabError(f"{paths.relative(tuned.file)} does not say what to try: add a line "
                       "like // ./lab tune: Config<D, 64|128, ...>, or give --space")
    configs = space(args.space or said[1], args.head_dim)
    config = build.configured()
    known = libraries.load(paths.build_folder())
    library = known.get((tuned.file, GPU)) or known.get((tuned.file, EMULATED))
    if not library:
        raise LabError(f"the build does not compile {paths.relative(tuned.file)} here")
    report = paths.OUTPUTS / "tune" / f"{tuned.name}-{args.head_dim}.md"
    disk.check_writable(report.parent)
    folder = paths.build_folder() / "tune" / tuned.name
    shutil.rmtree(folder, ignore_errors=True)
    say(f"compiling {len(configs)} configurations of {paths.relative(tuned.file)}")
    with ThreadPoolExecutor(os.cpu_count()) as pool, console.progress("compiling") as update:
        tried = []
        for one in pool.map(lambda one: compile_one(tuned, library, folder, one), configs):
            tried.append(one)
            update(len(tried), len(configs))
    capability = int(re.sub(r"\D.*", "", "".join(library.architectures[:1])) or 80)
    times: dict[str, dict[str, float]] = {}
    title = f"{tuned.name}, heads of {args.head_dim}"
    if config.cuda != "gpu":
        say("no GPU here, so nothing is measured. This is what limits each configuration on "
            f"compute capability {capability / 10}:")
    elif made := {one.library.stem: one for one in tried if one.library}:
        csv = paths.OUTPUTS / f"csv/tune_{tuned.name}.csv"
        csv.unlink(missing_ok=True)
        if code := measure(tuned, args, list(made.values()), csv):
            return code
        group = results.groups(results.load(csv))[0]
        title += f": {group.title}"
        times = times_of(group, tuned, made)
    text = f"# {title}\n\n{table(tried, times, capability, tuned.baseline)}"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(text)
    say(f"\n{text}\n{paths.relative(report)}")
    return 0 if any(not one.error for one in tried) else 1


def find(name: str, solution: bool) -> Tuned:
    parts = manifest.load_parts()
    if name[:1].isdigit() or "/" in name:
        return Tuned(*tables.find_rung(name), "solution", False)
    task = manifest.select_one(parts, name, "tune")
    implementation = "solution" if solution else "skeleton"
    return Tuned(task.part, task.name, task.path(implementation), implementation, True)


def space(text: str, head_dim: int) -> list[str]:
    """All combinations, as they stand between Config< and >."""
    axes = [[str(head_dim) if value.strip() == "D" else value.strip() for value in axis.split("|")]
            for axis in text.split(",")]
    return [", ".join(values) for values in itertools.product(*axes)]


def write_copy(tuned: Tuned, folder: Path, config: str) -> Path:
    """The file with this configuration alone; beside it, the given header with the table."""
    only = f"Table<Config<{config}>>;"
    text = tuned.file.read_text()
    entry = ""
    if tuned.is_task:
        direction = DIRECTIONS[tuned.part]
        entry = TASK_ENTRY.format(direction=direction, Direction=direction.capitalize())
        text = re.sub(r"^FLASH_TASK\(.*\)$", "", text, flags=re.MULTILINE)
        for header in GIVEN.findall(text):
            given = (paths.ROOT / header).read_text()
            if TABLE.search(given):
                (folder / header).parent.mkdir(parents=True, exist_ok=True)
                (folder / header).write_text(TABLE.sub(only, given))
    namespace = re.findall(r"^namespace (flash[\w:]*) \{", text, re.MULTILINE)[-1]
    source = folder / f"{folder.name}.cu"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(TABLE.sub(only, text) + NUMBERS.format(namespace=namespace, config=config)
                      + entry)
    return source


def compile_one(tuned: Tuned, library: libraries.Library, folder: Path, config: str) -> Tried:
    folder /= f"{tuned.name}-{re.sub(r'[^0-9a-z]+', '-', config)}"
    source = write_copy(tuned, folder, config)
    made = source.with_suffix(".so")
    # A spill is a figure here, no error; and a build for no GPU compiles without optimisation.
    options = [word for word in library.options
               if not re.search("Werror|warning-as-error|^-O|^-g", word)]
    if library.backend == GPU:
        number = library.architectures[0].partition("-")[0]
        library = replace(library, options=tuple(options), architectures=(f"{number}-real",))
        # A runtime of its own would not know the kernel that our launch() hands to the program's.
        words = ["-O3", "-Xptxas=-v", "-shared", "-cudart=shared"]
    else:
        library = replace(library, options=tuple(options))
        words = ["-O0", "-c"]
    first, *others = library.command()
    done = subprocess.run([first, f"-I{folder}", *others, "-DFLASH_RUNG=enter_rung", *words,
                           str(source), "-o", str(made)],
                          capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    if done.returncode:
        forbidden = any(sentence in output for sentence in
                        ("static assertion", "static_assert", "division by zero"))
        return Tried(config, error="an assertion of the configuration forbids it" if forbidden
                     else build.first_error(output, paths.build_folder()))
    sizes = subprocess.run(["nm", "-S", str(made)], capture_output=True, text=True, check=True)
    numbers = {name: int(size, 16) for size, name
               in re.findall(r"^\w+ (\w+) \w tuned_(\w+)$", sizes.stdout, re.MULTILINE)}
    registers = [int(count) for count in re.findall(r"Used (\d+) registers", output)]
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill stores", output)))
    return Tried(config, made if registers else None, "", max(registers, default=None), spilled,
                 numbers["shared_bytes"], numbers["threads"], numbers["own"], numbers["streamed"])


def measure(tuned: Tuned, args: argparse.Namespace, made: Sequence[Tried], csv: Path) -> int:
    direction = DIRECTIONS[tuned.part]
    dtype = "float32" if tuned.is_task or ".float32" in tuned.file.read_text() else "bfloat16"
    defaults = {**DEFAULTS, "--dtype": dtype, "--heads": str(2048 // args.head_dim)}
    del defaults[f"--{direction}"]
    names = ",".join([tuned.baseline, *(one.library.stem for one in made)])
    return benchmarks.run_program(tuned.part, tuned.implementation, [
        *benchmarks.with_defaults(args.options, defaults), "--head-dim", str(args.head_dim),
        "--load", ",".join(str(one.library) for one in made), f"--{direction}", names,
        "--output", str(csv)])


def times_of(group: results.Group, tuned: Tuned,
             made: Mapping[str, Tried]) -> dict[str, dict[str, float]]:
    """By problem and configuration, or the kernel as it is: milliseconds, inf where it failed."""
    direction = DIRECTIONS[tuned.part]
    times: dict[str, dict[str, float]] = {}
    for row in group.rows:
        name = row.pass_name(direction)
        problem = f"{row.size} keys, {'causal' if row.mask else 'no mask'}"
        times.setdefault(problem, {})[made[name].config if name in made else name] = (
            row.ms(direction) if row.ok else math.inf)
    return times


# ---- The report ---------------------------------------------------------------------------------


def table(tried: Sequence[Tried], times: Mapping[str, Mapping[str, float]], capability: int,
          baseline: str) -> str:
    """The fastest of each problem, and all configurations, the fastest first by the geometric mean
    of their times over those of the kernel as it is."""
    def mean(one: Tried) -> float:
        ratios = [by.get(one.config, math.inf) / by[baseline] for by in times.values()
                  if math.isfinite(by[baseline])]
        return math.prod(ratios) ** (1 / len(ratios)) if ratios else math.inf

    lines = []
    if times:
        lines += [f"| problem | fastest | ms | `{baseline}` as it is, ms |", "|---|---|---:|---:|"]
        for problem, by in times.items():
            best = min((one for one in tried if one.config in by), key=lambda one: by[one.config])
            lines.append(f"| {problem} | `Config<{best.config}>` | {by[best.config]:.4g} | "
                         f"{by[baseline]:.4g} |")
        lines.append("")
    compiled = sorted((one for one in tried if not one.error), key=mean)
    fit = [one for one in compiled if _missing_room(one, capability) == ""]
    ratio = ("Time is the geometric mean of the configuration's times over those of "
             f"`{baseline}` as it is. " if times else "")
    lines += [f"{len(fit)} of {len(tried)} configurations fit. {ratio}Registers and spilled bytes "
              "are those of a thread, warps those of a multiprocessor.", "",
              "| `Config` | time | registers | spilled | shared, KiB | warps | what decides |",
              "|---|---:|---:|---:|---:|---:|---|"]
    for place, one in enumerate(compiled):
        time = mean(one)
        why = (_missing_room(one, capability) or (
            _limit(one, capability) if math.isinf(time)
            else _strength(one, fit, capability) if place < FASTEST
            else _weakness(one, compiled[0], capability)))
        registers = "" if one.registers is None else one.registers
        warps = "" if one.registers is None else one.warps(capability)
        lines.append(f"| {one.config} | {'' if math.isinf(time) else f'{time:.3f}'} | {registers} "
                     f"| {one.spilled or ''} | {one.shared / 1024:.0f} | {warps} | {why} |")
    refused = [one for one in tried if one.error]
    lines += [f"| {one.config} | | | | | | {one.error} |" for one in refused]
    return "\n".join(lines) + "\n"


def _missing_room(one: Tried, capability: int) -> str:
    """"" where a block has room."""
    multiprocessors = occupancy.MULTIPROCESSORS
    kib = multiprocessors.get(capability, multiprocessors[90])[0] - (capability >= 80)
    if one.shared > kib * 1024:
        return (f"shared memory: a block needs {one.shared / 1024:.0f} KiB and can have at most "
                f"{kib}")
    blocks, limit = one.blocks(capability)
    return "" if blocks else f"{limit}: a multiprocessor has no room for one block"


def _limit(one: Tried, capability: int) -> str:
    """What keeps more blocks from a multiprocessor."""
    if one.spilled:
        return f"registers: {one.registers} a thread are too few, {one.spilled} bytes are spilled"
    blocks, limit = one.blocks(capability)
    return f"{limit}: no more than {blocks} block{'s' * (blocks > 1)} on a multiprocessor"


def _strength(one: Tried, fit: Sequence[Tried], capability: int) -> str:
    """Why one of the fastest is fast, beside all that have room."""
    warps = one.warps(capability)
    reads = sum(other.reuse > one.reuse for other in fit)
    said = ["no spills" if not one.spilled else f"in spite of {one.spilled} bytes of spills",
            f"{warps} warps on a multiprocessor, "
            f"{sum(other.warps(capability) > warps for other in fit)} of {len(fit)} have more",
            f"{one.reuse:.0f} products for each row that its tile of {one.own} x {one.streamed} "
            f"reads, {reads} of {len(fit)} have more"]
    return "fast: " + "; ".join(said[:2 + (one.own > 1)])


def _weakness(one: Tried, best: Tried, capability: int) -> str:
    """What one lacks beside the fastest."""
    if one.spilled > best.spilled:
        return _limit(one, capability)
    warps, most = one.warps(capability), best.warps(capability)
    if warps < most:
        return f"{one.blocks(capability)[1]}: {warps} warps, the fastest has {most}"
    if one.reuse < best.reuse:
        return (f"reads: {one.reuse:.0f} products for each row that its tile of {one.own} x "
                f"{one.streamed} reads, the fastest has {best.reuse:.0f}")
    return "these figures do not show why it is slower"
