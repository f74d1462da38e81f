"""One task of one submission: compiles the student's file, audits it, and lets the judge run it.

Compiler, linker and the student's code run in sandboxes; the judge does not, and never loads
student code. It talks to the runner, which does (tests/harness/judge/protocol.hpp).
"""

import dataclasses
import functools
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import libraries, manifest, outcomes, paths
from lab.backends import CHECKED, CPU, EMULATED, GPU
from lab.build import first_error
from lab.errors import LabError
from lab.manifest import Task
from lab.outcomes import BUILD_FAILED, EXCEPTION, NEEDS_CHECKS, NOT_RUN, NOT_STARTED, PASSED
from lab.outcomes import CaseResult as Case
from lab.running import Report, judge_of, runner_of
from lab.submission import apart, assembly, audit, gpu, sandbox, source, spaces
from lab.submission.sandbox import InfraError, Limits

TARGET = "flash_graders"
EXPORTS = ("flash_task",)  # of a task's library: common/task.hpp
COMPILE = Limits(seconds=120)
_QUIET = ("-fno-lto", "-w")
_FIRST = "first.hpp"
# So that a jump to an address, and memory behind the stack, are not what the compiler made.
_PLAIN_CODE = ("-fno-jump-tables", "-mno-red-zone") if assembly.IS_KNOWN else ()
# A build that nobody runs leaves kernels unoptimized, so that nvcc is quick: they spill registers.
NOT_IN_CLASS = ("-Ofc",)
LEAST_DISK = 256 * sandbox.MIB  # free, for temporary files
# Of address space: batches lie far apart, its runner has what the emulator reserves, and a limit of
# its own on the rest. A GPU's driver reserves as much as there is.
JUDGE = Limits(seconds=600, memory=sandbox.LARGEST, file=64 * sandbox.MIB)
GPU_JUDGE = dataclasses.replace(JUDGE, memory=0)
# JUDGE.seconds are for all tasks of a submission; when they are over, a run has these.
LEAST_SECONDS = 60
# nvcc takes 34 s of a processor for the bonus' solution; 6 GiB are enough for it.
COMPILE_ON_GPU = Limits(seconds=300, memory=8192 * sandbox.MIB, file=64 * sandbox.MIB)

# How a case or a task ended; a task is GRADED when its cases say so one by one.
FAILED = "failed"
GRADED, MISSING, REFUSED = "graded", "missing", "refused"
_SAID = (PASSED, NOT_STARTED, NEEDS_CHECKS, NOT_RUN)  # of a case; all others are FAILED

# What a student's file may include of the course: no .cpp, no test, no solution. Of the emulator:
# what CUDA's headers are there, and not what host code may ask it.
_HEADERS = ("common/*.hpp", "common/cpu/*.hpp", "{part}/*.hpp", "{part}/given/*.hpp")
_CUDA_HEADERS = ("common/cuda/*.hpp", "common/cuda/*.inc", "emulator/headers/**/*",
                 "emulator/headers/device/*")


Tool = Callable[..., sandbox.Ended]  # runs a compiler in the sandbox, with these arguments
Libraries = dict[tuple[str, str], bytes | None]  # by task and backend; None: it has a problem


@dataclass(frozen=True)
class Judged:
    task: str           # its id
    points: float       # that it is worth
    status: str
    message: str = ""   # why, where it is not GRADED
    seed: int = 0       # of the cases
    cases: tuple[Case, ...] = ()

    @property
    def requirements(self) -> list[tuple[str, float, float, list[Case]]]:
        """Name, points earned, points, cases. What is earned is rounded here, and nowhere else: all
        that is shown adds up."""
        found: dict[str, list[Case]] = {}
        for case in self.cases:
            found.setdefault(case.requirement, []).append(case)
        return [(name, rounded(case.earned for case in cases),
                 rounded(case.points for case in cases), cases) for name, cases in found.items()]

    @property
    def earned(self) -> float:
        return rounded(earned for _, earned, _, _ in self.requirements)


def rounded(points: Iterable[float]) -> float:
    """The sum in thousandths: half of a percent of a point is exact."""
    return round(sum(points), 3)


