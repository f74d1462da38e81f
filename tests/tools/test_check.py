"""`./lab check`: the card as a student reads it, the next command, the exit code."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from course import Course  # noqa: E402

OVER = """\
relative error 0.31 is above 1.1e-06
first wrong at (0, 32, 0), in block (2, 0): got 0.5, must be 0.25
every row from 32 on"""


def case(name: str, do: str = "passed", **more: object) -> dict:
    return {"name": name, "do": do, **more}


class Card(Course):
    def test_an_untouched_skeleton_reads_kindly(self) -> None:
        for name in ("fused_cpu", "measure"):
            self.fake(name, [case("a", "not_started"), case("b", "not_started")])
        code, seen = self.lab("check")
        self.assertEqual(code, 1)
        self.assertEqual(seen, """\
$ build/default/bin/part1_fused_cpu_skeleton_tests --seed 1
$ build/default/bin/part1_measure_skeleton_tests --seed 1

part1  Fused softmax-matmul
  CUDA tasks: not run (no GPU here, and no emulator)
  warm-up  puzzle      One number a head             needs a GPU       no points
  1.A      fused_cpu   Fused softmax-matmul in C++   not started       0 of 1         0 of 2 cases
  1.A      fused_cuda  Fused softmax-matmul in CUDA  needs a GPU       not counted
  1.B      measure     How to measure                not started       0 of 4         0 of 2 cases

part1: 0 of 5 points; 3 points need a GPU or the emulator: not counted here
Next: open part1_softmax_matmul/skeleton/fused_cpu.cpp and fill in its TODOs; ./lab hint fused_cpu has a hint
""")

    def test_what_is_wrong_and_what_to_type(self) -> None:
        self.fake("fused_cpu", [case("even: 64 x 64 x 64"), case("ragged: 33 x 47 x 65", "failed", message=OVER),
                                case("large logits", "crash", print="about to divide")])
        self.broken["part1_measure_skeleton_tests"] = "part1_softmax_matmul/skeleton/measure.cpp:12:3: error: expected ';'"
        code, seen = self.lab("check", "fused_cpu", "measure", "--seed", "3")
        self.assertEqual(code, 1)
        self.assertEqual(seen, """\
$ build/default/bin/part1_fused_cpu_skeleton_tests --seed 3

part1  Fused softmax-matmul  (seed 3)
  1.A  fused_cpu  Fused softmax-matmul in C++  crashed           0.33 of 1      1 of 3 cases
      wrong: ragged: 33 x 47 x 65
          relative error 0.31 is above 1.1e-06
            first wrong at (0, 32, 0), in block (2, 0): got 0.5, must be 0.25
            every row from 32 on
      crashed: large logits
          crashed with signal 11 (segmentation fault: an index or a pointer outside of its memory)
          it printed:
          | about to divide
  1.B  measure    How to measure               does not compile  0 of 4
      part1_softmax_matmul/skeleton/measure.cpp:12:3: error: expected ';'
      4 points lost until it compiles; the compiler's words: cmake --build build/default --target part1_measure_skeleton_tests

part1: 0.33 of 5 points
Next: ./lab check fused_cpu --test "ragged: 33 x 47 x 65" --seed 3
""")

    def test_three_failures_in_full(self) -> None:
        self.fake("fused_cpu", [case(f"case {n}", "failed", message=f"verdict {n}") for n in range(7)])
        seen = self.lab("check", "fused_cpu")[1]
        self.assertIn("verdict 2", seen)
        self.assertNotIn("verdict 3", seen)
        self.assertIn("\n      and 4 more: --all-failures\n", seen)
        seen = self.lab("check", "fused_cpu", "--all-failures")[1]
        self.assertIn("verdict 6", seen)
        self.assertNotIn("more:", seen)

    def test_a_challenge_is_shown_without_points(self) -> None:
        open_ = case("memory grows no faster", "failed", weight=0, challenge=True, message="too much\nat 1024")
        self.fake("fused_cpu", [case("a"), open_])
        seen = self.lab("check", "fused_cpu")[1]
        self.assertIn("1 of 1         1 of 1 cases\n      challenge open: memory grows no faster (no points)\n          too much\n", seen)
        self.assertNotIn("at 1024", seen)
        self.fake("fused_cpu", [case("a"), {**open_, "do": "passed"}])
        self.assertIn("\n      challenge met: memory grows no faster\n", self.lab("check", "fused_cpu")[1])
        self.fake("fused_cpu", [case("a", "not_started"), {**open_, "do": "not_started"}])
        self.assertNotIn("challenge", self.lab("check", "fused_cpu")[1])

    def test_begun_work_comes_before_work_not_started(self) -> None:
        self.fake("fused_cpu", [case("a", "not_started")])
        self.fake("measure", [case("b", "failed", message="no warm-up")])
        self.assertTrue(self.lab("check")[1].endswith('Next: ./lab check measure --test "b" --seed 1\n'))

    def test_all_green(self) -> None:
        for name in ("fused_cpu", "measure"):
            self.fake(name, [case("a")])
        code, seen = self.lab("check")
        self.assertEqual(code, 0)
        self.assertTrue(seen.endswith("part1: 5 of 5 points; 3 points need a GPU or the emulator: not counted here\n"
                                      "All green. Next: ./lab bench part1 measures how fast it is\n"), seen)

    def test_a_green_task_leads_to_the_next(self) -> None:
        self.fake("fused_cpu", [case("a")])
        self.fake("measure", [case("a", "not_started")])
        self.lab("check")
        code, seen = self.lab("check", "fused_cpu")
        self.assertEqual(code, 0)
        self.assertTrue(seen.endswith("Next: open part1_softmax_matmul/skeleton/measure.cpp and fill in its TODOs; "
                                      "./lab hint measure has a hint\n"), seen)

    def test_only_a_gpu_can_tell(self) -> None:
        code, seen = self.lab("check", "fused_cuda")
        self.assertEqual(code, 0)
        self.assertEqual(seen, """\
