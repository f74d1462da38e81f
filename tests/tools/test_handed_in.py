"""Results that are handed in: a real run of part 1's benchmark, and forged or careless ones."""

import csv
import io
import json
import zipfile
from unittest import mock

from course import Test
from lab import handed_in, manifest, paths, worklog
from lab.submission import submissions

REAL = paths.REPOSITORY / "outputs/reference/nvidia-h100/csv/softmax_matmul_benchmark.csv"
CSV, PICTURE = "results/softmax_matmul_benchmark.csv", "results/softmax_matmul.png"
TASKS = manifest.select(manifest.load_parts(), ["part1"])


def picture(width, height):
    return (handed_in.PNG + b"\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")
            + handed_in.PNG_END)


class HandedIn(Test):
    def setUp(self):
        self.rows = [row for row in csv.DictReader(io.StringIO(REAL.read_text()))
                     if row["implementation"].startswith(("fused", "unfused"))]
        for row in self.rows:  # another run of the same programs
            for name in ("forward_ms_mean", "forward_ms_std", "forward_ms_median", "tflops"):
                faster = 1 / 1.01 if name == "tflops" else 1.01
                row[name] = f"{float(row[name]) * faster:.6g}"
        best = float(self.find("fused_64", "8192")["forward_ms_mean"])
        self.logged = f"| 10:00 | bench part1 | 32 ok; d2 8192: fused_64 {best:.4g} ms |\n"
        self.files = {
            "results/machine.json": json.dumps({"gpu": "NVIDIA H100 80GB HBM3", "processor": "x"}).encode(),
            PICTURE: picture(640, 480), worklog.PAGE: worklog.TOP.replace(
                worklog.END, self.logged + worklog.END).encode() + b"A larger tile: 3 %.\n"}

    def find(self, name, d2):
        return next(row for row in self.rows if (row["implementation"], row["d2"]) == (name, d2))

    def findings(self):
        return handed_in.findings({CSV: self.table()} | self.files, TASKS)

    def table(self):
        out = io.StringIO()
        writer = csv.DictWriter(out, self.rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return out.getvalue().encode()

    def says(self, *lines):
        """Whatever it says of the log, which has a test of its own."""
        found = tuple(line for line in self.findings() if "times of the last run" not in line)
        self.assertEqual(found, lines)

    def test_a_real_run_is_complete_and_plausible(self):
        complete = ("softmax_matmul: complete and plausible: 32 rows (32 ok), on NVIDIA "
                    "H100 80GB HBM3")
        self.says(complete)
        self.find("unfused", "8192").update(status="OOM", forward_ms_mean="", tflops="")
        self.says(complete.replace("(32 ok", "(31 ok, 1 OOM"))
        for row in self.rows:
            row["status"] = "OOM"
        self.says("softmax_matmul: no row has a time")
        self.assertEqual(handed_in.plots(self.files), {"softmax_matmul.png": picture(640, 480)})

    def test_nothing_handed_in(self):
        self.assertEqual(handed_in.findings({}, TASKS), (
            f"{CSV} is missing", "there are no plots", "worklog.md is missing"))
        self.assertEqual(handed_in.findings({}, manifest.select(manifest.load_parts(), ["2.A"])), ())
        self.files[worklog.PAGE] = (worklog.TOP + worklog.BELOW).encode()
        self.assertEqual(self.findings()[-1:], ("worklog.md has no word of the student's own",))

    def test_cut_off_or_no_table(self):
        for content, said in (
                (REAL.read_bytes()[:-9], f"{CSV} is cut off in its last line"),
                (REAL.read_bytes() + b"16,2048\n", f"{CSV} cannot be used: "
                 "softmax_matmul_benchmark.csv:58: 2 cells; there have to be 21"),
                (b"a,b\n1,2\n", f"{CSV} cannot be used: softmax_matmul_benchmark.csv has the wrong "
                 "header")):
            found = handed_in.findings(self.files | {CSV: content}, TASKS)
            self.assertEqual(len(found), 1)
            self.assertTrue(found[0].startswith(said), found)

    def test_numbers_that_no_benchmark_writes(self):
        row = self.find("fused_16", "64")
        for name, cells in (("forward_ms_mean", ("nan", "inf", "-5", "1_0", "\u0661", "1" + "0" * 400)),
                            ("forward_ms_std", ("",)), ("tflops", ("", "inf")),
                            ("status", ("OOM", "error"))):
            for cell in cells:
                with self.subTest(name, cell=cell), mock.patch.dict(row, {name: cell}):
                    self.assertNotIn("complete", self.findings()[0])
        self.assertIn("complete", self.findings()[0])

    def test_a_cpu_is_asked_for_less(self):
        self.rows = [row | {"gpu": "", "device": "cpu"} for row in self.rows
                     if int(row["d2"]) <= 1024]
        del self.files[worklog.PAGE]
        self.says("softmax_matmul: complete and plausible: 20 rows (20 ok), on x",
                  "worklog.md is missing")

    def test_a_disturbed_row_is_told_and_costs_nothing(self):
        self.find("fused_16", "64")["others_percent"] = "80"
        good, lines = handed_in.of_task(self.files | {CSV: self.table()}, TASKS[-1])
        self.assertTrue(good)
        self.assertEqual(lines[1:], ["softmax_matmul: disturbed by other programs: fused_16 at d2 "
                                     "64"])

    def test_rows_that_are_missing(self):
        self.rows = [row for row in self.rows if row["d2"] not in ("64", "4096")
                     or row["implementation"] != "fused_32"]
        for name in ("unfused", "fused_64"):  # which needs no more memory than its tensors
            for size in ("2048", "4096", "8192"):
                self.find(name, size)["status"] = "OOM"
        self.says("softmax_matmul: no row of unfused at d2 2048",
                  "softmax_matmul: no row of fused_32 at d2 64, 4096",
                  "softmax_matmul: no row of fused_64 at d2 2048, 4096, 8192")

    def test_of_another_machine(self):
        self.files["results/machine.json"] = b'{"gpu": "", "processor": "AMD EPYC"}'
        self.says("softmax_matmul: rows of NVIDIA H100 80GB HBM3, handed in with the machine "
                  "'AMD EPYC'")
        for row in self.rows:
            row["gpu"] = "H900 Ultra"
        self.files["results/machine.json"] = b'{"gpu": "H900 Ultra"}'
        self.says("softmax_matmul: no driver calls a GPU 'H900 Ultra'")
        self.rows[0]["gpu"] = "NVIDIA H100 80GB HBM3"
        self.assertIn("softmax_matmul: rows of 2 GPUs: H900 Ultra, NVIDIA H100 80GB HBM3",
                      self.findings())
        self.files["results/machine.json"] = b"[1"
        self.assertIn("machine.json is missing, or cannot be read", " ".join(self.findings()))

    def test_another_run_than_the_logs(self):
        log = self.files[worklog.PAGE]
        self.files[worklog.PAGE] = log.replace(b"fused_64 ", b"fused_64 1")
        good, (_, said) = handed_in.of_task(self.files | {CSV: self.table()}, TASKS[-1])
        self.assertTrue(good)
        self.assertIn("worklog.md has times of the last run that the table lacks: fused_64 1", said)
        self.files[worklog.PAGE] = log.replace(b"bench", b"check")
        self.assertIn("softmax_matmul: worklog.md lists no run of this benchmark", self.findings())

    def test_what_a_report_shows_of_the_log(self):
        log = (worklog.TOP + worklog.BELOW).replace(worklog.END, f"| when |\n|---|\n| 1 |\n| 2 |\n{worklog.END}")
        self.assertEqual(worklog.to_read(log + "Mine.\n"), "Mine.\n\n| 2 |\n| 1 |")
        self.assertEqual(worklog.to_read("Mine.\n"), "Mine.")

    def test_less_memory_than_the_pass_needs(self):
        self.find("unfused", "8192")["forward_peak_MiB"] = "64"
        self.find("fused_16", "64")["forward_peak_MiB"] = "60"
        self.says("softmax_matmul: the peak of memory is smaller than what the pass writes: "
                  "fused_16 at d2 64, unfused at d2 8192")

    def test_equal_times(self):
        one, other = self.find("fused_16", "64"), self.find("fused_32", "64")
        for name in ("forward_ms_mean", "forward_ms_std", "forward_ms_median", "tflops"):
            other[name] = one[name]
        self.says("softmax_matmul: the time is another row's, to the last digit: fused_16 at d2 64, "
                  "fused_32 at d2 64")

    def test_too_fast(self):
        row = self.find("fused_64", "8192")
        for name in ("forward_ms_mean", "forward_ms_std", "forward_ms_median"):
            row[name] = f"{float(row[name]) / 40:.6g}"
        row["tflops"] = f"{float(row['tflops']) * 40:.6g}"
        self.says("softmax_matmul: faster than any machine: fused_64 at d2 8192")

    def test_faster_than_its_processor(self):
        for row in self.rows:
            rate = float(row["tflops"]) / 1000
            row.update(gpu="", device="cpu", tflops=f"{rate:.6g}", percent_of_peak=f"{50 * rate:.6g}")
            for name in ("forward_ms_mean", "forward_ms_std", "forward_ms_median"):
                row[name] = f"{1000 * float(row[name]):.6g}"
        self.files["results/machine.json"] = b'{"processor": "x", "processors": 2}'
        self.assertIn("complete", self.findings()[0])
        self.find("fused_64", "8192")["percent_of_peak"] = "0.05"  # that of a slower run
        self.says("softmax_matmul: faster than this processor: fused_64 at d2 8192")
        self.find("fused_64", "8192")["percent_of_peak"] = ""
        self.assertIn("complete", self.findings()[0])

    def test_faster_than_its_gpu(self):
        for row in self.rows:
            row["gpu"] = "Tesla T4"
        self.files["results/machine.json"] = b'{"gpu": "Tesla T4"}'
        self.assertIn("faster than the data sheet of this GPU allows: ", self.findings()[0])

    def test_the_rows_of_the_course(self):
        self.rows = [row for row in csv.DictReader(io.StringIO(REAL.read_text()))
                     if row["implementation"].startswith(("fused", "unfused"))]
        self.says("softmax_matmul: a row of the course's own outputs/reference, to the last digit: "
                  "unfused at d2 64, fused_16 at d2 64, fused_32 at d2 64 and 29 more")

    def test_a_spreadsheet_and_a_table_that_is_too_large(self):
        good = self.table()
        for content, is_good in ((b"\xef\xbb\xbf" + good.replace(b"\n", b"\r\n"), True),
                                 (handed_in.TOO_LARGE, False)):
            self.assertEqual(handed_in.of_task(self.files | {CSV: content}, TASKS[-1])[0], is_good)

    def test_pictures_that_no_browser_should_open(self):
        for content in (picture(60000, 60000), picture(0, 0), picture(1, 1) + b"<script>", b"GIF"):
            self.assertEqual(handed_in.plots({PICTURE: content}), {})

    def test_edited(self):
        for name, change in (("forward_ms_mean", 0.8), ("tflops", 1.2), ("forward_ms_median", 0.5)):
            row = self.find("fused_64", "8192")
            kept, row[name] = row[name], f"{float(row[name]) * change:.6g}"
            self.says("softmax_matmul: the columns for times and rates do not fit each other: "
                      "fused_64 at d2 8192")
            row[name] = kept

    def test_what_nobody_hands_in_is_left_out(self):
        archive = self.folder() / "bomb.zip"
        task = TASKS[-1]
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr(task.shown_path(), "int x;")
            packed.writestr(worklog.PAGE, "A larger tile: 3 %.\n")
            packed.writestr(f"results/{300 * 'a'}.png", "")
            for n in range(300):
                packed.writestr(f"results/p{n}.png", bytes(1 << 20))
        results = submissions.read(archive, TASKS).results
        self.assertIn(worklog.PAGE, results)
        self.assertIn(handed_in.TOO_LARGE, results.values())
        self.assertLessEqual(sum(map(len, results.values())), 8 << 20)
        self.assertLess(max(map(len, results)), 100)
