"""What `./lab` runs first: makes .venv with the machine's Python, then runs `python -m lab` there.

Standard library only. .venv holds the pins of tools/requirements.txt; where PyPI cannot be reached,
it sees the packages of a system Python that has rich. A stamp in it says for which pins and which
Python it was made; without the right stamp, or without rich, it is made anew.
"""

import fcntl
import os
import shlex
import subprocess
import sys
from pathlib import Path

from lab import main, system
from lab.errors import LabError
from lab.paths import REPOSITORY

VENV = REPOSITORY / ".venv"
PINS = REPOSITORY / "tools" / "requirements.txt"
LOCK = REPOSITORY / ".lab" / "setup.lock"

# pip gives up on a network that does not answer after (1 + RETRIES) * TIMEOUT seconds.
RETRIES, TIMEOUT = 2, 20
# How pip says that there is no network.
OFFLINE = ("Name or service not known", "Temporary failure in name resolution", "timed out",
           "Network is unreachable", "Connection refused", "Cannot connect to proxy")


def start(argv: list[str]) -> int:
    verb = argv[0] if argv else ""
    if verb == "doctor" or verb not in main.verbs():
        return main.main(argv)
    if not is_ready() and {"-h", "--help"} & set(argv):
        print(f"./lab {verb}: {main.help_of(verb)}\n"
              "(./lab can list the arguments once it is set up; any verb sets it up)")
        return 0
    try:
        make_ready(yes="--yes" in argv)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nlab: interrupted", file=sys.stderr)
        return 130
    sys.stdout.flush()
    # As `activate` does it: CMake's FindPython3 and tests started by ctest take this Python too.
    path = f"{VENV / 'bin'}:{os.environ.get('PATH', os.defpath)}"
    os.execve(python(), [str(python()), "-P", "-m", "lab", *argv],
              os.environ | {"VIRTUAL_ENV": str(VENV), "PATH": path})


def python() -> Path:
    return VENV / "bin" / "python"


def stamp() -> str:
    # An upgrade of the system's Python breaks .venv.
    return f"{python().resolve()}\n{PINS.read_text()}"


def is_ready() -> bool:
    try:
        has_rich = any(VENV.glob("lib/python*/site-packages/rich")) or any(
            VENV.glob("lib/python*/site-packages/lab-system-packages.pth"))
        return python().exists() and has_rich and (VENV / "lab-stamp").read_text() == stamp()
    except OSError:
        return False


def make_ready(yes: bool = False) -> None:
    """Makes .venv if needed. LabError, with the fix, where neither PyPI nor the system has rich."""
    if is_ready():
        return
    try:
        LOCK.parent.mkdir(exist_ok=True)
        with LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of two ./lab at once, the second waits for the first
            if not is_ready():
                _make(yes)
                (VENV / "lab-stamp").write_text(stamp())
    except OSError as error:
        raise LabError(f"cannot make {VENV}: {error}") from error


def _make(yes: bool) -> None:
    try:
        if not system.can_make_venv():
            system.ensure(yes)
        _from_pypi()
        return
    except LabError as error:
        trouble = str(error)
    if not _from_system():
        raise LabError(f"{trouble}; without PyPI: {system.fix_python_packages()}")
    print(f"{trouble}; .venv uses the system's own packages")


def _from_pypi() -> None:
    """About 150 MB."""
    print("setting up .venv (tools/requirements.txt): takes about 20 s", flush=True)
    install(VENV, PINS)


def install(folder: Path, pins: Path) -> None:
    """Makes a virtual environment in `folder` with the packages that the file `pins` lists."""
    _run([sys.executable, "-m", "venv", "--clear", folder], f"making {folder.name}")
    # Building numpy and matplotlib takes longer than all else that ./lab does; byte-compiling takes
    # longer than installing, and most modules are never imported.
    _run([folder / "bin" / "python", "-m", "pip", "install", "--quiet",
          "--disable-pip-version-check", "--no-input", "--only-binary", ":all:", "--no-compile",
          "--retries", RETRIES, "--timeout", TIMEOUT, "--requirement", pins],
         f"installing into {folder.name}")


def _from_system() -> bool:
    """.venv that sees the packages of a Python that has rich. False when there is none."""
    for candidate in dict.fromkeys(("/usr/bin/python3", sys.executable)):
        test = [candidate, "-c", "import sys, rich; sys.exit(sys.version_info < (3, 11))"]
        if not Path(candidate).exists() or _quiet(test).returncode != 0:
            continue
        _run([candidate, "-m", "venv", "--clear", "--system-site-packages", "--without-pip", VENV],
             "making .venv")
        # Made from an active environment, .venv sees the packages of neither without this file.
        folders = _quiet([candidate, "-c",
                          "import site; print(*site.getsitepackages(), sep='\\n')"])
        site_packages = next(VENV.glob("lib/python*/site-packages"))
        (site_packages / "lab-system-packages.pth").write_text(folders.stdout)
        return True
    return False


def _quiet(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)


def _run(command: list[object], doing: str) -> None:
    argv = [str(word) for word in command]
    print(f"$ {shlex.join(word.removeprefix(f'{REPOSITORY}/') for word in argv)}", flush=True)
    done = subprocess.run(argv, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        # Without a network, pip's last line only says that there is no such package.
        offline = [f"PyPI cannot be reached: {fault}" for fault in OFFLINE if fault in done.stdout]
        raise LabError(f"{doing} failed ({(offline or errors or lines or ['no message'])[-1]})")


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
