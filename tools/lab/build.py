"""Runs CMake and Ninja, and finds the first error in what they print."""

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from lab import console, not_emulated, paths, system
from lab.errors import LabError
from lab.paths import build_folder, relative

# English messages with plain quotes, whatever the user's locale, because first_error() reads them.
ENVIRONMENT = {"LC_ALL": "C", "NINJA_STATUS": "[%f/%t] "}


@dataclass(frozen=True)
class Config:
    """What the configure step found: build/<preset>/config.json."""

    compiler: str
    catch2: str
    cuda: str                # "none", "toolkit" (nvcc and no GPU) or "gpu"
    cuda_version: str
    gpu: str
    emulated: bool           # .cu files are built for the emulator too (emulator)
    checked: bool            # and for the emulator with its checks, which needs g++
    asan: str = ""           # AddressSanitizer's library, for ./lab check --sanitize


@dataclass(frozen=True)
class BuildResult:
    ok: bool
    # "part1_softmax_matmul/skeleton/fused_cpu.cpp:31:5: error: ..."; empty when ok
    first_error: str
    log: str


def configure(preset: str = "default", options: Sequence[str] = ()) -> Config:
    """Runs CMake anew, with more options. LabError with its first message."""
    folder = build_folder(preset)
    if how := _configured_otherwise(folder):
        console.say(f"{relative(folder)} was configured {how}: configuring it afresh")
        (folder / "CMakeCache.txt").unlink()
        shutil.rmtree(folder / "CMakeFiles", ignore_errors=True)
    command = ["cmake", "--preset", preset, *options,
               *["-DFLASH_WERROR=ON"] * bool(os.environ.get("CI"))]
    if shutil.which("cmake") is None:
        system.ensure()
    console.print_command(command)
    finished = console.stream(command, f"configuring {preset}", env=ENVIRONMENT)
    if finished.code != 0 and system.missing():
        system.ensure()  # LabError, with what to type, where it cannot install
        finished = console.stream(command, f"configuring {preset}", env=ENVIRONMENT)
    if finished.code != 0:
        raise LabError(f"cmake --preset {preset} failed: {first_configure_error(finished.output)}")
    for line in finished.output.splitlines():
        if line.startswith(("-- CUDA: ", "-- Emulator: ")):
            console.say(line.removeprefix("-- "))
    config = _read_config(folder)
    if config is None:
        raise LabError(f"{relative(folder / 'config.json')} cannot be read, or lacks a key that "
                       f"./lab reads: delete {relative(folder)} and try again")
    return config


def configured(preset: str = "default") -> Config:
    """Like configure(), but only reads config.json where that is there already. Ninja itself runs
    CMake again when a CMake file has changed."""
    folder = build_folder(preset)
    if (folder / "build.ninja").is_file() and not _configured_otherwise(folder):
        if known := _read_config(folder):
            return known
    return configure(preset)


def build(target: str | Sequence[str], preset: str = "default", keep_going: bool = False,
          on_ready: Callable[[str], None] = lambda library: None) -> BuildResult:
    """Builds one target or several. With `keep_going`, one that fails does not stop the others.
    `on_ready` gets the name of each library when its target NAME_ready is built."""
    targets = [target] if isinstance(target, str) else list(target)
    folder = build_folder(preset)
    command = ["cmake", "--build", folder, "--target", *targets, *["--", "-k", "0"] * keep_going]
    console.print_command(command)
    what = targets[0] if len(targets) == 1 else f"{len(targets)} targets"
    finished = console.stream(
        command, f"building {what}", counted=r"\[(\d+)/(\d+)\] (?:ready: (\w+)$)?",
        on_step=lambda step: on_ready(step[3]) if step[3] else None, env=ENVIRONMENT)
    if finished.code == 0:
        return BuildResult(True, "", finished.output)
    return BuildResult(False, first_error(finished.output, folder), finished.output)


def binary(target: str, preset: str = "default") -> Path:
    return build_folder(preset) / "bin" / target


