"""`./lab counts`: what the emulator counts, beside what Nsight Compute counts of the same kernels.

A count that differs by over 1 % gets a word in the column `why` of the table, by hand. nvcc has
merged accesses of the source, divided one of them, hoisted it, read it once, dropped it as dead,
unrolled a loop or spilled registers; or the loop is one that waits (waiting), or cp.async writes
zeros for what lies outside. Where the halves of a warp want the same words (halves), Nsight's
wavefronts count them twice, and its conflicts, as the emulator, once.
"""

import argparse
import csv
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.table import Table

from lab import build, checking, console, counts, disk, manifest, paths, running, system
from lab.backends import CHECKED, GPU, Backends
from lab.console import say
from lab.errors import LabError

HELP = "compare what the emulator counts with Nsight Compute, access by access"

PROGRAM = "emulator_counts"  # tests/mutants/counted.cpp
TASKS = ("fused_cuda", "flash_forward_cuda", "flash_backward_cuda", "flash_decode_cuda")
LADDERS = ("part1", "part3", "bonus", "decode")  # PART_look all (tests/mutants/look_rung.cpp)
MARK = "mark_kernel"  # before the kernels of a task or a rung
FILE = paths.OUTPUTS / "reference/counts.csv"
WHY = ("merged", "divided", "hoisted", "read once", "dead", "unrolled", "spilled", "waiting", "zeros",
       "halves")
COLUMNS = ("launch", "kernel", "access", "counter", "emulator", "nsight", "why")

