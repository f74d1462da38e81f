"""./lab check --sanitize with the compiler's own AddressSanitizer: the runner of a task takes a
sanitized library, and an access out of bounds gets its line.

FLASH_BUILD names the build folder (ctest sets it); without it there is nothing to run.
"""

import json
import os
import shlex
import subprocess
import unittest
from pathlib import Path
from types import SimpleNamespace

from course import Test
from lab import build, grading, manifest, outcomes, paths, running
from lab.backends import CPU, Backends

BUILD = Path(os.environ.get("FLASH_BUILD", "/nonexistent")).absolute()
LIBRARY = "part1_fused_cpu_solution"
# A line of the solution, what makes it wrong, and what that is.
MISTAKES = (
    ("std::fill_n(m.data(), rows, ", "std::fill_n(m.data(), rows + 1, ", "heap-buffer-overflow"),
    ("j < keys; ++j) m_new = ", "j <= keys; ++j) m_new = ", "an access before or after a tensor"))


def command() -> str:
    """That compiles the task's sanitized library; "" where this build has none."""
    file = BUILD / "compile_commands.json"
    return next((entry["command"] for entry in json.loads(file.read_text())
                 if f"{LIBRARY}_sanitized.dir" in entry["command"]), "") if file.exists() else ""


@unittest.skipUnless(command(), "no build folder, or one without sanitized libraries")
class Sanitized(Test):
    def graded(self, source: str, *cases: str) -> outcomes.TaskResult:
        folder = self.folder() / "solution"
        file = folder / "fused_cpu.cpp"
        folder.mkdir()
        file.write_text(source)
        words = shlex.split(command())
        words[words.index("-o"):] = ["-shared", "-o", str(folder / f"lib{LIBRARY}.so"), str(file),
                                     f"-L{BUILD / 'lib'}", "-lflash_common"]
        subprocess.run(words, check=True, cwd=BUILD)
        config = SimpleNamespace(asan=json.loads((BUILD / "config.json").read_text())["asan"])
        how = running.Settings("solution", folder=folder, quiet=True,
                               variables=Backends(config, sanitize=True).environment())
        self.patch(build, binary=lambda target: BUILD / "bin" / target)
        task = manifest.select_one(manifest.load_parts(), "fused_cpu", "check")
        return grading.run_task(task, how, [CPU], cases)

    def test_a_right_program_passes_and_a_wrong_one_gets_its_line(self):
        source = (paths.ROOT / "part1_softmax_matmul/solution/fused_cpu.cpp").read_text()
        cases = "one element", "no quadratic memory: 1 x 512 x 1024 x 32"
        right = self.graded(source, *cases)
        self.assertEqual([case.status for case in right.cases], ["passed"] * 2)
        for right, wrong, kind in MISTAKES:
            self.assertEqual(source.count(right), 1)
            seen, = self.graded(source.replace(right, wrong), cases[0]).cases
            line = source[:source.index(right)].count("\n") + 1
            self.assertEqual(seen.status, "crashed")
            self.assertRegex(seen.message, rf"\AAddressSanitizer: {kind} at "
                                           rf"\S+/solution/fused_cpu\.cpp:{line}\Z")
