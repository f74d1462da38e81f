"""Where a student's code is: in which line it crashed, or in which lines it goes round.

A graded test binary writes the addresses of a thread's calls into its report when it crashes, and
when the thread gets SIGUSR2 (tests/harness/judge/where.hpp). binutils' addr2line makes lines of them.
"""

import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import paths

SAMPLES = 20  # one would name the line of an inner loop
PAUSE = 0.02  # seconds between two samples

Calls = tuple[int, ...]  # their lines in one file, the outermost first


@dataclass
class Places:
    """What a report has said of a process."""

    libraries: list[tuple[str, int]] = field(default_factory=list)  # path, base address
    seen: list[tuple[int, list[int]]] = field(default_factory=list)  # thread, its addresses
    busy: Counter[int] = field(default_factory=Counter)  # how often a thread was found running

    def take(self, event: dict) -> None:
        if event["event"] == "library":
            self.libraries.append((str(event["path"]), int(event["base"])))
        elif event["event"] == "where":
            self.seen.append((int(event["thread"]), [int(each) for each in event["addresses"]]))

    def spot(self, source: Path) -> "Spot | None":
        """None where nothing of `source` was seen. Of several threads the busiest counts."""
        lines = _lines([address for _, each in self.seen for address in each], self.libraries,
                       source)
        calls: dict[int, list[Calls]] = {}
        for thread, addresses in self.seen:
            found = [line for address in reversed(addresses) for line in lines.get(address, ())]
            if found:
                calls.setdefault(thread, []).append(tuple(found))
        if not calls:
            return None
        thread = max(calls, key=lambda each: (self.busy[each], len(calls[each])))
        return spot_of(calls[thread], paths.relative(source))


@dataclass(frozen=True)
class Spot:
    file: str
    first: int  # line
    last: int
    caller: int = 0  # the line in which all of it was called; 0: it is nobody's call in the file

    def __str__(self) -> str:
        there = (f"in the lines {self.first} to {self.last} of {self.file}"
                 if self.first < self.last else f"at {self.file}:{self.first}")
        return there + (f", called in line {self.caller}" if self.caller else "")

    def same(self, other: "Spot | None") -> bool:
        return (other is not None and self.caller == other.caller
                and self.first <= other.last and other.first <= self.last)


def look_at(process: int, places: Places) -> None:
    """Asks each thread of a process SAMPLES times where it is; the report gets the answers."""
    tgkill = getattr(ctypes.CDLL(None), "tgkill", None)
    if tgkill is None:
        return  # not Linux
    for _ in range(SAMPLES):
        with contextlib.suppress(OSError):
            for thread in map(int, os.listdir(f"/proc/{process}/task")):
                stat = Path(f"/proc/{process}/task/{thread}/stat").read_text()
                places.busy[thread] += stat.rpartition(")")[2].split()[0] == "R"
                tgkill(process, thread, signal.SIGUSR2)
        time.sleep(PAUSE)


def spot_of(calls: Sequence[Calls], file: str) -> Spot:
    """The innermost call that all have in common, and the lines below it."""
    common = [lines[0] for lines in itertools.takewhile(lambda lines: len(set(lines)) == 1,
                                                        zip(*calls))]
    below = {each[len(common)] for each in calls if len(each) > len(common)}
    if not below:
        return Spot(file, common[-1], common[-1])
    return Spot(file, min(below), max(below), common[-1] if common else 0)


def _lines(addresses: Iterable[int], libraries: Iterable[tuple[str, int]],
           source: Path) -> dict[int, list[int]]:
    """For each address the lines of `source` that it belongs to: of functions that were inlined
    there, the outermost first."""
    found: dict[int, list[int]] = {}
    wanted = sorted(set(addresses))
    for path, base in libraries:
        inside = [address for address in wanted if 0 < address - base < os.path.getsize(path)]
        # An address is the one behind a call; the call itself is before it.
        command = ["addr2line", "-a", "-i", "-e", path,
                   *(hex(address - base - 1) for address in inside)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            return {}
        current = -1
        for line in done.stdout.splitlines() if inside else ():
            file, _, number = line.rpartition(":")
            if line.startswith("0x"):
                current += 1
            elif file.endswith(f"/{source.parent.name}/{source.name}"):
                with contextlib.suppress(ValueError):
                    found.setdefault(inside[current], []).insert(0, int(number.split()[0]))
    return found