part1  Fused softmax-matmul
  CUDA tasks: not run (no GPU here, and no emulator)
  1.A  fused_cuda  Fused softmax-matmul in CUDA  needs a GPU       not counted

part1: 0 of 0 points; 3 points need a GPU or the emulator: not counted here
Nothing of this can run here: it needs a GPU, or the emulator (Linux on x86-64 or AArch64).
""")

    def test_the_solution(self) -> None:
        self.fake("fused_cpu", [case("a"), case("b", "failed", message="x")], "solution")
        code, seen = self.lab("check", "fused_cpu", "--solution")
        self.assertEqual(code, 1)
        self.assertIn("part1  Fused softmax-matmul  (the solution)\n", seen)
        self.assertTrue(seen.endswith('Next: ./lab check fused_cpu --test "b" --seed 1 --solution\n'))
        self.assertFalse((self.root / ".lab").exists())  # not the student's progress

    def test_a_verdict_with_markup_is_shown_as_it_is(self) -> None:
        self.fake("fused_cpu", [case("a", "failed", message="x[0] is [red]1[/red]; must be [2]")])
        self.assertIn("x[0] is [red]1[/red]; must be [2]", self.lab("check", "fused_cpu")[1])


class OneCase(Course):
    def setUp(self) -> None:
        super().setUp()
        self.fake("fused_cpu", [case("even: 64 x 64 x 64"),
                                case("ragged: 33 x 47 x 65", "failed", message=OVER, print="m = -inf")])
        self.fake("measure", [case("warm-up")])

    def test_its_whole_verdict(self) -> None:
        code, seen = self.lab("check", "fused_cpu", "--test", "ragged: 33 x 47 x 65", "--seed", "1")
        self.assertEqual(code, 1)
        self.assertEqual(seen, """\
$ build/default/bin/part1_fused_cpu_skeleton_tests --seed 1 --case 'ragged: 33 x 47 x 65'

part1  Fused softmax-matmul
  1.A  fused_cpu  Fused softmax-matmul in C++  wrong
      wrong: ragged: 33 x 47 x 65
          relative error 0.31 is above 1.1e-06
            first wrong at (0, 32, 0), in block (2, 0): got 0.5, must be 0.25
            every row from 32 on
          it printed:
          | m = -inf

Next: edit part1_softmax_matmul/skeleton/fused_cpu.cpp and run the same again; ./lab hint fused_cpu has a hint
""")

    def test_a_pass(self) -> None:
        code, seen = self.lab("check", "part1", "--test", "even: 64 x 64 x 64")
        self.assertEqual(code, 0)
        self.assertIn("      passed: even: 64 x 64 x 64\n", seen)
        self.assertTrue(seen.endswith("Next: ./lab check fused_cpu\n"))

    def test_an_unknown_name(self) -> None:
        code, seen = self.lab("check", "--test", "ragged")
        self.assertEqual(code, 1)
        self.assertEqual(seen, """\
The cases of puzzle, fused_cpu, fused_cuda, measure:
  even: 64 x 64 x 64
  ragged: 33 x 47 x 65
  warm-up
  (puzzle needs a GPU)
  (fused_cuda needs a GPU or the emulator)
lab: no case is called "ragged" (did you mean "ragged: 33 x 47 x 65"?); the cases are listed above
""")

    def test_a_task_that_does_not_compile(self) -> None:
        self.broken["part1_fused_cpu_skeleton_tests"] = "fused_cpu.cpp:1: error: x"
        code, seen = self.lab("check", "fused_cpu", "--test", "ragged")
        self.assertEqual((code, seen), (1, "lab: fused_cpu does not compile: fused_cpu.cpp:1: error: x\n"))


class Arguments(Course):
    def test_wrong_ones_are_one_line(self) -> None:
        self.assertEqual(self.lab("check", "part9"), (1, 'lab: no part or task is called "part9" (did you mean "part1"?); '
                                                         "there are part1, puzzle, fused_cpu, fused_cuda, measure\n"))
        self.assertEqual(self.lab("check", "--seed", "-1"),
                         (1, "lab: --seed is -1; it must be at least 0, with at most 18 digits\n"))
        code, seen = self.lab("check", "--seed", "x")
        self.assertEqual((code, seen.count("\n")), (2, 1))
