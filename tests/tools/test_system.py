"""What a machine lacks: who is asked to install it, what is run and what is only shown (nothing is
run here); and the lines of `./lab doctor`, and what it makes of versions and planted bugs."""

import argparse
import io
import os
import re
from unittest import mock

from course import Test
from lab import system
from lab.planted import Ran
from lab.verbs.student import doctor

APT = "apt-get install -y --no-install-recommends"
BOTH = f"sudo apt-get update && sudo {APT} g++ ninja-build"


class Ensure(Test):
    """A machine that lacks g++ and Ninja until apt has installed them."""

    def setUp(self):
        self.installed: list[list[str]] = []
        self.code = 0
        lacking = [each for each in system.NEEDS if each.apt in ("g++", "ninja-build")]
        self.patch(system, missing=lambda: []
                   if any("install" in one for one in self.installed) else lacking)
        self.patch(system.subprocess, run=self.run_nothing)
        self.machine("apt", root=False)

    def machine(self, manager, root, terminal=True, answer="", sudo=True):
        stdin = io.StringIO(answer)
        stdin.isatty = lambda: terminal
        self.patch(system, package_manager=lambda: manager, is_root=lambda: root)
        self.patch(system.sys, stdin=stdin)
        self.patch(system.shutil, which=lambda word: "/usr/bin/sudo" if sudo else None)

    def run_nothing(self, argv, **options):
        self.installed.append(argv)
        return mock.Mock(returncode=self.code)

    def ensure(self, yes=False):
        return self.printed(system.ensure, yes)[1]

    def test_root_installs_without_asking_after_an_update(self):
        self.machine("apt", root=True, terminal=False)
        self.assertEqual(self.ensure(), f"$ apt-get update\n$ {APT} g++ ninja-build\n")
        self.assertEqual([argv[1] for argv in self.installed], ["update", "install"])
        self.assertEqual((self.ensure(), len(self.installed)), ("", 2))  # nothing is missing

    def test_the_compiler_that_was_asked_for(self):
        self.machine("apt", root=True)
        self.environment(CXX="clang++-19")
        self.assertIn(f"{APT} clang-19 libclang-rt-19-dev ninja-build", self.ensure())

    def test_others_are_asked(self):
        self.assertIn(f"to install it later: {BOTH}", self.refused(system.ensure))  # no answer
        self.assertEqual(self.installed, [])
        self.machine("apt", root=False, answer="y\n")
        self.assertIn(f"{BOTH}\nInstall now? [y/N] ", self.ensure())
        self.assertEqual([argv[0] for argv in self.installed], ["sudo", "sudo"])

    def test_where_nobody_can_be_asked_the_command_is_shown(self):
        lacks = "this machine lacks a C++ compiler, Ninja; to install: "
        self.machine("apt", root=False, terminal=False)
        self.assertEqual(self.refused(system.ensure), lacks + BOTH)
        self.machine("apt", root=False, sudo=False)
        self.assertEqual(self.refused(system.ensure),
                         f"{lacks}as root: apt-get update && {APT} g++ ninja-build")
        for manager, wanted in (
            ("dnf", "sudo dnf install -y gcc-c++ ninja-build"),
            ("pacman", "sudo pacman -S --needed --noconfirm gcc ninja"),
            ("brew", "brew install gcc ninja"),
            (None, "install a C++ compiler, Ninja with this machine's package manager"),
        ):
            self.machine(manager, root=False)
            self.assertEqual(self.refused(system.ensure, yes=True), lacks + wanted)
        self.assertEqual(self.installed, [])
        self.machine("apt", root=False, terminal=False)
        self.assertNotIn("[y/N]", self.ensure(yes=True))
        self.assertEqual(len(self.installed), 2)

    def test_a_failing_apt_is_one_line(self):
        self.code = 100
        self.assertIn("apt-get could not install g++ ninja-build: see its message above",
                      self.refused(system.ensure, yes=True))
        self.assertEqual(len(self.installed), 2, "a failed update is no reason to stop")


