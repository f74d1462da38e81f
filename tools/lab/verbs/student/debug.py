"""`./lab debug`: gdb at the first line of the student's function, or of the kernel in one thread.

The task's judge starts gdb with a runner, and a library that is compiled for a debugger
(flash_variant() in cmake/FlashTargets.cmake). Kernels are always emulated.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from lab import build, console, manifest, paths, running, system
from lab.backends import CPU, EMULATED
from lab.errors import LabError
from lab.manifest import Task
from lab.verbs.student import check

HELP = "gdb in your function, or in one thread of your kernel"

SCRIPT = paths.REPOSITORY / "tools/lab/in_gdb.py"
MOST_THREADS = 1024  # of a block

Place = tuple[int, int, int]  # of a block or thread: x, y, z


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TASK", help="fused_cpu, part1.fused_cpu or 1.A")
    parser.add_argument("--case", metavar="NAME", help="the case to run (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the inputs (default: 1)")
    parser.add_argument("--block", type=_place, metavar="B",
                        help="of a kernel, the block to stop in: 3, or 3,0,1 (default: 0)")
    parser.add_argument("--thread", type=_place, metavar="T",
                        help="and the thread: 37, or 5,1,0 (default: 0)")
    parser.add_argument("--solution", action="store_true",
                        help="the reference solution instead of the skeleton")
    parser.options_example = "./lab debug fused_cpu -- -ex 'info locals'; gdb --help lists all"


def _place(text: str) -> Place:
    if not re.fullmatch(r"\d{1,9}(,\d{1,9}){0,2}", text):
        raise argparse.ArgumentTypeError(f"it is '{text}'; it must be x, x,y or x,y,z")
    x, y, z, *_ = *map(int, text.split(",")), 0, 0
    return x, y, z


def run(args: argparse.Namespace) -> int:
    task = manifest.select_one(manifest.load_parts(), args.name, "debug")
    kind = "solution" if args.solution else "skeleton"
    if not task.is_cuda and (args.block or args.thread):
        option = "--block" if args.block else "--thread"
        raise LabError(f"{option} is for kernels, and {task.name} is C++: leave it out")
    if args.thread and max(args.thread) >= MOST_THREADS:
        raise LabError(f"--thread is {','.join(map(str, args.thread))}; a block has at most "
                       f"{MOST_THREADS} threads")
    if not system.GDB.find():
        raise LabError(f"gdb is not installed; to install it: {system.fix([system.GDB])}")
    config = build.configured()
    if task.is_cuda and not config.emulated:
        raise LabError(f"./lab debug runs kernels emulated, and {task.name} cannot be emulated "
                       "here; on a GPU use NVIDIA's cuda-gdb")
    if args.case is not None:
        check.tasks_with([task], args.case, kind, check.choose(config, emulate=task.is_cuda))
        if args.case.startswith("checks: "):
            raise LabError(f'"{args.case}" runs with the emulator\'s checks only, which gdb cannot '
                           "follow: take another case")
    backend = _backend(task)
    targets = [f"{task.target(kind, backend)}_debug", running.judge_of(task),
               running.runner_of(backend)]
    if not (built := build.build(targets)).ok:
        raise LabError(f"{task.name} does not compile: {built.first_error}")
    return console.foreground(command(
        task, kind, args.case, args.seed, args.block or (0, 0, 0), args.thread or (0, 0, 0),
        options=args.options))


def _backend(task: Task) -> str:
    return EMULATED if task.is_cuda else CPU


def library(task: Task, kind: str, folder: Path = paths.BUILD) -> Path:
    return running.library(task, kind, _backend(task), folder / "lib/debug")


def command(task: Task, kind: str, case: str | None, seed: int, block: Place, thread: Place, *,
            folder: Path = paths.BUILD, options: Sequence[str] = ()) -> list[str | Path]:
    """The judge, whose runner is started by gdb and stopped at the first line. Breakpoints wait
    for the library, which the runner loads."""
    condition = ""
    functions = kernels(task.path(kind).read_text()) if task.is_cuda else []
    if functions:
        parts = [f"flash_simt_{name}.{axis} == {number}"
                 for name, place in (("threadIdx", thread), ("blockIdx", block))
                 for axis, number in zip("xyz", place)]
        condition = f" if {' && '.join(parts)}"
    functions = functions or functions_of(task, kind)
    breaks = [f"tbreak {task.file}:{function}{condition}" for function in functions]
    steps = ["set debuginfod enabled off", "set disable-randomization off",
             "set environment FLASH_SIMT_THREADS 1",  # the same order each time
             "set breakpoint pending on", "tbreak main", "run", *breaks, "continue"]
    path = library(task, kind, folder)
    gdb = ["gdb", "-q", "-x", SCRIPT, *[word for step in steps for word in ("-ex", step)],
           *options, "--args", folder / "bin" / running.runner_of(_backend(task)), path]
    return [folder / "bin" / running.judge_of(task), "--task", task.id, "--library", path,
            "--attended", "--seed", str(seed), *(["--case", case] if case else []),
            "--", *gdb]


def kernels(source: str) -> list[str]:
    """The names of the kernels that a .cu file defines: the last word of a head without all that is
    in parentheses, the bounds of its launch and its parameters."""
    names = []
    for head in re.findall(r"__global__([^;{]*)\{", re.sub(r"//.*", "", source)):
        count = 1
        while count:
            head, count = re.subn(r"\([^()]*\)", "", head)
        names.append(re.findall(r"\w+", head)[-1])
    return names


def functions_of(task: Task, kind: str) -> list[str]:
    """The contract's functions that a task's file defines: those that the contract's headers give
    to the structs of functions."""
    source = task.path(kind).read_text()
    given = {name for header in task.folder.glob("*.hpp")
             for name in re.findall(r"=\s*flash::(\w+)", header.read_text())}
    defined = re.findall(r"^(?:[\w:<>]+ )+(\w+)\(", source, re.MULTILINE)
    return [f"flash::{name}" for name in dict.fromkeys(defined) if name in given]
