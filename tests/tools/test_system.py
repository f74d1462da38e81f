"""system.py: what is missing, who is asked, what is run and what is only shown. No package manager is ever started here."""

import contextlib
import io
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from lab import system  # noqa: E402
from lab.errors import LabError  # noqa: E402

APT = "apt-get install -y --no-install-recommends"


class Ensure(unittest.TestCase):
    """A machine that lacks g++ and Ninja until apt has installed them."""

    def setUp(self) -> None:
        self.installed: list[list[str]] = []
        lacking = [each for each in system.NEEDS if each.apt in ("g++", "ninja-build")]
        self.patch("missing", lambda: [] if any("install" in argv for argv in self.installed) else lacking)
        self.machine(manager="apt", root=True, terminal=False)
        patch = mock.patch.object(system.subprocess, "run", self.run_nothing)
        patch.start()
        self.addCleanup(patch.stop)
        self.code = 0

    def patch(self, name: str, value: object) -> None:
        patch = mock.patch.object(system, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def machine(self, manager: str | None, root: bool, terminal: bool, answer: str = "", sudo: bool = True) -> None:
        self.patch("package_manager", lambda: manager)
        self.patch("is_root", lambda: root)
        stdin = io.StringIO(answer)
        stdin.isatty = lambda: terminal  # type: ignore[method-assign]
        which = "/usr/bin/sudo" if sudo else None
        for target, name, value in ((system.sys, "stdin", stdin), (system.shutil, "which", lambda word: which)):
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def run_nothing(self, argv: list[str], **options: object) -> mock.Mock:
        self.installed.append(argv)
        return mock.Mock(returncode=self.code)

    def ensure(self, yes: bool = False) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            system.ensure(yes)
        return out.getvalue()

    def test_root_installs_without_asking_after_an_update(self) -> None:
        self.assertEqual(self.ensure(), f"$ apt-get update\n$ {APT} g++ ninja-build\n")
        self.assertEqual([argv[1] for argv in self.installed], ["update", "install"])

    def test_nothing_is_asked_of_a_machine_that_has_all(self) -> None:
        self.patch("missing", list)
        self.assertEqual((self.ensure(), self.installed), ("", []))

    def test_one_who_is_not_root_is_asked(self) -> None:
        self.machine("apt", root=False, terminal=True, answer="y\n")
        seen = self.ensure()
        self.assertIn(f"sudo apt-get update && sudo {APT} g++ ninja-build\nInstall now? [y/N] ", seen)
        self.assertEqual([argv[0] for argv in self.installed], ["sudo", "sudo"])

    def test_no_answer_is_a_no(self) -> None:
        self.machine("apt", root=False, terminal=True, answer="\n")
        with self.assertRaisesRegex(LabError, "when you want it: sudo apt-get update && sudo apt-get install"):
            self.ensure()
        self.assertEqual(self.installed, [])

    def test_where_nobody_can_be_asked_the_command_is_shown(self) -> None:
        self.machine("apt", root=False, terminal=False)
        with self.assertRaises(LabError) as caught:
            self.ensure()
        self.assertEqual(str(caught.exception), "this machine lacks a C++ compiler, Ninja; to install: "
                                                f"sudo apt-get update && sudo {APT} g++ ninja-build")
        self.assertEqual(self.installed, [])

    def test_yes_answers_beforehand(self) -> None:
        self.machine("apt", root=False, terminal=False)
        self.assertNotIn("[y/N]", self.ensure(yes=True))
        self.assertEqual(len(self.installed), 2)

    def test_without_sudo_the_command_is_for_root(self) -> None:
        self.machine("apt", root=False, terminal=True, sudo=False)
        with self.assertRaisesRegex(LabError, "to install: as root: apt-get update && apt-get install"):
            self.ensure()

    def test_a_failing_apt_is_one_line(self) -> None:
        self.code = 100
        with self.assertRaisesRegex(LabError, "^apt-get could not install g\\+\\+ ninja-build: see its message above"):
            self.ensure()
        self.assertEqual(len(self.installed), 2, "a failed update is not the end")

    def test_other_package_managers_are_not_run(self) -> None:
        for manager, wanted in (("dnf", "sudo dnf install -y gcc-c++ ninja-build"),
                                ("pacman", "sudo pacman -S --needed --noconfirm gcc ninja"),
                                ("brew", "brew install gcc ninja"),
                                (None, "install a C++ compiler, Ninja with this machine's package manager")):
            self.machine(manager, root=False, terminal=True)
            with self.subTest(manager), self.assertRaises(LabError) as caught:
                self.ensure(yes=True)
            self.assertEqual(str(caught.exception), f"this machine lacks a C++ compiler, Ninja; to install: {wanted}")
        self.assertEqual(self.installed, [])


class Looking(unittest.TestCase):
    def test_catch2_of_either_version_is_found_in_a_prefix(self) -> None:
        for header in ("catch.hpp", "catch_all.hpp"):
            with self.subTest(header), tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "include" / "catch2" / header
                file.parent.mkdir(parents=True)
                file.touch()
                with mock.patch.dict(os.environ, CMAKE_PREFIX_PATH=f"/nowhere:{folder}"):
                    self.assertEqual(system.find_catch2(), file)

    def test_the_compiler_is_the_one_that_cmake_would_take(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("g++", "my++"):
                (Path(folder) / name).touch(mode=0o755)
            with mock.patch.dict(os.environ, PATH=folder):
                os.environ.pop("CXX", None)
                self.assertEqual(system.find_compiler(), f"{folder}/g++")
                os.environ["CXX"] = "my++"
                self.assertEqual(system.find_compiler(), f"{folder}/my++")
                os.environ["CXX"] = "nothing++"
                self.assertIsNone(system.find_compiler())


if __name__ == "__main__":
    unittest.main()
