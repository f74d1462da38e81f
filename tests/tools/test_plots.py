"""The figures: which files there are, what is drawn and marked in them."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from test_results import FAILED, UNFUSED, TemporaryRoot, write  # noqa: E402

from lab import plots, results  # noqa: E402

PNG = b"\x89PNG\r\n\x1a\n"


class Plots(TemporaryRoot):
    def figure(self, *changes: dict[str, str]):
        group, = results.groups(results.load(write(self.root / "a.csv", *changes)))
        return plots._figure(group)

    def test_one_file_a_group(self) -> None:
        file = write(self.root / "a.csv", {"device": "cpu", "gpu": ""}, {}, UNFUSED, {"batch_size": "4"})
        written = plots.plot_softmax_matmul(file, self.root / "new" / "plots")
        self.assertEqual([one.name for one in written], ["softmax_matmul.png", "softmax_matmul_nvidia-h200_4x2048x512.png",
                                                         "softmax_matmul_cpu_16x2048x512.png"])
        self.assertEqual(sorted(one.name for one in (self.root / "new/plots").iterdir()), sorted(one.name for one in written))
        for one in written:
            self.assertEqual(one.read_bytes()[:8], PNG)

    def test_the_title_names_the_gpu_and_the_sizes(self) -> None:
        figure = self.figure({})
        self.assertEqual(figure.get_suptitle(), "softmax(X) V: NVIDIA H200, float32, batch 16, d1 2048, d3 512")
        self.assertEqual([axes.get_ylabel() for axes in figure.axes], ["ms", "unfused time / fused time", "MiB"])

    def test_a_legend_entry_for_each_line(self) -> None:
        figure = self.figure(UNFUSED, {"BLOCK": "16"}, {"BLOCK": "64"})
        self.assertEqual([text.get_text() for text in figure.legends[0].get_texts()],
                         ["unfused", "fused, block 16", "fused, block 64"])

    def test_a_failure_is_marked_with_its_status(self) -> None:
        figure = self.figure({}, {"d2": "128"}, FAILED | {"d2": "256", "status": "OOM"},
                             FAILED | {"BLOCK": "64", "status": "unsupported"})
        for panel in (0, 2):
            axes = figure.axes[panel]
            self.assertEqual([text.get_text() for text in axes.texts], ["OOM", "unsupported"])
            marked = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "x"]
            self.assertEqual(marked, [[256], [64]])
        self.assertIn("no result", figure.legends[0].get_texts()[-1].get_text())

    def test_nothing_but_failures_is_drawn_too(self) -> None:
        file = write(self.root / "a.csv", FAILED | {"status": "error"}, FAILED | UNFUSED | {"status": "OOM"})
        self.assertEqual(plots.plot_softmax_matmul(file, self.root)[0].read_bytes()[:8], PNG)

    def test_an_empty_table_and_an_impossible_folder_are_one_line(self) -> None:
        empty = write(self.root / "empty.csv")
        self.assertIn("has no rows yet", self.error(plots.plot_softmax_matmul, empty, self.root))
        (self.root / "file").write_text("")
        full = write(self.root / "a.csv", {})
        self.assertIn("cannot be written", self.error(plots.plot_softmax_matmul, full, self.root / "file" / "plots"))


if __name__ == "__main__":
    unittest.main()
