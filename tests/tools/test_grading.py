"""lab.grading: whatever a student's code does to its process, every case gets the right result."""

import os
import shutil
import sys
import time
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

from course import CRASH, Course, Test, case
from lab import manifest, outcomes, running, where
from lab.outcomes import (BUILD_FAILED, CRASHED, EXCEPTION, NEEDS_GPU, NOT_RUN, NOT_STARTED, PASSED,
                          TIMED_OUT, UNFINISHED, WRONG, CaseResult)

SEGFAULT = ("crashed with signal 11 (segmentation fault: an index or a pointer outside of its "
            "memory)")
ABORT = ("crashed with signal 6 (aborted: an assert, a corrupted heap, or an exception that "
         "nothing caught)")
HANG = "print(subprocess.Popen(['sleep', '60']).pid); time.sleep(60)"


class Running(Course):
    def graded(self, *cases, only=None, timeout=20, **fake):
        self.fake("fused_cpu", list(cases), **fake)
        return self.grade("fused_cpu", case=only, timeout=timeout).tasks[0]

    def test_points_and_status_follow_from_the_cases(self):
        result = self.graded(case("a"), case("b", "failed", message="by one\nat 1"),
                             case("c"))
        self.assertEqual(self.ends(result, PASSED, WRONG, PASSED)[1], "by one\nat 1")
        self.assertEqual((result.status, result.earned, result.possible), (WRONG, 0, 1))
        challenge = {"challenge": True}
        not_started = [case(name, "not_started") for name in "ab"]
        for cases, status, earned, done in (
            ([case(str(n)) for n in range(7)], PASSED, 1, True),
            ([case("a", "failed"), *(case(n) for n in "bcd")], WRONG, 0.5, False),  # most pass
            (not_started, NOT_STARTED, 0, False),
            ([case("a"), not_started[1]], UNFINISHED, 0, False),
            ([case("a", "error"), case("b")], EXCEPTION, 0, False),
            ([case("a"), case("b", "failed", **challenge)], PASSED, 1, True),
            ([not_started[0], case("b", "failed", **challenge)], NOT_STARTED, 0, False),
        ):
            result = self.graded(*cases)
            self.assertEqual((result.status, result.earned, result.done), (status, earned, done))

    def test_a_crash_costs_its_case_alone(self):
        result = self.graded(case("a"), case("b", run=CRASH), case("c", "failed"), case("d"))
        self.assertEqual(self.ends(result, PASSED, CRASHED, WRONG, PASSED)[1], SEGFAULT)
        # A pass counts only in a process that came to its end: "a" runs again.
        self.assertEqual(self.calls("fused_cpu"), [[], ["a", "c", "d"]])

    def test_every_case_ends_its_process(self):
        result = self.graded(case("a", run=CRASH), case("b", run="os.abort()"),
                             case("c", run="os._exit(0)"))
        early = "ended early with exit code 0"
        self.assertEqual(self.ends(result, CRASHED, CRASHED, CRASHED),
                         [SEGFAULT, ABORT, f"{early}: something called exit()"])
        self.assertEqual(result.earned, 0)
        result = self.graded(case("a"), case("c"),
                             case("b", run='say(status="passed", **end); os._exit(0)'))
        self.assertEqual(self.ends(result, PASSED, PASSED, CRASHED)[2],
                         f"{early}, right after this case: something called exit()")

    def test_what_a_program_printed_before_it_crashed(self):
        said = "==7==ERROR: AddressSanitizer: heap-buffer-overflow\n    #0 fused_cpu.cpp:31"
        result = self.graded(case("a", run=f"print('\\x1b[31m' + {said!r}); {CRASH}"))
        self.assertEqual(result.cases[0].message.splitlines()[1],
                         "AddressSanitizer: heap-buffer-overflow")
        self.assertEqual(result.cases[0].output.strip(), said)
        flood = self.graded(case("a", run=f"print('x' * 300_000); {CRASH}"))
        flood = flood.cases[0].output
        self.assertLess(len(flood), running.OUTPUT_LIMIT + 1000)
        self.assertIn("bytes left out", flood)

    def test_a_hang_is_ended_with_all_that_it_started(self):
        begin = time.monotonic()
        result = self.graded(case("a"), case("b", run=HANG), case("c"), timeout=1)
        self.assertLess(time.monotonic() - begin, 15)
        self.assertEqual(self.ends(result, PASSED, TIMED_OUT, PASSED)[1], "timed out after 1 s")
        child = int(result.cases[1].output)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and self.runs(child):
            time.sleep(0.05)
        self.assertFalse(self.runs(child))

    @staticmethod
    def runs(process):
        try:
            os.kill(process, 0)
            stat = Path(f"/proc/{process}/stat")  # macOS has none
            return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except (ProcessLookupError, FileNotFoundError):
            return False

    def test_the_third_hang_is_not_waited_for(self):
        result = self.graded(*(case(name, run=HANG) for name in "abc"), timeout=0.5)
        self.assertEqual(self.ends(result, TIMED_OUT, TIMED_OUT, NOT_RUN)[2],
                         "not run, because 2 cases before it timed out")

    def test_what_passed_before_the_hangs_counts_and_the_hang_comes_first(self):
        result = self.graded(case("a"), *(case(name, run=HANG) for name in "bcd"), timeout=0.5)
        self.ends(result, PASSED, TIMED_OUT, TIMED_OUT, NOT_RUN)
        self.assertEqual([failed.name for failed in result.failures], ["b", "c", "d"])
        # They run once more, and not again when one of them hangs then.
        count = self.folder() / "runs"
        third = (f"f = open({str(count)!r}, 'a+'); f.write('x'); f.seek(0)\n"
                 "if f.read() == 'xxx': time.sleep(60)")
        result = self.graded(case("a", run=third), case("b"),
                             *(case(name, run=HANG) for name in "cd"), timeout=0.5)
        self.ends(result, TIMED_OUT, NOT_RUN, TIMED_OUT, TIMED_OUT)

    @unittest.skipUnless(sys.platform == "linux", "threads are asked on Linux only")
    def test_a_second_hang_in_the_same_lines_is_not_waited_for(self):
        answers = ("import signal; signal.signal(signal.SIGUSR2, lambda *_: say(event='where', "
                   "thread=1, addresses=[8, 9]))")
        lines = {8: [31], 9: [70]}  # the outermost call comes last
        self.patch(where, _lines=lambda *_: lines)
        self.patch(running, HUNG_BEFORE=0.5)
        begin = time.monotonic()
        result = self.graded(case("a", run=HANG), case("b", run=HANG), case("c"), timeout=8,
                             prologue=answers)
        self.assertLess(time.monotonic() - begin, 15)
        at = ("at part1_softmax_matmul/skeleton/fused_cpu.cpp:31\n"
              "A loop around these lines does not end, or takes far too long.")
        self.assertEqual(self.ends(result, TIMED_OUT, TIMED_OUT, NOT_RUN)[:2],
                         [f"timed out after 8 s {at}",
                          f"not waited for: it was where the case before it hung, {at}"])

    def test_the_report_alone_counts(self):
        result = self.graded(case("a"), prologue="os.abort()")
        self.assertEqual(self.ends(result, CRASHED),
                         [f"the test program {ABORT} before its first case"])
        self.assertEqual(self.graded(case("a"), epilogue="time.sleep(60)").status, PASSED)
        self.assertEqual(self.graded(case("a", "failed"), epilogue="os._exit(0)").status, WRONG)
        result = self.graded(case("a"), case("b"), prologue='wanted = ["a"]')
        self.assertEqual(self.ends(result, PASSED, NOT_RUN)[1],
                         "the test program did not run this case")
        noise = ('report.write("nonsense\\n[1]\\n{\\"event\\": \\"end\\"}\\n")\n'
                 'say(event="end", case="a", status="passed")\n')
        self.ends(self.graded(case("a", "failed"), case("b"), prologue=noise), WRONG, PASSED)

    def test_one_case_alone(self):
        result = self.graded(case("a"), case("b", "failed", run="print('here')"), only="b")
        self.ends(result, WRONG)
        self.assertEqual(result.cases[0].output, "here\n")
        self.assertEqual(self.calls("fused_cpu"), [["b"]])
        self.assertIn('has no case called "c"', self.refused(self.graded, case("a"), only="c"))


