"""`./lab test`: the summary of a toy project's tests, whose failures are shown in full above it."""

import json
from unittest import mock

from course import Test
from lab import build, paths, system
from lab.verbs.student import test

TOY = """cmake_minimum_required(VERSION 3.21)
project(toy NONE)
enable_testing()
file(WRITE ${CMAKE_BINARY_DIR}/config.json "{}")
set(verdict "needs-gpu|verdict:not-started|verdict:needs-checks")
foreach(name ok "with <&>" needs-gpu not-started needs-checks)
  add_test(NAME "a ${name}" COMMAND ${CMAKE_COMMAND} -E echo "verdict:${name}")
  set_tests_properties("a ${name}" PROPERTIES SKIP_REGULAR_EXPRESSION "verdict:${verdict}")
endforeach()
"""
FAILING = """foreach(number 1 2 3 4)
  add_test(NAME bad${number} COMMAND sh -c "echo 'first <${number}>'; echo [red]last; exit 1")
endforeach()
add_test(NAME gone_NOT_BUILT COMMAND /nonexistent)
"""
NOT_ALONE = """add_test(NAME "not <&> alone" COMMAND sh -c
  "test -e there && exit 0; touch there; echo at first; exit 1")
"""


class Summary(Test):
    def run_with(self, cmake):
        root = self.folder()
        (root / "CMakeLists.txt").write_text(cmake)
        presets = {"default": "all", "asan": "asan"}  # configured: tested
        (root / "CMakePresets.json").write_text(json.dumps({"version": 3, "configurePresets": [
            {"name": name, "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}
            for name in presets], "testPresets": [
            {"name": test, "configurePreset": name, "output": {"outputOnFailure": True}}
            for name, test in presets.items()]}))
        config = build.Config("", "", "none", "", "", True, False)
        self.patch(paths, ROOT=root)
        self.patch(build, _read_config=lambda folder: config)
        self.patch(system, ensure=lambda yes: None)
        code, text = self.printed(test.run, mock.Mock(yes=False))
        return code, text.splitlines()

    def test_all_passed(self):
        code, lines = self.run_with(TOY)
        self.assertEqual(code, 0)
        stage = r": 2 passed, 0 failed, 3 skipped; build \d+ s, tests \d+ s"
        for line, name in zip(lines[-5:], ("suite", "sanitizers")):
            self.assertRegex(line, name + stage)
        log = "Testing/Temporary/LastTest.log"
        self.assertEqual(lines[-3:], [
            "skipped: 2 need a GPU, 2 not started, "
            "2 need the emulator's checks",
            f"full logs: build/default/{log}, build/asan/{log}",
            "4 passed, 0 failed, 6 skipped"])

    def test_failures_are_shown_in_full_and_then_named(self):
        code, lines = self.run_with(TOY + FAILING)
        self.assertEqual(code, 1)
        for number in range(1, 5):
            place = lines.index(f"bad{number} (Failed)")
            self.assertEqual(lines[place + 1:place + 3], [f"first <{number}>", "[red]last"])
        names = [*(f"bad{number} (Failed)" for number in range(1, 5)), "gone_NOT_BUILT (Not Run)"]
        self.assertEqual(lines[-13:-3], [f"failed ({stage}): {name}"
                                         for stage in ("suite", "sanitizers") for name in names])
        self.assertEqual(lines[-1], "4 passed, 10 failed, 6 skipped")

    def test_what_failed_beside_others_is_run_again_alone(self):
        code, lines = self.run_with(TOY + NOT_ALONE)
        self.assertEqual((code, lines[-1]), (0, "6 passed, 0 failed, 6 skipped"))
        self.assertEqual(lines[-5:-3], ["passed only when run again, alone: not <&> alone"] * 2)
        self.assertEqual(lines.count("at first"), 2)  # of each stage
        log = (paths.ROOT / "build/asan/Testing/Temporary/LastTest.log").read_text()
        self.assertLess(log.index("at first"), log.rindex('Testing: not <&> alone'))
        code, lines = self.run_with(TOY + NOT_ALONE + FAILING)
        self.assertEqual((code, lines[-1]), (1, "6 passed, 10 failed, 6 skipped"))

    def test_what_does_not_build_or_configure_counts_as_one_failure(self):
        cmake = "COMMAND ${CMAKE_COMMAND} -E"
        broken = f'add_custom_target(x ALL {cmake} echo "a.cpp:1: error: no" {cmake} false)\n'
        code, lines = self.run_with(TOY + broken)
        self.assertEqual((code, lines[-1]), (1, "0 passed, 2 failed, 0 skipped"))
        self.assertIn("failed (sanitizers): the build: a.cpp:1: error: no", lines)
        code, lines = self.run_with(TOY + "message(FATAL_ERROR no)\n")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 2 failed, 0 skipped"))
