"""`./lab watch`: checks again whenever a file is saved.

It polls modification times, because network drives and shared folders deliver no change events.
"""

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lab import build, manifest, paths
from lab.backends import Backends, choose
from lab.console import console
from lab.errors import LabError
from lab.manifest import Task
from lab.verbs import check

HELP = "check again whenever you save a file (ctrl-C leaves)"

WATCHED = manifest.SOURCES | {".toml"}
SETTLED = 0.15  # seconds without a further change: an editor saves by writing a new file and renaming it
VANISHED = 2.0  # seconds after which a file that is gone counts as deleted and not as being saved

Snapshot = dict[Path, tuple[int, int]]  # file -> (modification time in ns, size)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="PART|TASK", help="what to watch (default: everything)")
    parser.add_argument("--interval", type=float, default=0.5, metavar="SECONDS", help="time between two looks (default: 0.5)")
    parser.add_argument("--once", action="store_true", help="leave after the first change has been checked")
    check.add_backend_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if not 0 < args.interval <= 60:
        raise LabError(f"--interval is {args.interval:g}; it must be above 0 and at most 60 seconds")
    tasks = manifest.select(manifest.load_parts(), args.names)
    backends = choose(build.configured(), args.emulate, args.check_races)
    try:
        return _watch(args.names, tasks, backends, args.interval, args.once)
    except KeyboardInterrupt:
        console.print()
        return 0


def _watch(names: Sequence[str], tasks: Sequence[Task], backends: Backends, interval: float, once: bool) -> int:
    before = snapshot(tasks)  # taken before the check, so that a save during it is not missed
    code = _check(tasks, backends)
    while True:
        _say_what_is_watched(tasks, interval)
        after = _wait(before, tasks, interval)
        changed = differences(before, after)
        before = after
        console.clear()
        files = ", ".join(paths.relative(path) for path in changed)
        console.print(f"changed: {files}", style="bold", markup=False, soft_wrap=True)
        if any(path.name == manifest.MANIFEST for path in changed):
            tasks = _reloaded(names, tasks)
        code = _check(affected(tasks, changed), backends)
        if once:
            return code


def _check(tasks: Sequence[Task], backends: Backends) -> int:
    try:
        return check.check(manifest.load_parts(), tasks, backends=backends)
    except LabError as error:  # a file that is half-way through an edit must not end the watch
        console.print(f"lab: {error}", style="red", markup=False, soft_wrap=True)
        return 1


def _reloaded(names: Sequence[str], tasks: Sequence[Task]) -> Sequence[Task]:
    try:
        return manifest.select(manifest.load_parts(), names)
    except LabError:
        return tasks  # _check names the error


def _say_what_is_watched(tasks: Sequence[Task], interval: float) -> None:
    folders = ", ".join(dict.fromkeys(f"{task.folder.name}/" for task in tasks))
    console.print(f"\nwatching {folders} every {interval:g} s; ctrl-C leaves", style="dim", markup=False, soft_wrap=True)


def snapshot(tasks: Iterable[Task]) -> Snapshot:
    """The sources, headers and manifests of the tasks' parts, less what a check of the skeletons does not build."""
    found: Snapshot = {}
    for folder in dict.fromkeys(task.folder for task in tasks):
        for path in folder.rglob("*"):
            ignored = path.name.startswith((".", "#")) or path.relative_to(folder).parts[0] in ("solution", "ladder")
            if path.suffix in WATCHED and not ignored:
                try:
                    status = path.stat()
                except OSError:
                    continue  # being replaced, or a network drive's hiccup
                found[path] = (status.st_mtime_ns, status.st_size)
    return found


def differences(before: Snapshot, after: Snapshot) -> list[Path]:
    """Files that are new, changed or gone."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def affected(tasks: Sequence[Task], changed: Sequence[Path]) -> list[Task]:
    """The tasks to check again: a task's own file concerns it alone, a header or any other file the whole part."""
    def concerns(task: Task, path: Path) -> bool:
        of_some_task = path.parent == task.folder / "skeleton" and path.suffix in manifest.TASK_SOURCES
        return path == task.path() if of_some_task else path.is_relative_to(task.folder)

    return [task for task in tasks if any(concerns(task, path) for path in changed)]


def _wait(before: Snapshot, tasks: Sequence[Task], interval: float) -> Snapshot:
    """Blocks until a change has come and settled that concerns one of the tasks."""
    while True:
        now = snapshot(tasks)
        while differences(before, now):
            now = _settle(before, now, tasks)
            if affected(tasks, differences(before, now)):
                return now
            before = now
        time.sleep(interval)


def _settle(before: Snapshot, now: Snapshot, tasks: Sequence[Task]) -> Snapshot:
    """Waits until the files stay as they are; a file that is gone gets a while to come back under its name."""
    begin = time.monotonic()
    while True:
        time.sleep(SETTLED)
        later = snapshot(tasks)
        gone = before.keys() - later.keys()
        if later == now and (not gone or time.monotonic() - begin > VANISHED):
            return later
        now = later
