"""Finds submissions, and takes of each the files that a student may change, and nothing else.

A submission is a bundle (./lab bundle), another zip, or a folder: a whole repository will do. What
is in it is hostile until shown otherwise: nothing is unpacked to the disk, no link is followed, and
sizes are checked before and while reading. Its name is shown, and never the name of a file here.
"""

import hashlib
import io
import json
import os
import re
import stat
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.bundles import INDEX, LARGEST, TOO_LARGE
from lab.errors import LabError
from lab.manifest import Task
from lab.released import Version

LARGEST_ARCHIVE = 64 << 20  # bytes; some hand in all of their repository
MOST_ENTRIES = 200_000  # of a zip or a folder: a repository with its builds
DEEPEST = 1000         # characters of a folder in it; Linux has 4096 for a path
RESULT = re.compile(
    r"worklog\.md|results/(\w{1,80}\.png|\w{1,40}_benchmark\.csv|machine\.json)", re.ASCII)
MOST_RESULTS, LARGEST_RESULTS = 30, 8 << 20  # files, and bytes of all; the rest is too large
_SKIPPED = {".git", ".venv", "__MACOSX", ".course", ".lab"}
_UNLIKELY = {"build", "solution"}  # folders whose files count where there are no others
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".xz", ".bz2", ".7z", ".rar")


@dataclass(frozen=True)
class Submission:
    id: str           # its name as it was handed in
    place: Path
    folder: str = ""  # of its results: a number


@dataclass(frozen=True)
class Content:
    files: Mapping[str, bytes]  # "part1_softmax_matmul/skeleton/fused_cpu.cpp" -> its content
    problem: str = ""           # why it cannot be read: the student's to mend
    others: tuple[str, ...] = ()  # the C++ and CUDA files in it that were not taken
    chosen: tuple[str, ...] = ()  # where a task's file was there more than once: which was taken
    version: str = ""           # of the course, where a bundle says so
    results: Mapping[str, bytes] = field(default_factory=dict)  # of its own runs: lab.worklog

    def digest(self) -> str:
        parts = [f"{path}\0{hashlib.sha256(content).hexdigest()}\n"
                 for path, content in [*sorted(self.files.items()),
                                       *sorted(self.results.items())]]
        return hashlib.sha256("".join([*parts, self.problem]).encode(
            errors="surrogatepass")).hexdigest()


def find(places: Sequence[Path], tasks: Sequence[Task]) -> tuple[list[Submission], list[str]]:
    """The submissions at these places, by their ids, and what else is there: its name, and why it
    is no submission. Each of several places is one; a place alone may be the folder of a class: it
    has no task's file in its place, and holds one in each of its zips and folders."""
    found: dict[str, Path] = {}
    left_out: list[str] = []
    classes = [place for place in places if len(places) > 1 and _is_class(place, tasks)]
    if classes and 2 * len(classes) >= len(places):  # fewer: what one student handed in twice
        raise LabError(f"{classes[0]} holds more than one submission, and of several names each is "
                       f"one: name {classes[0]}/*, or name it alone")
    for place in places:
        if not os.path.lexists(place):
            raise LabError(f"{place} does not exist")
        try:
            inside = sorted(place.iterdir()) if len(places) == 1 and not place.is_symlink() and (
                place.is_dir()) else []
        except OSError as error:
            raise LabError(f"{place} cannot be read ({error.strerror})") from None
        if inside and _is_one(place, tasks):
            if more := [child.name for child in inside if _is_in_class(child, tasks)]:
                raise LabError(f"{place} has a task's file in its place, as one submission, and "
                               f"{more[0]}, as a class: name {place}/*, or move one of them away")
            inside = []
        for child in inside or [place]:
            name = os.path.basename(os.path.abspath(child))  # "." has no name of its own
            if why := _why_not(child, name):
                left_out.append(f"{name}: {why}")
                continue
            short = re.sub(r"(?i)\.zip$", "", name)
            name = name if short in found or not short else short
            if name in found:
                raise LabError(f"{found[name]} and {child} would both be called {name}; rename one")
            found[name] = child
    if not found:
        raise LabError(f"{' and '.join(map(str, places))}: no submission; there must be a zip, a "
                       f"folder, or a file of a task{'; ' * bool(left_out)}{'; '.join(left_out)}")
    if len(found) == 1 and _is_class(*found.values(), tasks):
        raise LabError(f"{found.popitem()[1]} holds more than one submission: name that folder")
    return [Submission(name, found[name]) for name in sorted(found)], left_out


def _is_one(folder: Path, tasks: Sequence[Task]) -> bool:
    """Whether the folder is one submission, and not a class: there a student's file may lie alone
    beside zips."""
    return (any(os.path.isfile(folder / task.shown_path()) for task in tasks)
            or any(os.path.isfile(folder / task.file) for task in tasks)
            and not any(folder.glob("*.zip")))


def _is_class(place: Path, tasks: Sequence[Task]) -> bool:
    """Whether the place is a folder of submissions."""
    return not place.is_symlink() and place.is_dir() and not _is_one(place, tasks) and 1 < sum(
        _is_in_class(child, tasks) for child in place.glob("*"))


def _is_in_class(place: Path, tasks: Sequence[Task]) -> bool:
    return place.suffix.lower() == ".zip" or place.is_dir() and _is_one(place, tasks)


def _why_not(place: Path, name: str) -> str:
    """Why what lies in the folder of a class is no submission; "" for one."""
    if name.startswith(".") or name == "__MACOSX":
        return "made by a system, not by a student"
    if place.is_symlink() or place.is_dir() or place.is_file() and place.suffix.lower() == ".zip":
        return ""
    if place.suffix in (".cpp", ".cu"):
        return "a single file; put it into a folder with the student's name"
    return "neither a zip nor a folder"


