"""build.py: a toy project that needs no compiler, and the first error in what tools print."""

import json
import shutil
from pathlib import Path

from course import Test
from lab import build, paths, system

CONFIG = {
    "compiler": "GNU 12.2.0", "catch2": "2.13.10", "cuda": "none",
    "cuda_version": "", "gpu": "", "emulated": "TRUE", "checked": "FALSE", "asan": "",
}

CMAKELISTS = f"""cmake_minimum_required(VERSION 3.21)
project(toy NONE)
message(STATUS "CUDA: no nvcc; the CPU parts build")
file(WRITE ${{CMAKE_BINARY_DIR}}/config.json [==[{json.dumps(CONFIG)}]==])
add_custom_target(good COMMAND ${{CMAKE_COMMAND}} -E touch good.txt)
add_custom_target(bad
  COMMAND ${{CMAKE_COMMAND}} -E echo "${{CMAKE_SOURCE_DIR}}/part1/fused.cpp:3:4: error: x"
  COMMAND ${{CMAKE_COMMAND}} -E false)
"""

PRESETS = {"version": 3, "configurePresets": [
    {"name": "default", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}]}


class Toy(Test):
    def setUp(self):
        self.environment(remove=("CI",))
        self.root = self.folder() / "toy"
        self.root.mkdir()
        self.patch(paths, ROOT=self.root)
        (self.root / "CMakeLists.txt").write_text(CMAKELISTS)
        (self.root / "CMakePresets.json").write_text(json.dumps(PRESETS))
        self.config = self.root / "build/default/config.json"

    def test_configuring(self):
        command = "$ cmake --preset default\n"
        config, seen = self.printed(build.configure)
        self.assertEqual(config, build.Config(**(CONFIG | {"emulated": True, "checked": False})))
        self.assertEqual(seen, f"{command}CUDA: no nvcc; the CPU parts build\n")
        self.assertEqual(self.printed(build.configured), (config, ""))
        for damaged in (json.dumps({"version": "0.0.9"}), "{"):  # of an older course; a part
            self.config.write_text(damaged)
            again, seen = self.printed(build.configured)
            self.assertEqual((again, seen.startswith(command)), (config, True))
        self.environment(CI="true")
        self.assertIn("default -DFLASH_WERROR=ON\n", self.printed(build.configure)[1])
        with (self.root / "build/default/CMakeCache.txt").open("a") as file:
            file.write("CMAKE_CXX_COMPILER:STRING=/usr/bin/some-c++\n")
        self.assertEqual(self.printed(build.configured)[0], config)  # CXX is not set
        self.environment(CXX="true")
        self.assertIn("was configured for /usr/bin/some-c++, and CXX is true",
                      self.printed(build.configured)[1])
        moved = self.root.with_name("moved")
        shutil.move(self.root, moved)
        self.patch(paths, ROOT=moved)
        again, seen = self.printed(build.configured)
        self.assertEqual(again, config)
        self.assertIn("build/default was configured in another folder", seen)

    def test_a_failure_is_one_line_with_cmakes_message(self):
        with (self.root / "CMakeLists.txt").open("a") as file:
            file.write(f'message(FATAL_ERROR "{"a long message " * 9}")\n')
        self.patch(system, missing=list)
        self.assertEqual(self.refused(build.configure), "cmake --preset default failed: "
                         f"CMakeLists.txt:9: {'a long message ' * 9}".strip())
        # Where something is missing it is installed, and CMake runs again.
        missing = [system.NEEDS[0]]
        mend = (self.root / "CMakeLists.txt").write_text
        ensure = lambda: (mend(CMAKELISTS), missing.clear())  # noqa: E731
        self.patch(system, missing=lambda: missing, ensure=ensure)
        self.assertEqual(self.printed(build.configure)[0].catch2, "2.13.10")

    def test_building(self):
        self.printed(build.configure)
        result, seen = self.printed(build.build, "good")
        self.assertEqual((result.ok, result.first_error), (True, ""))
        self.assertEqual(seen, "$ cmake --build build/default --target good\n")
        (self.root / "build/default/good.txt").unlink()
        result, seen = self.printed(build.build, ["bad", "good"], keep_going=True)
        self.assertEqual((result.ok, result.first_error), (False, "part1/fused.cpp:3:4: error: x"))
        self.assertIn("error: x", build.failure(result.log))
        self.assertTrue((self.root / "build/default/good.txt").exists())  # the other was built
        self.assertEqual(seen, "$ cmake --build build/default --target bad good -- -k 0\n")
        result, _ = self.printed(build.build, "nothing")
        self.assertIn("unknown target 'nothing'", result.first_error)


