"""benchmarking/free_gpu.ipynb: its cells run in their order, up to the first that needs a GPU.

A small course is what they clone, and its build is a fake. Of the cells after that, the commands
have to be ones that `./lab` takes.
"""

import json
import os
import re
import shlex
import string
import subprocess
import sys
import types
from pathlib import Path
from unittest import mock

from course import MANIFEST, SKELETON, Course
from lab import main, manifest, paths

FILE = Path(__file__).parents[2] / "benchmarking" / "free_gpu.ipynb"
WHERE = "/tmp/course"  # where the notebook puts the course: the test has a folder of its own


class Notebook(Course):
    def setUp(self):
        super().setUp()
        self.notebook = json.loads(FILE.read_text())
        self.cells = [cell for cell in self.notebook["cells"] if cell["cell_type"] == "code"]
        self.place = self.folder() / "course"
        self.addCleanup(os.chdir, os.getcwd())

    def run_cell(self, cell: dict, values: dict[str, object]) -> str:
        """What a notebook does with a cell: a line of the shell, a change of folder, or Python."""
        source = "".join(cell["source"]).replace(WHERE, str(self.place))
        if not source.startswith(("!", "%")):
            exec(source, values)
            return ""
        shown = ""
        for line in source.splitlines():
            command = string.Template(line).substitute(values)
            if command.startswith("%cd "):
                os.chdir(command.removeprefix("%cd "))
                self.patch(paths, ROOT=Path.cwd(), STATE=Path.cwd() / ".lab")
            elif command.startswith("!./lab "):
                code, text = self.lab(command.removeprefix("!./lab "))
                shown += text
                self.assertNotEqual(code, 2, text)
            else:
                subprocess.run(command.removeprefix("!"), shell=True, check=True)
        return shown

    def test_the_cells_run_until_a_gpu_is_needed(self):
        self.green("fused_cpu")
        for name, text in (("tasks.toml", MANIFEST.replace("puzzle", "ten_kernels")),
                           ("skeleton/ten_kernels.cu", SKELETON.format(name="ten_kernels")),
                           ("cuda.md", "A ![picture](figures/a.svg) of it"),
                           ("figures/a.svg", "<svg/>")):
            self.write(f"part1_softmax_matmul/{name}", text)
        chapter: list[str] = []
        self.enterContext(mock.patch.dict(sys.modules, {"IPython.display": types.SimpleNamespace(
            display=chapter.append, Markdown=str,
            SVG=lambda filename: Path(filename).read_text())}))
        self.commit()
        values: dict[str, object] = {}
        shown = []
        for cell in self.cells:
            if "gpu" in cell["metadata"].get("tags", []):
                break
            shown.append(self.run_cell(cell, values))
            if "course" in values and str(values["course"]).startswith("https:"):
                values["course"] = self.root  # the reader's own address
        self.assertEqual(Path.cwd(), self.place)
        self.assertTrue((self.place / "part1_softmax_matmul/tasks.toml").is_file())
        self.assertIn("C++ compiler", shown[2])
        self.assertIn("part1: 1 of 1 point", shown[2])
        self.assertEqual("".join(chapter), "A <svg/> of it")
        self.assertIn("ten_kernels", shown[4])

    def test_every_command_is_one_that_lab_takes(self):
        self.patch(paths, ROOT=paths.REPOSITORY)
        lines = [line for cell in self.cells for line in "".join(cell["source"]).splitlines()
                 if line.startswith("!./lab ")]
        verbs = set()
        for line in lines:
            for which in ("", "--solution"):
                verb, *words = shlex.split(line.replace("$which", which))[1:]
                options = main.parsed(verb, words)
                if verb == "check":
                    manifest.select(manifest.load_parts(), options.names)
                verbs.add(verb)
        self.assertLessEqual({"doctor", "check", "bench", "plot"}, verbs)

    def test_it_is_committed_without_results(self):
        for cell in self.cells:
            self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None))
        needs = [bool(re.search(r"nvidia-smi|part3|bonus|bench", "".join(cell["source"])))
                 for cell in self.cells]
        first = ["gpu" in cell["metadata"].get("tags", []) for cell in self.cells].index(True)
        self.assertEqual(needs.index(True), first)
