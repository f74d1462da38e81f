"""`./lab counts`: what the emulator counts, beside what Nsight Compute counts of the same kernels.

A count that differs because nvcc merges, hoists, drops or unrolls accesses gets that word in the
column `why` of the table, by hand.
"""

import argparse
import csv
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from lab import build, console, counts, derive, grading, manifest, paths, running, system
from lab.backends import CHECKED, GPU, Backends
from lab.console import say
from lab.errors import LabError

HELP = "compare what the emulator counts with Nsight Compute, access by access"

PROGRAM = "emulator_counts"  # tests/emulator/counts
TASKS = ("part1.fused_cuda", "part3.flash_forward_cuda")  # whose kernels it launches, too
FILE = paths.OUTPUTS / "reference/counts.csv"
COLUMNS = ("launch", "kernel", "access", "counter", "emulator", "nsight", "why")

# A request to shared memory is an instruction of a warp.
NSIGHT = {("global", "requests"): "l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum",
          ("global", "sectors"): "l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum",
          ("shared", "requests"): "smsp__sass_inst_executed_op_shared_{op}.sum",
          ("shared", "wavefronts"): "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum",
          ("shared", "conflicts"): "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"}
METRICS = {metric.format(op=op): (f"{space} {what}", counter)
           for (space, counter), metric in NSIGHT.items()
           for op, what in (("ld", "load"), ("st", "store"))}

Key = tuple[str, str, str]  # number of the launch, access, counter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nsight", type=Path, metavar="CSV",
                        help="take ncu's counts from this file, written on another machine; its "
                             "command is printed there")


def run(args: argparse.Namespace) -> int:
    config = build.configured()
    if not config.checked:
        raise LabError("the emulator's counts need its checks, which need g++ on Linux")
    emulated, kernels = emulate([_program(f"{PROGRAM}_checked"), *_libraries(CHECKED)])
    if args.nsight or config.cuda == "gpu":
        nsight = read_nsight(args.nsight or _run_nsight())
        launches = {launch for launch, _, _ in nsight}
        if launches != set(kernels):
            raise LabError(f"Nsight Compute has {len(launches)} launches, and the emulator "
                           f"{len(kernels)}: they are not of the same program")
        rows = [dict(zip(COLUMNS, (key[0], kernels[key[0]], *key[1:], emulated.get(key, 0), count,
                                   ""))) for key, count in nsight.items()
                if count or emulated.get(key)]
        why = {_key(row): row["why"] for row in committed()} if FILE.is_file() else {}
        for row in rows:
            row["why"] = why.get(_key(row), "")
        with FILE.open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
    else:
        say("no GPU here: Nsight Compute's counts are those of " + str(paths.relative(FILE)))
        rows = with_emulator(emulated)
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
    """Whether the two do not count the same, and the table does not say why."""
    return int(row["emulator"]) != int(row["nsight"]) and not row["why"]


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


def _libraries(backend: str) -> list[Path]:
    tasks = [manifest.select(manifest.load_parts(), [name])[0] for name in TASKS]
    for built in grading.build_tasks(tasks, "solution", Backends(
            build.configured(), CHECKED if backend == CHECKED else "")).values():
        if not built.result.ok:
            raise LabError(built.result.first_error)
    return [running.library(task, "solution", backend) for task in tasks]


def _program(target: str) -> Path:
    if not (built := build.build([target])).ok:
        raise LabError(built.first_error)
    return build.binary(target)


def emulate(command: list[Path]) -> tuple[dict[Key, int], dict[str, str]]:
    """The counts, and the kernels by their launch."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counts.tsv"
        ended = console.stream(command, "counting", env={counts.VARIABLE: str(file)})
        if ended.code:
            raise LabError(f"{PROGRAM} failed: {ended.output}")
        launches = counts.load(file)
    found: dict[Key, int] = {}
    for number, launch in enumerate(launches, 1):
        for line in launch.lines:
            if line.what not in ("load", "store"):
                continue
            values = {"requests": line.requests}
            if line.is_shared:
                values |= {"wavefronts": line.wavefronts, "conflicts": line.wavefronts - line.least}
            else:
                values["sectors"] = line.sectors
            for counter, value in values.items():
                space = "shared" if line.is_shared else "global"
                key = str(number), f"{space} {line.what}", counter
                found[key] = found.get(key, 0) + value
    return found, {str(n): launch.kernel for n, launch in enumerate(launches, 1)}


def _run_nsight() -> Path:
    ncu = system.find_ncu()
    if ncu is None:
        raise LabError("there is no ncu (Nsight Compute) in PATH or beside nvcc")
    file = paths.OUTPUTS / "csv/nsight_counts.csv"
    derive.check_writable(file.parent)
    command = [ncu, "--clock-control", "none", "--cache-control", "none", "--print-units", "base",
               "--csv", "--metrics", ",".join(METRICS), "--log-file", file, _program(PROGRAM),
               *_libraries(GPU)]
    console.print_command(command)
    ended = console.stream(command, "Nsight Compute counts", env=dict(os.environ, LC_ALL="C"))
    if ended.code:
        raise LabError(f"ncu failed: {file.read_text() if file.is_file() else ended.output}")
    return file


def read_nsight(file: Path) -> dict[Key, int]:
    found = {}
    for row in _rows(file):
        if (what := METRICS.get(row["Metric Name"])) is None:
            continue
        found[str(int(row["ID"]) + 1), *what] = int(float(row["Metric Value"].replace(",", "")))
    if not found:
        raise LabError(f"{file} has no counts of Nsight Compute")
    return dict(sorted(found.items(), key=lambda item: int(item[0][0])))


def _rows(file: Path) -> Iterator[dict[str, str]]:
    """What ncu prints before the table begins with ==."""
    lines = file.read_text().splitlines()
    yield from csv.DictReader(line for line in lines if re.match(r'"', line))