@dataclass(frozen=True)
class Build:
    """One way to compile a student's file; a CUDA task has several."""

    backend: str  # lab.backends
    flags: tuple[str, ...]  # the compiler and its options
    link: tuple[str, ...]   # what links the library, and its options

    @property
    def library(self) -> str:
        return f"student_{self.backend}.so"

    @property
    def untimed(self) -> "Build":
        """For the cases of a class, which take longer to compile than to run: without what makes
        C++ faster than at -O1, and what a debugger alone reads (-g1 stays)."""
        return dataclasses.replace(self, flags=(*(
            word for word in self.flags
            if word != "-g2" and not word.startswith(("-ftree-vectorize", "-fvect-cost-model"))
        ), *["-O1"] * (self.backend == CPU)))


@dataclass(frozen=True)
class Bench:
    """What all submissions share: the built judges, and the headers."""

    folder: Path  # of the build
    headers: Path
    builds: dict[str, tuple[Build, ...]]  # task id -> how its file is compiled
    others: dict[str, Task]  # task id -> the task whose function its cases call, too
    provided: dict[str, tuple[str, ...]]  # backend -> what the runner offers
    seconds_a_call: float = 20
    # For tests of the grader: without the audit, which grades do not stand on; only these cases.
    audited: bool = True
    only: tuple[str, ...] = ()
    first: Path | None = None  # precompiled(): the folder that has it


def can_judge(task: Task, folder: Path) -> bool:
    """Whether the build in `folder` has a judge for the task, and the runners that it needs."""
    runner = sandboxed_runner(CHECKED if task.is_cuda else CPU)
    return all((folder / "bin" / name).is_file() for name in (judge_of(task), runner))


def set_up(tasks: Sequence[Task], headers: Path, folder: Path, seconds_a_call: float = 20,
           backends: Sequence[str] = (EMULATED, CHECKED)) -> Bench:
    """Reads what the build in `folder` knows, and lays out the headers in the folder `headers`.
    `backends` are those of CUDA tasks: the first runs most cases, CHECKED those that need it."""
    known = libraries.load(folder)
    by_id = {task.id: task for part in manifest.load_parts() for task in part.tasks}
    others = {task.id: by_id[task.other_task] for task in tasks if task.other_task in by_id}
    everything = list(dict.fromkeys([*tasks, *others.values()]))
    lay_out_headers({task.folder for task in everything}, headers)
    on_device = backends if any(task.is_cuda for task in tasks) else ()
    offered = {backend: offers(folder, backend) for backend in (CPU, *on_device)}
    return Bench(
        folder, headers, {task.id: tuple(_builds(task, known, backends)) for task in everything},
        others, offered, seconds_a_call)


def lay_out_headers(parts: Iterable[Path], headers: Path) -> None:
    """What files of these parts may include of the course, in the folder `headers`."""
    for part in parts:
        for pattern in _HEADERS + _CUDA_HEADERS:
            for file in paths.ROOT.glob(pattern.format(part=part.name)):
                if file.name in ("oracle.hpp", "inputs.hpp", "compare.hpp") or file.is_dir():
                    continue
                target = headers / file.relative_to(paths.ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)


def precompiled(bench: Bench, tasks: Sequence[Task], folder: Path) -> Bench:
    """With all that the skeletons in C++ include read by the compiler once, into the new `folder`,
    in place of in each compilation: that is a third of it."""
    in_cpp = [task for task in tasks if not task.is_cuda and task.path("skeleton").is_file()]
    if not in_cpp:
        return bench
    folder.mkdir()
    (folder / _FIRST).write_text("\n".join(dict.fromkeys(
        line for task in in_cpp
        for line in re.findall("(?m)^#include .*", task.path("skeleton").read_text()))) + "\n")
    build = bench.builds[in_cpp[0].id][0].untimed
    ended = sandbox.run(sandbox.command(
        [*build.flags, *_QUIET, "-x", "c++-header", f"/first/{_FIRST}", "-o",
         f"/first/{_FIRST}.gch"], read=_shown_to_compilers(build.flags[:1], bench.headers),
        write={folder: "/first"}), dataclasses.replace(COMPILE, file=256 * sandbox.MIB))
    return bench if ended.code else dataclasses.replace(bench, first=folder)


def offers(folder: Path, backend: str) -> tuple[str, ...]:
    """The functions that code compiled for this backend may use of the course."""
    of_device = [name for file in _LIBRARIES[backend] for name in defined(folder / file)]
    return (*defined(folder / "lib/runner/libflash_common.so"),
            *filter(audit.may_be_used_in_cuda, of_device))


