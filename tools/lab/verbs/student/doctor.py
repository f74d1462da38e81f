"""`./lab doctor`: runs every tool that the course needs, and prints the fix for what is missing.

Standard library only: it is for a machine on which the rest does not start yet.
"""

import argparse
import contextlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab import bootstrap, system
from lab.paths import ROOT
from lab.planted import CPP20, HEAP_OVERFLOW, KERNEL, SIGNED_OVERFLOW, compile_and_run
from lab.planted import run as run_command

HELP = "run every tool that the course needs, and show the fix for what is missing"

OLDEST_CMAKE = (3, 21)
OLDEST_CUDA = (12, 0)     # the first nvcc with C++20
DISK_GB = 3.0             # .venv, and a build of each preset


class Lack(Exception):
    """What is missing, and the fix, one line each."""


@dataclass(frozen=True)
class Check:
    name: str
    required: bool  # without it the CPU parts cannot be built
    look: Callable[[], str]  # what is there, or Lack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    machine = platform.platform()
    with contextlib.suppress(OSError, KeyError):  # macOS has no such file
        machine = platform.freedesktop_os_release()["PRETTY_NAME"]
    print(f"{machine}, {platform.machine()}, {os.cpu_count()} cores\n")
    lacking = []
    for check in CHECKS:
        if sys.stdout.isatty():
            print(f"  ...    {check.name}", end="", flush=True)
        lacking += [check.name] * (not _is_there(check) and check.required)
    print()
    if lacking:
        print(f"The CPU parts need what is missing here: {', '.join(lacking)}.")
        if needs := system.missing():
            print(f"One command installs it: {system.fix(needs)}")
        return 1
    print("This machine has all that the CPU parts need. Without a GPU, CUDA tasks run emulated.")
    return 0


def _is_there(check: Check) -> bool:
    """Prints what was found."""
    try:
        text, fix, mark, color = check.look(), "", "ok", 32
    except Lack as lack:
        text, fix = lack.args
        mark, color = ("LACKS", 31) if check.required else ("none", 33)
    colored = f"\r\033[K  \033[{color}m{mark:<6}\033[0m" if sys.stdout.isatty() else f"  {mark:<6}"
    print(f"{colored} {check.name:<18} {text}")
    if fix:
        print(f"{'':28}fix: {fix}", flush=True)
    return not fix


def _compiler() -> str:
    compiler = _found("a C++ compiler")
    version = _first_line([compiler, "--version"])
    built = compile_and_run(CPP20, [compiler, "-std=c++20"])
    if built.output != "6":
        raise Lack(f"{version}: a small C++20 program does not {built.failed_at}",
                   "install GCC 11, Clang 14 or newer, as c++ or named by $CXX")
    return f"{version}; a C++20 program compiles and runs"


def _need(name: str) -> str:
    found = _found(name)
    text = f"in {found.parent}" if isinstance(found, Path) else _first_line([found, "--version"])
    if name == "CMake" and _version(text) < OLDEST_CMAKE:  # it has no presets, and no clue
        raise Lack(f"{text}; {_dotted(OLDEST_CMAKE)} or newer is needed",
                   "pip install cmake, in a venv that is first in PATH")
    return text


def _python() -> str:
    text = f"{platform.python_version()} ({sys.executable})"
    if bootstrap.is_ready() or system.can_make_venv():
        return text
    raise Lack(f"{text}, without venv", _fix("Python's venv"))


def _packages() -> str:
    if not bootstrap.is_ready():
        raise Lack("no .venv yet", "any verb makes it, for example ./lab list; without PyPI: "
                   + system.fix_python_packages())
    code = ("from importlib.metadata import version; import rich, matplotlib; "
            "print('rich', version('rich') + ', matplotlib', version('matplotlib'))")
    result = run_command([str(bootstrap.python()), "-P", "-c", code])
    if result.code == 0:
        return f"{result.output} in .venv"
    raise Lack(f"in .venv: {result.last_line}", system.fix_python_packages())


def _disk() -> str:
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < DISK_GB:
        raise Lack(f"{free:.1f} GB free here", f"free {DISK_GB:g} GB for .venv and the builds")
    return f"{free:.1f} GB free here"


def _nvcc() -> str:
    nvcc = system.find_nvcc()
    if nvcc is None:
        usual = system.CUDA / "bin"
        fix = (f"export PATH={usual}:$PATH" if (usual / "nvcc").is_file()
               else "install NVIDIA's CUDA Toolkit 12.0 or newer, and put its bin folder in PATH")
        raise Lack("no nvcc in PATH; the emulator does not need it", fix)
    version = _version(run_command([nvcc, "--version"]).output.partition("release ")[2])
    shown = f"nvcc {_dotted(version)}"
    if version < OLDEST_CUDA:
        raise Lack(f"{shown} ({nvcc}); C++20 needs {_dotted(OLDEST_CUDA)}",
                   "install a newer CUDA Toolkit, and put its bin folder first in PATH")
    built = compile_and_run(KERNEL, [nvcc, "-std=c++20"], suffix=".cu", start=False)
    if built.code != 0:
        raise Lack(f"{shown}: a small kernel does not compile: {built.last_line}",
                   "name a host compiler that this nvcc supports in $NVCC_CCBIN or $CUDAHOSTCXX")
    return f"{shown} ({nvcc}); a C++20 kernel compiles"


