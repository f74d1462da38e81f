"""What the emulator counts of a kernel, by source line (emulator/run/counts.hpp), and what that
says about its speed."""

import csv
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import arithmetic, build, checking, console, libraries, manifest, running
from lab.backends import CHECKED, Backends
from lab.build import Config
from lab.errors import LabError
from lab.manifest import Task
from lab.outcomes import NOT_STARTED, CaseResult

VARIABLE, EVENTS = "FLASH_SIMT_COUNTS", "FLASH_SIMT_EVENTS"  # name the file, and a folder
# The graded cases whose problems are counted, of those that a task has; else FEW of its cases.
CASES = ("checks: loads are coalesced", "causal: sequence 257",
         "200 queries and 200 keys in blocks of 32")
FEW = 10
SHARED = "shared memory"
OF_THREADS = {"multiply", "add", "run"}  # arithmetic, and all instructions (arithmetic.py)
SECTOR = 32  # bytes
_NUMBERS = ("requests", "lanes", "partial", "bytes", "sectors", "wavefronts", "least", "work",
            "slowest")

CUDA = "part1_softmax_matmul/cuda.md, section 5"
TRAFFIC = {"part1": "part1_softmax_matmul/README.md, section 1.6",
           "part3": "part3_flash_cuda/README.md, section 8",
           "bonus": "bonus_backward/README.md, section 9",
           "decode": "bonus_decode/README.md, section 7"}
MASKS = "part3_flash_cuda/README.md, section 4"


@dataclass
class Line:
    """What the warps of a kernel do on one line of the source."""

    kernel: str
    place: str   # "fused_cuda.cu:97"
    what: str    # "load", "store" or the name of an operation
    tensor: str  # "" of an operation
    width: int   # bytes of a lane
    requests: int = 0
    lanes: int = 0
    partial: int = 0  # requests in which some lanes of the warp took no part
    bytes: int = 0    # different ones, of each request
    sectors: int = 0
    wavefronts: int = 0
    least: int = 0  # wavefronts without bank conflicts
    # Before a barrier: instructions of a warp in the mean, and of the slowest one.
    work: int = 0
    slowest: int = 0
    # Of its request with the most sectors or wavefronts, where each lane is: bytes behind the start
    # of the allocation, or of bank 0. None: the lane takes no part.
    offsets: tuple[int | None, ...] = ()
    first: int = 0  # where the tensor's first element is

    @property
    def is_access(self) -> bool:
        return self.width > 0

    @property
    def is_shared(self) -> bool:
        return self.tensor == SHARED

    @property
    def products(self) -> int:
        """Multiplications, each with an addition, of all matrix instructions."""
        shape = re.search(r"m(\d+)n(\d+)k(\d+)", self.what)
        return self.requests * math.prod(map(int, shape.groups())) if shape else 0

    @property
    def each(self) -> float:
        """Sectors or wavefronts of a request."""
        return (self.sectors + self.wavefronts) / max(1, self.requests)

    @property
    def used(self) -> float:
        """The share of the sectors that the lanes use."""
        return self.bytes / (SECTOR * self.sectors)

    @property
    def least_sectors(self) -> int:
        """That hold the bytes of the requests, which are taken to be alike."""
        return self.requests * math.ceil(self.bytes / max(1, self.requests) / SECTOR)

    @property
    def asked(self) -> int:
        """Bytes of all lanes, or of copies by TMA."""
        return self.lanes * self.width if self.is_access else SECTOR * self.sectors

    @property
    def is_load(self) -> bool:
        return self.what in ("load", "TMA load")

    @property
    def is_store(self) -> bool:
        return self.what in ("store", "TMA store")


