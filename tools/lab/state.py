"""What a student has done: .lab/state.json (hints shown, last results), .lab/backup/ (copies).

Losing it loses no work, so a damaged file never stops a verb: a new one is begun.
"""

import contextlib
import datetime
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from lab import disk, paths
from lab.errors import LabError


@dataclass
class LastResult:
    status: str
    earned: float
    source: str | None  # sha256 of the file that was checked


@dataclass
class State:
    hints: dict[str, int] = field(default_factory=dict)  # task id -> how many are shown
    results: dict[str, LastResult] = field(default_factory=dict)  # task id -> last check
    # By task id: the mistake that the last check named first, of one case or of all, and its kind,
    # until its hint is shown.
    named: dict[str, tuple[str, str]] = field(default_factory=dict)


def load() -> State:
    try:
        data = json.loads(_file().read_text())
        # A file of another version of the course may have more keys, or fewer.
        state = State(**{key.name: data[key.name] for key in fields(State) if key.name in data})
        state.results = {task: LastResult(**last) for task, last in state.results.items()}
        return state
    except FileNotFoundError:
        return State()
    except (ValueError, TypeError, KeyError, AttributeError):
        _warn("is damaged: progress and hints start anew")
    except OSError as error:
        _warn(f"cannot be read ({error.strerror}): going on without it")
    return State()


@contextlib.contextmanager
def edit() -> Iterator[State]:
    """The state, to be changed and then written; briefly, as `./lab watch` may change it too."""
    state = load()
    yield state
    content = json.dumps(asdict(state), indent=2, sort_keys=True) + "\n"
    try:
        disk.write_exact(_file(), content)
    except LabError:
        _warn("cannot be written: progress is not kept")


def keep_copy(path: Path) -> Path:
    """Copies a file of the repository to .lab/backup/<time>/ under the same path."""
    time = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S.%f")
    kept = paths.STATE / "backup" / time / path.relative_to(paths.ROOT)
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, kept)
    return kept


def _file() -> Path:
    return paths.STATE / "state.json"


def _warn(trouble: str) -> None:
    print(f"{paths.relative(_file())} {trouble}", file=sys.stderr)
