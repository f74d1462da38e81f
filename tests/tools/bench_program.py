"""What the tests of a benchmark program share: the program, run into a CSV of its own."""

import subprocess
import tempfile
import unittest
from pathlib import Path


class Program(unittest.TestCase):
    program: Path  # the binary; its tests are skipped where it was not built

    def setUp(self) -> None:
        if not self.program.is_file():
            self.skipTest(f"{self.program.name} is not built")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.csv = self.folder / "csv" / "results.csv"

    def call(self, *words: str) -> tuple[int, str, str]:
        done = subprocess.run([self.program, "--output", self.csv, *words], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def error(self, *words: str, code: int = 2) -> str:
        found, out, err = self.call(*words)
        self.assertEqual((found, out, err.count("\n")), (code, "", 1), out + err)
        return err.strip()
