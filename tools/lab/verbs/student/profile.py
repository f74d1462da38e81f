"""`./lab profile`: what each line of a kernel does with memory, as the emulator counts it; on a GPU
part 3's forward kernel under Nsight Compute."""

import argparse
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.table import Column, Table

from lab import benchmarks, build, console, counts, libraries, occupancy, results, system
from lab.backends import GPU
from lab.build import Config
from lab.console import say
from lab.errors import LabError
from lab.manifest import Task
from lab.outcomes import PASSED

HELP = "count what a kernel does with memory, by source line; on a GPU, run Nsight Compute"

PART = "part3"
# Name, compute capability, GB/s of device memory, TFLOP/s of float32, float32 operations of a
# multiprocessor in the clock in which its shared memory serves a wavefront, and TFLOP/s of 16 bits
# by tensor cores: NVIDIA's data sheets.
CARDS = {"T4": (75, 320, 8.1, 128, 65), "A100": (80, 1555, 19.5, 128, 312),
         "RTX 4090": (89, 1008, 82.6, 256, 165), "H100": (90, 3350, 66.9, 256, 989)}
# What is profiled by default: one problem that fills any GPU, and no more passes than needed.
DEFAULTS = {"--batch": "8", "--seq-lens": "4096", "--causal": "off", "--warmups": "1",
            "--passes": "1"}
# The plain backward pass is given in part 3: it needs no bonus.
PASSES = {"--forward": "flash", "--backward": "plain"}
ENVIRONMENT = {"LC_ALL": "C"}  # numbers as 6,392,320.5, whatever the user's locale

Compiled = tuple[str, str]  # registers of a thread, and bytes of those that it spills

KERNEL = "flash_forward"  # in the name of the kernel
SECTIONS = ("SpeedOfLight", "LaunchStats", "MemoryWorkloadAnalysis",
            "MemoryWorkloadAnalysis_Tables", "Occupancy", "SchedulerStats", "WarpStateStats")
# What these sections lack. GPUs have one or the other counter of the multiply-add pipe.
METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum", *(
    f"{counter}.avg.pct_of_peak_sustained_{of}" for of in ("active", "elapsed")
    for counter in ("sm__pipe_fma_cycles_active", "sm__inst_executed_pipe_fma")))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default=PART, metavar="PART|TASK",
                        help=f"a CUDA task, or the part of some (default: {PART})")
    parser.add_argument("--case", metavar="NAME", help="count this graded case's problem")
    parser.add_argument("--rung", metavar="NAME", help="count this rung of the part's ladder")
    parser.add_argument("--card", choices=CARDS, default="H100",
                        help="the GPU of the roofline (default: H100)")
    parser.add_argument("--registers", action="store_true",
                        help="let nvcc compile the kernels, and say how many registers limit, "
                             "and which accesses it merges (takes minutes for part 3)")
    parser.add_argument("--emulate", action="store_true",
                        help="let the emulator count, also where there is a GPU")
    parser.add_argument("--solution", action="store_true",
                        help="profile the reference solution instead of what you wrote")
    parser.options_example = ("./lab profile -- --seq-lens 1024 --causal on; ./lab profile -- "
                              "--help lists all")


def run(args: argparse.Namespace) -> int:
    implementation = "solution" if args.solution else "skeleton"
    config = build.configured()
    if args.emulate or args.rung or args.name != PART or (config.cuda != "gpu" and not args.options):
        return _count(args, implementation, config)
    if "--help" in args.options or "-h" in args.options:
        return benchmarks.run_program(PART, implementation, ["--help"])
    given = {word.split("=")[0] for word in args.options}
    if "--output" in given:
        raise LabError("--output is not for a profile: a time taken under a profiler is no result")
    ncu = _ready(config)
    program = benchmarks.built(PART, implementation)
    defaults = DEFAULTS | ({} if "--impl" in given else PASSES)  # another name of --forward
    options = benchmarks.with_defaults(args.options, defaults)
    with tempfile.TemporaryDirectory(prefix="flash-profile-") as folder:
        output = Path(folder) / "attention.csv"
        _profile(ncu, [*program, *options, "--output", output], output)
    return 0


# ---- counted by the emulator --------------------------------------------------------------------