@dataclass
class Launch:
    kernel: str
    blocks: int
    threads: int
    shared: int  # bytes of a block
    causal: bool
    tensors: dict[str, tuple[int, ...]]  # the bytes of an element, then its shape
    symbol: str  # the kernel's mangled name
    lines: list[Line]
    strides: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of elements

    def bytes_of(self, tensor: str) -> int:
        return math.prod(self.tensors[tensor])

    @property
    def is_paged(self) -> bool:
        """Whether it is the data that says which keys there are."""
        return "block_table" in self.tensors

    @property
    def heads(self) -> int:
        """How many independent problems there are."""
        of = self.tensors.get("q") or self.tensors.get("x")
        return of[1] * (of[2] if "q" in self.tensors else 1) if of and len(self.tensors) > 2 else 1

    @property
    def flops(self) -> int | None:
        """Of the matrix products that the problem asks for; None if it is no such problem."""
        if {"x", "v", "out"} <= self.tensors.keys():
            _, batch, d1, d2, _ = self.tensors["x"]
            return 2 * batch * d1 * d2 * self.tensors["v"][3]
        if not {"q", "k", "v", "out"} <= self.tensors.keys() or self.is_paged:
            return None
        (_, batch, heads, queries, head_dim), keys = self.tensors["q"], self.tensors["k"][3]
        pairs = sum(min(i + 1, keys) for i in range(queries)) if self.causal else queries * keys
        return (10 if "d_q" in self.tensors else 4) * batch * heads * pairs * head_dim

    def asked(self, tensor: str) -> tuple[int, int]:
        """Bytes that are loaded and stored."""
        of = [line for line in self.lines if line.tensor == tensor]
        return (sum(line.asked for line in of if line.is_load),
                sum(line.asked for line in of if line.is_store))

    @property
    def moved(self) -> int:
        """Bytes of the sectors of device memory."""
        return SECTOR * sum(line.sectors for line in self.lines)


def tasks(name: str, implementation: str, config: Config) -> Iterator[Task]:
    """The CUDA tasks of that name, each with its checked library. LabError where there is none."""
    if not config.checked:
        raise LabError("the counts need the emulator's checks, which need g++ on Linux "
                       "(./lab doctor says more)")
    found = [task for task in manifest.select(manifest.load_parts(), [name]) if task.is_cuda]
    if not found:
        raise LabError(f"{name} has no kernel: only CUDA tasks are profiled")
    for task in found:
        built = checking.build_tasks([task], implementation, Backends(config, CHECKED))[task.id]
        if not built.result.ok:
            raise LabError(f"{task.name} does not compile: {built.result.first_error}")
        yield task


def library(task: Task, implementation: str) -> Path | None:
    """The folder with a library that counts arithmetic, too; None where there can be none."""
    known = libraries.load(build.build_folder()).get((task.path(implementation), CHECKED))
    if known is None or not arithmetic.IS_KNOWN:
        return None
    folder = build.build_folder() / "profile"
    folder.mkdir(exist_ok=True)
    made = running.library(task, implementation, CHECKED, folder)
    checked = running.library(task, implementation, CHECKED)
    if made.is_file() and made.stat().st_mtime > checked.stat().st_mtime:
        return folder
    code = made.with_suffix(".s")
    for step in ([*known.command(), *arithmetic.OPTIONS, code, task.path(implementation)],
                 [known.linker, "-shared", *known.link, "-o", made, code]):
        done = console.stream(step, "compiling once more, with counters")
        if done.code:
            return None
        if step[-1] != code:
            text = code.read_text("latin-1")  # clang leaves any bytes in texts as they are
            code.write_text(arithmetic.counted(text), "latin-1")
    code.unlink()
    return folder


def cases(task: Task, asked: str | None) -> list[str]:
    """The graded cases whose problems are counted."""
    known = running.case_names(task, CHECKED)
    if asked is not None and asked not in known:
        raise LabError(f'{task.name}: no case is called "{asked}"{manifest.nearest(asked, known)}')
    return [asked] if asked else [name for name in CASES if name in known] or known[:FEW]


def run(task: Task, case: str, implementation: str,
        folder: Path | None = None,
        with_library: Path | None = None) -> tuple[CaseResult, list[Launch]]:
    """With a folder, the events of the case are there behind it (timeline.py)."""
    with tempfile.TemporaryDirectory(prefix="flash-profile-") as own:
        file = Path(own) / "counts.tsv"
        variables = {VARIABLE: str(file)} | ({EVENTS: str(folder)} if folder else {})
        how = running.Settings(implementation, case=case, variables=variables,
                               folder=with_library, profile=True)
        result, = running.run(task, CHECKED, how, [case])
        launches = load(file) if file.is_file() else []
    if result.status == NOT_STARTED:
        raise LabError(f"task {task.name} is not started, so there is nothing to profile; next: "
                       f"./lab check {task.name}")
    if not launches:
        raise LabError(f"{task.name}: no kernel was launched in \"{case}\"; next: ./lab check "
                       f"{task.name}")
    return result, launches