class Points(Test):
    def test_each_step_pays_for_itself(self):
        task = replace(next(task for part in manifest.load_parts() for task in part.tasks),
                       points=10, requirements={"steps": 20, "mask": 80})
        cases = [CaseResult(f"{requirement} {status}", status, "", requirement=requirement)
                 for requirement in ("steps", "mask") for status in (PASSED, WRONG)]
        self.assertEqual([case.points * case.counts * (case.status == PASSED)
                          for case in outcomes.with_points(task, cases)], [1, 0, 0, 0])


class Parts(Course):
    def check(self, result, *statuses, points, done):
        self.assertEqual([task.status for task in result.tasks], list(statuses))
        found = result.earned, result.possible, sum(result.missing.values())
        self.assertEqual((found, result.done), (points, done))

    def test_a_task_that_does_not_compile_costs_itself(self):
        self.green("measure")
        error = "fused_cpu.cpp:7:1: error: expected ';'"
        self.broken["part1_fused_cpu_skeleton_tests"] = error
        result = self.grade()
        self.check(result, NEEDS_GPU, BUILD_FAILED, NEEDS_GPU, PASSED, points=(4, 5, 3), done=False)
        self.assertEqual(result.tasks[1].first_error, error)
        alone = ["part1_fused_cpu_skeleton_tests", "part1_measure_skeleton_tests"]
        self.assertEqual(self.built, [" ".join(alone), *alone])

    def test_tasks_are_built_in_one_go_and_run_at_once(self):
        for name, other in (("fused_cpu", "measure"), ("measure", "fused_cpu")):
            calls = str(self.root / f"{self.target(other)}.calls")
            waits = f"while not os.path.exists({calls!r}): time.sleep(0.01)"
            self.fake(name, [case("a")], prologue=waits)
        with mock.patch("os.cpu_count", return_value=2):
            result = self.grade(timeout=20)
        self.check(result, NEEDS_GPU, PASSED, NEEDS_GPU, PASSED, points=(5, 5, 3), done=True)
        self.assertEqual(self.built,
                         ["part1_fused_cpu_skeleton_tests part1_measure_skeleton_tests"])

    def test_an_error_of_one_task_ends_the_others(self):
        # The binary is another task's, and says so after a second, when the other one hangs.
        self.fake("fused_cpu", [case("a")], task="part1.other", prologue="time.sleep(1)")
        self.fake("measure", [case("a", run=HANG)])
        begin = time.monotonic()
        with mock.patch("os.cpu_count", return_value=2):
            self.assertIn("reports part1.other (skeleton, cpu); it must report part1.fused_cpu "
                          "(skeleton, cpu)", self.refused(self.grade, timeout=50))
        self.assertLess(time.monotonic() - begin, 25)

    def test_a_file_that_is_gone(self):
        (self.part / "skeleton" / "measure.cpp").unlink()
        self.green("fused_cpu")
        self.assertIn("measure.cpp does not exist; ./lab reset measure brings it back",
                      self.grade().tasks[3].first_error)

    def test_nvcc_without_a_gpu(self):
        self.cuda = "toolkit"
        for name in ("puzzle", "fused_cuda"):
            self.fake(name, [case("a", "needs_gpu"), case("b", "needs_gpu")])
        self.green("fused_cpu", "measure")
        self.check(self.grade(), NEEDS_GPU, PASSED, NEEDS_GPU, PASSED, points=(5, 5, 3), done=True)
        self.broken["part1_fused_cuda_skeleton_tests"] = "fused_cuda.cu(3): error: x"
        self.check(self.grade("fused_cuda"), BUILD_FAILED,
                   points=(0, 0, 3), done=False)

    def test_a_release_without_solutions(self):
        shutil.rmtree(self.part / "solution")
        self.assertIn("part1_softmax_matmul/solution/ does not exist",
                      self.refused(self.grade, implementation="solution"))
