"""What this machine lacks, and how to install it. Standard library only: it runs before .venv is.

Only apt is ever run; for other package managers the command to type is shown.
"""

import importlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

CUDA = Path("/usr/local/cuda")  # where NVIDIA's packages put the toolkit


def find_compiler() -> str | None:
    """The C++ compiler that CMake would take: $CXX, else c++, g++, clang++."""
    chosen = os.environ.get("CXX")
    names = [chosen] if chosen else ["c++", "g++", "clang++"]
    return next((path for name in names if (path := shutil.which(name))), None)


def find_header(*names: str) -> Path | None:
    """The first of these headers, where CMake would look for packages."""
    words = os.environ.get("CMAKE_PREFIX_PATH", "").replace(";", ":").split(":")
    prefixes = [*filter(None, words), "/usr/local", "/usr", "/opt/homebrew", "/opt/local"]
    headers = (Path(prefix) / "include" / name for prefix in prefixes for name in names)
    return next((header for header in headers if header.is_file()), None)


def find_catch2() -> Path | None:
    return find_header("catch2/catch_all.hpp", "catch2/catch.hpp")  # of version 3, of version 2


def find_cli11() -> Path | None:
    return find_header("CLI/CLI.hpp")


def find_nvcc() -> str | None:
    """nvcc where CMake looks for it: $CUDACXX, else PATH."""
    return shutil.which(os.environ.get("CUDACXX", "nvcc"))


def find_ncu() -> str | None:
    """Nsight Compute's command line: in PATH, else in a CUDA Toolkit's bin folder."""
    folders = [os.environ.get("PATH", os.defpath), CUDA / "bin"]
    if nvcc := find_nvcc():
        folders += [Path(nvcc).parent, Path(nvcc).resolve().parent]
    return shutil.which("ncu", path=os.pathsep.join(map(str, folders)))


