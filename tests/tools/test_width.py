"""CMake's files have at most 100 columns, like those that ./lab format knows."""

import unittest

from lab import paths

FOLDERS = ("benchmarking", "bonus_*", "cmake", "common", "emulator", "grading", "part*_*", "tests")


class Width(unittest.TestCase):
    def test_no_line_of_cmake_is_wider(self):
        files = [paths.ROOT / "CMakeLists.txt"]
        for folder in FOLDERS:
            for name in ("CMakeLists.txt", "*.cmake"):
                files += paths.ROOT.glob(f"{folder}/**/{name}")
        self.assertGreater(len(files), 20)
        self.assertEqual([f"{paths.relative(file)}:{number}" for file in files
                          for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
                          if len(line) > 100], [])


if __name__ == "__main__":
    unittest.main()
