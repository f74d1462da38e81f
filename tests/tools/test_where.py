"""Lines of a crash and of an endless loop, and what the code printed: from a program that really
does so, by the judge and the plain runner of the build that FLASH_BUILD names.
"""

import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

from course import Test
from lab import build, libraries, manifest, running
from lab.backends import CPU
from lab.outcomes import CRASHED, NOT_RUN, PASSED, TIMED_OUT

BUILD = Path(os.environ.get("FLASH_BUILD", "/nonexistent")).absolute()
FIRST = "  check_at_least"  # of the function in the solution
FEW = ("one element", "ragged: 3 x 33 x 47 x 65", "equal scores")


def task():
    return manifest.select_one(manifest.load_parts(), "fused_cpu", "check")


@unittest.skipUnless(sys.platform == "linux", "lines are found on Linux only")
@unittest.skipUnless((BUILD / "bin/part1_judge").is_file() and task().path("solution").is_file(),
                     "FLASH_BUILD has no judge, or a course without its solutions")
class Lines(Test):
    def ended(self, does, *cases, seconds=None):
        """The solution of fused_cpu which first `does` something else."""
        source = task().path("solution").read_text()
        self.assertIn(FIRST, source)
        file = self.folder() / "part1_softmax_matmul/solution" / task().file
        file.parent.mkdir(parents=True)
        file.write_text(source.replace(FIRST, f"{does}\n{FIRST}", 1))
        known = libraries.load(BUILD)[task().path("solution"), CPU]
        made = running.library(task(), "solution", CPU, file.parent)
        for step in ([*known.command(), "-w", "-c", file, "-o", f"{made}.o"],
                     [known.linker, "-shared", *known.link, "-o", made, f"{made}.o"]):
            subprocess.run(step, check=True, cwd=BUILD)
        self.line = source[:source.index(FIRST)].count("\n") + 1
        self.patch(build, binary=lambda target: BUILD / "bin" / target)
        how = running.Settings("solution", folder=made.parent, timeout=seconds, quiet=True)
        return running.run(task(), [CPU], how, cases)

    def test_a_crash_has_its_line_and_costs_its_case_alone(self):
        cases = self.ended("  if (pass.x.extent(1) == 33) *(volatile int*)8 = 1;", *FEW)
        self.assertEqual([case.status for case in cases], [PASSED, CRASHED, PASSED])
        self.assertRegex(cases[1].message, r"\Acrashed with signal 11 \(segmentation fault.*\) at "
                         rf"part1_softmax_matmul/solution/fused_cpu\.cpp:{self.line}\Z")

    def test_every_case_may_end_its_process(self):
        for does, said in (("std::abort();", "signal 6 (aborted"), ("std::exit(0);",
                           "ended early with exit code 0: something called exit()")):
            cases = self.ended(f"  {does}", *FEW)
            self.assertEqual([case.status for case in cases], [CRASHED] * 3)
            for case in cases:
                self.assertIn(said, case.message)

    def test_an_endless_loop_has_its_lines_and_ends_the_run_where_it_comes_again(self):
        begin = time.monotonic()
        cases = self.ended("  for (volatile int i = 0; pass.x.extent(1) > 1;)\n    i = i + 1;",
                           *FEW, seconds=4)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual([case.status for case in cases], [PASSED, TIMED_OUT, TIMED_OUT])
        lines = rf"at .*fused_cpu\.cpp:({self.line}|{self.line + 1})|in the lines {self.line} to {self.line + 1} of"
        self.assertRegex(cases[1].message, rf"\AIt took longer than 4 s ({lines})")
        self.assertRegex(cases[2].message, "longer than 2 s where the case before it hung")

    def test_after_two_endless_loops_the_rest_is_not_run(self):
        cases = self.ended("  for (volatile int i = 0;;) i = i + 1;", *FEW, seconds=0.3)
        self.assertEqual([case.status for case in cases], [TIMED_OUT, TIMED_OUT, NOT_RUN])

    def test_what_it_printed_is_kept_with_both_ends(self):
        crash = "*(volatile int*)8 = 1;"
        lines = "".join(f"line {n}\n" for n in range(200))
        case, = self.ended(f'  for (int i = 0; i < 200; ++i) std::printf("line %d\\n", i); {crash}',
                           FEW[0])
        self.assertEqual(case.output, lines)
        case, = self.ended(f'  for (int i = 0; i < 300000; ++i) std::printf("x\\n"); {crash}',
                           FEW[0])
        self.assertRegex(case.output, r"\Ax\n(x\n)*x?\n\.\.\. \d+ bytes left out \.\.\.\n")
        self.assertLess(len(case.output), 70_000)
