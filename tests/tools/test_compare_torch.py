"""benchmarking/compare_torch.py: protocol, rows, CSV, tables and command line, with a clock and contenders made here.

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
from compare_torch import (Case, ComparisonError, Failed, Library, OutOfMemory, Stopwatch, Turns, Unsupported,  # noqa: E402
                           Verdict)

LIBRARY = Path(os.environ.get("FLASH_BUILD", "not-built")) / "lib" / "libflash_attention_c.so"
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

    @contextlib.contextmanager
    def duel(self, case, implementation):
        yield FakeDuel(self.clock, **self.of_duel)


def row(**changes: str) -> dict[str, str]:
    full = dict.fromkeys(program.COLUMNS, "") | CASE.cells() | FIXED
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
        return program.measure(self.clock.work("A", ours), self.clock.work("B", peer), turns=turns, budget=budget,
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
        self.assertEqual(self.clock.log[6:].count("A"), 1 + program.MOST_CALLS)

    def test_the_first_call_of_a_block_is_not_in_its_time(self) -> None:
        cold = [True]

        def ours() -> None:  # slow after a pause
            self.clock.time += 0.5 if cold[0] else 0.003
            cold[0] = False

        def sleep(seconds: float) -> None:
            self.clock.time += seconds
            cold[0] = True

        watch = Stopwatch(lambda: self.clock.time, sleep)
        found = program.measure(ours, self.clock.work("B", 0.006), None, None, 4, 1e9, watch)
        self.assertEqual([round(seconds, 9) for seconds in found.ours], [0.003] * 4)
        self.assertEqual([round(seconds, 9) for seconds in found.peer], [0.006] * 4)

    def test_the_peak_follows_ours_at_once_and_gemm_comes_every_third_turn(self) -> None:
        found = self.measured(gemm=self.clock.probe("gemm", 160.0), peak=self.clock.probe("peak", 200.0))
        a, b = ["pause", "A", "A", "peak"], ["pause", "B", "B"]
        self.assertEqual(self.clock.log[6:], a + b + ["pause", "gemm"] + b + a + a + b + b + a + ["pause", "gemm"])
        self.assertEqual(found.peak, [200.0] * 4)
        self.assertEqual(found.gemm, [160.0, None, None, 160.0])

    def test_the_budget_ends_the_turns_but_not_before_there_are_enough(self) -> None:
        self.assertEqual(len(self.measured(turns=21, budget=0).ours), program.FEWEST_TURNS)
        a_turn = 2 * (program.PAUSE + 2 * 0.006)
        self.assertEqual(len(self.measured(turns=21, budget=9.5 * a_turn).ours), 10)
        self.assertEqual(len(self.measured(turns=3, budget=0).peer), 3)

    def test_ratios_and_shares_are_medians_within_a_turn(self) -> None:
        # The machine is half as fast in the second turn. Medians of both, divided, would say 2.5 (5 over 2), and no turn did.
        turns = Turns(ours=[0.001, 0.002, 0.004], peer=[0.003, 0.006, 0.005], gemm=[100.0, None, 25.0],
                      peak=[200.0, 100.0, 50.0])
        cells = program.summary(CASE, turns)
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


class Rows(unittest.TestCase):
    def compare(self, case=CASE, implementation="2_rung", library=None, **of_duel):
        self.clock = Clock()
        return program.compare(FakeBench(self.clock, library, **of_duel), case, implementation, FIXED, 5, 1e9, self.clock.watch)

    def test_a_case_that_is_right_is_timed(self) -> None:
        found, problem = self.compare()
        self.assertEqual((found["status"], problem, found["ratio"], found["turns"]), ("ok", "", "2", "5"))
        self.assertEqual((found["error"], found["peer_error"], found["peer"]), ("3e-07", "4e-07", "pytorch 2.0 sdpa flash"))
        self.assertEqual((found["gemm_gflops"], found["fma_peak_gflops"]), ("160", "200"))
        self.assertEqual(set(found), set(program.COLUMNS))
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
        self.assertEqual(program.judged("out", 1e-7, 1e-6), "")
        self.assertEqual(program.judged("out", 2e-6, 1e-6),
                         "out is off by 2e-06 of the largest element; rounding explains 1e-06")
        self.assertIn("nan", program.judged("out", math.nan, 1e-6))
        self.assertIn("inf", program.judged("out", math.inf, 1e-6))
        self.assertTrue(math.isnan(program.worst(1.0, math.nan)) and math.isnan(program.worst(math.nan, 1.0)))
        self.assertEqual(program.worst(1.0, 3.0, 2.0), 3.0)


class Table(Temporary):
    def test_a_row_measured_again_replaces_its_own_and_no_other(self) -> None:
        first = [row(), row(seq_len="1024"), row(implementation="1_rung"), row(threads="1"), row(machine="another"),
                 row(causal="True"), row(isa="avx512"), row(peer="pytorch 3 sdpa flash"), row(direction="backward"),
                 row(dtype="float64"), row(batch="2"), row(heads="1"), row(head_dim="128")]
        for one in first:
            program.record(self.csv, one)
        self.assertEqual(program.load(self.csv), first)
        again = row(seq_len="1024", ms="3", ratio="", status="error")
        program.record(self.csv, again)
        self.assertEqual(program.load(self.csv), [first[0], again, *first[2:]])
        self.assertEqual([file.name for file in self.csv.parent.iterdir()], [self.csv.name])

    def test_a_write_that_fails_leaves_the_old_file(self) -> None:
        program.record(self.csv, row())
        before = self.csv.read_bytes()
        for broken in ("os.fsync", "pathlib.Path.replace"):
            with mock.patch(broken, side_effect=OSError(28, "No space left on device")):
                self.assertIn("cannot be written: No space left", self.error(program.record, self.csv, row(ms="1")))
            self.assertEqual(self.csv.read_bytes(), before)
            self.assertEqual([file.name for file in self.csv.parent.iterdir()], [self.csv.name])
        with mock.patch("os.fsync", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            program.record(self.csv, row(ms="1"))
        self.assertEqual((self.csv.read_bytes(), len(list(self.csv.parent.iterdir()))), (before, 1))

    def test_another_kind_of_file_is_left_alone(self) -> None:
        self.csv.parent.mkdir()
        for text, said in (("my,own\n1,2\n", "is another kind of table and is left as it is"), ("", "is another kind of table"),
                           (",".join(program.COLUMNS) + "\n1,2\n", f":2 has 2 cells; there have to be {len(program.COLUMNS)}"),
                           (",".join(program.COLUMNS) + '\n"1', "cannot be read")):
            self.csv.write_text(text)
            self.assertIn(said, self.error(program.record, self.csv, row()))
            self.assertEqual(self.csv.read_text(), text)
        self.assertIn("cannot be read: No such file", self.error(program.load, self.folder / "nothing.csv"))

    def test_geometric_mean(self) -> None:
        self.assertAlmostEqual(program.geometric_mean([0.5, 2, 4, 4]), 2)
        self.assertAlmostEqual(program.geometric_mean([3]), 3)

    def test_the_tables(self) -> None:
        text = program.markdown([row(ratio="0.5", share_of_gemm="0.4"), row(seq_len="1024", ratio="8", share_of_gemm="0.9"),
                                 row(causal="True", heads="1", ratio="4", others="0.06"),
                                 row(direction="backward", ratio="0.9"),
                                 row(direction="backward", seq_len="4096", ratio="", status="OOM")])
        lines = text.split("\n")
        self.assertEqual(lines[0], "**`2_rung` beside pytorch 2.0 sdpa flash: cpu, A Processor, fast (2 logical cores), "
                                   "2 threads, avx2**")
        share = 100 * (0.4 * 0.9 * 0.8) ** (1 / 3)
        self.assertIn("| forward | float32 | 2.52x | 0.50x (1x8, 512, 64) | 8.00x (1x8, 1024, 64) | 2 of 3 | "
                      f"{share:.0f} % | 64 % | 1 | 0 |", lines)
        self.assertIn("| backward | float32 | 0.90x | 0.90x (1x8, 512, 64) | 0.90x (1x8, 512, 64) | 0 of 1 | "
                      "80 % | 64 % | 0 | 1 (OOM) |", lines)
        self.assertIn("| head_dim | batch x heads | 512 | 1024 | 512 causal |", lines)
        self.assertIn("| 64 | 1 x 1 |  |  | 4.00 |", lines)
        self.assertIn("| 64 | 1 x 8 | 0.50 | 8.00 |  |", lines)
        self.assertIn("| 64 | 1 x 8 | 0.90 | OOM |", lines)
        for header in (line for line in lines if line.startswith(("| direction", "| head_dim"))):
            below = lines[lines.index(header) + 1]
            self.assertEqual(below.count("|"), header.count("|"))

    def test_what_differs_has_tables_of_its_own(self) -> None:
        text = program.markdown([row(), row(implementation="1_rung"), row(machine="another"), row(threads="1"),
                                 row(isa="avx512")])
        self.assertEqual(text.count("**`"), 5)

    def test_nothing_but_failures(self) -> None:
        failed = row(status="error", ratio="", share_of_gemm="", share_of_peak="")
        self.assertIn("| forward | float32 |  |  |  |  |  |  |  | 1 (error) |", program.markdown([failed]))

    def test_a_ratio_that_is_none_is_named(self) -> None:
        for value in ("", "nan", "0", "fast"):
            self.assertEqual(self.error(program.markdown, [row(ratio=value)]),
                             f"ratio is '{value}' in a row with the status ok; it must be a number above 0")
        self.assertIn("others is '' in a row", self.error(program.markdown, [row(others="")]))


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
        args = program.parser().parse_args([*words, "--output", str(self.csv)])
        self.clock = clock = Clock()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = program.run(args, self.library, lambda: FakeBench(clock, self.library, **of_duel), clock.watch)
        return code, out.getvalue()

    def test_a_row_a_case_and_the_top_rung_unless_asked(self) -> None:
        code, out = self.measured("--quick")
        rows = program.load(self.csv)
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
        self.measured("--impl", "flash,1_rung", "--dtypes", "float64", "--directions", "backward", "--head-dims", "32",
                      "--seq-lens", "64,7", "--batch-heads", "3,2x4", "--causal", "yes", "--turns", "2", "--threads", "1")
        self.assertEqual(self.library.threads, [1])
        columns = ("implementation", "dtype", "direction", "head_dim", "seq_len", "batch", "heads", "causal", "threads",
                   "status")
        found = [tuple(one[name] for name in columns) for one in program.load(self.csv)]
        self.assertEqual(found, [(name, "float64", "backward", "32", n, batch, heads, "True", "1", status)
                                 for n in ("64", "7") for batch, heads in (("1", "3"), ("2", "4"))
                                 for name, status in (("flash", "ok"), ("1_rung", "unsupported"))])

    def test_all_sizes_is_128_cases_and_quick_has_none_of_them(self) -> None:
        full, quick = program.cases(program.FULL), program.cases(program.QUICK)
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
        self.assertEqual(len(program.load(self.csv)), 2)

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
        self.assertEqual({one["others"] for one in program.load(self.csv)}, {"0.4"})

    def test_mistakes_are_found_before_anything_is_measured(self) -> None:
        self.assertEqual(self.error(self.measured, "--impl", "2_rung,fast"),
                         "--impl has 'fast'; there are standard, flash, 1_rung, 2_rung")
        self.csv.parent.mkdir()
        self.csv.write_text("my,own\n")
        self.assertIn("is another kind of table", self.error(self.measured, "--quick"))
        self.assertEqual(self.clock.log, [])
        self.assertEqual(self.csv.read_text(), "my,own\n")


class Machine(Temporary):
    def test_others_are_what_is_neither_idle_nor_ours(self) -> None:
        stat, own = self.folder / "stat", [0.0]
        second = os.sysconf("SC_CLK_TCK")

        def write(*seconds: int) -> None:
            stat.write_text("cpu  " + " ".join(str(one * second) for one in seconds) + "\ncpu0 1 2 3\n")

        from_start = (10, 1, 10, 100, 5, 0, 0, 0, 7, 7)
        write(*from_start)
        others = program.Others(stat, lambda: own[0])
        write(16, 1, 11, 110, 6, 0, 0, 2, 9, 9)  # 6 user, 1 system, 10 idle, 1 iowait and 2 stolen: 20 in all
        own[0] = 5.0
        self.assertAlmostEqual(others.share(), (6 + 1 + 2 - 5) / 20)
        self.assertEqual(others.share(), 0)
        self.assertEqual(program.Others(self.folder / "no such file").share(), 0)


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
                            (("--dtypes", "float16"), "--dtypes: it is 'float16'; it must be one of float32, float64"),
                            (("--directions", "up"), "--directions: it is 'up'"),
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
        for option in ("--install", "--quick", "--impl", "--table", "--library", "--threads"):
            self.assertIn(option, out)

    def test_no_library_is_one_line_with_the_command(self) -> None:
        code, out, err = self.call("--library", "none.so")
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(err, "error: none.so is not there: cmake --preset default && cmake --build --preset default "
                              "--target flash_attention_c\n")
        (self.folder / "text.so").write_text("text")
        self.assertRegex(self.call("--library", "text.so")[2], r"^error: text.so cannot be used: .*\n$")

    def test_the_table_of_a_file_needs_neither_library_nor_torch(self) -> None:
        program.record(self.csv, row())
        code, out, err = self.call("--table", str(self.csv), "--library", "none.so")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out, program.markdown([row()]) + "\n")
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
        for name, value in (("VENV", self.folder / "venv"), ("REPOSITORY", self.folder)):
            self.patch(mock.patch.object(program, name, value))
        self.patch(mock.patch.object(program.subprocess, "run", self.run_command))
        self.found = self.patch(mock.patch.object(program.importlib.util, "find_spec", return_value=None))
        self.exec = self.patch(mock.patch.object(program.os, "execv", side_effect=SystemExit))
        self.patch(contextlib.redirect_stdout(io.StringIO()))

    def patch(self, one):
        self.addCleanup(one.__exit__, None, None, None)
        return one.__enter__()

    def run_command(self, words, **_):
        self.ran.append(words)
        (self.folder / "venv" / "bin").mkdir(parents=True, exist_ok=True)
        return mock.Mock(returncode=self.code)

    def test_without_pytorch_one_line_says_what_to_type_and_nothing_is_installed(self) -> None:
        self.assertRegex(self.error(program.with_torch, False, []),
                         r"PyTorch is not installed here.*: benchmarking/compare_torch.py --install$")
        self.assertEqual(self.ran, [])

    def test_install_makes_the_environment_once_and_goes_on_in_it(self) -> None:
        for _ in range(2):
            with self.assertRaises(SystemExit):
                program.with_torch(True, ["--install", "--quick"])
        venv, pip = self.ran
        self.assertEqual(venv[1:3], ["-m", "venv"])
        self.assertEqual(pip[:4], [str(self.folder / "venv/bin/python"), "-m", "pip", "install"])
        self.assertTrue(set(program.PINS) <= set(pip))
        python, words = self.exec.call_args.args
        self.assertEqual((python, words[0]), (pip[0], pip[0]))
        self.assertEqual((Path(words[1]).name, words[2:]), ("compare_torch.py", ["--quick"]))

    def test_what_is_installed_is_used_without_asking(self) -> None:
        program.install()
        with self.assertRaises(SystemExit):
            program.with_torch(False, ["--quick"])
        with mock.patch.object(program, "PINS", ("torch==3",)):
            self.assertIn("torch==3", self.error(program.with_torch, False, []))

    def test_an_install_that_fails_is_not_taken_for_one(self) -> None:
        self.code = 1
        self.assertEqual(self.error(program.with_torch, True, []), "setting up venv failed: the last command ended with 1")
        self.assertFalse(program.is_ready())

    def test_no_loop_in_an_environment_without_torch(self) -> None:
        program.install()
        with mock.patch.object(sys, "prefix", str(self.folder / "venv")):
            self.error(program.with_torch, True, ["--install"])
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
            for dtype in program.DTYPES:
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
        header = (REPOSITORY / "benchmarking" / "attention_c.h").read_text()
        declared = set(re.findall(r"^FLASH_C_EXPORT [\w ]+\*? ?(flash_\w+)\(", header, re.MULTILINE))
        self.assertEqual(len(declared), header.count("\nFLASH_C_EXPORT "))
        symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
        # Weak symbols: exception types and pieces of the standard library, which every library may hold.
        self.assertEqual(set(re.findall(r"^\S+ [TDBR] (\S+)$", symbols, re.MULTILINE)), declared)


def at(*memory: array.array) -> list[int]:
    """Addresses."""
    return [one.buffer_info()[0] for one in memory]


@unittest.skipUnless(LIBRARY.is_file() and importlib.util.find_spec("torch"), "needs flash_attention_c and PyTorch")
class WithTorch(Temporary):
    def setUp(self) -> None:
        super().setUp()
        import torch
        self.torch = torch
        self.bench = program.TorchBench(torch, Library(LIBRARY), 1)

    def test_both_are_right_and_a_wrong_one_is_found_in_every_head(self) -> None:
        name = self.bench.library.names()[-1]
        for direction in program.DIRECTIONS:
            for dtype in program.DTYPES:
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

    def test_the_real_thing(self) -> None:
        args = ["--library", str(LIBRARY), "--output", str(self.csv), "--seq-lens", "40", "--head-dims", "16",
                "--batch-heads", "2x2", "--turns", "1", "--threads", "1"]
        with contextlib.redirect_stdout(io.StringIO()), mock.patch.object(program, "GEMM_SIZE", 64):
            self.assertEqual(program.main(args), 0)
        with self.csv.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        self.assertEqual([one["status"] for one in rows], ["ok"] * 8)
        self.assertTrue(all(float(one["ratio"]) > 0 and float(one["gemm_gflops"]) > 0 for one in rows))


if __name__ == "__main__":
    unittest.main()
