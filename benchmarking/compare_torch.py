#!/usr/bin/env python3
"""Attention on the CPU beside PyTorch's scaled_dot_product_attention: the same tensors, one process, in turns.

    benchmarking/compare_torch.py --install           once: PyTorch, pinned, in an environment of its own, .venv-torch
    benchmarking/compare_torch.py --quick             a minute; without --quick, all sizes
    benchmarking/compare_torch.py --table FILE.csv    the tables of results that are there, without measuring

Standard library and PyTorch only. How it measures, and what the columns of outputs/csv/torch_comparison.csv mean: README.md.
"""

import argparse
import contextlib
import csv
import ctypes
import importlib.util
import itertools
import math
import os
import platform
import re
import shlex
import signal
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

REPOSITORY = Path(__file__).resolve().parents[1]
VENV = REPOSITORY / ".venv-torch"
PINS = ("torch==2.15.0", "numpy==2.4.6")  # numpy: without it torch warns on import
LIBRARY = REPOSITORY / "build/default/lib" / ("libflash_attention_c" + (".dylib" if sys.platform == "darwin" else ".so"))
OUTPUT = REPOSITORY / "outputs" / "csv" / "torch_comparison.csv"

OF_CASE = ("device", "direction", "dtype", "batch", "heads", "seq_len", "head_dim", "causal")
COLUMNS = (*OF_CASE, "implementation", "peer", "ms", "peer_ms", "ratio", "error", "peer_error", "machine", "gflops",
           "peer_gflops", "gemm_gflops", "fma_peak_gflops", "share_of_gemm", "share_of_peak", "threads", "isa", "turns",
           "status", "others")
KEY = (*OF_CASE, "implementation", "peer", "machine", "threads", "isa")

DTYPES = ("float32", "float64")
DIRECTIONS = ("forward", "backward")

# The sizes of --quick are in no complete run, so that its rows, of fewer turns, never replace those of one.
FULL: dict[str, Any] = {"dtypes": DTYPES, "directions": DIRECTIONS, "head_dims": (64, 128), "seq_lens": (512, 1024, 2048, 4096),
                        "batch_heads": ((1, 1), (1, 8)), "causal": (False, True), "turns": 21}
QUICK: dict[str, Any] = FULL | {"dtypes": ("float32",), "head_dims": (64,), "seq_lens": (384, 768), "batch_heads": ((1, 8),),
                                "turns": 9}

# Seconds. PyTorch's OpenMP threads go on spinning after a parallel region (libgomp: 300 000 rounds of `pause`, 17 ms where that
# instruction takes 140 cycles at 2.5 GHz), and would hold the processors of whoever is measured next.
PAUSE = 0.025
BLOCK = 0.006  # what a contender is timed for in one turn: long against a clock's reading, short against the machine's moods
MOST_CALLS = 1000
FEWEST_TURNS = 7  # however long they take
GEMM_EVERY = 3  # turns: one product takes as long as a dozen blocks
GEMM_SIZE = 2048
DISTURBED = 0.05  # share of the processors that others may have before it is said


class ComparisonError(Exception):
    """One line that a person can act on; the program shows it and stops."""


class Failed(Exception):
    """What a function of the C library says it cannot do."""

    status = "error"


class Unsupported(Failed):
    status = "unsupported"


class OutOfMemory(Failed):
    status = "OOM"


# ---- what is compared --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One problem and one pass over it."""

    device: str
    direction: str
    dtype: str
    batch: int
    heads: int
    seq_len: int
    head_dim: int
    causal: bool

    @property
    def flop(self) -> float:
        """Two products of n x n x d forward, five backward, a multiplication and an addition each; with causal, half."""
        products = 2 if self.direction == "forward" else 5
        whole = 2 * products * self.batch * self.heads * self.seq_len**2 * self.head_dim
        return whole / 2 if self.causal else whole

    def cells(self) -> dict[str, str]:
        return {name: str(getattr(self, name)) for name in OF_CASE}

    def __str__(self) -> str:
        return (f"{self.direction:<8} {self.dtype} {f'{self.batch}x{self.heads}':>5} {self.seq_len:>6} {self.head_dim:>4} "
                f"{'causal' if self.causal else '':<6}")


def cases(sizes: dict[str, Any], device: str = "cpu") -> list[Case]:
    """All combinations; those that share an oracle's result lie side by side."""
    return [Case(device, direction, dtype, batch, heads, seq_len, head_dim, causal)
            for dtype, head_dim, seq_len, causal, (batch, heads), direction in itertools.product(
                *(sizes[name] for name in ("dtypes", "head_dims", "seq_lens", "causal", "batch_heads", "directions")))]


