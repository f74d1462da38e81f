"""benchmarking/compare_torch.py: protocol, rows, CSV, tables and command line, with a clock, contenders and a GPU made here.

Where FLASH_BUILD has it, the C library too; and where PyTorch is installed, which nothing here does, the real program.
"""

import array
import contextlib
import csv
import importlib.util
import io
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "benchmarking"))

import compare_torch as program  # noqa: E402
from torch_comparison import (attention, attention_bench, benchmark_rows, environment, errors, machine,  # noqa: E402
                              markdown, problems, softmax_matmul, table)
from torch_comparison import turns as timing  # noqa: E402
from torch_comparison.attention import Verdict  # noqa: E402
from torch_comparison.errors import ComparisonError, Failed, OutOfMemory, Unsupported  # noqa: E402
from torch_comparison.library import Library, SoftmaxMatmulLibrary  # noqa: E402
from torch_comparison.problems import ATTENTION, SOFTMAX_MATMUL, Case, SoftmaxMatmulCase  # noqa: E402
from torch_comparison.turns import Stopwatch, Turns  # noqa: E402

PROGRAM = REPOSITORY / "benchmarking" / "compare_torch.py"
LIBRARY = Path(os.environ.get("FLASH_BUILD", "not-built")) / "lib" / "libflash_attention_c.so"
SOFTMAX_MATMUL_LIBRARY = LIBRARY.with_name("libflash_softmax_matmul_c.so")
CASE = Case("cpu", "forward", "float32", 1, 8, 512, 64, False)
FIXED = {"machine": "A Processor, fast (2 logical cores)", "threads": "2", "isa": "avx2"}


