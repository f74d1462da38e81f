"""The screen: one rich console, the commands that a verb runs, and the progress of long ones.

On a terminal a long command is a bar or a spinner that disappears when it ends. Elsewhere (CI, a pipe) there are plain lines,
at most one every PLAIN_INTERVAL seconds, and no control codes.
"""

import os
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

from lab import paths
from lab.errors import LabError

PLAIN_INTERVAL = 10.0  # seconds
PLAIN_WIDTH = 120      # columns; rich would take 80 where there is no terminal, and cut tables


def is_terminal() -> bool:
    """Whether a person watches: control codes are for a terminal only, whatever FORCE_COLOR says."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


console = Console(highlight=False, emoji=False, force_terminal=is_terminal(), width=None if is_terminal() else PLAIN_WIDTH)


def print_command(argv: Sequence[object], cwd: Path | None = None) -> None:
    """Shows a command as a person would type it at the root (or in `cwd`), to be copied."""
    command = shlex.join(paths.relative(word) if isinstance(word, Path) else str(word) for word in argv)
    if cwd is not None and cwd != paths.ROOT:
        command = f"cd {shlex.quote(str(cwd))} && {command}"
    console.print(f"$ {command}", style="dim", markup=False, soft_wrap=True)


Update = Callable[[float, float | None], None]


@contextmanager
def progress(description: str, total: float | None = None) -> Iterator[Update]:
    """Progress of something that takes more than a few seconds.

        with progress("grading", total=12) as update:
            update(3, 12)          # 3 of 12 done; a total of None shows a spinner
    """
    begin = time.monotonic()
    if is_terminal():
        text = TextColumn("{task.description}", markup=False)
        with Progress(SpinnerColumn(), text, BarColumn(), TextColumn("{task.fields[count]}"), TimeElapsedColumn(),
                      console=console, transient=True) as bar:
            task = bar.add_task(description, total=total, count="")
            yield lambda done, of=total: bar.update(task, completed=done, total=of, count=_count(done, of).strip())
        return

    last = begin

    def plain(done: float, of: float | None = total) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PLAIN_INTERVAL:
            last = now
            console.print(f"  {description}{_count(done, of)}, {now - begin:.0f} s", markup=False, soft_wrap=True)

    yield plain


def _count(done: float, of: float | None) -> str:
    return f" {done:g}/{of:g}" if of else ""


@dataclass(frozen=True)
class Finished:
    """A command that came to its end."""

    code: int
    output: str     # stdout and stderr together, as they came
    seconds: float


def stream(argv: Sequence[object], *, on_line: Callable[[str], None] | None = None, description: str | None = None,
           cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Finished:
    """Runs a command to its end, handing each line of its output to `on_line` as it comes.

    Prints nothing by itself, except a spinner when a `description` is given and there is no `on_line`. It runs at the root, or
    in `cwd`; `env` adds to the environment. A command that is not there is a LabError; one that fails says so by its `code`.
    """
    if description is not None and on_line is None:
        with progress(description) as update:
            return stream(argv, on_line=lambda line: update(0, None), cwd=cwd, env=env)
    command = [str(word) for word in argv]
    begin = time.monotonic()
    lines: list[str] = []
    try:
        process = subprocess.Popen(command, cwd=cwd or paths.ROOT, env=os.environ | dict(env or {}), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    except FileNotFoundError as error:
        raise LabError(f"{command[0]} is not installed: ./lab doctor says what this machine lacks") from error
    with process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if on_line is not None:
                    on_line(line.rstrip("\n"))
        except BaseException:
            process.terminate()
            raise
    return Finished(process.returncode, "".join(lines), time.monotonic() - begin)
