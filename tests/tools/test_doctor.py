"""`./lab doctor`: its lines, its exit code, what it makes of versions and planted bugs."""

import argparse
import re
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