# ---- ours: the C library -----------------------------------------------------------------------------------------------------


class Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "heads", "queries", "keys", "head_dim")]


class Library:
    """benchmarking/attention_c.h. Pointers are addresses of tensors that the caller keeps alive."""

    RESULTS = {1: Failed, 2: Unsupported, 3: OutOfMemory}

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise ComparisonError(f"{shown(file)} is not there: cmake --preset default && "
                                  "cmake --build --preset default --target flash_attention_c")
        try:
            self._c = ctypes.CDLL(str(file))
            self._c.flash_last_error.restype = ctypes.c_char_p
        except (OSError, AttributeError) as error:
            raise ComparisonError(f"{shown(file)} cannot be used: {error}") from None

    def call(self, function: str, *arguments: Any) -> None:
        self._raise(getattr(self._c, f"flash_{function}")(*arguments))

    def names(self) -> list[str]:
        """The implementations, slowest first."""
        count = ctypes.c_int()
        self.call("implementation_count", ctypes.byref(count))
        found = []
        for index in range(count.value):
            name = ctypes.c_char_p()
            self.call("implementation_name", index, ctypes.byref(name))
            found.append((name.value or b"").decode())
        return found

    def has(self, name: str, dtype: str) -> bool:
        has = ctypes.c_int()
        self.call("implementation_has_dtype", name.encode(), DTYPES.index(dtype), ctypes.byref(has))
        return bool(has.value)

    def saves_p(self, name: str) -> bool:
        saves = ctypes.c_int()
        self.call("implementation_saves_p", name.encode(), ctypes.byref(saves))
        return bool(saves.value)

    def isa(self) -> str:
        text = ctypes.c_char_p()
        self.call("isa", ctypes.byref(text))
        return (text.value or b"").decode()

    def set_threads(self, threads: int) -> None:
        self.call("set_threads", threads)

    def fma_peak_gflops(self, dtype: str) -> float:
        gflops = ctypes.c_double()
        self.call("fma_peak_gflops", DTYPES.index(dtype), ctypes.byref(gflops))
        return gflops.value

    def prepared(self, function: str, case: Case, *addresses: int | None, name: str | None = None,
                 heads: bool = True) -> Callable[[], None]:
        """A call with its arguments converted once: what is timed is the pass, and the 2 us of a call through ctypes.

        Without `heads` it is about one head of the case."""
        batch, count = (case.batch, case.heads) if heads else (1, 1)
        shape = Shape(batch, count, case.seq_len, case.seq_len, case.head_dim)
        words = [ctypes.c_int(DTYPES.index(case.dtype)), ctypes.byref(shape), ctypes.c_int(case.causal),
                 *(ctypes.c_void_p(address) for address in addresses)]
        if name is not None:
            words.insert(0, ctypes.c_char_p(name.encode()))
        run, check = getattr(self._c, f"flash_{function}"), self._raise

        def call() -> None:
            result = run(*words)
            if result:
                check(result)

        return call

    def _raise(self, result: int) -> None:
        if result:
            raise self.RESULTS.get(result, Failed)(self._c.flash_last_error().decode(errors="replace"))


# ---- the two of them on the same tensors -------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """Largest error of each, over the largest element of the oracle's result; `problem` is empty when both are right."""

    error: float
    peer_error: float
    problem: str = ""


def judged(what: str, error: float, limit: float) -> str:
    """Empty when the error is within the limit, which NaN never is."""
    return "" if error <= limit else f"{what} is off by {error:.2g} of the largest element; rounding explains {limit:.2g}"


