"""./lab profile: what ncu says of the launch that the benchmark times; every trouble is one line.

ncu and bench_attention are scripts here.
"""

import re
import tempfile

from course import MANIFEST, Course
from lab import system
from lab.verbs.student import profile

NCU = """\
==PROF== Connected to process 562
==PROF== Profiling "flash_forward_kernel": 0%....50%....100% - 33 passes
a line of the program
==PROF== Disconnected from process 562
  void flash_forward_kernel<float>(int) (64, 1, 1)x(128, 1, 1), Context 1, Stream 7, Device 0
    Section: GPU Speed Of Light Throughput
    OPT   This kernel grid is too small [to fill] the available resources on this device   \n
"""
TABLE = ("implementation,d_model,seq_len,forward_ms,status,gpu,dtype,batch,heads,causal\n"
         "flash,64,1024,1.5,ok,NVIDIA H200,float32,8,1,False\n")
SHOWN = """
NVIDIA H200, float32, batch 8, 1 head of 64, seq_len 1024, not causal; alone: 1.5 ms, 1.43 TFLOP/s
  void flash_forward_kernel<float>(int) (64, 1, 1)x(128, 1, 1), Context 1, Stream 7, Device 0
    Section: GPU Speed Of Light Throughput
    OPT   This kernel grid is too small [to fill] the available resources on this device

part3_flash_cuda/ladder/README.md, section 14, says in which order to read it
"""


class Verb(Course):
    """./lab profile with scripts in the place of ncu and bench_attention."""

    cuda = "gpu"

    def setUp(self):
        super().setUp()
        self.write("part3_flash_cuda/tasks.toml", MANIFEST.replace("part1", "part3"))
        self.write("part3_flash_cuda/skeleton/fused_cpu.cpp", "")
        self.benchmark()
        self.ncu(NCU)
        self.environment(remove=("CUDACXX",), PATH=str(self.root / "tool"))
        self.patch(system, CUDA=self.root / "cuda")
        self.temporary = self.folder()
        self.patch(tempfile, tempdir=str(self.temporary))

    def benchmark(self, out="attention\n", code=0, table=TABLE):
        for name in ("bench_attention_skeleton", "bench_attention"):
            self.program(f"build/default/bin/{name}", out, code, table)

    def ncu(self, out, code=0):
        self.program("tool/ncu", out, code)

    def error(self, options=""):
        code, out = self.lab(f"profile {options}")
        self.assertEqual((code, list(self.temporary.iterdir())), (1, []), out)
        return out.splitlines()[-1].removeprefix("lab: ")

    def after(self, words, option):
        return words[words.index(option) + 1]

    def test_what_ncu_says_of_the_problem_that_the_program_measured(self):
        code, out = self.lab("profile part3")
        program = "build/default/bin/bench_attention_skeleton --device cuda"
        commands, shown = out.split("\n\n", 1)
        self.assertEqual((code, "\n" + shown), (0, SHOWN))
        env = r"\$ /usr/bin/env FLASH_TUNING_FILE=(\S+)"
        self.assertRegex(commands,
                         rf"{env} {program} .*\n{env} \S+/tool/ncu --section .* {program} .*"
                         "--output")
        kept, = set(re.findall(env, commands))  # the tuner's choice is of both
        self.assertTrue(kept.startswith(str(self.temporary)))
        alone, profiled = self.called()
        self.assertEqual((alone[0], profiled[0]), ("bench_attention_skeleton", "ncu"))
        self.assertEqual([self.after(alone, f"--{pass_}") for pass_ in ("forward", "backward")],
                         ["flash", "plain"])
        place = profiled.index(str(self.binary("bench_attention_skeleton")))
        self.assertEqual(profiled[place + 1:], alone[1:])
        for option, value in (("--kernel-name", "regex:flash_forward"), ("--launch-skip", "2"),
                              ("--metrics", ",".join(profile.METRICS)), ("--launch-count", "1")):
            self.assertEqual(self.after(profiled[:place], option), value)
        self.assertEqual(list(self.temporary.iterdir()), [])

    def test_every_trouble_is_one_line(self):
        task = "task part3.measure_attention is not started, so"
        for out, said in (
            (f"attention\n\n{task} rows are missing; next: ...\n",
             f"{task} there is nothing to profile; next: ./lab check part3.measure_attention (or "
             "./lab profile --solution)"),
            ("t\nflash: error: wrong result\n\nsaved in x\n", "flash: error: wrong result"),
            ("", "the program ended with exit code 1; last line: it printed nothing"),
        ):
            self.benchmark(out, 1, table="")
            self.assertEqual(self.error(), said)
            self.assertEqual(len(self.called()), 1)  # ncu was not started
        self.benchmark("flash: OOM: 3 GiB more\n\nsaved in x\n",
                       table=TABLE.replace("1.5", "").replace(",ok,", ",OOM,"))
        self.assertEqual(self.error(), "flash: OOM: 3 GiB more")
        self.benchmark()
        denied = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"
        failed = "==ERROR== Failed to prepare kernel\n==ERROR== The driver is too old\nbye\n"
        for root, out, code, said in (
            (True, "==WARNING== No kernels were profiled.\n", 0, "ncu profiled no kernel"),
            (True, failed, 9, "ncu failed (exit code 9): The driver is too old"),
            (True, denied, 1, "Either in a container, start that with --cap-add=SYS_ADMIN"),
            (False, denied, 1, "Either run it as root (sudo ./lab profile)"),
        ):
            self.ncu(out, code)
            self.patch(system, is_root=lambda root=root: root)
            self.assertIn(said, self.error())
        (self.root / "tool/ncu").unlink()
        self.assertIn("there is no ncu (Nsight Compute) in PATH or beside nvcc", self.error())
        for self.cuda, said in (("none", "this build has no CUDA"),
                                ("toolkit", "there is no GPU here")):
            self.assertIn(said, self.error("-- --causal on"))
            self.assertIn("the counts need the emulator's checks", self.error())
