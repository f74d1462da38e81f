"""At home and in class a program gets the same verdict in each case: solutions, and wrong and right
programs of the zoo.

It needs judges and runners in the build, and bubblewrap.
A solution, a right and a wrong program are tried, others each day; with FLASH_ALL_ATTACKS=1 all
solutions and right programs, and thirty wrong ones.
"""

import os
import unittest

from course import BUILD, Test
from lab import build, libraries, manifest, zoo
from lab.errors import LabError
from lab.outcomes import BUILD_FAILED, ELSEWHERE, NOT_RUN, PASSED, REFUSED
from lab.submission import at_home, judging, sandbox

ALL = bool(os.environ.get("FLASH_ALL_ATTACKS"))
KNOWN = libraries.load(BUILD)
TASKS = [task for task in manifest.select(manifest.load_parts())
         if judging.can_judge(task, BUILD) and zoo.can_run(task, KNOWN)]
# Some cases call two tasks' functions.
SOLUTIONS = {task.shown_path(): task.path("solution").read_bytes() for task in TASKS}


@unittest.skipUnless(TASKS, f"{BUILD} has no judges: build the target {judging.TARGET}")
class SameVerdicts(Test):
    def setUp(self):
        if trouble := sandbox.trouble():
            self.skipTest(trouble)
        self.bench = judging.set_up(TASKS, self.folder() / "headers", BUILD)

    def compared(self, member: zoo.Member) -> None:
        with self.subTest(member.id):
            seen = zoo.run(member, KNOWN, at_home.of_object)
            if member.kind == "right":
                self.assertEqual(seen.problems, [])
            home = {case.name: case for case in seen.result.cases}
            judged = judging.judge(member.task, member.source().encode(), self.bench, 1, SOLUTIONS)
            self.assertEqual(judged.status, REFUSED if seen.refused else judging.GRADED,
                             judged.message)
            if seen.refused:
                return
            here = {case.name: case for case in judged.cases}
            self.assertEqual([*home], [*here])
            for name, case in home.items():
                if case.status not in (*ELSEWHERE, NOT_RUN) and here[name].status != NOT_RUN:
                    self.assertEqual((case.status == PASSED, case.diagnosis),
                                     (here[name].status == PASSED, here[name].diagnosis),
                                     f"{name}\nat home: {case.message}\n"
                                     f"in class: {here[name].message}")

    def test_solutions(self):
        solutions = [zoo.Member("right", task, "solution", ()) for task in TASKS]
        for member in zoo.sample(solutions, len(TASKS) if ALL else 1):
            self.compared(member)

    def test_a_file_without_its_last_line_is_not_run(self):
        task = TASKS[0]
        last = task.path("solution").read_text().splitlines()[-1]
        member = zoo.Member("wrong", task, "no_entry", (last, ""))
        with self.assertRaises(LabError) as caught:
            zoo.compile_member(member, zoo.HERE.of(task), KNOWN)
        self.assertIn(build.LACKS_ENTRY, str(caught.exception))
        judged = judging.judge(task, member.source().encode(), self.bench)
        self.assertEqual((judged.status, judged.message), (BUILD_FAILED, task.lacks_entry()))
        self.assertTrue(judged.message.endswith(f"write at the end of the file: {last}"))

    def test_right_programs(self):
        right = [member for member in zoo.load(TASKS) if member.kind == "right"]
        for member in zoo.sample(right, len(right) if ALL else 1):
            self.compared(member)

    def test_wrong_programs(self):
        wrong = [member for member in zoo.load(TASKS) if member.kind == "wrong"]
        for member in zoo.sample(wrong, 30 if ALL else 1):
            self.compared(member)
