"""hint, list, reset, watch and skeletons: what a student or an author reads, and what happens to files."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

from course import SKELETON, Course  # noqa: E402

from lab import manifest, state  # noqa: E402
from lab.console import console  # noqa: E402
from lab.verbs import watch  # noqa: E402
from lab.verbs.hint import flowing  # noqa: E402


def case(name: str, do: str = "passed", **more: object) -> dict:
    return {"name": name, "do": do, **more}


class Hint(Course):
    def test_one_more_at_a_time(self) -> None:
        self.assertEqual(self.lab("hint", "fused_cpu"), (0, """\
fused_cpu  Fused softmax-matmul in C++  (part1_softmax_matmul/skeleton/fused_cpu.cpp)

hint 1 of 3
What does a row need to remember?

The next one: ./lab hint fused_cpu
"""))
        self.lab("hint", "fused_cpu")
        third = self.lab("hint", "fused_cpu")[1]
        self.assertTrue(third.endswith("\nhint 2 of 3\nm, l and d3 numbers.\n\nhint 3 of 3\n    l = l * alpha + sum(p)\n\n"
                                       "That was the last hint.\n"), third)
        fourth = self.lab("hint", "fused_cpu")[1]
        self.assertTrue(fourth.endswith("All 3 hints are shown. ./lab check fused_cpu says what is still wrong.\n"), fourth)

    def test_forget(self) -> None:
        self.lab("hint", "fused_cpu")
        self.lab("hint", "fused_cpu")
        self.assertEqual(self.lab("hint", "fused_cpu", "--forget"), (0, "fused_cpu: its 3 hints are hidden again\n"))
        self.assertIn("hint 1 of 3", self.lab("hint", "fused_cpu")[1])
        self.assertEqual(state.load().hints, {"part1.fused_cpu": 1})

    def test_without_a_task_the_first_unfinished_one(self) -> None:
        for driver, first in (("/usr/bin/nvidia-smi", "puzzle  "), (None, "fused_cpu  ")):  # with a GPU, and without
            with mock.patch("lab.advice.shutil.which", return_value=driver):
                self.assertTrue(self.lab("hint")[1].startswith(first))
        self.fake("fused_cpu", [case("a")])
        self.fake("measure", [case("a", "failed")])
        self.lab("check")
        self.assertTrue(self.lab("hint")[1].startswith("measure  "))
        self.assertTrue(self.lab("hint", "part1")[1].startswith("measure  "))

    def test_paragraphs_flow_and_code_does_not(self) -> None:
        hint = "a row\nremembers\n\nthe tile:\n  m = max(m, s)\n  l = 0\nand then\n- one\n- two\n3. three\n2 numbers"
        self.assertEqual(flowing(hint), "a row remembers\n\nthe tile:\n  m = max(m, s)\n  l = 0\nand then\n- one\n- two\n"
                                        "3. three 2 numbers")


class List(Course):
    def test_the_table(self) -> None:
        self.fake("fused_cpu", [case("a"), case("b", "failed")])
        self.fake("measure", [case("a")])
        self.lab("check", "fused_cpu", "measure")
        self.lab("hint", "fused_cpu")
        (self.part / "skeleton" / "measure.cpp").write_text("// edited")
        self.addCleanup(setattr, console, "width", console.width)
        console.width = 160
        code, seen = self.lab("list")
        self.assertEqual(code, 0)
        rows = [line.split("  ") for line in seen.splitlines()]
        rows = [[cell.strip() for cell in row if cell.strip()] for row in rows if "".join(row).strip(" -─")]
        self.assertEqual(rows, [
            ["task", "title", "points", "minutes", "hints", "in", "tags", "last check"],
            ["warm-up", "puzzle", "One number a head", "0", "45", "0/2", "CUDA, on a GPU", "CUDA", "never checked"],
            ["1.A", "fused_cpu", "Fused softmax-matmul in C++", "0.5 of 1", "60", "1/3", "C++", "softmax, blocks", "wrong"],
            ["1.A", "fused_cuda", "Fused softmax-matmul in CUDA", "3", "180", "0/2", "CUDA", "CUDA", "never checked"],
            ["1.B", "measure", "How to measure", "4 of 4", "60", "0/2", "C++", "timing", "passed, edited since"],
            ["[" + "#" * 22 + "-" * 18 + "]", "4.5 of 8 points, 1 of 4 tasks passed"],
        ])


class Reset(Course):
    def setUp(self) -> None:
        super().setUp()
        self.file = self.part / "skeleton" / "fused_cpu.cpp"
        self.skeleton = self.file.read_bytes()

    def backups(self) -> list[Path]:
        return [path for path in (self.root / ".lab" / "backup").rglob("*") if path.is_file()]

    def test_an_untouched_file(self) -> None:
        self.assertEqual(self.lab("reset", "fused_cpu"),
                         (0, "nothing to reset: part1_softmax_matmul/skeleton/fused_cpu.cpp equals the skeleton\n"))

    def test_the_old_file_is_kept(self) -> None:
        self.file.write_text("my work")
        code, seen = self.lab("reset", "fused_cpu", "--yes")
        kept, = self.backups()
        self.assertEqual((code, seen), (0, f"your version is kept: {kept.relative_to(self.root)}\n"
                                           "part1_softmax_matmul/skeleton/fused_cpu.cpp is the skeleton again\n"))
        self.assertEqual((kept.read_text(), self.file.read_bytes()), ("my work", self.skeleton))

    def test_it_asks(self) -> None:
        self.file.write_text("my work")
        read, write = os.pipe()
        saved = os.dup(0)
        os.dup2(read, 0)
        try:
            os.close(write)
            self.assertEqual(self.lab("reset", "fused_cpu")[0], 1)
        finally:
            os.dup2(saved, 0)
            for descriptor in (saved, read):
                os.close(descriptor)
        self.assertEqual((self.file.read_text(), self.backups()), ("my work", []))

    def test_a_file_that_is_gone_comes_back(self) -> None:
        self.file.unlink()
        self.assertEqual(self.lab("reset", "fused_cpu"),
                         (0, "part1_softmax_matmul/skeleton/fused_cpu.cpp is the skeleton again\n"))
        self.assertEqual(self.file.read_bytes(), self.skeleton)

    def test_a_release_takes_it_from_git(self) -> None:
        (self.part / "solution" / "fused_cpu.cpp").unlink()
        self.assertEqual(self.lab("reset", "fused_cpu", "--yes")[0], 1)
        git = ["git", "-c", "user.name=Student", "-c", "user.email=student@example.org"]
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "release"]):
            subprocess.run(git + command, cwd=self.root, check=True)
        self.file.write_text("my work")
        code, seen = self.lab("reset", "fused_cpu", "--yes")
        self.assertEqual((code, self.file.read_bytes()), (0, self.skeleton))
        self.assertTrue(seen.endswith("fused_cpu.cpp is the version of the last commit (git HEAD) again\n"), seen)

    def test_a_part_is_too_much(self) -> None:
        self.assertEqual(self.lab("reset", "part1"), (1, 'lab: "part1" is 4 tasks; reset takes one of them: puzzle, fused_cpu, '
                                                         "fused_cuda, measure\n"))


class Skeletons(Course):
    def test_no_drift(self) -> None:
        self.assertEqual(self.lab("skeletons", "--check"), (0, "4 skeletons equal the ones derived from solution/\n"))

    def test_drift_is_told_kindly(self) -> None:
        (self.part / "skeleton" / "fused_cpu.cpp").write_text("my work")
        self.assertEqual(self.lab("skeletons", "--check"), (1, """\
