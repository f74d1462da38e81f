"""`.clangd`: an editor shows no error in a file that compiles, before the first build or after it.
And `.vscode/`: the commands of its tasks, and the lines of a report that it finds.

To see what an editor shows without CUDA, hide it before you configure and test a fresh clone:
bwrap --dev-bind / / --tmpfs /usr/local/cuda-13.0 bash
"""

import json
import re
import shlex
import shutil
import subprocess
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from course import Test
from lab import main, manifest, paths

CLANGD = shutil.which("clangd")


def files() -> list[Path]:
    """Of skeletons and rungs the longest of each kind; and what names mistakes: clang before 16
    refuses structured bindings that a lambda captures."""
    found = [file for part in manifest.load_parts() for folder in ("skeleton", "ladder")
             for file in part.folder.glob(f"{folder}/*.c*")]
    longest = {(file.parent.name, *file.suffixes): file
               for file in sorted(found, key=lambda file: file.stat().st_size)}
    return [*longest.values(), *(paths.ROOT / "tests/harness/diagnosis").glob("*.cpp")]


def errors(file: Path) -> list[str]:
    # One line is enough for what it tries on each line, refactorings and the like.
    done = subprocess.run([CLANGD, f"--check={file}", "--check-lines=1-1"],
                          cwd=paths.ROOT, capture_output=True, text=True, timeout=300)
    return re.findall(r"^E\[.*?\] (\[\S+\] Line .*)$", done.stderr, re.MULTILINE) + (
        [] if "All checks completed" in done.stderr else [done.stderr])


@unittest.skipUnless(CLANGD, "clangd is not installed")
class Clangd(Test):
    def test_no_error_in_any_file(self):
        # Without a build, rungs in C++ lack what it sets, and errors would be right.
        built = (paths.BUILD / "compile_commands.json").is_file()
        here = [file for file in files()
                if built or file.suffix == ".cu" or file.parent.name != "ladder"]
        self.assertGreater(len(here), 2)
        with ThreadPoolExecutor(2) as pool:
            for file, found in zip(here, pool.map(errors, here)):
                with self.subTest(paths.relative(file)):
                    self.assertEqual(found, [])

    def test_an_error_is_one(self):
        folder = self.folder()
        shutil.copy(paths.ROOT / ".clangd", folder)
        for name in ("common", "emulator"):
            (folder / name).symlink_to(paths.ROOT / name)
        file = folder / "part1" / "skeleton" / "wrong.cu"
        file.parent.mkdir(parents=True)
        file.write_text("__global__ void kernel() { int x = threadIdx.y; x = nothing; }\n")
        found = errors(file)
        self.assertEqual(len(found), 1, found)
        self.assertIn("'nothing'", found[0])


class VisualStudioCode(Test):
    def setUp(self):
        self.tasks = json.loads((paths.ROOT / ".vscode/tasks.json").read_text())

    def test_each_task_is_a_command_that_lab_takes_with_the_open_file(self):
        files = {task.name: task.file for part in manifest.load_parts() for task in part.tasks}
        self.assertEqual({name: Path(file).stem for name, file in files.items()},
                         {name: name for name in files})
        verbs = set()
        for task in self.tasks["tasks"]:
            command = task["command"].replace("${fileBasenameNoExtension}", "fused_cuda")
            door, verb, *words = shlex.split(command.replace("${input:case}", "one element"))
            main.parsed(verb, words)
            self.assertEqual(door, "./lab")
            verbs.add(verb)
        self.assertEqual(verbs, {"check", "watch", "hint", "debug"})

    def test_it_finds_the_lines_that_a_report_names(self):
        pattern = self.tasks["problemMatcher"]["pattern"]["regexp"]
        file = "part1_softmax_matmul/skeleton/fused_cuda.cu"
        for line, found in (
                (f"      {file}:19:35: error: 'kept' was not declared in this scope",
                 (file, "19", "35", "error: 'kept' was not declared in this scope")),
                (f"kernel fused_softmax_matmul: a data race between {file}:97 and {file}:156",
                 (file, "97", None, f" and {file}:156")),
                (f"      timed out: one element, at {file}:42", (file, "42", None, ""))):
            self.assertEqual(re.search(pattern, line).groups(), found)
