"""The manifest: which parts and tasks there are.

A part is a top-level folder that holds a tasks.toml. An error in that is one line, which names the
file, the key, its value and what it must be.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import paths
from lab.errors import LabError

MANIFEST = "tasks.toml"
IMPLEMENTATIONS = ("skeleton", "solution")
TASK_SOURCES = {".cpp", ".cu"}
SOURCES = TASK_SOURCES | {".hpp", ".cuh", ".h"}
NAME = r"[a-z][a-z0-9_]*"


@dataclass(frozen=True)
class Task:
    """One exercise: one file, one library, one test binary."""

    id: str  # "part1.fused_cpu"
    label: str  # "1.A"
    title: str
    file: str  # the name of the file, the same in skeleton/ and solution/
    points: float  # 0: a warm-up
    # What the points are for: name -> percent of them.
    requirements: dict[str, float] = field(hash=False)
    minutes: int  # what it takes to write
    hints: tuple[str, ...]  # in the order in which they are shown
    folder: Path  # of the part
    other_task: str = ""  # the id of a task of which some cases call the same author's functions
    results: float = 0  # points for results of its benchmark that are handed in: lab.handed_in

    @property
    def part(self) -> str:
        return self.id.split(".", 1)[0]

    @property
    def name(self) -> str:
        return self.id.split(".", 1)[1]

    def lacks_entry(self, implementation: str = "skeleton") -> str:
        """The error of a file without its last line."""
        wanted = rf'struct (\w+)[^{{;]*\{{\s*static constexpr char kId\[\] = "{self.id}"'
        contract = "".join(file.read_text(encoding="utf-8") for file in self.folder.glob("*.hpp"))
        found = re.search(wanted, contract)
        return (f"{self.shown_path(implementation)}: the last line is missing, by which the judge "
                "finds your functions; write at the end of the file: "
                f"FLASH_TASK({found[1] if found else '...'})")

    @property
    def is_cuda(self) -> bool:
        return Path(self.file).suffix == ".cu"

    def path(self, implementation: str = "skeleton") -> Path:
        return self.folder / implementation / self.file

    def shown_path(self, implementation: str = "skeleton") -> str:
        return f"{self.folder.name}/{implementation}/{self.file}"

    def target(self, implementation: str = "skeleton", backend: str = "") -> str:
        """The CMake target of the task's library for a backend, which has the same name."""
        suffix = f"_{backend}" if backend in ("emulated", "checked") else ""
        return f"{self.part}_{self.name}_{implementation}{suffix}"


@dataclass(frozen=True)
class Part:
    name: str  # "part1": what a student types
    title: str
    folder: Path
    tasks: tuple[Task, ...]

    def has(self, implementation: str) -> bool:
        """False for the solution in a release, which is handed out without it."""
        return (self.folder / implementation).is_dir()


def load_parts() -> list[Part]:
    """Every part: part1, part2, ... first and the others after them."""
    seen: dict[str, Part] = {}
    for file in sorted(paths.ROOT.glob(f"*/{MANIFEST}")):
        part = load_part(file)
        if part.name in seen:
            raise LabError(f'{part.folder.name}/{MANIFEST}: part is "{part.name}"; '
                           f"{seen[part.name].folder.name} has that name already")
        seen[part.name] = part
    return sorted(seen.values(), key=lambda part: (not part.name.startswith("part"), part.name))


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


NOT_EMPTY = r"(?s).*\S.*"


def is_text(pattern: str = NOT_EMPTY) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value))


def are_texts(value: object, pattern: str = NOT_EMPTY) -> bool:
    return isinstance(value, list) and all(map(is_text(pattern), value))


# What the value of a key must be: a test, and the words for it.
TEXT = is_text(), "a text that is not empty"
_PART_KEYS = {
    "part": (is_text(NAME), "lower-case letters, digits and underscores, beginning with a letter"),
    "title": TEXT,
    "task": (lambda value: isinstance(value, list) and value and {*map(type, value)} == {dict},
             "at least one [[task]]"),
}
_TASK_KEYS = {
    "label": TEXT,
    "title": TEXT,
    "file": (is_text(r"[^/]+\.(cpp|cu)"), "the name of a .cpp or .cu file, without a folder"),
    "points": (lambda value: _is_number(value) and value >= 0, "a number of at least 0"),
    "requirements": (lambda value: isinstance(value, dict) and all(
        _is_number(share) and share >= 10 for share in value.values())
        and sum(value.values()) in (0, 100),
        "a table of names and their percents of the points, at least 10 each, 100 in all"),
    "minutes": (lambda value: _is_number(value) and value > 0 and value == int(value),
                "a whole number above 0"),
    "hints": (lambda value: are_texts(value) and len(value) >= 2,
              "a list of at least 2 texts that are not empty"),
    "other_task": (lambda value: value is None or is_text(rf"{NAME}\.{NAME}")(value),
                   "a task's id, or left out"),
    "results": (lambda value: value is None or _is_number(value) and value > 0,
                "a number above 0, or left out"),
}


