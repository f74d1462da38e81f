"""`./lab check`: the card as a student reads it, the next command, the exit code."""

import textwrap

from course import CRASH, Course, case

OVER = """\
relative error 0.31 is above 1.1e-06
first wrong at (0, 32, 0), in block (2, 0): got 0.5, must be 0.25
every row from 32 on"""
OVER_SHOWN = textwrap.indent(OVER, " " * 12)[2:] + "\n"
RAGGED = "ragged: 33 x 47 x 65"
COMMAND = "$ build/default/bin/part1_fused_cpu_skeleton_tests --seed"


class Card(Course):
    def test_an_untouched_skeleton(self):
        for name in ("fused_cpu", "measure"):
            self.fake(name, [case("a", "not_started"), case("b", "not_started")])
        self.prints("check", f"""\
{COMMAND} 1
$ build/default/bin/part1_measure_skeleton_tests --seed 1

part1  Fused softmax-matmul
  CUDA tasks: not run (no GPU here, and no emulator)
  warm-up  puzzle      One number a head             needs a GPU       no points
  1.A      fused_cpu   Fused softmax-matmul in C++   not started       0 of 1         0 of 2 cases
  1.A      fused_cuda  Fused softmax-matmul in CUDA  needs a GPU       not counted
  1.B      measure     How to measure                not started       0 of 4         0 of 2 cases

part1: 0 of 5 points; 3 points need a GPU or the emulator: not counted here
Next: open part1_softmax_matmul/skeleton/fused_cpu.cpp and fill in its TODOs; \
./lab hint fused_cpu has a hint
""", code=1)

    def test_what_is_wrong_and_what_to_type(self):
        self.fake("fused_cpu", [case("even: 64 x 64 x 64"), case(RAGGED, "failed", message=OVER),
                                case("large", run=f"print('about to divide'); {CRASH}")])
        error = "part1_softmax_matmul/skeleton/measure.cpp:12:3: error: expected ';'"
        self.broken["part1_measure_skeleton_tests"] = error
        self.prints("check fused_cpu measure --seed 3", f"""\
{COMMAND} 3

part1  Fused softmax-matmul  (seed 3)
  1.A  fused_cpu  Fused softmax-matmul in C++  crashed           0.33 of 1      1 of 3 cases
      wrong: {RAGGED}
{OVER_SHOWN}\
      crashed: large
          crashed with signal 11 (segmentation fault: an index or a pointer outside of its memory)
          it printed:
          | about to divide
  1.B  measure    How to measure               does not compile  0 of 4
      {error}
      4 points lost until it compiles. Full compiler output: \
cmake --build build/default --target part1_measure_skeleton_tests

part1: 0.33 of 5 points
Next: ./lab check fused_cpu --test "{RAGGED}" --seed 3
""", code=1)

    def test_three_failures_in_full(self):
        self.fake("fused_cpu", [case(f"case {n}", "failed", message=f"[{n}] [red]")
                                for n in range(7)])
        seen = self.lab("check fused_cpu")[1]
        self.assertIn("[2] [red]\n      and 4 more: --all-failures\n", seen)
        seen = self.lab("check fused_cpu --all-failures")[1]
        self.assertIn("[6] [red]\n\n", seen)

    def test_a_challenge_is_shown_without_points(self):
        for do, other, shown in (
            ("failed", "passed", "1 of 1         1 of 1 cases\n      challenge open: memory grows "
             "no faster (no points)\n          too much\n\n"),
            ("passed", "passed", "\n      challenge met: memory grows no faster\n"),
            ("not_started", "not_started", "0 of 1 cases\n\n"),
        ):
            challenge = case("memory grows no faster", do, weight=0, challenge=True,
                             message="too much\nat 1024")
            self.fake("fused_cpu", [case("a", other), challenge])
            self.assertIn(shown, self.lab("check fused_cpu")[1])

    def test_the_next_step(self):
        self.fake("fused_cpu", [case("a", "not_started")])
        self.fake("measure", [case("b", "failed")])  # begun, so it comes first
        self.assertEqual(self.last("check"), 'Next: ./lab check measure --test "b" --seed 1')
        self.green("fused_cpu")
        self.fake("measure", [case("a", "not_started")])
        todo = ("Next: open part1_softmax_matmul/skeleton/measure.cpp and fill in its TODOs; "
                "./lab hint measure has a hint")
        for line in ("check", "check fused_cpu"):
            self.assertEqual(self.last(line), todo)
        self.green("measure")
        elsewhere = "points; 3 points need a GPU or the emulator: not counted here\n"
        self.shows("check", f"part1: 5 of 5 {elsewhere}"
                   "All green. Next: ./lab bench part1 measures how fast it is\n")
        self.shows("check fused_cuda", f"part1: 0 of 0 {elsewhere}Nothing of this can run here: "
                   "it needs a GPU, or the emulator (Linux on x86-64 or AArch64).\n")

    def test_the_solution(self):
        self.fake("fused_cpu", [case("a"), case("b", "failed", message="x")], "solution")
        self.shows("check fused_cpu --solution", "part1  Fused softmax-matmul  (the solution)\n",
                   'check fused_cpu --test "b" --seed 1 --solution\n', code=1)
        self.assertFalse((self.root / ".lab").exists())  # not the student's progress


class OneCase(Course):
    def setUp(self):
        super().setUp()
        self.fake("fused_cpu", [case("even: 64 x 64 x 64"),
                                case(RAGGED, "failed", message=OVER, run="print('m = -inf')")])
        self.fake("measure", [case("warm-up")])

    def test_its_whole_verdict(self):
        self.prints(f"check fused_cpu --test '{RAGGED}' --seed 1", f"""\
{COMMAND} 1 --case '{RAGGED}'

part1  Fused softmax-matmul
  1.A  fused_cpu  Fused softmax-matmul in C++  wrong
      wrong: {RAGGED}
{OVER_SHOWN}\
          it printed:
          | m = -inf

Next: edit part1_softmax_matmul/skeleton/fused_cpu.cpp and run the same again; \
./lab hint fused_cpu has a hint
""", code=1)

    def test_an_unknown_name_lists_the_cases(self):
        self.prints("check --test ragged", f"""\
The cases of puzzle, fused_cpu, fused_cuda, measure:
  even: 64 x 64 x 64
  {RAGGED}
  warm-up
  (puzzle needs a GPU)
  (fused_cuda needs a GPU or the emulator)
lab: no case is called "ragged" (did you mean "{RAGGED}"?); the cases are listed above
""", code=1)

    def test_a_task_that_does_not_compile(self):
        self.broken["part1_fused_cpu_skeleton_tests"] = "fused_cpu.cpp:1: error: x"
        self.prints("check fused_cpu --test ragged",
                    "lab: fused_cpu does not compile: fused_cpu.cpp:1: error: x\n", code=1)

    def test_wrong_arguments_are_one_line(self):
        self.prints("check part9", 'lab: no part or task is called "part9" (did you mean '
                    '"part1"?); there are part1, puzzle, fused_cpu, fused_cuda, measure\n', code=1)
        self.prints("check --seed -1",
                    "lab: --seed is -1; it must be at least 0, with at most 18 digits\n", code=1)
