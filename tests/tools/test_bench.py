"""./lab bench, and the real benchmark programs: options, rows, out of memory, wrong results,
ctrl-C.

Those with passes that go wrong are made of tests/benchmarking/wrong_attention.cpp.
"""

import resource
import signal
import subprocess
import time
from unittest import mock

from course import BUILD, MANIFEST, Course, Test
from lab import results

BIN = BUILD / "bin"
SOFTMAX = ("--device", "cpu", "--batch", "2", "--d1", "20", "--d3", "12")
UNFUSED = (*SOFTMAX, "--impl", "unfused", "--passes", "1")
ATTENTION = ("--device", "cpu", "--batch", "2", "--heads", "3", "--head-dim", "8", "--seq-lens",
             "16")
ONE_HEAD = ("--device", "cpu", "--batch", "1", "--heads", "1", "--head-dim", "16", "--impl",
            "standard,flash", "--causal", "off", "--passes", "1")


class Program(Test):
    name: str

    def setUp(self):
        self.program = BIN / self.name
        if not self.program.is_file():
            self.skipTest(f"{self.name} is not built")
        self.csv = self.folder() / "csv" / "results.csv"

    def call(self, *words: str) -> tuple[int, str, str]:
        done = subprocess.run([self.program, "--output", self.csv, *words], capture_output=True,
                              text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def rows(self, *words: str, code: int = 0) -> list[results.Row]:
        found, self.out, err = self.call(*words)
        self.assertEqual((found, err), (code, ""), self.out)
        return results.load(self.csv)

    def statuses(self, *words: str) -> list[tuple[str, int, str]]:
        return [(row.name, row.size, row.status) for row in self.rows(*words)]

    def error(self, *words: str, code: int = 2) -> str:
        found, out, err = self.call(*words)
        self.assertEqual((found, out, err.count("\n")), (code, "", 1), out + err)
        return err.strip()


class SoftmaxMatmul(Program):
    name = "bench_softmax_matmul"

    def test_every_implementation_is_a_row(self):
        rows = self.rows(*SOFTMAX, "--d2", "8,33", "--passes", "13")
        rows = [row for row in rows if row.name.startswith(("unfused", "fused_"))]
        self.assertEqual([(row.d2, row.name, row.BLOCK) for row in rows],
                         [(d2, name, block) for d2 in (8, 33)
                          for name, block in (("unfused", None), ("fused_16", 16), ("fused_32", 32),
                                               ("fused_64", 64))])
        for row in rows:
            self.assertEqual((row.status, row.fused, row.device, row.gpu),
                             ("ok", row.name != "unfused", "cpu", ""))
            self.assertGreater(row.percent_of_peak, 0)
            rate = 2 * 2 * 20 * row.d2 * 12 / row.forward_ms_mean * 1e-9
            self.assertAlmostEqual(row.tflops, rate, delta=1e-4 * rate)
            self.assertLess(max(row.scaled_error, row.frobenius_error), 1e-5)
        self.assertNotIn("\x1b", self.out)
        self.assertIn("forward_ms_median", self.out)
        self.assertIn("best speed-up", self.out)

    def test_it_measures_the_tasks_list(self):
        rows = self.rows("--device", "cpu", "--quick", "--batch", "1", "--d1", "2", "--d3", "3",
                         "--passes", "1", "--warmups", "0", "--impl", "unfused,fused_16,fused_32")
        self.assertEqual([(row.d2, row.name, row.status) for row in rows],
                         [(2**n, name, "ok") for n in range(6, 11)
                          for name in ("unfused", "fused_16", "fused_32")])

    def test_the_unfused_peak_holds_the_softmax_and_the_fused_does_not(self):
        unfused, fused = self.rows("--device", "cpu", "--batch", "2", "--d1", "64", "--d3", "16",
                                   "--d2", "4096", "--impl", "unfused,fused_16", "--warmups", "0",
                                   "--passes", "1")
        self.assertAlmostEqual(unfused.extra_mib, 2 * 64 * 4096 * 4 / 2**20, delta=0.1)
        self.assertLess(fused.extra_mib, 0.1)

    def test_rows_are_appended_below_the_homeworks_columns(self):
        self.rows(*UNFUSED, "--d2", "8")
        before = self.csv.read_text()
        self.assertTrue(before.startswith("batch_size,d1,d2,d3,fused,BLOCK,forward_ms_mean,"
                                          "forward_ms_std,forward_peak_MiB,"))
        rows = self.rows(*UNFUSED, "--d2", "4,8")
        self.assertEqual([row.d2 for row in rows], [8, 4])
        self.assertTrue(self.csv.read_text().startswith(before))
        self.assertEqual(len(self.csv.read_text().splitlines()), 4)

    def test_a_foreign_or_damaged_file_is_named_and_left_as_it_is(self):
        self.rows(*UNFUSED, "--d2", "8")
        for content, why in (("a,b\n1,2\n", "has the wrong header: expected 'batch_size,d1,"),
                             (self.csv.read_text()[:-1], "is damaged: its last line is cut off")):
            self.csv.write_text(content)
            error = self.error(*UNFUSED, "--d2", "8", code=1)
            self.assertIn(f"{self.csv} {why}", error)
            self.assertIn("name another file with --output", error)
            self.assertEqual(self.csv.read_text(), content)
        self.csv /= "results.csv"
        self.assertIn("cannot make its folder", self.error(code=1))
        self.csv = self.csv.parents[1]
        self.assertIn(f"{self.csv} is not a file", self.error(code=1))

    def test_a_row_that_does_not_fit_on_the_disk_is_taken_back(self):
        self.rows(*UNFUSED, "--d2", "8")
        before = self.csv.read_text()

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 9, len(before) + 9))

        done = subprocess.run([self.program, "--output", self.csv, *UNFUSED, "--d2", "4"],
                              capture_output=True, text=True, preexec_fn=limit)
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"error: {self.csv}: cannot write: File too large\n"))
        self.assertEqual(self.csv.read_text(), before)

    def test_ctrl_c_leaves_a_valid_csv_and_no_other_file(self):
        self.rows(*UNFUSED, "--d2", "8")
        before = self.csv.read_text()
        for which in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(
                [self.program, "--output", self.csv, *SOFTMAX, "--d2", "64", "--passes", "1000000"],
                    stdout=subprocess.PIPE,
                    text=True) as process:
                process.stdout.readline()
                time.sleep(0.5)
                process.send_signal(which)
                process.stdout.read()
            self.assertEqual(process.returncode, -which)
            self.assertEqual(self.csv.read_text(), before)
            self.assertEqual([one.name for one in self.csv.parent.iterdir()], [self.csv.name])


