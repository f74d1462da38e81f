"""CUDA tasks on a GPU, emulated, emulated with all checks: which one it is, what is run where, and what the card says of it."""

import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

from course import Course  # noqa: E402

from lab import grading, manifest  # noqa: E402
from lab.backends import choose  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.grading import CRASHED, NEEDS_CHECKS, NEEDS_GPU, NOT_RUN, PASSED, WRONG  # noqa: E402
from lab.verbs import watch  # noqa: E402

RACE = """\
kernel fused_softmax_matmul: a data race between fused_cuda.cu:97 and fused_cuda.cu:156
thread (33, 0, 0) of block (0, 0, 0) reads 4 bytes of the shared tile, from byte 128 at fused_cuda.cu:156;
thread (32, 0, 0) of block (0, 0, 0) wrote it at fused_cuda.cu:97. No __syncthreads() lies between the two."""


def case(name: str, do: str = "passed", **more: object) -> dict:
    return {"name": name, "do": do, **more}


class Cuda(Course):
    """A machine without a GPU, with g++: the course's usual one."""

    emulated = checked = True

    def fakes(self, *cases: dict, backend: str = "emulated", **more: str) -> None:
        self.fake("fused_cuda", list(cases), backend=backend, **more)

    def grade(self, name: str = "fused_cuda", **more: object) -> grading.TaskResult:
        part, = manifest.load_parts()
        backends = choose(self._configured(), more.pop("emulate", False), more.pop("check_races", False))
        with self.silence():
            return grading.grade_part(part, tasks=manifest.select([part], [name]), backends=backends, **more).tasks[0]

    def statuses(self, result: grading.TaskResult) -> list[tuple[str, str]]:
        return [(case.name, case.status) for case in result.cases]


class Choosing(Cuda):
    def where(self, name: str, emulate: bool = False, check_races: bool = False) -> tuple[str | None, bool, str]:
        task, = manifest.select(manifest.load_parts(), [name])
        backends = choose(self._configured(), emulate, check_races)
        backend = backends.of(task)
        return backend, backends.out_of_reach(task), backends.words(backend)

    def machine(self, cuda: str, emulated: bool) -> None:
        self.cuda, self.emulated, self.checked = cuda, emulated, emulated

    def test_without_options(self) -> None:
        for cuda, emulated, wanted in (
            ("none", True, ("emulated", False, "emulated on the CPU (no GPU here)")),
            ("toolkit", True, ("emulated", False, "emulated on the CPU (no GPU here)")),
            ("gpu", True, ("gpu", False, "on NVIDIA H200")),
            ("gpu", False, ("gpu", False, "on NVIDIA H200")),
            ("toolkit", False, ("gpu", True, "compiled and not run (no GPU here, and no emulator)")),
            ("none", False, (None, True, "not run (no GPU here, and no emulator)")),
        ):
            with self.subTest(cuda=cuda, emulated=emulated):
                self.machine(cuda, emulated)
                self.assertEqual(self.where("fused_cuda"), wanted)
                self.assertEqual(self.where("fused_cpu")[:2], ("cpu", False))

    def test_with_options(self) -> None:
        for cuda in ("none", "gpu"):
            self.machine(cuda, True)
            self.assertEqual(self.where("fused_cuda", emulate=True)[0], "emulated")
            self.assertEqual(self.where("fused_cuda", check_races=True), ("checked", False, "emulated with all checks"))
            self.assertEqual(self.where("fused_cuda", emulate=True, check_races=True)[0], "checked")
            self.assertEqual(self.where("fused_cpu", check_races=True)[0], "cpu")

    def test_a_task_that_the_emulator_cannot_run(self) -> None:
        for cuda, wanted in (("none", (None, True)), ("toolkit", ("gpu", True)), ("gpu", ("gpu", False))):
            self.machine(cuda, True)
            self.assertEqual(self.where("puzzle", check_races=True)[:2], wanted)

    def test_options_that_cannot_be_had_are_one_clear_line(self) -> None:
        self.checked, self.compiler = False, "Clang 14.0.6"
        self.assertEqual(self.lab("check", "--check-races"), (
            1, "lab: --check-races needs g++, whose instrumentation finds the races, and build/default was configured with "
               "Clang 14.0.6: delete build/default, and try again with CXX=g++ in front\n"))
        self.machine("gpu", False)
        for option in ("--emulate", "--check-races"):
            for verb in ("check", "watch"):
                code, seen = self.lab(verb, option)
                self.assertEqual((code, seen), (1, f"lab: {option} needs the emulator, which this build is without: it takes Linux "
                                                   "on x86-64 or AArch64, and FLASH_SIMT not switched off\n"))


