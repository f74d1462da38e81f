"""The screen: one rich console, the commands that a verb runs, and the progress of long ones.

On a terminal a long command shows a bar or a spinner. Elsewhere (CI, a pipe) there are plain lines,
at most one every PLAIN_INTERVAL seconds, and no control codes.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.status import Status
from rich.text import Text

from lab import paths, text
from lab.errors import LabError

PLAIN_INTERVAL = 10.0  # seconds
PLAIN_WIDTH = 120      # columns; rich would take 80 where there is no terminal, and cut tables


def is_terminal() -> bool:
    """Whether a person watches: control codes are for terminals only, whatever FORCE_COLOR says."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


console = Console(highlight=False, emoji=False, force_terminal=is_terminal(),
                  width=None if is_terminal() else PLAIN_WIDTH)


def say(line: str, style: str | None = None) -> None:
    """Prints one line as it is: brackets are no markup, and rich does not break it."""
    console.print(text.plain(line), style=style, markup=False, soft_wrap=True)


def print_command(argv: Sequence[object]) -> None:
    """Shows a command as a person would type it at the root."""
    words = (paths.relative(word) if isinstance(word, Path) else str(word) for word in argv)
    say(f"$ {shlex.join(words)}", "dim")


Update = Callable[[int, int], None]


@contextmanager
def progress(description: str) -> Iterator[Update]:
    """Progress of something that takes more than a few seconds.

        with progress("grading") as update:
            update(3, 12)          # 3 of 12 done; 0 of 0 shows a spinner
    """
    begin = last = time.monotonic()
    if is_terminal():
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(),
                   TextColumn("{task.fields[count]}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(description, total=None, count="")
            yield lambda done, of: bar.update(task, completed=done, total=of or None,
                                              count=f"{done}/{of}" if of else "")
        return

    def plain(done: int, of: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PLAIN_INTERVAL:
            last = now
            say(f"  {description}{f' {done}/{of}' if of else ''}, {now - begin:.0f} s")

    yield plain


class LiveLine(Status):
    """On a terminal a line that says what is running, while it is entered."""

    def __init__(self) -> None:
        super().__init__("", console=console)

    def show(self, line: str) -> None:
        self.update(Text(line, no_wrap=True, overflow="ellipsis"))


@dataclass(frozen=True)
class Finished:
    code: int
    output: str     # stdout and stderr together, as they came
    seconds: float


def stream(argv: Sequence[object], description: str, *, counted: str = "",
           on_step: Callable[[re.Match], object] = lambda step: None,
           env: Mapping[str, str] | None = None) -> Finished:
    """Runs a command at the root, and shows a spinner with `description`; or a bar, where the
    pattern `counted` finds in its lines how many of how many are done, which `on_step` gets, too.
    `env` adds to the environment. LabError where the command does not exist; one that fails is seen
    by its `code`."""
    command = [str(word) for word in argv]
    begin = time.monotonic()
    lines: list[str] = []
    try:
        process = subprocess.Popen(command, cwd=paths.ROOT, env=os.environ | dict(env or {}),
                                   text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, errors="replace")
    except FileNotFoundError as error:
        raise LabError(f"{command[0]} is not installed: ./lab doctor says what this machine lacks"
                       ) from error
    with process, progress(description) as update:
        try:
            for line in process.stdout:
                lines.append(line)
                if not counted:
                    update(0, 0)
                elif step := re.match(counted, line):
                    update(int(step[1]), int(step[2]))
                    on_step(step)
        except BaseException:
            process.terminate()
            raise
    return Finished(process.returncode, "".join(lines), time.monotonic() - begin)


def foreground(argv: Sequence[object]) -> int:
    """Shows a command and runs it on the terminal itself, which a progress line or a debugger
    needs; its exit code. Ctrl-C goes to the command, which leaves by itself or goes on."""
    print_command(argv)
    command = [str(word) for word in argv]
    try:
        process = subprocess.Popen(command)  # in the caller's folder: --output may be relative
    except OSError as error:
        raise LabError(f"{command[0]} cannot be run: {error.strerror}") from None
    while True:
        try:
            code = process.wait()
            return code if code >= 0 else 128 - code
        except KeyboardInterrupt:
            continue
