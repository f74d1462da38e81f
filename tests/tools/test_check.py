"""`./lab check`: the card as a student reads it, the next command, the exit code."""

import re
import textwrap
from unittest import mock

from course import MANIFEST, Course, case
from lab import build, released, state
from lab.submission import at_home

OVER = """\
relative error 0.31 is above 1.1e-06
first wrong at (0, 32, 0), in block (2, 0): got 0.5, must be 0.25
every row from 32 on"""
OVER_SHOWN = textwrap.indent(OVER, " " * 12)[2:] + "\n"
RAGGED = "ragged: 33 x 47 x 65"
JUDGE = "$ build/default/bin/part1_judge --task part1"
LIBRARY = "--library build/default/lib/libpart1"
COMMAND = f"{JUDGE}.fused_cpu {LIBRARY}_fused_cpu_skeleton.so --seed"
SEGFAULT = "crashed with signal 11 (segmentation fault)"


class Card(Course):
    def test_an_untouched_skeleton(self):
        for name in ("fused_cpu", "measure"):
            self.fake(name, [case("a", "not_started"), case("b", "not_started")])
        self.prints("check", f"""\
{COMMAND} 1
{JUDGE}.measure {LIBRARY}_measure_skeleton.so --seed 1

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

    def test_an_unfinished_task_shows_the_points_of_its_requirements(self):
        self.fake("fused_cpu", [case("a"), case("b", "not_started")])
        self.shows("check fused_cpu", "unfinished        0 of 1         1 of 2 cases\n"
                   "      all 0 of 1\n", code=1)

    def test_what_is_wrong_and_what_to_type(self):
        self.fake("fused_cpu", [
            case("even: 64 x 64 x 64"), case(RAGGED, "failed", message=OVER),
            case("large", "crashed", message=SEGFAULT, output="about to divide")])
        error = "part1_softmax_matmul/skeleton/measure.cpp:12:3: error: expected ';'"
        self.broken["part1_measure_skeleton"] = error
        self.prints("check fused_cpu measure --seed 3", f"""\
{COMMAND} 3

part1  Fused softmax-matmul  (seed 3)
  1.A  fused_cpu  Fused softmax-matmul in C++  crashed           0 of 1         1 of 3 cases
      all 0 of 1
      wrong: {RAGGED}  (all)
{OVER_SHOWN}\
      crashed: large  (all)
          {SEGFAULT}
          it printed:
          | about to divide
  1.B  measure    How to measure               does not compile  0 of 4
      {error}
      4 points lost until it compiles. Full compiler output: \
cmake --build build/default --target part1_measure_skeleton

part1: 0 of 5 points
Next: ./lab check fused_cpu --case "{RAGGED}" --seed 3
""", code=1)

    def test_a_mistake_that_has_a_name(self):
        self.write("tests/harness/diagnosis/hints.toml", 'rescaling = "Look at l."')
        self.fake("fused_cpu", [
            case("simple", "failed", message="2 of 4"),
            case("named", "failed", message="3 of 4", then={
                "diagnosis": {"name": "sum not rescaled", "kind": "rescaling",
                              "text": "It is l."},
                "explainable": {}, "explanation": {"text": "  m = 1\n  l = 2"}})])
        hint = "hint fused_cpu"
        self.assertIn("hint 1 of 3", self.lab(hint)[1])
        self.shows("check fused_cpu", 'Next: ./lab check fused_cpu --case "named" --seed 1\n'
                   "      ./lab hint fused_cpu has a hint for this mistake\n"
                   "      ./lab check fused_cpu --explain shows it with small numbers, if it can\n", code=1)
        self.shows(hint, "\nhint for what the last check found: sum not rescaled\nLook at l.\n")
        self.shows(hint, "hint 2 of 3")
        self.shows("check fused_cpu --explain", "\nfused_cpu: named\nIt is l.\n",
                   "that still fails, otherwise like that case:\n  m = 1\n  l = 2\n", code=1)
        self.lab("check fused_cpu")
        self.lab("check fused_cpu --case simple")  # the last check, and it named no mistake
        self.shows(hint, "hint 3 of 3")
        self.write("tests/harness/diagnosis/hints.toml", 'strides = "Whose strides?"\n'
                   'rescaling = "Look at l."')
        self.fake("fused_cpu", [case("strides: spread out", "failed")])
        self.lab("check fused_cpu")
        self.shows(hint, '\nhint for what the last check found: "strides: spread out" fails\n'
                   "Whose strides?\n")
        self.fake("fused_cpu", [case("kernel 2: the bound", "failed")])
        self.lab("check fused_cpu")
        self.shows(hint, '\nhint for what the last check found: "kernel 2: the bound" fails\n'
                   "m, l and d3 numbers.\n")
        self.fake("fused_cpu", [case("named", "failed", message="3 of 4", then={
            "diagnosis": {"name": "sum not rescaled", "kind": "rescaling", "text": "It is l."}})])
        self.lab("check fused_cpu --case named")
        self.shows(hint, "\nhint for what the last check found: sum not rescaled\n")
        wrong = case("simple", "failed", message="2 of 4 elements are wrong: y")
        self.fake("fused_cpu", [{**wrong, "then": {"explainable": {}}}])
        self.assertIn("--explain shows it", self.last("check fused_cpu"))
        self.fake("fused_cpu", [wrong])
        self.assertNotIn("--explain", self.last("check fused_cpu"))
        self.shows("check fused_cpu --explain",
                   "--explain does not apply to what failed in fused_cpu: ", code=1)
        self.green("fused_cpu")
        self.shows("check fused_cpu --explain", "no case failed, so there is nothing to explain")

    def test_warnings_of_the_compiler_are_shown_once_it_has_compiled(self):
        self.fake("fused_cpu", [case("a", "failed")])
        file = "part1_softmax_matmul/skeleton/fused_cpu.cpp"
        log = (f"/x/{file}: In function 'f':\n"
               f"/x/{file}:31:7: warning: 'sum' may be used uninitialized [-Wmaybe-uninitialized]\n"
               f"{file}(40): warning #177-D: variable \"n\" was never used\n"
               "/x/common/tensor.hpp:3:1: warning: not the student's\n")
        warned = f"""\
      warning: {file}:31: 'sum' may be used uninitialized [-Wmaybe-uninitialized]
      warning: {file}:40: variable "n" was never used
      wrong: a  (all)
"""
        line = "check fused_cpu"
        built = build.BuildResult(True, "", 2 * log)
        with mock.patch.object(build, "build", lambda *_, **__: built):
            self.shows(line, warned, code=1)
        self.assertNotIn("warning", self.lab(line)[1])  # nothing to compile

    def test_a_crash_under_the_sanitizers(self):
        self.asan = "libasan.so"
        clue = ("AddressSanitizer: heap-buffer-overflow at "
                "part1_softmax_matmul/skeleton/fused_cpu.cpp:31")
        self.fake("fused_cpu", [case("a", "crashed", message=f"{SEGFAULT}\n{clue}")])
        again = './lab check fused_cpu --case "a" --seed 1 --sanitize'
        self.assertEqual(self.last("check fused_cpu"), f"Next: {again}")
        self.assertEqual(self.built.pop(), self.targets("fused_cpu", "cpu"))
        library = self.root / "build/default/lib/libpart1_fused_cpu_skeleton.so"
        library.parent.joinpath("sanitized").mkdir()
        library.rename(library.parent / "sanitized" / library.name)
        self.shows("check fused_cpu --sanitize", " -- env LD_PRELOAD=libasan.so ASAN_OPTIONS=",
                   f"      crashed: a  (all)\n          {clue}\n", f"Next: {again}\n", code=1)
        self.assertEqual(self.built.pop(), self.targets("fused_cpu", "cpu") +
                         " part1_fused_cpu_skeleton_sanitized")
        for message in ("It writes outside of `out`, to 1 place",
                        "1 of 4\n3 made from what lies outside of the inputs: a read", "1 of 4"):
            self.fake("fused_cpu", [case("a", "failed", message=message)])
            self.assertEqual(self.last("check fused_cpu").endswith(again), message != "1 of 4")

    def test_a_crash_under_the_sanitizers_is_not_the_tasks_state(self):
        self.asan = "libasan.so"
        self.green("fused_cpu")
        self.lab("check fused_cpu")
        library = self.root / "build/default/lib/libpart1_fused_cpu_skeleton.so"
        sanitized = "build/default/lib/sanitized/libpart1_fused_cpu_skeleton.so"
        self.write(sanitized, library.read_text())
        self.fake("fused_cpu", [case("a", "crashed", message=SEGFAULT)])
        library.replace(self.root / sanitized)
        self.lab("check fused_cpu --sanitize")
        self.assertEqual(state.load().results["part1.fused_cpu"].status, "passed")
        self.fake("fused_cpu", [case("a")], prologue="sys.exit('the runner does not start')")
        library.replace(self.root / sanitized)
        self.assertEqual(self.last("check fused_cpu --sanitize"), "lab: AddressSanitizer does not "
                         "start on this machine, so check without it: ./lab check fused_cpu")

    def test_a_given_file_that_was_changed(self):
        self.fake("fused_cpu", [case("a", "failed")])
        line, given = "check fused_cpu", "common/attention.hpp"
        own = "part1_softmax_matmul/skeleton/fused_cpu.cpp"
        names = given, own, "part1_softmax_matmul/README.md", "part9_other/given/x.hpp"
        words = f"you changed a given file: {given}; "
        files = {name: released.sha256(self.write(name, "given")) for name in names}
        self.assertNotIn("you changed", self.lab(line)[1])  # neither git nor a release's record
        self.commit()
        self.assertNotIn("you changed", self.lab(line)[1])
        for name in names:
            self.write(name, "changed")
        seen = self.lab(line)[1]
        self.assertIn(f"{words}git diff {given} shows how, git checkout HEAD {given} takes it "
                      "back\n", seen)
        self.assertEqual(seen.count("you changed"), 1)
        self.release(files=files, own=(own,))
        seen = self.lab(line)[1]
        self.assertIn(f"{words}take it from the release that your course handed out\n", seen)
        self.assertEqual(seen.count("you changed"), 1)

    def test_three_failures_in_full(self):
        self.fake("fused_cpu", [case(f"case {n}", "failed", message=f"[{n}] [red]")
                                for n in range(7)])
        seen = self.lab("check fused_cpu")[1]
        self.assertIn("[2] [red]\n      and 4 more: --all-failures\n", seen)
        seen = self.lab("check fused_cpu --all-failures")[1]
        self.assertIn("[6] [red]\n\n", seen)

    def test_of_several_findings_the_first_is_shown(self):
        found = [f"kernel f: a data race between f.cu:{n} and f.cu:9\nthread 0 reads"
                 for n in range(3)]
        self.fake("fused_cpu", [case("a", "failed", message="\n".join(found))])
        self.shows("check fused_cpu", "f.cu:0 and f.cu:9\n            thread 0 reads\n"
                   "          and 2 more findings: --case shows all\n\n", code=1)
        for text in (found, ["dK: 2 of 4\nfirst", "dV: 1 of 4"]):
            self.fake("fused_cpu", [case("a", "failed", message="\n".join(text))])
            self.shows("check fused_cpu --case a", *("\n" + " " * 10 + finding.replace(
                "\n", "\n" + " " * 12) + "\n" for finding in text), code=1)

    def test_what_a_class_refuses_is_refused_at_home(self):
        self.green("fused_cpu")
        with mock.patch.object(at_home, "findings", lambda *_: ["it uses `x` in line 3"]):
            self.shows("check fused_cpu", "refused", "\n      it uses `x` in line 3\n      A class' "
                       "grader does not run such a file: 1 point lost until it is gone.\n",
                       "\nNext: write it without that, then ./lab check fused_cpu\n", code=1)

    def test_the_cases_that_passed_are_a_clue(self):
        self.fake("fused_cpu", [case("causal: 1", "failed"), case("causal: 2", "failed"),
                                case("causal: 3"), case("b")])
        self.shows("check fused_cpu", "Only cases of one kind fail (causal: 2 of 3); all 1 others "
                   "pass.\n", code=1)
        self.fake("fused_cpu", [case("causal: 1", "failed"), case("b", "failed"), case("c")])
        self.assertNotIn("of one kind", self.lab("check fused_cpu")[1])

    def test_the_next_step(self):
        self.fake("fused_cpu", [case("a", "not_started")])
        self.fake("measure", [case("b", "failed")])  # begun, so it comes first
        self.assertEqual(self.last("check"), 'Next: ./lab check measure --case "b" --seed 1')
        self.green("fused_cpu")
        self.assertEqual(self.last("check fused_cpu"), "Next: ./lab check measure")
        self.fake("measure", [case("a", "not_started")])
        self.lab("check measure")
        todo = ("Next: open part1_softmax_matmul/skeleton/measure.cpp and fill in its TODOs; "
                "./lab hint measure has a hint")
        for line in ("check", "check fused_cpu"):
            self.assertEqual(self.last(line), todo)
        skeleton = self.part / "skeleton/measure.cpp"
        text = skeleton.read_text()
        for without, what in ((text.replace("TODO", ""), "remove its throw NotYetImplemented(...)"),
                              ("", "write what is missing"),
                              ("// TODO raise\nconstexpr int kWritten = 3;\n", "write kernel 4; "
                               "the check runs it once you set kWritten to 4")):
            skeleton.write_text(without)
            self.assertEqual(self.last("check fused_cpu"), todo.replace("fill in its TODOs", what))
        skeleton.write_text(text)
        self.green("measure")
        elsewhere = "points; 3 points need a GPU or the emulator: not counted here\n"
        self.shows("check", f"part1: 5 of 5 {elsewhere}"
                   "All green. Next: ./lab bench part1 measures how fast it is\n")
        self.shows("check fused_cuda", f"part1: 0 of 0 {elsewhere}Nothing of this can run here: "
                   "it needs a GPU, or the emulator (Linux on x86-64 or AArch64).\n")

    def test_behind_a_warm_up_comes_the_next_one(self):
        self.write("part1_softmax_matmul/tasks.toml", re.sub(
            "points = [14]\nrequirements = .*", "points = 0\nrequirements = {}", MANIFEST))
        self.green("fused_cpu")
        self.fake("measure", [case("a", "not_started")])
        self.lab("check")
        self.assertIn("skeleton/measure.cpp and", self.last("check fused_cpu"))

    def test_the_solution(self):
        self.fake("fused_cpu", [case("a"), case("b", "failed", message="x")], "solution")
        self.shows("check fused_cpu --solution", "part1  Fused softmax-matmul  (the solution)\n",
                   'check fused_cpu --case "b" --seed 1 --solution\n', code=1)
        self.assertFalse((self.root / ".lab").exists())  # not the student's progress


class OneCase(Course):
    def setUp(self):
        super().setUp()
        self.fake("fused_cpu", [case("even: 64 x 64 x 64"),
                                case(RAGGED, "failed", message=OVER, output="m = -inf\n")])
        self.fake("measure", [case("warm-up")])

    def test_its_whole_verdict(self):
        self.prints(f"check fused_cpu --case '{RAGGED}' --seed 1", f"""\
{COMMAND} 1 --case '{RAGGED}'

part1  Fused softmax-matmul
  1.A  fused_cpu  Fused softmax-matmul in C++  wrong
      wrong: {RAGGED}  (all)
{OVER_SHOWN}\
          it printed:
          | m = -inf

Next: edit part1_softmax_matmul/skeleton/fused_cpu.cpp and run the same again; \
./lab hint fused_cpu has a hint
""", code=1)

    def test_an_unknown_name_lists_the_cases(self):
        self.prints("check --case ragged", f"""\
The cases of puzzle, fused_cpu, fused_cuda, measure with "ragged":
  {RAGGED}
  (puzzle needs a GPU or the emulator)
  (fused_cuda needs a GPU or the emulator)
lab: no case is called "ragged" (did you mean "{RAGGED}"?); the cases with "ragged" are listed above
""", code=1)
        self.prints("check fused_cpu --case nothing", f"""\
The cases of fused_cpu:
  even: 64 x 64 x 64
  {RAGGED}
lab: no case is called "nothing"; the cases are listed above
""", code=1)

    def test_what_cannot_be_done_is_one_line(self):
        self.broken["part1_fused_cpu_skeleton"] = "fused_cpu.cpp:1: error: x"
        in_cpp = ", and there are none in fused_cpu, measure: --sanitize checks C++"
        for line, said in (
            ("fused_cpu --case ragged", "fused_cpu does not compile: fused_cpu.cpp:1: error: x"),
            ("part9", 'no part or task is called "part9" (did you mean "part1"?); there are part1, '
             "puzzle, fused_cpu, fused_cuda, measure"),
            ("--case even --all-failures", "--all-failures does nothing beside --case, which shows "
             "the whole verdict of one case: leave one of them out"),
            ("--seed -1", "--seed is -1; it must be at least 0, with at most 18 digits"),
            ("fused_cpu measure --check-races", f"--check-races checks kernels{in_cpp}"),
            ("fused_cpu measure --emulate", f"--emulate runs kernels{in_cpp}"),
            ("fused_cuda --sanitize", "--sanitize checks C++, and there is none in fused_cuda: "
             "--check-races checks kernels"),
            ("fused_cpu --sanitize", "--sanitize needs g++ on Linux with its libasan, which this "
             "build does not have"),
            ("--emulate", "--emulate needs the emulator, which this build does not have: it takes "
             "Linux on x86-64 or AArch64, and a build without FLASH_SIMT=OFF"),
        ):
            self.prints(f"check {line}", f"lab: {said}\n", code=1)
        self.emulated, self.compiler = True, "Clang 14.0.6"
        self.prints("check --check-races", "lab: --check-races needs g++, whose instrumentation "
                    "finds the races, and build/default was configured with Clang 14.0.6: delete "
                    "build/default, and try again with CXX=g++ in front\n", code=1)
