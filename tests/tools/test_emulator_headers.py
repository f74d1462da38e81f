"""The headers of CUDA that the emulator has: each compiles alone."""

import shutil
import subprocess
from pathlib import Path

from course import Test

REPOSITORY = Path(__file__).parents[2]
HEADERS = REPOSITORY / "emulator" / "headers"


class Headers(Test):
    def test_each_alone(self):
        compiler = shutil.which("c++") or self.skipTest("no C++ compiler")
        for header in sorted(HEADERS.rglob("*")):
            name = str(header.relative_to(HEADERS))
            if header.is_dir() or name.startswith("device/"):
                continue
            done = subprocess.run(
                [compiler, "-std=c++20", "-fsyntax-only", "-I", HEADERS, "-I", REPOSITORY, "-x",
                 "c++", "-"], input=f"#include <{name}>\n", capture_output=True, text=True)
            with self.subTest(name):
                self.assertEqual(done.stderr, "")
