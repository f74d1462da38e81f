"""What must hold of every task's built libraries, in each backend, and of the judges that run them.
"""

import json
import re
import subprocess
import sys
import unittest
from collections import defaultdict
from pathlib import Path

from course import BUILD, Built
from lab import derive, manifest, running
from lab.backends import CHECKED, CPU, EMULATED, GPU
from lab.outcomes import NEEDS_CHECKS, NEEDS_GPU, NOT_STARTED, PASSED
from lab.running import Settings

TASKS = manifest.select(manifest.load_parts())
# How a case may end that a backend does not run.
LEFT_OUT = defaultdict(set, {GPU: {NEEDS_GPU, NEEDS_CHECKS}, EMULATED: {NEEDS_CHECKS}})


def built(implementation: str) -> list[tuple[manifest.Task, str, Path]]:
    """The tasks that this build has, each in each backend, with its library."""
    return [(task, backend, library) for task in TASKS
            for backend in ((GPU, EMULATED, CHECKED) if task.is_cuda else (CPU,))
            if (library := running.library(task, implementation, backend, BUILD / "lib")).exists()]


def judge(task: manifest.Task, *options: object) -> list[object]:
    return [BUILD / "bin" / running.judge_of(task), "--task", task.id, *options]


@unittest.skipUnless(BUILD.is_dir(), "nothing is built")
class BuiltTasks(Built):
    def each(self, implementation):
        for task, backend, library in built(implementation):
            with self.subTest(task.id, backend=backend):
                yield task, backend, library

    def test_every_cuda_task_is_built_for_every_backend_that_this_build_has(self):
        config = json.loads((BUILD / "config.json").read_text())
        there = {GPU: config["cuda"] != "none", EMULATED: config["emulated"] == "TRUE",
                 CHECKED: config["checked"] == "TRUE"}
        wanted = [(task.id, backend) for task in TASKS if task.is_cuda
                  for backend in there if there[backend]]
        for kind in ("skeleton", "solution"):
            found = [(task.id, backend) for task, backend, _ in built(kind) if task.is_cuda]
            self.assertEqual(found, wanted, kind)
        self.assertGreaterEqual(len(built("solution")), 2)

    def test_a_solution_runs_the_cases_that_are_listed(self):  # ctest runs them all
        cases: dict[tuple[str, str], list[str]] = {}
        for task, backend, _ in self.each("solution"):
            names = cases[task.id, backend] = running.case_names(task, backend)
            first, = running.run(task, backend, Settings("solution", quiet=True), names[:1])
            where = CHECKED if first.status == NEEDS_CHECKS else backend
            self.assertEqual((first.name, first.backend), (names[0], where))
            self.assertIn(first.status, {PASSED} | LEFT_OUT[backend])
        for (task_id, backend), emulated in cases.items():  # ./lab check puts both results together
            if backend == EMULATED and (task_id, CHECKED) in cases:
                # The checks take no sparse memory of the host's for memory of the device, and too
                # long for the longest cases.
                checked = cases[task_id, CHECKED]
                self.assertEqual([name for name in emulated if name in checked], checked)
                for name in {*emulated} - {*checked}:
                    self.assertRegex(name, r" elements apart$|\b(33|66)000 ")

    def test_untouched_skeletons_have_started_nothing(self):
        for task, backend, _ in self.each("skeleton"):
            solution = task.path("solution").read_text()
            if task.path("skeleton").read_text() != derive.derive(solution, task.file):
                continue  # it has been worked on
            ended = running.run(task, backend, Settings("skeleton", quiet=True))
            self.assertLessEqual({case.status for case in ended},
                                 {NOT_STARTED} | LEFT_OUT[backend])

    def test_without_a_report_it_prints_what_check_shows(self):  # ctest shows it
        task, backend, library = built("skeleton")[0]
        name = running.case_names(task, backend)[0]
        done = subprocess.run(judge(task, "--library", library, "--case", name), text=True,
                              capture_output=True, timeout=60)
        case, = running.run(task, backend, Settings("skeleton", quiet=True), [name])
        said = "".join(f"{' ' * (4 + 2 * (n > 0))}{line}\n"
                       for n, line in enumerate(case.message.splitlines()))
        self.assertRegex(done.stdout, re.escape(f"{case.status}: {name}\n{said}") + "(    it "
                         "printed:\n(    [|] .*\n)*)?verdict:[a-z-]+\n$")
        self.assertEqual(done.stdout.count(name), 1)

    def test_options(self):
        task, backend, library = built("solution")[0]
        names, file = running.case_names(task, backend), self.folder() / "report.jsonl"
        subprocess.run(judge(task, "--library", library, "--report", file, "--seed", "987654321",
                             "--case", names[0]), capture_output=True, timeout=60)
        begin, *_, end, complete = map(json.loads, file.read_text().splitlines())
        self.assertEqual((begin["seed"], end["case"], complete),
                         (987654321, names[0], {"event": "complete"}))
        self.assertEqual([case["name"] for case in begin["cases"]], names)
        for options, said in (
            (["--seed", "-4"], "--seed is '-4'; it must be a whole number from 0"),
            (["--case", "no such case"], "--case is 'no such case'; "),
            (["--report", "/nowhere/x"], "--report is '/nowhere/x'; it must be a file"),
            (["--library", "/nowhere.so"], "--library is '/nowhere.so', and there is no such file"),
        ):
            done = subprocess.run(judge(task, "--library", library, *options), capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1))
            self.assertIn(said, done.stderr)

    @unittest.skipUnless(sys.platform == "linux", "shared libraries are not called .so here")
    def test_libraries_export_their_contract_and_nothing_else(self):
        # The entry and the contract, and of a solution for the checks what tests/mutants asks for.
        # Looked at are strong symbols, and function templates of ours among the weak ones: the
        # other weak ones are exception types and pieces of the standard library. Some compilers
        # (Red Hat's) link a part of that in, with strong symbols.
        pattern = re.compile(r"^\S+ (?:[TDBR] (?:flash::)?|W void flash::)([\w:~]+)", re.MULTILINE)
        for implementation in ("skeleton", "solution"):
            for task, backend, library in self.each(implementation):
                symbols = subprocess.run(["nm", "-DC", "--defined-only", library],
                                         capture_output=True, text=True, check=True).stdout
                exported = {name for name in pattern.findall(symbols)
                            if not name.startswith(("std::", "flash_mutants_"))}
                headers = "".join(file.read_text() for file in task.folder.glob("*.hpp"))
                declared = set(re.findall(r"\b(\w+)\(", headers))
                self.assertEqual(exported - declared, {"flash_task"})