def load_part(file: Path) -> Part:
    shown, table = paths.relative(file), read_toml(file)
    check(shown, table, _PART_KEYS)
    prefix = f"{table['part']}."
    task_keys = _TASK_KEYS | {
        "id": (is_text(re.escape(prefix) + NAME),
               f'"{prefix}" and a name of lower-case letters, digits and underscores')}
    tasks = []
    for number, entry in enumerate(table["task"], 1):
        check(f"{shown}: {entry.get('id', f'task {number}')}", entry, task_keys)
        hints = tuple(hint.strip("\n") for hint in entry["hints"])
        tasks.append(Task(**entry | {"minutes": int(entry["minutes"]), "hints": hints},
                          folder=file.parent))
    for key in ("id", "file"):
        values = [getattr(task, key) for task in tasks]
        for value in values:
            if values.count(value) > 1:
                raise LabError(f'{shown}: {key} is "{value}" in {values.count(value)} tasks; '
                               "it must be unique")
    return Part(table["part"], table["title"], file.parent, tuple(tasks))


def read_toml(file: Path) -> dict:
    shown = paths.relative(file)
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise LabError(f"{shown}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{shown}: not valid TOML: {error}") from None


def check(where: str, table: dict, keys: dict) -> None:
    """LabError where a table has other keys, or another value than its key takes."""
    for key in table:
        if key not in keys:
            raise LabError(f"{where}: unknown key {_shown(key)}{nearest(key, keys)}; "
                           f"the keys are {', '.join(sorted(keys))}")
    for key, (fits, wanted) in keys.items():
        value = table.get(key)
        if not fits(value):
            state = f"is {_shown(value)}" if key in table else "is missing"
            raise LabError(f"{where}: {key} {state}; it must be {wanted}")


def _shown(value: object) -> str:
    """On one line, also of a file that is not ours."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:80]}..."


def lint_files(part: Part) -> list[str]:
    """Where the manifest and the files disagree: one line each."""
    problems = []
    where = f"{part.folder.name}/{MANIFEST}"
    for implementation in IMPLEMENTATIONS:
        if implementation == "skeleton" or part.has(implementation):
            problems += [f'{where}: {task.id}: file is "{task.file}"; '
                         f"{task.shown_path(implementation)} does not exist"
                         for task in part.tasks if not task.path(implementation).is_file()]
    listed = {task.file for task in part.tasks}
    for file in sorted((part.folder / "solution").glob("[!.]*")):
        if file.suffix in SOURCES and file.name not in listed:
            problems.append(f"{part.folder.name}/solution/{file.name}: no task in {where} lists it")
    return problems


def select(parts: Sequence[Part], names: Iterable[str] = ()) -> list[Task]:
    """The tasks that the names mean, in the manifest's order; all of them when there is no name. A
    name is a part ("part1"), its folder, a task's id ("part1.fused_cpu"), name or file, or what
    stands before it on the card ("1.A")."""
    everything = [task for part in parts for task in part.tasks]
    if not everything:
        raise LabError(f"no part in {paths.ROOT}: a part is a folder with a {MANIFEST}")
    wanted: set[str] = set()
    for name in names:
        found = [task for task in everything if name.rstrip("/") in _names(task)
                 or name.upper() == task.label.upper()]
        if not found:
            known = [part.name for part in parts] + [task.name for task in everything]
            raise LabError(f'no part or task is called "{name}"{nearest(name, known)}; '
                           f"there are {', '.join(known)}")
        if len({task.part for task in found}) > 1:
            raise LabError(f'"{name}" is a task of several parts; name one of '
                           f"{', '.join(task.id for task in found)}")
        wanted.update(task.id for task in found)
    return [task for task in everything if task.id in wanted] if wanted else everything


def select_one(parts: Sequence[Part], name: str, verb: str) -> Task:
    tasks = select(parts, [name])
    if len(tasks) > 1:
        raise LabError(f'"{name}" is {len(tasks)} tasks; {verb} takes one of them: '
                       f"{', '.join(task.name for task in tasks)}")
    return tasks[0]


def _names(task: Task) -> set[str]:
    return {task.id, task.name, task.file, task.part, task.folder.name,
            *map(task.shown_path, IMPLEMENTATIONS)}


def nearest(name: str, known: Iterable[str]) -> str:
    """' (did you mean "fused_cpu"?)', or nothing where no known name is near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""
