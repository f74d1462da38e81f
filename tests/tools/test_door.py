"""`./lab` itself: the bash door, bootstrap.py and main.py, from a machine with nothing installed to a verb's exit code.

The door is tried in a copy without .venv, so that nothing is installed and the network is never used.
"""

import argparse
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))

from lab import bootstrap, main, system  # noqa: E402
from lab.errors import LabError  # noqa: E402


class Door(unittest.TestCase):
    """The bash script and what needs no package."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lab-test-")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve() / "a course"  # a path with a space
        (self.root / "tools").mkdir(parents=True)
        shutil.copy(REPOSITORY / "lab", self.root / "lab")
        shutil.copy(REPOSITORY / "tools/requirements.txt", self.root / "tools/requirements.txt")
        shutil.copytree(REPOSITORY / "tools/lab", self.root / "tools/lab", ignore=shutil.ignore_patterns("__pycache__"))

    def lab(self, *argv: str, path: str | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": path or f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return subprocess.run([shutil.which("bash") or "bash", str(self.root / "lab"), *argv], cwd=cwd, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def test_alone_it_lists_its_verbs_by_group_and_the_first_commands(self) -> None:
        for argv in ([], ["--help"], ["-h"], ["help"]):
            done = self.lab(*argv)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for wanted in ("usage: ./lab VERB", "\nStudent\n", "  check      grade your files", "  ./lab run "):
                self.assertIn(wanted, done.stdout)
        self.assertFalse((self.root / ".venv").exists())

    def test_every_verb_has_its_line(self) -> None:
        for verb in main.verbs():
            self.assertRegex(main.help_of(verb), r"^.{10,90}$", verb)
        self.assertLessEqual(max(len(line) for line in main.overview().splitlines()), 100)

    def test_an_unknown_verb_is_one_line_with_the_nearest(self) -> None:
        done = self.lab("chek", "part1")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "lab: there is no verb 'chek': did you mean ./lab check?\n")
        self.assertEqual(self.lab("xyzzy").stderr, "lab: there is no verb 'xyzzy': ./lab alone lists the verbs\n")

    def test_help_of_a_verb_installs_nothing(self) -> None:
        done = self.lab("run", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("./lab run: set up, build", done.stdout)
        self.assertFalse((self.root / ".venv").exists())

    def test_it_can_be_called_from_anywhere(self) -> None:
        with tempfile.TemporaryDirectory() as elsewhere:
            (Path(elsewhere) / "argparse.py").write_text("raise SystemExit('a file of the student was imported')")
            self.assertEqual(self.lab(cwd=Path(elsewhere)).returncode, 0)

    def test_without_a_python_that_is_new_enough_it_says_so(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("dirname",):
                os.symlink(shutil.which(name) or name, Path(folder) / name)
            old = Path(folder) / "python3"
            old.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n")
            old.chmod(0o755)
            script = (self.root / "lab").read_text().replace(" /usr/bin/python3", "")
            (self.root / "lab").write_text(script)
            done = self.lab(path=folder)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("lab: Python 3.11 or later is needed, and this machine has Python 3.9.2", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)


class Main(unittest.TestCase):
    """What main() makes of a verb's end."""

    def call(self, *argv: str, run: object = None, arguments: tuple[str, ...] = ()) -> tuple[int, str]:
        def add_arguments(parser: argparse.ArgumentParser) -> None:
            for name in arguments:
                parser.add_argument(name, type=int)

        def end(args: argparse.Namespace) -> int:
            if isinstance(run, BaseException):
                raise run
            return run if isinstance(run, int) else 0

        verb = SimpleNamespace(add_arguments=add_arguments, run=end)
        out, err = io.StringIO(), io.StringIO()
        load = mock.patch.object(main, "load", lambda name: verb)
        with load, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return main.main(list(argv)), err.getvalue()

    def test_exit_codes(self) -> None:
        self.assertEqual(self.call("doctor"), (0, ""))
        self.assertEqual(self.call("doctor", run=3), (3, ""))
        self.assertEqual(self.call("doctor", run=LabError("part9 does not exist")), (1, "lab: part9 does not exist\n"))
        self.assertEqual(self.call("doctor", run=KeyboardInterrupt()), (130, "\nlab: interrupted\n"))

    def test_a_wrong_argument_is_one_line(self) -> None:
        self.assertEqual(self.call("doctor", "--speed"),
                         (2, "lab: unrecognized arguments: --speed (./lab doctor --help says more)\n"))
        self.assertEqual(self.call("doctor", "--seed", "x", arguments=("--seed",)),
                         (2, "lab: argument --seed: invalid int value: 'x' (./lab doctor --help says more)\n"))

    def test_a_package_that_is_missing_is_one_line(self) -> None:
        error = ModuleNotFoundError("No module named 'rich'", name="rich")
        with mock.patch.object(main.importlib, "import_module", side_effect=error):
            self.assertRaisesRegex(LabError, "no package rich", main.load, "check")


