"""lab.grading: whatever a student's code does to its process, every case gets the result that it earned."""

import contextlib
import io
import os
import sys
import time
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

from course import Course  # noqa: E402

from lab import grading, manifest  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.grading import (BUILD_FAILED, CRASHED, EXCEPTION, NEEDS_GPU, NOT_RUN, NOT_STARTED, PASSED,  # noqa: E402
                         TIMED_OUT, UNFINISHED, WRONG)


def case(name: str, do: str = "passed", **more: object) -> dict:
    return {"name": name, "do": do, **more}


class Running(Course):
    def grade(self, cases: list[dict], name: str = "fused_cpu", only: str | None = None, timeout: float = 20,
              **fake: str) -> grading.TaskResult:
        self.fake(name, cases, **fake)
        part, = manifest.load_parts()
        task, = manifest.select([part], [name])
        with contextlib.redirect_stdout(io.StringIO()):
            return grading.grade_part(part, tasks=[task], case=only, timeout=timeout).tasks[0]

    def statuses(self, result: grading.TaskResult) -> dict[str, str]:
        return {case.name: case.status for case in result.cases}

    def test_points_follow_the_weights(self) -> None:
        result = self.grade([case("a"), case("b", "failed", weight=2, message="off by one\nat (0, 1)"), case("c")])
        self.assertEqual(self.statuses(result), {"a": PASSED, "b": WRONG, "c": PASSED})
        self.assertEqual((result.status, result.earned, result.possible, result.uncounted), (WRONG, 0.5, 1, 0))
        self.assertEqual([case.points for case in result.cases], [0.25, 0.5, 0.25])
        self.assertEqual(result.cases[1].message, "off by one\nat (0, 1)")
        self.assertFalse(result.done)

    def test_full_marks_are_exact(self) -> None:
        result = self.grade([case(str(n), weight=0.1) for n in range(7)])
        self.assertEqual((result.status, result.earned, result.done), (PASSED, 1, True))

    def test_not_started_and_unfinished(self) -> None:
        result = self.grade([case("a", "not_started"), case("b", "not_started")])
        self.assertEqual((result.status, result.earned, result.failures), (NOT_STARTED, 0, []))
        result = self.grade([case("a"), case("b", "not_started")])
        self.assertEqual((result.status, result.earned), (UNFINISHED, 0.5))

    def test_a_challenge_has_no_points_and_is_no_failure(self) -> None:
        result = self.grade([case("a"), case("b", "failed", weight=0, challenge=True, message="too much memory")])
        self.assertEqual((result.status, result.earned, result.done, result.failures), (PASSED, 1, True, []))
        self.assertEqual([(each.name, each.status) for each in result.challenges], [("b", WRONG)])
        result = self.grade([case("a", "not_started"), case("b", "failed", weight=0, challenge=True)])
        self.assertEqual((result.status, result.earned), (NOT_STARTED, 0))

    def test_an_exception_is_a_result(self) -> None:
        result = self.grade([case("a", "error", message="v has shape (2, 7)"), case("b")])
        self.assertEqual((result.status, result.cases[0].status), (EXCEPTION, EXCEPTION))
        self.assertEqual(result.cases[0].message, "v has shape (2, 7)")

    def test_a_crash_costs_its_case_alone(self) -> None:
        result = self.grade([case("a"), case("b", "crash"), case("c", "failed"), case("d")])
        self.assertEqual(self.statuses(result), {"a": PASSED, "b": CRASHED, "c": WRONG, "d": PASSED})
        self.assertEqual(result.cases[1].message,
                         "crashed with signal 11 (segmentation fault: an index or a pointer outside of its memory)")
        # A pass counts in a process that came to its end: "a" runs again.
        self.assertEqual(self.calls("fused_cpu"), [[], ["a", "c", "d"]])

    def test_every_case_crashes(self) -> None:
        result = self.grade([case("a", "crash"), case("b", "abort"), case("c", "exit0"), case("d", "exit3")])
        self.assertEqual((set(self.statuses(result).values()), result.earned), ({CRASHED}, 0))
        self.assertEqual([case.message for case in result.cases[1:]], [
            "crashed with signal 6 (aborted: an assert, a corrupted heap, or an exception that nothing caught)",
            "ended early with exit code 0: something called exit()", "ended early with exit code 3: something called exit()"])

    def test_what_a_program_said_before_it_crashed(self) -> None:
        said = "==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1\n    #0 fused_softmax_matmul fused_cpu.cpp:31"
        result = self.grade([case("a", "crash", print="\x1b[31m" + said)])
        self.assertEqual(result.cases[0].message.splitlines()[1], said.splitlines()[0])
        self.assertEqual(result.cases[0].output.strip(), said)

    def test_exit_with_0_after_a_pass_is_no_pass(self) -> None:
        result = self.grade([case("a"), case("b", "pass then exit"), case("c")])
        self.assertEqual(self.statuses(result), {"a": PASSED, "b": CRASHED, "c": PASSED})
        self.assertEqual(result.cases[1].message,
                         "ended early with exit code 0, right after this case: something called exit()")

    def test_a_bad_verdict_outlives_its_process(self) -> None:
        result = self.grade([case("a", "failed", message="wrong"), case("b", "crash")])
        self.assertEqual((self.statuses(result), result.cases[0].message), ({"a": WRONG, "b": CRASHED}, "wrong"))
        self.assertEqual(len(self.calls("fused_cpu")), 1)

    def test_a_hang_is_ended_with_all_that_it_started(self) -> None:
        begin = time.monotonic()
        result = self.grade([case("a"), case("b", "hang"), case("c")], timeout=1)
        self.assertLess(time.monotonic() - begin, 15)
        self.assertEqual(self.statuses(result), {"a": PASSED, "b": TIMED_OUT, "c": PASSED})
        self.assertEqual((result.status, result.cases[1].message), (TIMED_OUT, "timed out after 1 s"))
        child = int((self.root / "part1_fused_cpu_skeleton_tests.calls.child").read_text())
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and self.runs(child):
            time.sleep(0.05)
        self.assertFalse(self.runs(child))

    @staticmethod
    def runs(process: int) -> bool:
        try:
            with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            try:
                os.kill(process, 0)  # no /proc on macOS
                return not os.path.isdir("/proc")
            except ProcessLookupError:
                return False

    def test_the_fourth_hang_is_not_waited_for(self) -> None:
        result = self.grade([case(name, "hang") for name in "abcde"], timeout=0.5)
        self.assertEqual(list(self.statuses(result).values()), [TIMED_OUT] * 3 + [NOT_RUN] * 2)
        self.assertEqual(result.cases[4].message, "not run, because 3 cases before it timed out")

    def test_a_process_that_dies_before_its_first_case(self) -> None:
        result = self.grade([case("a")], prologue="os.abort()")
        self.assertEqual((result.status, result.earned, result.possible), (CRASHED, 0, 1))
        self.assertEqual(result.cases[0].message,
                         "the test program crashed with signal 6 (aborted: an assert, a corrupted heap, "
                         "or an exception that nothing caught) before its first case")

    def test_a_process_that_hangs_after_its_report(self) -> None:
        result = self.grade([case("a")], epilogue="time.sleep(60)")
        self.assertEqual(result.status, PASSED)

    def test_the_return_code_means_nothing(self) -> None:
        self.assertEqual(self.grade([case("a")], epilogue="os._exit(42)").status, PASSED)
        self.assertEqual(self.grade([case("a", "failed")], epilogue="os._exit(0)").status, WRONG)

    def test_a_case_that_the_program_leaves_out(self) -> None:
        result = self.grade([case("a"), case("b")], prologue='wanted = ["a"]')
        self.assertEqual(self.statuses(result), {"a": PASSED, "b": NOT_RUN})
        self.assertEqual(result.cases[1].message, "the test program did not run this case")

    def test_lines_that_are_not_the_harness_s(self) -> None:
        noise = 'report.write("nonsense\\n[1]\\n{\\"event\\": \\"end\\"}\\n")\nsay(event="end", case="a", status="passed")\n'
        result = self.grade([case("a", "failed"), case("b")], prologue=noise)
        self.assertEqual(self.statuses(result), {"a": WRONG, "b": PASSED})

    def test_output_is_limited(self) -> None:
        result = self.grade([case("a", "flood")])
        self.assertLess(len(result.cases[0].output), grading.OUTPUT_LIMIT + 1000)
        self.assertIn("bytes left out", result.cases[0].output)

    def test_one_case_alone(self) -> None:
        result = self.grade([case("a"), case("b", "failed", print="here")], only="b")
        self.assertEqual((self.statuses(result), result.cases[0].output), ({"b": WRONG}, "here\n"))
        self.assertEqual(self.calls("fused_cpu"), [["b"]])
        with self.assertRaisesRegex(LabError, 'has no case called "c"'):
            self.grade([case("a")], only="c")

    def test_the_binary_of_another_task(self) -> None:
        wrong = r"reports part1.measure \(skeleton, cpu\); it must report part1.fused_cpu \(skeleton, cpu\)"
        with self.assertRaisesRegex(LabError, wrong):
            self.grade([case("a")], task="part1.measure")


