"""lab.where: the line of a crash and of an endless loop, from a program that really does so."""

import json
import shutil
import subprocess
import sys
import time
import unittest

from course import Test
from lab import paths, where
from lab.where import Spot, spot_of

TASK = """\
__attribute__((visibility("default"))) volatile int limit = 5, sum = 0;
static void round_and_round() {
  while (limit > 0)
    for (int i = 0; i < 1000; ++i)
      sum = sum + i;
}
extern "C" int run(int argc) {
  if (argc > 2)
    *reinterpret_cast<volatile int*>(argc) = 1;
  round_and_round();
  return sum;
}
"""
PROGRAM = """\
#include "harness/judge/where.hpp"
namespace flash::harness { const char* implementation() { return "skeleton"; } }
extern "C" int run(int argc);
int main(int argc, char** argv) {
  flash::harness::report_places_to(argv[1]);
  flash::harness::report_crashes();
  return run(argc);
}
"""


class Lines(unittest.TestCase):
    def test_the_innermost_call_that_all_samples_share(self):
        for calls, spot, words in (
            ([(4,), (4,)], Spot("f", 4, 4), "at f:4"),
            ([(4,), (6,), (5,)], Spot("f", 4, 6), "in the lines 4 to 6 of f"),
            ([(9, 4), (9, 6)], Spot("f", 4, 6, 9), "in the lines 4 to 6 of f, called in line 9"),
            ([(9, 4), (9, 4)], Spot("f", 4, 4), "at f:4"),
            ([(9, 4), (9,)], Spot("f", 4, 4, 9), "at f:4, called in line 9"),
        ):
            self.assertEqual((spot_of(calls, "f"), str(spot)), (spot, words))


@unittest.skipUnless(sys.platform == "linux" and shutil.which("g++") and shutil.which("addr2line"),
                     "it takes Linux, g++ and addr2line")
class Places(Test):
    def test_a_loop_and_a_crash(self):
        folder = self.folder()
        (folder / "skeleton").mkdir()
        task, program = folder / "skeleton" / "task.cpp", folder / "program.cpp"
        task.write_text(TASK)
        program.write_text(PROGRAM)
        tests = paths.ROOT / "tests"
        options = ["-std=c++20", "-O2", "-g1", "-fPIC", "-I", tests, "-I", paths.ROOT]
        library = folder / "libtask_skeleton.so"
        subprocess.run(["g++", *options, "-shared", task, "-o", library], check=True)
        subprocess.run(["g++", *options, program, tests / "harness/judge/where.cpp", library,
                        f"-Wl,-rpath,{folder}", "-o", folder / "program"], check=True)
        report = folder / "report"
        report.touch()

        def spot(places):
            for line in report.read_text().splitlines():
                places.take(json.loads(line))
            return places.spot(task)

        with subprocess.Popen([folder / "program", report]) as process:
            while not report.read_text():
                time.sleep(0.01)
            time.sleep(0.1)  # it is in the loop, or soon will be: 20 samples take longer
            places = where.Places()
            where.look_at(process.pid, places)
            found = spot(places)
            process.kill()
        self.assertTrue(3 <= found.first <= found.last <= 5, found)
        report.write_text("")
        ended = subprocess.run([folder / "program", report, "more"])
        self.assertEqual((ended.returncode, spot(where.Places()).first), (-11, 9))
