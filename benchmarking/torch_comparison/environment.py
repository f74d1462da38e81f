"""PyTorch's own environment, .venv-torch: made by --install and by nothing else, and used where this Python has no PyTorch."""

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from .errors import REPOSITORY, ComparisonError, shown

VENV = REPOSITORY / ".venv-torch"
PINS = ("torch==2.15.0", "numpy==2.4.6")  # numpy: without it torch warns on import


def stamp() -> str:
    """For what .venv-torch was made: the pins, and the interpreter behind it, whose upgrade would break it."""
    return "\n".join((str((VENV / "bin" / "python").resolve()), *PINS))


def is_ready() -> bool:
    try:
        return (VENV / "flash-stamp").read_text(encoding="utf-8") == stamp()
    except OSError:
        return False


def install() -> None:
    """Makes .venv-torch unless it is there."""
    if is_ready():
        return
    print(f"setting up {shown(VENV)}: {' '.join(PINS)} from PyPI; on Linux several GB, most of it CUDA libraries", flush=True)
    python = VENV / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:", *PINS]
    for command in ([sys.executable, "-m", "venv", "--clear", VENV], pip):
        words = [str(word) for word in command]
        print(f"$ {shlex.join(words)}", flush=True)
        try:
            code = subprocess.run(words, stdin=subprocess.DEVNULL).returncode
        except OSError as error:
            raise ComparisonError(f"{words[0]} cannot be run: {error.strerror}") from None
        if code != 0:
            raise ComparisonError(f"setting up {shown(VENV)} failed: the last command ended with {code}")
    (VENV / "flash-stamp").write_text(stamp(), encoding="utf-8")


def with_torch(install_it: bool, program: Path, argv: list[str]) -> Any:
    """The module torch; where this interpreter has none, `program` begins anew in .venv-torch, and this does not return."""
    inside = Path(sys.prefix).resolve() == VENV.resolve()
    if install_it and not inside:
        install()
    elif importlib.util.find_spec("torch") is not None:
        import torch
        return torch
    if inside or not is_ready():
        raise ComparisonError(f"PyTorch is not installed here; to install {PINS[0]} into {shown(VENV)} (several GB): "
                              "benchmarking/compare_torch.py --install")
    words = [str(VENV / "bin" / "python"), str(program.resolve()), *(word for word in argv if word != "--install")]
    sys.stdout.flush()
    os.execv(words[0], words)