def read(place: Path, tasks: Sequence[Task]) -> Content:
    """OSError where the machine cannot read it."""
    if place.is_symlink():
        return Content({}, "it is a symbolic link, and none is followed; what it leads to has to "
                           "be handed in")
    if place.is_dir():
        found = _of_folder(place)
        archives = [name for name in found if name.lower().endswith(_ARCHIVES)]
        taken = _take(found, tasks)
        if not archives or taken.files or taken.problem:
            return taken
        if len(archives) == 1 and archives[0].lower().endswith(".zip"):
            # As Moodle gives them out: a folder for each student, with the archive in it.
            return read(place / archives[0], tasks)
        return Content({}, "it must hold one zip or the files of tasks; it holds "
                           f"{' and '.join(archives[:3])}; a folder of submissions is named alone")
    packed = bytes_of(place, LARGEST_ARCHIVE)
    if len(packed) > LARGEST_ARCHIVE:
        return Content({}, f"the zip must have at most {LARGEST_ARCHIVE} bytes; ./lab bundle makes "
                           "a small one")
    if packed.count(b"PK\1\2") > MOST_ENTRIES:  # before Python makes an object of each
        return Content({}, _TOO_MANY)
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            return _take(_of_zip(archive), tasks)
    except MemoryError:
        raise
    except Exception as error:  # whatever the bytes make Python's module raise
        return Content({}, f"the zip cannot be read ({error or type(error).__name__}); ./lab "
                           "bundle makes one that can")


Reader = Callable[[], bytes] | None  # None of a link
_TOO_MANY = f"it holds more than {MOST_ENTRIES} files; ./lab bundle packs those that are graded"


def _of_folder(root: Path) -> dict[str, Reader]:
    def fail(error: OSError) -> None:
        raise error

    found: dict[str, Reader] = {}
    for folder, folders, names in os.walk(root, onerror=fail):
        is_deep = len(folder) - len(str(root)) > DEEPEST
        folders[:] = sorted({*folders} - _SKIPPED) if not is_deep else []
        for name in sorted(names):
            path = Path(folder, name)
            kind = path.lstat().st_mode
            if stat.S_ISREG(kind) or stat.S_ISLNK(kind):
                found[path.relative_to(root).as_posix()] = None if stat.S_ISLNK(kind) else (
                    lambda path=path: bytes_of(path, LARGEST))
        if len(found) > MOST_ENTRIES:
            break
    return found


def _of_zip(archive: zipfile.ZipFile) -> dict[str, Reader]:
    found: dict[str, Reader] = {}
    for entry in archive.infolist():
        kind = stat.S_IFMT(entry.external_attr >> 16)
        name = entry.filename.replace("\\", "/")
        if not entry.is_dir() and not _SKIPPED & set(name.split("/")):
            found[name] = None if kind not in (0, stat.S_IFREG) else (
                lambda entry=entry: _unpacked(archive, entry))
    return found


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("it is packed by an unusual method")
    with archive.open(entry) as file:
        return file.read(LARGEST + 1)


def bytes_of(place: Path, most: int) -> bytes:
    """One byte more than `most` of a larger file. What became a link or a pipe is not opened."""
    with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(most + 1) or b""


def _take(entries: Mapping[str, Reader], tasks: Sequence[Task]) -> Content:
    """Of each task its file: at its own path, below some folder, or by its name alone."""
    files: dict[str, bytes] = {}
    mine = {name: reader for name, reader in entries.items() if reader}
    likely = {name for name in entries if not _UNLIKELY & set(name.split("/"))}
    others = {name for name in likely if name.endswith((".cpp", ".cu"))}
    chosen: list[str] = []
    if not entries:
        return Content({}, "it holds no file; ./lab bundle packs those that are graded")
    if len(entries) > MOST_ENTRIES:
        return Content({}, _TOO_MANY)
    for task in tasks:
        wanted = task.shown_path()
        named = [name for name in mine if name.rpartition("/")[2] == task.file]
        placed = [name for name in named if f"/{name}".endswith(f"/{wanted}")]
        same = next(filter(None, ([name for name in placed if name in likely],
                                  [name for name in named if name in likely], placed, named)), [])
        fewest = min((name.count("/") for name in same), default=0)
        same = [name for name in same if name.count("/") == fewest]
        if len(same) > 1:
            return Content({}, f"{task.file} is there more than once, and one has to go: "
                               f"{', '.join(same[:3])}")
        if same:
            files[wanted] = mine[same[0]]()
            others.discard(same[0])
            if also := [name for name in named if name in likely and name != same[0]]:
                chosen.append(f"{same[0]} was graded; also there: {', '.join(also[:3])}")
            if len(files[wanted]) > LARGEST:
                return Content({}, f"{same[0]} is larger than {LARGEST} bytes, and no solution is")
    version = _version(mine[INDEX]()) if INDEX in mine else ""
    names = sorted((name for name in mine if RESULT.fullmatch(name)),
                   key=lambda name: (name.endswith(".png"), name))[:MOST_RESULTS]
    results, left = dict[str, bytes](), LARGEST_RESULTS
    for name in names:
        content = mine[name]()
        too_large = len(content) > min(LARGEST, left)
        results[name] = TOO_LARGE if too_large else content
        left -= len(results[name])
    return Content(files, version=version, results=results, chosen=tuple(chosen), others=tuple(
        name if name in mine else f"{name} (a link, and none is followed)"
        for name in sorted(others)))


def _version(index: bytes) -> str:
    """What a bundle says about its course; "" where it says nothing that could be a version."""
    try:
        version = str(Version(**json.loads(index)["version"]))
    except Exception:  # it is a stranger's
        return ""
    return version if re.fullmatch(r"[\w. ()-]{1,80}", version) else ""