class Checks(Cuda):
    """Cases that ask for the emulator's checks."""

    CASES = case("even"), case("checks: no race", "needs_checks", weight=2), case("ragged")

    def test_they_run_in_the_checked_binary_and_keep_their_places(self) -> None:
        self.fakes(*self.CASES)
        self.fakes(case("even"), case("checks: no race", "failed", message=RACE), case("ragged"), backend="checked")
        result = self.grade()
        self.assertEqual(self.statuses(result), [("even", PASSED), ("checks: no race", WRONG), ("ragged", PASSED)])
        self.assertEqual((result.earned, result.possible, result.cases[1].points, result.cases[1].message), (1.5, 3, 1.5, RACE))
        self.assertEqual(self.calls("fused_cuda", backend="checked"), [["checks: no race"]])
        # In one go, so that both compile at the same time.
        self.assertEqual(self.built, ["part1_fused_cuda_skeleton_emulated_tests part1_fused_cuda_skeleton_checked_tests"])

    def test_all_points_without_a_gpu(self) -> None:
        self.fakes(*self.CASES)
        self.fakes(case("even"), case("checks: no race"), case("ragged"), backend="checked")
        for name in ("fused_cpu", "measure"):
            self.fake(name, [case("a")])
        code, seen = self.lab("check")
        self.assertEqual(code, 0)
        self.assertIn("part1  Fused softmax-matmul\n  CUDA tasks: emulated on the CPU (no GPU here)\n", seen)
        self.assertIn("Fused softmax-matmul in CUDA  passed            3 of 3         3 of 3 cases\n", seen)
        self.assertTrue(seen.endswith("\npart1: 8 of 8 points\nAll green. Next: ./lab bench part1 measures how fast it is\n"), seen)

    def test_a_benchmark_that_needs_a_gpu_is_no_next_step_without_one(self) -> None:
        self.fakes(*self.CASES)
        self.fakes(case("even"), case("checks: no race"), case("ragged"), backend="checked")
        for name in ("fused_cpu", "measure"):
            self.fake(name, [case("a")])
        with mock.patch("lab.verbs.bench.NEED_GPU", ("part1",)):
            code, seen = self.lab("check")
            self.assertEqual(code, 0)
            self.assertTrue(seen.endswith("All green. On a machine with a GPU ./lab bench part1 measures how fast it is.\n"), seen)

    def test_without_gxx_they_are_left_out_of_the_totals(self) -> None:
        self.checked = False
        self.fakes(*self.CASES)
        result = self.grade()
        self.assertEqual((result.status, result.earned, result.possible, result.done), (PASSED, 1.5, 1.5, True))
        self.assertEqual(self.built, ["part1_fused_cuda_skeleton_emulated_tests"])
        code, seen = self.lab("check", "fused_cuda")
        self.assertEqual(code, 0)
        self.assertIn("1.5 of 1.5     2 of 2 cases\n", seen)
        self.assertIn("\npart1: 1.5 of 1.5 points; 1.5 points need the emulator's checks (g++): not counted here\n", seen)
        code, seen = self.lab("check", "fused_cuda", "--test", "checks: no race")
        self.assertEqual(code, 0)
        self.assertTrue(seen.endswith("Nothing of this can run here: it needs the emulator's checks, and they need g++.\n"), seen)

    def test_a_crash_in_the_checked_binary_costs_its_case_alone(self) -> None:
        self.fakes(*self.CASES, case("checks: traffic", "needs_checks"))
        self.fakes(*self.CASES[:1], case("checks: no race", "crash"), self.CASES[2], case("checks: traffic"), backend="checked")
        self.assertEqual([status for _, status in self.statuses(self.grade())], [PASSED, CRASHED, PASSED, PASSED])
        self.fakes(*self.CASES, backend="checked", prologue="os.abort()")
        result = self.grade()
        self.assertEqual([status for _, status in self.statuses(result)], [PASSED, CRASHED, PASSED, CRASHED])
        self.assertIn("before its first case", result.cases[1].message)
        self.assertEqual((result.earned, result.possible), (3 * 2 / 5, 3))

    def test_one_of_them_alone_runs_where_it_can(self) -> None:
        self.fakes(*self.CASES)
        self.fakes(case("even"), case("checks: no race", "failed", message=RACE, print="tile 0"), case("ragged"), backend="checked")
        code, seen = self.lab("check", "fused_cuda", "--test", "checks: no race")
        indented = RACE.replace("\n", "\n            ")
        self.assertEqual((code, seen), (1, f"""\
$ build/default/bin/part1_fused_cuda_skeleton_checked_tests --seed 1 --case 'checks: no race'

part1  Fused softmax-matmul
  CUDA tasks: emulated with all checks
  1.A  fused_cuda  Fused softmax-matmul in CUDA  wrong
      wrong: checks: no race
          {indented}
          it printed:
          | tile 0

Next: edit part1_softmax_matmul/skeleton/fused_cuda.cu and run the same again; ./lab hint fused_cuda has a hint
"""))

    def test_another_case_alone_runs_once(self) -> None:
        self.fakes(case("even", "failed", message="x"), *self.CASES[1:])
        seen = self.lab("check", "fused_cuda", "--test", "even")[1]
        self.assertEqual(seen.splitlines()[0], "$ build/default/bin/part1_fused_cuda_skeleton_emulated_tests --seed 1 --case even")
        self.assertEqual(seen.count("$ "), 1)
        self.assertEqual(self.calls("fused_cuda", backend="emulated"), [["even"]])
        self.assertIn("run the same again, or with --check-races, which finds races and stray accesses;", seen)

    def test_check_races_runs_all_of_them_checked(self) -> None:
        self.fakes(case("even", "failed", message=RACE), case("checks: no race"), backend="checked")
        code, seen = self.lab("check", "fused_cuda", "--check-races")
        self.assertEqual(code, 1)
        self.assertEqual(self.built, ["part1_fused_cuda_skeleton_checked_tests"])
        self.assertIn("  CUDA tasks: emulated with all checks\n", seen)
        self.assertIn(RACE.splitlines()[-1], seen)
        self.assertTrue(seen.endswith('Next: ./lab check fused_cuda --test "even" --seed 1 --check-races\n'), seen)

    def test_watch_takes_the_same_options(self) -> None:
        self.fakes(case("even", "failed", message=RACE), case("checks: no race"), backend="checked")
        with mock.patch.object(watch, "_wait", side_effect=KeyboardInterrupt):
            seen = self.lab("watch", "fused_cuda", "--check-races")[1]
        self.assertIn("  CUDA tasks: emulated with all checks\n", seen)

    def test_a_failure_without_checks_leads_to_the_checks(self) -> None:
        for do, option in (("failed", " --check-races"), ("crash", " --check-races"), ("error", "")):
            self.fakes(case("even", do), *self.CASES[1:])
            self.fakes(case("even"), case("checks: no race"), case("ragged"), backend="checked")
            with self.subTest(do):
                seen = self.lab("check", "fused_cuda")[1]
                self.assertTrue(seen.endswith(f'Next: ./lab check fused_cuda --test "even" --seed 1{option}\n'), seen)

    def test_a_launch_that_only_nvcc_can_read(self) -> None:
        file = self.write("part1_softmax_matmul/skeleton/fused_cuda.cu", "void f() {\n  kernel<<<1, 32>>>(x);\n}\n")
        error = f"{file.relative_to(self.root)}:2:9: error: expected primary-expression before '<' token"
        self.broken["part1_fused_cuda_skeleton_emulated_tests"] = error
        seen = self.lab("check", "fused_cuda")[1]
        self.assertIn("cmake --build build/default --target part1_fused_cuda_skeleton_emulated_tests\n", seen)
        self.assertEqual(seen.splitlines()[-1], "Next: launch with launch() (common/cuda/launch.hpp), since <<<...>>> is for nvcc "
                                                "only, then ./lab check fused_cuda")
        file.write_text("void f() {\n  extern __shared__ float tile[];\n}\n")
        self.broken["part1_fused_cuda_skeleton_emulated_tests"] = f"{file.relative_to(self.root)}:2:27: error: conflicting specifiers"
        self.assertEqual(self.lab("check", "fused_cuda")[1].splitlines()[-1],
                         "Next: write FLASH_DYNAMIC_SHARED(T, name) (common/cuda/launch.hpp), since extern __shared__ is for nvcc "
                         "only, then ./lab check fused_cuda")
        for other in ("fused_cuda.cu:1:6: error: x", "fused_cuda.cu:9: error: x", "nothing.cu:2: error: x", "no rule"):
            self.broken["part1_fused_cuda_skeleton_emulated_tests"] = f"part1_softmax_matmul/skeleton/{other}"
            last = self.lab("check", "fused_cuda")[1].splitlines()[-1]
            self.assertEqual(last, "Next: correct what the error names, then ./lab check fused_cuda")


