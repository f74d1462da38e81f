"""The CSV of bench_attention as rows and groups, its figures, and the README's table made of it."""

import csv
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

from test_results import TemporaryRoot  # noqa: E402

from lab import attention_plots, attention_results as results, main, tables  # noqa: E402
from lab.verbs import plot  # noqa: E402

ROW = dict(implementation="flash", d_model="128", seq_len="64", forward_ms="2", forward_peak_MiB="3", backward_ms="4",
           backward_peak_MiB="5", saved_activations_MiB="1.5", status="ok", gpu="", device="cpu", dtype="float32", batch="1",
           heads="2", causal="False", total_ms="6", tflops="0.2", percent_of_peak="40")
NO_PEAK = {"percent_of_peak": ""}
NO_BACKWARD = dict(backward_ms="", backward_peak_MiB="", total_ms="", tflops="", percent_of_peak="", status="OOM(backward)")
FAILED = NO_BACKWARD | dict(forward_ms="", forward_peak_MiB="", saved_activations_MiB="", status="OOM")
GPU = {"device": "cuda", "gpu": "NVIDIA X"} | NO_PEAK
STANDARD, CAUSAL, LONG = {"implementation": "standard"}, {"causal": "True"}, {"seq_len": "128"}
PNG = b"\x89PNG\r\n\x1a\n"


