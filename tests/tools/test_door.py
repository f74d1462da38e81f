"""`./lab` itself: the bash script, bootstrap.py and main.py, from a bare machine to an exit code.

The script is tried in a copy without .venv, so nothing is installed and no network is used.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from course import Test
from lab import bootstrap, main, system
from lab.errors import LabError

REPOSITORY = Path(__file__).parents[2]


class Door(Test):
    def setUp(self):
        self.root = self.folder() / "a course"  # a path with a space
        self.root.mkdir()
        shutil.copy(REPOSITORY / "lab", self.root)
        shutil.copytree(REPOSITORY / "tools", self.root / "tools",
                        ignore=shutil.ignore_patterns("__pycache__"))

    def lab(self, *argv, path=None, cwd=None):
        environment = {"PATH": path or f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return subprocess.run([shutil.which("bash"), self.root / "lab", *argv], cwd=cwd,
                              env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60)

    def test_what_needs_no_package_installs_nothing(self):
        for argv in ([], ["--help"]):
            done = self.lab(*argv)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for wanted in ("usage: ./lab VERB", "\nStudent\n", "  check        grade your",
                           "  ./lab run "):
                self.assertIn(wanted, done.stdout)
            self.assertEqual("\nInstructor\n" in done.stdout, bool(argv))
        done = self.lab("run", "--help")
        self.assertEqual((done.returncode, done.stdout[:24]), (0, "./lab run: set up, build"))
        done = self.lab("chek", "part1")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (2, "", "lab: there is no verb 'chek': did you mean ./lab check?\n"))
        self.assertFalse((self.root / ".venv").exists())

    def test_it_can_be_called_from_anywhere(self):
        elsewhere = self.folder()
        (elsewhere / "argparse.py").write_text("raise SystemExit('a file of the student')")
        self.assertEqual(self.lab(cwd=elsewhere).returncode, 0)

    def test_a_clone_by_git_for_windows_has_no_carriage_returns(self):
        if not (REPOSITORY / ".git").exists():
            self.skipTest("not a clone")
        there = self.folder()
        subprocess.run(["git", "-c", "core.autocrlf=true", "checkout-index", f"--prefix={there}/",
                        "lab", "tools/lab/main.py", "CMakeLists.txt"], cwd=REPOSITORY, check=True)
        for file in filter(Path.is_file, there.rglob("*")):
            self.assertNotIn(b"\r", file.read_bytes(), file.name)

    def test_without_a_python_that_is_new_enough_it_says_so(self):
        folder = self.folder()
        os.symlink(shutil.which("dirname"), folder / "dirname")
        (folder / "python3").write_text(
            '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n')
        (folder / "python3").chmod(0o755)
        script = (self.root / "lab").read_text().replace(" /usr/bin/python3", "")
        (self.root / "lab").write_text(script)
        done = self.lab(path=str(folder))
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1))
        self.assertIn("lab: Python 3.11 or later is needed, and this machine has Python 3.9.2",
                      done.stderr)


class Main(Test):
    def test_exit_codes(self):
        more = " (./lab doctor --help says more)\n"
        for argv, result, code, said in (
            ([], [None], 0, ""),
            ([], [3], 3, ""),
            ([], LabError("part9 does not exist"), 1, "lab: part9 does not exist\n"),
            ([], KeyboardInterrupt, 130, "\nlab: interrupted\n"),
            (["--speed"], [0], 2, f"lab: unrecognized arguments: --speed{more}"),
            (["--seed", "x"], [0], 2, f"lab: argument --seed: invalid int value: 'x'{more}"),
        ):
            verb = SimpleNamespace(
                add_arguments=lambda parser: parser.add_argument("--seed", type=int),
                run=mock.Mock(side_effect=result))
            self.patch(main, load=lambda name, verb=verb: verb)
            self.assertEqual(self.printed(main.main, ["doctor", *argv]), (code, said))

    def test_a_package_that_is_missing_is_one_line(self):
        missing = ModuleNotFoundError("No module named 'rich'", name="rich")
        self.patch(main.importlib, import_module=mock.Mock(side_effect=missing))
        self.assertIn("has no package rich", self.refused(main.load, "check"))


class Bootstrap(Test):
    """How .venv is made, with every command replaced by what it would leave behind."""

    def setUp(self):
        self.root = self.folder()
        self.pins = self.root / "pins.txt"
        self.pins.write_text("rich==1\n")
        self.commands: list[list[str]] = []
        self.offline = self.system_rich = False
        self.patch(bootstrap, REPOSITORY=self.root, VENV=self.root / ".venv", PINS=self.pins,
                   LOCK=self.root / ".lab/lock", _run=self.run_nothing)
        self.patch(bootstrap.subprocess, run=lambda *_, **__: SimpleNamespace(
            returncode=0 if self.system_rich else 1, stdout="/usr/lib/python3/dist-packages\n"))
        self.patch(system, can_make_venv=lambda: True, package_manager=lambda: None)

    def run_nothing(self, command, doing):
        words = list(map(str, command))
        self.commands.append(words)
        if "pip" in words and self.offline:
            raise LabError(f"{doing} failed (no network)")
        if "venv" in words:
            for folder in ("bin", "lib/python3.11/site-packages/rich"):
                (self.root / ".venv" / folder).mkdir(parents=True, exist_ok=True)
            bootstrap.python().unlink(missing_ok=True)
            bootstrap.python().symlink_to(sys.executable)

    def test_it_is_made_once_for_the_pins_and_the_python(self):
        self.assertFalse(bootstrap.is_ready())
        for _ in range(2):
            self.printed(bootstrap.make_ready)
            self.assertTrue(bootstrap.is_ready())
            self.assertEqual(len(self.commands), 2)
        self.pins.write_text("rich==2\n")
        self.assertFalse(bootstrap.is_ready())
        self.printed(bootstrap.make_ready)
        bootstrap.python().unlink()
        bootstrap.python().symlink_to("/bin/sh")
        self.assertFalse(bootstrap.is_ready())
        self.printed(bootstrap.make_ready)
        (self.root / ".venv/lib/python3.11/site-packages/rich").rmdir()
        self.assertFalse(bootstrap.is_ready())

    def test_without_the_network(self):
        self.offline = True
        self.assertIn("failed (no network); without PyPI: python3 -m pip install rich matplotlib "
                      "jinja2", self.refused(bootstrap.make_ready))
        self.assertFalse(bootstrap.is_ready())
        self.system_rich = True
        self.assertIn("no network", self.printed(bootstrap.make_ready)[1])
        self.assertIn("--system-site-packages", self.commands[-1])
        seen = self.root / ".venv/lib/python3.11/site-packages/lab-system-packages.pth"
        self.assertEqual(seen.read_text(), "/usr/lib/python3/dist-packages\n")
        self.assertTrue(bootstrap.is_ready())
