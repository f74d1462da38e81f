"""What must hold of every task's built libraries and test binaries, in each backend: the solution gets all points, an untouched
skeleton none with every case "not started", each library exports its contract and nothing else, and a binary refuses what it does
not understand.

FLASH_BUILD names the build folder (ctest sets it); without it there is nothing to look at.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from lab import derive, manifest  # noqa: E402
from lab.backends import CHECKED, CPU, EMULATED, GPU  # noqa: E402

BUILD = Path(os.environ.get("FLASH_BUILD", "/nonexistent"))


def built_tasks(implementation: str) -> list[tuple[manifest.Task, str, Path]]:
    """The tasks that this build has, each in each backend, with its test binary."""
    tasks = [(task, backend) for part in manifest.load_parts() for task in part.tasks
             for backend in ((GPU, EMULATED, CHECKED) if task.is_cuda else (CPU,))]
    return [(task, backend, binary) for task, backend in tasks
            if (binary := BUILD / "bin" / task.target(implementation, backend)).exists()]


def left_out(backend: str) -> set[str]:
    """How a case may end that this backend does not run."""
    return {GPU: {"needs_gpu", "needs_checks"}, EMULATED: {"needs_checks"}}.get(backend, set())


def report(binary: Path, *options: str) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.jsonl"
        subprocess.run([binary, "--report", file, *options], capture_output=True, timeout=300, check=False)
        return [json.loads(line) for line in file.read_text().splitlines()]


@unittest.skipUnless(BUILD.is_dir(), "FLASH_BUILD is not a build folder")
@unittest.skipUnless(any(part.has("solution") for part in manifest.load_parts()), "a course without its solutions")
class BuiltTasks(unittest.TestCase):
    def test_there_are_tasks(self) -> None:
        self.assertGreaterEqual(len(built_tasks("solution")), 2)

    def test_every_cuda_task_is_built_for_every_backend_that_this_build_has(self) -> None:
        config = json.loads((BUILD / "config.json").read_text())
        wanted = {backend for backend, there in ((GPU, config["cuda"] != "none"), (EMULATED, config["emulated"] == "TRUE"),
                                                 (CHECKED, config["checked"] == "TRUE")) if there}
        for implementation in ("skeleton", "solution"):
            found: dict[str, set[str]] = {}
            for task, backend, _ in built_tasks(implementation):
                found.setdefault(task.id, set()).add(backend)
            for part in manifest.load_parts():
                for task in part.tasks:
                    if task.is_cuda:
                        self.assertEqual(found.get(task.id, set()), wanted, f"{task.id} {implementation}")

    def test_solutions_pass_every_case(self) -> None:
        cases: dict[tuple[str, str], list[dict]] = {}
        for task, backend, binary in built_tasks("solution"):
            with self.subTest(task.id, backend=backend):
                lines = report(binary)
                self.assertEqual([lines[0][key] for key in ("task", "implementation", "backend")], [task.id, "solution", backend])
                self.assertEqual(lines[-1], {"event": "complete"})
                ends = [line for line in lines if line["event"] == "end"]
                self.assertEqual([end["case"] for end in ends], [case["name"] for case in lines[0]["cases"]])
                for end in ends:
                    self.assertIn(end["status"], {"passed"} | left_out(backend), end)
                cases[task.id, backend] = lines[0]["cases"]
        for (task_id, backend), emulated in cases.items():  # so that ./lab check can put both results together
            if backend == EMULATED and (task_id, CHECKED) in cases:
                self.assertEqual(emulated, cases[task_id, CHECKED])

    def test_untouched_skeletons_have_started_nothing(self) -> None:
        for task, backend, binary in built_tasks("skeleton"):
            if task.path("skeleton").read_text() != derive.derive(task.path("solution").read_text(), task.file):
                self.skipTest(f"{task.shown_path()} has been worked on")
            with self.subTest(task.id, backend=backend):
                lines = report(binary)
                self.assertEqual(lines[-1], {"event": "complete"})
                statuses = {line["status"] for line in lines if line["event"] == "end"}
                ran = statuses - left_out(backend)
                self.assertEqual(ran, set() if "needs_gpu" in statuses & left_out(backend) else {"not_started"})

    def test_another_seed_and_a_single_case(self) -> None:
        for task, backend, binary in built_tasks("solution"):
            with self.subTest(task.id, backend=backend):
                listed = subprocess.run([binary, "--list-cases"], capture_output=True, text=True, timeout=60, check=True)
                name = listed.stdout.splitlines()[-1]
                lines = report(binary, "--seed", "987654321", "--case", name)
                self.assertEqual(lines[0]["seed"], 987654321)
                ends = [line for line in lines if line["event"] == "end"]
                self.assertEqual([end["case"] for end in ends], [name])
                self.assertIn(ends[0]["status"], {"passed"} | left_out(backend))

    def test_wrong_options_are_one_clear_line(self) -> None:
        binary = built_tasks("solution")[0][-1]
        for options, said in (
            (["--seed", "-4"], "--seed is '-4'; it must be a whole number from 0"),
            (["--seed"], "--seed needs a value behind it"),
            (["--case", "no such case"], "--case is 'no such case'; "),
            (["--report", "/nonexistent/folder/report"], "--report is '/nonexistent/folder/report'; it must be a file"),
        ):
            with self.subTest(options):
                done = subprocess.run([binary, *options], capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 2)
                self.assertIn(said, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_libraries_export_their_contract_and_nothing_else(self) -> None:
        # Strong symbols, and weak ones that are function templates of ours: the other weak ones are exception types and pieces of the
        # standard library, which every library may hold. Some compilers (Red Hat's) link a part of that in, with strong symbols.
        contract = {"part1.fused_cpu": {"fused_softmax_matmul"}, "part1.fused_cuda": {"fused_softmax_matmul_cuda"},
                    "part1.attention_1d": {"attention_1d_cuda"}, "part1.measure": {"measure"},
                    "part2.flash_forward": {"flash_attention_forward"},
                    "part2.flash_backward": {"flash_attention_backward", "attention_delta"},
                    "part3.flash_forward_cuda": {"flash_attention_forward_cuda"},
                    "part3.measure_attention": {"measure_attention"},
                    "bonus.flash_backward_cuda": {"flash_attention_backward_cuda", "flash_backward_delta_cuda",
                                                  "flash_backward_dk_dv_cuda", "flash_backward_dq_cuda"}}
        for implementation in ("skeleton", "solution"):
            for task, backend, _ in built_tasks(implementation):
                library = BUILD / "lib" / f"lib{task.target(implementation, backend).removesuffix('_tests')}.so"
                if not library.exists():
                    self.skipTest("shared libraries are not called .so here")
                symbols = subprocess.run(["nm", "-DC", "--defined-only", library], capture_output=True, text=True, check=True)
                exported = re.findall(r"^\S+ (?:[TDBR] (?:flash::)?|W void flash::)([\w:~]+)", symbols.stdout, re.MULTILINE)
                with self.subTest(library.name):
                    self.assertEqual({name for name in exported if not name.startswith("std::")}, contract[task.id])


if __name__ == "__main__":
    unittest.main()
