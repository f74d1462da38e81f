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
from lab.verbs import check

GROUP = "Student"
HELP = "check again whenever you save a file (ctrl-C leaves)"

WATCHED = manifest.SOURCES | {".toml"}
SETTLED = 0.15  # seconds without a further change: an editor may write a new file and rename it
VANISHED = 2.0  # seconds after which a file that is gone counts as deleted and not as being saved

Snapshot = dict[Path, tuple[int, int]]  # file -> (modification time in ns, size)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="PART|TASK",
                        help="what to watch (default: all)")
    parser.add_argument("--interval", type=float, default=0.5, metavar="SECONDS",
                        help="time between two looks at the files (default: 0.5)")
    parser.add_argument("--once", action="store_true",
                        help="leave after the first change has been checked")
    check.add_backend_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if not 0 < args.interval <= 60:
        raise LabError(f"--interval is {args.interval:g}; it must be above 0 and at most 60 "
                       "seconds")
    tasks = manifest.select(manifest.load_parts(), args.names)
    backends = choose(build.configured(), args.emulate, args.check_races, args.sanitize, tasks)
    try:
        return _watch(args.names, tasks, backends, args.interval, args.once)
    except KeyboardInterrupt:
        console.print()
        return 0


def _watch(names: Sequence[str], tasks: Sequence[Task], backends: Backends, interval: float,
           once: bool) -> int:
    before = snapshot(tasks)  # taken before the check, so that a save during it is not missed
    _check_until_saved(before, tasks, tasks, backends, interval)
    while True:
        folders = ", ".join(dict.fromkeys(f"{task.folder.name}/" for task in tasks))
        say(f"\nwatching {folders} every {interval:g} s; ctrl-C leaves", "dim")
        after = _wait(before, tasks, interval)
        changed = differences(before, after)
        before = after
        console.clear()
        say(f"changed: {', '.join(map(paths.relative, changed))}", "bold")
        if any(path.name == manifest.MANIFEST for path in changed):
            with contextlib.suppress(LabError):  # _check names the error
                tasks = manifest.select(manifest.load_parts(), names)
        code = _check_until_saved(before, tasks, affected(tasks, changed), backends, interval)
        if once:
            return code


def _check_until_saved(before: Snapshot, watched: Sequence[Task], tasks: Sequence[Task],
                       backends: Backends, interval: float) -> int:
    """A check that ends when a file is saved, as ctrl-C would end it."""
    ended, saved = threading.Event(), threading.Event()

    def look() -> None:
        while not ended.wait(interval):
            if affected(watched, differences(before, snapshot(watched))):
                saved.set()
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                return

    looking = threading.Thread(target=look)
    looking.start()
    try:
        try:
            return _check(tasks, backends)
        finally:
            ended.set()
            looking.join()  # then no signal is on its way
    except KeyboardInterrupt:
        if not saved.is_set():
            raise
        say("stopped, because a file was saved", "dim")
        return 1


def _check(tasks: Sequence[Task], backends: Backends) -> int:
    try:
        return check.check(manifest.load_parts(), tasks, backends=backends)
    except LabError as error:  # a file in the middle of an edit must not end the watch
        say(f"lab: {error}", "red")
        return 1


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
    """Files that are new, changed or gone."""
    return sorted({path for path, _ in before.items() ^ after.items()})


def affected(tasks: Sequence[Task], changed: Sequence[Path]) -> list[Task]:
    """The tasks to check again: a task's own file concerns it alone, other files the whole part."""
    def concerns(task: Task, path: Path) -> bool:
        of_one_task = (path.parent == task.folder / "skeleton"
                       and path.suffix in manifest.TASK_SOURCES)
        return path == task.path() if of_one_task else path.is_relative_to(task.folder)

    return [task for task in tasks if any(concerns(task, path) for path in changed)]


def _wait(before: Snapshot, tasks: Sequence[Task], interval: float) -> Snapshot:
    """Blocks until a change that concerns one of the tasks is complete."""
    while True:
        now = snapshot(tasks)
        while differences(before, now):
            now = _settle(before, now, tasks)
            if affected(tasks, differences(before, now)):
                return now
            before = now
        time.sleep(interval)


def _settle(before: Snapshot, now: Snapshot, tasks: Sequence[Task]) -> Snapshot:
    """Waits until the files stay the same; one that is gone gets a while to come back."""
    begin = time.monotonic()
    while True:
        time.sleep(SETTLED)
        later = snapshot(tasks)
        gone = before.keys() - later.keys()
        if later == now and (not gone or time.monotonic() - begin > VANISHED):
            return later
        now = later
