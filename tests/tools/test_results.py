"""The benchmarks' CSV files as rows and groups, their figures, and the tables of the README
pages. That the tables of committed results are right is house.results-table's to say."""

import csv
import math
import tempfile
from pathlib import Path
from unittest import mock

from course import Test
from lab import main, paths, plots, results, tables

SOFTMAX = dict(implementation="fused_32", batch_size="16", d1="2048", d2="64", d3="512",
               fused="True", BLOCK="32", forward_ms_mean="2", forward_ms_std="0.1",
               forward_peak_MiB="74", device="cuda", dtype="float32", status="ok", tflops="1.07",
               gpu="NVIDIA H200")
UNFUSED = {"implementation": "unfused", "fused": "False", "BLOCK": ""}
FUSED_16 = {"implementation": "fused_16", "BLOCK": "16"}
SOFTMAX_FAILED = dict(forward_ms_mean="", forward_ms_std="", forward_peak_MiB="", tflops="",
                      status="OOM")

ATTENTION = dict(implementation="flash", d_model="128", seq_len="64", forward_ms="2",
                 forward_peak_MiB="3", backward_ms="4", backward_peak_MiB="5",
                 saved_activations_MiB="1.5", status="ok", gpu="", device="cpu", dtype="float32",
                 batch="1", heads="2", causal="False", total_ms="6", tflops="0.2",
                 percent_of_peak="40")
NO_PEAK = {"percent_of_peak": ""}
NO_BACKWARD = dict(backward_ms="", backward_peak_MiB="", total_ms="", tflops="",
                   percent_of_peak="", status="OOM(backward)")
FAILED = NO_BACKWARD | dict(forward_ms="", forward_peak_MiB="", saved_activations_MiB="",
                            status="OOM")
GPU = {"device": "cuda", "gpu": "NVIDIA X"} | NO_PEAK
STANDARD, CAUSAL, LONG = {"implementation": "standard"}, {"causal": "True"}, {"seq_len": "128"}
# The rungs of a GPU's ladder, out of order, and PyTorch's kernels without a backward pass.
RUNG = ATTENTION | GPU | NO_BACKWARD | dict(gpu="NVIDIA H200", dtype="bfloat16", status="ok")
RUNGS = [{"implementation": "10_last"}, {"implementation": "2_two", "forward_ms": "1"},
         {"implementation": "2_two", "causal": "True"}, {"implementation": "3_failed"} | FAILED,
         {"implementation": "pytorch_flash+none", "forward_ms": "4"},
         {"implementation": "pytorch_cudnn+none", "causal": "True"}]


