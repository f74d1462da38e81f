"""How two contenders are timed: a clock, turns, and the row that they make of a case."""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import Failed, Unsupported, one_line, status_of
from .table import Row

# Seconds. PyTorch's OpenMP threads go on spinning after a parallel region (libgomp: 300 000 rounds of `pause`, 17 ms where that
# instruction takes 140 cycles at 2.5 GHz), and would hold the processors of whoever is measured next.
PAUSE = 0.025
BLOCK = 0.006  # what a contender is timed for in one turn: long against a clock's reading, short against the machine's moods
MOST_CALLS = 1000
FEWEST_TURNS = 7  # however long they take
GEMM_EVERY = 3  # turns: one product takes as long as a dozen blocks


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


def eviction_buffer(torch: Any) -> Any:
    """Twice the L2 cache of the GPU: who writes all of it leaves nothing else in that cache."""
    l2 = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 * 2**20)  # an older PyTorch does not say
    return torch.empty(2 * l2, dtype=torch.uint8, device="cuda")


class CudaStopwatch(Stopwatch):
    """By events on the GPU, a call at a time, the L2 cache overwritten before each. Nothing has to fall asleep between turns."""

    MOST_CALLS = 20  # in a turn: each has a cache to overwrite, which takes as long as a short call

    def __init__(self, torch: Any) -> None:
        super().__init__(sleep=lambda _: torch.cuda.synchronize())
        self.torch, self._flush = torch, eviction_buffer(torch)

    def seconds(self, work: Callable[[], Any], calls: int = 1) -> float:
        total = 0.0
        calls = min(calls, self.MOST_CALLS)
        for _ in range(calls):
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._flush.zero_()
            begin.record()
            work()
            end.record()
            end.synchronize()
            total += begin.elapsed_time(end) * 1e-3
        return total / calls


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


def summary(case: Any, turns: Turns) -> Row:
    """The measured cells of a row. Ratios and shares are medians of those within a turn, not ratios of medians."""
    def median(values: Iterable[float | None]) -> str:
        there = [value for value in values if value is not None]
        return f"{statistics.median(there):.6g}" if there else ""

    def shares(ceiling: Sequence[float | None]) -> str:
        return median(case.flop / seconds * 1e-9 / most if most else None for seconds, most in zip(turns.ours, ceiling))

    ours, peer = statistics.median(turns.ours), statistics.median(turns.peer)
    cells = {"ms": f"{1e3 * ours:.6g}", "peer_ms": f"{1e3 * peer:.6g}",
             "ratio": median(theirs / own for own, theirs in zip(turns.ours, turns.peer)),
             "gflops": f"{1e-9 * case.flop / ours:.6g}", "peer_gflops": f"{1e-9 * case.flop / peer:.6g}",
             "gemm_gflops": median(turns.gemm), "fma_peak_gflops": median(turns.peak),
             "share_of_gemm": shares(turns.gemm), "share_of_peak": shares(turns.peak), "turns": str(len(turns.ours))}
    return {name: cell for name, cell in cells.items() if name in case.schema.columns}


def compare(bench: Any, case: Any, implementation: str, fixed: Row, turns: int, budget: float,
            watch: Stopwatch) -> tuple[Row, str]:
    """The row of a case, and what went wrong if its status is not "ok"."""
    row = dict.fromkeys(case.schema.columns, "") | case.cells() | fixed
    row |= {"implementation": implementation, "peer": bench.peer, "turns": "0"}
    try:
        if not bench.library.has(implementation, case.dtype):
            raise Unsupported(f"{implementation} has no {case.dtype} version")
        with bench.duel(case, implementation) as duel:
            verdict = duel.check()
            row |= {"error": f"{verdict.error:.3g}", "peer_error": f"{verdict.peer_error:.3g}"}
            if verdict.problem:
                return row | {"status": "error"}, verdict.problem
            measured = measure(duel.ours, duel.peer, bench.gemm(case.dtype), bench.peak(case.dtype), turns, budget, watch)
        return row | summary(case, measured) | {"status": "ok"}, ""
    except (Failed, RuntimeError, MemoryError) as failure:  # the latter two are PyTorch's
        return row | {"status": status_of(failure)}, one_line(failure)