_EMULATOR = ("lib/libflash_lines.so", "lib/libflash_emulator.so", "lib/libflash_cuda_emulated.so")
_LIBRARIES = {CPU: (), EMULATED: _EMULATOR, CHECKED: _EMULATOR, GPU: ("lib/libflash_cuda.so",)}


def runner_files(folder: Path, backend: str) -> dict[Path, str]:
    """The runner of a backend with its libraries, and the places where its sandbox shows them."""
    runner = folder / "bin" / sandboxed_runner(backend)
    files = {runner: "/runner/runner",
             folder / "lib/runner/libflash_common.so": "/runner/libflash_common.so"}
    files |= {folder / file: f"/runner/{Path(file).name}" for file in _LIBRARIES[backend]}
    # /usr is in every sandbox; a compiler of its own folder has its own libstdc++.
    own = ("libcudart",) if backend == GPU else ()
    files |= {place: f"/runner/{name}" for name, place in gpu.needed(runner).items()
              if name.startswith(own) or name.startswith(("libstdc++", "libgcc_s"))
              and not place.is_relative_to("/usr")}
    return files


def sandboxed_runner(backend: str) -> str:
    """The CMake target."""
    return runner_of(backend).replace("flash_", "flash_sandboxed_")


def runners_of(task: Task, bench: Bench) -> list[Path]:
    """What runs the task's files in this bench, with all libraries."""
    return sorted({file for build in bench.builds[task.id]
                   for file in runner_files(bench.folder, build.backend)})


def in_sandbox(backend: str, shown: Mapping[Path, str],
               variables: Mapping[str, str] = {}, first: Sequence[str] = (),
               may_use_libraries: bool = False) -> list[str]:
    """The command that starts a runner; `shown` has its library as /runner/student.so. `first` are
    folders in which libraries are looked for before."""
    on_gpu = backend == GPU
    found = [*first, "/runner", *([gpu.driver_folder()] if on_gpu else [])]
    return sandbox.command(
        ["/runner/runner", "/runner/student.so"], folder="/runner", read=shown, on_gpu=on_gpu,
        hide=gpu.vendor_files() if on_gpu and not may_use_libraries else (),
        variables={"LD_LIBRARY_PATH": ":".join(found)} | dict(variables) | (
            gpu.variables() if on_gpu else {"FLASH_SIMT_THREADS": "1"}))


def _builds(task: Task, known: libraries.Known, backends: Sequence[str]) -> Iterable[Build]:
    """As the skeleton is compiled, with the course's headers at their place in the sandbox."""
    for backend in backends if task.is_cuda else (CPU,):
        library = known.get((task.path(), backend))
        if not library:
            raise LabError(f"the build does not compile {task.file} for the backend {backend}")
        more: tuple[str, ...] = ()
        linker = _in_sandbox(library.linker)
        library = _shown(library)
        architectures = library.architectures
        if backend == GPU:
            # All that the GPU can do, which code for Hopper has to ask for; what each kernel takes.
            numbers = {re.sub(r"a?(-.*)?$", "", word) for word in architectures}
            architectures = tuple(f"{number}{'a' * (int(number) >= 90)}-real" for number in numbers)
            more = (f"-ccbin={linker}", "-Xptxas=-v")
        command = dataclasses.replace(
            library, architectures=architectures,
            options=tuple(word for word in library.options if not word.startswith(NOT_IN_CLASS))
        ).command()
        yield Build(backend, (*command, *more), (linker, *(
            word for word in library.link if "--version-script" not in word)))


def _shown(library: libraries.Library) -> libraries.Library:
    """With the places where a sandbox shows compilers and headers."""
    return dataclasses.replace(
        library, compiler=_in_sandbox(library.compiler), linker=_in_sandbox(library.linker),
        includes=tuple(f"/course/{Path(place).relative_to(paths.ROOT)}"
                       for place in library.includes if Path(place).is_relative_to(paths.ROOT)))


def _in_sandbox(compiler: str) -> str:
    """/usr/bin/c++ may be a link to /etc/alternatives, which a sandbox does not show."""
    return str(Path(shutil.which(compiler) or compiler).resolve())