class Attention(Program):
    name = "bench_attention"

    def test_every_implementation_and_mask_is_a_row(self):
        rows = self.rows(*ATTENTION, "--impl", "standard,flash", "--passes", "2")
        self.assertEqual([(row.causal, row.name, row.status) for row in rows],
                         [(causal, name, "ok") for causal in (False, True)
                          for name in ("standard", "flash")])
        for row in rows:
            self.assertEqual((row.batch, row.heads, row.d_model, row.dtype), (2, 3, 24, "float32"))
            self.assertAlmostEqual(row.total_ms, row.forward_ms + row.backward_ms,
                                   delta=1e-4 * row.total_ms)
            pairs = row.seq_len * (row.seq_len + 1) / 2 if row.causal else row.seq_len**2
            rate = 14 * pairs * 2 * 24 / row.total_ms * 1e-9
            self.assertAlmostEqual(row.tflops, rate, delta=1e-4 * rate)
            self.assertGreater(row.percent_of_peak, 0)
            self.assertLess(max(row.scaled_error, row.frobenius_error), 1e-5)

    def test_any_forward_pass_goes_with_any_backward_pass(self):
        once = (*ATTENTION, "--causal", "on", "--passes", "1")
        rows = self.rows(*once, "--forward", "flash,standard", "--backward", "flash,none")
        self.assertEqual([row.name for row in rows],
                         ["flash", "flash+none", "standard+flash", "standard+none"])
        alone = results.load(self.csv)[1]
        self.assertEqual((alone.status, alone.backward_ms, alone.total_ms), ("ok", None, None))
        self.assertIn("backward pass 'standard' reads",
                      self.error(*once, "--forward", "flash", "--backward", "standard"))
        self.assertIn("pass is 'x'; on cpu it must be one of: standard",
                      self.error(*once, "--forward", "x"))

    def test_standard_attention_saves_the_matrix_and_flash_what_is_linear(self):
        standard, flash = self.rows(*ONE_HEAD, "--seq-lens", "512")
        matrix, tensor, lse = 512 * 512 * 4 / 2**20, 512 * 16 * 4 / 2**20, 512 * 4 / 2**20
        self.assertAlmostEqual(standard.saved_activations_MiB, 3 * tensor + matrix, delta=1e-5)
        self.assertAlmostEqual(flash.saved_activations_MiB, 4 * tensor + lse, delta=1e-5)
        # The forward pass makes P of all heads beside one head's, the backward pass P and dP.
        self.assertAlmostEqual(standard.forward_peak_MiB, 2 * matrix, delta=0.5)
        self.assertAlmostEqual(standard.backward_peak_MiB, 2 * matrix, delta=0.5)
        self.assertGreaterEqual(flash.forward_peak_MiB, tensor + lse)
        self.assertGreaterEqual(flash.backward_peak_MiB, 3 * tensor)
        self.assertLess(max(flash.forward_peak_MiB, flash.backward_peak_MiB), matrix / 2)

    def test_out_of_memory_is_a_row_and_the_run_goes_on(self):
        # At 512 the matrix is 1 MiB: standard attention has 2 of them forward, 3 backward. At 16384
        # q is 1 MiB.
        found = self.statuses(*ONE_HEAD, "--seq-lens", "512,1024,16384,64", "--memory-limit",
                              "2.7MiB")
        self.assertEqual(found, [("standard", 512, "OOM(backward)"), ("flash", 512, "ok"),
                                 ("standard", 1024, "OOM"), ("flash", 1024, "ok"),
                                 ("standard", 16384, "OOM"), ("flash", 16384, "OOM"),
                                 ("standard", 64, "ok"), ("flash", 64, "ok")])
        self.assertIn("the inputs do not fit", self.out)
        forward_only = results.load(self.csv)[0]
        self.assertIsNotNone(forward_only.forward_ms)
        self.assertIsNone(forward_only.backward_ms)