def _count(args: argparse.Namespace, implementation: str, config: Config) -> int:
    if args.options:
        raise LabError("options behind -- are for the benchmark under Nsight Compute; a count "
                       "takes --case NAME")
    for task in counts.tasks(args.name, implementation, config):
        if args.rung:
            with tempfile.TemporaryDirectory(prefix="flash-profile-") as folder:
                _show(counts.run_rung(task.part, args.rung, Path(folder)), task.part, args.card, {})
            break
        registers, ptx = _compiled(task, implementation) if args.registers else ({}, "")
        for case in counts.cases(task, args.case):
            _count_case(task, case, implementation, args.card, registers, ptx)
    say("\nThis is what the source says, counted in a small problem. The compiler may merge or "
        "drop accesses, and caches may spare device memory some: a GPU alone measures time.")
    return 0


def _compiled(task: Task, implementation: str) -> tuple[dict[str, Compiled], str]:
    """On compute capability 9.0: of each kernel, by its mangled name, and the PTX."""
    library = libraries.load(build.build_folder()).get((task.path(implementation), GPU))
    if library is None:
        raise LabError("--registers needs nvcc, which this build does not have")
    options = [word for word in library.options
               if not re.search("Werror|warning-as-error|^-O|^-g", word)]
    command = replace(library, options=tuple(options), architectures=("90-real",)).command()
    with tempfile.TemporaryDirectory(prefix="flash-profile-") as folder:
        compiled = console.stream(
            [*command, "-O3", "-cubin", "-Xptxas=-v", "--keep", "--keep-dir", folder,
             task.path(implementation), "-o", os.devnull], "compiling with nvcc")
        ptx = "".join(file.read_text() for file in Path(folder).glob("*.ptx"))
    return {name: (count, spilled) for name, spilled, count in re.findall(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers",
        compiled.output, re.DOTALL)}, ptx


def _count_case(task: Task, case: str, implementation: str, card: str,
                registers: Mapping[str, Compiled], ptx: str = "") -> None:
    result, launches = counts.run(task, case, implementation,
                                  with_library=counts.library(task, implementation))
    say(f"\n{task.name}: {case}", "bold")
    if result.status != PASSED:
        say(f"The result is {result.status}: ./lab check {task.name} says why.", "yellow")
    _show(launches, task.part, card, registers)
    for text in counts.merged(counts.by_line(launches), ptx):
        say(f"- {text}")


def _show(launches: Sequence[counts.Launch], part: str, card: str,
          registers: Mapping[str, Compiled]) -> None:
    lines = counts.by_line(launches)
    for table in (_accesses([line for line in lines if line.is_access]), _operations(lines),
                  _arithmetic(lines), _bytes(launches)):
        if table.row_count:
            console.console.print(table)
    say(_total(lines))
    found = counts.findings(launches, part)
    for text in found or ["Every access is coalesced, or free of bank conflicts."]:
        say(f"- {text}", "yellow" if found else "green")
    for habit, broken in counts.habits(launches, part).items():
        where = ", ".join(dict.fromkeys(place.rpartition("/")[2] for place in broken))
        say(f"- Challenge (no points). {habit}: {f'not at {where}' if broken else 'yes'}",
            None if broken else "green")
    for text in (*_roofline(launches, card),
                 *dict.fromkeys(_occupancy(launch, registers) for launch in launches)):
        say(f"- {text}")


def _total(lines: Sequence[counts.Line]) -> str:
    def total(name: str, *what: str) -> int:
        return sum(getattr(line, name) for line in lines if line.what in what or not what)

    device, shared = (sum(line.requests for line in lines if line.is_access and
                          line.is_shared == is_shared) for is_shared in (False, True))
    return (f"- In total: {device} requests to device memory, {total('sectors')} sectors; {shared} "
            f"to shared memory, {total('wavefronts')} wavefronts, {total('least')} without "
            f"conflicts; {total('lanes', 'multiply')} multiplications and {total('lanes', 'add')} "
            f"additions by threads, {total('products')} by matrix instructions")


def _table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    return Table(*(Column(head, overflow="fold") for head in texts),
                 *(Column(head, justify="right") for head in numbers),
                 title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)


def _accesses(lines: Sequence[counts.Line]) -> Table:
    table = _table("Accesses of warps; sectors and wavefronts of a request. Good: sectors used to "
                   "100 %, no conflicts, no partial requests, which some lanes leave out",
                   ("line", "access"), ("bytes", "requests", "partial", "sectors", "used",
                                        "wavefronts", "conflicts"))
    for line in lines:
        shared, partial = line.is_shared, line.partial
        table.add_row(
            line.place.rpartition("/")[2], f"{line.what} {line.tensor.removesuffix(' memory')}",
            str(line.width), str(line.requests), str(partial) if partial else "",
            *(("", "", f"{line.each:.3g}", str(line.wavefronts - line.least)) if shared else
              (f"{line.each:.3g}", f"{line.used:.0%}", "", "")),
            style="yellow" if counts.advice(line) else "")
    return table


