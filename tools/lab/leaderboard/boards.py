"""Boards: what is measured, a file of a few lines each (benchmarking/boards/NAME.toml)."""

from dataclasses import dataclass
from pathlib import Path

from lab import manifest, paths, released
from lab.errors import LabError
from lab.manifest import Task, are_texts

FOLDER = Path("benchmarking/boards")
JUDGE_NEEDS = "part1_softmax_matmul", "part2_flash_cpu"
# Of each kind of problem: the passes that are timed, one for each task of the board.
PASSES = {"softmax_matmul": ("forward",), "attention": ("forward", "backward")}
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}  # of an element


def _one_of(*choices: str) -> tuple:
    return (lambda value: value in choices), f"one of {', '.join(choices)}"


# What the value of a key must be: a test, and the words for it.
_KEYS = {
    "title": manifest.TEXT,
    "device": _one_of("cpu", "cuda"),
    "kind": _one_of(*PASSES),
    "dtype": _one_of("float32", "float16", "bfloat16"),
    "problems": (lambda value: are_texts(value, r"\d{1,6}(x\d{1,6}){3}(:causal)?") and value
                 and len(set(value)) == len(value),
                 'a list of different problems such as "8x1x256x64" and "8x1x256x64:causal"'),
    "marks": (lambda value: are_texts(value, r"\w+(\+\w+)?"),
              'a list of names of rungs, or of pairs such as "9_persistent+3_atomic_dq"'),
}


@dataclass(frozen=True)
class Board:
    name: str                   # of its file
    title: str
    device: str
    kind: str
    dtype: str
    tasks: tuple[str, ...]      # ids
    problems: tuple[str, ...]   # as submit_leaderboard.cpp reads them
    marks: tuple[str, ...]      # rungs that stand in the table to compare with; FORWARD+BACKWARD
                                # where the two are of different parts
    sha256: str                 # of the file: a receipt holds for one version of a board

    @property
    def passes(self) -> tuple[str, ...]:
        return PASSES[self.kind][:len(self.tasks)]

    def work(self, problem: str, name: str) -> tuple[float, float]:
        """The least of a pass: the operations of its products, the bytes of its inputs and outputs.
        """
        sizes, _, mask = problem.partition(":")
        a, b, c, d = map(int, sizes.split("x"))
        if self.kind == "softmax_matmul":
            return 2 * a * b * c * d, 4 * a * (b * c + c * d + b * d)
        pairs = c * (c + 1) // 2 if mask else c * c
        products, tensors = {"forward": (2, 4), "backward": (5, 8)}[name]
        return products * 2 * pairs * a * b * d, tensors * _BYTES[self.dtype] * a * b * c * d

    def is_here(self) -> bool:
        """False in a release that lacks its part, or one that the judge is built with."""
        return (all((paths.ROOT / part).is_dir() for part in JUDGE_NEEDS)
                and _tasks().keys() >= set(self.tasks))

    def load_tasks(self) -> list[Task]:
        known = _tasks()
        if missing := [name for name in self.tasks if name not in known]:
            raise LabError(f"the board {self.name} measures {', '.join(missing)}, which this copy "
                           "of the course does not have")
        return [known[name] for name in self.tasks]

    def rungs(self, mark: str) -> list[Path]:
        """The files of the ladders that a mark names, one for each part that has a task here. A
        later part that it does not name has none: the solution stands for it."""
        folders = dict.fromkeys(task.folder for task in self.load_tasks())
        files = []
        for folder, name in zip(folders, mark.split("+")):
            file = next(folder.glob(f"ladder/{name}.*"), None)
            if file is None:
                raise LabError(f"the board {self.name} has the mark {mark}, and there is no rung "
                               f"{name} in {folder.name}/ladder/")
            files.append(file)
        return files


def _tasks() -> dict[str, Task]:
    return {task.id: task for task in manifest.select(manifest.load_parts())}


def load(file: Path) -> Board:
    table = {"marks": []} | manifest.read_toml(file)
    passes = PASSES.get(str(table.get("kind")), ())
    manifest.check(paths.relative(file), table, _KEYS | {
        "tasks": (lambda value: are_texts(value, r"\w+\.\w+") and 1 <= len(value) <= len(passes),
                  f"a list of tasks, one for each of {', '.join(passes)}")})
    return Board(file.stem, table["title"], table["device"], table["kind"], table["dtype"],
                 *(tuple(table[key]) for key in ("tasks", "problems", "marks")),
                 released.sha256(file))


def load_all() -> list[Board]:
    return [load(file) for file in sorted((paths.ROOT / FOLDER).glob("*.toml"))]


def find(name: str) -> Board:
    known = {board.name: board for board in load_all()}
    if name not in known:
        raise LabError(f'there is no board "{name}"{manifest.nearest(name, known)}; there are '
                       f"{', '.join(known)}")
    return known[name]
