"""Finds submissions, and takes of each the files that a student may change, and nothing else.

A submission is a bundle (./lab bundle), another zip, or a folder: a whole repository will do. What
is in it is hostile until shown otherwise: nothing is unpacked to the disk, links are not followed,
and sizes are checked before and while reading.
"""

import hashlib
import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lab.bundles import INDEX, LARGEST
from lab.errors import LabError
from lab.handout import Version
from lab.manifest import Task

LARGEST_ARCHIVE = 64 << 20  # bytes; some hand in all of their repository
MOST_ENTRIES = 20_000  # of a zip or a folder
_SKIPPED = {".git", ".venv", "build", "__MACOSX", "solution", ".course", ".lab"}
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".xz", ".bz2", ".7z", ".rar")


@dataclass(frozen=True)
class Submission:
    id: str
    place: Path


@dataclass(frozen=True)
class Content:
    files: Mapping[str, bytes]  # "part1_softmax_matmul/skeleton/fused_cpu.cpp" -> its content
    problem: str = ""           # why it cannot be read: the student's to mend
    others: tuple[str, ...] = ()  # the C++ and CUDA files in it that were not taken
    version: str = ""           # of the course, where a bundle says so

    def digest(self) -> str:
        parts = [f"{path}\0{hashlib.sha256(content).hexdigest()}\n"
                 for path, content in sorted(self.files.items())]
        return hashlib.sha256("".join([*parts, self.problem]).encode()).hexdigest()


def find(places: Iterable[Path], tasks: Sequence[Task]) -> tuple[list[Submission], list[str]]:
    """The submissions at these places, by their ids, and what else is there: its name, and why it
    is no submission. A zip is one, and so is a folder that has a task's file in its place; any
    other folder holds one in each of its zips and folders."""
    found: list[Path] = []
    left_out: list[str] = []
    for place in places:
        if not place.exists():
            raise LabError(f"{place} does not exist")
        if place.is_dir() and not _is_one(place, tasks):
            inside = sorted(place.iterdir())
            reasons = {child: _why_not(child) for child in inside}
            if all(reasons.values()):
                raise LabError(f"{place} holds no submission: no zip, no folder, and no file of a "
                               "task")
            mine = [child for child in inside if not reasons[child]]
            if len(mine) == 1 and _is_class(mine[0], tasks):
                raise LabError(f"{mine[0]} holds more than one submission: name that folder")
            found += mine
            left_out += [f"{child.name}: {why}" for child, why in reasons.items() if why]
        elif place.is_dir() or place.suffix == ".zip":
            found.append(place)
        else:
            raise LabError(f"{place} is no submission; it must be a zip or a folder")
    named: dict[str, Path] = {}
    for place in found:
        last = os.path.basename(os.path.abspath(place))  # "." has no name of its own
        name = re.sub(r"[^\w.-]+", "_", last.removesuffix(".zip"), flags=re.ASCII).strip(".")
        if not name:
            raise LabError(f"{place} has a name without a letter or a digit; rename it")
        if name in named:
            raise LabError(f"{named[name]} and {place} would both be called {name}; rename one")
        named[name] = place
    return [Submission(name, named[name]) for name in sorted(named)], left_out


def _is_one(folder: Path, tasks: Sequence[Task]) -> bool:
    """Whether the folder is one submission, and not a class: there a student's file may lie alone
    beside zips."""
    return (any((folder / task.shown_path()).is_file() for task in tasks)
            or any((folder / task.file).is_file() for task in tasks)
            and not any(folder.glob("*.zip")))


def _is_class(place: Path, tasks: Sequence[Task]) -> bool:
    """Whether the place is a folder of submissions."""
    return place.is_dir() and not _is_one(place, tasks) and 1 < sum(
        child.suffix == ".zip" or child.is_dir() and _is_one(child, tasks)
        for child in place.iterdir())