def _operations(lines: Sequence[counts.Line]) -> Table:
    table = _table("Operations of warps and blocks. A barrier waits for the slowest warp; waits: the "
                   "share of their time that the others do. Good are two for each tile, and under "
                   "10 %. Products: of a matrix instruction",
                   ("line", "operation"), ("times", "lanes", "products", "waits"))
    for line in lines:
        if not line.is_access and line.what not in counts.OF_THREADS:
            table.add_row(line.place.rpartition("/")[2], f"{line.what} {line.tensor}".strip(),
                          str(line.requests),
                          f"{line.lanes / line.requests:.3g}",
                          str(line.products) if line.products else "",
                          f"{1 - line.work / line.slowest:.0%}" if line.slowest else "")
    return table


def _arithmetic(lines: Sequence[counts.Line]) -> Table:
    table = _table("Arithmetic of threads in float and double, and where a branch divides warps. "
                   "Lanes: of 32, that take part while the others wait; good: all",
                   ("line",), ("multiplications", "additions", "lanes"))
    every = sum(line.requests for line in lines if line.what == "run")
    for place in dict.fromkeys(line.place for line in lines if line.what == "run"):
        of = {line.what: line for line in lines if line.place == place}
        diverges = of["run"].lanes < 31 * of["run"].requests and of["run"].requests > every / 200
        if diverges or len(of.keys() & counts.OF_THREADS) > 1:
            table.add_row(place.rpartition("/")[2],
                          *(str(of[what].lanes) if what in of else ""
                            for what in ("multiply", "add")),
                          f"{of['run'].lanes / of['run'].requests:.3g}",
                          style="yellow" if diverges else "")
    return table


def _bytes(launches: Sequence[counts.Launch]) -> Table:
    table = _table("Bytes of the tensors. Good: an output once, an input once for each block that "
                   "needs it", ("kernel", "tensor"), ("bytes", "loaded", "stored"))
    for launch in launches:
        for name in launch.tensors:
            whole = launch.bytes_of(name)
            if any(moved := launch.asked(name)):
                table.add_row(launch.kernel, name, str(whole),
                              *(f"{asked / whole:.3g} times" if asked else "" for asked in moved))
    return table


def _roofline(launches: Sequence[counts.Launch], card: str) -> Iterator[str]:
    """Of each problem, for which several kernels may have been launched."""
    problems: dict[str, list[counts.Launch]] = {}
    for launch in launches:
        problems.setdefault(f"{launch.causal} {launch.tensors}", []).append(launch)
    _, bandwidth, peak_of_float32, _, of_tensor_cores = CARDS[card]
    for of in problems.values():
        lines = [line for each in of for line in each.lines]
        flops, named = of[0].flops, "operations of the products"
        if flops is None:  # it is the data that says how many
            flops, named = sum((line.what in ("multiply", "add")) * line.lanes + 2 * line.products
                               for line in lines), "operations"
        if not flops:
            continue
        by_tensor_cores = any(line.products for line in lines)
        peak = of_tensor_cores if by_tensor_cores else peak_of_float32
        kind = "16 bits by tensor cores" if by_tensor_cores else "float32"
        intensity, ridge = flops / sum(each.moved for each in of), 1000 * peak / bandwidth
        limit = ("so arithmetic limits it" if intensity >= ridge else
                 f"so memory limits it in so small a problem, where outputs weigh much, without "
                 f"caches to {intensity / ridge:.0%} of the peak; larger tiles and fuller sectors "
                 "raise it")
        yield (f"Roofline: {intensity:.3g} {named} for each byte of a sector. "
               f"The {card} needs {ridge:.3g} ({peak} TFLOP/s of {kind}, {bandwidth} GB/s), "
               f"{limit}.")
        if wavefronts := sum(line.wavefronts for line in lines):
            each = flops / wavefronts
            at_once = CARDS[card][3] * peak / peak_of_float32
            yield (f"Shared memory: {each:.3g} {named} for each wavefront. A "
                   f"multiprocessor of the {card} does {at_once:.0f} in the time of one, so shared "
                   f"memory {'limits it' if each < at_once else 'alone would not limit it'}; more "
                   "rows and columns a thread raise it.")


