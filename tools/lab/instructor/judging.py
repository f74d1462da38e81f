"""One task of one submission: compiles the student's file, audits it, and lets the judge run it.

Compiler, linker and the student's code run in sandboxes; the judge does not, and never loads
student code. It talks to the runner, which does (grading/judge/protocol.hpp).
"""

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import paths
from lab.errors import LabError
from lab.instructor import audit, sandbox
from lab.instructor.sandbox import InfraError, Limits
from lab.manifest import Task

TARGET = "flash_graders"
COMPILE = Limits(seconds=120)
LEAST_DISK = 256 * sandbox.MIB  # free, for temporary files
JUDGE = Limits(seconds=600, memory=8192 * sandbox.MIB, file=64 * sandbox.MIB)

# How a case or a task ended; a task is GRADED when its cases say so one by one.
PASSED, FAILED, NOT_STARTED, NOT_RUN = "passed", "failed", "not started", "not run"
GRADED, MISSING, BUILD_FAILED, REFUSED = "graded", "missing", "does not compile", "refused"
_OF_REPORT = {"passed": PASSED, "not_started": NOT_STARTED}

# What a student's file may include of the course: no .cpp, no test, no solution.
_HEADERS = ("common/*.hpp", "{part}/*.hpp", "{part}/given/*.hpp")


@dataclass(frozen=True)
class Case:
    name: str
    status: str
    points: float      # that it is worth
    message: str = ""
    challenge: bool = False

    @property
    def earned(self) -> float:
        return self.points if self.status == PASSED else 0.0


@dataclass(frozen=True)
class Judged:
    task: str           # its id
    points: float       # that it is worth
    status: str
    message: str = ""   # why, where it is not GRADED
    seed: int = 0       # of the cases
    cases: tuple[Case, ...] = ()

    @property
    def earned(self) -> float:
        return sum(case.earned for case in self.cases)


@dataclass(frozen=True)
class Bench:
    """What all submissions share: the built judges, and the headers."""

    folder: Path  # of the build
    headers: Path
    flags: dict[str, tuple[str, ...]]    # task id -> compiler and options
    exports: dict[str, tuple[str, ...]]  # task id -> functions of its contract
    provided: tuple[str, ...]            # what the runner offers to a student's library
    seconds_a_call: float = 20
    # For tests of the grader: without the audit, which grades do not stand on; only these cases.
    audited: bool = True
    only: tuple[str, ...] = ()


def judge_of(task: Task) -> str:
    return f"{task.part}_{task.name}_judge"


def can_judge(task: Task, folder: Path) -> bool:
    """Whether the build in `folder` has a judge for the task (grading/CMakeLists.txt)."""
    return (folder / "bin" / judge_of(task)).is_file()


