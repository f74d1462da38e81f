"""hint, list, reset, watch and skeletons: what a reader sees, and what happens to files."""

import io
import os
import sys
import threading
import time
from unittest import mock

from course import SKELETON, Course, Test, case
from lab import derive, disk, manifest, state, system
from lab.console import console
from lab.leaderboard import boards, machine
from lab.verbs.student import watch
from lab.verbs.student.hint import flowing

FUSED, MEASURE = (f"part1_softmax_matmul/skeleton/{name}.cpp" for name in ("fused_cpu", "measure"))


class Hint(Course):
    def test_one_more_at_a_time(self):
        hint = "hint fused_cpu"
        self.prints(hint, f"""\
fused_cpu  Fused softmax-matmul in C++  ({FUSED})

hint 1 of 3
What does a row need?

The next one: ./lab hint fused_cpu
""")
        self.lab(hint)
        self.shows(hint, "\nhint 2 of 3\nm, l and d3 numbers.\n\nhint 3 of 3\n"
                         "    l = l * alpha + sum(p)\n\nThat was the last hint.\n")
        self.shows(hint, "\nAll 3 hints are shown.")

    def test_without_a_task_the_first_unfinished_one(self):
        self.assertTrue(self.lab("hint")[1].startswith("puzzle  "))
        self.green("fused_cpu")
        self.fake("measure", [case("a", "failed")])
        self.lab("check")
        self.assertTrue(self.lab("hint part1")[1].startswith("measure  "))

    def test_paragraphs_flow_and_code_does_not(self):
        code = "\n\nthe tile:\n  m = max(m, s)\n  l = 0\nand then\n- one\n- two\n3. three"
        self.assertEqual(flowing(f"a row\nremembers{code}\n2 numbers"),
                         f"a row remembers{code} 2 numbers")


class List(Course):
    def test_the_table(self):
        self.fake("fused_cpu", [case("a"), case("b", "failed")])
        self.green("measure")
        self.lab("check fused_cpu measure")
        self.lab("hint fused_cpu")
        self.write(MEASURE, "// edited")
        self.addCleanup(setattr, console, "width", console.width)
        console.width = 160
        rows = [[cell.strip() for cell in line.split("  ") if cell.strip()]
                for line in self.lab("list")[1].splitlines() if line.strip(" -─")]
        self.assertEqual([", ".join(row) for row in rows], [
            "task, title, points, minutes, hints, in, last check",
            "warm-up, puzzle, One number a head, 0, 45, 0/2, CUDA, never checked",
            "1.A, fused_cpu, Fused softmax-matmul in C++, 0 of 1, 60, 1/3, C++, wrong",
            "1.A, fused_cuda, Fused softmax-matmul in CUDA, 3, 180, 0/2, CUDA, never checked",
            "1.B, measure, How to measure, 4 of 4, 60, 0/2, C++, passed, edited since",
            "[" + "#" * 20 + "-" * 20 + "], 4 of 8 points, 1 of 4 tasks passed"])

    def test_what_the_points_of_a_task_are_for_and_which_mistakes_are_named(self):
        self.shows("list fused_cpu", "\nfused_cpu: all 1\n")
        self.write("tests/wrong/fused_cpu.toml", """
[m]
edit = ["work();", ""]
case = "a case"
named = "scale missing"
""")
        self.shows("list fused_cpu", "scale missing", "a case")
        self.release(mistakes={"part1.fused_cpu": [["sum not rescaled", "another case"]]})
        self.shows("list fused_cpu", "sum not rescaled", "another case")


class Run(Course):
    def test_solutions_are_graded_and_measured_and_what_fails_is_named_at_the_end(self):
        self.patch(system, ensure=lambda yes: None)
        for name in ("fused_cpu", "measure"):
            self.fake(name, [case("a")], "solution")
        self.program("build/default/bin/bench_softmax_matmul")
        self.shows("run", "part1  Fused softmax-matmul  (the solution)", "part1: 5 of 5 points",
                   "./lab plot: outputs/csv has no results yet", code=1)
        self.assertEqual(self.called(), [["bench_softmax_matmul", "--quick"]])


class NothingInVain(Course):
    """What makes the work useless is said before anything is built."""

    def test_outputs_that_cannot_be_written(self):
        self.write("outputs", "a file where the folder should be")
        self.shows("bench", f"lab: {self.root}/outputs/csv cannot be written (", code=1)
        self.write("part1_softmax_matmul/ladder/1_x.cpp", "// Rung 1.\n")
        self.shows("rung 1_x", "/outputs/csv cannot be written (", code=1)
        self.write("here", "")
        self.shows(f"bench -- --d2=8 --output={self.root}/here/x.csv", "/here cannot be", code=1)
        self.patch(boards, find=lambda name: None)
        self.shows("submit part2-cpu --name ann", "/receipts cannot be written (", code=1)
        self.shows("leaderboard marks part2-cpu", "/marks cannot be written (", code=1)
        self.assertEqual(self.built, [])

    def test_a_machine_that_is_too_busy_for_a_board(self):
        self.patch(boards, find=lambda name: mock.Mock(device="cpu"))
        self.patch(machine, DISTURBED=-1)
        self.shows("submit part2-cpu --name ann", "the machine is busy: ",
                   "(--mode benchmark measures all the same)", code=1)
        self.shows("leaderboard marks part2-cpu", "the machine is busy: ", code=1)
        self.assertEqual(self.built, [])