class Wrong(Program):
    name = "bench_attention_wrong"
    once = ("--causal", "on", "--passes", "1", "--heads", "2", "--head-dim", "8", "--seq-lens",
            "20")

    def test_a_failure_is_a_row_and_the_others_are_measured(self):
        for name, status, message in (
            ("refuses", "unsupported",
             "refuses: unsupported: 'refuses' does not take this problem: head_dim is 8"),
            ("throws", "error", "throws: error: something; went wrong"),
            ("wrong_out", "error", "wrong_out: error: wrong result: out of batch 0, head 1: "),
            ("flash+writes_nothing", "error", "wrong result: d_v of batch 0, head 0: "),
            ("flash+wrong_d_k", "error", "wrong result: d_k of batch 0, head 0: "),
            ("no_memory", "OOM", "no_memory: OOM: no host memory"),
            ("flash+no_memory_backward", "OOM(backward)", "no host memory")):
            with self.subTest(name=name):
                rows = self.rows(*self.once, "--impl", f"{name},flash", code=status == "error")
                self.assertIn(message, self.out)
                self.assertEqual({row.status for row in rows if row.name == name}, {status})
                self.assertEqual({row.status for row in rows if row.name == "flash"}, {"ok"})

    def test_a_backward_pass_that_is_not_started_leaves_no_row(self):
        rows = self.rows(*self.once, "--impl", "flash+missing,flash")
        self.assertEqual([row.name for row in rows], ["flash"])
        self.assertIn("next: ./lab check part2.flash_backward", self.out)

    def test_a_pass_with_outputs_of_its_own_says_what_they_take(self):
        both, forward = self.rows(*self.once, "--impl", "own,own+flash")
        self.assertAlmostEqual(both.forward_peak_MiB, 8 + 1, delta=0.02)  # and its workspace
        self.assertAlmostEqual(both.backward_peak_MiB, 2, delta=0.02)
        self.assertAlmostEqual(both.saved_activations_MiB, 4, delta=0.02)
        self.assertLess(forward.saved_activations_MiB, 0.02)


