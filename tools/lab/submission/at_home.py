"""What a class' grader refuses, found where the file is written: the same audit, of the object file
that the build at home made (of a CUDA task for the emulator), and of a CUDA task's text."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lab import libraries, paths
from lab.backends import CHECKED, CPU, EMULATED
from lab.build import first_error
from lab.manifest import Task
from lab.submission import audit, judging, source, spaces


def findings(task: Task, implementation: str = "skeleton") -> list[str]:
    """A sentence each. Nothing of a file that was changed since it was compiled."""
    file = task.path(implementation)
    if not file.is_file():
        return []
    backend = EMULATED if task.is_cuda else CPU
    target = task.target(implementation, backend)
    compiled = f"{target}/{file.name}.cpp.o" if task.is_cuda else f"{implementation}/{file.name}.o"
    made = [one for one in paths.BUILD.glob(f"*/CMakeFiles/{target}.dir/{compiled}")
            if one.stat().st_mtime >= file.stat().st_mtime]
    text = file.read_text(encoding="utf-8", errors="replace")
    return of_object(task, text, made[0] if made else None)


def of_object(task: Task, text: str, made: Path | None) -> list[str]:
    """Of a file with this text; `made` is its object file for the CPU, or for the emulator."""
    found = [*_of_text(task, text), *spaces.findings(text, paths.ROOT)] if task.is_cuda else []
    if found or not made or not (paths.BUILD / "lib/runner/libflash_common.so").is_file():
        return found
    backend = EMULATED if task.is_cuda else CPU
    symbols, sections = (judging.listing(*words, made)
                         for words in (("nm", "-P"), ("readelf", "-SW")))
    return audit.findings(symbols, sections, judging.EXPORTS, judging.offers(paths.BUILD, backend),
                          backend, text)


def _of_text(task: Task, text: str) -> list[str]:
    """Of a CUDA task, through the preprocessor, which in a class is g++'s."""
    known = libraries.load(paths.BUILD)
    library = known.get((task.path(), EMULATED))
    if library is None or (task.path(), CHECKED) not in known:  # these need g++
        return source.macros(text, task.file)
    with tempfile.TemporaryDirectory(prefix="lab-audit-") as work:
        course, first, read_text = (Path(work, name) for name in ("course", "first.hpp", "text.ii"))
        judging.lay_out_headers([task.folder], course)
        read = source.Source(text, course)
        first.write_text(read.first)
        own = course / task.shown_path()
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(text, encoding="utf-8")
        shown = replace(library, includes=tuple(
            str(course / Path(place).relative_to(paths.ROOT)) for place in library.includes
            if Path(place).is_relative_to(paths.ROOT)))
        done = subprocess.run([*judging.preprocessing(shown.command(), str(first)), own, "-o",
                               read_text], capture_output=True, text=True, errors="replace",
                              env=os.environ | {"LC_ALL": "C"})
        if found := source.poisoned(done.stderr):
            return found
        if done.returncode:
            error = first_error(done.stderr.replace(f"{course}/", ""), paths.ROOT)
            return [f"it does not compile with the headers that a class has: {error}"]
        return read.findings(read_text.read_text(errors="replace"))


def warnings(task: Task, implementation: str, known: Sequence[str]) -> list[str]:
    """Beside the `known` ones, FILE:LINE: of variables of a kernel that nobody set."""
    own, file = task.path(implementation), task.shown_path(implementation)
    unset = spaces.unset(own.read_text(encoding="utf-8", errors="replace")) if (
        task.is_cuda and own.is_file()) else {}
    return [*known, *(f"{file}:{line}: {text}" for line, text in unset.items()
                      if not any(one.startswith(f"{file}:{line}: ") for one in known))]