def cpuinfo() -> dict[str, str]:
    """What Linux says of the first core; empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in text.split("\n\n", 1)[0].splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def processor() -> str:
    return cpuinfo().get("model name") or platform.processor() or platform.machine()


def can_make_venv() -> bool:
    """Whether this Python can make a virtual environment with pip (Debian packages that apart)."""
    importlib.invalidate_caches()  # apt may just have installed it
    return sys.prefix != sys.base_prefix or all(map(importlib.util.find_spec,
                                                    ("venv", "ensurepip")))


@dataclass(frozen=True)
class Need:
    """What the course is built with: its package for each package manager."""

    name: str
    find: Callable[[], object]
    apt: str
    dnf: str
    pacman: str
    brew: str

    def packages(self, manager: str) -> list[str]:
        name, plus, version = Path(os.environ.get("CXX", "")).name.partition("++")
        if self.find is not find_compiler or name + plus != "clang++":
            return [getattr(self, manager)]
        # clang++-19 comes with clang-19, and its sanitizers in Debian with libclang-rt-19-dev.
        return [name + version, *[f"libclang-rt{version}-dev"] * (manager == "apt")]


NEEDS = (
    Need("a C++ compiler", find_compiler, "g++", "gcc-c++", "gcc", "gcc"),
    Need("CMake", lambda: shutil.which("cmake"), "cmake", "cmake", "cmake", "cmake"),
    Need("Ninja", lambda: shutil.which("ninja"), "ninja-build", "ninja-build", "ninja", "ninja"),
    Need("Catch2", find_catch2, "catch2", "catch-devel", "catch2", "catch2"),
    Need("CLI11", find_cli11, "libcli11-dev", "cli11-devel", "cli11", "cli11"),
    Need("git", lambda: shutil.which("git"), "git", "git", "git", "git"),
    Need("Python's venv", can_make_venv, "python3-venv", "python3", "python", "python"),
)

# What ./lab debug needs.
GDB = Need("gdb", lambda: shutil.which("gdb"), "gdb", "gdb", "gdb", "gdb")

# For the screen and the plots, on a machine that reaches its distribution's packages and not PyPI.
PYTHON_PACKAGES = {
    "apt": ("python3-rich", "python3-matplotlib", "python3-jinja2"),
    "dnf": ("python3-rich", "python3-matplotlib", "python3-jinja2"),
    "pacman": ("python-rich", "python-matplotlib", "python-jinja"),
}

INSTALL = {
    "apt": ("apt-get", "install", "-y", "--no-install-recommends"),
    "dnf": ("dnf", "install", "-y"),
    "pacman": ("pacman", "-S", "--needed", "--noconfirm"),
    "brew": ("brew", "install"),
}

# Keeps debconf and Ubuntu's needrestart from asking: without a keyboard they would wait for ever.
SILENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "a"}


def package_manager() -> str | None:
    return next((name for name, command in INSTALL.items() if shutil.which(command[0])), None)


def is_root() -> bool:
    return os.geteuid() == 0


def install_command(manager: str, packages: Iterable[str]) -> str:
    """What a person types to install `packages`, with sudo where it is needed and installed."""
    needs_root = manager != "brew" and not is_root()
    sudo = "sudo " if needs_root and shutil.which("sudo") else ""
    update = f"{sudo}apt-get update && " if manager == "apt" else ""
    command = f"{update}{sudo}{shlex.join([*INSTALL[manager], *packages])}"
    return f"as root: {command}" if needs_root and not sudo else command


def missing() -> list[Need]:
    return [need for need in NEEDS if not need.find()]


def _packages(manager: str, needs: Iterable[Need]) -> list[str]:
    return [package for need in needs for package in need.packages(manager)]


def names_of(needs: Iterable[Need]) -> str:
    return ", ".join(need.name for need in needs)


def fix(needs: Sequence[Need]) -> str:
    manager = package_manager()
    if manager is None:
        return f"install {names_of(needs)} with this machine's package manager"
    return install_command(manager, _packages(manager, needs))


def fix_python_packages() -> str:
    if packages := PYTHON_PACKAGES.get(manager := package_manager()):
        return install_command(manager, packages)
    return "python3 -m pip install rich matplotlib jinja2"


def ensure(yes: bool = False) -> None:
    """Installs what is missing, with apt's output on the screen. Root installs at once; others are
    asked first, and `yes` answers. LabError, with the command to type, where something stays
    missing."""
    needs = missing()
    if not needs:
        return
    lacks = f"this machine lacks {names_of(needs)}"
    if package_manager() != "apt":
        raise LabError(f"{lacks}; to install: {fix(needs)}")
    command = fix(needs)
    if not is_root():
        if shutil.which("sudo") is None or not (yes or sys.stdin.isatty()):
            raise LabError(f"{lacks}; to install: {command}")
        if not yes and not agreed(f"{lacks}.\n  {command}\nInstall now? [y/N] "):
            raise LabError(f"{lacks}; to install it later: {command}")
    sudo = [] if is_root() else ["sudo", "env"]
    for step in (["apt-get", "update"], [*INSTALL["apt"], *_packages("apt", needs)]):
        print(f"$ {shlex.join([*sudo[:1], *step])}", flush=True)
        # sudo drops the environment, hence env.
        settings = [f"{name}={value}" for name, value in SILENT.items()] if sudo else []
        # A new machine often updates itself when it starts, and holds dpkg's lock: wait for it.
        options = ["-o", "DPkg::Lock::Timeout=120", *([] if sys.stdout.isatty() else ["-q"])]
        code = subprocess.run([*sudo, *settings, *step, *options], env=os.environ | SILENT,
                              stdin=None if sudo else subprocess.DEVNULL).returncode
        # A failed update is no reason to stop: one unreachable source among several makes it fail.
        if code != 0 and "install" in step:
            raise LabError(f"apt-get could not install {' '.join(step[4:])}: see its message "
                           f"above, then: {command}")
    if still := missing():
        raise LabError(f"still missing after apt: {names_of(still)}; ./lab doctor says more")


def agreed(question: str) -> bool:
    print(question, end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