class Clock:
    """Time that passes when somebody works or sleeps, and a log of who did."""

    def __init__(self) -> None:
        self.time = 0.0
        self.log: list[str] = []
        self.watch = Stopwatch(now=lambda: self.time, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.log.append("pause")

    def work(self, name: str, seconds: float):
        def call() -> None:
            self.time += seconds
            self.log.append(name)
        return call

    def probe(self, name: str, gflops: float, seconds: float = 0.001):
        def call() -> float:
            self.time += seconds
            self.log.append(name)
            return gflops
        return call


class FakeLibrary:
    def __init__(self, names=("standard", "flash", "1_rung", "2_rung"), isa="avx2") -> None:
        self._names, self._isa, self.threads = list(names), isa, []

    def names(self):
        return self._names

    def has(self, name, dtype):
        return not (name == "1_rung" and dtype == "float64")

    def isa(self):
        return self._isa

    def set_threads(self, threads):
        self.threads.append(threads)

    def fma_peak_gflops(self, dtype):
        return 200.0


class FakeDuel:
    def __init__(self, clock, ours=0.004, peer=0.008, verdict=Verdict(3e-7, 4e-7), raises=None):
        self.ours, self.peer = clock.work("A", ours), clock.work("B", peer)
        self._verdict, self._raises = verdict, raises

    def check(self):
        if self._raises is not None:
            raise self._raises
        return self._verdict


class FakeBench:
    device, peer = "cpu", "pytorch 2.0 sdpa flash"

    def __init__(self, clock, library=None, **of_duel):
        self.clock, self.library, self.of_duel = clock, library or FakeLibrary(), of_duel

    def gemm(self, dtype):
        return self.clock.probe("gemm", 160.0)

    def peak(self, dtype):
        return lambda: self.library.fma_peak_gflops(dtype)

    @contextlib.contextmanager
    def duel(self, case, implementation):
        yield FakeDuel(self.clock, **self.of_duel)


class FakeCudaBench(FakeBench):
    """PyTorch's cuDNN has no float32, and says so as PyTorch does."""

    def __init__(self, clock, backend="flash", library=None, **of_duel):
        super().__init__(clock, library, **of_duel)
        self.peer, self._backend = f"pytorch 2.0 sdpa {backend}", backend

    def gemm(self, dtype):
        return None

    peak = gemm

    @contextlib.contextmanager
    def duel(self, case, implementation):
        if (self._backend, case.dtype) == ("cudnn", "float32"):
            raise RuntimeError("No available kernel. Aborting execution.")
        yield FakeDuel(self.clock, **self.of_duel)


class FakeCuda:
    """torch, as far as a clock, a meter and the eviction of caches need it, with time and memory of `clock`'s kind."""

    uint8, bool, used, most = "uint8", bool, 1000, 1000

    def __init__(self) -> None:
        self.time, self.log, self.available = 0.0, [], True
        self.cuda = self
        self.backends = mock.Mock()

    def is_available(self) -> bool:
        return self.available

    def get_device_name(self, index) -> str:
        return "NVIDIA H200"

    def get_device_properties(self, index):
        return mock.Mock(L2_cache_size=50)

    def empty(self, size, dtype, device):
        assert (size, dtype, device) == (100, "uint8", "cuda")
        return mock.Mock(zero_=lambda: self.work("evict", 0.5), fill_=lambda value: self.work(f"evict {value}", 0.5))

    def Event(self, enable_timing):
        return FakeEvent(self)

    def synchronize(self) -> None:
        self.log.append("wait")

    def memory_allocated(self) -> int:
        return self.used

    def max_memory_allocated(self) -> int:
        return self.most

    def reset_peak_memory_stats(self) -> None:
        self.most = self.used

    def empty_cache(self) -> None:
        self.log.append("give back")

    def work(self, name: str, seconds: float, most: int = 0) -> None:
        self.time += seconds
        self.most = max(self.most, self.used + most)
        self.log.append(name)


class FakeEvent:
    def __init__(self, torch) -> None:
        self.torch, self.time = torch, math.nan

    def record(self) -> None:
        self.time = self.torch.time

    def synchronize(self) -> None:
        self.torch.log.append("wait")

    def elapsed_time(self, end) -> float:
        return 1e3 * (end.time - self.time)


def row(**changes: str) -> dict[str, str]:
    full = dict.fromkeys(ATTENTION.columns, "") | CASE.cells() | FIXED
    full |= {"implementation": "2_rung", "peer": "pytorch 2.0 sdpa flash", "ms": "4", "peer_ms": "8", "ratio": "2",
             "error": "3e-07", "peer_error": "4e-07", "share_of_gemm": "0.8", "share_of_peak": "0.64",
             "turns": "21", "status": "ok", "others": "0"}
    return full | changes


class Temporary(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.csv = self.folder / "csv" / "table.csv"

    def error(self, call, *arguments) -> str:
        with self.assertRaises(ComparisonError) as caught:
            call(*arguments)
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)


class Protocol(unittest.TestCase):
    def setUp(self) -> None:
        self.clock = Clock()

    def measured(self, ours=0.006, peer=0.006, turns=4, budget=1e9, **ceilings):
        ceilings = {"gemm": None, "peak": None} | ceilings
        return timing.measure(self.clock.work("A", ours), self.clock.work("B", peer), turns=turns, budget=budget,
                               watch=self.clock.watch, **ceilings)

    def test_the_order_is_abba_with_a_pause_and_a_call_that_is_not_timed(self) -> None:
        self.measured()  # 6 ms: one timed call a block
        settling = ["pause", "A", "A", "pause", "B", "B"]
        a, b = ["pause", "A", "A"], ["pause", "B", "B"]
        self.assertEqual(self.clock.log, settling + a + b + b + a + a + b + b + a)

    def test_a_block_has_as_many_calls_as_fill_it(self) -> None:
        self.measured(ours=0.002, peer=0.1, turns=1)
        self.assertEqual(self.clock.log[6:], ["pause", *["A"] * 4, "pause", "B", "B"])
        self.clock.log.clear()
        self.measured(ours=1e-7, peer=0.1, turns=1)
        self.assertEqual(self.clock.log[6:].count("A"), 1 + timing.MOST_CALLS)

    def test_the_first_call_of_a_block_is_not_in_its_time(self) -> None:
        cold = [True]

        def ours() -> None:  # slow after a pause
            self.clock.time += 0.5 if cold[0] else 0.003
            cold[0] = False

        def sleep(seconds: float) -> None:
            self.clock.time += seconds
            cold[0] = True

        watch = Stopwatch(lambda: self.clock.time, sleep)
        found = timing.measure(ours, self.clock.work("B", 0.006), None, None, 4, 1e9, watch)
        self.assertEqual([round(seconds, 9) for seconds in found.ours], [0.003] * 4)
        self.assertEqual([round(seconds, 9) for seconds in found.peer], [0.006] * 4)

    def test_the_peak_follows_ours_at_once_and_gemm_comes_every_third_turn(self) -> None:
        found = self.measured(gemm=self.clock.probe("gemm", 160.0), peak=self.clock.probe("peak", 200.0))
        a, b = ["pause", "A", "A", "peak"], ["pause", "B", "B"]
        self.assertEqual(self.clock.log[6:], a + b + ["pause", "gemm"] + b + a + a + b + b + a + ["pause", "gemm"])
        self.assertEqual(found.peak, [200.0] * 4)
        self.assertEqual(found.gemm, [160.0, None, None, 160.0])

    def test_the_budget_ends_the_turns_but_not_before_there_are_enough(self) -> None:
        self.assertEqual(len(self.measured(turns=21, budget=0).ours), timing.FEWEST_TURNS)
        a_turn = 2 * (timing.PAUSE + 2 * 0.006)
        self.assertEqual(len(self.measured(turns=21, budget=9.5 * a_turn).ours), 10)
        self.assertEqual(len(self.measured(turns=3, budget=0).peer), 3)

    def test_ratios_and_shares_are_medians_within_a_turn(self) -> None:
        # The machine is half as fast in the second turn. Medians of both, divided, would say 2.5 (5 over 2), and no turn did.
        turns = Turns(ours=[0.001, 0.002, 0.004], peer=[0.003, 0.006, 0.005], gemm=[100.0, None, 25.0],
                      peak=[200.0, 100.0, 50.0])
        cells = timing.summary(CASE, turns)
        self.assertEqual([cells[name] for name in ("ms", "peer_ms", "ratio", "turns")], ["2", "5", "3", "3"])
        gflop = 4 * 8 * 512**2 * 64 * 1e-9
        self.assertAlmostEqual(float(cells["gflops"]), gflop / 0.002, delta=0.001)
        self.assertAlmostEqual(float(cells["peer_gflops"]), gflop / 0.005, delta=0.001)
        self.assertAlmostEqual(float(cells["share_of_peak"]), gflop / 0.001 / 200, delta=1e-5)
        self.assertAlmostEqual(float(cells["share_of_gemm"]), (gflop / 0.001 / 100 + gflop / 0.004 / 25) / 2, delta=1e-4)
        self.assertEqual(float(cells["gemm_gflops"]), 62.5)

    def test_flop(self) -> None:
        self.assertEqual(CASE.flop, 4 * 8 * 512**2 * 64)
        self.assertEqual(Case("cpu", "backward", "float64", 2, 3, 100, 128, True).flop, 10 * 2 * 3 * 100**2 * 128 / 2)
        self.assertEqual(Case("cuda", "both", "float16", 2, 3, 100, 128, True).flop, 14 * 2 * 3 * 100**2 * 128 / 2)

    def test_the_columns_of_all_directions_are_the_headings(self) -> None:
        for direction in problems.DIRECTIONS:
            line = str(Case("cuda", direction, "bfloat16", 8, 1, 16384, 128, True))
            self.assertEqual(len(line), len(Case.heading))
            for word, cell in (("heads", "8x1"), ("keys", "16384"), ("head ", "128 ")):
                self.assertEqual(line.rindex(cell) + len(cell), Case.heading.rindex(word) + len(word))


class Rows(unittest.TestCase):
    def compare(self, case=CASE, implementation="2_rung", library=None, **of_duel):
        self.clock = Clock()
        return timing.compare(FakeBench(self.clock, library, **of_duel), case, implementation, FIXED, 5, 1e9, self.clock.watch)

    def test_a_case_that_is_right_is_timed(self) -> None:
        found, problem = self.compare()
        self.assertEqual((found["status"], problem, found["ratio"], found["turns"]), ("ok", "", "2", "5"))
        self.assertEqual((found["error"], found["peer_error"], found["peer"]), ("3e-07", "4e-07", "pytorch 2.0 sdpa flash"))
        self.assertEqual((found["gemm_gflops"], found["fma_peak_gflops"]), ("160", "200"))
        self.assertEqual(set(found), set(ATTENTION.columns))
        self.assertEqual([name for name, cell in found.items() if not cell], ["others"])  # which the loop around it adds

    def test_a_wrong_result_is_a_row_and_not_timed(self) -> None:
        found, problem = self.compare(verdict=Verdict(math.nan, 4e-7, "out is off"))
        self.assertEqual([found[name] for name in ("status", "error", "ms", "ratio")], ["error", "nan", "", ""])
        self.assertEqual(problem, "out is off")
        self.assertEqual(self.clock.log, [])

    def test_failures_are_rows(self) -> None:
        for failure, status in ((Failed("broken"), "error"), (Unsupported("not this"), "unsupported"),
                                (OutOfMemory("none"), "OOM"), (MemoryError(), "OOM"),
                                (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "OOM"),
                                (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "OOM"),
                                (RuntimeError("No available kernel. Aborting execution."), "unsupported"),
                                (RuntimeError("No viable backend for scaled_dot_product_attention was found."), "unsupported"),
                                (RuntimeError("something\nin two lines"), "error")):
            with self.subTest(failure=failure):
                found, problem = self.compare(raises=failure)
                self.assertEqual((found["status"], found["ms"], found["turns"]), (status, "", "0"))
                self.assertTrue(problem)
                self.assertNotIn("\n", problem)

    def test_a_dtype_that_there_is_not(self) -> None:
        found, problem = self.compare(Case("cpu", "forward", "float64", 1, 1, 8, 8, False), "1_rung")
        self.assertEqual((found["status"], problem), ("unsupported", "1_rung has no float64 version"))

    def test_nan_never_passes(self) -> None:
        self.assertEqual(attention.judged("out", 1e-7, 1e-6), "")
        self.assertEqual(attention.judged("out", 2e-6, 1e-6),
                         "out is off by 2e-06 of the largest element; rounding explains 1e-06")
        self.assertIn("nan", attention.judged("out", math.nan, 1e-6))
        self.assertIn("inf", attention.judged("out", math.inf, 1e-6))
        self.assertTrue(math.isnan(attention.worst(1.0, math.nan)) and math.isnan(attention.worst(math.nan, 1.0)))
        self.assertEqual(attention.worst(1.0, 3.0, 2.0), 3.0)


class FakeTruth:
    """Everything is right but what `wrong` says, by direction and whose it is. The errors tell the verdicts apart."""

    ERRORS = {("forward", ""): 1e-7, ("backward", ""): 2e-7, ("forward", "PyTorch's "): 3e-7, ("backward", "PyTorch's "): 4e-7}

    def __init__(self, wrong=()) -> None:
        self._wrong, self.judged = wrong, []

    def judge(self, inputs, direction, results, whose="", lse=None):
        self.judged.append((direction, whose, len(results), lse is not None))
        return self.ERRORS[direction, whose], f"{whose}{direction} is off" if (direction, whose) in self._wrong else ""


class Duel(unittest.TestCase):
    """What is timed and checked in each direction, with passes and a PyTorch made here, which log what is called."""

    def duel(self, direction: str, saves_p=False, wrong=()):
        self.log, self.addresses = [], {}
        self.torch, addresses = mock.MagicMock(__version__="2.0"), iter(range(1, 100))
        self.torch.full = lambda *_, **__: mock.Mock(data_ptr=mock.Mock(return_value=next(addresses)))
        self.torch.nn.functional.scaled_dot_product_attention = lambda *_, **__: self.log.append("sdpa") or "its graph"

        def grad(graph, leaves, d_out, **_):
            self.log.append(f"grad of {graph}")
            return "d_q", "d_k", "d_v"

        self.torch.autograd.grad = grad
        library = mock.Mock(saves_p=lambda name: saves_p, prepared=self.prepared)
        bench = attention_bench.CudaBench(self.torch, library, FakeTruth(wrong), "flash")
        with mock.patch.object(attention_bench, "Inputs", lambda *_: mock.Mock(of_queries=(8, 1, 512, 64))), \
                bench.duel(Case("cuda", direction, "float32", 8, 1, 512, 64, False), "flash") as duel:
            return duel

    def prepared(self, function, case, *addresses, name):
        self.addresses[function] = addresses
        return lambda: self.log.append(function)

    def calls(self, call) -> list[str]:
        self.log.clear()
        call()
        return self.log

    def test_both_is_the_forward_pass_and_then_the_backward_pass_in_each_call(self) -> None:
        forward, backward, grad = "attention_forward", "attention_backward", "grad of its graph"
        for direction, before, ours, peer in (("forward", [], [forward], ["sdpa"]),
                                              ("backward", [forward, "sdpa"], [backward], [grad]),
                                              ("both", [], [forward, backward], ["sdpa", grad])):
            with self.subTest(direction=direction):
                duel = self.duel(direction)
                self.assertEqual(self.log, before)
                for _ in range(2):
                    self.assertEqual(self.calls(duel.ours), ours)
                    self.assertEqual(self.calls(duel.peer), peer)

    def test_the_backward_pass_reads_what_the_forward_pass_wrote(self) -> None:
        for direction in ("backward", "both"):
            for saves_p in (False, True):
                self.duel(direction, saves_p)
                forward, backward = (self.addresses[f"attention_{one}"] for one in ("forward", "backward"))
                self.assertEqual((len(forward), len(backward), backward[:6]), (6, 10, forward))
                self.assertEqual(forward[-1] is not None, saves_p)

    def test_autograd_has_no_graph_in_inference_mode(self) -> None:
        for direction in problems.DIRECTIONS:
            self.duel(direction)
            self.torch.inference_mode.assert_called_once_with(direction == "forward")

    def test_of_both_gradients_are_compared_and_our_out_and_lse_are_checked(self) -> None:
        out, gradients = ("forward", "", 1, True), ("backward", "", 3, False)
        theirs = {"forward": ("forward", "PyTorch's ", 1, False), "backward": ("backward", "PyTorch's ", 3, False)}
        for direction, judged, errors in (("forward", [out, theirs["forward"]], (1e-7, 3e-7)),
                                          ("backward", [gradients, theirs["backward"]], (2e-7, 4e-7)),
                                          ("both", [out, gradients, theirs["backward"]], (2e-7, 4e-7))):
            with self.subTest(direction=direction):
                duel = self.duel(direction)
                self.assertEqual(duel.check(), Verdict(*errors))
                self.assertEqual(duel.bench.truth.judged, judged)
        duel = self.duel("both", saves_p=True)  # whose lse has no meaning
        duel.check()
        self.assertEqual(duel.bench.truth.judged[0], ("forward", "", 1, False))

    def test_each_wrong_result_of_both_is_found(self) -> None:
        for direction, whose in (("forward", ""), ("backward", ""), ("backward", "PyTorch's ")):
            self.assertEqual(self.duel("both", wrong=[(direction, whose)]).check().problem, f"{whose}{direction} is off")


class Table(Temporary):
    def test_a_row_measured_again_replaces_its_own_and_no_other(self) -> None:
        first = [row(), row(seq_len="1024"), row(implementation="1_rung"), row(threads="1"), row(machine="another"),
                 row(causal="True"), row(isa="avx512"), row(peer="pytorch 3 sdpa flash"), row(direction="backward"),
                 row(direction="both"), row(dtype="float64"), row(batch="2"), row(heads="1"), row(head_dim="128")]
        for one in first:
            table.record(self.csv, ATTENTION, one)
        self.assertEqual(table.load(self.csv, ATTENTION), first)
        again = row(seq_len="1024", ms="3", ratio="", status="error")
        table.record(self.csv, ATTENTION, again)
        self.assertEqual(table.load(self.csv, ATTENTION), [first[0], again, *first[2:]])
        self.assertEqual([file.name for file in self.csv.parent.iterdir()], [self.csv.name])

    def test_a_write_that_fails_leaves_the_old_file(self) -> None:
        table.record(self.csv, ATTENTION, row())
        before = self.csv.read_bytes()
        for broken in ("os.fsync", "pathlib.Path.replace"):
            with mock.patch(broken, side_effect=OSError(28, "No space left on device")):
                self.assertIn("cannot be written: No space left", self.error(table.record, self.csv, ATTENTION, row(ms="1")))
            self.assertEqual(self.csv.read_bytes(), before)
            self.assertEqual([file.name for file in self.csv.parent.iterdir()], [self.csv.name])
        with mock.patch("os.fsync", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            table.record(self.csv, ATTENTION, row(ms="1"))
        self.assertEqual((self.csv.read_bytes(), len(list(self.csv.parent.iterdir()))), (before, 1))

    def test_another_kind_of_file_is_left_alone(self) -> None:
        self.csv.parent.mkdir()
        for text, said in (("my,own\n1,2\n", "is another kind of table and is left as it is"), ("", "is another kind of table"),
                           (",".join(ATTENTION.columns) + "\n1,2\n", f":2 has 2 cells; there have to be {len(ATTENTION.columns)}"),
                           (",".join(ATTENTION.columns) + '\n"1', "cannot be read")):
            self.csv.write_text(text)
            self.assertIn(said, self.error(table.record, self.csv, ATTENTION, row()))
            self.assertEqual(self.csv.read_text(), text)
        self.assertIn("cannot be read: No such file", self.error(table.load, self.folder / "nothing.csv", ATTENTION))

    def test_geometric_mean(self) -> None:
        self.assertAlmostEqual(markdown.geometric_mean([0.5, 2, 4, 4]), 2)
        self.assertAlmostEqual(markdown.geometric_mean([3]), 3)

    def test_the_tables(self) -> None:
        text = markdown.markdown([row(ratio="0.5", share_of_gemm="0.4"), row(seq_len="1024", ratio="8", share_of_gemm="0.9"),
                                 row(causal="True", heads="1", ratio="4", others="0.06"),
                                 row(direction="backward", ratio="0.9"),
                                 row(direction="backward", seq_len="4096", ratio="", status="OOM"),
                                 row(direction="both", ratio="1.5")])
        lines = text.split("\n")
        self.assertEqual(lines[0], "**`2_rung` beside pytorch 2.0 sdpa flash: cpu, A Processor, fast (2 logical cores), "
                                   "2 threads, avx2**")
        share = 100 * (0.4 * 0.9 * 0.8) ** (1 / 3)
        self.assertIn("| forward | float32 | 2.52x | 0.50x (1x8, 512, 64) | 8.00x (1x8, 1024, 64) | 2 of 3 | "
                      f"{share:.0f} % | 64 % | 1 | 0 |", lines)
        self.assertIn("| backward | float32 | 0.90x | 0.90x (1x8, 512, 64) | 0.90x (1x8, 512, 64) | 0 of 1 | "
                      "80 % | 64 % | 0 | 1 (OOM) |", lines)
        self.assertIn("| both | float32 | 1.50x | 1.50x (1x8, 512, 64) | 1.50x (1x8, 512, 64) | 1 of 1 | "
                      "80 % | 64 % | 0 | 0 |", lines)
        self.assertIn("both, float32: pytorch's time over ours", lines)
        self.assertIn("| head_dim | batch x heads | 512 | 1024 | 512 causal |", lines)
        self.assertIn("| 64 | 1 x 1 |  |  | 4.00 |", lines)
        self.assertIn("| 64 | 1 x 8 | 0.50 | 8.00 |  |", lines)
        self.assertIn("| 64 | 1 x 8 | 0.90 | OOM |", lines)
        for header in (line for line in lines if line.startswith(("| direction", "| head_dim"))):
            below = lines[lines.index(header) + 1]
            self.assertEqual(below.count("|"), header.count("|"))

    def test_what_differs_has_tables_of_its_own(self) -> None:
        text = markdown.markdown([row(), row(implementation="1_rung"), row(machine="another"), row(threads="1"),
                                 row(isa="avx512")])
        self.assertEqual(text.count("**`"), 5)

    def test_nothing_but_failures(self) -> None:
        failed = row(status="error", ratio="", share_of_gemm="", share_of_peak="")
        self.assertIn("| forward | float32 |  |  |  |  |  |  |  | 1 (error) |", markdown.markdown([failed]))

    def test_what_a_gpu_does_not_have_is_not_in_its_tables(self) -> None:
        of_gpu = dict.fromkeys(ATTENTION.columns, "") | {name: cell for name, cell in row().items() if cell} | {
            "device": "cuda", "machine": "NVIDIA H200", "batch": "8", "heads": "1"}
        of_gpu |= dict.fromkeys(("threads", "isa", "share_of_gemm", "share_of_peak", "others"), "")
        lines = markdown.markdown([of_gpu, of_gpu | {"dtype": "float16", "ratio": "", "status": "unsupported"}]).split("\n")
        self.assertEqual(lines[0], "**`2_rung` beside pytorch 2.0 sdpa flash: cuda, NVIDIA H200**")
        self.assertEqual(lines[2:6], ["| direction | dtype | ratio, geometric mean | worst | best | faster in | failed |",
                                      "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
                                      "| forward | float32 | 2.00x | 2.00x (8x1, 512, 64) | 2.00x (8x1, 512, 64) | 1 of 1 | 0 |",
                                      "| forward | float16 |  |  |  |  | 1 (unsupported) |"])

    def test_the_tables_of_part_1(self) -> None:
        def one(d2: str, ratio: str, implementation: str = "fused_16", **changes: str) -> dict[str, str]:
            return dict.fromkeys(SOFTMAX_MATMUL.columns, "") | {
                "device": "cuda", "dtype": "float32", "batch": "16", "d1": "2048", "d2": d2, "d3": "512", "ratio": ratio,
                "implementation": implementation, "peer": "pytorch 2.0 softmax, matmul", "machine": "NVIDIA H200",
                "status": "ok"} | changes

        rows = [one("128", "0.5"), one("64", "2"), one("8192", "", status="OOM"), one("64", "3", "unfused")]
        for each in rows:
            table.record(self.csv, SOFTMAX_MATMUL, each)
        self.assertEqual(table.load(self.csv, ATTENTION, SOFTMAX_MATMUL), rows)
        self.assertIn("another kind of table", self.error(table.load, self.csv, ATTENTION))
        lines = markdown.markdown(rows).split("\n")
        self.assertEqual(lines[0], "**`fused_16` beside pytorch 2.0 softmax, matmul: cuda, NVIDIA H200**")
        self.assertIn("| dtype | ratio, geometric mean | worst | best | faster in | failed |", lines)
        self.assertIn("| float32 | 1.00x | 0.50x (16, 2048, 128, 512) | 2.00x (16, 2048, 64, 512) | 1 of 2 | 1 (OOM) |", lines)
        self.assertIn("float32: pytorch's time over ours", lines)
        self.assertIn("| batch | d1 | d3 | d2 64 | d2 128 | d2 8192 |", lines)
        self.assertIn("| 16 | 2048 | 512 | 2.00 | 0.50 | OOM |", lines)
        self.assertEqual(sum(line.startswith("**") for line in lines), 2)

    def test_a_ratio_that_is_none_is_named(self) -> None:
        for value in ("", "nan", "0", "fast"):
            self.assertEqual(self.error(markdown.markdown, [row(ratio=value)]),
                             f"ratio is '{value}' in a row with the status ok; it must be a number above 0")
        self.assertIn("others is '' in a row", self.error(markdown.markdown, [row(others="")]))


class Run(Temporary):
    """The program's main loop, with contenders made here."""

    def setUp(self) -> None:
        super().setUp()
        stat = mock.patch.object(program, "Others", lambda: mock.Mock(share=lambda: self.others))
        stat.start()
        self.addCleanup(stat.stop)
        self.others = 0.0

    def measured(self, *words: str, library=None, **of_duel) -> tuple[int, str]:
        self.library = library or FakeLibrary()
        args = program.parsed([*words, "--output", str(self.csv)])
        self.clock = clock = Clock()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = program.attention_on_cpu(args, self.library, lambda: FakeBench(clock, self.library, **of_duel), clock.watch)
        return code, out.getvalue()

    def test_a_row_a_case_and_the_top_rung_unless_asked(self) -> None:
        code, out = self.measured("--quick")
        rows = table.load(self.csv, ATTENTION)
        self.assertEqual((code, self.library.threads), (0, [2]))
        self.assertEqual({one["implementation"] for one in rows}, {"2_rung"})
        self.assertEqual([(one["direction"], one["seq_len"], one["causal"]) for one in rows],
                         [(direction, n, causal) for n in ("384", "768") for causal in ("False", "True")
                          for direction in ("forward", "backward")])
        self.assertEqual({one["turns"] for one in rows}, {"9"})
        self.assertIn("| forward | float32 | 2.00x |", out)
        self.assertNotIn("others:", out)
        self.assertNotIn("others had", out)

    def test_everything_can_be_chosen(self) -> None:
        self.measured("--impl", "flash,1_rung", "--dtypes", "float64", "--directions", "both,backward", "--head-dims", "32",
                      "--seq-lens", "64,7", "--batch-heads", "3,2x4", "--causal", "yes", "--turns", "2", "--threads", "1")
        self.assertEqual(self.library.threads, [1])
        columns = ("implementation", "dtype", "direction", "head_dim", "seq_len", "batch", "heads", "causal", "threads",
                   "status")
        found = [tuple(one[name] for name in columns) for one in table.load(self.csv, ATTENTION)]
        self.assertEqual(found, [(name, "float64", direction, "32", n, batch, heads, "True", "1", status)
                                 for n in ("64", "7") for batch, heads in (("1", "3"), ("2", "4"))
                                 for direction in ("both", "backward")
                                 for name, status in (("flash", "ok"), ("1_rung", "unsupported"))])

    def test_all_sizes_is_128_cases_and_quick_has_none_of_them(self) -> None:
        full, quick = problems.cases(problems.FULL), problems.cases(problems.QUICK)
        self.assertEqual((len(full), len(set(full))), (128, 128))
        self.assertFalse(set(full) & set(quick))

    def test_an_interrupt_loses_no_case_that_was_finished(self) -> None:
        verdicts = iter([Verdict(1e-7, 1e-7), Verdict(1e-7, 1e-7)])

        def check(duel) -> Verdict:
            try:
                return next(verdicts)
            except StopIteration:
                raise KeyboardInterrupt from None

        with mock.patch.object(FakeDuel, "check", check), self.assertRaises(KeyboardInterrupt):
            self.measured("--quick")
        self.assertEqual(len(table.load(self.csv, ATTENTION)), 2)

    def test_a_wrong_result_is_the_exit_code_and_a_constraint_is_not(self) -> None:
        code, out = self.measured("--quick", verdict=Verdict(1, 1e-7, "out is off by 1"))
        self.assertEqual(code, 1)
        self.assertIn("error: out is off by 1", out)
        self.assertEqual(self.measured("--quick", raises=Unsupported("no"))[0], 0)

    def test_a_busy_machine_is_said(self) -> None:
        self.others = 0.4
        out = self.measured("--quick")[1]
        self.assertIn("(others: 40 %)", out)
        self.assertIn("During 8 of 8 cases others had more than 5 % of the processors", out)
        self.assertEqual({one["others"] for one in table.load(self.csv, ATTENTION)}, {"0.4"})

    def test_mistakes_are_found_before_anything_is_measured(self) -> None:
        self.assertEqual(self.error(self.measured, "--impl", "2_rung,fast"),
                         "--impl has 'fast'; there are standard, flash, 1_rung, 2_rung")
        self.csv.parent.mkdir()
        self.csv.write_text("my,own\n")
        self.assertIn("is another kind of table", self.error(self.measured, "--quick"))
        self.assertEqual(self.clock.log, [])
        self.assertEqual(self.csv.read_text(), "my,own\n")


class RunOnGpu(Temporary):
    """The same on a GPU, with contenders made here."""

    def setUp(self) -> None:
        super().setUp()
        self.library = FakeLibrary(("standard", "flash"))

    def measured(self, *words: str, library=None, **of_duel) -> tuple[int, str]:
        args = program.parsed(["--device", "cuda", *words, "--output", str(self.csv)])
        clock, out = Clock(), io.StringIO()
        with contextlib.redirect_stdout(out):
            if args.problem == "attention":
                code = program.attention_on_gpu(args, self.library,
                                                lambda backend: FakeCudaBench(clock, backend, self.library, **of_duel),
                                                "NVIDIA H200", clock.watch)
            else:
                bench = FakeCudaBench(clock, library=mock.Mock(names=lambda: SoftmaxMatmulLibrary.NAMES), **of_duel)
                bench.peer = "pytorch 2.0 softmax, matmul"
                code = program.softmax_matmul_on_gpu(args, bench.library, lambda: bench, "NVIDIA H200", clock.watch)
        return code, out.getvalue()

    def test_a_row_for_each_backend(self) -> None:
        code, out = self.measured("--quick", "--directions", "forward", "--causal", "no")
        rows = table.load(self.csv, ATTENTION)
        self.assertEqual(code, 0)
        self.assertEqual([(one["dtype"], one["peer"].split()[-1], one["status"]) for one in rows],
                         [(dtype, backend, "unsupported" if (backend, dtype) == ("cudnn", "float32") else "ok")
                          for dtype in ("float32", "float16", "bfloat16") for backend in ("cudnn", "flash", "efficient", "math")])
        self.assertEqual({(one["implementation"], one["machine"], one["seq_len"], one["batch"]) for one in rows},
                         {("flash", "NVIDIA H200", "768", "8")})
        for column in ("threads", "isa", "gemm_gflops", "fma_peak_gflops", "share_of_gemm", "share_of_peak", "others"):
            self.assertEqual({one[column] for one in rows}, {""}, column)
        self.assertIn("unsupported: No available kernel. Aborting execution.  beside pytorch 2.0 sdpa cudnn", out)
        self.assertIn("beside pytorch 2.0 sdpa math: cuda, NVIDIA H200**", out)
        for word in ("threads", "of mm", "of torch.mm", "disturbed"):
            self.assertNotIn(word, out)

    def test_everything_can_be_chosen(self) -> None:
        self.measured("--impl", "flash,standard", "--dtypes", "bfloat16", "--backends", "math,cudnn", "--directions", "backward",
                      "--head-dims", "32", "--seq-lens", "64", "--batch-heads", "2x4", "--causal", "yes", "--turns", "2")
        columns = ("implementation", "dtype", "direction", "head_dim", "seq_len", "batch", "heads", "causal", "turns")
        found = [(one["peer"].split()[-1], *(one[name] for name in columns)) for one in table.load(self.csv, ATTENTION)]
        self.assertEqual(found, [(backend, name, "bfloat16", "backward", "32", "64", "2", "4", "True", "2")
                                 for backend in ("math", "cudnn") for name in ("flash", "standard")])

    def test_quick_has_no_case_of_a_complete_run(self) -> None:
        full, quick = problems.cases(problems.CUDA_FULL, "cuda"), problems.cases(problems.CUDA_QUICK, "cuda")
        self.assertFalse(set(full) & set(quick))
        self.assertEqual({case.dtype for case in full}, {"float32", "float16", "bfloat16"})
        for sizes in (full, quick):
            self.assertEqual({case.direction for case in sizes}, {"forward", "backward", "both"})
        full, quick = (problems.softmax_matmul_cases(sizes) for sizes in (problems.SOFTMAX_MATMUL_FULL, problems.SOFTMAX_MATMUL_QUICK))
        self.assertFalse(set(full) & set(quick))

    def test_part_1_has_a_row_for_each_function_and_size(self) -> None:
        code, out = self.measured("--problem", "softmax_matmul")
        rows = table.load(self.csv, SOFTMAX_MATMUL)
        self.assertEqual((code, set(rows[0])), (0, set(SOFTMAX_MATMUL.columns)))
        self.assertEqual([(one["d2"], one["implementation"]) for one in rows],
                         [(str(2**power), name) for power in range(6, 14) for name in ("unfused", "fused_16", "fused_32", "fused_64")])
        self.assertEqual({(one["batch"], one["d1"], one["d3"], one["dtype"], one["machine"]) for one in rows},
                         {("16", "2048", "512", "float32", "NVIDIA H200")})
        self.assertEqual([name for name, cell in rows[0].items() if not cell], [])
        self.assertAlmostEqual(float(rows[0]["gflops"]), 2e-9 * 16 * 2048 * 64 * 512 / 0.004, delta=1)
        self.assertIn("| 16 | 2048 | 512 | 2.00 | 2.00 |", out)

    def test_part_1s_sizes_and_functions_can_be_chosen(self) -> None:
        code, out = self.measured("--problem", "softmax_matmul", "--d2", "100,7", "--impl", "fused_64", "--turns", "2", "--quick",
                                  verdict=Verdict(1, 1e-7, "out is off by 1"))
        self.assertEqual(code, 1)
        self.assertEqual([(one["batch"], one["d2"], one["implementation"], one["status"])
                          for one in table.load(self.csv, SOFTMAX_MATMUL)],
                         [("4", d2, "fused_64", "error") for d2 in ("100", "7")])
        self.assertEqual(self.error(self.measured, "--problem", "softmax_matmul", "--impl", "fused_8"),
                         "--impl has 'fused_8'; there are unfused, fused_16, fused_32, fused_64")

    def test_a_file_of_the_other_kind_is_found_before_anything_is_measured(self) -> None:
        self.measured("--quick")
        self.assertIn("is another kind of table", self.error(self.measured, "--problem", "softmax_matmul", "--quick"))

    def test_a_gpu_that_cannot_be_used_is_one_line(self) -> None:
        torch = FakeCuda()
        self.assertEqual(program.usable_gpu(torch), "NVIDIA H200")
        self.assertIs(torch.backends.cuda.matmul.allow_tf32, False)
        torch.available = False
        self.assertEqual(self.error(program.usable_gpu, torch), "--device is 'cuda', and PyTorch sees no usable GPU")

    def test_a_backend_that_this_pytorch_does_not_have_is_unsupported(self) -> None:
        torch = mock.Mock(__version__="2.4")
        torch.nn.attention.SDPBackend = mock.Mock(spec=["MATH"])
        for backend, said in (("cudnn", "PyTorch 2.4 has no CUDNN_ATTENTION"), ("math", "")):
            bench = attention_bench.CudaBench(torch, self.library, None, backend)
            self.assertEqual(bench.peer, f"pytorch 2.4 sdpa {backend}")
            if not said:
                bench.chosen()
                torch.nn.attention.sdpa_kernel.assert_called_once_with(torch.nn.attention.SDPBackend.MATH)
                continue
            found, problem = timing.compare(bench, CASE, "flash", {"machine": "NVIDIA H200"}, 5, 1e9, Clock().watch)
            self.assertEqual((found["status"], problem), ("unsupported", said))

    def test_the_clock_of_a_gpu(self) -> None:
        torch = FakeCuda()
        watch = timing.CudaStopwatch(torch)
        seconds = watch.seconds(lambda: torch.work("pass", 0.25), 2)
        self.assertAlmostEqual(seconds, 0.25)  # without the eviction
        self.assertEqual(torch.log, ["evict", "pass", "wait"] * 2)
        torch.log.clear()
        watch.seconds(lambda: torch.work("pass", 0.25), 1000)
        self.assertEqual(torch.log.count("pass"), watch.MOST_CALLS)
        torch.log.clear()
        watch.sleep(1e9)
        self.assertEqual(torch.log, ["wait"])


class FakeWork:
    """A pass each way on `torch`, which runs out of memory where it is told to."""

    dtype, KERNEL = "float32", "Fused"

    def __init__(self, torch, machine, fails=()):
        self.torch, self._machine, self._fails = torch, machine, fails
        self.out, self.gradients = mock.Mock(), ()
        self.out.grad_fn.name = lambda: self.KERNEL

    def prepare(self):
        self._machine.evict_caches()

    prepare_backward = prepare

    def saved_bytes(self):
        return 5 * 2**20

    def forward(self):
        self._pass("forward", 0.002, 3 * 2**20)

    def backward(self):
        self._pass("backward", 0.004, 7 * 2**20)

    def _pass(self, name, seconds, size):
        if name in self._fails:
            raise RuntimeError(self._fails[name])
        self.torch.work(name, seconds, size)


class BenchmarkRows(Temporary):
    """PyTorch by bench_attention's protocol, with a GPU and passes made here."""

    CASE = Case("cuda", "forward", "float32", 8, 1, 1024, 64, True)

    def setUp(self) -> None:
        super().setUp()
        self.torch = FakeCuda()
        self.gpu = benchmark_rows.Gpu(self.torch)

    def row(self, fails=(), wrong=""):
        work = FakeWork(self.torch, self.gpu, dict(fails))
        truth = mock.Mock(judge=lambda inputs, direction, results: (0, "out is off" if direction == wrong else ""))
        with mock.patch.object(benchmark_rows, "Inputs"), mock.patch.object(benchmark_rows, "SdpaWork", lambda *_: work):
            found = benchmark_rows.measured(self.torch, self.gpu, truth, self.CASE, 1, 2)
        return benchmark_rows.row_of(self.CASE, self.gpu, found), found

    def test_the_passes_are_those_of_measure_attention(self) -> None:
        self.torch.log.clear()
        benchmark_rows.measure(FakeWork(self.torch, self.gpu), self.gpu, 1, 2)
        names = [name.split()[0] for name in self.torch.log]
        timed = ["wait", "wait"]  # what came before, and the event that begins
        forward, done = ["evict"], ["forward", "wait", "wait"]
        before = ["evict", "forward", "evict"]
        self.assertEqual(names, forward + ["forward"] + 2 * (forward + timed + done) +
                         before + ["backward"] + 2 * (before + timed + ["backward", "wait", "wait"]))

    def test_the_row_has_means_and_memory_beyond_what_was_there(self) -> None:
        found, measurement = self.row()
        total, flop = 6.0, 14 * 1024 * 1025 / 2 * 8 * 64
        self.assertEqual({name: found[name] for name in ("forward_ms", "backward_ms", "total_ms", "forward_peak_MiB",
                                                         "backward_peak_MiB", "saved_activations_MiB")},
                         {"forward_ms": "2", "backward_ms": "4", "total_ms": "6", "forward_peak_MiB": "3", "backward_peak_MiB": "7",
                          "saved_activations_MiB": "5"})
        self.assertAlmostEqual(float(found["tflops"]), flop / total * 1e-9, places=4)
        self.assertEqual((found["status"], found["implementation"], found["gpu"], found["device"], found["percent_of_peak"]),
                         ("ok", "pytorch_sdpa", "NVIDIA H200", "cuda", ""))
        self.assertEqual((found["d_model"], found["batch"], found["heads"], found["causal"]), ("64", "8", "1", "True"))
        line = benchmark_rows.progress(self.CASE, found, measurement)
        self.assertTrue(line.startswith("float32    8x1   1024   64 causal           2         4         6 "), line)
        self.assertTrue(line.endswith("  Fused"), line)
        self.assertEqual(line.index("8x1") + 3, benchmark_rows.HEADING.index("heads") + 5)

    def test_failures_are_rows(self) -> None:
        memory = "CUDA out of memory. Tried to allocate 2.00 GiB."
        for fails, status, has_forward in (({"forward": memory}, "OOM", False), ({"backward": memory}, "OOM(backward)", True),
                                           ({"forward": "No available kernel"}, "unsupported", False),
                                           ({"backward": "misaligned\naddress"}, "error", False)):
            with self.subTest(fails=fails):
                found, measurement = self.row(fails)
                self.assertEqual((found["status"], found["backward_ms"], found["total_ms"], found["tflops"]), (status, "", "", ""))
                for column in ("forward_ms", "forward_peak_MiB", "saved_activations_MiB"):
                    self.assertEqual(bool(found[column]), has_forward, column)
                line = benchmark_rows.progress(self.CASE, found, measurement)
                self.assertIn(f"{status}: {next(iter(fails.values())).split()[0]}", line)
                self.assertNotIn("\n", line)

    def test_a_wrong_result_is_not_timed(self) -> None:
        for direction in ("forward", "backward"):
            found, measurement = self.row(wrong=direction)
            self.assertEqual((found["status"], found["forward_ms"], measurement.message), ("error", "", "wrong result: out is off"))
        self.assertEqual(self.torch.log.count("forward"), 2)

    def test_a_cpu_takes_medians_and_counts_memory_in_the_warm_ups(self) -> None:
        cpu = mock.Mock(average=benchmark_rows.Cpu.average, warm_up=lambda run: run() or 64, peak_gflops=lambda dtype: 200.0,
                        timed=mock.Mock(side_effect=[(ms, 0) for ms in (9, 1, 2, 30, 10, 20)]))
        found = benchmark_rows.measure(FakeWork(self.torch, cpu), cpu, 1, 3)
        self.assertEqual((found.forward_ms, found.forward_peak, found.backward_ms, found.backward_peak), (2, 64, 20, 64))
        row = benchmark_rows.row_of(self.CASE, mock.Mock(gpu=""), found)
        self.assertAlmostEqual(float(row["percent_of_peak"]), 100e3 * float(row["tflops"]) / 200, delta=1e-3)

    def test_the_table_is_bench_attentions(self) -> None:
        source = (REPOSITORY / "benchmarking" / "attention_rows.cpp").read_text()
        schema = benchmark_rows.BENCH_ATTENTION
        for member, names in (("columns", schema.columns), ("key", schema.key)):
            words = re.search(rf"\.{member} = \{{(.*?)\}}", source, re.DOTALL)[1]
            self.assertEqual(tuple(re.findall(r'"(\w+)"', words)), names)

    def test_rows_go_into_its_file_and_no_other_row_is_touched(self) -> None:
        from lab import attention_results
        ours = dict.fromkeys(benchmark_rows.BENCH_ATTENTION.columns, "") | {
            "implementation": "flash", "d_model": "64", "seq_len": "1024", "status": "OOM", "device": "cuda", "gpu": "NVIDIA H200",
            "dtype": "float32", "batch": "8", "heads": "1", "causal": "True"}
        table.record(self.csv, benchmark_rows.BENCH_ATTENTION, ours)
        args = program.parsed(["--device", "cuda", "--benchmark-rows", "--seq-lens", "512,1024", "--causal", "yes", "--output",
                               str(self.csv)])
        ok = benchmark_rows.Measurement(forward_ms=2, forward_peak=2**20, backward_ms=4, backward_peak=2**20, saved=2**20)
        oom = benchmark_rows.Measurement("OOM(backward)", "none", forward_ms=2, forward_peak=2**20, saved=2**20)
        for results in ((ok, oom), (oom, ok)):
            with contextlib.redirect_stdout(io.StringIO()) as out, \
                    mock.patch.object(benchmark_rows, "measured", mock.Mock(side_effect=results)) as measured:
                self.torch.__version__ = "2.0"
                self.assertEqual(program.write_benchmark_rows(args, self.torch, self.gpu, None), 0)
            self.assertEqual([call.args[3:] for call in measured.call_args_list],
                             [(Case("cuda", "forward", "float32", 8, 1, n, 64, True), 10, 100) for n in (512, 1024)])
            rows = attention_results.load(self.csv)
            self.assertEqual([(one.implementation, one.seq_len, one.status) for one in rows],
                             [("flash", 1024, "OOM"), ("pytorch_sdpa", 512, results[0].status),
                              ("pytorch_sdpa", 1024, results[1].status)])
            self.assertIn("NVIDIA H200: 100 passes after 10, checked", out.getvalue())
        self.csv.write_text("my,own\n")
        self.assertIn("another kind of table", self.error(program.write_benchmark_rows, args, self.torch, self.gpu, None))

    def test_the_sizes_are_bench_attentions(self) -> None:
        def sizes(*words: str) -> dict:
            return program.parsed(["--benchmark-rows", *words]).sizes

        self.assertEqual([(case.batch, case.heads, case.head_dim, case.dtype) for case in problems.cases(sizes("--device", "cuda"))],
                         [(8, 1, 64, "float32")] * 10)
        self.assertEqual({case.seq_len for case in problems.cases(sizes("--device", "cuda"))}, {256, 1024, 4096, 8192, 16384})
        for device in ("cpu", "cuda"):
            full, quick = (set(problems.cases(sizes("--device", device, *words))) for words in ((), ("--quick",)))
            self.assertFalse(full & quick)
        chosen = sizes("--device", "cuda", "--dtypes", "float16,bfloat16", "--head-dims", "128", "--passes", "5", "--warmups", "3")
        self.assertEqual((chosen["dtypes"], chosen["head_dims"], chosen["passes"], chosen["warmups"]),
                         (("float16", "bfloat16"), (128,), 5, 3))
        self.assertEqual(program.parsed(["--benchmark-rows"]).output.name, "attention_benchmark.csv")


class Machine(Temporary):
    def test_others_are_what_is_neither_idle_nor_ours(self) -> None:
        stat, own = self.folder / "stat", [0.0]
        second = os.sysconf("SC_CLK_TCK")

        def write(*seconds: int) -> None:
            stat.write_text("cpu  " + " ".join(str(one * second) for one in seconds) + "\ncpu0 1 2 3\n")

        from_start = (10, 1, 10, 100, 5, 0, 0, 0, 7, 7)
        write(*from_start)
        others = machine.Others(stat, lambda: own[0])
        write(16, 1, 11, 110, 6, 0, 0, 2, 9, 9)  # 6 user, 1 system, 10 idle, 1 iowait and 2 stolen: 20 in all
        own[0] = 5.0
        self.assertAlmostEqual(others.share(), (6 + 1 + 2 - 5) / 20)
        self.assertEqual(others.share(), 0)
        self.assertEqual(machine.Others(self.folder / "no such file").share(), 0)


class CommandLine(Temporary):
    def call(self, *words: str) -> tuple[int, str, str]:
        # -S: without site-packages, so that no PyTorch is found where there is one.
        done = subprocess.run([sys.executable, "-S", REPOSITORY / "benchmarking" / "compare_torch.py", *words], text=True,
                              capture_output=True, timeout=120, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def test_wrong_values_are_one_line(self) -> None:
        for words, said in ((("--seq-lens", "64,abc"), "--seq-lens: it is 'abc'; it must be an integer from 1 to 1048576"),
                            (("--head-dims", "0"), "--head-dims: it is '0'"),
                            (("--head-dims", "64,64"), "each may be there once"),
                            (("--turns", "-1"), "--turns: "), (("--threads", "1025"), "it must be an integer from 1 to 1024"),
                            (("--dtypes", "int8"), "--dtypes: it is 'int8'; it must be one of float32, float64, float16, bfloat16"),
                            (("--dtypes", "float64,float16"),
                             "--dtypes: it is 'float16'; with --device cpu it must be one of float32, float64"),
                            (("--device", "cuda", "--dtypes", "float64"),
                             "--dtypes: it is 'float64'; with --device cuda it must be one of float32, float16, bfloat16"),
                            (("--device", "gpu"), "--device: invalid choice: 'gpu'"),
                            (("--device", "cuda", "--backends", "cudnn,own"), "--backends: it is 'own'; it must be one of cudnn"),
                            (("--backends", "cudnn"), "--backends: it is for --device cuda"),
                            (("--device", "cuda", "--threads", "2"), "--threads: it is for --device cpu"),
                            (("--problem", "softmax_matmul"), "--problem: with softmax_matmul --device must be cuda"),
                            (("--problem", "softmax_matmul", "--device", "cuda", "--seq-lens", "64"),
                             "--seq-lens: not with --problem softmax_matmul"),
                            (("--d2", "64"), "--d2: not with --problem attention"),
                            (("--passes", "5"), "--passes: not with --problem attention"),
                            (("--benchmark-rows", "--turns", "5"), "--turns: not with --benchmark-rows"),
                            (("--benchmark-rows", "--device", "cuda", "--problem", "softmax_matmul"),
                             "--benchmark-rows: they are of attention"),
                            (("--directions", "up"), "--directions: it is 'up'; it must be one of forward, backward, both"),
                            (("--causal", "maybe"), "--causal: it is 'maybe'"),
                            (("--batch-heads", "1x2x3"), "--batch-heads: it is '1x2x3'; it must be HEADS or BATCHxHEADS"),
                            (("--batch-heads", "1x"), "--batch-heads: it is ''"),
                            (("--budget", "nan"), "--budget: it is 'nan'"),
                            (("--colour",), "unrecognized arguments: --colour"),
                            (("--quic",), "unrecognized arguments: --quic"),
                            (("--impl",), "--impl: expected one argument")):
            with self.subTest(words=words):
                code, out, err = self.call(*words)
                self.assertEqual((code, out, err.count("\n")), (2, "", 1), out + err)
                self.assertIn(f"error: {said}" if said.startswith("-") else said, err)

    def test_help(self) -> None:
        code, out, err = self.call("--help")
        self.assertEqual((code, err), (0, ""))
        for option in ("--install", "--quick", "--impl", "--table", "--library", "--threads", "--device", "--backends", "--problem",
                       "--benchmark-rows"):
            self.assertIn(option, out)
        self.assertIn("default forward,backward; on a GPU forward,backward,both", " ".join(out.split()))

    def test_no_library_is_one_line_with_the_command(self) -> None:
        code, out, err = self.call("--library", "none.so")
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(err, "error: none.so is not there: cmake --preset default && cmake --build --preset default "
                              "--target flash_attention_c\n")
        (self.folder / "text.so").write_text("text")
        self.assertRegex(self.call("--library", "text.so")[2], r"^error: text.so cannot be used: .*\n$")

    @unittest.skipUnless(LIBRARY.is_file(), "flash_attention_c is not built, or FLASH_BUILD does not say where")
    def test_the_libraries_for_a_gpu_lie_beside_the_other(self) -> None:
        ours = self.folder / LIBRARY.name
        ours.symlink_to(LIBRARY)
        for words, name in (((), "flash_attention_cuda_c"), (("--problem", "softmax_matmul"), "flash_softmax_matmul_cuda_c")):
            code, out, err = self.call("--device", "cuda", "--library", str(ours), *words)
            self.assertEqual((code, out), (1, ""))
            self.assertIn(f"lib{name}.so is not there: cmake", err)
            self.assertTrue(err.endswith(f"--target {name}\n"), err)

    def test_the_table_of_a_file_needs_neither_library_nor_torch(self) -> None:
        table.record(self.csv, ATTENTION, row())
        code, out, err = self.call("--table", str(self.csv), "--library", "none.so")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out, markdown.markdown([row()]) + "\n")
        self.assertEqual(self.call("--table", "nothing.csv"),
                         (1, "", "error: nothing.csv cannot be read: No such file or directory\n"))

    def test_what_the_library_refuses_at_the_start_is_one_line(self) -> None:
        err = io.StringIO()
        with mock.patch.object(program, "Library", side_effect=Failed("FLASH_ISA is 'x'; it must be ...")), \
                contextlib.redirect_stderr(err):
            self.assertEqual(program.main([]), 1)
        self.assertEqual(err.getvalue(), "error: FLASH_ISA is 'x'; it must be ...\n")


class Environment(Temporary):
    """Which Python the program goes on in."""

    def setUp(self) -> None:
        super().setUp()
        self.ran: list[list[str]] = []
        self.code = 0
        self.patch(mock.patch.object(environment, "VENV", self.folder / "venv"))
        self.patch(mock.patch.object(errors, "REPOSITORY", self.folder))
        self.patch(mock.patch.object(environment.subprocess, "run", self.run_command))
        self.found = self.patch(mock.patch.object(environment.importlib.util, "find_spec", return_value=None))
        self.exec = self.patch(mock.patch.object(environment.os, "execv", side_effect=SystemExit))
        self.patch(contextlib.redirect_stdout(io.StringIO()))

    def patch(self, one):
        self.addCleanup(one.__exit__, None, None, None)
        return one.__enter__()

    def run_command(self, words, **_):
        self.ran.append(words)
        (self.folder / "venv" / "bin").mkdir(parents=True, exist_ok=True)
        return mock.Mock(returncode=self.code)

    def test_without_pytorch_one_line_says_what_to_type_and_nothing_is_installed(self) -> None:
        self.assertRegex(self.error(environment.with_torch, False, PROGRAM, []),
                         r"PyTorch is not installed here.*: benchmarking/compare_torch.py --install$")
        self.assertEqual(self.ran, [])

    def test_install_makes_the_environment_once_and_goes_on_in_it(self) -> None:
        for _ in range(2):
            with self.assertRaises(SystemExit):
                environment.with_torch(True, PROGRAM, ["--install", "--quick"])
        venv, pip = self.ran
        self.assertEqual(venv[1:3], ["-m", "venv"])
        self.assertEqual(pip[:4], [str(self.folder / "venv/bin/python"), "-m", "pip", "install"])
        self.assertTrue(set(environment.PINS) <= set(pip))
        python, words = self.exec.call_args.args
        self.assertEqual((python, words[0]), (pip[0], pip[0]))
        self.assertEqual((Path(words[1]).name, words[2:]), ("compare_torch.py", ["--quick"]))

    def test_what_is_installed_is_used_without_asking(self) -> None:
        environment.install()
        with self.assertRaises(SystemExit):
            environment.with_torch(False, PROGRAM, ["--quick"])
        with mock.patch.object(environment, "PINS", ("torch==3",)):
            self.assertIn("torch==3", self.error(environment.with_torch, False, PROGRAM, []))

    def test_an_install_that_fails_is_not_taken_for_one(self) -> None:
        self.code = 1
        self.assertEqual(self.error(environment.with_torch, True, PROGRAM, []), "setting up venv failed: the last command ended with 1")
        self.assertFalse(environment.is_ready())

    def test_no_loop_in_an_environment_without_torch(self) -> None:
        environment.install()
        with mock.patch.object(sys, "prefix", str(self.folder / "venv")):
            self.error(environment.with_torch, True, PROGRAM, ["--install"])
        self.exec.assert_not_called()


@unittest.skipUnless(LIBRARY.is_file(), "flash_attention_c is not built, or FLASH_BUILD does not say where")
class CInterface(unittest.TestCase):
    def setUp(self) -> None:
        self.library = Library(LIBRARY)

    def memory(self, count: int, dtype="float64", fill=None, seed=0) -> array.array:
        draw = random.Random(seed)
        values = (draw.gauss(0, 1) if fill is None else fill for _ in range(count))
        return array.array("f" if dtype == "float32" else "d", values)

    def run_all(self, case: Case, name: str):
        """What the implementation gives, and the oracle with its limits."""
        count, rows = case.batch * case.heads * case.seq_len * case.head_dim, case.batch * case.heads * case.seq_len
        q, k, v, d_out = (self.memory(count, case.dtype, seed=seed) for seed in range(4))
        out, lse, p = (self.memory(size, case.dtype, math.nan) for size in (count, rows, rows * case.seq_len))
        d = [self.memory(count, case.dtype, math.nan) for _ in range(3)]
        want = [self.memory(count, fill=math.nan) for _ in range(4)]
        want_lse, limit, limits = self.memory(rows, fill=math.nan), self.memory(1), self.memory(3)
        inputs = at(q, k, v)
        self.library.prepared("attention_forward", case, *inputs, *at(out, lse, p), name=name)()
        self.library.prepared("attention_backward", case, *inputs, *at(out, lse, p, d_out, *d), name=name)()
        self.library.prepared("attention_oracle", case, *inputs, *at(want[0], want_lse, limit))()
        self.library.prepared("attention_backward_oracle", case, *inputs, *at(d_out, *want[1:], limits))()
        return list(zip((out, *d), want, (limit[0], *limits))), list(zip(lse, want_lse))

    def test_every_implementation_agrees_with_the_oracle(self) -> None:
        self.assertEqual(self.library.names()[:2], ["standard", "flash"])
        for name in self.library.names():
            for dtype in problems.ON_DEVICE["cpu"]:
                if not self.library.has(name, dtype):
                    continue
                for causal in (False, True):
                    with self.subTest(name=name, dtype=dtype, causal=causal):
                        results, lse = self.run_all(Case("cpu", "forward", dtype, 2, 3, 17, 8, causal), name)
                        for got, want, limit in results:
                            self.assertLess(limit, 3e-4 if dtype == "float32" else 1e-12)
                            self.assertGreater(limit, 0)
                            self.assertTrue(max(map(abs, want)) > 0.1)
                            for x, y in zip(got, want):
                                self.assertTrue(abs(x - y) <= limit, f"{x} instead of {y}, limit {limit}")
                        if not self.library.saves_p(name):
                            self.assertTrue(all(abs(x - y) <= 1e-5 for x, y in lse))

    def test_the_oracle_is_attention(self) -> None:
        case = Case("cpu", "forward", "float64", 1, 1, 3, 2, True)
        q, k, v = ([0.5, -1, 2, 1, 0, 3], [1, 1, -1, 0.5, 0, 2], [1, 2, 3, 4, 5, 6])
        tensors = [array.array("d", one) for one in (q, k, v)]
        want, lse, limit = self.memory(6, fill=math.nan), self.memory(3, fill=math.nan), self.memory(1)
        self.library.prepared("attention_oracle", case, *at(*tensors, want, lse, limit))()
        for i in range(3):
            weights = [math.exp((q[2 * i] * k[2 * j] + q[2 * i + 1] * k[2 * j + 1]) / math.sqrt(2)) for j in range(i + 1)]
            self.assertAlmostEqual(lse[i], math.log(sum(weights)), places=14)
            for c in range(2):
                mean = sum(weight * v[2 * j + c] for j, weight in enumerate(weights)) / sum(weights)
                self.assertAlmostEqual(want[2 * i + c], mean, places=14)

    def test_failures_have_a_message_and_a_kind(self) -> None:
        case, x = Case("cpu", "forward", "float64", 1, 1, 2, 2, False), self.memory(4)
        here = at(x, x, x, x, x)
        for name, of, addresses, kind, said in (
                ("none", case, (*here, None), Failed, r"implementation is 'none'; it must be one of: standard, flash"),
                ("flash", case, (None, *here[1:], None), Failed, r"q is a null view; it must point to 4 elements"),
                ("flash", case, (*here[:3], None, here[4], None), Failed, r"out is a null view"),
                ("standard", case, (*here, None), Failed, r"p is a null view"),
                ("flash", Case("cpu", "forward", "float64", 1, 0, 2, 2, False), (*here, None), Failed, r"heads|shape"),
                ("flash", Case("cpu", "forward", "float64", 1, 1, -2, 2, False), (*here, None), Failed, r"\(1, 1, -2, 2\)")):
            with self.subTest(said=said), self.assertRaisesRegex(kind, said):
                self.library.prepared("attention_forward", of, *addresses, name=name)()
        with self.assertRaisesRegex(Failed, r"dtype is 7; it must be 0 \(float32\) or 1 \(float64\)"):
            self.library.call("implementation_has_dtype", b"flash", 7, None)
        with self.assertRaisesRegex(Failed, "index is 99"):
            self.library.call("implementation_name", 99, None)
        with self.assertRaisesRegex(Failed, "count is null"):
            self.library.call("implementation_count", None)

    def test_threads_and_peak(self) -> None:
        self.assertIn(self.library.isa(), ("avx512", "avx2", "baseline"))
        self.library.set_threads(1)
        self.assertGreater(self.library.fma_peak_gflops("float64"), 0)
        with self.assertRaisesRegex(Failed, "threads is 0; it must be"):
            self.library.set_threads(0)

    def test_the_library_exports_the_header_and_nothing_else(self) -> None:
        header = declared("c_result.h") | declared("attention_c.h")
        self.assertEqual(exported(LIBRARY), header)
        on_gpu = LIBRARY.with_name("libflash_attention_cuda_c.so")
        if on_gpu.is_file():
            of_cpu = {"isa", "set_threads", "fma_peak_gflops", "attention_oracle", "attention_backward_oracle"}
            # Besides, with C++ names, what part 3's tuning exports, a static library in this one.
            self.assertEqual({name for name in exported(on_gpu) if not name.startswith("_Z")},
                             header - {f"flash_{name}" for name in of_cpu})


@unittest.skipUnless(SOFTMAX_MATMUL_LIBRARY.is_file(), "flash_softmax_matmul_c is not built, or FLASH_BUILD does not say where")
class SoftmaxMatmulCInterface(unittest.TestCase):
    def setUp(self) -> None:
        self.library = SoftmaxMatmulLibrary(SOFTMAX_MATMUL_LIBRARY)

    def test_the_oracle_is_softmax_and_a_product(self) -> None:
        x, v = [0.5, -1, 2, -math.inf, 0, 3], [1, 2, 3, 4, 5, -6]  # 2 rows of 3 keys, 2 columns
        tensors = [array.array("f", one) for one in (x, v)]
        out = array.array("d", [math.nan] * 4)
        largest = self.library.oracle(3, 2, 2, *at(*tensors, out))
        for i in range(2):
            weights = [math.exp(score) for score in x[3 * i:3 * i + 3]]
            for c in range(2):
                mean = sum(weight * v[2 * j + c] for j, weight in enumerate(weights)) / sum(weights)
                self.assertAlmostEqual(out[2 * i + c], mean, places=14)
        # 2^-24 (8 + 2 * 3 + 4 sqrt(3)) of a magnitude between 5 and 6
        self.assertTrue(5 < largest * 2**24 / (14 + 4 * math.sqrt(3)) < 6, largest)

    def test_failures_have_a_message(self) -> None:
        x = array.array("f", [1.0] * 4)
        with self.assertRaisesRegex(Failed, "x is a null view; it must point to 4 elements"):
            self.library.oracle(2, 2, 2, 0, *at(x, x))
        with self.assertRaisesRegex(Failed, "out is null"):
            self.library.oracle(2, 2, 2, *at(x, x), 0)

    def test_the_library_exports_the_oracle_and_nothing_else(self) -> None:
        functions = {"flash_softmax_matmul", "flash_fused_softmax_matmul"}
        header = declared("softmax_matmul_c.h")
        self.assertTrue(functions < header)
        self.assertEqual(exported(SOFTMAX_MATMUL_LIBRARY), declared("c_result.h") | header - functions)
        on_gpu = SOFTMAX_MATMUL_LIBRARY.with_name("libflash_softmax_matmul_cuda_c.so")
        if on_gpu.is_file():
            self.assertEqual(exported(on_gpu), declared("c_result.h") | functions)


def declared(header: str) -> set[str]:
    """The functions of a header in benchmarking/c_interface/."""
    text = (REPOSITORY / "benchmarking" / "c_interface" / header).read_text()
    names = set(re.findall(r"^FLASH_C_EXPORT [\w ]+\*? ?(flash_\w+)\(", text, re.MULTILINE))
    assert len(names) == text.count("\nFLASH_C_EXPORT ")
    return names


def exported(library: Path) -> set[str]:
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    # Weak symbols: exception types and pieces of the standard library, which every library may hold.
    return set(re.findall(r"^\S+ [TDBR] (\S+)$", symbols, re.MULTILINE))


def at(*memory: array.array) -> list[int]:
    """Addresses."""
    return [one.buffer_info()[0] for one in memory]


@unittest.skipUnless(LIBRARY.is_file() and importlib.util.find_spec("torch"), "needs flash_attention_c and PyTorch")
class WithTorch(Temporary):
    def setUp(self) -> None:
        super().setUp()
        import torch
        self.torch = torch
        self.bench = attention_bench.TorchBench(torch, Library(LIBRARY), 1)

    def test_both_are_right_and_a_wrong_one_is_found_in_every_head(self) -> None:
        name = self.bench.library.names()[-1]
        for direction in problems.DIRECTIONS:
            for dtype in problems.ON_DEVICE["cpu"]:
                for causal in (False, True):
                    case = Case("cpu", direction, dtype, 2, 3, 33, 16, causal)
                    with self.subTest(case=case), self.bench.duel(case, name) as duel:
                        verdict = duel.check()
                        self.assertEqual(verdict.problem, "")
                        self.assertTrue(0 < verdict.error < (1e-5 if dtype == "float32" else 1e-13))
                        right = duel.ours
                        for b, h in ((0, 0), (1, 2)):
                            for which, result in duel.results.items():
                                for value in (math.nan, 9.0):
                                    def spoiled() -> None:
                                        right()
                                        result[b, h, 20, 5] = value
                                    duel.ours = spoiled
                                    self.assertIn(which, duel.check().problem)
                        for which, result in duel.results.items():  # right but for its precision
                            def coarse() -> None:
                                right()
                                result.mul_(1 + (1e-4 if dtype == "float32" else 1e-9))
                            duel.ours = coarse
                            self.assertIn(which, duel.check().problem)
                        duel.ours = right
                        peer = duel.peer
                        duel.peer = lambda: peer() * 1.01 if direction == "forward" else tuple(1.01 * one for one in peer())
                        self.assertIn("PyTorch's", duel.check().problem)

    def test_each_backend_is_a_peer(self) -> None:
        """Of a GPU's bench, on the CPU, which has two of them."""
        case = Case("cpu", "backward", "float32", 2, 1, 33, 16, True)
        for backend, kernel in (("flash", "FlashAttentionForCpu"), ("math", "View")):
            bench = attention_bench.CudaBench(self.torch, self.bench.library, self.bench.truth, backend)
            with bench.duel(case, "flash") as duel:
                self.assertEqual(duel.check().problem, "")
                q = duel.inputs.q.requires_grad_()
                out = self.torch.nn.functional.scaled_dot_product_attention(q, q, q)
                self.assertIn(kernel, out.grad_fn.name())

    def test_pytorch_alone_is_checked_and_has_what_autograd_keeps(self) -> None:
        case = Case("cpu", "forward", "float32", 2, 3, 33, 16, True)
        truth, cpu = self.bench.truth, benchmark_rows.Cpu(self.torch, self.bench.library)
        found = benchmark_rows.measured(self.torch, cpu, truth, case, 1, 2)
        self.assertEqual((found.status, found.message), ("ok", ""))
        of_queries, of_rows = 4 * 2 * 3 * 33 * 16, 4 * 2 * 3 * 33
        self.assertEqual(found.saved, 4 * of_queries + of_rows)  # q, k, v, out and lse
        self.assertGreaterEqual(found.forward_peak, of_queries + of_rows)
        self.assertGreaterEqual(found.backward_peak, 3 * of_queries)
        self.assertEqual(len(found.ceilings), 4)
        for spoiled, status in (("forward", "out"), ("backward", "d_q")):
            run = getattr(benchmark_rows.SdpaWork, spoiled)

            def wrong(work) -> None:
                run(work)
                with self.torch.no_grad():
                    (work.out if spoiled == "forward" else work.gradients[0])[1, 2, 30, 5] += 0.1

            with mock.patch.object(benchmark_rows.SdpaWork, spoiled, wrong):
                found = benchmark_rows.measured(self.torch, cpu, truth, case, 1, 2)
            self.assertEqual((found.status, found.forward_ms), ("error", None))
            self.assertIn(f"wrong result: {status} is off by", found.message)

    def test_memory_of_the_cpu_is_counted_at_its_most(self) -> None:
        cpu = benchmark_rows.Cpu(self.torch, self.bench.library)
        size = 4 * 1000 * 100

        def work() -> None:
            self.torch.ones(1000, 100).add(1).sum()

        self.assertTrue(2 * size <= cpu.warm_up(work) < 2.1 * size)

    @unittest.skipUnless(SOFTMAX_MATMUL_LIBRARY.is_file(), "needs flash_softmax_matmul_c")
    def test_part_1s_contenders_are_checked_everywhere(self) -> None:
        """On the CPU, where a function made here stands for ours."""
        torch = self.torch
        case = SoftmaxMatmulCase("cpu", "float32", 4, 37, 50, 9)
        bench = softmax_matmul.SoftmaxMatmulBench(torch, mock.Mock(), SoftmaxMatmulLibrary(SOFTMAX_MATMUL_LIBRARY))
        with bench.duel(case, "fused_16") as duel:
            def ours(change=lambda out: None) -> None:
                duel.out.copy_(torch.softmax(duel.x.double(), -1) @ duel.v.double())
                change(duel.out)

            duel.ours = ours
            verdict = duel.check()
            self.assertEqual(verdict.problem, "")
            self.assertTrue(0 < verdict.error < 1e-6 and 0 < verdict.peer_error < 1e-5)
            rows = bench.expected(case, duel.x, duel.v)
            self.assertEqual([b for b, *_ in rows], [0, 2, 3])
            for b, which, *_ in rows:
                self.assertTrue({0, 18, 36} <= set(which))
                duel.ours = lambda: ours(lambda out: out[b, which[-1], 8:].add_(0.01))
                self.assertIn(f"out, batch {b}, is off by", duel.check().problem)
            duel.ours = lambda: ours(lambda out: out[1, 20, 3:4].fill_(math.nan))  # a batch that is not compared
            self.assertIn("not finite", duel.check().problem)
            duel.ours, peer = ours, duel.peer
            duel.peer = lambda: 1.01 * peer()
            self.assertIn("PyTorch's out, batch 0, is off by", duel.check().problem)

    def test_the_real_thing(self) -> None:
        args = ["--library", str(LIBRARY), "--output", str(self.csv), "--seq-lens", "40", "--head-dims", "16",
                "--batch-heads", "2x2", "--turns", "1", "--threads", "1", "--directions", "forward,backward,both"]
        with contextlib.redirect_stdout(io.StringIO()), mock.patch.object(attention_bench, "GEMM_SIZE", 64):
            self.assertEqual(program.main(args), 0)
        with self.csv.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        self.assertEqual([one["status"] for one in rows], ["ok"] * 12)
        self.assertTrue(all(float(one["ratio"]) > 0 and float(one["gemm_gflops"]) > 0 for one in rows))


if __name__ == "__main__":
    unittest.main()
