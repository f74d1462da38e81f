"""`./lab doctor`: its lines, its exit code, and the versions that it reads. The planted bugs are `./lab doctor`'s own test."""

import argparse
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from lab.verbs import doctor  # noqa: E402


class Doctor(unittest.TestCase):
    def run_with(self, *checks: doctor.Check) -> tuple[int, list[str]]:
        out = io.StringIO()
        with mock.patch.object(doctor, "CHECKS", checks), contextlib.redirect_stdout(out):
            code = doctor.run(argparse.Namespace())
        return code, out.getvalue().splitlines()[2:]

    def test_all_there(self) -> None:
        code, lines = self.run_with(doctor.Check("CMake", True, lambda: doctor.have("3.25.1"), "looking"))
        self.assertEqual(code, 0)
        self.assertEqual(lines, ["  ok     CMake              3.25.1", "", "This machine has all that the CPU parts need."])

    def test_what_only_some_parts_need_is_said_and_does_not_count(self) -> None:
        code, lines = self.run_with(doctor.Check("GPU", False, lambda: doctor.lack("none", "buy one")))
        self.assertEqual(code, 0)
        self.assertEqual(lines[:2], ["  none   GPU                none", f"{'':28}fix: buy one"])

    def test_what_the_cpu_parts_need_counts(self) -> None:
        with mock.patch.object(doctor.system, "missing", list):
            code, lines = self.run_with(doctor.Check("Ninja", True, lambda: doctor.lack("none found", "install it")))
        self.assertEqual(code, 1)
        self.assertEqual(lines[0], "  LACKS  Ninja              none found")
        self.assertEqual(lines[-1], "Lacking for the CPU parts: Ninja.")

    def test_a_bare_machine_gets_a_fix_for_every_lack(self) -> None:
        with mock.patch.dict("os.environ", PATH="/nowhere", CXX="", CUDACXX="nvcc"):
            for check in doctor.CHECKS:
                finding = check.look()
                self.assertTrue(finding.ok or finding.fix, check.name)
                self.assertNotIn("\n", finding.text + finding.fix)


class Versions(unittest.TestCase):
    def test_catch2(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            old, new = Path(folder) / "catch.hpp", Path(folder) / "catch_all.hpp"
            old.write_text("/*\n *  Catch v2.13.10\n *  Generated: 2022-10-16 11:01:23\n */\n")
            self.assertEqual(doctor.catch2_version(old), (2, 13, 10))
            (Path(folder) / "catch_version_macros.hpp").write_text(
                "#define CATCH_VERSION_MAJOR 3\n#define CATCH_VERSION_MINOR 7\n#define CATCH_VERSION_PATCH 1\n")
            self.assertEqual(doctor.catch2_version(new), (3, 7, 1))

    def test_programs(self) -> None:
        for text, version in (("cmake version 3.25.1", (3, 25, 1)), ("1.11.1", (1, 11, 1)), ("1.13.0.git.kitware", (1, 13, 0)),
                              ("nothing", (0,))):
            self.assertEqual(doctor._version(text), version)


if __name__ == "__main__":
    unittest.main()