class TorchBench:
    """Tensors, oracle and contenders of a case. The peer of a device is a class like this one."""

    device = "cpu"

    def __init__(self, torch: Any, library: Library, threads: int) -> None:
        self.torch, self.library = torch, library
        torch.set_num_threads(threads)
        self.peer = f"pytorch {torch.__version__} sdpa flash"
        self._oracles: dict[tuple, tuple] = {}
        self._gemm: dict[str, tuple] = {}
        for dtype in DTYPES:  # to ask for its flash attention should do; that it ran is better
            q = torch.zeros(1, 1, 2, 8, dtype=getattr(torch, dtype), requires_grad=True)
            with self._flash():
                kernel = torch.nn.functional.scaled_dot_product_attention(q, q, q).grad_fn.name()
            if "FlashAttentionForCpu" not in kernel:
                raise ComparisonError(f"PyTorch {torch.__version__} runs {kernel} for {dtype}, not its flash attention")

    def _flash(self) -> Any:
        """Within this, PyTorch's own choice is its flash attention, or an error."""
        attention = self.torch.nn.attention
        return attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION)

    def gemm(self, dtype: str) -> Callable[[], float]:
        """A measurement of torch.mm in GFLOP/s: a small product to wake its threads, then a large one."""
        torch = self.torch
        if dtype not in self._gemm:
            with torch.inference_mode(False):  # what is made in that mode cannot be written outside of it
                a, b = (torch.randn(GEMM_SIZE, GEMM_SIZE, dtype=getattr(torch, dtype)) for _ in range(2))
                self._gemm[dtype] = a, b, torch.empty_like(a)
        a, b, out = self._gemm[dtype]

        def measured() -> float:
            torch.mm(a[:256], b[:, :256])
            begin = time.perf_counter()
            torch.mm(a, b, out=out)
            return 2e-9 * GEMM_SIZE**3 / (time.perf_counter() - begin)

        return measured

    def oracle(self, case: Case, head: Any) -> tuple[list[Any], list[float]]:
        """The float64 results for `head` (q, k, v, d_out), and how far off rounding may be: out and lse, or three gradients."""
        key = (case.direction, case.dtype, case.seq_len, case.head_dim, case.causal)
        if key not in self._oracles:
            torch = self.torch
            wide = [torch.empty(case.seq_len, case.head_dim, dtype=torch.float64) for _ in range(3)]
            addresses = [one.data_ptr() for one in head]
            if case.direction == "forward":
                lse, largest = torch.empty(case.seq_len, dtype=torch.float64), ctypes.c_double()
                self.library.prepared("attention_oracle", case, *addresses[:3], wide[0].data_ptr(), lse.data_ptr(),
                                      ctypes.addressof(largest), heads=False)()
                self._oracles[key] = [wide[0], lse], [largest.value]
            else:
                errors = (ctypes.c_double * 3)()
                self.library.prepared("attention_backward_oracle", case, *addresses, *(one.data_ptr() for one in wide),
                                      ctypes.addressof(errors), heads=False)()
                self._oracles[key] = wide, list(errors)
        return self._oracles[key]

    @contextlib.contextmanager
    def duel(self, case: Case, implementation: str) -> Iterator["TorchDuel"]:
        """What is to be measured, in the surroundings that PyTorch measures best in, entered once and not in each call."""
        with self._flash():
            duel = TorchDuel(self, case, implementation)
            with self.torch.inference_mode(case.direction == "forward"):
                yield duel


