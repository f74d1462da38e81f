"""The benchmark's CSV as rows and groups, and the README's table made of it."""

import csv
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from lab import main, paths, results, tables  # noqa: E402
from lab.errors import LabError  # noqa: E402

ROW = dict(batch_size="16", d1="2048", d2="64", d3="512", fused="True", BLOCK="32", forward_ms_mean="2", forward_ms_std="0.1",
           forward_peak_MiB="74", device="cuda", dtype="float32", status="ok", tflops="1.07", gpu="NVIDIA H200")
FAILED = dict(forward_ms_mean="", forward_ms_std="", forward_peak_MiB="", tflops="")


def write(file: Path, *changes: dict[str, str]) -> Path:
    """A CSV with a row for each set of changes to ROW."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, results.COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(ROW | one for one in changes)
    return file


UNFUSED = {"fused": "False", "BLOCK": ""}


class TemporaryRoot(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        for name, value in (("ROOT", self.root), ("OUTPUTS", self.root / "outputs")):
            patch = mock.patch.object(paths, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def error(self, call, *args: object) -> str:
        with self.assertRaises(LabError) as caught:
            call(*args)
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)


class Load(TemporaryRoot):
    def test_a_row_is_read(self) -> None:
        row, = results.load(write(self.root / "a.csv", {}))
        self.assertEqual((row.d2, row.block, row.fused, row.ms_mean, row.ms_std, row.ok), (64, 32, True, 2.0, 0.1, True))
        inputs = 4 * 16 * (2048 * 64 + 64 * 512 + 2048 * 512) / 2**20
        self.assertAlmostEqual(row.extra_mib, 74 - inputs)

    def test_unfused_has_no_block_and_a_failure_no_numbers(self) -> None:
        unfused, failed = results.load(write(self.root / "a.csv", UNFUSED, FAILED | {"status": "OOM"}))
        self.assertIsNone(unfused.block)
        self.assertFalse(failed.ok)
        self.assertIsNone(failed.ms_mean)
        self.assertIsNone(failed.extra_mib)

    def test_what_is_not_such_a_table_is_one_line(self) -> None:
        self.assertEqual(self.error(results.load, self.root / "a.csv"), "a.csv does not exist: ./lab bench writes it")
        for text in ("", "a,b\n1,2\n", ",".join(results.COLUMNS[:-1]) + "\n"):
            (self.root / "a.csv").write_text(text)
            self.assertTrue(self.error(results.load, self.root / "a.csv").startswith("a.csv does not begin with the header"))
        (self.root / "a.csv").write_bytes(b"\xff\xfe")
        self.assertIn("a.csv cannot be read", self.error(results.load, self.root / "a.csv"))
        (self.root / "a.csv").write_text(",".join(results.COLUMNS) + "\n1,2\n")
        self.assertEqual(self.error(results.load, self.root / "a.csv"), "a.csv:2: 2 cells; there have to be 14")

    def test_a_wrong_cell_is_named(self) -> None:
        for column, value, wanted in (
                ("d2", "many", "an integer, at least 1"), ("d2", "0", "an integer, at least 1"),
                ("BLOCK", "", "an integer, at least 1"), ("fused", "yes", "one of True, False"),
                ("status", "fine", "one of ok, OOM, unsupported, error"), ("device", "gpu", "one of cuda, cpu"),
                ("forward_ms_mean", "nan", "a number above 0"), ("forward_ms_mean", "0", "a number above 0"),
                ("forward_ms_std", "-1", "a number, at least 0"), ("forward_peak_MiB", "inf", "a number, at least 0"),
                ("tflops", "", "a number, at least 0")):
            with self.subTest(column=column, value=value):
                file = write(self.root / "a.csv", {}, {column: value})
                self.assertEqual(self.error(results.load, file), f"a.csv:3: {column} is '{value}'; it must be {wanted}")


class Groups(TemporaryRoot):
    def test_gpus_come_first_then_the_largest_problem(self) -> None:
        rows = results.load(write(self.root / "a.csv", {"device": "cpu", "gpu": ""}, {"batch_size": "2"}, {}, {"d2": "128"}))
        found = results.groups(rows)
        self.assertEqual([(one.device, one.batch_size, one.d2s) for one in found],
                         [("cuda", 16, [64, 128]), ("cuda", 2, [64]), ("cpu", 16, [64])])
        self.assertEqual(found[0].title, "NVIDIA H200, float32, batch 16, d1 2048, d3 512")
        self.assertEqual(found[2].title, "CPU, float32, batch 16, d1 2048, d3 512")

    def test_best_block_and_speed_up(self) -> None:
        group, = results.groups(results.load(write(
            self.root / "a.csv", UNFUSED | {"forward_ms_mean": "3"}, {"BLOCK": "16"}, {"forward_ms_mean": "1.5"},
            FAILED | {"BLOCK": "64", "status": "unsupported"}, FAILED | {"d2": "128", "status": "OOM"})))
        best = group.best_fused(64)
        self.assertEqual(best.block, 32)
        self.assertEqual(group.speed_up(64, best), 2)
        self.assertEqual(group.speed_up(64, group.find(64, 16)), 1.5)
        self.assertIsNone(group.best_fused(128))
        self.assertIsNone(group.speed_up(128, group.best_fused(128)))


class Table(TemporaryRoot):
    section = tables.SECTIONS[0]

    def setUp(self) -> None:
        super().setUp()
        self.readme = self.root / "README.md"
        self.readme.write_text(f"# Title\n\n{self.section.begin}\nold\n{self.section.end}\n\nThe end.\n", encoding="utf-8")

    def reference(self) -> None:
        write(self.root / "outputs/reference/h200/csv" / self.section.csv_name,
              UNFUSED | {"forward_ms_mean": "3", "forward_peak_MiB": "82"}, {"BLOCK": "16"},
              {"forward_ms_mean": "1.5"}, FAILED | UNFUSED | {"d2": "128", "status": "OOM"},
              FAILED | {"d2": "128", "status": "unsupported"})

    def lab(self, *words: str) -> int:
        with mock.patch.dict(os.environ, {"TERM": "dumb"}), open(os.devnull, "w") as nothing, \
                mock.patch("sys.stderr", nothing), mock.patch("lab.verbs.table.console.print"):
            return main.main(["table", *words])

    def test_the_region_is_regenerated_and_the_rest_kept(self) -> None:
        self.reference()
        self.assertEqual(self.lab("--check"), 1)
        self.assertIn("\nold\n", self.readme.read_text())
        self.assertEqual(self.lab(), 0)
        self.assertEqual(self.lab("--check"), 0)
        text = self.readme.read_text()
        self.assertTrue(text.startswith("# Title\n\n") and text.endswith("\n\nThe end.\n"))
        self.assertNotIn("old", text)
        self.assertIn("**NVIDIA H200, float32, batch 16, d1 2048, d3 512** "
                      f"([CSV](outputs/reference/h200/csv/{self.section.csv_name}))", text)
        self.assertIn("| 64 | 3 | 1.5 (32) | 2.00x | 1.07 | 8 | 0 |", text)
        self.assertIn("| 128 | OOM | unsupported |  |  |  |  |", text)
        self.assertEqual([file.name for file in self.root.iterdir() if file.name.startswith(".")], [])

    def test_no_csv_and_no_markers_are_one_line(self) -> None:
        self.assertIn("there is no outputs/reference/<machine>/csv/", self.error(main.run, ["table"]))
        self.reference()
        begin, end = self.section.begin, self.section.end
        for text in ("no markers", f"{end}\n{begin}", f"{begin}\n{begin}\n{end}"):
            self.readme.write_text(text, encoding="utf-8")
            self.assertIn("README.md has to have one line", self.error(main.run, ["table"]))
            self.assertEqual(self.readme.read_text(), text)
        self.readme.unlink()
        self.assertIn("README.md cannot be read", self.error(main.run, ["table"]))


if __name__ == "__main__":
    unittest.main()