class Reset(Course):
    def setUp(self):
        super().setUp()
        self.file = self.root / FUSED
        self.skeleton = self.file.read_bytes()

    def kept(self):
        return list((self.root / ".lab").glob("backup/**/*.cpp"))

    def test_the_old_file_is_kept(self):
        self.prints("reset fused_cpu", f"nothing to reset: {FUSED} equals the skeleton\n")
        self.file.write_text("my work")
        code, seen = self.lab("reset fused_cpu --yes")
        kept, = self.kept()
        self.assertEqual((code, seen), (0, f"your version is kept: {kept.relative_to(self.root)}\n"
                                           f"{FUSED} is the skeleton again\n"))
        self.assertEqual(self.file.read_bytes(), self.skeleton)
        self.file.write_text("more work")
        self.lab("reset fused_cpu --yes")
        self.assertEqual({file.read_text() for file in self.kept()}, {"my work", "more work"})
        self.file.unlink()
        self.prints("reset fused_cpu", f"{FUSED} is the skeleton again\n")

    def test_without_an_answer_nothing_is_changed(self):
        self.file.write_text("my work")
        self.patch(sys, stdin=io.StringIO())
        self.shows("reset fused_cpu", "nothing was changed (--yes resets without asking)\n", code=1)
        self.assertEqual((self.file.read_text(), self.kept()), ("my work", []))

    def test_where_nobody_kept_the_skeleton_it_says_so(self):  # a release did: test_release
        (self.part / "solution" / "fused_cpu.cpp").unlink()
        self.shows("reset fused_cpu --yes", f"lab: {FUSED} cannot be reset", code=1)


class Skeletons(Course):
    def test_drift_is_told_kindly(self):
        self.prints("skeletons --check", "4 skeletons equal the ones derived from solution/\n")
        work = self.write(FUSED, "my work")
        self.prints("skeletons --check", f"""\
{FUSED} differs from the one derived from solution/.
If you are solving the task, this is expected: your command is ./lab check part1.
If you changed the solution, run ./lab skeletons.
""", code=1)
        self.assertEqual(work.read_text(), "my work")

    def test_writing(self):
        work = self.write(FUSED, "my work")
        (self.root / MEASURE).unlink()
        code, seen = self.lab("skeletons")
        self.assertRegex(seen, rf"""\Athe old one is kept: \.lab/backup/[0-9_.-]+/{FUSED}
wrote {FUSED}
wrote {MEASURE}
4 skeletons, 2 of them written
\Z""")
        self.assertEqual((code, work.read_text()), (0, SKELETON.format(name="fused_cpu")))

    def test_an_error_writes_nothing(self):
        work = self.write(FUSED, "my work")
        solution = self.part / "solution" / "measure.cpp"
        text = solution.read_text()
        shown = "lab: part1_softmax_matmul/solution/measure.cpp"
        throws = f"{shown}: its skeleton throws NotYetImplemented of"
        for changed, said in (
            ("// END SOLUTION\n", f"{shown}:1: END SOLUTION does not fit"),
            (text.replace("part1.measure", "part1.fused_cpu"), f'{throws} "part1.fused_cpu";'),
            (text.replace("STUB throw", "throw"), f"{throws} nothing;"),
        ):
            solution.write_text(changed)
            self.shows("skeletons", said, code=1)
        self.assertEqual(work.read_text(), "my work")

    def test_files_and_manifest_must_agree(self):
        extra = self.write("part1_softmax_matmul/solution/extra.cpp", "")
        self.write("part1_softmax_matmul/solution/.fused_cpu.cpp.swp", "")
        for line in ("skeletons", "skeletons --check"):
            self.prints(line, "lab: part1_softmax_matmul/solution/extra.cpp: no task in "
                              "part1_softmax_matmul/tasks.toml lists it\n", code=1)
        extra.unlink()
        (self.root / MEASURE).unlink()
        self.shows("skeletons --check",
                   f'part1.measure: file is "measure.cpp"; {MEASURE} does not exist\n', code=1)


