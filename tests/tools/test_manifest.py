"""lab.manifest: what a tasks.toml may say, how errors in it are reported, and what a name means."""

from course import MANIFEST, Course
from lab import manifest


class Loading(Course):
    def error(self, old, new):
        self.assertIn(old, MANIFEST)
        self.write("part1_softmax_matmul/tasks.toml", MANIFEST.replace(old, new, 1))
        return self.refused(manifest.load_parts)

    def test_the_bonus_comes_after_the_parts(self):
        for folder, name in (("bonus_backward", "bonus"), ("part2_flash_cpu", "part2")):
            self.write(f"{folder}/tasks.toml", MANIFEST.replace("part1", name))
        self.assertEqual([part.name for part in manifest.load_parts()], ["part1", "part2", "bonus"])
        self.write("part1_again/tasks.toml", MANIFEST)
        self.assertIn('part is "part1"; part1_again has that name already',
                      self.refused(manifest.load_parts))

    def test_errors_name_file_key_value_and_what_it_must_be(self):
        task = "part1.fused_cpu: "
        for old, new, message in (
            ("points = 1", "points = -1", f"{task}points is -1; it must be a number of at least 0"),
            ("points = 1", "", f"{task}points is missing; it must be a number of at least 0"),
            ("fused_cpu.cpp", "skeleton/fused_cpu.cpp",
             f'{task}file is "skeleton/fused_cpu.cpp"; it must be the name of a .cpp'),
            ('["One.", "Two."]', '["one"]',
             "part1.puzzle: hints is [\"one\"]; it must be a list of at least 2 texts"),
            ("points = 1", "point = 1", f'{task}unknown key "point" (did you mean "points"?)'),
            ("part1.fused_cpu", "fused_cpu",
             'fused_cpu: id is "fused_cpu"; it must be "part1." and a name'),
            ("part1.fused_cpu", "part1.measure",
             'id is "part1.measure" in 2 tasks; it must be unique'),
            ('part = "part1"', 'part = "Part 1"', 'part is "Part 1"; it must be lower-case'),
            ("points = 1", "points = ", "not valid TOML: "),
        ):
            with self.subTest(new):
                said = self.error(old, new)
                self.assertIn(f"part1_softmax_matmul/tasks.toml: {message}", said)


class Selecting(Course):
    def names(self, *names):
        return [task.name for task in manifest.select(manifest.load_parts(), names)]

    def test_what_a_name_means(self):
        everything = ["puzzle", "fused_cpu", "fused_cuda", "measure"]
        for names in ((), ("part1",), ("part1_softmax_matmul/",), ("fused_cpu", "part1")):
            self.assertEqual(self.names(*names), everything, names)
        self.assertEqual(self.names("1.b"), ["measure"])  # the label on the card
        for name in ("fused_cpu", "part1.fused_cpu", "fused_cpu.cpp",
                     "part1_softmax_matmul/skeleton/fused_cpu.cpp"):
            self.assertEqual(self.names(name), ["fused_cpu"], name)
        self.assertEqual(self.names("measure", "puzzle"), ["puzzle", "measure"])

    def test_names_that_mean_none_or_too_many(self):
        self.assertIn('no part or task is called "fused_cpp" (did you mean "fused_cpu"?)',
                      self.refused(self.names, "fused_cpp"))
        self.assertIn('"part1" is 4 tasks; reset takes one of them: puzzle, fused_cpu',
                      self.refused(manifest.select_one, manifest.load_parts(), "part1", "reset"))
        self.write("part2_flash_cpu/tasks.toml", MANIFEST.replace("part1", "part2"))
        self.assertIn('"measure" is a task of several parts; name one of part1.measure, '
                      'part2.measure', self.refused(self.names, "measure"))
        for folder in ("part1_softmax_matmul", "part2_flash_cpu"):
            (self.root / folder / "tasks.toml").unlink()
        self.assertIn("a part is a folder with a tasks.toml", self.refused(self.names))
