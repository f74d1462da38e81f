"""How files are compiled in the place of a task's or a rung's: as the build compiles those."""

import json
import re
import shlex
import subprocess
import unittest
from pathlib import Path

from course import Test
from lab import libraries, manifest, paths
from lab.backends import CHECKED, CPU, EMULATED, GPU
from lab.submission import judging

KNOWN = libraries.load(paths.BUILD)
# The rung's name; nvcc's own headers and compiler.
LEFT_OUT = "-DFLASH_RUNG=", "-isystem=", "-ccbin=", "-Winvalid-pch"


@unittest.skipUnless(KNOWN, "nothing is configured")
class Libraries(Test):
    def test_they_say_what_cmake_gives_the_compiler(self):
        commands = {}
        for entry in json.loads((paths.BUILD / "compile_commands.json").read_text()):
            commands.setdefault(entry["file"], []).append(shlex.split(entry["command"]))
        for (file, backend), library in KNOWN.items():
            seen = commands.get(str(file), [])
            if backend in (EMULATED, CHECKED):  # a file that includes this one
                end = f"_{file.parent.name}_{backend}/{file.name}.cpp"
                seen = [one for name in commands if name.endswith(end) for one in commands[name]]
            found = [self.words(command) for command in seen]
            self.assertIn(self.words(library.command()), found, f"{file}, {backend}")

    @staticmethod
    def words(command: list[str]) -> set[str]:
        first = next(n for n, word in enumerate(command) if "ccache" not in word)
        kept, skip = set(), False
        for word in command[first:]:
            if skip:
                skip = False
            elif word in ("-o", "-c", "-x", "-include", "-MF", "-MT"):
                skip = True
            elif not (word.startswith(LEFT_OUT) or word.endswith("_EXPORTS") or word == "-MD"
                      or word.startswith("-I") and not Path(word[2:]).is_relative_to(paths.ROOT)):
                kept.add(word)
        return kept

    def test_a_submission_is_compiled_with_all_of_it(self):
        for part in manifest.load_parts():
            for task in part.tasks:
                backends = [each for each in (EMULATED, CHECKED, GPU)
                            if (task.path(), each) in KNOWN]
                for build in judging._builds(task, KNOWN, backends if task.is_cuda else [CPU]):
                    library = KNOWN[task.path(), build.backend]
                    wanted = {*(word for word in library.options
                                if not word.startswith(judging.NOT_IN_CLASS)),
                              *(f"-D{name}" for name in library.definitions)}
                    self.assertLessEqual(wanted, {*build.flags}, f"{task.id}, {build.backend}")
                    self.assertLessEqual({word for word in library.link
                                          if "--version-script" not in word}, {*build.link})
                    self.assertIn("-I/course/.", build.flags)
                    if part.name == "part3" and task.is_cuda and build.backend != GPU:
                        self.assertIn("-DFLASH_FEW_CONFIGURATIONS", build.flags)

    def test_both_emulated_builds_have_one_text(self):
        for file in {file for file, backend in KNOWN if backend == CHECKED}:
            plain, checked = (self.preprocessed(file, KNOWN[file, backend])
                              for backend in (EMULATED, CHECKED))
            self.assertIn("namespace flash", plain)
            self.assertEqual(plain, checked, file)

    @staticmethod
    def preprocessed(file: Path, library: libraries.Library) -> str:
        """What the compiler sees of the course's own files."""
        text = subprocess.run([*library.command(), "-E", str(file)], capture_output=True,
                              text=True, check=True).stdout
        kept, is_own = [], False
        for line in text.splitlines():
            if marker := re.match(r'# \d+ "([^"]*)"', line):
                is_own = Path(marker[1]).is_relative_to(paths.ROOT)
            elif is_own:
                kept.append(line)
        return "\n".join(kept)