class Parts(Course):
    def grade(self, **more: object) -> grading.PartResult:
        with contextlib.redirect_stdout(io.StringIO()):
            return grading.grade_part(manifest.load_parts()[0], **more)

    def test_a_task_that_does_not_compile_costs_itself(self) -> None:
        self.fake("measure", [case("a")])
        self.broken["part1_fused_cpu_skeleton_tests"] = "part1_softmax_matmul/skeleton/fused_cpu.cpp:7:1: error: expected ';'"
        result = self.grade()
        self.assertEqual([task.status for task in result.tasks], [NEEDS_GPU, BUILD_FAILED, NEEDS_GPU, PASSED])
        self.assertEqual((result.earned, result.possible, result.uncounted, result.done), (4, 5, 3, False))
        self.assertEqual(result.tasks[1].first_error, "part1_softmax_matmul/skeleton/fused_cpu.cpp:7:1: error: expected ';'")
        alone = ["part1_fused_cpu_skeleton_tests", "part1_measure_skeleton_tests"]
        self.assertEqual(self.built, [" ".join(alone), *alone])

    def test_tasks_are_built_in_one_go_and_run_at_once(self) -> None:
        for name, other in (("fused_cpu", "measure"), ("measure", "fused_cpu")):
            waits = f"while not os.path.exists({str(self.root / f'{self.target(other)}.calls')!r}): time.sleep(0.01)"
            self.fake(name, [case("a")], prologue=waits)
        with mock.patch("os.cpu_count", return_value=2):
            result = self.grade(timeout=20)
        self.assertEqual([task.status for task in result.tasks], [NEEDS_GPU, PASSED, NEEDS_GPU, PASSED])
        self.assertEqual(self.built, ["part1_fused_cpu_skeleton_tests part1_measure_skeleton_tests"])

    def test_an_error_of_one_task_ends_the_others(self) -> None:
        self.fake("fused_cpu", [case("a")], task="part1.other", prologue="time.sleep(1)")  # by then the other one hangs
        self.fake("measure", [case("a", "hang")])
        begin = time.monotonic()
        with mock.patch("os.cpu_count", return_value=2), self.assertRaisesRegex(LabError, "reports part1.other"):
            self.grade(timeout=50)
        self.assertLess(time.monotonic() - begin, 25)

    def test_a_file_that_is_gone(self) -> None:
        (self.part / "skeleton" / "measure.cpp").unlink()
        self.fake("fused_cpu", [case("a")])
        self.assertEqual(self.grade().tasks[3].first_error,
                         "part1_softmax_matmul/skeleton/measure.cpp does not exist; ./lab reset measure brings it back")

    def test_nvcc_without_a_gpu(self) -> None:
        self.cuda = "toolkit"
        for name in ("puzzle", "fused_cuda"):
            self.fake(name, [case("a", "needs_gpu"), case("b", "needs_gpu")])
        for name in ("fused_cpu", "measure"):
            self.fake(name, [case("a")])
        result = self.grade()
        self.assertEqual([task.status for task in result.tasks], [NEEDS_GPU, PASSED, NEEDS_GPU, PASSED])
        self.assertEqual((result.earned, result.possible, result.uncounted, result.done), (5, 5, 3, True))

    def test_nvcc_without_a_gpu_still_says_what_does_not_compile(self) -> None:
        self.cuda = "toolkit"
        self.broken["part1_fused_cuda_skeleton_tests"] = "fused_cuda.cu(3): error: x"
        part, = manifest.load_parts()
        result = self.grade(tasks=[part.tasks[2]])
        self.assertEqual((result.tasks[0].status, result.possible, result.uncounted, result.done), (BUILD_FAILED, 0, 3, False))

    def test_a_gpu(self) -> None:
        self.cuda = "gpu"
        for name in ("puzzle", "fused_cpu", "fused_cuda", "measure"):
            self.fake(name, [case("a")], "solution")
        result = self.grade(implementation="solution")
        self.assertEqual((result.earned, result.possible, result.uncounted, result.done), (8, 8, 0, True))

    def test_a_release_without_solutions(self) -> None:
        for file in (self.part / "solution").iterdir():
            file.unlink()
        (self.part / "solution").rmdir()
        with self.assertRaisesRegex(LabError, "part1_softmax_matmul/solution/ does not exist: there is nothing of that kind"):
            self.grade(implementation="solution")
