"""The real bench_attention: options, rows, out of memory, wrong results, ctrl-C.

The programs lie in the build folder that the environment variable FLASH_BUILD names: bench_attention, the same with the
skeleton, and with flash passes that go wrong (tests/benchmarking/wrong_attention.cpp). Tests of a program that is not built are
skipped.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "tools"), str(Path(__file__).parent)]

import bench_program  # noqa: E402

from lab import attention_results as results  # noqa: E402

BIN = Path(os.environ.get("FLASH_BUILD", "not-built")) / "bin"
SIZES = ("--device", "cpu", "--batch", "2", "--heads", "3", "--head-dim", "8")
TINY = (*SIZES, "--impl", "standard,flash", "--seq-lens", "16,33", "--passes", "2")
ONE_HEAD = ("--batch", "1", "--heads", "1", "--head-dim", "16", "--impl", "standard,flash", "--causal", "off", "--passes", "1")


class Program(bench_program.Program):
    program = BIN / "bench_attention"

    def statuses(self) -> list[tuple[str, int, str]]:
        return [(row.implementation, row.seq_len, row.status) for row in results.load(self.csv)]


class Rows(Program):
    def test_every_implementation_and_mask_is_a_row(self) -> None:
        code, out, err = self.call(*TINY)
        self.assertEqual((code, err), (0, ""))
        rows = results.load(self.csv)
        self.assertEqual([(row.seq_len, row.causal, row.implementation, row.status) for row in rows],
                         [(seq_len, causal, name, "ok") for seq_len in (16, 33) for causal in (False, True)
                          for name in ("standard", "flash")])
        for row in rows:
            self.assertEqual((row.batch, row.heads, row.d_model), (2, 3, 24))
            self.assertEqual((row.device, row.dtype, row.gpu), ("cpu", "float32", ""))
            self.assertAlmostEqual(row.total_ms, row.forward_ms + row.backward_ms, delta=1e-4 * row.total_ms)
            pairs = row.seq_len * (row.seq_len + 1) / 2 if row.causal else row.seq_len**2
            self.assertAlmostEqual(row.tflops, 14 * pairs * 2 * 24 / row.total_ms * 1e-9, delta=1e-4 * row.tflops)
            self.assertEqual(row.percent_of_peak is None, "peak:" not in out)
        self.assertNotIn("\x1b", out)
        self.assertNotIn("\r", out)

    def test_standard_attention_saves_the_matrix_and_flash_what_is_linear(self) -> None:
        self.assertEqual(self.call(*ONE_HEAD, "--seq-lens", "512")[0], 0)
        standard, flash = results.load(self.csv)
        matrix, tensor, lse = 512 * 512 * 4 / 2**20, 512 * 16 * 4 / 2**20, 512 * 4 / 2**20
        self.assertAlmostEqual(standard.saved_mib, 3 * tensor + matrix, delta=1e-5)
        self.assertAlmostEqual(flash.saved_mib, 4 * tensor + lse, delta=1e-5)
        # Its forward pass makes P of all heads and works on one head's; its backward pass has a head's P and dP beside that.
        self.assertAlmostEqual(standard.forward_peak_mib, 2 * matrix, delta=0.5)
        self.assertAlmostEqual(standard.backward_peak_mib, 2 * matrix, delta=0.5)
        self.assertGreaterEqual(flash.forward_peak_mib, tensor + lse)
        self.assertGreaterEqual(flash.backward_peak_mib, 3 * tensor)
        self.assertLess(max(flash.forward_peak_mib, flash.backward_peak_mib), matrix / 2)

    def test_measured_again_replaces_and_keeps_the_others(self) -> None:
        self.call(*TINY)
        first = self.csv.read_text().splitlines()
        self.assertEqual(self.call(*SIZES, "--impl", "flash", "--seq-lens", "33", "--causal", "on", "--passes", "1")[0], 0)
        self.assertEqual(self.call(*SIZES, "--impl", "flash", "--seq-lens", "33", "--causal", "on", "--dtype", "float64")[0], 0)
        second = self.csv.read_text().splitlines()
        self.assertEqual(len(first), 9)
        self.assertEqual(second[:8], first[:8])
        self.assertNotEqual(second[8], first[8])
        self.assertEqual([(row.implementation, row.causal, row.dtype) for row in results.load(self.csv)[7:]],
                         [("flash", True, "float32"), ("flash", True, "float64")])

    def test_out_of_memory_is_a_row_and_the_run_goes_on(self) -> None:
        # At 512 the matrix is 1 MiB: standard attention has 2 of them in its forward pass, 3 in its backward pass.
        code, out, _ = self.call(*ONE_HEAD, "--seq-lens", "512,1024,64", "--memory-limit", "2.7MiB")
        self.assertEqual(code, 0, out)
        self.assertEqual(self.statuses(), [("standard", 512, "OOM(backward)"), ("flash", 512, "ok"), ("standard", 1024, "OOM"),
                                           ("flash", 1024, "ok"), ("standard", 64, "ok"), ("flash", 64, "ok")])
        forward_only = results.load(self.csv)[0]
        self.assertIsNotNone(forward_only.forward_peak_mib)
        self.assertIsNone(forward_only.backward_ms)
        self.assertIsNone(forward_only.tflops)

    def test_inputs_that_do_not_fit_are_rows_too(self) -> None:
        code, out, _ = self.call(*ONE_HEAD, "--seq-lens", "512,16", "--memory-limit", "100KiB")
        self.assertEqual(code, 0, out)
        self.assertEqual(self.statuses(), [("standard", 512, "OOM"), ("flash", 512, "OOM"), ("standard", 16, "ok"),
                                           ("flash", 16, "ok")])
        self.assertIn("the inputs do not fit", out)

    def test_help(self) -> None:
        code, out, err = self.call("--help")
        self.assertEqual((code, err), (0, ""))
        for option in ("--device", "--impl", "--quick", "--memory-limit", "--output", "--causal", "standard, flash"):
            self.assertIn(option, out)
        self.assertFalse(self.csv.parent.exists())


class Mistakes(Program):
    def test_wrong_values(self) -> None:
        for words, part in ((("--impl", "flash,cudnn"),
                             "--impl is 'flash,cudnn'; it must be different names with commas between, of: standard, flash"),
                            (("--seq-lens", "64,abc"),
                             "--seq-lens is '64,abc'; it must be different integers from 1 to 1048576"),
                            (("--passes", "0"), "--passes is '0'; it must be an integer from 1 to 1000000"),
                            (("--warmups", "0"), "--warmups is '0'; it must be an integer from 1"),
                            (("--head-dim", "0"), "--head-dim is '0'; it must be an integer from 1"),
                            (("--device", "tpu"), "--device is 'tpu'; it must be one of "),
                            (("--dtype", "int8"), "--dtype is 'int8'; it must be one of float32|float64"),
                            (("--causal", "yes"), "--causal is 'yes'; it must be one of both|on|off"),
                            (("--memory-limit", "1GB"), "--memory-limit is '1GB'; it must be at least 1 byte")):
            with self.subTest(words=words):
                self.assertIn(part, self.error(*words))
        self.assertFalse(self.csv.parent.exists())

    def test_a_foreign_file_is_left_alone(self) -> None:
        self.csv.parent.mkdir()
        self.csv.write_text("my,own,table\n1,2,3\n")
        self.assertIn("left as it is", self.error(*TINY, code=1))
        self.assertEqual(self.csv.read_text(), "my,own,table\n1,2,3\n")


class Wrong(Program):
    """What each head_dim does: tests/benchmarking/wrong_attention.cpp."""

    program = BIN / "bench_attention_wrong"

    def run_with(self, head_dim: int) -> tuple[int, str]:
        code, out, err = self.call("--batch", "1", "--heads", "2", "--head-dim", str(head_dim), "--impl", "flash,standard",
                                   "--seq-lens", "20", "--causal", "on", "--passes", "1")
        self.assertEqual(err, "")
        return code, out

    def test_a_failure_is_a_row_and_the_others_are_measured(self) -> None:
        for head_dim, status, message in (
                (1, "unsupported", "flash: unsupported: head_dim is 1; it must be larger"),
                (2, "error", "flash: error: something went wrong"),
                (3, "error", "flash: error: wrong result: out of batch 0, head 1: "),
                (5, "error", "flash: error: wrong result: d_v of batch 0, head 0: "),
                (6, "error", "flash: error: wrong result: d_k of batch 0, head 0: ")):
            with self.subTest(head_dim=head_dim):
                code, out = self.run_with(head_dim)
                self.assertIn(message, out)
                self.assertEqual(code, 1 if status == "error" else 0)
                self.assertEqual(self.statuses()[-2:], [("standard", 20, "ok"), ("flash", 20, status)])

    def test_a_backward_pass_that_is_not_started_leaves_no_row(self) -> None:
        code, out = self.run_with(4)
        self.assertEqual(code, 0)
        self.assertEqual(self.statuses(), [("standard", 20, "ok")])
        self.assertIn("next: ./lab check part2.flash_backward", out)


class Interrupt(Program):
    def test_ctrl_c_leaves_a_valid_csv_and_no_temporary_file(self) -> None:
        self.call(*TINY)
        before = self.csv.read_text()
        slow = (*SIZES, "--impl", "standard,flash", "--seq-lens", "64", "--passes", "1000000")
        for which, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with subprocess.Popen([self.program, "--output", self.csv, *slow], stdout=subprocess.PIPE, text=True) as process:
                process.stdout.readline()  # the header: from here on signals are remembered
                time.sleep(0.3)
                process.send_signal(which)
                out = process.stdout.read()
            self.assertEqual(process.returncode, code)
            self.assertIn("interrupted", out)
            self.assertEqual(self.csv.read_text(), before)
            self.assertEqual([one.name for one in self.csv.parent.iterdir()], [self.csv.name])


class Skeleton(Program):
    """Of a fresh skeleton; where the student has written the forward pass, there is nothing to see."""

    program = BIN / "bench_attention_skeleton"

    def test_not_started_is_a_line_with_the_next_command(self) -> None:
        code, out, err = self.call(*TINY)
        if "not started" not in out:
            self.skipTest("flash_forward is written")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual({name for name, _, _ in self.statuses()}, {"standard"})
        self.assertIn("next: ./lab check part2.flash_forward", out)

    def test_with_nothing_measured_the_exit_code_says_so(self) -> None:
        code, out, _ = self.call(*SIZES, "--impl", "flash", "--seq-lens", "16")
        if "not started" not in out:
            self.skipTest("flash_forward is written")
        self.assertEqual(code, 1)
        self.assertFalse(self.csv.exists())


if __name__ == "__main__":
    unittest.main()
