"""What a released course knows about itself, and how a newer one is laid over a student's folder.

`./lab release` writes the folder `.course/` into what it hands out: `release.json` (the version,
the parts, and the fingerprint of every file) and `files.zip` (the files, from which a newer release
is merged with what a student has changed).
"""

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lab import bundles, derive, disk, manifest, paths
from lab.errors import LabError
from lab.manifest import Part, Task

FOLDER = ".course"
RECORD = f"{FOLDER}/release.json"
ORIGINALS = f"{FOLDER}/files.zip"
CLOSED, OPEN = "closed", "open"  # a part without its solutions, and with them

SHOWN = 3  # given files that were changed

# What an update did with a file.
ADDED, UPDATED, REMOVED = "added", "updated", "removed"
MERGED = "your changes and the course's are merged"
KEPT = "kept, because you changed it"
CONFLICT = "you and the course changed the same lines; yours is kept, and the new version is"


@dataclass(frozen=True)
class Version:
    """Of the course: what CMakeLists.txt says, and the commit."""

    number: str
    commit: str

    def __str__(self) -> str:
        return f"{self.number} ({self.commit})"


@dataclass(frozen=True)
class Release:
    version: Version
    parts: dict[str, str]  # name of the part -> OPEN or CLOSED
    files: dict[str, str]  # path -> sha256, of all files but those in FOLDER
    own: tuple[str, ...]   # paths of the files that a student writes
    # task id -> mistakes that the harness names, each with a case that finds it
    mistakes: dict[str, list[tuple[str, str]]] = field(default_factory=dict)


def read(root: Path) -> Release | None:
    """None where the folder is no released course. LabError where its record is damaged."""
    file = root / RECORD
    try:
        data = json.loads(file.read_text())
        return Release(Version(**data["version"]), dict(data["parts"]), dict(data["files"]),
                       tuple(data["own"]), dict(data.get("mistakes", {})))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LabError(f"{file} is damaged ({error}): take {RECORD} from the release that your "
                       "course handed out") from None


def text_of(release: Release) -> str:
    return json.dumps(asdict(release), indent=1, sort_keys=True) + "\n"


def write(root: Path, release: Release) -> None:
    """Makes the folder `root`, which has the release's files, a released course."""
    files = {path: ((root / path).read_bytes(), 0o644) for path in release.files
             if not path.endswith(".png")}  # megabytes that nobody merges
    bundles.pack(root / ORIGINALS, files)
    disk.write_exact(root / RECORD, text_of(release))


