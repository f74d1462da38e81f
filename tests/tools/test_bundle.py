"""`./lab bundle`: what is in the archive that a student hands in."""

import hashlib
import json
import zipfile

from course import Course, case
from lab import bundles, results, worklog

ROWS = """d2,implementation,status,forward_ms_mean
64,a,ok,2
128,a,ok,4
128,b,ok,2.5
256,b,OOM,
"""


class Bundle(Course):
    def setUp(self):
        super().setUp()
        self.archive = self.root / "submission.zip"
        self.options = f" --output {self.archive}"

    def packed(self):
        with zipfile.ZipFile(self.archive) as archive:
            files = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        return json.loads(files.pop(bundles.INDEX)), files

    def test_exactly_the_files_of_the_tasks_with_the_version(self):
        self.write("part1_softmax_matmul/skeleton/notes.txt", "not graded")
        self.write("part1_softmax_matmul/skeleton/fused_cpu.cpp", "// mine\n")
        self.shows("bundle" + self.options, "fused_cpu.cpp\n", "measure.cpp is still the skeleton",
                   "submission.zip: 4 files, for version 1.2.3 (")
        index, files = self.packed()
        self.assertEqual(sorted(files), [
            f"part1_softmax_matmul/skeleton/{name}"
            for name in ("fused_cpu.cpp", "fused_cuda.cu", "measure.cpp", "puzzle.cu")])
        self.assertEqual(files["part1_softmax_matmul/skeleton/fused_cpu.cpp"], b"// mine\n")
        self.assertEqual(index["files"], {path: hashlib.sha256(content).hexdigest()
                                          for path, content in files.items()})
        self.assertEqual((index["format"], index["version"]["number"]), (1, "1.2.3"))

    def test_results_and_the_work_log_are_packed_and_what_is_missing_is_said(self):
        self.shows("bundle" + self.options, "missing: outputs/csv/softmax_matmul_benchmark.csv: ./lab "
                   "bench part1 writes it; without a GPU: ./lab bench part1 --quick\n",
                   "missing: your words in worklog.md")
        self.fake("fused_cpu", [case("one"), case("two", "failed", message="no")])
        self.lab("check fused_cpu")
        self.lab("check fused_cpu")  # nothing has changed since
        csv = self.write("outputs/csv/softmax_matmul_benchmark.csv", ROWS)
        self.write("outputs/csv/attention_benchmark.csv", "of another part\n")
        self.write("outputs/csv/machine.json", "{}")
        self.shows("bundle" + self.options, "missing: plots of softmax_matmul_benchmark.csv")
        self.write("outputs/plots/softmax_matmul_time.png", "drawn")
        page = self.root / "worklog.md"
        page.write_text(page.read_text() + "Rescaling later brought 5 %.\n")
        text = self.lab("bundle" + self.options)[1]
        self.assertNotIn("missing", text)
        self.assertIn("4 files and 4 of results, for version", text)
        index, files = self.packed()
        self.assertEqual(set(files) - {path for path in files if "skeleton" in path}, {
            "results/softmax_matmul_benchmark.csv", "results/softmax_matmul_time.png",
            "results/machine.json", "worklog.md"})
        self.assertEqual(files["results/softmax_matmul_benchmark.csv"], csv.read_bytes())
        self.assertLessEqual(files.keys(), index["files"].keys())
        log = files["worklog.md"].decode()
        self.assertEqual(log.count("| check fused_cpu | wrong, 0 of 1 points |"), 1)
        self.assertTrue(log.endswith("Rescaling later brought 5 %.\n"))

    def test_what_a_benchmark_appended(self):
        file = self.write("outputs/csv/softmax_matmul_benchmark.csv", ROWS)
        kind = results.KINDS[0]
        self.assertEqual(worklog.measured(kind, 0), "3 ok, 1 OOM; d2 128: b 2.5 ms, a 4 ms")
        before = worklog.size_of(kind)
        self.assertEqual(worklog.measured(kind, before), "no rows")
        with file.open("a") as rows:
            rows.write("64,b,ok,1.5\n")
        self.assertEqual(worklog.measured(kind, before), "1 ok; d2 64: b 1.5 ms")

    def test_what_the_grader_refuses_is_named(self):
        self.write("part1_softmax_matmul/skeleton/fused_cuda.cu",
                   "// FLASH_SIMT\n/* __NVCC__\n*/ char x[] = \"__NVCC__\";\n#ifdef FLASH_SIMT\n")
        text = self.lab("bundle fused_cuda" + self.options)[1]
        self.assertIn("the grader refuses a task that does this: line 4 of fused_cuda.cu has "
                      "`FLASH_SIMT`: code must not know whether it runs on a GPU", text)
        self.assertEqual(text.count("refuses"), 1)

    def test_a_given_file_that_was_changed(self):
        given = self.write("common/tensor.hpp", "given")
        self.commit()
        self.assertNotIn("given", self.lab("bundle" + self.options)[1])
        given.write_text("mine")
        self.shows("bundle" + self.options, "you changed a given file: common/tensor.hpp; git diff",
                   "the grader has given files of its own: what you changed in yours is not")

    def test_one_task_alone_and_the_same_bytes_again(self):
        self.lab("bundle fused_cpu" + self.options)
        first = self.archive.read_bytes()
        self.assertEqual(len(self.packed()[1]), 1)
        self.lab("bundle fused_cpu" + self.options)
        self.assertEqual(self.archive.read_bytes(), first)

    def test_the_version_of_a_release_is_the_one_that_was_handed_out(self):
        self.release()
        self.shows("bundle" + self.options, "for version 7 (abc) of the course")
        self.assertEqual(self.packed()[0]["version"], {"number": "7", "commit": "abc"})

    def test_what_is_missing_is_said_and_nothing_at_all_is_refused(self):
        (self.part / "skeleton/measure.cpp").unlink()
        self.shows("bundle" + self.options, "measure.cpp is missing, and is not packed")
        self.shows("bundle measure" + self.options, "nothing to hand in", code=1)

    def test_a_link_or_a_huge_file_is_refused_and_leaves_no_archive(self):
        file = self.part / "skeleton/measure.cpp"
        file.write_bytes(b" " * (bundles.LARGEST + 1))
        self.shows("bundle" + self.options, "1048577 bytes; 1048576 are the most", code=1)
        file.unlink()
        file.symlink_to("/etc/hostname")
        self.shows("bundle" + self.options, "must be an ordinary file, and no link", code=1)
        self.assertEqual([path.name for path in self.root.glob("*submission*")], [])
