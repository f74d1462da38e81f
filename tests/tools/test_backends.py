"""CUDA tasks on a GPU, emulated, emulated with all checks: what runs where, and what is said."""

import time
from unittest import mock

from course import Course, case
from lab import build
from lab.outcomes import NEEDS_CHECKS, NOT_RUN, PASSED, TIMED_OUT, WRONG

RACE = "kernel fused_softmax_matmul: a data race between fused_cuda.cu:97 and fused_cuda.cu:156"
EMULATED, CHECKED = (f"part1_fused_cuda_skeleton_{kind}" for kind in ("emulated", "checked"))


class Cuda(Course):
    """A machine without a GPU, with g++: the course's usual one."""

    emulated = checked = True

    def fakes(self, *cases, backend="emulated", **more):
        self.fake("fused_cuda", list(cases), backend=backend, **more)

    def graded(self):
        return self.grade("fused_cuda").tasks[0]


class Checks(Cuda):
    """Cases that need the emulator's checks."""

    CASES = case("even"), case("checks: no race", "needs_checks"), case("ragged")
    ALL_PASS = case("even"), case("checks: no race"), case("ragged")

    def test_they_run_in_the_checked_binary_and_keep_their_places(self):
        self.fakes(*self.CASES)
        self.fakes(case("even"), case("checks: no race", "failed", message=RACE), case("ragged"),
                   backend="checked")
        result = self.graded()
        self.assertEqual(self.ends(result, PASSED, WRONG, PASSED)[1], RACE)
        self.assertEqual((result.earned, result.possible, result.cases[1].points), (0, 3, 1))
        # Both compile at the same time.
        self.assertEqual(self.built, [self.targets("fused_cuda", "emulated", "checked")])

    def test_a_judge_does_not_wait_for_the_other_library(self):
        self.fakes(*self.CASES)
        self.fakes(*self.ALL_PASS, backend="checked")
        ran = self.root / f"{EMULATED}.calls"

        def built(targets, keep_going, on_ready, ran_at=time.monotonic()):
            on_ready(EMULATED)
            while not ran.exists() and time.monotonic() < ran_at + 30:
                time.sleep(0.01)
            return build.BuildResult(ran.exists(), "nothing ran", "")

        self.patch(build, build=built)
        self.ends(self.graded(), PASSED, PASSED, PASSED)

    def test_an_endless_loop_ends_the_checks_too(self):
        self.fakes(case("even", "timed_out"), self.CASES[1], case("ragged", "not_run"))
        self.fakes(case("checks: no race", run="time.sleep(60)"), backend="checked")
        messages = self.ends(self.graded(), TIMED_OUT, NOT_RUN, NOT_RUN)
        self.assertIn("calls before it took too long", messages[1])

    def test_all_points_without_a_gpu(self):
        self.fakes(*self.CASES)
        self.fakes(*self.ALL_PASS, backend="checked")
        self.green("fused_cpu", "measure")
        for backend in ("emulated", "checked"):  # a warm-up, which has no points
            self.fake("puzzle", [case("a", "not_started")], backend=backend)
        self.shows("check", "matmul in CUDA  passed            3 of 3         3 of 3 cases\n",
                   "\npart1: 8 of 8 points\n"
                   "All green. Next: ./lab bench part1 measures how fast it is\n", code=1)
        with mock.patch("lab.benchmarks.can_run", return_value=False):
            self.assertEqual(self.last("check"), "All green. On a machine with a GPU ./lab bench "
                                                 "part1 measures how fast it is.")
        manifest = self.part / "tasks.toml"
        self.write(manifest.relative_to(self.root), manifest.read_text() + "results = 1\n")
        self.assertEqual(self.last("check"), "All green. Next: ./lab bench part1 --quick, then "
                                             "./lab plot, then ./lab bundle part1")

    def test_a_task_that_needs_the_checks_alone_does_not_speak_for_the_others(self):
        self.fakes(*self.CASES)
        self.fakes(*self.ALL_PASS, backend="checked")
        self.fake("puzzle", [case("checks: a", "needs_checks")], backend="emulated")
        self.fake("puzzle", [case("checks: a")], backend="checked")
        self.shows("check puzzle", "  CUDA tasks: emulated with all checks\n",
                   "\nNext: open part1_softmax_matmul/skeleton/fused_cpu.cpp and ")
        self.shows("check puzzle fused_cuda", "  CUDA tasks: emulated on the CPU (no GPU here)\n")

    def test_without_gxx_they_are_left_out_of_the_totals(self):
        self.checked = False
        self.fakes(*self.CASES)
        self.ends(self.graded(), PASSED, NEEDS_CHECKS, PASSED)
        self.assertEqual(self.built, [self.targets("fused_cuda", "emulated")])
        self.shows("check fused_cuda", "2 of 2         2 of 2 cases\n",
                   "\npart1: 2 of 2 points; 1 point needs the emulator's checks (g++): "
                   "not counted here\n")
        self.assertEqual(self.last("check fused_cuda --case 'checks: no race'"),
                         "Nothing of this can run here: it needs the emulator's checks, which need "
                         "g++.")

    def test_without_the_emulator_kernels_are_compiled_where_there_is_nvcc(self):
        self.emulated = self.checked = False
        self.cuda = "toolkit"
        self.fakes(case("even", "needs_gpu"), backend="gpu")
        for words in ("compiled and not run", "not run"):
            self.shows("check fused_cuda",
                       f"  CUDA tasks: {words} (no GPU here, and no emulator)\n", "3 points need a GPU or the emulator: not counted here\n")
            self.cuda = "none"
        self.assertEqual(self.built, [self.targets("fused_cuda", "gpu")])

    def test_one_case_alone_runs_once_where_it_can(self):
        self.fakes(*self.CASES)
        self.fakes(*self.ALL_PASS, backend="checked")
        for name, where in (("checks: no race", "with all checks"),
                            ("even", "on the CPU (no GPU here)")):
            code, seen = self.lab(f"check fused_cuda --case '{name}'")
            self.assertEqual((code, seen.count("$ ")), (0, 1))
            for part in (f" --seed 1 --case '{name}'\n" if " " in name else " --case even\n",
                         f"  CUDA tasks: emulated {where}\n", f"      passed: {name}  (all)\n",
                         "\nNext: ./lab check fused_cuda\n"):
                self.assertIn(part, seen)

    def test_check_races_runs_all_of_them_checked(self):
        self.fakes(case("even", "failed", message=RACE), case("checks: no race"), backend="checked")
        self.shows("check fused_cuda --check-races", "  CUDA tasks: emulated with all checks\n",
                   'Next: ./lab check fused_cuda --case "even" --seed 1 --check-races\n', code=1)
        self.assertEqual(self.built, [self.targets("fused_cuda", "checked")])

    def test_a_failure_without_checks_leads_to_the_checks(self):
        self.fakes(*self.ALL_PASS, backend="checked")
        for do, option in (("failed", " --check-races"), ("error", "")):
            self.fakes(case("even", do), *self.CASES[1:])
            self.assertEqual(self.last("check fused_cuda"),
                             f'Next: ./lab check fused_cuda --case "even" --seed 1{option}')

    def test_a_line_that_only_nvcc_can_read(self):
        file = self.write("part1_softmax_matmul/skeleton/fused_cuda.cu",
                          "void f() {\n  kernel<<<1, 32>>>(x);\n  extern __shared__ int t[];\n"
                          '  asm volatile("mov.u32 %0, %%smid;" : "=r"(x));\n}\n')
        launch = "launch with launch() (common/cuda/launch.hpp), because <<<...>>> is for nvcc only"
        shared = ("write FLASH_DYNAMIC_SHARED(T, name) (common/cuda/launch.hpp), because extern "
                  "__shared__ is for nvcc only")
        ptx = ("use a wrapper of common/cuda/ (mma, ldmatrix, cp.async, ...), because PTX is for "
               "nvcc only")
        other = "correct what the error names"
        for place, correct in ((f"{file.name}:2:9", launch), (f"{file.name}:3:27", shared),
                               (f"{file.name}:4", ptx), (f"{file.name}:9:1", other),
                               ("nothing.cu:2:1", other)):
            self.broken[EMULATED] = f"part1_softmax_matmul/skeleton/{place}: error: x"
            self.shows("check fused_cuda", f"cmake --build build/default --target {EMULATED}\n",
                       f"\nNext: {correct}, then ./lab check fused_cuda\n", code=1)