part1_softmax_matmul/skeleton/fused_cpu.cpp differs from the one derived from solution/.
If you are solving the task, that is as it should be: your command is ./lab check part1.
If you changed the solution, run ./lab skeletons.
"""))
        self.assertEqual((self.part / "skeleton" / "fused_cpu.cpp").read_text(), "my work")

    def test_writing(self) -> None:
        work = self.part / "skeleton" / "fused_cpu.cpp"
        work.write_text("my work")
        (self.part / "skeleton" / "measure.cpp").unlink()
        code, seen = self.lab("skeletons")
        self.assertEqual(code, 0)
        self.assertRegex(seen, r"""\Athe old one is kept: \.lab/backup/[0-9_-]+/part1_softmax_matmul/skeleton/fused_cpu\.cpp
wrote part1_softmax_matmul/skeleton/fused_cpu\.cpp
wrote part1_softmax_matmul/skeleton/measure\.cpp
4 skeletons, 2 of them written
\Z""")
        self.assertEqual(work.read_text(), SKELETON.format(name="fused_cpu"))

    def test_a_bad_marker_writes_nothing(self) -> None:
        (self.part / "skeleton" / "fused_cpu.cpp").write_text("my work")
        (self.part / "solution" / "measure.cpp").write_text("// END SOLUTION\n")
        code, seen = self.lab("skeletons")
        self.assertEqual((code, seen), (1, "lab: part1_softmax_matmul/solution/measure.cpp:1: END SOLUTION without a "
                                           "BEGIN SOLUTION before it\n"))
        self.assertEqual((self.part / "skeleton" / "fused_cpu.cpp").read_text(), "my work")

    def test_files_and_manifest_must_agree(self) -> None:
        extra = self.write("part1_softmax_matmul/solution/extra.cpp", "")
        line = "lab: part1_softmax_matmul/solution/extra.cpp: no task in part1_softmax_matmul/tasks.toml lists it\n"
        for command in (("skeletons",), ("skeletons", "--check")):
            self.assertEqual(self.lab(*command), (1, line))
        extra.unlink()
        (self.part / "skeleton" / "measure.cpp").unlink()
        code, seen = self.lab("skeletons", "--check")
        self.assertEqual((code, seen), (1, 'part1_softmax_matmul/tasks.toml: part1.measure: file is "measure.cpp"; '
                                           "part1_softmax_matmul/skeleton/measure.cpp does not exist\n"))


class Watch(Course):
    def watched(self, edit, *names: str) -> str:
        """What is seen of one round of watching while `edit` runs beside it."""
        def later() -> None:
            deadline = time.monotonic() + 20
            while not state.load().results and time.monotonic() < deadline:  # the check at the start is done
                time.sleep(0.02)
            time.sleep(0.3)
            edit()

        editor = threading.Thread(target=later)
        editor.start()
        seen = self.lab("watch", *names, "--once", "--interval", "0.05")[1]
        editor.join()
        return seen

    def setUp(self) -> None:
        super().setUp()
        for name in ("fused_cpu", "measure"):
            self.fake(name, [case("a", "not_started")])

    def test_a_save_checks_its_task(self) -> None:
        file = self.part / "skeleton" / "measure.cpp"
        seen = self.watched(lambda: file.write_text("// edited"), "part1")
        self.assertIn("\nwatching part1_softmax_matmul/ every 0.05 s; ctrl-C leaves\n"
                      "changed: part1_softmax_matmul/skeleton/measure.cpp\n", seen)
        second = seen.split("changed: ")[1]
        self.assertIn("1.B  measure", second)
        self.assertNotIn("fused_cpu", second.split("Next:")[0])

    def test_a_header_checks_the_part(self) -> None:
        seen = self.watched(lambda: self.write("part1_softmax_matmul/contract.hpp", "#pragma once"), "part1")
        second = seen.split("changed: ")[1]
        self.assertTrue(second.startswith("part1_softmax_matmul/contract.hpp\n"))
        self.assertIn("fused_cpu", second)
        self.assertIn("measure", second)

    def test_save_by_rename_is_one_change(self) -> None:
        file = self.part / "skeleton" / "measure.cpp"

        def rename() -> None:
            file.unlink()
            time.sleep(0.4)
            file.with_name(".measure.cpp.tmp").write_text("// edited")
            file.with_name(".measure.cpp.tmp").rename(file)

        seen = self.watched(rename, "measure")
        self.assertEqual(seen.count("changed: part1_softmax_matmul/skeleton/measure.cpp\n"), 1)
        self.assertNotIn("does not exist", seen)

    def test_a_broken_manifest_does_not_end_it(self) -> None:
        seen = self.watched(lambda: self.write("part1_softmax_matmul/tasks.toml", "part = "), "part1")
        self.assertIn("lab: part1_softmax_matmul/tasks.toml: not valid TOML", seen)

    def test_what_a_change_concerns(self) -> None:
        tasks = manifest.load_parts()[0].tasks

        def names(*paths: str) -> list[str]:
            return [task.name for task in watch.affected(tasks, [self.part / path for path in paths])]

        self.assertEqual(names("skeleton/measure.cpp"), ["measure"])
        self.assertEqual(names("skeleton/other.cpp"), [])
        self.assertEqual(len(names("skeleton/helper.hpp")), 4)
        self.assertEqual(len(names("given/online_softmax.cpp")), 4)
        self.write("part1_softmax_matmul/ladder/1.cpp", "")
        watched = {str(path.relative_to(self.part)) for path in watch.snapshot(tasks)}
        self.assertEqual(watched, {"tasks.toml", "skeleton/puzzle.cu", "skeleton/fused_cpu.cpp", "skeleton/fused_cuda.cu",
                                   "skeleton/measure.cpp"})

    def test_ctrl_c_leaves_quietly(self) -> None:
        with mock.patch.object(watch, "_wait", side_effect=KeyboardInterrupt):
            code, seen = self.lab("watch", "measure")
        self.assertEqual((code, seen.splitlines()[-1]), (0, "watching part1_softmax_matmul/ every 0.5 s; ctrl-C leaves"))

    def test_wrong_interval(self) -> None:
        self.assertEqual(self.lab("watch", "--interval", "0"),
                         (1, "lab: --interval is 0; it must be above 0 and at most 60 seconds\n"))
        self.assertEqual(self.lab("watch", "--interval", "nan")[0], 1)
