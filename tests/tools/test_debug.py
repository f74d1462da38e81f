"""./lab debug: where gdb stops and what it sees there, and what is refused."""

import re
import shutil
import subprocess
import unittest

from course import BUILD, Course, Test
from lab import manifest, paths, system
from lab.verbs.student import debug


class Refused(Course):
    def test_options_that_do_nothing_and_a_missing_gdb(self):
        self.assertIn("--block is for kernels, and fused_cpu is C++",
                      self.lab("debug fused_cpu --block 1")[1])
        self.assertIn("--thread: it is '1,'; it must be x, x,y or x,y,z",
                      self.lab("debug fused_cuda --thread 1,")[1])
        self.patch(system, GDB=system.Need("gdb", lambda: None, *["gdb"] * 4))
        self.patch(system, package_manager=lambda: "apt", is_root=lambda: True)
        self.assertIn("gdb is not installed; to install it: apt-get update && apt-get install",
                      self.lab("debug fused_cpu")[1])

    def test_kernels_are_found_behind_their_launch_bounds_and_not_in_comments(self):
        self.assertEqual(debug.kernels(
            "// __global__ void old(int) {\n__global__ void only_declared(int);\n"
            "__global__ void __launch_bounds__(f(A) * 32,\n   8 / (f(A) * 32))\n  one(int x) {\n}\n"
            "template <class T> __global__ void two_2(T x) {"), ["one", "two_2"])


@unittest.skipUnless(shutil.which("gdb"), "gdb is not installed")
class InGdb(Test):
    def said(self, name, case, block, thread, *commands):
        task = manifest.select_one(manifest.load_parts(), name, "debug")
        if not debug.library(task, "solution", BUILD).is_file():
            self.skipTest(f"{name} is not built for gdb")
        options = ["-batch", *[word for each in commands for word in ("-ex", each)]]
        done = subprocess.run(
            debug.command(task, "solution", case, 1, block, thread, folder=BUILD, options=options),
            capture_output=True, text=True, timeout=60, cwd=paths.ROOT, stdin=subprocess.DEVNULL)
        if "ptrace: Operation not permitted" in done.stderr:
            self.skipTest("this machine does not let a program be debugged")
        return done.stdout, task.path("solution")

    def line_in(self, out, file, name):
        """The line in which it stopped: the first ones of the function."""
        line = int(re.search(rf"{name}.* at \S*/{file.name}:(\d+)", out)[1])
        head = next(number for number, text in enumerate(file.read_text().splitlines(), 1)
                    if f"{name}(" in text)
        self.assertIn(line - head, range(1, 6), out)

    def test_a_function_in_cpp(self):
        out, file = self.said("fused_cpu", "one element", (0, 0, 0), (0, 0, 0), "next", "next",
                              "print d1")
        self.line_in(out, file, "fused_softmax_matmul")
        self.assertIn("$1 = 1\n", out)

    def test_a_thread_of_a_kernel(self):
        out, file = self.said("fused_cuda", "block_2 divides d2: 2 x 32 x 64 x 32", (1, 0, 0),
                              (37, 0, 0), "print $threadIdx.x", "print $blockIdx.x", "next",
                              "next", "next", "print lane")
        self.line_in(out, file, "fused_softmax_matmul_kernel")
        self.assertEqual(re.findall(r"^\$\d = (\d+)$", out, re.MULTILINE), ["37", "1", "5"])

    def test_a_thread_that_does_not_exist_is_said(self):
        out, _ = self.said("fused_cuda", "one element", (0, 0, 0), (1000, 0, 0))
        self.assertIn("The case ended before it came to your code, or to that block", out)