class Bootstrap(unittest.TestCase):
    """How .venv comes to be, with every command replaced by what it would leave behind."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lab-test-")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "pins.txt").write_text("rich==1\n")
        self.commands: list[list[str]] = []
        self.offline = self.system_rich = False
        for name, value in (("REPOSITORY", self.root), ("VENV", self.root / ".venv"), ("PINS", self.root / "pins.txt"),
                            ("LOCK", self.root / ".lab/lock"), ("_run", self.run_nothing)):
            self.patch(bootstrap, name, value)
        self.patch(bootstrap.subprocess, "run", lambda *_, **__: SimpleNamespace(
            returncode=0 if self.system_rich else 1, stdout="/usr/lib/python3/dist-packages\n"))
        self.patch(system, "can_make_venv", lambda: True)
        self.patch(system, "package_manager", lambda: None)

    def patch(self, target: object, name: str, value: object) -> None:
        patch = mock.patch.object(target, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def run_nothing(self, command: list[object], doing: str) -> None:
        words = [str(word) for word in command]
        self.commands.append(words)
        if "pip" in words and self.offline:
            raise LabError(f"{doing} failed (no network)")
        if "venv" in words:
            for folder in ("bin", "lib/python3.11/site-packages"):
                (self.root / ".venv" / folder).mkdir(parents=True, exist_ok=True)
            bootstrap.python().unlink(missing_ok=True)
            bootstrap.python().symlink_to(sys.executable)

    def make_ready(self) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            bootstrap.make_ready()
        return out.getvalue()

    def test_it_is_made_once(self) -> None:
        self.assertFalse(bootstrap.is_ready())
        self.make_ready()
        self.assertTrue(bootstrap.is_ready())
        self.assertEqual(len(self.commands), 2)
        self.make_ready()
        self.assertEqual(len(self.commands), 2)

    def test_other_pins_or_another_python_make_it_anew(self) -> None:
        self.make_ready()
        (self.root / "pins.txt").write_text("rich==2\n")
        self.assertFalse(bootstrap.is_ready())
        self.make_ready()
        bootstrap.python().unlink()
        bootstrap.python().symlink_to("/bin/sh")
        self.assertFalse(bootstrap.is_ready())

    def test_one_that_was_cut_off_is_not_taken_for_whole(self) -> None:
        with mock.patch.object(bootstrap, "_run", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            self.make_ready()
        self.assertFalse(bootstrap.is_ready())

    def test_without_the_network_the_systems_packages_will_do(self) -> None:
        self.offline = self.system_rich = True
        self.assertIn("no network", self.make_ready())
        self.assertIn("--system-site-packages", self.commands[-1])
        seen = self.root / ".venv/lib/python3.11/site-packages/lab-system-packages.pth"
        self.assertEqual(seen.read_text(), "/usr/lib/python3/dist-packages\n")
        self.assertTrue(bootstrap.is_ready())

    def test_with_neither_it_is_one_line_with_the_fix(self) -> None:
        self.offline = True
        with self.assertRaises(LabError) as caught:
            self.make_ready()
        self.assertEqual(str(caught.exception), "installing into .venv failed (no network); without PyPI: "
                                                "python3 -m pip install rich matplotlib")
        self.assertFalse(bootstrap.is_ready())


if __name__ == "__main__":
    unittest.main()
