"""Measures a submission on a board: builds what is needed, lets the graded cases run, and starts
the judge of the leaderboard (benchmarking/leaderboard/submit_leaderboard.cpp).

The student's files are compiled, audited and run in the sandboxes of ./lab grade.
"""

import contextlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import build, bundles, console, paths
from lab.backends import CPU, EMULATED, GPU
from lab.console import say
from lab.errors import LabError
from lab.leaderboard.boards import Board
from lab.leaderboard.result import KEYS, NoResult, ranges
from lab.manifest import Task
from lab.submission import gpu, judging, sandbox
from lab.submission.judging import Bench

WARM_UP_MS = 500


@dataclass(frozen=True)
class Measured:
    samples: tuple[dict, ...]


@dataclass(frozen=True)
class Site:
    """A board on this machine, ready to be measured."""

    board: Board
    tasks: tuple[Task, ...]
    bench: Bench
    work: Path  # a folder for whatever lasts as long as this

    @property
    def program(self) -> str:
        backend = {GPU: "_gpu", EMULATED: "_emulated"}.get(self.backend, "")
        return f"submit_leaderboard{backend}"

    @property
    def backend(self) -> str:
        """Where the first task's file runs. Of a board of a GPU EMULATED in tests of the judge."""
        return self.bench.builds[self.tasks[0].id][0].backend


@contextlib.contextmanager
def site(board: Board) -> Iterator[Site]:
    on_gpu = board.device == "cuda"
    if on_gpu and (trouble := _no_gpu(board)):
        raise LabError(trouble)
    if trouble := sandbox.trouble(on_gpu):
        raise LabError(trouble)
    tasks = tuple(board.load_tasks())
    suffix = "_gpu" * on_gpu
    build.configured()
    targets = [f"submit_leaderboard{suffix}", f"leaderboard_passes{suffix}",
               judging.sandboxed_runner(GPU if on_gpu else CPU),
               *dict.fromkeys(judging.judge_of(task) for task in tasks)]
    built = build.build(targets)
    if not built.ok:
        raise LabError(f"the judge of the leaderboard does not build: {built.first_error}")
    with tempfile.TemporaryDirectory(prefix="lab-submit-") as folder:
        work = Path(folder)
        bench = judging.set_up(tasks, work / "headers", paths.BUILD,
                               **{"backends": (GPU,)} if on_gpu else {})
        yield Site(board, tasks, bench, work)


def _no_gpu(board: Board) -> str:
    config = build.configured()
    if config.cuda == "none":
        return (f"the board {board.name} is for a GPU, and this build has no CUDA: nvcc 12.0 or "
                "newer has to be in PATH (./lab doctor says more)")
    if config.cuda != "gpu":
        return (f"the board {board.name} is for a GPU, and there is none here; ./lab check "
                f"{board.tasks[0].split('.')[1]} grades the file on the emulator")
    if not config.checked:
        return (f"the board {board.name} needs g++, with which the judges of CUDA tasks are built, "
                f"and this build has {config.compiler}")
    return ""


def test(where: Site, sources: Mapping[str, bytes]) -> None:
    """Runs all graded cases of the board's tasks. LabError with the first that fails."""
    for task in where.tasks:
        judged = judging.judge(task, sources[task.shown_path()], where.bench)
        wrong = [case for case in judged.cases if case.status != judging.PASSED]
        if judged.status != judging.GRADED:
            lines = "; ".join(judged.message.splitlines())
            raise LabError(f"{task.shown_path()} {_WHY.get(judged.status, judged.status)}: {lines}")
        if wrong and all(case.status == judging.NOT_STARTED for case in wrong):
            raise LabError(f"{task.id} is not written yet; next: ./lab check {task.name}")
        if wrong:
            first = " ".join(wrong[0].message.split())
            raise LabError(
                f"{task.id} does not pass its tests: {len(wrong)} of {len(judged.cases)} cases, "
                f"first \"{wrong[0].name}\"{f' ({first})' if first else ''}; "
                f"next: ./lab check {task.name}")
        say(f"{task.id} passes its tests: {len(judged.cases)} cases")


_WHY = {judging.REFUSED: "was not run, because its code does what no solution needs"}


def libraries(where: Site, sources: Mapping[str, bytes]) -> list[Path]:
    return [judging.compiled(task, sources[task.shown_path()], where.work / task.name, where.bench)
            for task in where.tasks]


