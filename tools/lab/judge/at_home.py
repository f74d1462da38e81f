"""What a class' grader refuses, found where the file is written: the same audit, of the object file
that the build at home made, and of a CUDA task's text."""

from collections.abc import Sequence

from lab import paths
from lab.backends import CPU
from lab.judge import audit, judging, spaces
from lab.manifest import Task


def findings(task: Task, implementation: str = "skeleton") -> list[str]:
    """A sentence each. Nothing of a file that was changed since it was compiled."""
    source = task.path(implementation)
    if not source.is_file():
        return []
    text = source.read_text(encoding="utf-8", errors="replace")
    if task.is_cuda:
        return spaces.findings(text, paths.ROOT)
    made = [file for file in paths.BUILD.glob(
        f"*/CMakeFiles/{task.target(implementation, CPU)}.dir/{implementation}/{source.name}.o")
        if file.stat().st_mtime >= source.stat().st_mtime]
    offers = paths.BUILD / "lib/runner/libflash_common.so"
    if not made or not offers.is_file():
        return []
    symbols, sections = (judging.listing(*words, made[0])
                         for words in (("nm", "-P"), ("readelf", "-SW")))
    return audit.findings(symbols, sections, judging.EXPORTS, judging.defined(offers), source=text)


def warnings(task: Task, implementation: str, known: Sequence[str]) -> list[str]:
    """Beside the `known` ones, FILE:LINE: of variables of a kernel that nobody set."""
    source, file = task.path(implementation), task.shown_path(implementation)
    unset = spaces.unset(source.read_text(encoding="utf-8", errors="replace")) if (
        task.is_cuda and source.is_file()) else {}
    return [*known, *(f"{file}:{line}: {text}" for line, text in unset.items()
                      if not any(one.startswith(f"{file}:{line}: ") for one in known))]