def run_rung(part: str, name: str, folder: Path, library: Path | None = None) -> list[Launch]:
    """The launches of a rung of the part's ladder, or of a task's library in the same problem."""
    program = f"{part}_look_checked"
    if not (built := build.build([program])).ok:
        raise LabError(f"{program} does not build: {built.first_error}")
    file = folder / "counts.tsv"
    command = [build.binary(program), name, *[library] * (library is not None)]
    console.print_command(command)
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {
        VARIABLE: str(file), EVENTS: str(folder)})
    if ended.returncode:
        raise LabError(ended.stderr.strip())
    return load(file)


def load(file: Path) -> list[Launch]:
    launches: dict[str, Launch] = {}
    with file.open(newline="") as table:
        for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["launch"] not in launches:
                causal, _, rest = row["problem"].partition(" ")
                found = re.findall(r"(\w+)=([\dx]+)((?:@-?\d+)*)", rest)
                tensors = {name: tuple(map(int, shape.split("x"))) for name, shape, _ in found}
                strides = {name: tuple(map(int, text[1:].split("@"))) for name, _, text in found
                           if text}
                launches[row["launch"]] = Launch(
                    row["kernel"], int(row["blocks"]), int(row["threads"]), int(row["shared"]),
                    causal == "causal", tensors, row["symbol"], [],
                    strides)
            launches[row["launch"]].lines.append(Line(
                row["kernel"], row["place"], row["what"], row["tensor"], int(row["width"]),
                *(int(row[name]) for name in _NUMBERS),
                tuple(int(offset) if offset else None for offset in row["offsets"].split(",")),
                int(row["first"])))
    return list(launches.values())


def by_line(launches: Iterable[Launch]) -> list[Line]:
    """The sums over instructions of a line, and over launches."""
    sums: dict[tuple, Line] = {}
    for line in (line for launch in launches for line in launch.lines):
        key = line.place, line.what, line.tensor, line.width
        found = sums.setdefault(
            key, Line(line.kernel, *key, offsets=line.offsets, first=line.first))
        if line.offsets and line.each > found.each:
            found.offsets = line.offsets
        for name in _NUMBERS:
            setattr(found, name, getattr(found, name) + getattr(line, name))
    return sorted(sums.values(), key=lambda line: (
        line.place.rpartition(":")[0], int(line.place.rpartition(":")[2] or 0), line.tensor))


def figures(launches: Sequence[Launch]) -> dict[str, tuple[str, str]]:
    """What two kernels for the same problem are compared by: a number, and what it means."""
    threads = ", ".join(dict.fromkeys(str(launch.threads) for launch in launches))
    lines = [line for launch in launches for line in launch.lines if line.is_shared]
    wavefronts, least = (sum(getattr(line, of) for line in lines) for of in ("wavefronts", "least"))
    return {
        "thread blocks": (f"{sum(launch.blocks for launch in launches)} of {threads} threads",
                          "Each computes its own part of the output."),
        "operations for each wavefront of shared memory": (
            f"{(launches[0].flops or 0) / wavefronts:.0f}" if wavefronts else "wgmma reads it",
            "A wavefront is 128 bytes that come at once; a multiply-add is two operations. A "
            "multiprocessor of an H100 does 256 in the time of one wavefront: below that, shared "
            "memory is the limit."),
        "bank conflicts": (
            str(wavefronts - least), "Wavefronts in which lanes wait for each other.")}


def advice(line: Line) -> str:
    """How the accesses of the line could be better; "" if they are as they should be."""
    if line.is_shared:
        if line.wavefronts == line.least:
            return ""
        return (f"bank conflicts: a request takes {line.each:.3g} wavefronts, "
                f"and {line.least / line.requests:.3g} would do. Lanes want different words of one "
                f"bank: pad the rows, or let lanes take neighbours ({CUDA}).")
    if line.sectors <= 1.3 * line.least_sectors:
        return ""
    return (f"not coalesced: a request touches {line.each:.3g} sectors, and "
            f"{line.least_sectors / line.requests:.3g} would hold its bytes. Let neighbouring "
            f"lanes take neighbouring elements, or a lane four in one float4 ({CUDA}).")


