"""`./lab doctor`: its lines, its exit code, and the versions that it reads. The planted bugs are `./lab doctor`'s own test."""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from lab.planted import BARRIER, NO_BARRIER, Ran  # noqa: E402
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
        self.assertEqual(lines, ["  ok     CMake              3.25.1", "", "This machine has all that the CPU parts need; without a GPU, CUDA tasks run emulated."])

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


class Emulator(unittest.TestCase):
    """Of a build that is not there: nothing is compiled."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name)
        self.have(BUILD=self.build)
        self.machine("Linux", "x86_64")

    def have(self, **what: object) -> None:
        for name, value in what.items():
            patch = mock.patch.object(doctor, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def machine(self, name: str, processor: str) -> None:
        for function, value in (("system", name), ("machine", processor)):
            patch = mock.patch(f"platform.{function}", return_value=value)
            patch.start()
            self.addCleanup(patch.stop)

    def built(self, emulated: str = "TRUE", checked: str = "TRUE", compiler: str = "GNU 12.2.0") -> None:
        (self.build / "lib").mkdir()
        for name in ("flash_common", "flash_simt", "flash_cuda_emulated"):
            (self.build / "lib" / f"lib{name}.so").touch()
        config = {"emulated": emulated, "checked": checked, "compiler": compiler}
        (self.build / "config.json").write_text(json.dumps(config))

    def gxx(self, clang: bool = False) -> None:
        self.have(run_command=lambda argv: Ran(0, "#define __clang__ 1" if clang else "#define __GNUC__ 12"))
        for target, value in (("lab.system.find_compiler", "/usr/bin/c++"), ("shutil.which", "/usr/bin/addr2line")):
            patch = mock.patch(target, return_value=value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_another_machine(self) -> None:
        self.machine("Darwin", "arm64")
        wanted = doctor.lack("Darwin on arm64: .cu files are left to GPUs", "Linux on x86-64 or AArch64 (WSL too)")
        self.assertEqual([doctor._emulator(), doctor._emulator_checks()], [wanted, wanted])

    def test_before_the_first_build_nothing_is_tried(self) -> None:
        self.gxx()
        self.assertEqual(doctor._emulator(), doctor.have("Linux on x86_64; not tried before it is built (./lab check part1)"))
        self.assertTrue(doctor._emulator_checks().ok)

    def test_clang_has_no_checks(self) -> None:
        self.gxx(clang=True)
        self.assertTrue(doctor._emulator().ok)
        finding = doctor._emulator_checks()
        self.assertIn("need g++, and /usr/bin/c++ is clang", finding.text)
        self.assertIn("CXX=g++", finding.fix)

    def test_a_build_of_another_compiler(self) -> None:
        self.gxx()
        self.built(checked="FALSE", compiler="Clang 14.0.6")
        self.assertEqual(doctor._emulator_checks(), doctor.lack("build/default was configured without them, for Clang 14.0.6",
                                                                "rm -r build/default, then CXX=g++ ./lab check part1"))

    def test_a_planted_missing_barrier_has_to_be_found_with_its_line(self) -> None:
        self.gxx()
        self.built()
        race = "kernel reverse: a data race between /tmp/planted.cu{} and /tmp/planted.cu{}"
        for ran, ok, text in (
            (Ran(1, race.format(":7", ":6")), True, "see a planted missing __syncthreads(), and its line"),
            (Ran(1, race.format("", "")), False, "see a planted missing __syncthreads(), and not its line"),
            (Ran(0, "63"), False, "do not see a planted missing __syncthreads(): no report"),
            (Ran(1, "a\nld: no", "compile"), False, "do not see a planted missing __syncthreads(): ld: no"),
        ):
            with self.subTest(text), mock.patch.object(doctor, "emulate", return_value=ran):
                finding = doctor._emulator_checks()
                self.assertEqual((finding.ok, finding.text, bool(finding.fix)), (ok, text, not ok))
        for ran, ok in ((Ran(0, "63"), True), (Ran(0, "-1"), False), (Ran(1, "ld: no", "compile"), False)):
            with mock.patch.object(doctor, "emulate", return_value=ran):
                self.assertEqual(doctor._emulator().ok, ok)

    def test_the_planted_bug_is_one_barrier(self) -> None:
        self.assertEqual(len(BARRIER.splitlines()) - len(NO_BARRIER.splitlines()), 1)


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
