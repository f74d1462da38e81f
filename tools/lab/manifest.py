"""The manifest: which parts and tasks there are.

A part is a top-level folder that holds a tasks.toml; everything in ./lab that speaks of tasks reads it here. A tasks.toml that
is not right is one line that names the file, the key, its value and what it had to be.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import paths
from lab.errors import LabError

MANIFEST = "tasks.toml"
IMPLEMENTATIONS = ("skeleton", "solution")
TASK_SOURCES = {".cpp", ".cu"}
SOURCES = TASK_SOURCES | {".hpp", ".cuh", ".h"}
MINIMUM_HINTS = 2

_PART_KEYS = {"part", "title", "task"}
_TASK_KEYS = {"id", "label", "title", "file", "points", "minutes", "needs_gpu", "tags", "hints"}


@dataclass(frozen=True)
class Task:
    """One exercise: one file, one library, one test binary."""

    id: str  # "part1.fused_cpu"
    label: str  # "1.A"
    title: str
    file: str  # the name of the file, the same in skeleton/ and solution/
    points: float  # 0: a warm-up
    minutes: int  # what it takes to write
    needs_gpu: bool  # not even the emulator can run it
    tags: tuple[str, ...]
    hints: tuple[str, ...]  # in the order in which they are revealed
    folder: Path  # of the part

    @property
    def part(self) -> str:
        return self.id.split(".", 1)[0]

    @property
    def name(self) -> str:
        return self.id.split(".", 1)[1]

    @property
    def is_cuda(self) -> bool:
        return Path(self.file).suffix == ".cu"

    def path(self, implementation: str = "skeleton") -> Path:
        return self.folder / implementation / self.file

    def shown_path(self, implementation: str = "skeleton") -> str:
        """The path as a student types it from the root."""
        return f"{self.folder.name}/{implementation}/{self.file}"

    def target(self, implementation: str = "skeleton", backend: str = "") -> str:
        """The CMake target, and the name, of the task's test binary. A CUDA task has one for each backend."""
        suffix = f"_{backend}" if backend in ("emulated", "checked") else ""
        return f"{self.part}_{self.name}_{implementation}{suffix}_tests"


@dataclass(frozen=True)
class Part:
    """A folder of tasks that belong together."""

    name: str  # "part1": what a student types
    title: str
    folder: Path
    tasks: tuple[Task, ...]

    @property
    def points(self) -> float:
        return sum(task.points for task in self.tasks)

    def has(self, implementation: str) -> bool:
        """False for the solution of a release, which is handed out without it."""
        return (self.folder / implementation).is_dir()


def load_parts(root: Path | None = None) -> list[Part]:
    """Every part below the root, part1, part2, ... first and the others after them."""
    root = root or paths.ROOT
    parts = [load_part(file) for file in sorted(root.glob(f"*/{MANIFEST}"))]
    seen: dict[str, Part] = {}
    for part in parts:
        if part.name in seen:
            where = f"{part.folder.name}/{MANIFEST}"
            raise LabError(f'{where}: part is "{part.name}"; {seen[part.name].folder.name} has that name already')
        seen[part.name] = part
    return sorted(parts, key=lambda part: (not part.name.startswith("part"), part.name))


def load_part(file: Path) -> Part:
    """Reads and checks one tasks.toml."""
    shown = f"{file.parent.name}/{file.name}"
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(f"{shown}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{shown}: not valid TOML: {error}") from None

    keys = _Keys(shown, "", table, _PART_KEYS)
    name = keys.text("part")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        keys.fail("part", name, "lower-case letters, digits and underscores, beginning with a letter")
    title = keys.text("title")
    entries = table.get("task", [])
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        keys.fail("task", entries, "at least one [[task]]")
    tasks = tuple(_task(shown, name, file.parent, number, entry) for number, entry in enumerate(entries, 1))
    for key in ("id", "file"):
        values = [getattr(task, key) for task in tasks]
        for value in values:
            if values.count(value) > 1:
                raise LabError(f'{shown}: {key} is "{value}" in {values.count(value)} tasks; it must be unique')
    return Part(name, title, file.parent, tasks)


