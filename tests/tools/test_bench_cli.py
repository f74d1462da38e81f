"""./lab bench, and the real bench_softmax_matmul: options, rows, out of memory, ctrl-C. bench_attention: test_bench_attention.py.

The program is the one that the environment variable FLASH_BENCH_SOFTMAX_MATMUL names; its skeleton lies beside it. Tests of
a program that is not built are skipped.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import bench_program  # noqa: E402
from course import MANIFEST, Course  # noqa: E402

from lab import results  # noqa: E402

PROGRAM = Path(os.environ.get("FLASH_BENCH_SOFTMAX_MATMUL", "not-built"))
SKELETON = PROGRAM.with_name(PROGRAM.name + "_skeleton")
SIZES = ("--device", "cpu", "--batch", "2", "--d1", "20", "--d3", "12")
TINY = (*SIZES, "--d2", "8,33", "--blocks", "16", "--warmups", "1", "--passes", "3")
SLOW = ("--device", "cpu", "--batch", "1", "--d1", "64", "--d3", "16", "--d2", "64", "--blocks", "16,32", "--passes", "1000000")


class Program(bench_program.Program):
    program = PROGRAM


class Rows(Program):
    def test_every_configuration_is_a_row(self) -> None:
        code, out, err = self.call(*TINY)
        self.assertEqual((code, err), (0, ""))
        rows = results.load(self.csv)
        self.assertEqual([(row.d2, row.block, row.status) for row in rows],
                         [(8, None, "ok"), (8, 16, "ok"), (33, None, "ok"), (33, 16, "ok")])
        for row in rows:
            self.assertEqual((row.batch_size, row.d1, row.d3), (2, 20, 12))
            self.assertEqual((row.device, row.dtype, row.gpu), ("cpu", "float32", ""))
            self.assertAlmostEqual(row.tflops, 2 * 2 * 20 * row.d2 * 12 / row.ms_mean * 1e-9, delta=1e-4 * row.tflops)
        self.assertNotIn("\x1b", out)
        self.assertNotIn("\r", out)
        self.assertIn("best speed-up", out)

    def test_the_unfused_peak_holds_the_softmax_and_the_fused_does_not(self) -> None:
        sizes = ("--device", "cpu", "--batch", "2", "--d1", "64", "--d3", "16", "--d2", "4096", "--blocks", "16")
        self.assertEqual(self.call(*sizes, "--warmups", "0", "--passes", "1")[0], 0)
        unfused, fused = results.load(self.csv)
        self.assertAlmostEqual(unfused.extra_mib, 2 * 64 * 4096 * 4 / 2**20, delta=0.1)
        self.assertLess(fused.extra_mib, 0.1)

    def test_measured_again_replaces_and_keeps_the_others(self) -> None:
        self.call(*TINY)
        first = self.csv.read_text().splitlines()
        self.call(*SIZES, "--d2", "33", "--only", "fused", "--blocks", "16,7", "--passes", "2")
        second = self.csv.read_text().splitlines()
        self.assertEqual(second[:4], first[:4])
        self.assertEqual([line.split(",")[:6] for line in second[4:]], [["2", "20", "33", "12", "True", "16"],
                                                                       ["2", "20", "33", "12", "True", "7"]])
        self.assertNotEqual(second[4], first[4])

    def test_out_of_memory_is_a_row_and_the_run_goes_on(self) -> None:
        sizes = ("--device", "cpu", "--batch", "1", "--d1", "256", "--d3", "16", "--blocks", "16", "--passes", "1")
        # x is 2 MiB at d2 = 2048: twice that fits in 3 MiB neither for the unfused function nor, at 4096, for the inputs.
        code, out, _ = self.call(*sizes, "--d2", "2048,4096,64", "--memory-limit", "3MiB")
        self.assertEqual(code, 0, out)
        self.assertEqual([(row.d2, row.fused, row.status) for row in results.load(self.csv)],
                         [(2048, False, "OOM"), (2048, True, "ok"), (4096, False, "OOM"), (4096, True, "OOM"),
                          (64, False, "ok"), (64, True, "ok")])
        self.assertIn("the inputs do not fit", out)

    def test_help(self) -> None:
        code, out, err = self.call("--help")
        self.assertEqual((code, err), (0, ""))
        for option in ("--device", "--quick", "--memory-limit", "--output", "--only"):
            self.assertIn(option, out)
        self.assertFalse(self.csv.parent.exists())


class Mistakes(Program):
    def test_wrong_values(self) -> None:
        for words, part in ((("--d2", "64,abc"), "--d2 is '64,abc'; it must be different integers from 1 to 1048576"),
                            (("--passes", "0"), "--passes is '0'; it must be an integer from 1 to 1000000"),
                            (("--warmups", "-1"), "--warmups is '-1'; it must be an integer from 0"),
                            (("--batch", "nan"), "--batch is 'nan'; it must be an integer"),
                            (("--blocks", "0"), "--blocks is '0'"),
                            (("--device", "tpu"), "--device is 'tpu'; it must be one of gpu|cpu"),
                            (("--memory-limit", "1GB"), "--memory-limit is '1GB'; it must be at least 1 byte"),
                            (("--only", "both"), "--only is 'both'"), (("--colour",), "--colour is not an option of bench_"),
                            (("64",), "'64' is not expected here"), (("--seed",), "--seed has no value")):
            with self.subTest(words=words):
                self.assertIn(part, self.error(*words))
        self.assertFalse(self.csv.parent.exists())

    def test_a_foreign_or_damaged_file_is_left_alone(self) -> None:
        self.csv.parent.mkdir()
        for text in ("my,own,table\n1,2,3\n", ",".join(results.COLUMNS) + "\n1,2\n", ",".join(results.COLUMNS) + "\n2,20,8"):
            self.csv.write_text(text)
            self.assertIn("left as it is", self.error(*TINY, code=1))
            self.assertEqual(self.csv.read_text(), text)


class Interrupt(Program):
    def interrupted(self, which: int) -> tuple[int, str]:
        with subprocess.Popen([self.program, "--output", self.csv, *SLOW], stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()  # the header: from here on signals are remembered
            time.sleep(0.3)
            process.send_signal(which)
            out = process.stdout.read()
        return process.returncode, out

    def test_ctrl_c_leaves_a_valid_csv_and_no_temporary_file(self) -> None:
        self.call(*TINY)
        before = self.csv.read_text()
        code, out = self.interrupted(signal.SIGINT)
        self.assertEqual(code, 130)
        self.assertIn("interrupted", out)
        self.assertEqual(self.csv.read_text(), before)
        self.assertEqual([one.name for one in self.csv.parent.iterdir()], [self.csv.name])

    def test_kill_does_too(self) -> None:
        self.assertEqual(self.interrupted(signal.SIGTERM)[0], 143)
        self.assertEqual(list(self.csv.parent.iterdir()), [])


class Skeleton(Program):
    """Of a fresh skeleton; where the student has written measure, there is nothing to see."""

    program = SKELETON

    def test_not_started_is_one_line_with_the_next_command(self) -> None:
        code, out, err = self.call(*TINY)
        if "not started" not in err:
            self.skipTest("measure is written")
        self.assertEqual((code, out, err.count("\n")), (1, "", 1))
        self.assertIn("task part1.measure is not started", err)
        self.assertIn("./lab check part1.measure", err)
        self.assertFalse(self.csv.exists())


SCRIPT = "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\" > called\nexit {code}\n"


class Verb(Course):
    """./lab bench with scripts in the place of the programs."""

    def setUp(self) -> None:
        super().setUp()
        here = os.getcwd()
        os.chdir(self.root)
        self.addCleanup(os.chdir, here)
        self.script("bench_softmax_matmul_skeleton", 0)
        self.script("bench_softmax_matmul", 3)

    def script(self, name: str, code: int) -> None:
        file = self.root / "build" / "default" / "bin" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SCRIPT.format(code=code))
        file.chmod(0o755)

    def called(self) -> list[str]:
        words = (self.root / "called").read_text().splitlines()
        return [Path(words[0]).name, *words[1:]]

    def test_the_skeleton_is_the_default(self) -> None:
        code, out = self.lab("bench")[:2]
        self.assertEqual(code, 0, out)
        self.assertEqual(self.called(), ["bench_softmax_matmul_skeleton"])
        self.assertIn("$ build/default/bin/bench_softmax_matmul_skeleton\n", out)

    def test_options_go_to_the_program(self) -> None:
        code, out = self.lab("bench", "part1", "--quick", "--solution", "--", "--d2", "64,128", "--only=fused")[:2]
        self.assertEqual(code, 3, out)
        self.assertEqual(self.called(), ["bench_softmax_matmul", "--quick", "--d2", "64,128", "--only=fused"])

    def test_each_part_has_its_program(self) -> None:
        self.script("bench_attention_skeleton", 0)
        for part, folder, fixed in (("part2", "part2_flash_cpu", []), ("part3", "part3_flash_cuda", ["--device", "cuda"])):
            self.write(f"{folder}/tasks.toml", MANIFEST.replace("part1", part))
            self.write(f"{folder}/skeleton/fused_cpu.cpp", "")
            code, out = self.lab("bench", part, "--quick")[:2]
            self.assertEqual(code, 0, out)
            self.assertEqual(self.called(), ["bench_attention_skeleton", *fixed, "--quick"])

    def test_an_unknown_part_is_one_line(self) -> None:
        self.assertEqual(self.lab("bench", "part9")[0], 2)


if __name__ == "__main__":
    unittest.main()
