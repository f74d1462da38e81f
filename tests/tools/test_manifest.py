"""lab.manifest: what a tasks.toml may say, in which words it is refused, and what a name means."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from course import MANIFEST, Course  # noqa: E402

from lab import manifest  # noqa: E402
from lab.errors import LabError  # noqa: E402


class Loading(Course):
    def refused(self, old: str, new: str) -> str:
        self.assertIn(old, MANIFEST)
        self.write("part1_softmax_matmul/tasks.toml", MANIFEST.replace(old, new, 1))
        with self.assertRaises(LabError) as caught:
            manifest.load_parts()
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    def test_a_good_one(self) -> None:
        part, = manifest.load_parts()
        self.assertEqual((part.name, part.title, part.points), ("part1", "Fused softmax-matmul", 8))
        task = part.tasks[1]
        self.assertEqual((task.name, task.part, task.minutes, task.needs_gpu), ("fused_cpu", "part1", 60, False))
        self.assertEqual(task.target(), "part1_fused_cpu_skeleton_tests")
        self.assertEqual(task.target("solution"), "part1_fused_cpu_solution_tests")
        self.assertEqual([one.is_cuda for one in part.tasks], [True, False, True, False])
        self.assertEqual([part.tasks[2].target("solution", backend) for backend in ("gpu", "emulated", "checked")],
                         [f"part1_fused_cuda_solution{suffix}_tests" for suffix in ("", "_emulated", "_checked")])
        self.assertEqual(task.hints[2], "    l = l * alpha + sum(p)")
        self.assertEqual(manifest.lint_files(part), [])

    def test_the_bonus_comes_after_the_parts(self) -> None:
        for folder, name in (("bonus_backward", "bonus"), ("part2_flash_cpu", "part2")):
            self.write(f"{folder}/tasks.toml", MANIFEST.replace("part1", name))
        self.assertEqual([part.name for part in manifest.load_parts()], ["part1", "part2", "bonus"])

    def test_errors_name_file_key_value_and_what_it_had_to_be(self) -> None:
        where = "part1_softmax_matmul/tasks.toml: part1.fused_cpu: "
        cases = [
            ("points = 1", "points = -1", "points is -1; it must be a number of at least 0"),
            ("points = 1", "points = true", "points is true; it must be a number of at least 0"),
            ("points = 1", "", "points is missing; it must be a number of at least 0"),
            ('minutes = 60\nneeds_gpu = false\ntags = ["softmax', 'minutes = 0\nneeds_gpu = false\ntags = ["softmax',
             "minutes is 0; it must be a whole number above 0"),
            ("needs_gpu = false", 'needs_gpu = "no"', 'needs_gpu is "no"; it must be true or false'),
            ('file = "fused_cpu.cpp"', 'file = "skeleton/fused_cpu.cpp"',
             'file is "skeleton/fused_cpu.cpp"; it must be the name of a .cpp or .cu file, without a folder'),
            ('title = "Fused softmax-matmul in C++"', 'title = " "', 'title is " "; it must be a text that is not empty'),
            ('tags = ["softmax", "blocks"]', "tags = [1]", "tags is [1]; it must be a list of texts that are not empty"),
            ('["What does a row need to remember?", "m, l and d3 numbers.", "    l = l * alpha + sum(p)"]', '["one"]',
             "hints has 1 entry; it must have at least 2"),
        ]
        for old, new, message in cases:
            with self.subTest(new=new):
                self.assertEqual(self.refused(old, new), where + message)

    def test_a_misspelt_key(self) -> None:
        self.assertTrue(self.refused("points = 1", "point = 1").startswith(
            'part1_softmax_matmul/tasks.toml: part1.fused_cpu: unknown key "point" (did you mean "points"?); the keys are '))

    def test_ids(self) -> None:
        self.assertEqual(self.refused('id = "part1.fused_cpu"', 'id = "fused_cpu"'),
                         'part1_softmax_matmul/tasks.toml: fused_cpu: id is "fused_cpu"; it must be "part1." and a name of '
                         "lower-case letters, digits and underscores")
        self.assertEqual(self.refused('id = "part1.fused_cpu"', 'id = "part1.measure"'),
                         'part1_softmax_matmul/tasks.toml: id is "part1.measure" in 2 tasks; it must be unique')

    def test_not_toml(self) -> None:
        self.assertIn("part1_softmax_matmul/tasks.toml: not valid TOML: ", self.refused("points = 1", "points = "))

    def test_no_task(self) -> None:
        self.write("part1_softmax_matmul/tasks.toml", 'part = "part1"\ntitle = "T"\n')
        with self.assertRaisesRegex(LabError, r"tasks.toml: task is \[\]; it must be at least one \[\[task\]\]"):
            manifest.load_parts()

    def test_two_parts_of_one_name(self) -> None:
        self.write("part1_again/tasks.toml", MANIFEST)
        with self.assertRaisesRegex(LabError, 'part is "part1"; part1_again has that name already'):
            manifest.load_parts()


class Files(Course):
    def lint(self) -> list[str]:
        return manifest.lint_files(manifest.load_parts()[0])

    def test_a_missing_file(self) -> None:
        (self.part / "skeleton" / "measure.cpp").unlink()
        self.assertEqual(self.lint(), ['part1_softmax_matmul/tasks.toml: part1.measure: file is "measure.cpp"; '
                                       "part1_softmax_matmul/skeleton/measure.cpp does not exist"])

    def test_a_solution_that_no_task_lists(self) -> None:
        self.write("part1_softmax_matmul/solution/extra.cu", "")
        self.write("part1_softmax_matmul/solution/.fused_cpu.cpp.swp", "")
        self.assertEqual(self.lint(), ["part1_softmax_matmul/solution/extra.cu: "
                                       "no task in part1_softmax_matmul/tasks.toml lists it"])

    def test_a_release_has_no_solutions(self) -> None:
        for file in (self.part / "solution").iterdir():
            file.unlink()
        (self.part / "solution").rmdir()
        self.assertEqual(self.lint(), [])


class Selecting(Course):
    def names(self, *names: str) -> list[str]:
        return [task.name for task in manifest.select(manifest.load_parts(), names)]

    def test_what_a_name_means(self) -> None:
        everything = ["puzzle", "fused_cpu", "fused_cuda", "measure"]
        for names in ((), ("part1",), ("part1_softmax_matmul/",), ("fused_cpu", "part1")):
            self.assertEqual(self.names(*names), everything, names)
        for name in ("fused_cpu", "part1.fused_cpu", "fused_cpu.cpp", "part1_softmax_matmul/skeleton/fused_cpu.cpp"):
            self.assertEqual(self.names(name), ["fused_cpu"], name)
        self.assertEqual(self.names("measure", "puzzle"), ["puzzle", "measure"])

    def test_an_unknown_name(self) -> None:
        with self.assertRaises(LabError) as caught:
            self.names("fused_cpp")
        self.assertEqual(str(caught.exception), 'no part or task is called "fused_cpp" (did you mean "fused_cpu"?); '
                                                "there are part1, puzzle, fused_cpu, fused_cuda, measure")

    def test_a_name_in_two_parts(self) -> None:
        self.write("part2_flash_cpu/tasks.toml", MANIFEST.replace("part1", "part2"))
        with self.assertRaisesRegex(LabError, '"measure" is a task of several parts; say which: part1.measure, part2.measure'):
            self.names("measure")

    def test_one_task_only(self) -> None:
        with self.assertRaisesRegex(LabError, '"part1" is 4 tasks; reset takes one of them: puzzle, fused_cpu'):
            manifest.select_one(manifest.load_parts(), "part1", "reset")

    def test_no_part_at_all(self) -> None:
        (self.part / "tasks.toml").unlink()
        with self.assertRaisesRegex(LabError, "no part in .*: a part is a folder with a tasks.toml"):
            self.names()
