"""Lines of a crash, of an endless loop and of what AddressSanitizer finds, and what the code
printed: from a program that really does so, by the judge and the plain runner.
"""

import json
import sys
import unittest
from types import SimpleNamespace

from course import BUILD, Built
from lab import libraries, manifest, zoo
from lab.backends import CPU, Backends
from lab.outcomes import CRASHED, EXCEPTION, NOT_RUN, PASSED, TIMED_OUT, CaseResult

TASK = manifest.select_one(manifest.load_parts(), "fused_cpu", "check")
FIRST = '  check_at_least("block_1"'  # of the function in the solution
FEW = ("one element", "ragged: 3 x 33 x 47 x 65", "equal scores")


@unittest.skipUnless(sys.platform == "linux", "lines are found on Linux only")
class Lines(Built):
    def ended(self, does, *cases, seconds=None):
        """The solution of fused_cpu which first `does` something else."""
        member = zoo.Member("wrong", TASK, self.id(), (FIRST, f"{does}\n{FIRST}"))
        ended = self.run_member(member, CPU, cases, timeout=seconds)
        self.line = member.source().split(FIRST)[0].count("\n") + 1 - does.count("\n") - 1
        return ended

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

    def test_an_exception_of_the_library_has_its_line(self):
        does = "  std::string few(3, 'a');\n  few.at(pass.x.extent(1)) = 'b';"
        case, = self.ended(does, FEW[1])
        self.assertEqual(case.status, EXCEPTION)
        self.assertRegex(case.message, rf"basic_string::at.* at part1\S+/fused_cpu\.cpp:{self.line + 1}\Z")

    def test_a_stack_that_is_too_large_is_no_stray_index(self):
        case, = self.ended("  volatile char all[1600 << 20];\n  all[pass.x.extent(1)] = 1;", FEW[1])
        self.assertEqual(case.status, CRASHED)
        self.assertRegex(case.message, r"\Aneeds a stack of 1678 MB, which is more than there is")

    def test_an_endless_loop_has_its_lines_and_ends_the_run_where_it_comes_again(self):
        cases = self.ended("  for (volatile int i = 0; pass.x.extent(1) > 1;)\n    i = i + 1;",
                           *FEW, seconds=4)
        self.assertEqual([case.status for case in cases], [PASSED, TIMED_OUT, TIMED_OUT])
        first, last = self.line, self.line + 1
        self.assertRegex(cases[1].message, r"\AIt took longer than 4 s (at .*fused_cpu\.cpp:"
                         rf"({first}|{last})|in the lines {first} to {last} of)")
        self.assertRegex(cases[2].message, "longer than 2 s where the case before it hung")

    def test_after_two_endless_loops_the_rest_is_not_run(self):
        cases = self.ended("  for (volatile int i = 0;;) i = i + 1;", *FEW[:2],
                           "batches 2147483648 elements apart", seconds=0.3)
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


@unittest.skipUnless(any(backend == libraries.SANITIZED for _, backend in libraries.load(BUILD)),
                     "the build has no sanitized libraries")
class Sanitized(Built):
    """./lab check --sanitize: the runner takes a library with AddressSanitizer."""

    def ended(self, edit: tuple[str, ...], *cases: str) -> list[CaseResult]:
        config = SimpleNamespace(asan=json.loads((BUILD / "config.json").read_text())["asan"])
        return self.run_member(zoo.Member("wrong", TASK, self.id(), edit), libraries.SANITIZED,
                               cases, variables=Backends(config, sanitize=True).environment())

    def test_a_right_program_passes_and_a_wrong_one_gets_its_line(self):
        cases = "one element", "no quadratic memory: 1 x 512 x 1024 x 32"
        self.assertEqual([case.status for case in self.ended((), *cases)], [PASSED] * 2)
        source = TASK.path("solution").read_text()
        for right, wrong, kind in (
                ("std::fill_n(m.data(), rows, ", "std::fill_n(m.data(), rows + 1, ",
                 "heap-buffer-overflow"),
                ("j < keys; ++j) m_new = ", "j <= keys; ++j) m_new = ",
                 "an access before or after a tensor")):
            seen, = self.ended((right, wrong), cases[0])
            line = source[:source.index(right)].count("\n") + 1
            self.assertEqual(seen.status, CRASHED)
            self.assertRegex(seen.message, rf"\AAddressSanitizer: {kind} at "
                                           rf"\S+/solution/fused_cpu\.cpp:{line}\Z")