class Markers(Test):
    """lab.derive; the skeletons of the course are compared by `./lab skeletons --check`."""

    def test_every_other_byte_stays(self):
        body = b"\xff caf\xc3\xa9 \x0c\x0b\xe2\x80\xa8 trailing  \r\n\r\nno newline at the end"
        file = self.folder() / "f"
        file.write_bytes(b"// BEGIN SOLUTION p\r\nx\r\n// END SOLUTION\r\n" + body)
        disk.write_exact(file, derive.derive(disk.read_exact(file), "f"))
        self.assertEqual(file.read_bytes(), b"// TODO p\r\n" + body)

    def test_malformed_markers(self):
        begin, end = "// BEGIN SOLUTION a\n", "// END SOLUTION\n"
        for solution, said in (
            (begin + begin + end, "1: BEGIN SOLUTION does not fit: a region is"),
            ("x\n" + begin, "2: BEGIN SOLUTION does"),
            (begin + "x\n" + end + "x\n" + end, "5: END SOLUTION does"),
            ("// BEGIN SOLUTION \n" + end, "1: BEGIN SOLUTION does"),
            (begin + "// END SOLUTION b\n", "1: BEGIN SOLUTION does"),
            (begin + "x;\n// STUB y;\n" + end, "1: BEGIN SOLUTION does"),
            (begin + "// STUB \n" + end, "1: BEGIN SOLUTION does"),
            (begin + end + "int x; // STUB y;\n", "3: // STUB does"),
            ("int x; " + begin + end, "1: BEGIN SOLUTION does"),
            ("int x;\n", "1: no BEGIN SOLUTION in this file"),
        ):
            self.assertIn(f"f.cu:{said}", self.refused(derive.derive, solution, "f.cu"))


class State(Course):
    def test_a_damaged_file_ends_nothing(self):
        for damaged in ("{", '{"hints": 1, "results": [1]}', '{"results": {"a": 1}}'):
            self.write(".lab/state.json", damaged)
            self.assertEqual(self.printed(state.load), (
                state.State(),
                ".lab/state.json is damaged: progress and hints start anew\n"))

    def test_a_state_that_cannot_be_written_ends_nothing(self):
        self.write(".lab", "a file where the folder should be")
        self.shows("hint measure", "hint 1 of 2", "progress is not kept")


class Watch(Course):
    def setUp(self):
        super().setUp()
        self.patch(watch, INTERVAL=0.05)
        for name in ("fused_cpu", "measure"):
            self.fake(name, [case("a", "not_started")])

    def watched(self, edit, name="part1", begun=lambda: state.load().results):
        """What is seen until the check that `edit` causes has ended. The edit happens when `begun`
        is true: by itself, after the first check."""
        def later():
            deadline = time.monotonic() + 20
            while not begun() and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.3)
            edit()

        editor = threading.Thread(target=later)
        editor.start()
        wait = watch._wait
        with mock.patch.object(watch, "_wait", side_effect=[  # then ctrl-C
                mock.DEFAULT, KeyboardInterrupt], wraps=wait):
            code, seen = self.lab(f"watch {name}")
        editor.join()
        self.assertEqual(code, 0)
        return seen.split("\nchanged: ")

    def test_a_save_checks_its_task(self):
        before, seen = self.watched(lambda: self.write(MEASURE, "// edited"))
        self.assertIn("\nwatching part1_softmax_matmul/; ctrl-C leaves", before)
        self.assertTrue(seen.startswith(f"{MEASURE}\n"))
        self.assertIn("1.B  measure", seen)
        self.assertNotIn("fused_cpu", seen.split("Next:")[0])

    def test_save_by_rename_is_one_change(self):
        def rename():
            (self.root / MEASURE).unlink()
            time.sleep(0.4)
            os.rename(self.write(f"{MEASURE}.tmp", "// edited"), self.root / MEASURE)

        _, seen = self.watched(rename, "measure")
        self.assertTrue(seen.startswith(f"{MEASURE}\n"))
        self.assertNotIn("does not exist", seen)

    def test_a_save_ends_the_check_that_is_under_way(self):
        self.fake("measure", [case("a", run="time.sleep(60)")])
        begin = time.monotonic()

        def save():
            self.green("measure")
            self.write(MEASURE, "// edited")

        stopped, checked = self.watched(
            save, "measure", (self.root / f"{self.target('measure')}.calls").exists)
        self.assertLess(time.monotonic() - begin, 20)  # the case that it ended takes 60 s
        self.assertIn("stopped, because a file was saved\n", stopped)
        self.assertIn("passed            4 of 4", checked)

    def test_a_broken_manifest_does_not_end_it(self):
        _, seen = self.watched(lambda: self.write("part1_softmax_matmul/tasks.toml", "part = "))
        self.assertIn("tasks.toml: not valid TOML", seen)

    def test_what_a_change_concerns(self):
        tasks = manifest.load_parts()[0].tasks
        for path, count in (("skeleton/measure.cpp", 1), ("skeleton/x.cpp", 0), ("given/a.cpp", 4)):
            self.assertEqual(len(watch.affected(tasks, [self.part / path])), count, path)
        self.write("part1_softmax_matmul/ladder/1.cpp", "")
        self.assertEqual({path.parent.name for path in watch.snapshot(tasks)},
                         {self.part.name, "skeleton"})