def write(file: Path, *changes: dict[str, str]) -> Path:
    """A CSV with a row for each set of changes to ROW."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, results.COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(ROW | one for one in changes)
    return file


class Load(TemporaryRoot):
    def test_a_row_is_read(self) -> None:
        row, causal = results.load(write(self.root / "a.csv", {}, CAUSAL))
        self.assertEqual((row.implementation, row.d_model, row.seq_len, row.causal, row.ok), ("flash", 128, 64, False, True))
        self.assertEqual((row.forward_ms, row.backward_ms, row.total_ms, row.percent_of_peak), (2, 4, 6, 40))
        self.assertEqual((row.forward_peak_mib, row.backward_peak_mib, row.saved_mib), (3, 5, 1.5))
        self.assertAlmostEqual(row.forward_tflops, 4 * 64 * 64 * 128 / 2e-3 * 1e-12)
        self.assertAlmostEqual(causal.backward_tflops, 10 * 64 * 65 / 2 * 128 / 4e-3 * 1e-12)

    def test_a_failure_has_the_numbers_of_the_passes_that_ended(self) -> None:
        none, forward, no_peak = results.load(write(self.root / "a.csv", FAILED, NO_BACKWARD, NO_PEAK))
        self.assertEqual((none.forward_ms, none.saved_mib, none.forward_tflops), (None, None, None))
        self.assertEqual((forward.forward_ms, forward.saved_mib, forward.backward_ms, forward.tflops), (2, 1.5, None, None))
        self.assertEqual((no_peak.total_ms, no_peak.percent_of_peak), (6, None))

    def test_a_wrong_cell_is_named(self) -> None:
        for column, value, wanted in (
                ("seq_len", "many", "an integer, at least 1"), ("heads", "0", "an integer, at least 1"),
                ("status", "fine", "one of ok, OOM, OOM(backward), unsupported, error"), ("device", "gpu", "one of cuda, cpu"),
                ("causal", "yes", "one of True, False"), ("forward_ms", "0", "a number above 0"),
                ("backward_ms", "nan", "a number above 0"), ("saved_activations_MiB", "-1", "a number, at least 0"),
                ("percent_of_peak", "most", "a number, at least 0")):
            with self.subTest(column=column, value=value):
                file = write(self.root / "a.csv", {}, {column: value})
                self.assertEqual(self.error(results.load, file), f"a.csv:3: {column} is '{value}'; it must be {wanted}")

    def test_another_benchmarks_csv_is_one_line(self) -> None:
        (self.root / "a.csv").write_text("batch_size,d1\n1,2\n")
        self.assertTrue(self.error(results.load, self.root / "a.csv").startswith("a.csv does not begin with the header"))

    def test_groups(self) -> None:
        rows = results.load(write(self.root / "a.csv", STANDARD | CAUSAL | LONG, CAUSAL, {"dtype": "float64"},
                                  {"device": "cuda", "gpu": "NVIDIA H200", "heads": "1", "d_model": "64"}))
        found = results.groups(rows)
        self.assertEqual([one.title for one in found], ["NVIDIA H200, float32, batch 1, 1 head of 64",
                                                        "CPU, float32, batch 1, 2 heads of 64",
                                                        "CPU, float64, batch 1, 2 heads of 64"])
        self.assertEqual((found[1].seq_lens, found[1].masks), ([64, 128], [True]))
        self.assertEqual(found[1].implementations, ["standard", "flash"])


class Plots(TemporaryRoot):
    def group(self, *changes: dict[str, str]) -> results.Group:
        group, = results.groups(results.load(write(self.root / "a.csv", *changes)))
        return group

    def test_two_files_a_group(self) -> None:
        file = write(self.root / "a.csv", {}, CAUSAL, {"device": "cuda", "gpu": "NVIDIA H200"})
        written = attention_plots.plot_attention(file, self.root / "plots")
        self.assertEqual([one.name for one in written],
                         ["attention.png", "attention_memory.png", "attention_cpu_1x2x128_float32.png",
                          "attention_cpu_1x2x128_float32_memory.png"])
        self.assertEqual(sorted(one.name for one in (self.root / "plots").iterdir()), sorted(one.name for one in written))
        for one in written:
            self.assertEqual(one.read_bytes()[:8], PNG)

    def test_a_row_of_panels_for_each_mask_and_the_peak_where_it_was_measured(self) -> None:
        figure = attention_plots._speed(self.group({}, CAUSAL))
        self.assertEqual([axes.get_title() for axes in figure.axes],
                         ["Forward pass", "Backward pass", "Forward and backward",
                          "Forward pass, causal", "Backward pass, causal", "Forward and backward, causal"])
        self.assertEqual([axes.get_ylabel() for axes in figure.axes[:3]], ["GFLOP/s", "GFLOP/s", "% of peak"])
        self.assertEqual(figure.axes[2].lines[0].get_ydata()[0], 40)
        self.assertAlmostEqual(figure.axes[0].lines[0].get_ydata()[0], 4 * 64 * 64 * 128 / 2e-3 * 1e-9)
        self.assertEqual(figure.axes[0].get_ylim(), figure.axes[4].get_ylim())

    def test_where_no_peak_is_known_the_time_is_drawn(self) -> None:
        figure = attention_plots._speed(self.group(NO_PEAK, NO_PEAK | LONG | {"total_ms": "7"}, NO_PEAK | STANDARD | LONG | FAILED))
        self.assertEqual([axes.get_ylabel() for axes in figure.axes], ["GFLOP/s", "GFLOP/s", "ms"])
        self.assertEqual(list(figure.axes[2].lines[0].get_ydata()), [6, 7])
        self.assertEqual([text.get_text() for text in figure.axes[2].texts], ["OOM"])

    def test_a_group_of_one_length_is_drawn_only_where_there_is_no_other(self) -> None:
        wide = {"d_model": "512", "heads": "1"}
        self.assertEqual(self.drawn_files({}, LONG, wide), ["attention.png", "attention_memory.png"])
        self.assertEqual(self.drawn_files(wide), ["attention.png", "attention_memory.png"])

    def drawn_files(self, *changes: dict[str, str]) -> list[str]:
        return sorted(file.name for file in attention_plots.plot_attention(write(self.root / "a.csv", *changes), self.root))

    def test_a_failure_is_marked_in_the_passes_that_have_no_result(self) -> None:
        longest = {"seq_len": "256"}
        group = self.group(STANDARD, STANDARD | LONG | NO_BACKWARD, STANDARD | FAILED | longest, {}, LONG, longest)
        for figure in (attention_plots._speed(group), attention_plots._memory(group)):
            forward, backward = ([text.get_text() for text in axes.texts] for axes in figure.axes[:2])
            self.assertEqual((forward, backward), (["OOM"], ["OOM(backward)", "OOM"]))
            marked = [list(line.get_xdata()) for line in figure.axes[1].lines if line.get_marker() == "x"]
            self.assertEqual(marked, [[128, 256]])
            self.assertIn("no result", figure.legends[0].get_texts()[-1].get_text())

    def test_those_that_fail_alike_share_a_mark(self) -> None:
        figure = attention_plots._speed(self.group({}, STANDARD, LONG | FAILED, STANDARD | LONG | FAILED))
        self.assertEqual([text.get_text() for text in figure.axes[0].texts], ["OOM (2 lines)"])

    def test_every_line_has_its_own_look(self) -> None:
        names = ["standard", "flash", *(f"{number}_rung" for number in range(8))]
        styles = attention_plots._series(self.group(*({"implementation": name} for name in names)))
        self.assertEqual([name for name, _ in styles], names)
        self.assertEqual(len({(style["color"], style["marker"]) for _, style in styles}), len(names))

    def test_nothing_but_failures_is_drawn_too_and_nothing_at_all_is_one_line(self) -> None:
        file = write(self.root / "a.csv", FAILED | {"status": "error"}, STANDARD | FAILED)
        self.assertEqual(attention_plots.plot_attention(file, self.root)[0].read_bytes()[:8], PNG)
        self.assertIn("has no rows yet", self.error(attention_plots.plot_attention, write(self.root / "b.csv"), self.root))


class Verb(TemporaryRoot):
    def drawn(self, *words: str) -> list[str]:
        csvs = tuple(self.root / "outputs" / "csv" / file.name for file in plot.CSVS)
        with mock.patch.object(plot, "CSVS", csvs), mock.patch.object(plot.console, "print"):
            self.assertEqual(main.run(["plot", "--out", str(self.root / "plots"), *words]), 0)
        return sorted(file.name for file in (self.root / "plots").iterdir())

    def test_it_draws_what_there_is(self) -> None:
        self.assertIn("has neither softmax_matmul_benchmark.csv nor attention_benchmark.csv yet", self.error(self.drawn))
        write(self.root / "outputs/csv/attention_benchmark.csv", {})
        self.assertEqual(self.drawn(), ["attention.png", "attention_memory.png"])

    def test_a_named_file_is_known_by_its_header(self) -> None:
        self.assertEqual(self.drawn("--csv", str(write(self.root / "mine.csv", {}))), ["attention.png", "attention_memory.png"])
        self.assertIn("mine.txt does not exist", self.error(self.drawn, "--csv", str(self.root / "mine.txt")))


class Table(TemporaryRoot):
    section = tables.SECTIONS[1]

    def test_a_row_for_each_implementation_at_the_longest_sequence(self) -> None:
        file = write(self.root / "outputs/reference/box/csv" / self.section.csv_name, STANDARD, {}, CAUSAL | NO_PEAK,
                     STANDARD | LONG | FAILED, LONG, LONG | CAUSAL | NO_BACKWARD, STANDARD | LONG | CAUSAL | NO_PEAK)
        text = self.section.updated(f"{self.section.begin}\nold\n{self.section.end}\n", "README.md")
        self.assertNotIn("old", text)
        self.assertIn("**CPU, float32, batch 1, 2 heads of 64, sequence length 128** "
                      f"([CSV]({file.relative_to(self.root)}))", text)
        self.assertIn("| implementation | forward, ms | backward, ms | GFLOP/s | % of peak | causal: forward, ms |", text)
        self.assertIn("| standard | OOM |  |  |  | 2 | 4 | 200 |  |  |  |  |", text)
        self.assertIn("| flash | 2 | 4 | 200 | 40 | 2 | OOM(backward) |  |  | 3 | 5 | 1.5 |", text)

    def test_on_a_gpu_a_row_for_each_mask_and_implementation(self) -> None:
        section = tables.SECTIONS[2]
        self.assertEqual(self.section.tables(write(self.root / "gpu.csv", GPU)), [])
        file = write(self.root / "outputs/reference/box/csv" / section.csv_name, {}, GPU, GPU | STANDARD | LONG, GPU | LONG | FAILED,
                     GPU | LONG | CAUSAL | NO_BACKWARD)
        text = section.updated(f"{section.begin}\n{section.end}\n", "README.md")
        self.assertIn(f"**NVIDIA X, float32, batch 1, 2 heads of 64, sequence length 128** ([CSV]({file.relative_to(self.root)}))",
                      text)
        self.assertNotIn("**CPU", text)
        self.assertEqual([line.split(" | ")[:5] for line in text.splitlines() if line.startswith("| ")][2:],
                         [["| flash", "no", "OOM", "OOM", ""], ["| standard", "no", "2", "4", "6"],
                          ["| flash", "yes", "2", "OOM(backward)", ""]])

    def test_without_csv_and_markers_there_is_nothing_to_do(self) -> None:
        self.assertEqual(self.section.updated("text", "README.md"), "text")
        marked = f"{self.section.begin}\n{self.section.end}\n"
        self.assertIn("there is no outputs/reference/<machine>/csv/attention_benchmark.csv",
                      self.error(self.section.updated, marked, "README.md"))
        write(self.root / "outputs/reference/box/csv" / self.section.csv_name, {})
        self.assertIn("README.md has to have one line", self.error(self.section.updated, "text", "README.md"))


if __name__ == "__main__":
    unittest.main()