def write(file: Path, row: dict[str, str], *changes: dict[str, str]) -> Path:
    """A CSV with a row for each set of changes to `row`, with the columns that `row` has."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as stream:
        table = csv.DictWriter(stream, list(row), lineterminator="\n")
        table.writeheader()
        table.writerows(row | one for one in changes)
    return file


class TemporaryRoot(Test):
    def setUp(self):
        self.root = self.folder()
        self.patch(paths, ROOT=self.root, OUTPUTS=self.root / "outputs")

    def load(self, row: dict[str, str], *changes: dict[str, str]) -> list[results.Row]:
        return results.load(write(self.root / "a.csv", row, *changes))

    def groups(self, row: dict[str, str], *changes: dict[str, str]) -> list[results.Group]:
        return results.groups(self.load(row, *changes))


class Load(TemporaryRoot):
    def test_the_last_row_of_a_configuration_counts_in_the_place_of_the_first(self):
        old, new = {"forward_ms": "9"}, {"forward_ms": "1"}
        rows = self.load(ATTENTION, old, STANDARD, CAUSAL, LONG, new, STANDARD | FAILED)
        self.assertEqual([(row.name, row.causal, row.size, row.forward_ms) for row in rows],
                         [("flash", False, 64, 1), ("standard", False, 64, None),
                          ("flash", True, 64, 2), ("flash", False, 128, 2)])
        self.assertEqual(len(self.load(SOFTMAX, {}, UNFUSED, FUSED_16, {"d1": "1"}, {})), 4)

    def test_what_is_not_such_a_table_is_one_line(self):
        file = self.root / "a.csv"
        self.assertEqual(self.refused(results.load, file),
                         "a.csv does not exist: ./lab bench writes it")
        short = ",".join(name for name in SOFTMAX if name != "forward_ms_mean")
        for text in ("", "a,b\n1,2\n", short + "\n"):
            file.write_text(text)
            self.assertTrue(
                self.refused(results.load, file).startswith("a.csv has the wrong header: expected"))
        file.write_bytes(b"\xff\xfe")
        self.assertIn("a.csv cannot be read", self.refused(results.load, file))
        file.write_text(",".join(SOFTMAX) + "\n1,2\n")
        self.assertEqual(self.refused(results.load, file), "a.csv:2: 2 cells; there have to be 15")

    def test_a_wrong_cell_is_named(self):
        for row, column, value, wanted in (
                (SOFTMAX, "d2", "many", "a number"), (SOFTMAX, "fused", "yes", "a number"),
                (ATTENTION, "forward_ms", "0", "above 0"),):
            self.assertEqual(self.refused(self.load, row, {}, {column: value}),
                             f"a.csv:3: {column} is '{value}'; it must be {wanted}")


class Plots(TemporaryRoot):
    def drawn(self, row: dict[str, str], *changes: dict[str, str]) -> list[str]:
        folder = Path(tempfile.mkdtemp(dir=self.root))
        written = plots.plot(write(self.root / "a.csv", row, *changes), folder)
        self.assertEqual(sorted(written), sorted(folder.iterdir()))
        return [one.name for one in written]

    def names(self, row: dict[str, str], *changes: dict[str, str]) -> list[str]:
        """Of the files, which stay empty: to draw all of them takes half a minute."""
        def save(figure, file):
            file.touch()
            return file

        with mock.patch.object(plots, "_save", save):
            return self.drawn(row, *changes)

    def test_the_files_of_each_group(self):
        cpu, wide = {"device": "cpu", "gpu": ""}, {"d_model": "512", "heads": "1"}
        two, sharp = ["attention.png", "attention_memory.png"], {"query_scale": "8"}
        cpu_file = "attention_cpu_1x2x128_float32"
        for files, *rows in (
            (["softmax_matmul.png", "softmax_matmul_nvidia-h200_4x2048x512.png",
              "softmax_matmul_cpu_16x2048x512.png"],
             SOFTMAX, cpu, {}, UNFUSED, {"batch_size": "4"}),
            ([*two, f"{cpu_file}.png", f"{cpu_file}_memory.png"], ATTENTION, {}, CAUSAL, GPU),
            ([*two, f"{cpu_file}_q8.png", f"{cpu_file}_q8_memory.png"],
             ATTENTION | sharp, {"query_scale": "1"}, {}),
            (two, ATTENTION, {}, LONG, wide),  # a group of one size only where there is no other
            (two, ATTENTION, wide),
        ):
            self.assertEqual(self.names(*rows), files)

    def test_softmax_matmul_has_time_speed_up_and_memory(self):
        (_, figure), = plots.figures(*self.groups(
            SOFTMAX, UNFUSED | {"forward_ms_mean": "3"}, {}, {"d2": "128"}))
        self.assertEqual([axes.get_ylabel() for axes in figure.axes],
                         ["ms", "unfused time / time", "MiB"])
        self.assertEqual(figure.axes[1].lines[0].get_ydata()[0], 1.5)
        self.assertEqual([text.get_text() for text in figure.legends[0].get_texts()],
                         ["unfused", "fused, block 32"])

    def test_what_other_programs_disturbed_is_hollow_and_no_speed_up(self):
        row = SOFTMAX | {"others_percent": "0", "device": "cpu", "gpu": ""}
        busy, longer = {"others_percent": "12"}, {"d2": "128"}
        (_, figure), = plots.figures(*self.groups(row, UNFUSED, UNFUSED | longer, busy, longer))
        time, speed, memory = figure.axes
        hollow = [[line for line in axes.lines if line.get_markerfacecolor() == "white"]
                  for axes in (time, speed, memory)]
        self.assertEqual([[list(line.get_xdata()) for line in lines] for lines in hollow],
                         [[[64]], [], []])
        self.assertEqual(max(time.lines, key=lambda line: line.zorder), hollow[0][0])
        self.assertEqual([math.isnan(y) for y in speed.lines[0].get_ydata()], [True, False])
        self.assertIn("disturbed by other programs: measure it again",
                      [text.get_text() for text in figure.legends[0].get_texts()])

    def test_both_passes_of_attention_have_their_share_of_the_peak_or_else_their_time(self):
        for row, shown in ((ATTENTION, 40), (ATTENTION | NO_PEAK, 6)):
            _, _, both = plots.figures(*self.groups(row, {}))[0][1].axes
            self.assertEqual(both.lines[0].get_ydata()[0], shown)

    def test_a_failure_is_marked_in_the_passes_that_have_no_result(self):
        longest = {"seq_len": "256"}
        group, = self.groups(ATTENTION, STANDARD, STANDARD | LONG | NO_BACKWARD,
                           STANDARD | FAILED | longest, {}, LONG, longest)
        for _, figure in plots.figures(group):
            forward, backward = ([text.get_text() for text in axes.texts]
                                 for axes in figure.axes[:2])
            self.assertEqual((forward, backward), (["OOM"], ["OOM(backward)", "OOM"]))
            marked = [list(line.get_xdata()) for line in figure.axes[1].lines
                      if line.get_marker() == "x"]
            self.assertEqual(marked, [[128, 256]])
            self.assertIn("no result", figure.legends[0].get_texts()[-1].get_text())
        alike = plots.figures(*self.groups(
            ATTENTION, {}, STANDARD, LONG | FAILED, STANDARD | LONG | FAILED))[0][1]
        self.assertEqual([text.get_text() for text in alike.axes[0].texts], ["OOM (2 lines)"])

    def test_a_ladder_has_a_panel_for_each_problem_with_rates_as_bars_and_peers_as_lines(
            self):
        wide, long = {"d_model": "256"}, {"batch": "2", "seq_len": "128"}
        rows = [rung | problem for problem in (wide, long, {}) for rung in RUNGS]
        figure = plots._ladder(self.groups(RUNG, *rows), "forward")
        axes, *others = [axes for axes in figure.axes if axes.get_visible()]
        self.assertEqual([one.get_title() for one in (axes, *others)],
                         ["heads of 64, 64 keys", "heads of 64, 128 keys", "heads of 128, 64 keys"])
        self.assertEqual([tick.get_text() for tick in axes.get_xticklabels()],
                         ["2_two", "10_last"])
        pairs, seen, flop = 64 * 64, 64 * 65 // 2, 4 * 128e-9
        heights = [bar.get_height() / flop for bars in axes.containers for bar in bars]
        for height, wanted in zip(heights, (pairs, pairs / 2, seen / 2, 0), strict=True):
            self.assertAlmostEqual(height, wanted)  # 10_last has no causal row
        lines = {line.get_label(): line.get_ydata()[0] / flop for line in axes.lines}
        for label, wanted in (("pytorch_flash", pairs / 4), ("pytorch_cudnn, causal", seen / 2),
                              ("data sheet", 989 / flop)):
            self.assertAlmostEqual(lines.pop(label), wanted)
        self.assertEqual(lines, {})

    def test_only_a_gpus_rungs_at_one_size_are_drawn_as_a_ladder(self):
        series = [{"dtype": "float32"}, {"dtype": "float32"} | LONG]
        two = ["attention.png", "attention_memory.png"]
        self.assertEqual(self.drawn(RUNG, *series, *RUNGS), [*two, "attention_ladder.png"])
        for cpu_or_pytorch in ([rung | {"device": "cpu", "gpu": ""} for rung in RUNGS],
                               RUNGS[-2:], [RUNGS[3]]):
            self.assertEqual(self.names(RUNG, *series, *cpu_or_pytorch), two)

    def test_float32_on_a_gpu_is_drawn_as_error_against_speed(self):
        float32 = RUNG | {"dtype": "float32", "frobenius_error": "2e-7"}
        rows = [{"implementation": "10_last"}, {"implementation": "10_last", "causal": "True"},
                {"implementation": "pytorch_efficient+none", "forward_ms": "4",
                 "frobenius_error": "7e-7"}, {"implementation": "3_failed"} | FAILED]
        every_key, causal = plots._errors(self.groups(float32, *rows)).axes
        self.assertEqual([[line.get_label() for line in axes.lines]
                          for axes in (every_key, causal)],
                         [["10_last", "pytorch_efficient"], ["10_last"]])
        fast, slow = (line.get_xydata()[0] for line in every_key.lines)
        self.assertAlmostEqual(fast[0] / slow[0], 2)
        self.assertEqual((fast[1], slow[1]), (2e-7, 7e-7))
        self.assertIn("attention_float32.png", self.drawn(float32, *rows))
        self.assertNotIn("attention_float32.png", self.names(float32, *rows[2:]))

    def test_decoding_has_a_bar_for_each_problem_and_implementation(self):
        row = dict(implementation="flash", batch="8", keys="4096", lengths="equal", heads="32",
                   kv_heads="8", head_dim="128", page_size="64", dtype="bfloat16", device="cuda",
                   gpu="NVIDIA X", forward_ms="2", percent_of_copy="80", status="ok")
        changes = ({}, {"implementation": "copy", "percent_of_copy": "100"}, {"keys": "1024"},
                   {"lengths": "log-uniform", "percent_of_copy": "60"})
        self.assertEqual(self.drawn(row, *changes), ["decode.png"])
        axes, = plots._decode(self.groups(row, *changes)).axes
        self.assertEqual([bar.get_height() for bar in axes.patches], [80, 80, 60])
        self.assertEqual([text.get_text() for text in axes.get_xticklabels()],
                         ["8 x 1024 keys", "8 x 4096 keys", "8 x 1 to 4096 keys"])

    def test_only_failures_are_drawn_too_and_what_cannot_be_is_one_line(self):
        self.drawn(ATTENTION, FAILED | {"status": "error"}, STANDARD | FAILED)
        self.drawn(SOFTMAX, SOFTMAX_FAILED, SOFTMAX_FAILED | UNFUSED)
        self.assertIn("has no rows yet",
                      self.refused(plots.plot, write(self.root / "b.csv", SOFTMAX), self.root))
        (self.root / "file").write_text("")
        full = write(self.root / "a.csv", SOFTMAX, {})
        self.assertIn("cannot be written", self.refused(plots.plot, full, self.root / "file/plots"))


class Table(TemporaryRoot):
    def setUp(self):
        super().setUp()
        self.page = self.root / "outputs" / "README.md"
        self.page.parent.mkdir()

    def marked(self, *names: str) -> str:
        return "# Title\n\n" + "\n\n".join(f"<!-- BEGIN {name} -->\nold\n<!-- END {name} -->"
                                           for name in names) + "\n\nEnd.\n"

    def reference(self, table: str, row: dict[str, str], *changes: dict[str, str]) -> None:
        write(self.root / f"outputs/reference/box/csv/{table}_benchmark.csv", row, *changes)

    def text(self, *names: str) -> str:
        return tables.updated(self.marked(*names), self.page)

    def lab(self, *words: str) -> int:
        return self.printed(main.main, ["table", *words])[0]

    def test_regions_are_regenerated_and_the_rest_is_kept(self):
        self.reference("softmax_matmul", SOFTMAX,
                       UNFUSED | {"forward_ms_mean": "3", "forward_peak_MiB": "72"},
                       FUSED_16, {"forward_ms_mean": "1.5", "forward_peak_MiB": "64"},
                       SOFTMAX_FAILED | UNFUSED | {"d2": "128"},
                       SOFTMAX_FAILED | {"d2": "128", "status": "unsupported"})
        self.page.write_text(self.marked("RESULTS softmax_matmul"))
        self.assertEqual(self.lab("--check"), 1)
        self.assertIn("\nold\n", self.page.read_text())
        self.assertEqual((self.lab(), self.lab("--check")), (0, 0))
        text = self.page.read_text()
        self.assertTrue(text.startswith("# Title\n\n") and text.endswith("\n\nEnd.\n"))
        self.assertNotIn("old", text)
        # No PyTorch and no rung: no columns of theirs.
        self.assertIn("|64|3|1.5 (32)|2.00x|1.07|8|0|\n"
                      "|128|OOM|unsupported|||||\n", text)
        self.assertEqual([one.name for one in self.page.parent.glob(".*")], [])

    def test_attention_without_a_result_has_the_status(self):
        self.reference("attention", ATTENTION, STANDARD, {}, CAUSAL | NO_PEAK,
                       STANDARD | LONG | FAILED, LONG, LONG | CAUSAL | NO_BACKWARD,
                       STANDARD | LONG | CAUSAL | NO_PEAK, GPU | STANDARD | {"total_ms": "12"}, GPU,
                       GPU | {"implementation": "9_x", "forward_ms": "0.5"} | FAILED,
                       GPU | {"implementation": "10_other"} | FAILED | {"status": "unsupported"},
                       GPU | {"implementation": "flash+none"} | NO_BACKWARD | {"status": "ok"})
        text = self.text("RESULTS attention_cpu")
        self.assertNotIn("NVIDIA", text)
        self.assertIn("|standard|OOM|||||2|4|1x|", text)
        self.assertIn("|flash|2|4|4.19|5.24|40|2|OOM(backward)|", text)
        text = self.text("RESULTS attention_gpu")
        self.assertNotIn("**CPU", text)
        self.assertIn("|flash|2|4|2x|", text)
        self.assertIn("|9_x|OOM|||", text)
        self.assertNotIn("10_other", text)
        self.assertNotIn("flash+none", text)

    def test_without_standard_attention_the_fastest_passes_stand_beside_pytorch_s(self):
        self.reference("attention", ATTENTION | GPU, {}, {"implementation": "flash+9_x"} | CAUSAL,
                       {"implementation": "pytorch_math", "forward_ms": "3", "backward_ms": "1"},
                       {"implementation": "9_x", "forward_ms": "0.5"} | FAILED)
        text = self.text("RESULTS attention_gpu")
        self.assertIn("|float32, batch 1, 2 heads of 64, 64 keys|2 (flash)|0.00105|"
                      "3 (math)|1.50x|4 (flash)|0.00131|1 (math)|0.25x|2 (flash)|"
                      "0.000532|4 (9_x)|0.000666|\n", text)

    def test_markers_that_do_not_fit_are_one_line_and_a_page_without_is_left_alone(self):
        self.assertEqual(tables.updated("text", self.page), "text")
        self.reference("softmax_matmul", SOFTMAX, {})
        self.assertIn("there is no", self.refused(self.text, "RESULTS attention_cpu"))
        begin, end = "<!-- BEGIN RESULTS softmax_matmul -->", "<!-- END RESULTS softmax_matmul -->"
        for text in (begin, f"\n{end}\n{begin}", f"{begin}\n{begin}\n{end}", f"{begin}{end}{end}",
                     f"{begin}<!-- END LADDER part1 -->"):
            self.assertIn("markers have to come in pairs",
                          self.refused(tables.updated, text, self.page))
        self.assertIn("RESULTS is 'colour'", self.refused(self.text, "RESULTS colour"))
