"""`./lab doctor`: what this machine has, each thing proven by using it, and the one-line fix for what it lacks.

Standard library only: it is for a machine on which the rest does not start yet.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab import bootstrap, system
from lab.paths import BUILD, ROOT
from lab.planted import BARRIER, CPP20, DATA_RACE, HEAP_OVERFLOW, KERNEL, NO_BARRIER, SIGNED_OVERFLOW, compile_and_run, emulate
from lab.planted import run as run_command

HELP = "what this machine has, proven by trying it, and the fix for what it lacks"

OLDEST_CMAKE = (3, 21)
OLDEST_CATCH2 = (2, 13)
OLDEST_CUDA = (12, 0)     # the first nvcc with C++20
DISK_GB = 3.0             # .venv, and a build of each preset

@dataclass(frozen=True)
class Finding:
    """What was found out about one thing. `fix` is one line, for what is not `ok`."""

    ok: bool
    text: str
    fix: str = ""


def have(text: str) -> Finding:
    return Finding(True, text)


def lack(text: str, fix: str) -> Finding:
    return Finding(False, text, fix)


@dataclass(frozen=True)
class Check:
    name: str
    required: bool  # without it the CPU parts cannot be built
    look: Callable[[], Finding]
    doing: str = ""  # shown while it works


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    print(f"{_machine()}, {platform.machine()}, {os.cpu_count()} cores\n")
    lacking = []
    for check in CHECKS:
        _print_working(check)
        finding = check.look()
        _print_finding(check, finding)
        if check.required and not finding.ok:
            lacking.append((check, finding))
    print()
    if lacking:
        print(f"Lacking for the CPU parts: {', '.join(check.name for check, _ in lacking)}.")
        needs = system.missing()
        if needs:
            print(f"One command: {system.fix(needs)}")
        return 1
    print("This machine has all that the CPU parts need; without a GPU, CUDA tasks run emulated.")
    return 0


def _machine() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.platform())
    except OSError:  # macOS
        return platform.platform()


def _compiler() -> Finding:
    compiler = system.find_compiler()
    if compiler is None:
        return lack("none found", _fix("a C++ compiler"))
    version = _first_line([compiler, "--version"])
    built = compile_and_run(CPP20, [compiler, "-std=c++20"])
    if built.output != "6":
        trouble = f"{version}: a small C++20 program does not {built.failed_at}"
        return lack(trouble, "GCC 11 or Clang 14, or newer, as c++ or $CXX")
    return have(f"{version}; a C++20 program compiles and runs")


def _cmake() -> Finding:
    return _versioned("cmake", "CMake", OLDEST_CMAKE)


def _ninja() -> Finding:
    return _versioned("ninja", "Ninja", (1, 10))


def _git() -> Finding:
    return _versioned("git", "git", (2, 0))


def _versioned(program: str, need: str, oldest: tuple[int, int]) -> Finding:
    if shutil.which(program) is None:
        return lack("none found", _fix(need))
    line = _first_line([program, "--version"])
    version = _version(line)
    if version < oldest:
        return lack(f"{line}; {_dotted(oldest)} or newer is needed", f"pip install {program}, in a venv that is first in PATH")
    return have(_dotted(version))


def _catch2() -> Finding:
    header = system.find_catch2()
    if header is None:
        return lack("none found", _fix("Catch2"))
    version = catch2_version(header)
    where = f"{_dotted(version)} in {header.parent}"
    if version < OLDEST_CATCH2:
        return lack(f"{where}; {_dotted(OLDEST_CATCH2)} or newer is needed", _fix("Catch2"))
    return have(where)


def catch2_version(header: Path) -> tuple[int, ...]:
    """The version that Catch2's headers state: version 2 in its one header's first lines, version 3 in macros."""
    macros = header.parent / "catch_version_macros.hpp"
    if macros.is_file():
        found = re.findall(r"#define CATCH_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", macros.read_text(errors="replace"))
        return tuple(int(number) for number in found)
    with header.open(errors="replace") as file:
        return _version(file.read(200))


def _python() -> Finding:
    text = f"{platform.python_version()} ({sys.executable})"
    if bootstrap.is_ready() or system.can_make_venv():
        return have(text)
    return lack(f"{text}, without venv", _fix("Python's venv"))


def _packages() -> Finding:
    if not bootstrap.is_ready():
        return lack("no .venv yet", f"any verb, as ./lab list, makes it; without PyPI: {system.fix_python_packages()}")
    code = ("from importlib.metadata import version; import rich, matplotlib; "
            "print('rich', version('rich') + ', matplotlib', version('matplotlib'))")
    result = run_command([str(bootstrap.python()), "-P", "-c", code])
    if result.code == 0:
        return have(f"{result.output} in .venv")
    return lack(f"in .venv: {result.last_line}", system.fix_python_packages())


def _nvcc() -> Finding:
    nvcc = system.find_nvcc()
    if nvcc is None:
        usual = system.CUDA / "bin"
        toolkit = "NVIDIA's CUDA Toolkit 12.0 or newer, its bin folder in PATH"
        fix = f"export PATH={usual}:$PATH" if (usual / "nvcc").is_file() else toolkit
        return lack("no nvcc in PATH; the emulator does without", fix)
    found = re.search(r"release (\d+)\.(\d+)", run_command([nvcc, "--version"]).output)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < OLDEST_CUDA:
        trouble = f"nvcc {_dotted(version)} ({nvcc}); C++20 needs {_dotted(OLDEST_CUDA)}"
        return lack(trouble, "a newer CUDA Toolkit, its bin folder first in PATH")
    built = compile_and_run(KERNEL, [nvcc, "-std=c++20"], suffix=".cu", start=False)
    if built.code != 0:
        return lack(f"nvcc {_dotted(version)}: a small kernel does not compile: {built.last_line}",
                       "a host compiler that this nvcc knows, in $NVCC_CCBIN or $CUDAHOSTCXX")
    return have(f"nvcc {_dotted(version)} ({nvcc}); a C++20 kernel compiles")


def _gpu() -> Finding:
    names = _gpus()
    if not names:
        return lack("none: CUDA tasks are emulated where that works", "a machine with an NVIDIA GPU and its driver")
    nvcc = system.find_nvcc()
    if nvcc is None:
        return have(f"{names}; not tried, for want of nvcc")
    ran = compile_and_run(KERNEL, [nvcc, "-std=c++20", "-arch=native"], suffix=".cu")
    if ran.output != "2":
        fix = "a driver as new as the toolkit: compare nvidia-smi's CUDA version with nvcc's"
        return lack(f"{names}: a small kernel does not {ran.failed_at}: {ran.last_line}", fix)
    return have(f"{names}; a kernel runs")


def _compute_sanitizer() -> Finding:
    nvcc = system.find_nvcc()
    beside = str(Path(nvcc).resolve().parent) if nvcc else ""
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=beside)
    if not program:
        return lack("none found", "it is part of NVIDIA's CUDA Toolkit: put its bin folder in PATH")
    if nvcc is None or not _gpus():
        return have(f"{program}; not tried, for want of {'nvcc' if nvcc is None else 'a GPU'}")
    ran = compile_and_run(KERNEL, [nvcc, "-std=c++20", "-arch=native"], suffix=".cu", before=[program], arguments=["past"])
    if "Invalid __global__" not in ran.output:
        return lack("does not see a planted access out of bounds", "the compute-sanitizer of the same toolkit as nvcc")
    return have("sees a planted access out of bounds")


def _emulator() -> Finding:
    trouble = _no_emulator()
    if trouble:
        return trouble
    if not _emulator_is_built():
        return have(f"{platform.system()} on {platform.machine()}; not tried before it is built (./lab check part1)")
    ran = emulate(BARRIER, system.find_compiler() or "c++", ROOT, BUILD)
    if ran.output != "63":
        return lack(f"a small kernel does not {ran.failed_at}: {ran.last_line}", "rm -r build/default, then ./lab check part1")
    return have("runs a kernel on the CPU")


def _emulator_checks() -> Finding:
    trouble = _no_emulator()
    if trouble:
        return trouble
    compiler = system.find_compiler() or "c++"
    if "__clang__" in run_command([compiler, "-dM", "-E", "-x", "c++", os.devnull]).output:
        return lack(f"need g++, and {compiler} is clang: --check-races and the cases that ask for checks are left out",
                    f"{_fix('a C++ compiler')}; then rm -r build/default and CXX=g++ in front of ./lab")
    if shutil.which("addr2line") is None:
        return lack("their reports come without lines, for want of addr2line", _install("binutils"))
    if not _emulator_is_built():
        return have("g++ and addr2line are there; not tried before they are built (./lab check part1)")
    if _configured("checked") == "FALSE":
        return lack(f"build/default was configured without them, for {_configured('compiler')}",
                    "rm -r build/default, then CXX=g++ ./lab check part1")
    ran = emulate(NO_BARRIER, compiler, ROOT, BUILD, checked=True)
    if "a data race" not in ran.output:
        trouble = ran.last_line if ran.failed_at == "compile" else "no report"
        return lack(f"do not see a planted missing __syncthreads(): {trouble}", "GCC 11 or newer as c++ or $CXX")
    if not re.search(r"planted\.cu:\d", ran.output):
        return lack("see a planted missing __syncthreads(), and not its line", _install("binutils"))
    return have("see a planted missing __syncthreads(), and its line")


def _no_emulator() -> Finding | None:
    """Why there can be no emulator here."""
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        here = f"{platform.system()} on {platform.machine()}"
        return lack(f"{here}: .cu files are left to GPUs", "Linux on x86-64 or AArch64 (WSL too)")
    if system.find_compiler() is None:
        return lack("not tried, for want of a compiler", _fix("a C++ compiler"))
    if _configured("emulated") == "FALSE":
        return lack("build/default was configured without it", "rm -r build/default, then ./lab check part1")
    return None


def _emulator_is_built() -> bool:
    return all((BUILD / "lib" / f"lib{name}.so").is_file() for name in ("flash_common", "flash_simt", "flash_cuda_emulated"))


def _configured(key: str) -> str:
    """What the last configure step found, "" where there was none."""
    try:
        return str(json.loads((BUILD / "config.json").read_text(encoding="utf-8")).get(key, ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _asan() -> Finding:
    return _sanitizer("address", HEAP_OVERFLOW, "AddressSanitizer: heap-buffer-overflow", "heap overflow")


def _ubsan() -> Finding:
    return _sanitizer("undefined", SIGNED_OVERFLOW, "runtime error: signed integer overflow", "signed overflow")


def _tsan() -> Finding:
    finding = _sanitizer("thread", DATA_RACE, "ThreadSanitizer: data race", "data race")
    if not finding.ok and "unexpected memory mapping" in finding.text:
        # Newer kernels randomize addresses with more bits than an older TSan can live with.
        return lack(finding.text, "sudo sysctl vm.mmap_rnd_bits=28")
    return finding


def _sanitizer(kind: str, program: str, report: str, bug: str) -> Finding:
    compiler = system.find_compiler()
    if compiler is None:
        return lack("not tried, for want of a compiler", _fix("a C++ compiler"))
    ran = compile_and_run(program, [compiler, "-std=c++20", "-g", "-pthread", f"-fsanitize={kind}"])
    if report in ran.output:
        return have(f"sees a planted {bug}")
    libraries = {"address": "libasan", "undefined": "libubsan", "thread": "libtsan"}
    if ran.failed_at == "compile":
        return lack(f"does not link: {ran.last_line}", f"{libraries[kind]} of this compiler's version (Debian's g++ brings it)")
    return lack(f"does not see a planted {bug}: {ran.last_line or 'no report'}", "another compiler in $CXX")


def _disk() -> Finding:
    free = shutil.disk_usage(ROOT).free / 1e9
    return Finding(free >= DISK_GB, f"{free:.1f} GB free here", f"{DISK_GB:g} GB for .venv and the builds")


CHECKS = (
    Check("C++ compiler", True, _compiler, "compiling a C++20 program"),
    Check("CMake", True, _cmake),
    Check("Ninja", True, _ninja),
    Check("Catch2", True, _catch2),
    Check("git", True, _git),
    Check("Python", True, _python),
    Check("rich, matplotlib", False, _packages, "importing both"),
    Check("disk", True, _disk),
    Check("ASan", False, _asan, "planting a heap overflow"),
    Check("UBSan", False, _ubsan, "planting a signed overflow"),
    Check("TSan", False, _tsan, "planting a data race"),
    Check("CUDA emulator", False, _emulator, "running a kernel on the CPU"),
    Check("emulator's checks", False, _emulator_checks, "planting a missing barrier"),
    Check("CUDA toolkit", False, _nvcc, "compiling a kernel"),
    Check("GPU", False, _gpu, "running a kernel"),
    Check("compute-sanitizer", False, _compute_sanitizer, "planting an access out of bounds"),
)


def _first_line(argv: list[str]) -> str:
    output = run_command(argv).output
    return output.splitlines()[0] if output else f"{argv[0]} says nothing"


def _version(text: str) -> tuple[int, ...]:
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(number) for number in found[0].split(".")) if found else (0,)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)


def _gpus() -> str:
    """The GPUs' names, "" where there are none. The driver's own tool answers without CUDA."""
    listed = run_command(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    if listed.code != 0:
        return ""
    names = [line.split(", ") for line in listed.output.splitlines() if ", " in line]
    return f"{', '.join(name for name, _ in names)} (driver {names[0][1]})" if names else ""


def _install(package: str) -> str:
    manager = system.package_manager()
    return system.install_command(manager, [package]) if manager else f"install {package}"


def _fix(need: str) -> str:
    return system.fix([each for each in system.NEEDS if each.name == need])


def _print_working(check: Check) -> None:
    if sys.stdout.isatty() and check.doing:
        print(f"   ..    {check.name:<18} {check.doing}", end="", flush=True)


def _print_finding(check: Check, finding: Finding) -> None:
    mark, color = ("ok", 32) if finding.ok else ("LACKS", 31) if check.required else ("none", 33)
    start, end, clear = (f"\033[{color}m", "\033[0m", "\r\033[K") if sys.stdout.isatty() else ("", "", "")
    print(f"{clear}  {start}{mark:<6}{end} {check.name:<18} {finding.text}")
    if not finding.ok:
        print(f"         {'':<18} fix: {finding.fix}", flush=True)