def _task(shown: str, part: str, folder: Path, number: int, entry: dict) -> Task:
    keys = _Keys(shown, entry.get("id", f"task {number}"), entry, _TASK_KEYS)
    identifier = keys.text("id")
    if not re.fullmatch(re.escape(part) + r"\.[a-z][a-z0-9_]*", identifier):
        keys.fail("id", identifier, f'"{part}." and a name of lower-case letters, digits and underscores')
    file = keys.text("file")
    if Path(file).name != file or Path(file).suffix not in TASK_SOURCES:
        keys.fail("file", file, "the name of a .cpp or .cu file, without a folder")
    points = keys.number("points", "a number of at least 0", lambda value: value >= 0)
    minutes = keys.number("minutes", "a whole number above 0", lambda value: value > 0 and value == int(value))
    hints = keys.texts("hints")
    if len(hints) < MINIMUM_HINTS:
        entries = "1 entry" if len(hints) == 1 else f"{len(hints)} entries"
        raise LabError(f"{keys.where}hints has {entries}; it must have at least {MINIMUM_HINTS}")
    return Task(id=identifier, label=keys.text("label"), title=keys.text("title"), file=file, points=points,
                minutes=int(minutes), needs_gpu=keys.flag("needs_gpu"), tags=keys.texts("tags"), hints=hints, folder=folder)


class _Keys:
    """The keys of one table, read with their types checked."""

    def __init__(self, file: str, owner: object, table: dict, known: set[str]) -> None:
        self.where = f"{file}: {owner}: " if owner else f"{file}: "
        self.table = table
        for key in table:
            if key not in known:
                raise LabError(f'{self.where}unknown key "{key}"{nearest(key, known)}; the keys are {", ".join(sorted(known))}')

    def fail(self, key: str, value: object, wanted: str) -> None:
        shown = f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else value
        raise LabError(f"{self.where}{key} is {shown}; it must be {wanted}")

    def _get(self, key: str, wanted: str) -> object:
        if key not in self.table:
            raise LabError(f"{self.where}{key} is missing; it must be {wanted}")
        return self.table[key]

    def text(self, key: str, wanted: str = "a text that is not empty") -> str:
        value = self._get(key, wanted)
        if not isinstance(value, str) or not value.strip():
            self.fail(key, value, wanted)
        return value

    def texts(self, key: str, wanted: str = "a list of texts that are not empty") -> tuple[str, ...]:
        value = self._get(key, wanted)
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            self.fail(key, value, wanted)
        return tuple(item.strip("\n") for item in value)

    def number(self, key: str, wanted: str, fits) -> float:
        value = self._get(key, wanted)
        if isinstance(value, bool) or not isinstance(value, int | float) or not fits(value):
            self.fail(key, value, wanted)
        return value

    def flag(self, key: str) -> bool:
        value = self._get(key, "true or false")
        if not isinstance(value, bool):
            self.fail(key, value, "true or false")
        return value


def lint_files(part: Part) -> list[str]:
    """What is wrong between the manifest and the files: one line each."""
    problems = []
    where = f"{part.folder.name}/{MANIFEST}"
    for implementation in IMPLEMENTATIONS:
        if implementation == "solution" and not part.has("solution"):
            continue
        for task in part.tasks:
            if not task.path(implementation).is_file():
                problems.append(f'{where}: {task.id}: file is "{task.file}"; {task.shown_path(implementation)} does not exist')
    listed = {task.file for task in part.tasks}
    for file in sorted((part.folder / "solution").glob("*")):
        if file.suffix in SOURCES and not file.name.startswith(".") and file.name not in listed:
            problems.append(f"{part.folder.name}/solution/{file.name}: no task in {where} lists it")
    return problems


def select(parts: Sequence[Part], names: Iterable[str] = ()) -> list[Task]:
    """The tasks that the names mean, in the manifest's order; all of them when there is no name.

    A name is a part ("part1"), its folder, a task's id ("part1.fused_cpu"), its name ("fused_cpu") or its file.
    """
    everything = [task for part in parts for task in part.tasks]
    if not everything:
        raise LabError(f"no part in {paths.ROOT}: a part is a folder with a {MANIFEST}")
    names = list(names)
    if not names:
        return everything
    wanted: set[str] = set()
    for name in names:
        found = [task for task in everything if name.rstrip("/") in _names(task)]
        if not found:
            known = [part.name for part in parts] + [task.name for task in everything]
            raise LabError(f'no part or task is called "{name}"{nearest(name, known)}; there are {", ".join(known)}')
        if len({task.part for task in found}) > 1:
            raise LabError(f'"{name}" is a task of several parts; say which: {", ".join(task.id for task in found)}')
        wanted.update(task.id for task in found)
    return [task for task in everything if task.id in wanted]


def select_one(parts: Sequence[Part], name: str, verb: str) -> Task:
    """The one task that the name means."""
    tasks = select(parts, [name])
    if len(tasks) > 1:
        raise LabError(f'"{name}" is {len(tasks)} tasks; {verb} takes one of them: {", ".join(task.name for task in tasks)}')
    return tasks[0]


def _names(task: Task) -> set[str]:
    return {task.id, task.name, task.file, task.part, task.folder.name} | {task.shown_path(kind) for kind in IMPLEMENTATIONS}


def nearest(name: str, known: Iterable[str]) -> str:
    """' (did you mean "fused_cpu"?)', or nothing where no known name is near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""
