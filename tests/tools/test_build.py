"""build.py: a toy project that needs no compiler, and the first error in what compilers, linkers, Ninja and CMake print."""

import json
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

os.environ["TERM"] = "dumb"  # plain lines, also for a person who runs these tests on a terminal
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from lab import build, console, paths  # noqa: E402
from lab.errors import LabError  # noqa: E402

CONFIG = {"version": "0.1.0", "compiler": "GNU 12.2.0", "catch2": "2.13.10", "cuda": "none", "cuda_version": "", "gpu": "",
          "emulated": "TRUE", "checked": "FALSE", "cuda_architectures": ""}

CMAKELISTS = f"""cmake_minimum_required(VERSION 3.21)
project(toy NONE)
message(STATUS "CUDA: no nvcc; the CPU parts build")
file(WRITE ${{CMAKE_BINARY_DIR}}/config.json [==[{json.dumps(CONFIG)}]==])
add_custom_target(good COMMAND ${{CMAKE_COMMAND}} -E touch good.txt)
add_custom_target(bad COMMAND ${{CMAKE_COMMAND}} -E echo "${{CMAKE_SOURCE_DIR}}/part1/fused.cpp:3:4: error: no semicolon"
                      COMMAND ${{CMAKE_COMMAND}} -E false)
"""

PRESETS = {"version": 3, "configurePresets": [
    {"name": "default", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}]}


class Toy(unittest.TestCase):
    """A project in a temporary folder."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lab-test-")
        self.addCleanup(folder.cleanup)
        without_ci = mock.patch.dict(os.environ)
        without_ci.start()
        self.addCleanup(without_ci.stop)
        os.environ.pop("CI", None)
        self.use(Path(folder.name).resolve() / "toy")
        self.root.mkdir()
        (self.root / "CMakeLists.txt").write_text(CMAKELISTS)
        (self.root / "CMakePresets.json").write_text(json.dumps(PRESETS))

    def use(self, root: Path) -> None:
        self.root = root
        patch = mock.patch.object(paths, "ROOT", root)
        patch.start()
        self.addCleanup(patch.stop)

    def seen(self, call: object, *arguments: object, **options: object) -> tuple[object, str]:
        with console.console.capture() as capture:
            value = call(*arguments, **options)
        return value, capture.get()


class Configure(Toy):
    def test_says_the_command_and_the_state_of_cuda_and_reads_what_was_found(self) -> None:
        config, seen = self.seen(build.configure)
        self.assertEqual(config, build.Config(**(CONFIG | {"emulated": True, "checked": False})))
        self.assertEqual(seen, "$ cmake --preset default\nCUDA: no nvcc; the CPU parts build\n")

    def test_a_configured_project_is_not_configured_again(self) -> None:
        self.seen(build.configure)
        config, seen = self.seen(build.configured)
        self.assertEqual((config.compiler, seen), ("GNU 12.2.0", ""))

    def test_a_config_of_an_older_version_is_made_anew(self) -> None:
        self.seen(build.configure)
        (self.root / "build/default/config.json").write_text(json.dumps({"version": "0.0.9"}))
        config, seen = self.seen(build.configured)
        self.assertEqual((config.version, config.emulated), ("0.1.0", True))
        self.assertTrue(seen.startswith("$ cmake --preset default\n"), seen)

    def test_ci_turns_warnings_into_errors(self) -> None:
        with mock.patch.dict(os.environ, CI="true"):
            _, seen = self.seen(build.configure)
        self.assertIn("$ cmake --preset default -DFLASH_WERROR=ON\n", seen)

    def test_a_moved_project_is_configured_afresh(self) -> None:
        self.seen(build.configure)
        moved = self.root.with_name("moved")
        shutil.move(self.root, moved)
        self.use(moved)
        config, seen = self.seen(build.configured)
        self.assertEqual(config.version, "0.1.0")
        self.assertIn("build/default was configured elsewhere", seen)

    def test_a_failure_is_one_line_with_cmakes_message(self) -> None:
        with (self.root / "CMakeLists.txt").open("a") as file:
            file.write(f'message(FATAL_ERROR "{"a long message " * 9}")\n')
        with self.assertRaises(LabError) as caught:
            self.seen(build.configure)
        wanted = f"cmake --preset default failed: CMakeLists.txt:8: {'a long message ' * 9}"
        self.assertEqual(str(caught.exception), wanted.strip())

    def test_a_config_that_cannot_be_read_says_what_to_do(self) -> None:
        self.seen(build.configure)
        (self.root / "build/default/config.json").write_text("{")
        with self.assertRaisesRegex(LabError, "^build/default/config.json cannot be read .*: delete build/default and try"):
            build.configured()


class Build(Toy):
    def setUp(self) -> None:
        super().setUp()
        self.seen(build.configure)

    def test_one_target(self) -> None:
        result, seen = self.seen(build.build, "good")
        self.assertTrue(result.ok)
        self.assertEqual(result.first_error, "")
        self.assertEqual(seen, "$ cmake --build build/default --target good\n")

    def test_the_first_error_of_a_failing_target(self) -> None:
        result, _ = self.seen(build.build, "bad")
        self.assertFalse(result.ok)
        self.assertEqual(result.first_error, "part1/fused.cpp:3:4: error: no semicolon")
        self.assertIn("no semicolon", build.failure(result.log))

    def test_one_that_fails_does_not_stop_the_others_when_asked_to_keep_going(self) -> None:
        result, seen = self.seen(build.build, ["bad", "good"], keep_going=True)
        self.assertFalse(result.ok)
        self.assertTrue((self.root / "build/default/good.txt").exists())
        self.assertEqual(seen, "$ cmake --build build/default --target bad good -- -k 0\n")

    def test_a_target_that_is_not_there(self) -> None:
        result, _ = self.seen(build.build, "nothing")
        self.assertEqual(result.first_error, "error: unknown target 'nothing'")

    def test_the_place_of_a_binary(self) -> None:
        self.assertEqual(build.binary("a_tests", "asan"), self.root / "build/asan/bin/a_tests")


class FirstError(unittest.TestCase):
    def setUp(self) -> None:
        patch = mock.patch.object(paths, "ROOT", Path("/course"))
        patch.start()
        self.addCleanup(patch.stop)

    def check(self, log: str, wanted: str) -> None:
        self.assertEqual(build.first_error(log, Path("/course/build/default")), wanted)

    def test_gcc(self) -> None:
        self.check("""[1/3] Building CXX object a.o
