"""What `./lab` runs first, on the machine's bare Python: makes .venv if need be, and goes on in it as `python -m lab`.

Standard library only. .venv holds the pins of tools/requirements.txt. Where PyPI cannot be reached it is an empty one that sees
the system's packages, made by a system Python that has rich. Its stamp says for which pins and which Python it was made;
without the right stamp it is made anew.
"""

import fcntl
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from lab import main, system
from lab.errors import LabError
from lab.paths import REPOSITORY

VENV = REPOSITORY / ".venv"
PINS = REPOSITORY / "tools" / "requirements.txt"
LOCK = REPOSITORY / ".lab" / "setup.lock"

# A network that answers nothing is given up after (1 + RETRIES) * TIMEOUT seconds.
RETRIES, TIMEOUT = 2, 20
# How pip words it.
OFFLINE = ("Name or service not known", "Temporary failure in name resolution", "Network is unreachable", "Connection refused",
           "timed out", "Cannot connect to proxy")


def start(argv: list[str]) -> int:
    """Runs one command line: here what needs no package, the rest in .venv."""
    verb = argv[0] if argv else ""
    if verb == "doctor" or verb not in main.verbs():
        return main.main(argv)
    if not is_ready() and {"-h", "--help"} & set(argv):
        print(f"./lab {verb}: {main.help_of(verb)}\n(its arguments are shown once this machine is set up: any verb does that)")
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
    # As `activate` does it: CMake's FindPython3 and the tests that ctest starts take this interpreter too.
    environment = os.environ | {"VIRTUAL_ENV": str(VENV), "PATH": f"{VENV / 'bin'}:{os.environ.get('PATH', os.defpath)}"}
    os.execve(python(), [str(python()), "-P", "-m", "lab", *argv], environment)


def python() -> Path:
    """The interpreter of .venv."""
    return VENV / "bin" / "python"


def stamp() -> str:
    """For what .venv was made: the pins, and the interpreter behind it (an upgrade of the system's Python breaks a .venv)."""
    return f"{python().resolve()}\n{PINS.read_text(encoding='utf-8')}"


def is_ready() -> bool:
    try:
        return python().exists() and (VENV / "lab-stamp").read_text(encoding="utf-8") == stamp()
    except OSError:
        return False


def make_ready(yes: bool = False) -> None:
    """Makes .venv unless it is there. LabError, with the fix, when neither PyPI nor the system has rich."""
    if is_ready():
        return
    try:
        LOCK.parent.mkdir(exist_ok=True)
        with LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two ./lab at once: the second waits and finds it made
            if not is_ready():
                _make(yes)
                (VENV / "lab-stamp").write_text(stamp(), encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot make {VENV}: {error}") from error


def _make(yes: bool) -> None:
    trouble = ""
    try:
        if not system.can_make_venv():
            system.ensure(yes)
        _from_pypi()
        return
    except LabError as error:
        trouble = str(error)
    if not _from_system():
        if system.package_manager() == "apt" and (system.is_root() or sys.stdin.isatty() or yes):
            system.apt_install(system.PYTHON_PACKAGES["apt"], f"{trouble}; Debian's own packages will do", yes)
        if not _from_system():
            raise LabError(f"{trouble}; without PyPI: {system.fix_python_packages()}")
    print(f"{trouble}; .venv uses the system's own packages")


def _from_pypi() -> None:
    """.venv with the pinned packages, about 150 MB."""
    print("setting up .venv: rich and matplotlib, pinned in tools/requirements.txt", flush=True)
    _run([sys.executable, "-m", "venv", "--clear", VENV], "making .venv")
    # Where there is no wheel, building numpy and matplotlib would take longer than all else that ./lab does. Byte-compiling
    # takes longer than installing does, and most modules are never imported.
    _run([python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:",
          "--no-compile", "--retries", RETRIES, "--timeout", TIMEOUT, "--requirement", PINS], "installing into .venv")


def _from_system() -> bool:
    """.venv that sees the packages of a Python which has rich, not always the first in PATH. False when there is none."""
    for candidate in dict.fromkeys(("/usr/bin/python3", sys.executable)):
        test = [candidate, "-c", "import sys, rich; sys.exit(sys.version_info < (3, 11))"]
        if not Path(candidate).exists() or subprocess.run(test, capture_output=True, cwd=REPOSITORY).returncode != 0:
            continue
        _run([candidate, "-m", "venv", "--clear", "--system-site-packages", "--without-pip", VENV], "making .venv")
        _see_packages_of(candidate)
        return True
    return False


def _see_packages_of(candidate: str) -> None:
    """A virtual environment made by one that is active sees the packages of neither: name their folders to it."""
    folders = subprocess.run([candidate, "-c", "import site; print(*site.getsitepackages(), sep='\\n')"], capture_output=True,
                             text=True, check=True, cwd=REPOSITORY).stdout
    site_packages = next(VENV.glob("lib/python*/site-packages"))
    (site_packages / "lab-system-packages.pth").write_text(folders, encoding="utf-8")


def _run(command: list[object], doing: str) -> None:
    """Runs a command, quiet unless it fails; on a terminal, a line that counts the seconds."""
    argv = [str(word) for word in command]
    print(f"$ {shlex.join(_short(word) for word in argv)}", flush=True)
    begin = time.monotonic()
    with subprocess.Popen(argv, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as process:
        while True:
            try:
                output, _ = process.communicate(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                if sys.stdout.isatty():
                    print(f"\r  {doing} ... {time.monotonic() - begin:.0f} s ", end="", flush=True)
            except BaseException:
                process.terminate()
                raise
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
    if process.returncode != 0:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        # pip's last line then says that there is no such package.
        offline = [f"PyPI cannot be reached: {fault}" for fault in OFFLINE if fault in output]
        raise LabError(f"{doing} failed ({(offline or errors or lines or ['no message'])[-1]})")


def _short(word: str) -> str:
    return word.removeprefix(f"{REPOSITORY}/")


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