def findings(launches: Sequence[Launch], part: str) -> list[str]:
    """What makes the kernel slower than it has to be: sentences that begin with the source line. An
    access counts from 2 % of all sectors, or of all wavefronts, on that it takes too much."""
    lines = [line for line in by_line(launches) if line.is_access]
    sectors, wavefronts = (sum(getattr(line, of) for line in lines)
                           for of in ("sectors", "wavefronts"))
    found = [f"{line.place}: {line.what} {line.tensor}: {advice(line)}" for line in lines
             if advice(line) and (line.wavefronts - line.least > 0.02 * wavefronts
                                  or line.sectors - line.least_sectors > 0.02 * sectors)]
    found += (text for launch in launches for text in _repeated(launch, part))
    return list(dict.fromkeys(found))


def merged(lines: Sequence[Line], ptx: str) -> list[str]:
    """Which accesses of the source nvcc has put together, by its PTX with lines."""
    files = dict(re.findall(r'\.file\s+(\d+)\s+"([^"]*)"', ptx))
    widest: dict[tuple[str, str, bool], int] = {}
    place = ""
    for text in ptx.splitlines():
        if found := re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)", text):
            # Code of a header counts for the line that calls it.
            in_cu = [(files.get(file, ""), line) for file, line in found
                     if files.get(file, "").endswith(".cu")]
            place = f"{Path(in_cu[0][0]).name}:{in_cu[0][1]}" if in_cu else ""
        elif access := re.search(r"\b(ld|st)\.(?:volatile\.)?(global|shared)[\w.:]*?(?:\.v(\d))?"
                                 r"\.[a-z](\d+)\s", text):
            what, space, count, bits = access.groups()
            key = place, "load" if what == "ld" else "store", space == "shared"
            widest[key] = max(widest.get(key, 0), int(count or 1) * int(bits) // 8)
    found = []
    for line in lines:
        key = line.place.rpartition("/")[2], line.what, line.is_shared
        width = max((other.width for other in lines if (
            other.place, other.what, other.is_shared) == (line.place, *key[1:])), default=0)
        if line.is_access and line.width == width and widest.get(key, 0) > width:
            found.append(f"{line.place}: nvcc merges: {widest[key] // width} of these accesses "
                         f"({line.what} {line.tensor}) are one instruction of {widest[key]} bytes")
    return list(dict.fromkeys(found))


def habits(launches: Sequence[Launch], part: str) -> dict[str, list[str]]:
    """Habits of fast kernels, and the lines that break them. Nobody gets points for them."""
    lines = by_line(launches)
    accesses = [line for line in lines if line.is_access]
    return {
        "Every access to device memory is coalesced": [
            line.place for line in accesses if not line.is_shared and advice(line)],
        "No access to shared memory has bank conflicts": [
            line.place for line in accesses if line.is_shared and advice(line)],
        "No tensor moves over 5 % more bytes than its blocks need": [
            *(line for launch in launches for text in _repeated(launch, part)
              for line in text.partition(": ")[0].split(", ")),
            *(line.place for launch in launches for line in launch.lines
              if line.is_store and line.tensor in launch.tensors and
              launch.asked(line.tensor)[1] > 1.05 * launch.bytes_of(line.tensor))],
        # Ragged ends, and what happens once, may.
        "No warp diverges in the main loop": [
            line.place for line in accesses if 8 * line.partial > line.requests and
            line.requests > 0.02 * sum(each.requests for each in accesses)]}


def _repeated(launch: Launch, part: str) -> Iterator[str]:
    """Of inputs that are loaded more often than they must be."""
    for tensor in launch.tensors if not launch.is_paged else ():
        loads = [line for line in launch.lines if line.is_load and line.tensor == tensor]
        if not loads:
            continue
        asked, whole = launch.asked(tensor)[0], launch.bytes_of(tensor)
        most = whole * launch.blocks / launch.heads  # once for each block of its head
        named = (f"{', '.join(dict.fromkeys(line.place for line in loads))}: {tensor} is loaded "
                 f"{asked / whole:.3g} times")
        if asked > 1.05 * most and whole >= 4096:
            yield (
                f"{named}, and each thread block needs it at most once: {most / whole:.3g} times. "
                f"Threads of a block load the same: share it in shared memory ({TRAFFIC[part]}).")
        elif launch.causal and tensor in ("k", "v") and launch.blocks > launch.heads and (
                asked > 0.98 * most):
            yield (
                f"{named} under a causal mask: every block of queries loads all keys. Keys behind "
                "its last query have no weight: end the loop there, and mask only the blocks of "
                f"keys on the diagonal ({MASKS}).")
