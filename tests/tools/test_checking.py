"""lab.checking: what a judge says becomes points and a status; what does not build costs itself."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

from course import Course, Test, case
from lab import build, manifest, outcomes
from lab.outcomes import (BUILD_FAILED, CRASHED, EXCEPTION, NEEDS_GPU, NOT_STARTED, PASSED,
                          UNFINISHED, WRONG, CaseResult)

HANG = "time.sleep(60)"


class Running(Course):
    def graded(self, *cases, **fake):
        self.fake("fused_cpu", list(cases), **fake)
        return self.grade("fused_cpu").tasks[0]

    def test_points_and_status_follow_from_the_cases(self):
        result = self.graded(case("a"), case("b", "failed", message="by one\nat 1"),
                             case("c"))
        self.assertEqual(self.ends(result, PASSED, WRONG, PASSED)[1], "by one\nat 1")
        self.assertEqual((result.status, result.earned, result.possible), (WRONG, 0, 1))
        not_started = [case(name, "not_started") for name in "ab"]
        for cases, status, earned, done in (
            ([case(str(n)) for n in range(7)], PASSED, 1, True),
            ([case("a", "failed"), *(case(n) for n in "bcd")], WRONG, 0.5, False),  # most pass
            (not_started, NOT_STARTED, 0, False),
            ([case("a"), not_started[1]], UNFINISHED, 0, False),
            ([case("a", "error"), case("b")], EXCEPTION, 0, False),
            ([case("a", "crashed"), case("b", "error")], CRASHED, 0, False),
        ):
            result = self.graded(*cases)
            self.assertEqual((result.status, result.earned, result.done), (status, earned, done))

    def test_the_failure_that_says_most_comes_first(self):
        result = self.graded(
            case("a", "failed", message="2 of 3 elements"), case("b", "failed", then={
                "diagnosis": {"name": "y", "kind": "", "text": "x"}}),
            case("c", "failed", message="kernel f: a data race"), case("d", "not_run"),
            case("e", "failed"), case("f", "timed_out"))
        self.assertEqual([failed.name for failed in result.failures], [*"fcbaed"])

    def test_a_judge_that_does_not_come_to_its_end_is_nobodys_verdict(self):
        for prologue, said in (
                ("sys.exit('no room')", "(exit code 1): no room"),
                ("os._exit(0)", "(exit code 0): it printed nothing"),
                ("os.kill(os.getpid(), 11)", "(signal 11, Segmentation fault): it printed"),
                ("os.kill(os.getpid(), 9)",
                 "(signal 9, Killed: this machine may have run out of memory): it printed")):
            self.assertIn(f"part1_judge did not come to its end {said}",
                          self.refused(self.graded, case("a"), prologue=prologue))

    @staticmethod
    def runs(process):
        try:
            os.kill(process, 0)
            stat = Path(f"/proc/{process}/stat")  # macOS has none
            return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except (ProcessLookupError, FileNotFoundError):
            return False

    def test_a_judge_is_ended_with_all_that_it_started(self):
        note = self.folder() / "child"
        hang = (f"import subprocess; child = subprocess.Popen(['sleep', '60']).pid; "
                f"open({str(note)!r}, 'w').write(str(child)); sys.exit('x')")
        self.refused(self.graded, case("a"), prologue=hang)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and self.runs(int(note.read_text())):
            time.sleep(0.05)
        self.assertFalse(self.runs(int(note.read_text())))


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
        self.broken["part1_fused_cpu_skeleton"] = error
        result = self.grade()
        self.check(result, NEEDS_GPU, BUILD_FAILED, NEEDS_GPU, PASSED, points=(4, 5, 3), done=False)
        self.assertEqual(result.tasks[1].first_error, error)
        self.assertEqual(self.built, [
            "part1_fused_cpu_skeleton_ready part1_measure_skeleton_ready",
            self.targets("fused_cpu", "cpu"), self.targets("measure", "cpu")])

    def test_a_file_of_the_harness_that_does_not_compile_costs_no_task(self):
        self.green("measure")
        self.broken["part1_fused_cpu_skeleton"] = """FAILED: part1/fused_skeleton.dir/fused.cpp.o
part1/skeleton/fused_cpu.cpp:1:1: error: x
FAILED: tests/harness/CMakeFiles/flash_cases.dir/cases/far_apart.cpp.o
tests/harness/cases/far_apart.hpp:9:1: error: expected ';'
"""
        self.assertIn("put it back as you got it: "
                      "tests/harness/cases/far_apart.hpp:9:1: error: expected ';'",
                      self.refused(self.grade))

    def test_a_file_without_its_last_line(self):
        self.write("part1_softmax_matmul/fused.hpp", """
struct Functions { int x; };
struct FusedCpuTask : Base<Functions> {
  static constexpr char kId[] = "part1.fused_cpu";
};
""")
        self.broken["part1_fused_cpu_skeleton"] = f"/usr/bin/ld: {build.LACKS_ENTRY}"
        result, = self.grade("fused_cpu").tasks
        self.assertEqual((result.status, result.first_error), (
            BUILD_FAILED, "part1_softmax_matmul/skeleton/fused_cpu.cpp: the last line is missing, "
            "by which the judge finds your functions; write at the end of the file: "
            "FLASH_TASK(FusedCpuTask)"))

    def test_tasks_are_built_in_one_go_and_run_at_once(self):
        for name, other in (("fused_cpu", "measure"), ("measure", "fused_cpu")):
            calls = str(self.root / f"{self.target(other)}.calls")
            waits = f"while not os.path.exists({calls!r}): time.sleep(0.01)"
            self.fake(name, [case("a")], prologue=waits)
        with mock.patch("os.cpu_count", return_value=2):
            result = self.grade()
        self.check(result, NEEDS_GPU, PASSED, NEEDS_GPU, PASSED, points=(5, 5, 3), done=True)
        self.assertEqual(self.built, [
            "part1_fused_cpu_skeleton_ready part1_measure_skeleton_ready"])

    def test_an_error_of_one_task_ends_the_others(self):
        self.fake("fused_cpu", [case("a")], prologue="time.sleep(1); sys.exit('no room')")
        self.fake("measure", [case("a", run=HANG)])
        begin = time.monotonic()
        with mock.patch("os.cpu_count", return_value=2):
            self.assertIn("no room", self.refused(self.grade))
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
        self.broken["part1_fused_cuda_skeleton"] = "fused_cuda.cu(3): error: x"
        self.check(self.grade("fused_cuda"), BUILD_FAILED,
                   points=(0, 0, 3), done=False)

    def test_a_release_without_solutions(self):
        shutil.rmtree(self.part / "solution")
        self.assertIn("part1_softmax_matmul/solution/ does not exist",
                      self.refused(self.grade, implementation="solution"))