def _why_not(place: Path) -> str:
    """Why what lies in the folder of a class is no submission; "" for one."""
    if place.name.startswith(".") or place.name == "__MACOSX":
        return "made by a system, not by a student"
    if place.is_dir() or place.suffix == ".zip" and place.is_file():
        return ""
    if place.suffix in (".cpp", ".cu"):
        return "a single file; put it into a folder with the student's name"
    return "neither a zip nor a folder"


def read(submission: Submission, tasks: Sequence[Task]) -> Content:
    if submission.place.is_dir():
        found = _of_folder(submission.place)
        archives = [name for name in found if name.endswith(_ARCHIVES)]
        taken = _take(found, tasks)
        if not archives or taken.files or taken.problem:
            return taken
        if len(archives) == 1 and archives[0].endswith(".zip"):
            # As Moodle gives them out: a folder for each student, with the archive in it.
            return read(Submission(submission.id, submission.place / archives[0]), tasks)
        return Content({}, "it must hold one zip or the files of tasks; it holds "
                           f"{' and '.join(archives[:3])}")
    if submission.place.stat().st_size > LARGEST_ARCHIVE:
        return Content({}, f"the zip must have at most {LARGEST_ARCHIVE} bytes; ./lab bundle makes "
                       "a small one")
    try:
        with zipfile.ZipFile(submission.place) as archive:
            return _take(_of_zip(archive), tasks)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError,
            ValueError) as error:
        return Content({}, f"the zip cannot be read: {error}")


def _of_folder(root: Path) -> dict[str, object]:
    """Path -> a function that reads that file."""
    found: dict[str, object] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for name in sorted(names):
            path = Path(folder, name)
            if stat.S_ISREG(path.lstat().st_mode):
                found[path.relative_to(root).as_posix()] = lambda path=path: _read(path.open("rb"))
            if len(found) > MOST_ENTRIES:
                return found
    return found


def _of_zip(archive: zipfile.ZipFile) -> dict[str, object]:
    found: dict[str, object] = {}
    for entry in archive.infolist()[:MOST_ENTRIES]:
        kind = entry.external_attr >> 16
        plain = not kind or not stat.S_IFMT(kind) or stat.S_ISREG(kind)
        name = entry.filename.replace("\\", "/")
        if plain and not entry.is_dir() and not _SKIPPED & set(PurePosixPath(name).parts):
            found[name] = lambda entry=entry: _read(archive.open(entry))
    return found


def _read(file) -> bytes:
    with file:
        return file.read(LARGEST + 1)


def _take(entries: Mapping[str, object], tasks: Sequence[Task]) -> Content:
    """Of each task its file: at its own path, below some folder, or by its name alone."""
    files: dict[str, bytes] = {}
    others = {name for name in entries if name.endswith((".cpp", ".cu"))}
    if not entries:
        return Content({}, "it holds no file")
    for task in tasks:
        wanted = task.shown_path()
        same = [name for name in entries if name == wanted or name.endswith(f"/{wanted}")]
        same = same or [name for name in entries if PurePosixPath(name).name == task.file]
        fewest = min((name.count("/") for name in same), default=0)
        same = [name for name in same if name.count("/") == fewest]
        if len(same) > 1:
            return Content({}, f"{task.file} is there more than once: {', '.join(same[:3])}")
        if same:
            files[wanted] = entries[same[0]]()
            others.discard(same[0])
            if len(files[wanted]) > LARGEST:
                return Content({}, f"{same[0]} is larger than {LARGEST} bytes")
    version = _version(entries[INDEX]()) if INDEX in entries else ""
    return Content(files, version=version, others=tuple(sorted(others)))


def _version(index: bytes) -> str:
    """What a bundle says about its course; "" where it says nothing that could be a version."""
    try:
        version = str(Version(**json.loads(index)["version"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return version if re.fullmatch(r"[\w. ()-]{1,80}", version) else ""