class FirstError(Test):
    def test_of_what_a_given_file_includes(self):
        self.patch(paths, ROOT=Path("/course"))
        log = """FAILED: tests/CMakeFiles/a.dir/a.cpp.o
In file included from /usr/include/vector:1,
                 from /course/tests/a.hpp:3,
                 from /course/tests/a.cpp:1:
/usr/include/config.h:2:1: error: x
"""
        self.assertEqual(build.error_of_given(log, Path("/course/build/default")),
                         "/usr/include/config.h:2:1: error: x (included at tests/a.hpp:3)")
        self.assertEqual(build.error_of_given(log.replace("a.dir", "a_skeleton.dir"),
                                              Path("/course/build/default")), "")

    def test_of_every_tool(self):
        self.patch(paths, ROOT=Path("/course"))
        for log, wanted in (
            ("""[1/3] Building CXX object a.o
FAILED: a.o
/usr/bin/c++ -O2 -Werror -c /course/part1/skeleton/fused_cpu.cpp
/course/part1/skeleton/fused_cpu.cpp:30:5: warning: unused variable 'n' [-Wunused-variable]
/course/part1/skeleton/fused_cpu.cpp:31:5: error: 'x' was not declared in this scope
/course/part1/skeleton/fused_cpu.cpp:40:5: error: 'y' was not declared in this scope
""", "part1/skeleton/fused_cpu.cpp:31:5: error: 'x' was not declared in this scope"),
            ("""/course/common/launch.hpp: In instantiation of 'void launch(...)':
/course/part3/skeleton/f.cu:131:11:   required from 'void f() [with T = float]'
/course/part3/skeleton/f.cu:140:80:   required from here
/course/common/launch.hpp:95:3: error: static assertion failed: another number
""", "common/launch.hpp:95:3: error: static assertion failed: another number "
             "(used at part3/skeleton/f.cu:131)"),
            ("""/usr/include/c++/12/bits/allocator.h(159): error: calling a __host__ function
          detected during:
            instantiation of function "lambda" at line 205 of /course/part3/skeleton/f.cu
            instantiation of "void f<T>()" at line 240 of /course/part3/skeleton/f.cu
""", "/usr/include/c++/12/bits/allocator.h(159): error: calling a __host__ function "
             "(used at part3/skeleton/f.cu:205)"),
            ("../../part1/a.cpp:1:10: fatal error: b.hpp: No such file or directory\n",
             "part1/a.cpp:1:10: fatal error: b.hpp: No such file or directory"),
            ('/course/part1/a.cu(31): error: identifier "x" is undefined\n',
             'part1/a.cu(31): error: identifier "x" is undefined'),
            ("/course/a.cu: Assembler messages:\n/course/a.cu:6: Error: no such instruction: `x'\n",
             "a.cu:6: error: the emulator has no inline PTX: common/cuda/ wraps instructions"),
            ("part1/a.cu:1:10: fatal error: cub/cub.cuh: No such file or directory\n",
             "part1/a.cu:1:10: error: the emulator has no cub/cub.cuh: "
             "common/cuda/warp.hpp has sums and maxima of a warp"),
            ("""In file included from /usr/local/include/channel_descriptor.h:57,
                 from /usr/local/include/curand.h:59,
                 from /course/part1/a.cu:3,
                 from /course/build/default/a.cu.cpp:1:
/usr/local/include/vector_types.h:175:27: error: redefinition of 'struct char1'
""", "part1/a.cu:3: error: the emulator has no curand.h: random numbers come from the host"),
            ("/course/a.cu(7): error #20013-D: calling\n", "a.cu(7): error #20013-D: calling"),
            ("""/usr/bin/ld: part1/a.o: in function `main':
a.cpp:(.text+0x5): undefined reference to `flash::softmax_matmul()'
collect2: error: ld returned 1 exit status
""", "a.cpp:(.text+0x5): undefined reference to `flash::softmax_matmul()'"),
            ("CMake Error at a/CMakeLists.txt:4 (message):\n  Catch2 is\n  needed\n\nCall "
             "Stack:\n  a\n", "a/CMakeLists.txt:4: Catch2 is needed"),
            *((f"one\n{line}\ntwo\n", line) for line in (
                "ptxas error   : too much shared data", "/usr/bin/ld: cannot find -lnothing",
                "b.cpp:(.text+0x0): multiple definition of `f()'")),
            ("one\ntwo\n\n", "two"),
            ("", "the build failed without a message"),
        ):
            with self.subTest(wanted):
                self.assertEqual(build.first_error(log, Path("/course/build/default")), wanted)