# What Nsight Compute's counters count (with .sum). cp.async is a load and a store, and ldmatrix a
# load. Wavefronts are those of the instructions, without what warps wait for each other or for TMA;
# conflicts are not, so they are compared where a kernel has one warp. No counter has stmatrix.
_SHARED = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
METRICS = {
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld": ("global load", "requests"),
    "l1tex__t_requests_pipe_lsu_mem_global_op_st": ("global store", "requests"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld": ("global load", "sectors"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st": ("global store", "sectors"),
    "smsp__sass_inst_executed_op_shared_ld": ("shared load", "requests"),
    "smsp__sass_inst_executed_op_ldsm": ("shared load", "requests"),
    "smsp__sass_inst_executed_op_shared_st": ("shared store", "requests"),
    "smsp__sass_inst_executed_op_ldgsts": ("shared store", "requests"),
    f"{_SHARED}ld": ("shared load", "wavefronts"), f"{_SHARED}ldsm": ("shared load", "wavefronts"),
    f"{_SHARED}st": ("shared store", "wavefronts"),
    f"{_SHARED}ldgsts": ("shared store", "wavefronts"),
    f"{_SHARED}stsm": ("shared store", "wavefronts"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld": ("shared load", "conflicts"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st": ("shared store", "conflicts"),
    "sm__inst_executed_pipe_tensor_op_gmma": ("wgmma", "instructions"),
    "sm__inst_executed_pipe_tensor_op_hmma": ("mma.sync", "instructions"),
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld": ("TMA load", "bytes"),
    "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st": ("TMA store", "bytes")}

Key = tuple[str, str, str]  # number of the launch, access, counter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nsight", type=Path, metavar="FOLDER",
                        help="take ncu's counts from the files of this folder, written on another "
                             "machine, where the commands are printed")


def run(args: argparse.Namespace) -> int:
    config = build.configured()
    if not config.checked:
        raise LabError("the emulator's counts need its checks, which need g++ on Linux")
    emulated: dict[Key, int] = {}
    nsight: dict[Key, int] = {}
    kernels: dict[str, str] = {}
    for name in (PROGRAM, "tasks", *LADDERS):
        found, launched = emulate(_command(name, CHECKED))
        emulated |= found
        kernels |= launched
        if args.nsight is None and config.cuda == "gpu":
            nsight |= read_nsight(_run_nsight(name), launched)
        elif args.nsight and (file := args.nsight / f"{name}.csv").is_file():
            nsight |= read_nsight(file, launched)
    rows = with_emulator(emulated)
    if nsight:
        why = {_key(row): row["why"] for row in rows}
        counted = {key[0] for key in nsight}
        rows = [row for row in rows if row["launch"] not in counted] + [
            dict(zip(COLUMNS, (key[0], kernels[key[0]], *key[1:], emulated.get(key, 0), count,
                               why.get(key, "")))) for key, count in nsight.items()
            # The counter of mma.sync also counts what is none.
            if emulated.get(key) or (count and key[1] != "mma.sync")]
        with FILE.open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
    else:
        say("no GPU here: Nsight Compute's counts are those of " + str(paths.relative(FILE)))
    return 1 if show(rows) else 0


def _key(row: dict) -> Key:
    return row["launch"], row["access"], row["counter"]


def committed() -> list[dict]:
    with FILE.open(newline="") as file:
        return list(csv.DictReader(file))


def with_emulator(emulated: dict[Key, int]) -> list[dict]:
    """The committed rows with these counts of the emulator."""
    return [row | {"emulator": emulated.get(_key(row), 0)} for row in committed()]


def differs(row: dict) -> bool:
    """Whether the two are over 1 % apart, and the table does not say why."""
    emulator, nsight = int(row["emulator"]), int(row["nsight"])
    return abs(emulator - nsight) > 0.01 * nsight and not row["why"]


def show(rows: list[dict]) -> int:
    """Prints the rows that differ, and returns how many there are."""
    wrong = [row for row in rows if differs(row)]
    table = Table(*COLUMNS[1:])
    for row in wrong:
        table.add_row(*(str(row[column]) for column in COLUMNS[1:]))
    if wrong:
        console.console.print(table)
    equal = sum(int(row["emulator"]) == int(row["nsight"]) for row in rows)
    say(f"{len({row['launch'] for row in rows})} kernels: {equal} of {len(rows)} counts are equal; "
        f"of {len(rows) - equal - len(wrong)} others the table says why they are not")
    return len(wrong)


# ---- the two sides ------------------------------------------------------------------------------


def _command(name: str, backend: str) -> list[Path | str]:
    """What launches the kernels of this name."""
    suffix = "_checked" if backend == CHECKED else ""
    if name in LADDERS:
        return [_program(f"{name}_look{suffix}"), "all"]
    command: list[Path | str] = [_program(PROGRAM + suffix)]
    for task in manifest.select(manifest.load_parts(), TASKS) if name == "tasks" else ():
        for built in checking.build_tasks([task], "solution", Backends(
                build.configured(), CHECKED if backend == CHECKED else "")).values():
            if not built.result.ok:
                raise LabError(built.result.first_error)
        command += [task.name, running.library(task, "solution", backend)]
    return command


def _program(target: str) -> Path:
    if not (built := build.build([target])).ok:
        raise LabError(built.first_error)
    return build.binary(target)


def emulate(command: list[Path | str]) -> tuple[dict[Key, int], dict[str, str]]:
    """The counts, and the kernels by their launch: its number, behind the task or rung if it is
    one's."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counts.tsv"
        ended = console.stream(command, "counting", env={
            counts.VARIABLE: str(file), "FLASH_SIMT_MULTIPROCESSORS": "132"})  # as an H100
        if ended.code:
            raise LabError(f"{PROGRAM} failed: {ended.output}")
        launches = counts.load(file)
    found: dict[Key, int] = {}
    kernels: dict[str, str] = {}
    of, number = "", 0
    for launch in launches:
        if MARK in launch.symbol:
            of, number = f"{launch.kernel}.", 0
            continue
        number += 1
        kernels[f"{of}{number}"] = launch.kernel
        for line in launch.lines:
            for access, counter, value in _counted(line):
                key = f"{of}{number}", access, counter
                found[key] = found.get(key, 0) + value
    return found, kernels


def _counted(line: counts.Line) -> Iterator[tuple[str, str, int]]:
    if line.is_access:
        access = f"{'shared' if line.is_shared else 'global'} {line.what}"
        yield access, "requests", line.requests
        if line.is_shared:
            yield access, "wavefronts", line.wavefronts
            yield access, "conflicts", line.wavefronts - line.least
        else:
            yield access, "sectors", line.sectors
    elif line.what.startswith("TMA"):
        yield line.what, "bytes", line.bytes
    elif line.what == "stmatrix":
        yield "shared store", "requests", -line.requests
    elif line.products:
        name = line.what.partition(" ")[0]
        yield name, "instructions", line.requests * (4 if name == "wgmma" else 1)  # of each warp


def _run_nsight(name: str) -> Path:
    ncu = system.find_ncu()
    if ncu is None:
        raise LabError("there is no ncu (Nsight Compute) in PATH or beside nvcc")
    file = paths.OUTPUTS / f"csv/nsight/{name}.csv"
    disk.check_writable(file.parent)
    command = [ncu, "--clock-control", "none", "--cache-control", "none", "--print-units", "base",
               "--csv", "--metrics", ",".join(f"{name}.sum" for name in METRICS), "--log-file", file,
               *_command(name, GPU)]
    console.print_command(command)
    ended = console.stream(command, "Nsight Compute counts", env=dict(os.environ, LC_ALL="C"))
    if ended.code:
        raise LabError(f"ncu failed: {file.read_text() if file.is_file() else ended.output}")
    return file


def read_nsight(file: Path, launched: Mapping[str, str]) -> dict[Key, int]:
    """`launched`: what the emulator launches in this program."""
    found: dict[Key, int] = {}
    names = iter(dict.fromkeys(name.rpartition(".")[0] for name in launched))
    of, number, seen = "", 0, None
    for row in _rows(file):
        if row["ID"] != seen:
            seen, number = row["ID"], number + 1
            if MARK in row["Kernel Name"]:
                of, number = f"{next(names)}.", 0
        what = METRICS.get(row["Metric Name"].removesuffix(".sum"))
        if number and what and not (of and what[1] == "conflicts"):
            key = f"{of}{number}", *what
            found[key] = found.get(key, 0) + int(float(row["Metric Value"].replace(",", "")))
    if {key[0] for key in found} != launched.keys():
        raise LabError(f"{file} has other launches than the emulator")
    return found


def _rows(file: Path) -> Iterator[dict[str, str]]:
    """What ncu prints before the table begins with ==."""
    lines = file.read_text().splitlines()
    yield from csv.DictReader(line for line in lines if re.match(r'"', line))
