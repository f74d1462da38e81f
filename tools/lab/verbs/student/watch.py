"""`./lab watch`: checks again whenever a file is saved, also while a check is under way.

It polls modification times, because network drives and shared folders deliver no change events.
"""

import argparse
import contextlib
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lab import build, manifest, paths
from lab.backends import Backends, choose
from lab.console import console, say
from lab.errors import LabError
from lab.manifest import Task
from lab.verbs.student import check

HELP = "check again whenever you save a file (ctrl-C leaves)"

WATCHED = manifest.SOURCES | {".toml"}
INTERVAL = 0.5  # seconds between two looks at the files

Snapshot = dict[Path, tuple[int, int]]  # file -> (modification time in ns, size)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="PART|TASK",
                        help="what to watch (default: all)")
    check.add_backend_arguments(parser)


def run(args: argparse.Namespace) -> int:
    tasks = manifest.select(manifest.load_parts(), args.names)
    backends = choose(build.configured(), args.emulate, args.check_races, args.sanitize, tasks)
    with contextlib.suppress(KeyboardInterrupt):
        _watch(args.names, tasks, backends)
    console.print()
    return 0


def _watch(names: Sequence[str], tasks: Sequence[Task], backends: Backends) -> None:
    before, chosen = snapshot(tasks), tasks  # before the check: a save during it is not missed
    while True:
        _check_until_saved(before, tasks, chosen, backends)
        folders = ", ".join(dict.fromkeys(f"{task.folder.name}/" for task in tasks))
        say(f"\nwatching {folders}; ctrl-C leaves", "dim")
        before, changed = _wait(before, tasks)
        console.clear()
        say(f"changed: {', '.join(map(paths.relative, changed))}", "bold")
        if any(path.name == manifest.MANIFEST for path in changed):
            with contextlib.suppress(LabError):  # the check names the error
                tasks = manifest.select(manifest.load_parts(), names)
        chosen = affected(tasks, changed)


def _check_until_saved(before: Snapshot, watched: Sequence[Task], tasks: Sequence[Task],
                       backends: Backends) -> None:
    """A check that ends when a file is saved, as ctrl-C would end it."""
    ended, saved = threading.Event(), threading.Event()

    def look() -> None:
        while not ended.wait(INTERVAL):
            if affected(watched, differences(before, snapshot(watched))):
                saved.set()
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                return

    looking = threading.Thread(target=look)
    looking.start()
    try:
        try:
            check.check(tasks, backends=backends)
        except LabError as error:  # a file in the middle of an edit must not end the watch
            say(f"lab: {error}", "red")
        finally:
            ended.set()
            looking.join()  # then no signal is on its way
    except KeyboardInterrupt:
        if not saved.is_set():
            raise
        say("stopped, because a file was saved", "dim")


def snapshot(tasks: Iterable[Task]) -> Snapshot:
    """The files of the tasks' parts that a check of the skeletons uses."""
    found: Snapshot = {}
    for folder in dict.fromkeys(task.folder for task in tasks):
        for path in folder.rglob("*"):
            top = path.relative_to(folder).parts[0]
            ignored = path.name.startswith((".", "#")) or top in ("solution", "ladder")
            if path.suffix in WATCHED and not ignored:
                with contextlib.suppress(OSError):  # it is being replaced
                    status = path.stat()
                    found[path] = (status.st_mtime_ns, status.st_size)
    return found


def differences(before: Snapshot, after: Snapshot) -> list[Path]:
    """Files that are new or changed. One that is gone may be back at once: an editor may write a
    new file and rename it."""
    return sorted(path for path, status in after.items() if before.get(path) != status)


def affected(tasks: Sequence[Task], changed: Sequence[Path]) -> list[Task]:
    """The tasks to check again: a task's own file concerns it alone, other files the whole part."""
    def concerns(task: Task, path: Path) -> bool:
        of_one_task = (path.parent == task.folder / "skeleton"
                       and path.suffix in manifest.TASK_SOURCES)
        return path == task.path() if of_one_task else path.is_relative_to(task.folder)

    return [task for task in tasks if any(concerns(task, path) for path in changed)]


def _wait(before: Snapshot, tasks: Sequence[Task]) -> tuple[Snapshot, list[Path]]:
    """Blocks until a change that concerns one of the tasks. Where that was only the first half of a
    save, the check that follows is ended by the second."""
    while True:
        now = snapshot(tasks)
        changed = differences(before, now)
        if affected(tasks, changed):
            return now, changed
        time.sleep(INTERVAL)