def _occupancy(launch: counts.Launch, registers: Mapping[str, Compiled]) -> str:
    # nvcc and g++ name a namespace without a name differently.
    end = launch.symbol.rpartition("_GLOBAL__N_1")[2]
    of_thread, spilled = next(
        (of for name, of in registers.items() if name.endswith(end)), (None, None))
    held = []
    for card, (capability, *_) in CARDS.items():
        blocks, limit = occupancy.blocks(capability, launch.shared, launch.threads,
                                         of_thread and int(of_thread))
        held.append(f"{card} {blocks} ({blocks * -(-launch.threads // 32)} of "
                    f"{occupancy.MULTIPROCESSORS[capability][1]} warps, by {limit})")
    own = f" of {of_thread} registers, {spilled} bytes of them spilled," if of_thread else ""
    aside = "" if of_thread else ", registers left aside (--registers)"
    return (f"{launch.kernel}: a block has {launch.threads} threads{own} and {launch.shared} bytes "
            f"of shared memory. Blocks for which a multiprocessor has room{aside}: "
            f"{', '.join(held)}. Good: at least two, or 8 warps "
            "(part1_softmax_matmul/cuda.md, section 2).")


# ---- on a GPU, under Nsight Compute -------------------------------------------------------------


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
    """Prints what ncu says of one launch of `program`, which writes its CSV to `output`."""
    # Once without the profiler: the tuner (part3_flash_cuda/tuning.hpp) launches the kernel too
    # when a problem is new, and leaves its choice in a file; errors are seen without ncu's lines;
    # and the row says what the problem is.
    environment = ["/usr/bin/env", f"FLASH_TUNING_FILE={output.with_name('tuning.txt')}"]
    alone = _run([*environment, *program], "running once without the profiler")
    found = results.groups(results.load(output)) if output.is_file() else []
    if alone.code != 0 or not found or not found[0].rows[0].forward_ms:
        raise LabError(_trouble_of_program(alone.code, alone.output))

    # The first timed launch comes after the one whose result is checked, and the warm-ups. The
    # clocks are left alone, so that the time is the benchmark's; ncu empties caches.
    skipped = 1 + int(benchmarks.value(program, "--warmups"))
    options = [*(word for section in SECTIONS for word in ("--section", section)),
               "--metrics", ",".join(METRICS), "--clock-control", "none",
               "--kernel-name", f"regex:{KERNEL}", "--launch-skip", str(skipped),
               "--launch-count", "1"]
    profiled = _run([*environment, ncu, *options, *program], "profiling")
    _, _, said = profiled.output.partition("==PROF== Disconnected")
    if profiled.code or " Section: " not in said:
        raise LabError(_trouble_of_ncu(profiled.code, profiled.output))
    group, row = found[0], found[0].rows[0]
    say(f"\n{group.title}, seq_len {row.size}, {'' if row.mask else 'not '}causal; alone: "
        f"{row.forward_ms:.4g} ms, {row.forward_tflops:.3g} TFLOP/s")
    for line in said.splitlines()[1:]:
        if not line.startswith("==WARNING== No metrics"):  # its rules look at them all the same
            say(line.rstrip())
    say("part3_flash_cuda/ladder/README.md, section 14, says in which order to read it")


def _run(command: Sequence[str | Path], description: str) -> console.Finished:
    console.print_command(command)
    return console.stream(command, description, env=ENVIRONMENT)


def _trouble_of_program(code: int, output: str) -> str:
    if missing := re.search(r"^task (\S+) is not started", output, re.MULTILINE):
        return (f"task {missing[1]} is not started, so there is nothing to profile; next: "
                f"./lab check {missing[1]} (or ./lab profile --solution)")
    said = re.search(r"^(?:\w+: )?(?:error|OOM|unsupported): .*$", output, re.MULTILINE)
    return said[0] if said else (f"the program ended with exit code {code}; "
                                 f"last line: {_last_line(output)}")


def _trouble_of_ncu(code: int, output: str) -> str:
    if "ERR_NVGPUCTRPERM" in output:
        container = "in a container, start that with --cap-add=SYS_ADMIN"
        as_root = (container if system.is_root()
                   else f"run it as root (sudo ./lab profile); {container}")
        return ("ERR_NVGPUCTRPERM: the driver lets only an administrator read the GPU's counters. "
                f"Either {as_root}; or let everybody read them: put `options nvidia "
                "NVreg_RestrictProfilingToAdminUsers=0` into a file of /etc/modprobe.d/ and "
                "restart the machine")
    errors = [line for line in output.splitlines() if line.startswith("==ERROR==")]
    if code or errors:
        last = _last_line(errors[-1] if errors else output).removeprefix("==ERROR== ")
        return f"ncu failed (exit code {code}): {last}"
    return f"ncu profiled no kernel: none with {KERNEL} in its name was launched often enough"


def _last_line(output: str) -> str:
    return output.strip().rpartition("\n")[2] or "it printed nothing"