class TorchDuel:
    """One case, one implementation: ours() and peer() do the pass once, check() says whether both are right.

    Every head is the first one with its head_dim columns rotated by the head's number, in q, k, v and d_out alike. Its scores
    are then the same, and its results the first head's, rotated: one head in the oracle checks all of them, and yet no two
    heads have the same data.
    """

    def __init__(self, bench: TorchBench, case: Case, implementation: str) -> None:
        torch, library = bench.torch, bench.library
        self.bench, self.case = bench, case
        dtype = getattr(torch, case.dtype)
        of_queries = (case.batch, case.heads, case.seq_len, case.head_dim)
        random = torch.Generator().manual_seed(case.seq_len)
        self.head = torch.randn(4, case.seq_len, case.head_dim, generator=random, dtype=dtype)  # of q, k, v and d_out
        q, k, v, d_out = (torch.stack([one.roll(h, -1) for h in range(case.batch * case.heads)]).reshape(of_queries)
                          for one in self.head)

        def unwritten(*shape: int) -> Any:  # NaN: what the pass leaves as it was fails the check
            return torch.full(shape, math.nan, dtype=dtype)

        out, self.lse = unwritten(*of_queries), unwritten(*of_queries[:3])
        self.saves_p = library.saves_p(implementation)
        p = unwritten(*of_queries[:3], case.seq_len) if self.saves_p else None
        self._alive = q, k, v, d_out, p, out  # the C library has their addresses
        passed = [None if one is None else one.data_ptr() for one in (q, k, v, out, self.lse, p)]
        forward = library.prepared("attention_forward", case, *passed, name=implementation)
        if case.direction == "forward":
            self.ours, self.results = forward, {"out": out}
            attention = torch.nn.functional.scaled_dot_product_attention
            self.peer = lambda: attention(q, k, v, is_causal=case.causal)
        else:
            forward()
            self.results = {name: unwritten(*of_queries) for name in ("d_q", "d_k", "d_v")}
            self.ours = library.prepared("attention_backward", case, *passed, d_out.data_ptr(),
                                         *(one.data_ptr() for one in self.results.values()), name=implementation)
            leaves = [one.detach().requires_grad_() for one in (q, k, v)]
            graph = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=case.causal)
            self.peer = lambda: torch.autograd.grad(graph, leaves, d_out, retain_graph=True)

    def check(self) -> Verdict:
        self.ours()
        theirs = self.peer()
        wanted, limits = self.bench.oracle(self.case, self.head)
        verdict = Verdict(0, 0)
        theirs = theirs if isinstance(theirs, tuple) else (theirs,)
        # The limits hold for any data, and are far away for the gradients of N(0, 1), whose terms cancel. This is 10 times what
        # three implementations in both dtypes came to, at 64 to 2048 keys, and far below what one key left out of 4096 changes.
        usual = 8 * self.bench.torch.finfo(self.lse.dtype).eps * math.sqrt(self.case.seq_len)
        for (name, ours), peer, want, limit in zip(self.results.items(), theirs, wanted, limits):
            scale = float(want.abs().max()) or 1.0
            limit = min(limit, usual * scale)
            error, peer_error = self._error(ours, want) / scale, self._error(peer, want) / scale
            verdict = Verdict(worst(verdict.error, error), worst(verdict.peer_error, peer_error),
                              verdict.problem or judged(name, error, limit / scale) or
                              judged(f"PyTorch's {name}", peer_error, limit / scale))
        if self.case.direction == "forward" and not self.saves_p:
            # An error of lse is one of exp's argument: the same bound, since the magnitude in the limit is about 1 here.
            error = self._error(self.lse[..., None], wanted[1][..., None])
            verdict.problem = verdict.problem or judged("lse", error / float(wanted[1].abs().max()), limits[0])
        return verdict

    def _error(self, got: Any, want: Any) -> float:
        """The largest difference from `want` (seq_len, columns), over all heads."""
        return worst(*(float((one.double() - want.roll(h, -1)).abs().max())
                       for h, one in enumerate(got.reshape(-1, *want.shape))))


# ---- measuring ---------------------------------------------------------------------------------------------------------------


@dataclass
class Turns:
    """Seconds a call, one entry a turn, and in GFLOP/s what the machine can do; None in a turn that did not measure it."""

    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    gemm: list[float | None] = field(default_factory=list)
    peak: list[float | None] = field(default_factory=list)


@dataclass
class Stopwatch:
    """What a test replaces: time, and the passing of it."""

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep

    def seconds(self, work: Callable[[], Any], calls: int = 1) -> float:
        """A call's share of `calls` in a row."""
        begin = self.now()
        for _ in range(calls):
            work()
        return (self.now() - begin) / calls


def measure(ours: Callable[[], Any], peer: Callable[[], Any], gemm: Callable[[], float] | None,
            peak: Callable[[], float] | None, turns: int, budget: float, watch: Stopwatch) -> Turns:
    """Both contenders once a turn, in the order A B, B A, A B, ...: whoever is first one time is second the next.

    Whatever the machine does for longer than a turn, it does to both. Before a contender's block of timed calls comes a pause
    in which the other's threads fall asleep, and a call that is not timed, which brings its own threads, pages and caches back.
    """
    works = {"ours": ours, "peer": peer}
    calls = {}
    for name, work in works.items():
        watch.sleep(PAUSE)
        work()
        calls[name] = max(1, min(MOST_CALLS, round(BLOCK / max(watch.seconds(work), 1e-9))))

    done = Turns()
    begin = watch.now()
    for turn in range(turns):
        if turn >= FEWEST_TURNS and watch.now() - begin > budget:
            break
        done.peak.append(None)
        for name in ("ours", "peer") if turn % 2 == 0 else ("peer", "ours"):
            watch.sleep(PAUSE)
            works[name]()
            getattr(done, name).append(watch.seconds(works[name], calls[name]))
            if name == "ours" and peak is not None:  # at once: it uses the same threads, and the clock rate may be another soon
                done.peak[turn] = peak()
        done.gemm.append(None)
        if gemm is not None and turn % GEMM_EVERY == 0:
            watch.sleep(PAUSE)
            done.gemm[turn] = gemm()
    return done