FAILED: a.o
/usr/bin/c++ -O2 -c /course/part1/skeleton/fused_cpu.cpp
/course/part1/skeleton/fused_cpu.cpp: In function 'void f()':
/course/part1/skeleton/fused_cpu.cpp:30:5: warning: unused variable 'n' [-Wunused-variable]
/course/part1/skeleton/fused_cpu.cpp:31:5: error: 'x' was not declared in this scope
/course/part1/skeleton/fused_cpu.cpp:40:5: error: 'y' was not declared in this scope
ninja: build stopped: subcommand failed.
""", "part1/skeleton/fused_cpu.cpp:31:5: error: 'x' was not declared in this scope")

    def test_a_missing_header(self) -> None:
        self.check("/course/part1/a.cpp:1:10: fatal error: nothing.hpp: No such file or directory\n",
                   "part1/a.cpp:1:10: error: nothing.hpp: No such file or directory")

    def test_a_path_outside_of_the_course_stays_whole(self) -> None:
        self.check("/usr/include/c++/12/span:9:1: error: no\n", "/usr/include/c++/12/span:9:1: error: no")

    def test_nvcc(self) -> None:
        self.check("/course/part1/skeleton/fused_cuda.cu(31): error: identifier \"x\" is undefined\n",
                   "part1/skeleton/fused_cuda.cu:31: error: identifier \"x\" is undefined")
        self.check("/course/part1/a.cu(7): error #20013-D: calling a constexpr __host__ function\n",
                   "part1/a.cu:7: error: calling a constexpr __host__ function")
        self.check("/course/part1/a.cu(1): catastrophic error: cannot open source file \"b.hpp\"\n",
                   "part1/a.cu:1: error: cannot open source file \"b.hpp\"")

    def test_ptxas(self) -> None:
        self.check("ptxas error   : Entry function 'k' uses too much shared data (0x10000 bytes, 0xc000 max)\n",
                   "Entry function 'k' uses too much shared data (0x10000 bytes, 0xc000 max)")

    def test_a_linker(self) -> None:
        self.check("""/usr/bin/ld: part1/a.o: in function `main':
a.cpp:(.text+0x5): undefined reference to `flash::softmax_matmul()'
collect2: error: ld returned 1 exit status
""", "a.cpp: error: undefined reference to `flash::softmax_matmul()'")
        self.check("/usr/bin/ld: /course/part1/a.cpp:12: undefined reference to `g()'\n",
                   "part1/a.cpp:12: error: undefined reference to `g()'")
        self.check("""/usr/bin/ld: b.o: in function `f()':
b.cpp:(.text+0x0): multiple definition of `f()'; a.o:a.cpp:(.text+0x0): first defined here
""", "b.cpp: error: multiple definition of `f()'; a.o:a.cpp:(.text+0x0): first defined here")
        self.check("/usr/bin/ld: ../../lib/libtask.so: undefined reference to `g()'\n",
                   "../../lib/libtask.so: error: undefined reference to `g()'")
        self.check("/usr/bin/ld: cannot find -lnothing: No such file or directory\n",
                   "cannot find -lnothing: No such file or directory")
        self.check("ld.lld: error: undefined symbol: f()\n", "error: undefined symbol: f()")

    def test_ninja_and_cmake(self) -> None:
        self.check("ninja: error: loading 'build.ninja': No such file or directory\n",
                   "error: loading 'build.ninja': No such file or directory")
        self.check("CMake Error at tests/CMakeLists.txt:4 (message):\n  Catch2 is\n  needed\n\nCall Stack:\n  a\n",
                   "tests/CMakeLists.txt:4: Catch2 is needed")

    def test_a_log_that_says_nothing_known(self) -> None:
        self.check("one\ntwo\n\n", "two")
        self.check("", "the build failed without a message")


if __name__ == "__main__":
    unittest.main()