class Skeletons(Program):
    """Of a fresh skeleton; where the student has written the task, there is nothing to see."""

    name = "bench_attention_skeleton"

    def test_not_started_is_a_line_with_the_next_command(self):
        code, out, err = self.call(*ATTENTION, "--impl", "standard,flash", "--passes", "1")
        if "not started" not in out:
            self.skipTest("flash_forward is written")
        self.assertEqual((code, err), (0, ""))
        rows = results.load(self.csv)
        self.assertEqual({row.name for row in rows}, {"standard"})
        self.assertGreater(min(row.percent_of_peak for row in rows), 0)
        self.assertIn("next: ./lab check part2.flash_forward", out)
        self.csv.unlink()
        self.assertEqual(self.call(*ATTENTION, "--impl", "flash")[0], 1)  # nothing was measured
        self.assertFalse(self.csv.exists())

    def test_nothing_is_timed_without_the_task_that_measures(self):
        self.program = BIN / "bench_softmax_matmul_skeleton"
        if not self.program.is_file():
            self.skipTest("bench_softmax_matmul_skeleton is not built")
        code, _, err = self.call(*SOFTMAX, "--d2", "8", "--passes", "1")
        if "not written" not in err:
            self.skipTest("measure is written")
        self.assertEqual((code, err.count("\n")), (1, 1))
        self.assertIn("./lab check part1.measure", err)
        self.assertFalse(self.csv.exists())


class Verb(Course):
    """./lab bench with scripts in the place of the programs."""

    def setUp(self):
        super().setUp()
        for name, code in (("bench_softmax_matmul_skeleton", 0), ("bench_softmax_matmul", 3),
                           ("bench_attention_skeleton", 0)):
            self.program(f"build/default/bin/{name}", code=code)

    def calls_with(self, line: str, *words: str, code: int = 0) -> None:
        self.assertEqual(self.lab(line)[0], code)
        self.assertEqual(self.called(), [[*words]])

    def test_the_skeleton_is_the_default_and_options_go_to_the_program(self):
        self.calls_with("bench", "bench_softmax_matmul_skeleton")
        self.shows("bench", "$ build/default/bin/bench_softmax_matmul_skeleton\n")
        self.called()
        self.calls_with("bench part1 --quick --solution -- --d2 64,128 --seed=2",
                        "bench_softmax_matmul", "--quick", "--d2", "64,128", "--seed=2", code=3)

    def test_each_part_has_its_program(self):
        for part, folder in (("part2", "part2_flash_cpu"), ("part3", "part3_flash_cuda")):
            self.write(f"{folder}/tasks.toml", MANIFEST.replace("part1", part))
            self.write(f"{folder}/skeleton/fused_cpu.cpp", "")
        self.calls_with("bench part2 --quick", "bench_attention_skeleton", "--quick")
        self.built.clear()
        self.shows("bench part3", "the benchmark of part3 needs a GPU, and there is none here",
                   code=1)
        self.assertEqual(self.built, [])
        self.cuda = "gpu"
        self.calls_with("bench part3", "bench_attention_skeleton", "--device", "cuda")
        self.shows("bench part9", "invalid choice: 'part9'", code=2)

    def test_torch_configures_the_build_with_a_python_that_has_it(self):
        with mock.patch("lab.build.configure") as configure, mock.patch(
                "lab.verbs.student.bench._has_torch", return_value=True):
            self.assertEqual(self.lab("bench --torch /opt/python")[0], 0)
            configure.assert_called_once_with(options=["-DFLASH_TORCH_PYTHON=/opt/python"])
            self.assertEqual(self.lab("bench --torch part1")[0], 0)  # a part, not a Python
            self.assertIn(".venv-torch", configure.call_args.kwargs["options"][0])
        self.assertEqual(self.lab("bench --torch /bin/false")[0], 1)