def failure(log: str, limit: int = 60) -> str:
    """What the first failing step of a build printed, without its command line."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("FAILED: "):
            return "\n".join([line, *lines[number + 2:number + limit]])
    return "\n".join(lines[-limit:])


# How compilers, nvcc, linkers and Ninja report an error; not "-Werror" in a command.
_ERROR = re.compile(r"\b(?:error|fatal)\b(?: #[\w-]+)?\s*: |undefined reference to"
                    r"|: Error: "  # of the assembler, which gets what stands in asm()
                    r"|multiple definition of|\bld(?:\.\w+)?: (?:cannot |required symbol )")
LACKS_ENTRY = "required symbol `flash_task' not defined"  # says ld of a file without FLASH_TASK()


_OWN_LINE = re.compile(r"\S+/(?:skeleton|solution)/[^\s:/]+:\d+")  # in a task's file
_USED_BY = re.compile(r"^ .* at line (\d+) of (\S+/(?:skeleton|solution)/\S+)$")  # says nvcc
_INCLUDED = re.compile(r"(In file included| +) from ([^\s:]+:\d+)(?::\d+)*[,:]?$")


def first_error(log: str, folder: Path) -> str:
    """One line, with paths relative to the root, from the log of a build in `folder`. Where it
    names a given file, with the line of the task's file that used it. Of what the emulator lacks,
    in our words."""
    up = os.path.relpath(paths.ROOT, folder)
    root = re.compile(rf"(?<!\S)(?:{re.escape(str(paths.ROOT))}|{re.escape(up)})/")
    used_at, includes = "", []
    lines = [root.sub("", line.rstrip()) for line in log.splitlines()]
    for number, line in enumerate(lines):
        if included := _INCLUDED.match(line):
            includes = [*(includes if included[1].isspace() else ()), included[2]]
        if line.startswith("CMake Error"):
            return first_configure_error(log)
        if _ERROR.search(line):
            words = not_emulated.explained(line, includes)
            behind = next(filter(None, map(_USED_BY.search, lines[number:number + 5])), None)
            if not used_at and behind:
                used_at = f" (used at {behind[2]}:{behind[1]})"
            return words if _OWN_LINE.match(words) else words + used_at
        own = _OWN_LINE.match(line)
        if own and " required from" in line:
            used_at = used_at or f" (used at {own[0]})"
        elif "warning: " in line:
            used_at = ""
    return _last_line(log, "the build failed without a message")


def error_of_given(log: str, folder: Path) -> str:
    """The first error of a file that is compiled beside the tasks' files, "" where there is none:
    no student wrote that file."""
    for step in re.split(r"^FAILED: ", log, flags=re.MULTILINE)[1:]:
        file = step.split("\n", 1)[0]
        if ".dir/" in file and not re.search(r"_(skeleton|solution)\w*\.dir/", file):
            error = first_error(step, folder)
            # An error before an #include is reported in what that includes.
            by = re.search(rf" from {re.escape(str(paths.ROOT))}/(\S+:\d+)[,:]", step)
            return f"{error} (included at {by[1]})" if by and error.startswith("/") else error
    return ""


def warnings(log: str, file: str) -> list[str]:
    """Those about one file that was compiled: "FILE:31: 'sum' is used uninitialized", each once."""
    found = re.findall(rf"^(?:\S*/)?{re.escape(file)}[:(](\d+)(?::\d+|\))*: warning(?: #[\w-]+)?: "
                       r"(.*\S)", log, re.MULTILINE)
    return [f"{file}:{line}: {text}" for line, text in dict.fromkeys(found)]


def first_configure_error(log: str) -> str:
    """In one line: the place, and the first paragraph of the message."""
    found = re.search(r"^CMake Error(?: at (?P<place>[^\s:]+:\d+))?(?: \(.*\))?:[ \t]*"
                      r"(?P<first>.*)\n\n*(?P<below>(?:  .*\n?)*)", log, re.MULTILINE)
    if not found:
        return _last_line(log, "no message")
    words = found["first"] or " ".join(found["below"].split("\n\n")[0].split()) or "no message"
    return f"{found['place']}: {words}" if found["place"] else words


def _last_line(log: str, otherwise: str) -> str:
    return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), otherwise)


def _configured_otherwise(folder: Path) -> str:
    """Why CMake cannot go on with a folder: it refuses a cache from before the repository was
    moved, and keeps a compiler whatever CXX says. "": it can."""
    try:
        cache = (folder / "CMakeCache.txt").read_text(errors="replace")
    except OSError:
        return ""
    known = dict(re.findall(r"^(CMAKE_HOME_DIRECTORY|CMAKE_CXX_COMPILER):\w+=(.+)$", cache,
                            re.MULTILINE))
    if Path(known.get("CMAKE_HOME_DIRECTORY", paths.ROOT)).resolve() != paths.ROOT:
        return "in another folder"
    compiler, asked = known.get("CMAKE_CXX_COMPILER"), os.environ.get("CXX", "")
    found = shutil.which(asked)
    if compiler and found and os.path.realpath(found) != os.path.realpath(compiler):
        return f"for {compiler}, and CXX is {asked}"
    return ""


def _read_config(folder: Path) -> Config | None:
    """None where it is not there or damaged, or an older version of the course wrote it."""
    try:
        values = json.loads((folder / "config.json").read_text())
        return Config(**{key.name: values[key.name] == "TRUE" if key.type is bool
                         else str(values[key.name]) for key in fields(Config)})
    except (KeyError, OSError, ValueError, TypeError):
        return None