def measure(where: Site, students: Sequence[Path], turns: int,
            variables: Mapping[str, str] = {}, warm_up_ms: int = WARM_UP_MS,
            reference: Path | None = None) -> Measured:
    """Measures these libraries, one for each pass; `variables` is their environment. NoResult where
    the submission gives a wrong result or breaks a rule. On the emulator there is no reference but
    the one that is given."""
    folder, on_gpu = where.bench.folder, where.backend == GPU
    reference = reference or passes(where)
    given = {"FLASH_PASS": "unfused" if where.board.kind == "softmax_matmul" else "standard"}
    report = where.work / "report.jsonl"
    report.unlink(missing_ok=True)
    commands = [[_command(where, library, f"{name}{number}", {"FLASH_TASK": task.id} | more)
                 for number, (task, library) in enumerate(zip(where.tasks, libraries))]
                for name, libraries, more in (("student", students, variables),
                                              ("reference", [reference] * len(students), given))]
    line = [folder / "bin" / where.program, "--kind", where.board.kind, "--dtype",
            where.board.dtype, "--problems", ",".join(where.board.problems),
            "--students", ",".join(map(str, commands[0])),
            "--references", ",".join(map(str, commands[1])), "--turns", turns,
            "--warm-up-ms", warm_up_ms, *["--mark"] * ("FLASH_PASS" in variables),
            "--output", report]
    try:
        with console.progress("measuring"):
            done = subprocess.run([str(word) for word in line], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  errors="replace",
                                  env={"LC_ALL": "C"} | (
                                      gpu.variables() | {"LD_LIBRARY_PATH": gpu.driver_folder()}
                                      if on_gpu else {}))
    except OSError as error:
        raise LabError(f"{where.program} cannot be run: {error.strerror}") from None
    written = report.read_text("utf-8", "replace") if report.exists() else ""
    events = [json.loads(line) for line in written.split("\n")[:-1]]  # whole lines
    wrong = next((event for event in events if event["event"] == "wrong"), None)
    if wrong:
        where_ = f"{wrong['pass']} on {wrong['problem']}"
        raise NoResult(f"no time is taken of a wrong result: {where_}: "
                       f"{' '.join(wrong['message'].split())}")
    if done.returncode or not events or events[-1]["event"] != "complete":
        said = done.stderr.strip()[-500:] or f"exit code {done.returncode}"
        raise LabError(f"{where.program} did not finish: {said}")
    kept = {*KEYS, *ranges(where.board)}
    return Measured(tuple(
        {key: value for key, value in event.items() if key in kept} for event in events[1:-1]))


def _command(where: Site, library: Path, name: str, variables: Mapping[str, str]) -> Path:
    """A file with the command that starts a runner in its sandbox, one word a line."""
    folder, backend = where.bench.folder, where.backend
    shown = judging.runner_files(folder, backend)
    shown |= {library: "/runner/student.so"}
    ours = library.is_relative_to(folder)
    if ours:  # with the libraries that it is linked with; on a GPU that is cuBLAS, too
        shown[folder / "lib"] = "/runner/lib"
        shown |= {place: f"/runner/cuda/{needed}" for needed, place in gpu.needed(library).items()
                  if backend == GPU and needed.startswith(("libcublas", "libcudart"))}
    file = where.work / f"{name}.command"
    words = judging.in_sandbox(
        backend, shown, variables,
        first=("/runner/lib", "/runner/cuda") if ours else (), may_use_libraries=ours)
    file.write_text("\n".join(words) + "\n")
    return file


def kernels(library: Path) -> str:
    """What the kernels of a file take, by what nvcc's assembler said when it was compiled."""
    said = library.with_name("compiler.txt").read_text()
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", said)]
    shared = [int(number) for number in re.findall(r"(\d+) bytes smem", said)]
    spills = [int(number) for number in re.findall(r"(\d+) bytes spill stores", said)]
    if not registers:
        return ""
    return (f"{len(registers)} kernels, {min(registers)} to {max(registers)} registers a thread, "
            f"up to {max(shared, default=0)} bytes of static shared memory; "
            f"{sum(number > 0 for number in spills)} of them spill")


def passes(where: Site) -> Path:
    """The library of the given passes and the rungs; the environment says which."""
    return where.bench.folder / f"lib/libleaderboard_passes{'_gpu' * (where.backend == GPU)}.so"


def variables_of_rung(name: str) -> dict[str, str]:
    return {"FLASH_PASS": name, "FLASH_THREADS": "1"}  # one core, as a submission has


def read_own(tasks: Sequence[Task], implementation: str = "skeleton") -> dict[str, bytes]:
    """The files of this copy of the course, by the paths that a submission has."""
    return {task.shown_path(): bundles.content_of(task, implementation) for task in tasks}