class OnAGpu(Cuda):
    cuda = "gpu"

    def setUp(self):
        super().setUp()
        # One case more than the emulator's binaries have: its cases make the points.
        self.fakes(case("even"), case("checks: no race", "needs_checks"), case("tall"),
                   backend="gpu")
        self.fakes(case("even"), case("checks: no race"), backend="checked")
        self.fakes(case("even"), case("checks: no race", "needs_checks"), backend="emulated")

    def test_checks_are_emulated_and_the_rest_is_not(self):
        result = self.graded()
        self.ends(result, PASSED, PASSED, PASSED)
        self.assertEqual([case.points for case in result.cases], [1, 1, 1])
        self.assertEqual(self.built, [self.targets("fused_cuda", "gpu", "checked")])
        self.shows("check fused_cuda", "  CUDA tasks: on NVIDIA H200\n")
        self.shows("check fused_cuda --emulate", "  CUDA tasks: emulated on the CPU\n",
                   "part1: 3 of 3 points\n")
        self.assertEqual(len((self.root / f"{EMULATED}.calls").read_text().splitlines()), 1)

    def test_what_nvcc_takes_and_gxx_does_not_costs_the_checks_alone(self):
        self.broken[CHECKED] = "fused_cuda.cu:5: error: asm"
        result = self.graded()
        self.assertEqual(self.ends(result, PASSED, NOT_RUN, PASSED)[1], "not run: it does not "
                         "compile for the emulator's checks:\nfused_cuda.cu:5: error: asm")
        self.assertEqual((result.status, result.earned, result.possible), (NOT_RUN, 0, 3))
