"""The same verdicts at home and in class: each solution and a sample of wrong programs, run by the
judge with the plain runner and with the sandboxed one, compared case by case.

    FLASH_BOTH_WAYS=30 ctest --test-dir build/default -R test_both_ways
"""

import os
import unittest
from pathlib import Path

from course import Test
from lab import build, libraries, manifest, running, zoo
from lab.backends import CPU, EMULATED
from lab.judge import judging, sandbox

BUILD = Path(os.environ.get("FLASH_BUILD", "/nonexistent")).absolute()
SAMPLE = int(os.environ.get("FLASH_BOTH_WAYS", "2"))  # wrong programs
TASKS = [task for part in manifest.load_parts() for task in part.tasks
         if task.path("solution").is_file() and judging.can_judge(task, BUILD)]


@unittest.skipIf(sandbox.trouble(), sandbox.trouble())
@unittest.skipUnless(TASKS, "FLASH_BUILD has no judges, or a course without its solutions")
class BothWays(Test):
    def setUp(self):
        self.patch(build, binary=lambda target: BUILD / "bin" / target)

    def same(self, task, library):
        backend = EMULATED if task.is_cuda else CPU
        shown = judging.runner_files(BUILD, backend) | {library: "/runner/student.so"}
        if other := judging.other_task(task, BUILD):
            place = running.library(other, "solution", backend, BUILD / "lib")
            shown[place] = "/runner/other.so"
        in_class = [*judging.in_sandbox(backend, shown), *["/runner/other.so"] * bool(other)]
        found = []
        for runner in ((), in_class):
            how = running.Settings("solution", folder=library.parent, quiet=True, runner=runner)
            found.append({case.name: (case.status, case.diagnosis)
                          for case in running.run(task, [backend], how)})
        self.assertGreater(len(found[0]), 5)
        self.assertEqual(*found)

    def test_solutions(self):
        for task in TASKS:
            if not task.is_cuda or SAMPLE > 2:
                with self.subTest(task.id):
                    backend = EMULATED if task.is_cuda else CPU
                    self.same(task, running.library(task, "solution", backend, BUILD / "lib"))

    def test_wrong_programs(self):
        known = libraries.load(BUILD)
        members = [one for one in zoo.load(TASKS) if one.kind == "wrong"
                   and (not one.task.is_cuda or SAMPLE > 2)]
        for member in zoo.sample(members, SAMPLE):
            with self.subTest(member.id):
                backend = EMULATED if member.task.is_cuda else CPU
                place = zoo.compile_member(member, backend, known)
                self.same(member.task, running.library(member.task, "solution", backend, place))
