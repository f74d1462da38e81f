"""`./lab doctor`: its lines, its exit code, what it makes of versions and planted bugs."""

import argparse
from unittest import mock

from course import Test
from lab.planted import Ran
from lab.verbs.student import doctor


class Doctor(Test):
    def run_with(self, *checks):
        self.patch(doctor, CHECKS=checks)
        self.patch(doctor.system, missing=list)
        code, text = self.printed(doctor.run, argparse.Namespace())
        return code, text.splitlines()[2:]

    def test_only_what_the_cpu_parts_need_counts(self):
        cmake = doctor.Check("CMake", True, lambda: doctor.have("3.25.1"))
        gpu = doctor.Check("GPU", False, lambda: doctor.lack("none", "buy one"))
        self.assertEqual(self.run_with(cmake, gpu), (0, [
            "  ok     CMake              3.25.1", "  none   GPU                none",
            f"{'':28}fix: buy one", "",
            "This machine has all that the CPU parts need. Without a GPU, CUDA tasks run "
            "emulated."]))
        ninja = doctor.Check("Ninja", True, lambda: doctor.lack("none found", "install it"))
        code, lines = self.run_with(ninja)
        self.assertEqual((code, lines[0], lines[-1]),
                         (1, "  LACKS  Ninja              none found",
                          "The CPU parts need what is missing here: Ninja."))

    def test_a_bare_machine_gets_a_fix_for_all_that_it_lacks(self):
        self.environment(PATH="/nowhere", CXX="", CUDACXX="nvcc")
        for check in doctor.CHECKS:
            finding = check.look()
            self.assertTrue(finding.ok or finding.fix, check.name)
            self.assertNotIn("\n", finding.text + finding.fix)

    def test_a_version_that_is_too_old(self):
        tool = self.folder() / "cmake"
        tool.write_text("#!/bin/sh\necho cmake version 3.9.6.git\n")
        tool.chmod(0o755)
        self.environment(PATH=f"{tool.parent}:/bin")
        cmake = next(check for check in doctor.CHECKS if check.name == "CMake")
        self.assertIn("3.9.6.git; 3.21 or newer is needed", cmake.look().text)

    def test_a_planted_bug_has_to_be_found(self):
        asan = next(check for check in doctor.CHECKS if check.name == "ASan")
        self.patch(doctor.system, find_compiler=lambda: "c++")
        for ran, ok, text in (
            (Ran(1, "==7==ERROR: AddressSanitizer: heap-buffer-overflow"), True, "finds a planted"),
            (Ran(0, ""), False, "does not find a planted heap overflow: no report"),
            (Ran(1, "a\nld: no", "compile"), False, "does not link: ld: no"),
        ):
            with mock.patch.object(doctor, "compile_and_run", return_value=ran):
                finding = asan.look()
            self.assertEqual((finding.ok, bool(finding.fix)), (ok, not ok))
            self.assertIn(text, finding.text)

    def test_the_emulators_checks_need_gxx(self):
        self.patch(doctor, run_command=lambda argv: Ran(0, "#define __clang__ 1"))
        self.patch(doctor.system, find_compiler=lambda: "/usr/bin/c++")
        finding = doctor._emulator_checks()
        self.assertIn("they need g++, and /usr/bin/c++ is clang", finding.text)
        self.assertIn("CXX=g++", finding.fix)
        self.patch(doctor, run_command=lambda argv: Ran(0, "include/backtrace.h"))
        self.assertIn("have no line numbers", doctor._emulator_checks().text)
