"""`./lab doctor`: its lines, its exit code, the versions that it reads, the bugs that it plants."""

import argparse
import json
from unittest import mock

from course import Test
from lab.planted import Ran
from lab.verbs import doctor


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

    def test_versions(self):
        folder = self.folder()
        (folder / "catch.hpp").write_text("/*\n *  Catch v2.13.10\n *  Generated: 2022\n */\n")
        self.assertEqual(doctor.catch2_version(folder / "catch.hpp"), (2, 13, 10))
        (folder / "catch_version_macros.hpp").write_text(
            "#define CATCH_VERSION_MAJOR 3\n#define CATCH_VERSION_MINOR 7\n"
            "#define CATCH_VERSION_PATCH 1\n")
        self.assertEqual(doctor.catch2_version(folder / "catch_all.hpp"), (3, 7, 1))
        (folder / "Version.hpp").write_text(
            '#define CLI11_VERSION_MAJOR 2\n#define CLI11_VERSION "2.1.2"\n')
        self.assertEqual(doctor.cli11_version(folder / "CLI.hpp"), (2, 1, 2))
        self.assertEqual(doctor._version("ninja 1.13.0.git.kitware"), (1, 13, 0))


class Emulator(Test):
    """Of a build that does not exist: nothing is compiled."""

    def setUp(self):
        self.build = self.folder()
        self.patch(doctor, BUILD=self.build)
        self.patch(doctor.platform, system=lambda: "Linux", machine=lambda: "x86_64")
        self.compiler()

    def compiler(self, macro="__GNUC__ 12"):
        self.patch(doctor, run_command=lambda argv: Ran(0, f"#define {macro}"))
        self.patch(doctor.system, find_compiler=lambda: "/usr/bin/c++")
        self.patch(doctor.shutil, which=lambda name, path=None: f"/usr/bin/{name}")

    def built(self, **config):
        (self.build / "lib").mkdir()
        for name in ("flash_common", "flash_simt", "flash_cuda_emulated"):
            (self.build / "lib" / f"lib{name}.so").touch()
        (self.build / "config.json").write_text(
            json.dumps({"emulated": "TRUE", "checked": "TRUE"} | config))

    def test_where_it_cannot_be_tried(self):
        self.assertIn("not tried before it is built (./lab check part1)", doctor._emulator().text)
        self.compiler("__clang__ 1")
        self.assertTrue(doctor._emulator().ok)
        finding = doctor._emulator_checks()
        self.assertIn("they need g++, and /usr/bin/c++ is clang", finding.text)
        self.assertIn("CXX=g++", finding.fix)
        self.compiler()
        self.built(checked="FALSE", compiler="Clang 14.0.6")
        self.assertEqual(doctor._emulator_checks(), doctor.lack(
            "build/default was configured without them, for Clang 14.0.6",
            "rm -r build/default, then CXX=g++ ./lab check part1"))
        self.patch(doctor.platform, system=lambda: "Darwin")
        self.assertEqual(doctor._emulator().text,
                         "Darwin on x86_64: .cu files can run only on a GPU")

    def test_a_planted_missing_barrier_has_to_be_found_with_its_line(self):
        self.built()
        race = "kernel reverse: a data race between /tmp/planted.cu{} and /tmp/planted.cu{}"
        bug = "find a planted missing __syncthreads()"
        for ran, ok, text in (
            (Ran(1, race.format(":7", ":6")), True, f"{bug}, and its line"),
            (Ran(1, race.format("", "")), False, f"{bug}, but not its line"),
            (Ran(1, "a\nld: no", "compile"), False, f"do not {bug}: ld: no"),
        ):
            with self.subTest(text), mock.patch.object(doctor, "emulate", return_value=ran):
                finding = doctor._emulator_checks()
                self.assertEqual((finding.ok, finding.text, bool(finding.fix)), (ok, text, not ok))
        for output in ("63", "-1"):
            with mock.patch.object(doctor, "emulate", return_value=Ran(0, output)):
                self.assertEqual(doctor._emulator().ok, output == "63")