def listing(tool: str, *words: object) -> str:
    """What nm or readelf says of a file of the build."""
    done = subprocess.run([tool, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{tool} cannot read {paths.relative(Path(words[-1]))}: build the target "
                       f"{TARGET}")
    return done.stdout


def defined(library: Path) -> tuple[str, ...]:
    names = (line.split()[0] for line in listing("nm", "-DP", "--defined-only", library).splitlines()
             if line)
    return tuple(name for name in names if not name.startswith("_ZT"))  # no tables of types


def judge(task: Task, source: bytes, bench: Bench, seed: int | None = None,
          others: Mapping[str, bytes] = {}, seconds: float = JUDGE.seconds,
          made: Libraries | None = None) -> Judged:
    """Judges one file; `others` are the other files of the same author, by their paths; `seconds`
    are left for its cases; `made` is what earlier calls for this author have compiled. InfraError
    where the environment failed."""
    made = {} if made is None else made
    end = time.monotonic() + seconds
    ending = Judged(task.id, task.points, GRADED, seed=seed or secrets.randbelow(10**17) + 10**17)
    with tempfile.TemporaryDirectory(prefix="lab-judge-") as folder:
        work = Path(folder) / "work"
        _lay_out(task, source, work, bench)
        known: dict[str, Case] = {}
        ended: dict[str, Case] = {}
        for build in bench.builds[task.id]:
            # What is not begun has no checks to fail.
            statuses = {case.status for case in ended.values()}
            if NOT_STARTED in statuses and statuses <= {NOT_STARTED, NEEDS_CHECKS}:
                ended = {name: dataclasses.replace(case, status=NOT_STARTED)
                         for name, case in ended.items()}
                break
            problem = _compile(task, build.untimed, work, bench)
            library = work / "build" / build.library
            made[task.id, build.backend] = None if problem else library.read_bytes()
            if problem:
                return Judged(task.id, task.points, *problem)
            with_other = _other_library(task, build, others, work, bench, made)
            report = _run(task, build, work, bench, ending.seed, with_other,
                          max(LEAST_SECONDS, end - time.monotonic()))
            known, ended = known or report.known, ended | report.ended
        cases = [_in_class(case) for name, case in (known | ended).items()
                 if case.status != NEEDS_CHECKS and (not bench.only or name in bench.only)]
        return dataclasses.replace(ending, cases=tuple(outcomes.with_points(task, cases)))


def _other_library(task: Task, build: Build, others: Mapping[str, bytes], work: Path,
                   bench: Bench, made: Libraries) -> dict[Path, str]:
    """The library of the task whose function the cases call, too, and where the runner finds it;
    nothing where the author's file is not there, does not compile or is refused."""
    other = bench.others.get(task.id)
    if other is None or other.shown_path() not in others:
        return {}
    if (other.id, build.backend) not in made:
        folder = work.with_name(f"other_{build.backend}")
        _lay_out(other, others[other.shown_path()], folder, bench)
        same = next(one for one in bench.builds[other.id] if one.backend == build.backend)
        problem = _compile(other, same.untimed, folder, bench)
        made[other.id, build.backend] = None if problem else (
            folder / "build" / same.library).read_bytes()
    library = made[other.id, build.backend]
    if library is None:
        return {}
    file = work.with_name(f"other_{build.library}")
    file.write_bytes(library)
    return {file: "/runner/other.so"}


def merged(task: Task, some: Judged, others: Judged) -> Judged:
    """Of the same file, judged with different backends, and so in different cases."""
    if some.status != GRADED or others.status != GRADED:
        return others if some.status == GRADED else some
    return dataclasses.replace(some, cases=tuple(
        outcomes.with_points(task, [*some.cases, *others.cases])))


def _lay_out(task: Task, source: bytes, work: Path, bench: Bench) -> None:
    """The file lies beside the headers, where its own place in the course is."""
    shutil.copytree(bench.headers, work / "course")
    own = work / "course" / task.shown_path()
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_bytes(source)
    (work / "build").mkdir()


def compiled(task: Task, source: bytes, work: Path, bench: Bench) -> Path:
    """The library of one file, made in the new folder `work`, for whoever runs it in a sandbox of
    its own. LabError where it does not compile or is refused."""
    _lay_out(task, source, work, bench)
    build = bench.builds[task.id][0]
    if problem := _compile(task, build, work, bench):
        status, message = problem
        why = "is refused" if status == REFUSED else status
        raise LabError(f"{task.shown_path()} {why}: {'; '.join(message.splitlines())}")
    return work / "build" / build.library


def _compile(task: Task, build: Build, work: Path, bench: Bench) -> tuple[str, str] | None:
    """Leaves the library in the folder build/; else how that failed."""
    place = f"/course/{task.shown_path()}"
    tool = _tool(work, (build.flags[0], build.link[0]),
                 COMPILE_ON_GPU if build.backend == GPU else COMPILE, bench.first)
    to_object = (*build.flags, *_QUIET, "-c", place, "-o", "/build/student.o")
    try:
        if build.backend in (EMULATED, CHECKED):
            printed = _compile_emulated(task, build, work, bench, tool)
        else:
            has_first = bench.first and build.backend == CPU
            ended = tool(*to_object, *("-include", f"/first/{_FIRST}") * bool(has_first))
            if has_first and ended.code and not ended.timed_out:
                ended = tool(*to_object)  # perhaps it uses names that it did not include itself
            printed = _done(work, ended)
        (work / "build/compiler.txt").write_text(printed)
        symbols = tool("nm", "-P", "/build/student.o")
        sections = tool("readelf", "-SW", "/build/student.o")
        for listed in (symbols, sections):
            if listed.code or len(listed.output) >= sandbox.OUTPUT_LIMIT:
                raise _Problem(REFUSED, "its object file cannot be read, or has too many symbols")
        if not re.search("^flash_task T ", symbols.output, re.MULTILINE):
            raise _Problem(BUILD_FAILED, task.lacks_entry())
        text = (work / "course" / task.shown_path()).read_text(errors="replace")
        _refuse(bench, audit.findings(
            symbols.output, sections.output, EXPORTS, bench.provided[build.backend],
            build.backend if task.is_cuda else CPU, text))
        if build.backend == EMULATED:
            _refuse(bench, apart.call(spaces.findings, text, work / "course", functools.partial(
                _preprocess, work, build.flags[0])))
        stubs, wrapped = assembly.stubs(
            (work / "build/student.s").read_text()) if build.backend == CHECKED else ("", [])
        (work / "build/stubs.s").write_text(stubs)
        script = f"{{ global: {' '.join(f'{name};' for name in EXPORTS)} local: *; }};"
        (work / "build/exports").write_text(script)
        _done(work, tool(build.link[0], "-shared", "-fno-lto", "-Wl,-z,noexecstack",
                         *build.link[1:], *(f"-Wl,--wrap={name}" for name in wrapped),
                         "-Wl,--version-script=/build/exports", "-o", f"/build/{build.library}",
                         "/build/student.o", "/build/stubs.s"))
    except apart.TooMuch as why:
        return REFUSED, str(why)
    except _Problem as problem:
        return problem.args
    return None


def _preprocess(work: Path, compiler: str, conditions: str) -> str:
    (work / "build/conditions.cc").write_text(conditions)
    ended = _tool(work, [compiler], COMPILE)(compiler, "-E", "-P", "-std=c++20",
                                             "/build/conditions.cc")
    return ended.output if ended.code == 0 else ""


def _shown_to_compilers(compilers: Iterable[str], course: Path) -> dict[Path, str]:
    folders = {Path(compiler).parent.parent for compiler in compilers}
    return {course: "/course"} | {
        folder: str(folder) for folder in folders if not folder.is_relative_to("/usr")}


def _tool(work: Path, compilers: Iterable[str], limits: Limits, first: Path | None = None) -> Tool:
    shown = _shown_to_compilers(compilers, work / "course") | ({first: "/first"} if first else {})

    def run(*argv: object) -> sandbox.Ended:
        line = sandbox.command(argv, read=shown, write={work / "build": "/build"}, folder="/build")
        return sandbox.run(line, limits)

    return run


class _Problem(Exception):
    """How a file ended, and why."""


def _done(work: Path, ended: sandbox.Ended) -> str:
    """What a compiler or linker printed that has come to its end."""
    if ended.timed_out:
        raise _Problem(BUILD_FAILED, "the compiler was stopped, because it took too long")
    if ended.code:
        _look_for_infrastructure(work)
        raise _Problem(BUILD_FAILED, first_error(ended.output.replace("/course/", ""), paths.ROOT))
    return ended.output


def _refuse(bench: Bench, found: Sequence[str]) -> None:
    if found and bench.audited:
        raise _Problem(REFUSED, "\n".join(found))


def _compile_emulated(task: Task, build: Build, work: Path, bench: Bench, tool: Tool) -> str:
    """Through the preprocessor, once for both builds, and for the checks through assembly."""
    made = work / "build"
    words = iter(build.flags)
    flags, after = [], ("-x", "c++-cpp-output")
    for word in words:  # the preprocessor takes what is included before the file, and its language
        flags += [word] if word not in ("-include", "-x") else []
        if word in ("-include", "-x"):
            next(words)
    if not (made / "student.ii").exists():
        text = (work / "course" / task.shown_path()).read_text(errors="replace")
        read = source.Source(text, bench.headers)
        (made / "first.hpp").write_text(read.first if bench.audited else "")
        ended = tool(*preprocessing(build.flags, "/build/first.hpp"),
                     f"/course/{task.shown_path()}", "-o", "/build/student.ii")
        _refuse(bench, source.poisoned(ended.output))
        _done(work, ended)
        if bench.audited:
            _refuse(bench, apart.call(
                read.findings, (made / "student.ii").read_text(errors="replace")))
    if build.backend == EMULATED:
        return _done(work, tool(*flags, *_QUIET, *after, "-c", "/build/student.ii", "-o",
                                "/build/student.o"))
    printed = _done(work, tool(*flags, *_QUIET, *_PLAIN_CODE, *after, "-S", "/build/student.ii",
                               "-o", "/build/student.s"))
    if bench.audited:
        try:
            text = apart.call(assembly.instrumented,
                              (made / "student.s").read_text(errors="replace"))
        except assembly.Odd as odd:
            raise _Problem(REFUSED, f"its code has {odd}, whose accesses to memory "
                                    "the emulator's checks would not see") from None
        (made / "student.s").write_text(text)
    _done(work, tool(build.link[0], "-c", "/build/student.s", "-o", "/build/student.o"))
    return printed


def preprocessing(flags: Iterable[str], first: str) -> list[str]:
    """The command for the text that source.Source reads; `first` is the file with its `first`."""
    return [*(word for word in flags if not word.startswith("-fsanitize")), "-w", "-include", first,
            "-E"]


def _look_for_infrastructure(work: Path) -> None:
    """Whether it was the machine that failed. What a command printed does not tell: a student's
    file decides the words of the compiler."""
    if shutil.disk_usage(work).free < LEAST_DISK:
        raise InfraError(f"less than {LEAST_DISK} bytes are free in {work.parent}")
    if trouble := sandbox.trouble():
        raise InfraError(trouble)


def _run(task: Task, build: Build, work: Path, bench: Bench, seed: int,
         other: Mapping[Path, str], seconds: float) -> Report:
    """Runs the cases that this library is for."""
    runner = runner_files(bench.folder, build.backend)
    for file in runner:
        if not file.is_file():
            raise InfraError(f"{file.name} is not built: build the target {TARGET}")
    library = work / "build" / build.library
    # Student code can read it, and must not know the inputs of later cases: it tells little of them.
    order = {"FLASH_SIMT_SCHEDULE": f"random:{seed % 65521}"} if task.is_cuda else {}
    line = [*in_sandbox(build.backend, runner | {library: "/runner/student.so"} | dict(other),
                        order), *other.values()]
    file = work / f"{build.backend}.jsonl"  # the runner cannot see it
    done = sandbox.run(
        [str(bench.folder / "bin" / judge_of(task)), "--task", task.id, "--library", str(library),
         "--call-seconds", str(bench.seconds_a_call),
         "--seed", str(seed), "--report", str(file), "--out", os.devnull,
         *["--needs-checks"] * (build.backend == CHECKED),
         *(word for name in bench.only for word in ("--case", name)), "--", *line],
        dataclasses.replace(GPU_JUDGE if build.backend == GPU else JUDGE, seconds=seconds),
        {"LC_ALL": "C"})
    # The text of an exception is a student's: any bytes, and any kind of line separator.
    written = file.read_bytes().decode("utf-8", "replace") if file.exists() else ""
    report = Report()
    for line in written.split("\n")[:-1]:  # whole ones
        report.take(line)
    if not report.complete and not (done.timed_out and report.known):
        # The judge runs no student code: if it does not finish, the student is not to blame.
        raise InfraError(f"{judge_of(task)} did not finish: {done.output.strip()[-500:]}")
    return report


def _in_class(case: Case) -> Case:
    message = case.message.replace("/course/", "")
    if case.name.startswith("hidden: "):  # code could say its inputs
        case = dataclasses.replace(case, output="")
        message = "It threw an exception." if case.status == EXCEPTION else message
    if case.status == NOT_RUN and not message:
        message = ("Not run, because all cases of the submission together took longer than "
                   f"{JUDGE.seconds:g} s")
    return dataclasses.replace(case, message=message,
                               status=case.status if case.status in _SAID else FAILED)
