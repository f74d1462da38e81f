"""CMake and Ninja from Python: configure a preset, build targets, and say in one line what did not compile."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from lab import console, paths
from lab.errors import LabError
from lab.paths import build_folder, relative

# English messages with plain quotes, whatever the user's locale, since first_error() reads them.
ENVIRONMENT = {"LC_ALL": "C", "NINJA_STATUS": "[%f/%t] "}


@dataclass(frozen=True)
class Config:
    """What the configure step found: build/<preset>/config.json."""

    version: str
    compiler: str
    catch2: str
    cuda: str                # "none", "toolkit" (nvcc and no GPU) or "gpu"
    cuda_version: str
    gpu: str
    emulated: bool           # .cu files are built for the emulator too (common/simt)
    checked: bool            # and for the emulator with its checks, which needs g++
    cuda_architectures: str


@dataclass(frozen=True)
class BuildResult:
    ok: bool
    first_error: str  # "part1_softmax_matmul/skeleton/fused_cpu.cpp:31:5: error: ..."; empty when ok
    log: str
    seconds: float


def configure(preset: str = "default") -> Config:
    """Configures a preset anew and returns what was found. A failure is a LabError with CMake's first message."""
    folder = build_folder(preset)
    _forget_moved_cache(folder)
    command = ["cmake", "--preset", preset]
    if os.environ.get("CI"):
        command.append("-DFLASH_WERROR=ON")
    console.print_command(command)
    finished = console.stream(command, description=f"configuring {preset}", env=ENVIRONMENT)
    if finished.code != 0:
        raise LabError(f"cmake --preset {preset} failed: {first_configure_error(finished.output)}")
    for line in finished.output.splitlines():
        if line.startswith(("-- CUDA: ", "-- Emulator: ")):
            console.console.print(line.removeprefix("-- "), markup=False)
    config = _read_config(folder)
    if config is None:
        raise LabError(f"{relative(folder / 'config.json')} lacks a key that ./lab reads: delete {relative(folder)} and try again")
    return config


def configured(preset: str = "default") -> Config:
    """Like configure(), and no more than a look at config.json where the preset is configured already. Ninja itself runs
    CMake again when a CMake file has changed."""
    folder = build_folder(preset)
    if (folder / "build.ninja").is_file() and (folder / "config.json").is_file() and _home(folder) in (None, paths.ROOT):
        config = _read_config(folder)
        if config is not None:
            return config
    return configure(preset)


def build(target: str | Sequence[str], preset: str = "default", keep_going: bool = False) -> BuildResult:
    """Builds one target or several ("all" is everything). With `keep_going`, one that fails does not stop the others."""
    targets = [target] if isinstance(target, str) else list(target)
    command = ["cmake", "--build", build_folder(preset), "--target", *targets, *(["--", "-k", "0"] if keep_going else [])]
    console.print_command(command)
    description = f"building {targets[0]}" if len(targets) == 1 else f"building {len(targets)} targets"
    with console.progress(description) as update:
        def on_line(line: str) -> None:
            step = re.match(r"\[(\d+)/(\d+)\] ", line)
            if step:
                update(int(step[1]), int(step[2]))
        finished = console.stream(command, on_line=on_line, env=ENVIRONMENT)
    ok = finished.code == 0
    return BuildResult(ok, "" if ok else first_error(finished.output, build_folder(preset)), finished.output, finished.seconds)


def binary(target: str, preset: str = "default") -> Path:
    """Where a target's executable lies once it is built."""
    return build_folder(preset) / "bin" / target


def failure(log: str, limit: int = 60) -> str:
    """What the first failing step of a build printed, without the command line that Ninja puts above it."""
    lines = log.splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith("FAILED: ")), None)
    return "\n".join(lines[-limit:] if begin is None else lines[begin:begin + 1] + lines[begin + 2:begin + limit])