class Finding(Test):
    def test_headers_in_a_prefix(self):
        for header, find in (("catch2/catch.hpp", system.find_catch2),
                             ("catch2/catch_all.hpp", system.find_catch2),
                             ("CLI/CLI.hpp", system.find_cli11)):
            file = self.folder() / "include" / header
            file.parent.mkdir(parents=True)
            file.touch()
            self.environment(CMAKE_PREFIX_PATH=f"/nowhere:{file.parents[2]}")
            self.assertEqual(find(), file)

    def test_the_compiler_is_the_one_that_cmake_would_take(self):
        folder = self.folder()
        for name in ("g++", "my++"):
            (folder / name).touch(mode=0o755)
        self.environment(remove=("CXX",), PATH=str(folder))
        self.assertEqual(system.find_compiler(), str(folder / "g++"))
        os.environ["CXX"] = "my++"
        self.assertEqual(system.find_compiler(), str(folder / "my++"))


class Doctor(Test):
    def run_with(self, *checks):
        self.patch(doctor, CHECKS=checks)
        self.patch(doctor.system, missing=list)
        code, text = self.printed(doctor.run, argparse.Namespace())
        return code, text.splitlines()[2:]

    def test_only_what_the_cpu_parts_need_counts(self):
        cmake = doctor.Check("CMake", True, lambda: "3.25.1")
        gpu = doctor.Check("GPU", False, mock.Mock(side_effect=doctor.Lack("none", "buy one")))
        self.assertEqual(self.run_with(cmake, gpu), (0, [
            "  ok     CMake              3.25.1", "  none   GPU                none",
            f"{'':28}fix: buy one", "",
            "This machine has all that the CPU parts need. Without a GPU, CUDA tasks run "
            "emulated."]))
        ninja = doctor.Check("Ninja", True, mock.Mock(side_effect=doctor.Lack("none", "get it")))
        code, lines = self.run_with(ninja)
        self.assertEqual((code, lines[0], lines[-1]),
                         (1, "  LACKS  Ninja              none",
                          "The CPU parts need what is missing here: Ninja."))

    def test_a_bare_machine_gets_a_fix_for_all_that_it_lacks(self):
        self.environment(PATH="/nowhere", CXX="", CUDACXX="nvcc")
        _, lines = self.run_with(*doctor.CHECKS)
        missing = [number for number, line in enumerate(lines) if re.match("  (LACKS|none) ", line)]
        self.assertGreaterEqual(len(missing), 9)
        for number in missing:
            self.assertRegex(lines[number + 1], " fix: .")

    def test_a_version_that_is_too_old(self):
        tool = self.folder() / "cmake"
        tool.write_text("#!/bin/sh\necho cmake version 3.9.6.git\n")
        tool.chmod(0o755)
        self.environment(PATH=f"{tool.parent}:/bin")
        cmake = next(check for check in doctor.CHECKS if check.name == "CMake")
        self.assertIn("3.9.6.git; 3.21 or newer is needed", self.run_with(cmake)[1][0])

    def test_a_planted_bug_has_to_be_found(self):
        asan = next(check for check in doctor.CHECKS if check.name == "ASan")
        for ran, text in (
            (Ran(1, "ERROR: AddressSanitizer: heap-buffer-overflow"), "  ok     ASan .* finds"),
            (Ran(0, ""), "  none   ASan .* does not find a planted heap overflow: no report"),
            (Ran(1, "a\nld: no", "compile"), "  none   ASan .* does not link: ld: no"),
        ):
            self.patch(doctor, compile_and_run=lambda *_, ran=ran: ran)
            self.assertRegex(self.run_with(asan)[1][0], text)

    def test_the_emulators_checks_need_gxx(self):
        checks = next(check for check in doctor.CHECKS if check.name == "emulator's checks")
        for printed, said in (("#define __clang__ 1", r"they need g\+\+, and .*c\+\+ is clang"),
                              ("include/backtrace.h", "have no line numbers")):
            self.patch(doctor, run_command=lambda argv, printed=printed: Ran(0, printed))
            self.assertRegex(self.run_with(checks)[1][0], said)
