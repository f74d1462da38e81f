"""From the samples of a measurement to one number, or to the reason why there is none.

It is computed anew whenever a receipt is read: what a receipt says about itself is not believed.
"""

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles, stdev

from lab.errors import LabError
from lab.leaderboard.boards import Board

TURNS = 30          # timed calls of each pass
# A call that waited for the processor for longer than this share was disturbed. So was one in a turn
# in which a core reached less than this share of its usual peak: another program on the same core's
# other half takes no time away and slows it all the same. And the share of disturbed calls with
# which a measurement still stands.
DISTURBED, SLOW, MOST_DISTURBED = 0.05, 0.9, 0.25
# ms that a GPU takes at most before a call to do nothing, where nothing else runs on it: less than
# 0.04 on an H200, where the judge waits for 0.9 to 2.5 while another process has a kernel there.
LONGEST_WAIT = 0.8


class NoResult(LabError):
    """The measurement ended, and gives no place."""


class Busy(LabError):
    """Nothing was found out about the submission."""


@dataclass(frozen=True)
class Pass:
    """What was measured of one pass on one problem; times in ms, without the exchange."""

    problem: str
    name: str
    median: float
    p10: float
    p90: float
    reference: float    # median
    ratios: tuple[float, ...]  # in each turn the time over the reference's
    floor: float        # that no program can be faster than, on this machine
    processor: float    # median of what the kernel counted
    exchange: float     # what was subtracted
    flops: float
    bytes: float
    extra_bytes: int

    @property
    def relative(self) -> float:
        return median(self.ratios)


@dataclass(frozen=True)
class Result:
    passes: tuple[Pass, ...]
    disturbed: float    # share of the calls

    @property
    def speedup(self) -> float:
        """Over the reference. A pass with a time of zero would change the mean of the relative
        times by its own share and no more; a geometric mean would be zero."""
        return 1 / fmean(one.relative for one in self.passes)

    @functools.cached_property
    def uncertainty(self) -> float:
        """Of the speed-up, as a share: how far it moves when turns are drawn again from those that
        were measured (bootstrap)."""
        chance = random.Random(1)  # the same samples give the same number
        again = [1 / fmean(median(chance.choices(one.ratios, k=len(one.ratios)))
                           for one in self.passes) for _ in range(200)]
        return stdev(again) / self.speedup

    @property
    def total(self) -> float:
        return sum(one.median for one in self.passes)

    @property
    def roofline(self) -> float:
        """The share of what the machine could do at best."""
        return sum(one.floor for one in self.passes) / self.total


WAITS = ("student_wait_ms", "reference_wait_ms")  # of a GPU
TIMES = ("student_ms", "student_processor_ms", "reference_ms", "reference_processor_ms",
         "exchange_ms", "exchange_processor_ms")
LONGEST = 1e6  # ms
# Of one core, and of a GPU: GFLOP/s and GB/s, more than any has.
_FASTEST = {"cpu": (2e3, 2e3), "cuda": (2e7, 2e6)}
LARGEST_SPEEDUP = 1e4


def ranges(board: Board) -> dict[str, tuple[float, float]]:
    """What a number of a sample may be. Operations and bytes are none of them: boards.py has these.
    """
    flops, bandwidth = _FASTEST[board.device]
    return dict.fromkeys(TIMES + WAITS * (board.device == "cuda"), (0, LONGEST)) | {
        "peak_gflops": (0.1, flops), "bandwidth_gbs": (0.01, bandwidth), "extra_bytes": (0, 2**50)}


KEYS = ("problem", "pass", "turn")


def result_of(board: Board, samples: Sequence[Mapping[str, object]], turns: int = TURNS,
              most_disturbed: float = MOST_DISTURBED) -> Result:
    wanted = [(problem, name, turn) for problem in board.problems for turn in range(turns)
              for name in board.passes]
    found = [(one.get("problem"), one.get("pass"), one.get("turn")) for one in samples]
    if found != wanted:
        raise NoResult(f"it has {len(found)} samples; the board {board.name} needs {len(wanted)}, "
                       f"{turns} of each pass on each problem")
    for key, (least, most) in ranges(board).items():
        for value in (one.get(key) for one in samples):
            # NaN is no number here, nor is true.
            if type(value) not in (int, float) or not least <= value <= most:
                raise NoResult(f"{key} of a sample is {str(value)[:40]}; it must be a number from "
                               f"{least:g} to {most:g}")
    passes = [_pass(board, problem, name, [one for one in samples
                                    if (one["problem"], one["pass"]) == (problem, name)])
              for problem in board.problems for name in board.passes]
    disturbed = (_disturbed_on_gpu if board.device == "cuda" else _disturbed)(samples)
    for one in passes:
        if not one.p10 > one.floor:
            raise NoResult(
                f"{one.name} on {one.problem} took {one.p10:.4g} ms (10th percentile), and this "
                f"machine needs {one.floor:.4g} ms for the operations alone: no time is that short")
    if disturbed > most_disturbed and board.device == "cuda":
        raise NoResult(
            f"something else ran on the GPU when {100 * disturbed:.0f} % of the calls began: "
            "another program, or a kernel that an earlier call left behind")
    if disturbed > most_disturbed:
        raise Busy(
            f"the machine is busy: other programs disturbed {100 * disturbed:.0f} % of the calls; "
            "close them, and measure again")
    result = Result(tuple(passes), disturbed)
    if not 1 / LARGEST_SPEEDUP < result.speedup < LARGEST_SPEEDUP:
        raise NoResult(f"its speed-up would be {result.speedup:g}, which no program has")
    return result


def _pass(board: Board, problem: str, name: str,
          samples: Sequence[Mapping[str, float]]) -> Pass:
    exchange = median(one["exchange_ms"] for one in samples)
    times = [max(0.0, one["student_ms"] - exchange) for one in samples]
    references = [max(0.0, one["reference_ms"] - exchange) for one in samples]
    if not median(references) > 0:
        raise NoResult(f"the reference took no time for {name} on {problem}")
    deciles = quantiles(times, n=10, method="inclusive")
    flops, moved = board.work(problem, name)
    floor = max(flops / max(one["peak_gflops"] for one in samples),
                moved / max(one["bandwidth_gbs"] for one in samples)) / 1e6
    return Pass(problem, name, median(times), deciles[0], deciles[8], median(references),
                tuple(time / other for time, other in zip(times, references) if other), floor,
                median(one["student_processor_ms"] for one in samples), exchange, flops, moved,
                int(max(one["extra_bytes"] for one in samples)))


def _disturbed(samples: Sequence[Mapping[str, float]]) -> float:
    # Of each problem by itself: over a minute the clock rate of a laptop falls.
    problems = {one["problem"] for one in samples}
    usual = {problem: quantiles([one["peak_gflops"] for one in samples
                                 if one["problem"] == problem], n=4, method="inclusive")[2]
             for problem in problems}
    return fmean(_was_disturbed(one, who) or one["peak_gflops"] < SLOW * usual[one["problem"]]
                 for one in samples for who in ("student", "reference"))


def _disturbed_on_gpu(samples: Sequence[Mapping[str, float]]) -> float:
    return fmean(one[key] > LONGEST_WAIT for one in samples for key in WAITS)


def _was_disturbed(sample: Mapping[str, float], who: str) -> bool:
    lost = sample[f"{who}_ms"] - sample[f"{who}_processor_ms"]
    return lost - sample["exchange_ms"] > DISTURBED * sample[f"{who}_ms"]