def summary(case: Case, turns: Turns) -> dict[str, str]:
    """The measured cells of a row. Ratios and shares are medians of those within a turn, not ratios of medians."""
    def median(values: Iterable[float | None]) -> str:
        there = [value for value in values if value is not None]
        return f"{statistics.median(there):.6g}" if there else ""

    def shares(ceiling: Sequence[float | None]) -> str:
        return median(case.flop / seconds * 1e-9 / most if most else None for seconds, most in zip(turns.ours, ceiling))

    ours, peer = statistics.median(turns.ours), statistics.median(turns.peer)
    return {"ms": f"{1e3 * ours:.6g}", "peer_ms": f"{1e3 * peer:.6g}",
            "ratio": median(theirs / own for own, theirs in zip(turns.ours, turns.peer)),
            "gflops": f"{1e-9 * case.flop / ours:.6g}", "peer_gflops": f"{1e-9 * case.flop / peer:.6g}",
            "gemm_gflops": median(turns.gemm), "fma_peak_gflops": median(turns.peak),
            "share_of_gemm": shares(turns.gemm), "share_of_peak": shares(turns.peak), "turns": str(len(turns.ours))}


def compare(bench: Any, case: Case, implementation: str, fixed: dict[str, str], turns: int, budget: float,
            watch: Stopwatch) -> tuple[dict[str, str], str]:
    """The row of a case, and what went wrong if its status is not "ok"."""
    row = dict.fromkeys(COLUMNS, "") | case.cells() | fixed
    row |= {"implementation": implementation, "peer": bench.peer, "turns": "0"}
    try:
        if not bench.library.has(implementation, case.dtype):
            raise Unsupported(f"{implementation} has no {case.dtype} version")
        with bench.duel(case, implementation) as duel:
            verdict = duel.check()
            row |= {"error": f"{verdict.error:.3g}", "peer_error": f"{verdict.peer_error:.3g}"}
            if verdict.problem:
                return row | {"status": "error"}, verdict.problem
            measured = measure(duel.ours, duel.peer, bench.gemm(case.dtype),
                               lambda: bench.library.fma_peak_gflops(case.dtype), turns, budget, watch)
        return row | summary(case, measured) | {"status": "ok"}, ""
    except Failed as failure:
        return row | {"status": failure.status}, one_line(failure)
    except (RuntimeError, MemoryError) as failure:  # PyTorch's
        out_of_memory = isinstance(failure, MemoryError) or re.search("allocate memory|not enough memory", str(failure))
        return row | {"status": "OOM" if out_of_memory else "error"}, one_line(failure)


def worst(*values: float) -> float:
    """The largest; NaN when there is one, which max() may lose."""
    return math.nan if any(math.isnan(value) for value in values) else max(values)


class Others:
    """How much of the processors was not ours since the last look: other programs', or stolen by other virtual machines."""

    def __init__(self, stat: Path = Path("/proc/stat"), own: Callable[[], float] = time.process_time) -> None:
        self._stat, self._own = stat, own
        self._before = self._look()

    def share(self) -> float:
        """From 0 to 1; 0 where the system does not say."""
        before, now = self._before, self._look()
        self._before = now
        total, busy, own = (new - old for old, new in zip(before, now))
        return max(0.0, busy - own) / total if total > 0 else 0.0

    def _look(self) -> tuple[float, float, float]:
        """Seconds of all processors, of those not idle, and of this process with its threads."""
        try:
            # user nice system idle iowait irq softirq steal; what follows is in user already
            ticks = [int(word) for word in self._stat.read_text(encoding="utf-8").split("\n")[0].split()[1:9]]
            second = os.sysconf("SC_CLK_TCK")
            return sum(ticks) / second, (sum(ticks) - ticks[3] - ticks[4]) / second, self._own()
        except (OSError, ValueError, IndexError):
            return 0.0, 0.0, 0.0


def machine() -> str:
    """The processor's name, and how many of them this process may use."""
    name = ""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        name = found[1].strip() if found else ""
    except OSError:
        if sys.platform == "darwin":
            name = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True).stdout.strip()
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name or platform.processor() or platform.machine()} ({count} logical cores)"


# ---- the CSV -----------------------------------------------------------------------------------------------------------------


