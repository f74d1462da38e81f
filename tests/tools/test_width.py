"""CMake's files have at most 100 columns, like those that ./lab format knows."""

import unittest

from lab import paths
from lab.instructor import release


class Width(unittest.TestCase):
    def test_no_line_of_cmake_is_wider(self):
        files = [file for file in release.tracked() if file.endswith(("CMakeLists.txt", ".cmake"))]
        self.assertGreater(len(files), 20)
        self.assertEqual([f"{file}:{number}" for file in files for number, line in enumerate(
            (paths.ROOT / file).read_text().splitlines(), 1) if len(line) > 100], [])
