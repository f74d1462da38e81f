"""What this machine has and lacks, and how to install it. Standard library only: it runs before there is a .venv.

NEEDS is the one list of what building the course takes, with each thing's package in every package manager that is known.
Only apt is ever run; for the others the command to type is shown.
"""

import importlib
import importlib.util
import os
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


def find_catch2() -> Path | None:
    """Catch2's header, of version 2 or 3, where CMake would look for the package."""
    prefixes = [Path(word) for word in os.environ.get("CMAKE_PREFIX_PATH", "").replace(";", ":").split(":") if word]
    prefixes += [Path("/usr/local"), Path("/usr"), Path("/opt/homebrew"), Path("/opt/local")]
    headers = [prefix / "include" / "catch2" / name for prefix in prefixes for name in ("catch_all.hpp", "catch.hpp")]
    return next((header for header in headers if header.is_file()), None)


def find_nvcc() -> str | None:
    """nvcc where CMake looks for it: $CUDACXX, else PATH."""
    return shutil.which(os.environ.get("CUDACXX", "nvcc"))


def find_ncu() -> str | None:
    """Nsight Compute's command line: in PATH, else in the bin folder of a CUDA Toolkit, which is often not in PATH."""
    folders = [CUDA / "bin"]
    if os.environ.get("CUDA_HOME"):
        folders.append(Path(os.environ["CUDA_HOME"]) / "bin")
    nvcc = find_nvcc()
    if nvcc is not None:
        folders += [Path(nvcc).parent, Path(nvcc).resolve().parent]
    return next((path for where in (None, *map(str, folders)) if (path := shutil.which("ncu", path=where))), None)


def can_make_venv() -> bool:
    """Whether this Python can make a virtual environment with pip in it (Debian packs that apart), or is in one already."""
    importlib.invalidate_caches()  # apt may just have installed it
    return sys.prefix != sys.base_prefix or all(
        importlib.util.find_spec(module) is not None for module in ("venv", "ensurepip"))


@dataclass(frozen=True)
class Need:
    """One thing that the course is built with, and its package in each package manager."""

    name: str
    present: Callable[[], bool]
    apt: str
    dnf: str
    pacman: str
    brew: str

    def package(self, manager: str) -> str:
        return getattr(self, manager)


NEEDS = (
    Need("a C++ compiler", lambda: find_compiler() is not None, "g++", "gcc-c++", "gcc", "gcc"),
    Need("CMake", lambda: shutil.which("cmake") is not None, "cmake", "cmake", "cmake", "cmake"),
    Need("Ninja", lambda: shutil.which("ninja") is not None, "ninja-build", "ninja-build", "ninja", "ninja"),
    Need("Catch2", lambda: find_catch2() is not None, "catch2", "catch-devel", "catch2", "catch2"),
    Need("git", lambda: shutil.which("git") is not None, "git", "git", "git", "git"),
    Need("Python's venv", can_make_venv, "python3-venv", "python3", "python", "python"),
)

# What the screen and the plots need, for a machine that reaches its distribution's packages and not PyPI.
PYTHON_PACKAGES = {
    "apt": ("python3-rich", "python3-matplotlib"),
    "dnf": ("python3-rich", "python3-matplotlib"),
    "pacman": ("python-rich", "python-matplotlib"),
}

INSTALL = {
    "apt": ("apt-get", "install", "-y", "--no-install-recommends"),
    "dnf": ("dnf", "install", "-y"),
    "pacman": ("pacman", "-S", "--needed", "--noconfirm"),
    "brew": ("brew", "install"),
}

# Keeps debconf, and Ubuntu's needrestart, from asking: that would wait for ever where there is no keyboard.
SILENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "a"}


def package_manager() -> str | None:
    """The first package manager found: "apt", "dnf", "pacman" or "brew"; None where there is none that is known."""
    return next((manager for manager, command in INSTALL.items() if shutil.which(command[0])), None)


def is_root() -> bool:
    return os.geteuid() == 0


def install_command(manager: str, packages: Iterable[str]) -> str:
    """What a person types to install `packages`, with sudo where that is needed and there."""
    needs_root = manager != "brew" and not is_root()
    has_sudo = shutil.which("sudo") is not None
    elevate = "sudo " if needs_root and has_sudo else ""
    update = f"{elevate}apt-get update && " if manager == "apt" else ""
    command = f"{update}{elevate}{shlex.join([*INSTALL[manager], *packages])}"
    return f"as root: {command}" if needs_root and not has_sudo else command


def missing() -> list[Need]:
    """What this machine lacks to build the course."""
    return [need for need in NEEDS if not need.present()]


def fix(needs: Sequence[Need]) -> str:
    """The one line that installs `needs` on this machine."""
    manager = package_manager()
    if manager is None:
        return f"install {', '.join(need.name for need in needs)} with this machine's package manager"
    return install_command(manager, [need.package(manager) for need in needs])


def fix_python_packages() -> str:
    """The one line that gives this machine's own Python the packages that `lab` needs."""
    manager = package_manager()
    packages = PYTHON_PACKAGES.get(manager or "")
    return install_command(manager, packages) if manager and packages else "python3 -m pip install rich matplotlib"


def ensure(yes: bool = False) -> None:
    """Installs what is missing, after asking when it needs root. LabError, with the command to type, when something is still
    missing at the end. `yes` answers the question beforehand. Costs a few looks at files when nothing is missing."""
    needs = missing()
    if not needs:
        return
    names = ", ".join(need.name for need in needs)
    if package_manager() != "apt":
        raise LabError(f"this machine lacks {names}; to install: {fix(needs)}")
    apt_install([need.apt for need in needs], f"this machine lacks {names}", yes)
    still = missing()
    if still:
        raise LabError(f"still missing after apt: {', '.join(need.name for need in still)}; ./lab doctor says more")


def apt_install(packages: Sequence[str], reason: str, yes: bool = False) -> None:
    """`apt-get update` and `apt-get install`, with their output on the screen. Root installs at once; others are asked
    first, and where nobody can be asked the command is in the LabError."""
    command = install_command("apt", packages)
    if not is_root():
        if shutil.which("sudo") is None or not (yes or sys.stdin.isatty()):
            raise LabError(f"{reason}; to install: {command}")
        if not yes and not _agreed(f"{reason}.\n  {command}\nInstall now? [y/N] "):
            raise LabError(f"{reason}; when you want it: {command}")
    elevate = [] if is_root() else ["sudo", "env"]
    for step in (["apt-get", "update"], [*INSTALL["apt"], *packages]):
        print(f"$ {shlex.join([*elevate[:1], *step])}", flush=True)
        # sudo drops the environment, hence env.
        settings = [f"{name}={value}" for name, value in SILENT.items()] if elevate else []
        # A new machine often updates itself when it starts, and holds dpkg's lock: wait for it. -q leaves out the bars.
        options = ["-o", "DPkg::Lock::Timeout=120", *([] if sys.stdout.isatty() else ["-q"])]
        code = subprocess.run([*elevate, *settings, *step, *options], env=os.environ | SILENT,
                              stdin=None if elevate else subprocess.DEVNULL).returncode
        # A failed update is not the end: one unreachable source among several fails it, and the packages may be there.
        if code != 0 and "install" in step:
            raise LabError(f"apt-get could not install {' '.join(packages)}: see its message above, then: {command}")


def _agreed(question: str) -> bool:
    print(question, end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