class OnAGpu(Cuda):
    cuda = "gpu"

    def setUp(self) -> None:
        super().setUp()
        # More cases than the emulator's binaries have: the points are the weights' shares in this one.
        self.fakes(case("even"), case("checks: no race", "needs_checks"), case("tall", weight=2), backend="gpu")
        self.fakes(case("even"), case("checks: no race"), backend="checked")
        self.fakes(case("even"), case("checks: no race", "needs_checks"), backend="emulated")

    def test_checks_are_emulated_and_the_rest_is_not(self) -> None:
        result = self.grade()
        self.assertEqual(self.statuses(result), [("even", PASSED), ("checks: no race", PASSED), ("tall", PASSED)])
        self.assertEqual([case.points for case in result.cases], [0.75, 0.75, 1.5])
        self.assertEqual(self.built, ["part1_fused_cuda_skeleton_tests part1_fused_cuda_skeleton_checked_tests"])
        self.assertIn("  CUDA tasks: on NVIDIA H200\n", self.lab("check", "fused_cuda")[1])

    def test_emulate(self) -> None:
        self.assertEqual(self.grade(emulate=True).earned, 3)
        self.assertEqual(self.calls("fused_cuda", backend="emulated"), [[]])
        self.assertIn("  CUDA tasks: emulated on the CPU\n", self.lab("check", "fused_cuda", "--emulate")[1])

    def test_what_nvcc_takes_and_gxx_does_not_costs_the_checks_alone(self) -> None:
        self.broken["part1_fused_cuda_skeleton_checked_tests"] = "fused_cuda.cu:5: error: asm"
        result = self.grade()
        self.assertEqual([status for _, status in self.statuses(result)], [PASSED, NOT_RUN, PASSED])
        self.assertEqual(result.cases[1].message,
                         "not run, because it does not compile for the emulator's checks:\nfused_cuda.cu:5: error: asm")
        self.assertEqual((result.status, result.earned, result.possible), (NOT_RUN, 2.25, 3))

    def test_without_checks(self) -> None:
        self.checked = False
        result = self.grade()
        self.assertEqual(self.statuses(result)[1], ("checks: no race", NEEDS_CHECKS))
        self.assertEqual((result.earned, result.possible, result.missing), (2.25, 2.25, {"the emulator's checks (g++)": 0.75}))

    def test_the_wrong_backend(self) -> None:
        self.fake("fused_cuda", [case("a")], backend="gpu", prologue='say(event="begin", task="part1.fused_cuda", '
                  'implementation="skeleton", backend="emulated", seed=1, cases=[])')
        with self.assertRaisesRegex(LabError, r"\(skeleton, emulated\); it must report part1.fused_cuda \(skeleton, gpu\)"):
            self.grade()


class OutOfReach(Cuda):
    def test_only_what_the_emulator_cannot_run(self) -> None:
        result = self.grade("puzzle")
        self.assertEqual((result.status, result.out_of_reach, self.built), (NEEDS_GPU, True, []))