# A compiler's, nvcc's, a linker's and Ninja's own way of saying that something is wrong.
_COMPILER = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? (?:fatal )?error: (?P<message>.*)$")
_NVCC = re.compile(r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<message>.*)$")
_LINKER = re.compile(r"^(?:\S*\bld(?:\.\w+)?: )?(?P<file>(?!error:)[^\s:]+):(?:(?:\([^)]*\)|(?P<line>\d+)):)? "
                     r"(?P<message>(?:undefined reference|multiple definition|undefined symbol).*)$")
_OTHER = (
    re.compile(r"^ptxas (?:error|fatal)\s*: (?P<message>.*)$"),
    re.compile(r"^nvlink (?:error|fatal)\s*: (?P<message>.*)$"),
    re.compile(r"^\S*\bld(?:\.\w+)?: (?P<message>(?!warning: |.*: in function ).*)$"),
    re.compile(r"^(?P<message>(?:nvcc fatal|c\+\+|g\+\+|clang\+\+)\s*: .*)$"),
    re.compile(r"^(?P<message>(?:\S+: )?fatal error: .*)$"),
    re.compile(r"^(?P<message>ninja: (?:error|fatal): .*)$"),
)


def first_error(log: str, folder: Path | None = None) -> str:
    """The first error in a build's log, in one line, its path relative to the root. `folder` is where the build ran: what a
    relative path starts from."""
    for line in log.splitlines():
        line = line.rstrip()
        for pattern in (_COMPILER, _NVCC, _LINKER):
            found = pattern.match(line)
            if found:
                parts = found.groupdict()
                place = [_from_root(parts["file"], folder), parts["line"], parts.get("column")]
                return ":".join(word for word in place if word) + f": error: {parts['message']}"
        for pattern in _OTHER:
            found = pattern.match(line)
            if found:
                return found["message"].removeprefix("ninja: ")
        if line.startswith("CMake Error"):
            return first_configure_error(log)
    last = [line for line in log.splitlines() if line.strip()]
    return last[-1] if last else "the build failed without a message"


def first_configure_error(log: str) -> str:
    """CMake's first error in one line: the place, and the first paragraph of the message under it."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("CMake Error"):
            continue
        place = re.match(r"CMake Error(?: at ([^\s:]+:\d+))?(?: \(.*\))?:\s*(.*)", line)
        words = [place[2]] if place and place[2] else []
        for below in lines[number + 1:]:
            if not below.strip():
                if words:
                    break
                continue
            if not below.startswith("  "):
                break
            words.append(below.strip())
        message = " ".join(words) or line
        return f"{place[1]}: {message}" if place and place[1] else message
    last = [line for line in lines if line.strip()]
    return last[-1].strip() if last else "no message"


def _from_root(file: str, folder: Path | None) -> str:
    path = Path(file)
    if not path.is_absolute() and folder is not None:
        candidate = (folder / path).resolve()
        path = candidate if candidate.exists() else path
    return relative(os.path.normpath(path))


def _home(folder: Path) -> Path | None:
    """The source folder that a build folder was configured for."""
    try:
        cache = (folder / "CMakeCache.txt").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache, re.MULTILINE)
    return Path(found[1]).resolve() if found else None


def _forget_moved_cache(folder: Path) -> None:
    """CMake refuses a cache that was written elsewhere, as after moving or copying the repository: start that one afresh."""
    if _home(folder) not in (None, paths.ROOT):
        console.console.print(f"{relative(folder)} was configured elsewhere: configuring it afresh", markup=False)
        (folder / "CMakeCache.txt").unlink()
        shutil.rmtree(folder / "CMakeFiles", ignore_errors=True)


def _read_config(folder: Path) -> Config | None:
    """None where the file is of an older version of the course, and lacks a key."""
    file = folder / "config.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        return Config(**{field.name: values[field.name] == "TRUE" if field.type is bool else str(values[field.name])
                         for field in fields(Config)})
    except KeyError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise LabError(f"{relative(file)} cannot be read ({error}): delete {relative(folder)} and try again") from error
