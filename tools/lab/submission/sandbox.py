"""Runs a command that may be hostile: bubblewrap, limits of the kernel, and a bounded output.

In the sandbox there is /usr and what the caller shows, and for compilers an empty /tmp in memory:
no network, no other process, no home folder, no course. What is not shown for writing cannot be
written to.
"""

import contextlib
import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.submission import gpu

OUTPUT_LIMIT = 512 * 1024  # bytes that are kept of what a command prints
MIB = 1 << 20
LARGEST = 128 * 1024 * MIB  # of address space, that a limit is set to


@dataclass(frozen=True)
class Limits:
    seconds: float = 60           # of the clock
    memory: int = 2048 * MIB      # address space of one process; 0 for no limit
    file: int = 32 * MIB          # the largest file that it may write


@dataclass(frozen=True)
class Ended:
    code: int  # negative: the signal; 128 and more may be one too
    output: str
    timed_out: bool


class InfraError(Exception):
    """The environment failed, not the submission: it has to be graded again, and gets no zero."""


def trouble(on_gpu: bool = False) -> str:
    """Why no sandbox can be had here, and what to do; "" where one starts."""
    if shutil.which("bwrap") is None:
        return ("bubblewrap is not installed, and student code is not run without it; on Debian "
                "and Ubuntu: sudo apt-get install bubblewrap")
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    if 0 <= most < LARGEST:
        return (f"this shell allows {most} bytes of address space, and the judge reserves "
                f"{LARGEST}: begin in one without `ulimit -v`")
    try:
        tried = run(command(["/usr/bin/true"], read={}, on_gpu=on_gpu), Limits(seconds=30))
    except InfraError as error:
        return str(error)
    if tried.code == 0:
        return ""
    return ("bubblewrap is installed and starts no sandbox here, as in a container that allows no "
            f"namespaces: {tried.output.strip()}. Whoever runs the machine has to allow them: in a "
            "container by --privileged, on Ubuntu 24.04 by sysctl "
            "kernel.apparmor_restrict_unprivileged_userns=0")


def command(argv: Sequence[object], *, read: Mapping[Path, str], write: Mapping[Path, str] = {},
            variables: Mapping[str, str] = {}, folder: str = "/", hide: Sequence[Path] = (),
            on_gpu: bool = False) -> list[str]:
    """The command line that runs `argv` in a sandbox which shows the files and folders of `read`
    and `write` at these places, and none of `hide`. Where something is shown for writing, /tmp can
    be written to as well. With `on_gpu` it has the machine's GPUs."""
    words: list[object] = [
        shutil.which("bwrap") or "/usr/bin/bwrap", "--unshare-all", "--die-with-parent",
        "--new-session", "--cap-drop", "ALL", "--uid", "65534", "--gid", "65534",
        "--clearenv", "--setenv", "LC_ALL", "C", "--setenv", "PATH", "/usr/bin",
        "--ro-bind", "/usr", "/usr", *(("--tmpfs", "/tmp") if write else ())]
    for name in ("lib", "lib64", "bin"):  # as they are here: links into /usr, or folders
        place = Path("/", name)
        if place.is_symlink():
            words += ["--symlink", os.readlink(place), place]
        elif place.is_dir():
            words += ["--ro-bind", place, place]
    for option, shown in (("--ro-bind", read), ("--bind", write)):
        for place, inside in shown.items():
            words += [option, place, inside]
    for place in hide:
        words += ["--tmpfs", place] if place.is_dir() else ["--ro-bind", "/dev/null", place]
    if on_gpu:
        words += ["--proc", "/proc", "--dev", "/dev"]
        for place in gpu.devices():
            words += ["--dev-bind", place, place]
        words += ["--remount-ro", "/dev"]
    for name, value in variables.items():
        words += ["--setenv", name, value]
    words += ["--remount-ro", "/", "--chdir", folder, "--", *argv]
    return [str(word) for word in words]


def run(argv: Sequence[str], limits: Limits, variables: Mapping[str, str] | None = None) -> Ended:
    """Runs a command to its end, or to the end of its time. InfraError where it cannot start."""
    # Not by a preexec_fn, for which Python copies its own tables of memory each time.
    limited = ["prlimit", f"--as={limits.memory or 'unlimited'}", "--core=0",
               f"--fsize={limits.file}", "--", *argv]
    with tempfile.TemporaryFile() as printed:
        # A pipe would block, or hold, a program that prints without end; a file has a limit.
        try:
            process = subprocess.Popen(limited, stdin=subprocess.DEVNULL, stdout=printed,
                                       stderr=subprocess.STDOUT, start_new_session=True,
                                       env=variables)
        except OSError as error:
            raise InfraError(f"{limited[0]} does not start: {error.strerror}") from None
        try:
            ended = os.pidfd_open(process.pid)
            timed_out = not select.select([ended], [], [], limits.seconds)[0]
            os.close(ended)
        finally:
            # Before wait(): afterwards the number may be that of another process' group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(0)
        output = printed.read(OUTPUT_LIMIT).decode("utf-8", "replace")
    return Ended(process.returncode, output, timed_out)