def version_of(root: Path) -> Version:
    """Of a release, or of a clone of the course's repository."""
    if release := read(root):
        return release.version
    try:
        found = re.search(r"project\(\w+ VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text())
    except OSError as error:
        raise LabError(f"{root} is not the course: {error.strerror} (CMakeLists.txt)") from None
    try:
        git = subprocess.run(["git", "describe", "--always", "--dirty", "--match="], cwd=root,
                             capture_output=True, text=True)
        commit = git.stdout.strip() if git.returncode == 0 else "no commit"
    except FileNotFoundError:
        commit = "no commit"
    return Version(found[1] if found else "unknown", commit)


def original(root: Path, path: str) -> bytes | None:
    """A file as it was handed out; None where nobody kept it."""
    try:
        with zipfile.ZipFile(root / ORIGINALS) as files:
            return files.read(path)
    except (OSError, KeyError):
        return None
    except zipfile.BadZipFile as error:
        raise LabError(f"{root / ORIGINALS} is damaged ({error}): take it from the release that "
                       "your course handed out") from None


def skeleton(task: Task) -> bytes | None:
    """A task's file as it was handed out, else as its solution gives it; None where there is
    neither."""
    kept = original(paths.ROOT, task.shown_path())
    if kept is None and task.path("solution").is_file():
        return derive.derive_task(task).encode("utf-8", "surrogateescape")
    return kept


def sha256(file: Path) -> str | None:
    """None where there is no such file."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def changed_given_files(parts: Iterable[Part]) -> list[str]:
    """What to say of the given files of these parts that are not as they were handed out, or in a
    clone of the course's repository not as they were committed."""
    if release := read(paths.ROOT):
        changed = [path for path, known in release.files.items()
                   if sha256(paths.ROOT / path) != known]
    else:
        git = ["git", "-c", "core.quotepath=off", "diff", "--relative", "--name-only", "HEAD"]
        try:
            changed = subprocess.run(git, cwd=paths.ROOT, capture_output=True,
                                     text=True).stdout.splitlines()
        except OSError:
            changed = []
    folders = ("common", "cmake", "tests", *(part.folder.name for part in parts))
    own = {"skeleton", "solution", "ladder"}
    given = [path for path in changed
             if Path(path).suffix in manifest.SOURCES | {".inc", ".cmake", ".toml", ".txt"}
             and Path(path).parts[0] in folders and not own & set(Path(path).parts[:-1])]
    more = [f"and {len(given) - SHOWN} more given files"] * (len(given) > SHOWN)
    return [f"you changed a given file: {path}; " + (
        "take it from the release that your course handed out" if release else
        f"git diff {path} shows how, git checkout HEAD {path} takes it back")
        for path in given[:SHOWN]] + more


def update(new: Path, student: Path) -> Iterator[tuple[str, str]]:
    """Lays the released course in the folder `new` over a student's. Yields each file that
    differed, with what was done. What the student changed is merged with what the course changed;
    where that cannot be, the student's file stays, and the new one lies beside it. It can be
    interrupted and started again."""
    release, before = read(new), read(student)
    if release is None:
        raise LabError(f"{new} is not a released course: it has no {RECORD}")
    if before is None:
        raise LabError(f"{student} is not a released course: it has no {RECORD}")
    for path in sorted({*release.files, *before.files}):
        _refuse_links(student, path)
        target, wanted, known = student / path, release.files.get(path), before.files.get(path)
        found = sha256(target)
        if found is None and target.exists():
            raise LabError(f"{target} must be a file: move the folder of that name away")
        if found == wanted:
            continue
        if wanted is None:
            if found != known:
                yield path, f"{KEPT}; the course has it no longer"
                continue
            target.unlink()
            yield path, REMOVED
        elif found is None or found == known:
            _copy(new / path, target)
            yield path, ADDED if known is None else UPDATED
        elif wanted == known:
            if path not in release.own:
                yield path, KEPT
        elif merged := _merged(original(student, path), target, new / path):
            disk.write_exact(target, merged)
            shutil.copymode(new / path, target)
            yield path, MERGED
        else:
            _refuse_links(student, f"{path}.new")
            _copy(new / path, target.with_name(f"{target.name}.new"))
            yield path, f"{CONFLICT} {path}.new"
    for path in (ORIGINALS, RECORD):  # last: before it, the next try begins where this one did
        _refuse_links(student, path)
        _copy(new / path, student / path)


def _merged(before: bytes | None, here: Path, new: Path) -> bytes:
    """b"" where the two changed the same lines, or git cannot tell."""
    if before is None:
        return b""
    with tempfile.NamedTemporaryFile() as base:
        base.write(before)
        base.flush()
        try:
            git = subprocess.run(["git", "merge-file", "-p", here, base.name, new],
                                 capture_output=True)
        except FileNotFoundError:
            return b""
    return git.stdout if git.returncode == 0 else b""


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.new")
    shutil.copy(source, temporary)  # with its permissions: `lab` can be executed
    temporary.replace(target)


def _refuse_links(root: Path, path: str) -> None:
    """A link in a student's folder could lead an update out of it."""
    place = root
    for name in Path(path).parts:
        place /= name
        if place.is_symlink():
            raise LabError(f"{place} is a symbolic link: an update follows none; replace it by "
                           "what it leads to")
