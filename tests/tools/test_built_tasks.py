"""What must hold of every task's built libraries, in each backend, and of the judges that run them.
"""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from collections import defaultdict
from pathlib import Path

from course import BUILD, Built
from lab import derive, manifest, running
from lab.backends import CHECKED, CPU, EMULATED, GPU

TASKS = manifest.select(manifest.load_parts())
# How a case may end that a backend does not run.
LEFT_OUT = defaultdict(set, {GPU: {"needs_gpu", "needs_checks"}, EMULATED: {"needs_checks"}})


def built(implementation: str) -> list[tuple[manifest.Task, str, Path]]:
    """The tasks that this build has, each in each backend, with its library."""
    return [(task, backend, library) for task in TASKS
            for backend in ((GPU, EMULATED, CHECKED) if task.is_cuda else (CPU,))
            if (library := running.library(task, implementation, backend, BUILD / "lib")).exists()]


def judge(task: manifest.Task, *options: object) -> list[object]:
    return [BUILD / "bin" / running.judge_of(task), "--task", task.id, *options]


def report(task: manifest.Task, library: Path, *options: str) -> tuple[list[dict], list[dict]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.jsonl"
        subprocess.run(judge(task, "--library", library, "--report", file, *options),
                       capture_output=True, timeout=300)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return lines, [line for line in lines if line["event"] == "end"]


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

    def test_a_solutions_report_names_its_cases(self):  # ctest runs them all
        cases: dict[tuple[str, str], list[dict]] = {}
        for task, backend, library in self.each("solution"):
            names = running.case_names(task, backend)
            lines, ends = report(task, library, "--case", names[0])
            self.assertEqual((lines[0]["task"], ends[0]["backend"]), (task.id, backend))
            self.assertEqual([case["name"] for case in lines[0]["cases"]], names)
            self.assertEqual(lines[-1], {"event": "complete"})
            self.assertEqual([end["case"] for end in ends], names[:1])
            self.assertIn(ends[0]["status"], {"passed"} | LEFT_OUT[backend])
            cases[task.id, backend] = names
        for (task_id, backend), emulated in cases.items():  # ./lab check puts both results together
            if backend == EMULATED and (task_id, CHECKED) in cases:
                # The checks take no sparse memory of the host's for memory of the device.
                here = [name for name in emulated if not name.endswith(" elements apart")]
                self.assertEqual(here, cases[task_id, CHECKED])

    def test_untouched_skeletons_have_started_nothing(self):
        for task, backend, library in self.each("skeleton"):
            solution = task.path("solution").read_text()
            if task.path("skeleton").read_text() != derive.derive(solution, task.file):
                continue  # it has been worked on
            lines, ends = report(task, library)
            self.assertEqual(lines[-1], {"event": "complete"})
            statuses = {end["status"] for end in ends}
            no_gpu = "needs_gpu" in statuses & LEFT_OUT[backend]
            self.assertEqual(statuses - LEFT_OUT[backend], set() if no_gpu else {"not_started"})

    def test_options(self):
        task, backend, library = built("solution")[0]
        name = running.case_names(task, backend)[0]
        lines, ends = report(task, library, "--seed", "987654321", "--case", name)
        self.assertEqual((lines[0]["seed"], [end["case"] for end in ends]), (987654321, [name]))
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