def _gpu() -> str:
    names, nvcc = _gpus(), system.find_nvcc()
    if not names:
        raise Lack("none: CUDA tasks are emulated where that works",
                   "use a machine with an NVIDIA GPU and its driver")
    if nvcc is None:
        return f"{names}; not tried, because there is no nvcc"
    ran = compile_and_run(KERNEL, [nvcc, "-std=c++20", "-arch=native"], suffix=".cu")
    if ran.output != "2":
        raise Lack(f"{names}: a small kernel does not {ran.failed_at}: {ran.last_line}",
                   "install a driver as new as the toolkit: compare nvidia-smi's CUDA version "
                   "with nvcc's")
    return f"{names}; a kernel runs"


def _emulator() -> str:
    where = f"{platform.system()} on {platform.machine()}"
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        raise Lack(f"{where}: .cu files can run only on a GPU",
                   "use Linux on x86-64 or AArch64 (WSL too)")
    return f"{where}; ./lab check part1 builds it and runs kernels on it"


def _emulator_checks() -> str:
    compiler = _found("a C++ compiler")
    if "__clang__" in run_command([compiler, "-dM", "-E", "-x", "c++", os.devnull]).output:
        raise Lack(f"they need g++, and {compiler} is clang: --check-races and the cases that "
                   f"need the checks are left out", "install g++, then "
                   "rm -r build/default and CXX=g++ ./lab check part1")
    header = run_command([compiler, "-print-file-name=include/backtrace.h"]).output
    if not Path(header).is_file():  # common/CMakeLists.txt asks the same
        raise Lack("their reports have no line numbers, because g++ came without libbacktrace",
                   "use a g++ that brings it, as Debian's and Ubuntu's do")
    return "g++ and its libbacktrace found"


def _sanitizer(kind: str, program: str, bug: str, report: str) -> str:
    compiler = _found("a C++ compiler")
    ran = compile_and_run(program, [compiler, "-std=c++20", "-g", f"-fsanitize={kind}"])
    if report in ran.output:
        return f"finds a planted {bug}"
    if ran.failed_at == "compile":
        library = {"address": "libasan", "undefined": "libubsan"}[kind]
        raise Lack(f"does not link: {ran.last_line}",
                   f"install {library} of this compiler's version (in Debian it comes with g++, "
                   "and clang's with libclang-rt-dev)")
    raise Lack(f"does not find a planted {bug}: {ran.last_line or 'no report'}",
                "name another compiler in $CXX")


def _gdb() -> str:
    if not system.GDB.find():
        raise Lack("none found: ./lab debug needs it", system.fix([system.GDB]))
    if run_command(["gdb", "-batch", "-ex", "python print(6)"]).output != "6":
        raise Lack("it has no Python, which ./lab debug needs", system.fix([system.GDB]))
    return _first_line(["gdb", "--version"])


CHECKS = (
    Check("C++ compiler", True, _compiler),
    # The compiler and Python's venv have checks of their own.
    *(Check(need.name, True, lambda need=need: _need(need.name)) for need in system.NEEDS[1:-1]),
    Check("Python", True, _python),
    Check("rich, matplotlib", False, _packages),
    Check("disk", True, _disk),
    Check("ASan", False, lambda: _sanitizer(
        "address", HEAP_OVERFLOW, "heap overflow", "AddressSanitizer: heap-buffer-overflow")),
    Check("UBSan", False, lambda: _sanitizer(
        "undefined", SIGNED_OVERFLOW, "signed overflow", "runtime error: signed integer overflow")),
    Check("gdb", False, _gdb),
    Check("CUDA emulator", False, _emulator),
    Check("emulator's checks", False, _emulator_checks),
    Check("CUDA toolkit", False, _nvcc),
    Check("GPU", False, _gpu),
)


def _first_line(argv: list[str]) -> str:
    output = run_command(argv).output
    return output.splitlines()[0] if output else f"{argv[0]} prints nothing"


def _version(text: str) -> tuple[int, ...]:
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, found[0].split("."))) if found else (0,)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _gpus() -> str:
    """The GPUs' names, "" where there are none. nvidia-smi comes with the driver, without CUDA."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    listed = run_command(query)
    names = [line.split(", ") for line in listed.output.splitlines() if ", " in line]
    if listed.code or not names:
        return ""
    return f"{', '.join(name for name, _ in names)} (driver {names[0][1]})"


def _found(name: str) -> str | Path:
    need, = (each for each in system.NEEDS if each.name == name)
    if found := need.find():
        return found
    raise Lack(f"no {name.removeprefix('a ')} found", _fix(name))


def _fix(name: str) -> str:
    return system.fix([each for each in system.NEEDS if each.name == name])