def load(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV of ours; of another file, ComparisonError."""
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            records = list(csv.reader(stream, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ComparisonError(f"{shown(file)} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not records or tuple(records[0]) != COLUMNS:
        raise ComparisonError(f"{shown(file)} is another kind of table and is left as it is: it does not begin with "
                              f"{','.join(COLUMNS[:4])},...")
    for line, record in enumerate(records[1:], 2):
        if len(record) != len(COLUMNS):
            raise ComparisonError(f"{shown(file)}:{line} has {len(record)} cells; there have to be {len(COLUMNS)}")
    return [dict(zip(COLUMNS, record)) for record in records[1:]]


def record(file: Path, row: dict[str, str]) -> None:
    """Puts `row` in the place of the one with its key, or at the end; the file is the old one or the new one, never a part."""
    rows = load(file) if file.exists() else []
    places = [place for place, other in enumerate(rows) if all(other[name] == row[name] for name in KEY)]
    if places:
        rows[places[0]] = row
    else:
        rows.append(row)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", newline="", encoding="utf-8") as stream:
            table = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)  # in the same folder, because a rename is atomic only within one file system
    except OSError as error:
        raise ComparisonError(f"{shown(file)} cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


# ---- the tables --------------------------------------------------------------------------------------------------------------


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def markdown(rows: list[dict[str, str]]) -> str:
    """For each machine, implementation and peer: a line a direction and dtype, then every ratio."""
    sections = []
    groups = grouped(rows, "device", "machine", "threads", "isa", "implementation", "peer")
    for (device, processor, threads, isa, implementation, peer), members in groups.items():
        title = ", ".join(filter(None, (device, processor, f"{threads} threads", isa)))
        sections.append(f"**`{implementation}` beside {peer}: {title}**\n\n" + "\n".join(_means(members)))
        for (direction, dtype), ratios in grouped(members, "direction", "dtype").items():
            sections.append(f"{direction}, {dtype}: {peer.split()[0]}'s time over ours\n\n" + "\n".join(_grid(ratios)))
    return "\n\n".join(sections)


def grouped(rows: Iterable[dict[str, str]], *columns: str) -> dict[tuple[str, ...], list[dict[str, str]]]:
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in columns), []).append(row)
    return groups


def number(row: dict[str, str], column: str, least: float = math.ulp(0)) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        wanted = "above 0" if least else "from 0"
        raise ComparisonError(f"{column} is '{row[column]}' in a row with the status ok; it must be a number {wanted}")
    return value


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _means(rows: list[dict[str, str]]) -> list[str]:
    header = ("direction", "dtype", "ratio, geometric mean", "worst", "best", "faster in", "of torch.mm", "of the FMA peak",
              "disturbed", "failed")
    lines = [_line(header), "| --- | --- |" + " ---: |" * (len(header) - 2)]
    for (direction, dtype), members in grouped(rows, "direction", "dtype").items():
        done = sorted((row for row in members if row["status"] == "ok"), key=lambda row: number(row, "ratio"))
        cells = [""] * 7
        if done:
            ratios = [number(row, "ratio") for row in done]
            cells = [f"{geometric_mean(ratios):.2f}x", _where(done[0]), _where(done[-1]),
                     f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)}",
                     *(_mean_share(done, column) for column in ("share_of_gemm", "share_of_peak")),
                     str(sum(number(row, "others", least=0) > DISTURBED for row in done))]
        failed = ", ".join(sorted({row["status"] for row in members} - {"ok"}))
        count = len(members) - len(done)
        lines.append(_line([direction, dtype, *cells, f"{count} ({failed})" if count else "0"]))
    return lines


def _mean_share(rows: list[dict[str, str]], column: str) -> str:
    """Empty where there was no such ceiling."""
    there = [number(row, column) for row in rows if row[column]]
    return f"{100 * geometric_mean(there):.0f} %" if there else ""


def _where(row: dict[str, str]) -> str:
    causal = ", causal" if row["causal"] == "True" else ""
    return f"{number(row, 'ratio'):.2f}x ({row['batch']}x{row['heads']}, {row['seq_len']}, {row['head_dim']}{causal})"


def _grid(rows: list[dict[str, str]]) -> list[str]:
    """A line a head_dim and batch x heads, a column a sequence and mask."""
    def size(row: dict[str, str], *columns: str) -> tuple[int, ...]:
        return tuple(int(row[name]) for name in columns)

    columns = sorted({(row["causal"] == "True", *size(row, "seq_len")) for row in rows})
    lines = [_line(["head_dim", "batch x heads", *(f"{n}{' causal' if causal else ''}" for causal, n in columns)]),
             "|" + " ---: |" * (2 + len(columns))]
    for place in sorted({size(row, "head_dim", "batch", "heads") for row in rows}):
        here = {(row["causal"] == "True", *size(row, "seq_len")): row for row in rows
                if size(row, "head_dim", "batch", "heads") == place}
        cells = []
        for column in columns:
            row = here.get(column)
            cells.append("" if row is None else f"{number(row, 'ratio'):.2f}" if row["status"] == "ok" else row["status"])
        lines.append(_line([str(place[0]), f"{place[1]} x {place[2]}", *cells]))
    return lines


# ---- PyTorch's environment ---------------------------------------------------------------------------------------------------


def stamp() -> str:
    """For what .venv-torch was made: the pins, and the interpreter behind it, whose upgrade would break it."""
    return "\n".join((str((VENV / "bin" / "python").resolve()), *PINS))


def is_ready() -> bool:
    try:
        return (VENV / "flash-stamp").read_text(encoding="utf-8") == stamp()
    except OSError:
        return False


def install() -> None:
    """Makes .venv-torch unless it is there."""
    if is_ready():
        return
    print(f"setting up {shown(VENV)}: {' '.join(PINS)} from PyPI; on Linux several GB, most of it CUDA libraries", flush=True)
    python = VENV / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:", *PINS]
    for command in ([sys.executable, "-m", "venv", "--clear", VENV], pip):
        words = [str(word) for word in command]
        print(f"$ {shlex.join(words)}", flush=True)
        try:
            code = subprocess.run(words, stdin=subprocess.DEVNULL).returncode
        except OSError as error:
            raise ComparisonError(f"{words[0]} cannot be run: {error.strerror}") from None
        if code != 0:
            raise ComparisonError(f"setting up {shown(VENV)} failed: the last command ended with {code}")
    (VENV / "flash-stamp").write_text(stamp(), encoding="utf-8")


def with_torch(install_it: bool, argv: list[str]) -> Any:
    """The module torch; where this interpreter has none, the program begins anew in .venv-torch, and this does not return."""
    inside = Path(sys.prefix).resolve() == VENV.resolve()
    if install_it and not inside:
        install()
    elif importlib.util.find_spec("torch") is not None:
        import torch
        return torch
    if inside or not is_ready():
        raise ComparisonError(f"PyTorch is not installed here; to install {PINS[0]} into {shown(VENV)} (several GB): "
                              "benchmarking/compare_torch.py --install")
    words = [str(VENV / "bin" / "python"), str(Path(__file__).resolve()), *(word for word in argv if word != "--install")]
    sys.stdout.flush()
    os.execv(words[0], words)


# ---- the command line --------------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message.removeprefix('argument ')}\n")


def shown(file: Path) -> str:
    """A path as a person reads it."""
    return str(file).removeprefix(f"{REPOSITORY}/")


def one_line(error: BaseException) -> str:
    return textwrap.shorten(str(error), 200, placeholder=" ...") or type(error).__name__


def integer(text: str, least: int = 1, most: int = 1 << 20) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"it is '{text}'; it must be an integer from {least} to {most}")
    return int(text)


def several(one: Callable[[str], Any]) -> Callable[[str], tuple]:
    """The type of an option whose value is a list with commas."""
    def parse(text: str) -> tuple:
        values = tuple(one(word) for word in text.split(","))
        if len(set(values)) != len(values):
            raise argparse.ArgumentTypeError(f"it is '{text}'; each may be there once")
        return values

    return parse


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"it is '{text}'; it must be one of {', '.join(choices)}")
        return text

    return parse


def batch_heads(text: str) -> tuple[int, int]:
    """ "8" is one batch of 8 heads."""
    words = text.split("x")
    if len(words) > 2:
        raise argparse.ArgumentTypeError(f"it is '{text}'; it must be HEADS or BATCHxHEADS, as in 8 or 2x4")
    batch, heads = (integer(word) for word in (words if len(words) == 2 else ["1", *words]))
    return batch, heads


def causal(text: str) -> tuple[bool, ...]:
    return {"no": (False,), "yes": (True,), "both": (False, True)}[one_of(("no", "yes", "both"))(text)]


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"it is '{text}'; it must be a number of seconds, at least 0")
    return value


def parser() -> Parser:
    made = Parser(prog="compare_torch.py", allow_abbrev=False,
                  description="Attention on the CPU beside PyTorch's scaled_dot_product_attention, in turns.")
    add = made.add_argument
    add("--install", action="store_true", help=f"install PyTorch from PyPI into {shown(VENV)}, once, and go on in it")
    add("--quick", action="store_true", help="one dtype, two small sizes, 9 turns: a minute")
    add("--impl", type=several(str), metavar="NAMES",
        help="implementations, with commas; default: the last in the registry, the ladder's top")
    add("--dtypes", type=several(one_of(DTYPES)), metavar="NAMES", help="default float32,float64")
    add("--directions", type=several(one_of(DIRECTIONS)), metavar="NAMES", help="default forward,backward")
    add("--head-dims", type=several(integer), metavar="N,...", help="default 64,128")
    add("--seq-lens", type=several(integer), metavar="N,...", help="queries, and as many keys; default 512,1024,2048,4096")
    add("--batch-heads", type=several(batch_heads), metavar="BxH,...", help="batch x heads, or heads alone; default 1x1,1x8")
    add("--causal", type=causal, metavar="no|yes|both", help="default both")
    add("--turns", type=integer, metavar="N", help="timed turns of a case; default 21")
    add("--budget", type=seconds, default=15, metavar="S",
        help=f"seconds for the turns of a case, once there are {FEWEST_TURNS}; default 15")
    add("--threads", type=lambda text: integer(text, 1, 1024), default=2, metavar="N", help="of both; default 2")
    add("--library", type=Path, default=LIBRARY, metavar="FILE", help=f"default {shown(LIBRARY)}")
    add("--output", type=Path, default=OUTPUT, metavar="FILE", help=f"the CSV; default {shown(OUTPUT)}")
    add("--table", type=Path, metavar="FILE", help="print the tables of this CSV, and measure nothing")
    return made


def implementations(library: Library, asked: Sequence[str] | None) -> Sequence[str]:
    known = library.names()
    for name in asked or ():
        if name not in known:
            raise ComparisonError(f"--impl has '{name}'; there are {', '.join(known)}")
    return asked or known[-1:]


def run(args: argparse.Namespace, library: Any, make_bench: Callable[[], Any], watch: Stopwatch) -> int:
    """Measures all cases, a row each; then prints the tables of what was measured."""
    names = implementations(library, args.impl)
    if args.output.exists():
        load(args.output)  # what is wrong with it is said before anything is measured
    isa = library.isa()
    library.set_threads(args.threads)
    bench = make_bench()
    asked = {name: value for name, value in vars(args).items() if name in FULL and value is not None}
    sizes = (QUICK if args.quick else FULL) | asked
    fixed = {"machine": machine(), "threads": str(args.threads), "isa": isa}
    print(f"{', '.join(names)} beside {bench.peer}: {fixed['machine']}, {args.threads} threads, {isa}, checked\n"
          f"{'':<16} heads   keys head          ours, ms   PyTorch   ratio  GFLOP/s  of mm of peak     error PyTorch's",
          flush=True)

    rows, disturbed, others = [], 0, Others()
    for case in cases(sizes, bench.device):
        for name in names:
            row, problem = compare(bench, case, name, fixed, sizes["turns"], args.budget, watch)
            share = others.share()
            disturbed += share > DISTURBED
            row["others"] = f"{share:.2g}"
            record(args.output, row)
            rows.append(row)
            print(f"{case} {progress(row, problem)}{'  ' + name if len(names) > 1 else ''}"
                  f"{f'  (others: {100 * share:.0f} %)' if share > DISTURBED else ''}", flush=True)
    if disturbed:
        print(f"\nDuring {disturbed} of {len(rows)} cases others had more than {100 * DISTURBED:.0f} % of the processors. "
              "PyTorch's threads spin while they wait for\neach other, and lose more by that than ours: measure those again "
              "on an idle machine.")
    print(f"\n{markdown(rows)}\n\nsaved in {shown(args.output)}")
    return 1 if any(row["status"] == "error" for row in rows) else 0


def progress(row: dict[str, str], problem: str) -> str:
    if row["status"] != "ok":
        return f"{row['status']}: {problem}"

    def percent(column: str) -> str:
        return f"{100 * float(row[column]):.0f} %" if row[column] else ""

    return (f"{float(row['ms']):>9.4g} {float(row['peer_ms']):>9.4g} {float(row['ratio']):>6.2f}x {float(row['gflops']):>8.4g} "
            f"{percent('share_of_gemm'):>6} {percent('share_of_peak'):>7} {row['error']:>9} {row['peer_error']:>9}")


def main(argv: list[str]) -> int:
    def terminated(*_: object) -> NoReturn:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminated)  # as ctrl-C: no temporary file stays behind
    args = parser().parse_args(argv)
    try:
        if args.table is not None:
            print(markdown(load(args.table)))
            return 0
        library = Library(args.library)  # before several GB are installed that would be of no use
        torch = with_torch(args.install, argv)
        return run(args, library, lambda: TorchBench(torch, library, args.threads), Stopwatch())
    except (ComparisonError, Failed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the cases above are saved", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `| head`: every case was saved before it was printed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