def set_up(tasks: Sequence[Task], headers: Path, folder: Path,
           seconds_a_call: float = 20) -> Bench:
    """Reads what the build in `folder` knows, and lays out the headers in the folder `headers`."""
    entries = json.loads((folder / "compile_commands.json").read_text())
    commands = {entry["file"]: entry["command"] for entry in entries}
    for part in {task.folder for task in tasks}:
        for pattern in _HEADERS:
            for file in paths.ROOT.glob(pattern.format(part=part.name)):
                if file.name in ("oracle.hpp", "inputs.hpp", "compare.hpp"):
                    continue
                target = headers / file.relative_to(paths.ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
    return Bench(
        folder, headers,
        {task.id: _flags(commands[str(task.path(built_as(task)))]) for task in tasks},
        {task.id: _defined(folder / "lib" / f"lib{library_of(task)}.so") for task in tasks},
        _defined(folder / "lib/libflash_runner_common.so"), seconds_a_call)


def built_as(task: Task) -> str:
    """Which implementation shows how a task's file is compiled and what it exports: a release for
    students has no solution."""
    return "solution" if task.path("solution").is_file() else "skeleton"


def library_of(task: Task) -> str:
    return f"{task.part}_{task.name}_{built_as(task)}"


def _flags(command: str) -> tuple[str, ...]:
    """The compiler and its options, without the files and paths of one command."""
    words = shlex.split(command)
    # /usr/bin/c++ may be a link to /etc/alternatives, which a sandbox does not show
    kept, skip = [str(Path(shutil.which(words[0]) or words[0]).resolve())], False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in ("-o", "-c", "-MF", "-MT"):
            skip = True
        elif not word.startswith(("-I", "-D", "-W", "-MD")) or word == "-DNDEBUG":
            kept.append(word)
    return tuple(kept)


def _defined(library: Path) -> tuple[str, ...]:
    done = subprocess.run(["nm", "-DP", "--defined-only", library], capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"nm cannot read {paths.relative(library)}: build the target {TARGET}")
    names = (line.split()[0] for line in done.stdout.splitlines() if line)
    return tuple(name for name in names if not name.startswith("_ZT"))  # no tables of types


def judge(task: Task, source: bytes, bench: Bench, seed: int | None = None) -> Judged:
    """Judges one file. InfraError where the environment failed."""
    ending = Judged(task.id, task.points, GRADED, seed=seed or secrets.randbelow(10**17) + 10**17)
    with tempfile.TemporaryDirectory(prefix="lab-judge-") as folder:
        work = Path(folder)
        library = work / "build" / "student.so"
        library.parent.mkdir()
        (work / task.file).write_bytes(source)
        problem = _compile(task, work, bench)
        if problem:
            return Judged(task.id, task.points, *problem)
        return _run(task, library, work, bench, ending)


def _compile(task: Task, work: Path, bench: Bench) -> tuple[str, str] | None:
    """Leaves build/student.so; else how that failed."""
    # The file lies beside the headers, where its own place in the course is.
    course, place = work / "course", f"/course/{task.shown_path()}"
    shutil.copytree(bench.headers, course)
    own = course / task.shown_path()
    own.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(work / task.file, own)

    def tool(*argv: object) -> sandbox.Ended:
        line = sandbox.command(argv, read={course: "/course"}, write={work / "build": "/build"},
                               folder="/build")
        return sandbox.run(line, COMPILE)

    done = tool(*bench.flags[task.id], "-fno-lto", "-I/course", "-w", "-MD", "-MF",
                "/build/student.d", "-c", place, "-o", "/build/student.o")
    if done.timed_out:
        return BUILD_FAILED, f"the compiler was stopped after {COMPILE.seconds:g} s"
    if done.code:
        _look_for_infrastructure(work)
        return BUILD_FAILED, _first_error(done.output)
    strange = _strange_includes((work / "build/student.d").read_text(errors="replace"), place)
    if strange and bench.audited:
        return REFUSED, f"it includes {strange}, which is not a header of the course or of C++"
    symbols = tool("nm", "-P", "/build/student.o")
    sections = tool("readelf", "-SW", "/build/student.o")
    for listed in (symbols, sections):
        if listed.code or len(listed.output) >= sandbox.OUTPUT_LIMIT:
            return REFUSED, "its object file cannot be read, or has too many symbols"
    found = audit.findings(symbols.output, sections.output, bench.exports[task.id], bench.provided)
    if found and bench.audited:
        return REFUSED, "\n".join(found)
    exported = " ".join(f"{name};" for name in bench.exports[task.id])
    script = f"{{ global: {exported} local: *; }};"
    (work / "build/exports").write_text(script)
    done = tool(bench.flags[task.id][0], "-shared", "-fno-lto", "-Wl,-z,noexecstack",
                "-Wl,--version-script=/build/exports", "-o", "/build/student.so",
                "/build/student.o")
    if done.code:
        return BUILD_FAILED, _first_error(done.output)
    return None


def _look_for_infrastructure(work: Path) -> None:
    """Whether it was the machine that failed. What a command printed does not tell: a student's
    file decides the words of the compiler."""
    if shutil.disk_usage(work).free < LEAST_DISK:
        raise InfraError(f"less than {LEAST_DISK} bytes are free in {work.parent}")
    if trouble := sandbox.trouble():
        raise InfraError(trouble)


def _first_error(output: str) -> str:
    lines = [line.replace("/course/", "") for line in output.splitlines()]
    return next((line for line in lines if re.search(r"\berror\b|undefined reference", line)),
                lines[-1] if lines else "the compiler failed without a message")


def _strange_includes(dependencies: str, own: str) -> str:
    """The first file that the compiler read and that is no header, of the list that it wrote."""
    for word in dependencies.replace("\\\n", " ").split()[1:]:
        place = os.path.normpath(word)
        if place != own and not (place.startswith("/usr/") or
                                 place.startswith("/course/") and place.endswith(".hpp")):
            return word
    return ""


def _run(task: Task, library: Path, work: Path, bench: Bench, ending: Judged) -> Judged:
    runner = bench.folder / "bin" / f"flash_runner_{task.part}"
    common = bench.folder / "lib/libflash_runner_common.so"
    if not runner.is_file() or not common.is_file():
        raise InfraError(f"{runner.name} is not built: build the target {TARGET}")
    line = sandbox.command(
        ["/runner/runner", "/runner/student.so"], folder="/runner",
        read={runner: "/runner/runner", common: f"/runner/{common.name}",
              library: "/runner/student.so"}, variables={"LD_LIBRARY_PATH": "/runner"})
    report = work / "report.jsonl"  # the runner cannot see it
    done = sandbox.run(
        [str(bench.folder / "bin" / judge_of(task)), "--seed", str(ending.seed), "--report",
         str(report), "--out", os.devnull,
         *(word for name in bench.only for word in ("--case", name))], JUDGE,
        {"LC_ALL": "C", "FLASH_RUNNER": "\n".join(line),
         "FLASH_CALL_SECONDS": str(bench.seconds_a_call)})
    # The text of an exception is a student's: any bytes, and any kind of line separator.
    written = report.read_bytes().decode("utf-8", "replace") if report.exists() else ""
    events = [json.loads(line) for line in written.split("\n")[:-1]]  # whole lines
    if not events or events[0]["event"] != "begin" or (
            events[-1]["event"] != "complete" and not done.timed_out):
        # The judge runs no student code: if it does not finish, the student is not to blame.
        raise InfraError(f"{judge_of(task)} did not finish: {done.output.strip()[-500:]}")
    ended = {event["case"]: event for event in events if event["event"] == "end"}
    known = events[0]["cases"]
    total = sum(case["weight"] for case in known)
    cases = []
    for case in known:
        event = ended.get(case["name"], {"status": "failed", "message": "Not run, because all "
                                         f"cases together took longer than {JUDGE.seconds:g} s"})
        status = _OF_REPORT.get(event["status"], FAILED)
        if status == FAILED and event["message"].startswith("Not run, because"):
            status = NOT_RUN  # no points, and no mistake of its own
        cases.append(Case(case["name"], status, task.points * case["weight"] / total,
                          event["message"], case["challenge"]))
    return Judged(ending.task, ending.points, GRADED, seed=ending.seed, cases=tuple(cases))


def compiled(task: Task, source: bytes, work: Path, bench: Bench) -> Path:
    """The library of one file, made in the folder `work`, for whoever runs it in a sandbox of its
    own. LabError where it does not compile or is refused."""
    (work / "build").mkdir(parents=True)
    (work / task.file).write_bytes(source)
    if problem := _compile(task, work, bench):
        status, message = problem
        why = "is refused" if status == REFUSED else status
        raise LabError(f"{task.shown_path()} {why}: {'; '.join(message.splitlines())}")
    return work / "build" / "student.so"
