"""`./lab grade` around the judge: which files are taken, what is written, how it goes on.

The judge is replaced by the first line of a file, "// passed 3 of 4": test_judge.py tries the real
one.
"""

import contextlib
import csv
import dataclasses
import io
import itertools
import json
import os
import re
import unittest
import zipfile
from decimal import Decimal
from pathlib import Path
from unittest import mock

from course import Course, Test
from lab import handed_in, main, manifest
from lab.errors import LabError
from lab.instructor import grader, reports, slurm, speed
from lab.leaderboard import boards, machine, measuring
from lab.leaderboard.result import Busy, NoResult
from lab.outcomes import CaseResult as Case
from lab.submission import judging, sandbox, submissions
from lab.submission.sandbox import InfraError
from lab.verbs.instructor import grade

SCHEMA = json.loads((Path(__file__).parents[2] / "grading/results.schema.json").read_text())
PATH = "part1_softmax_matmul/skeleton/fused_cpu.cpp"
NO_FILE = "it holds no file; ./lab bundle packs those that are graded"
NO_ZIP = "the zip cannot be read (File is not a zip file); ./lab bundle makes one that can"
HOSTILE = '</pre><script>alert(1)</script> ``` | "x" \x1b[31m'


def problems(value, schema, place="results"):
    """Where a value differs from a schema; of JSON Schema, the words that ours uses."""
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float)}
    if "enum" in schema and value not in schema["enum"]:
        return [f"{place} is {value!r}"]
    if "type" in schema and (not isinstance(value, kinds[schema["type"]]) or value is True):
        return [f"{place} is no {schema['type']}"]
    if "minimum" in schema and value < schema["minimum"]:
        return [f"{place} is {value}"]
    found = [f"{place} has no {key}" for key in schema.get("required", ()) if key not in value]
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for key, inside in value.items():
            if key in known:
                found += problems(inside, known[key], f"{place}.{key}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{place}.{key} is not known")
    if isinstance(value, list) and "items" in schema:
        for number, inside in enumerate(value):
            found += problems(inside, schema["items"], f"{place}[{number}]")
    return found


def fake_judge(task, source, bench, seed=None, others=(), seconds=0, made=None):
    text = source.decode()
    if "broken" in text:
        return judging.Judged(task.id, task.points, judging.BUILD_FAILED, "x.cpp:1: error: no")
    if "not started" in text:
        return judging.Judged(task.id, task.points, judging.GRADED, cases=(
            Case("case 0", "not started", points=task.points),))
    if "refused" in text:
        return judging.Judged(task.id, task.points, judging.REFUSED, f"it uses `{HOSTILE}`")
    passed, of = map(int, re.search(r"passed (\d) of (\d)", text).groups())
    cases = [Case(f"case {n}", "passed" if n < passed else "failed", "" if n < passed else HOSTILE,
                  requirement="all", points=task.points / of) for n in range(of)]
    return judging.Judged(task.id, task.points, judging.GRADED, "", 4711, tuple(cases))


class Class(Course):
    """A class, in a course with two tasks and the judge above."""

    def setUp(self):
        super().setUp()
        part, = manifest.load_parts()
        self.tasks = [task for task in part.tasks if task.name in ("fused_cpu", "measure")]
        self.all, self.out = self.root / "all", self.root / "grades"
        self.judge = mock.Mock(side_effect=fake_judge)
        self.patch(judging, judge=self.judge, set_up=lambda *_: mock.MagicMock(folder=self.root,
                                                                          seconds_a_call=20),
                   can_judge=lambda task, folder: task in self.tasks)
        self.trouble = sandbox.trouble
        self.patch(sandbox, trouble=lambda: "")

    def submit(self, name, **files):
        for task, text in files.items():
            self.write(f"all/{name}/part1_softmax_matmul/skeleton/{task}.cpp", f"// {text}\n")

    def graded(self, code=0, *more):
        ended, text = self.lab(f"grade {self.all} --output {self.out}", *more)
        self.assertEqual(ended, code, text)
        return text

    def table(self):
        return {row["id"]: row for row in csv.DictReader(
            io.StringIO((self.out / "grades.csv").read_text()))}

    def of(self, name, file):
        return self.out / self.table()[name]["folder"] / file


class Grade(Class):
    def test_what_is_written(self):
        self.submit("ann", fused_cpu="passed 3 of 4", measure="refused")
        self.assertIn("not in the points: part1.fused_cuda", self.graded())
        *row, judge = self.table()["ann"].values()
        self.assertEqual(row, ["ann", "001", "graded", "0.75", "0", "0.75", "5",
                               "refused: part1.measure", "1.2.3 (no commit)"])
        self.assertRegex(judge, r"[0-9a-f]{12}")
        self.assertEqual(sorted(file.name for file in (self.out / "001").iterdir()),
                         ["record.json", "report.html", "report.md", "results.json"])
        results = json.loads(self.of("ann", "results.json").read_text())
        self.assertEqual(problems(results, SCHEMA), [])
        self.assertEqual(results["score"], 0.75)
        self.assertEqual(sum(test.get("max_score", 0) for test in results["tests"]), 5)
        requirement, *cases, _ = results["tests"]
        self.assertEqual([requirement[key] for key in ("name", "score", "max_score", "output")],
                         ["part1.fused_cpu: all", 0.75, 1, "3 of 4 cases"])
        self.assertIn('./lab check fused_cpu --case "case 3" --seed 4711', cases[3]["output"])
        self.assertEqual([case["name"] for case in cases if "score" in case], [])
        for wrong in ({}, results | {"score": -1}, results | {"visibility": "all"},
                      results | {"tests": [{"name": 3}]}, results | {"grade": 1}):
            self.assertNotEqual(problems(wrong, SCHEMA), [])

    def test_results_are_shown_beside_the_points(self):
        self.submit("ann", fused_cpu="passed 1 of 1", measure="passed 1 of 1")
        self.write("all/ann/worklog.md", f"tried {HOSTILE}\n")
        (picture := self.write("all/ann/results/a_b.png", "")).write_bytes(
            handed_in.PNG + 8 * b"\0" + 2 * b"\0\0\0\1" + handed_in.PNG_END)
        self.write("all/ann/results/softmax_matmul_benchmark.csv",
                   f"implementation,status,d2,forward_ms_mean\n{HOSTILE},ok,64,x\n")
        self.graded()
        report = self.of("ann", "report.md").read_text()
        self.assertIn("## Results\n\n- results/softmax_matmul_benchmark.csv cannot be used: ",
                      report)
        self.assertIn("![a_b.png](a_b.png)", report)
        self.assertEqual(self.of("ann", "a_b.png").read_bytes(), picture.read_bytes())
        self.assertNotIn("<script>", self.of("ann", "report.html").read_text())
        self.assertIn("cannot be used", (self.out / "index.html").read_text())
        (self.root / "all/ann/worklog.md").unlink()  # graded anew
        self.graded()
        self.assertIn("worklog.md is missing", self.of("ann", "report.md").read_text())

    def test_results_have_points_where_they_are_complete_and_plausible(self):
        tasks = self.root / "part1_softmax_matmul/tasks.toml"
        tasks.write_text(tasks.read_text().replace("points = 4\n", "points = 4\nresults = 2\n"))
        self.tasks = manifest.select(manifest.load_parts(), ["fused_cpu", "measure"])
        for name in ("ann", "bob"):
            self.submit(name, fused_cpu="passed 1 of 1", measure="passed 1 of 1")
        with mock.patch.object(handed_in, "of_task", lambda files, _: (bool(files), ["made up"])):
            self.write("all/ann/results/softmax_matmul_benchmark.csv", "")
            self.graded()
        scores = {name: [row[key] for key in ("results.part1", "score", "max_score", "why")]
                  for name, row in self.table().items()}
        self.assertEqual(scores, {"ann": ["2", "7", "7", ""],
                                  "bob": ["0", "5", "7", "failed: results.part1"]})
        self.assertIn("```text\nmade up\n```\n\nTo see it again: `./lab bundle part1`",
                      self.of("bob", "report.md").read_text())
        self.assertIn("results.part1: results are incomplete, or not plausible",
                      (self.out / "index.html").read_text())

    def test_who_has_the_same_times_is_said(self):
        for name in ("ann", "bob", "eve"):
            self.submit(name, fused_cpu="passed 1 of 1", measure="passed 1 of 1")
            self.write(f"all/{name}/results/softmax_matmul_benchmark.csv",
                       "implementation,status,d2,forward_ms_mean\n" + "".join(
                           f"fused_16,ok,{d2},{3 if name == 'eve' else 2}.{d2}\n"
                           for d2 in (64, 128, 256)))
        self.graded()
        page = (self.out / "index.html").read_text()
        for name in ("ann", "bob"):
            self.assertIn(f"<br>the same times, to the last digit, as {name}<", page)
        self.assertNotIn("as eve", page)

    def test_it_goes_on_where_it_was_interrupted(self):
        for name in "abcdef":
            self.submit(name, fused_cpu=f"passed {ord(name) % 3} of 3", measure="passed 1 of 2")
        self.graded()
        whole = (self.out / "grades.csv").read_text()
        self.out = self.root / "again"
        calls = []

        def interrupted(task, source, bench, *_):
            calls.append(task)
            if len(calls) == 6:
                raise KeyboardInterrupt
            return fake_judge(task, source, bench)
        self.judge.side_effect = interrupted
        self.graded(130, "--jobs", "1")
        self.assertFalse((self.out / "grades.csv").exists())
        done = len(list(self.out.glob("*/record.json")))
        self.assertTrue(2 <= done < 6, done)
        self.judge.side_effect = fake_judge
        self.judge.reset_mock()
        self.graded()
        self.assertEqual((self.out / "grades.csv").read_text(), whole)
        self.assertEqual(self.judge.call_count, 2 * (6 - done))

    def test_what_is_no_submission_is_named(self):
        self.submit("ann", fused_cpu="passed 1 of 1")
        for name in ("bob.tar.gz", "fused_cpu.cpp", ".DS_Store", "__MACOSX/x", "e\x1bve.rar"):
            self.write(f"all/{name}", "")
        with zipfile.ZipFile(self.all / "cat.zip", "w") as archive:
            archive.writestr("fused_cpu.cpp", "// passed 1 of 1")
        text = self.graded()
        self.assertEqual(list(self.table()), ["ann", "cat"])
        system, kind = "made by a system, not by a student", "neither a zip nor a folder"
        self.assertEqual([line for line in text.splitlines() if line.startswith("left out: ")], [
            f"left out: {name}: {why}" for name, why in (
                (".DS_Store", system), ("__MACOSX", system), ("bob.tar.gz", kind),
                ("e\N{REPLACEMENT CHARACTER}ve.rar", kind), ("fused_cpu.cpp", "a single file; "
                 "put it into a folder with the student's name"))])

    def test_a_folder_around_the_class_is_named(self):
        for name in ("ann", "bob"):
            self.submit(name, fused_cpu="passed 1 of 1")
        self.all.rename(self.root / "inner")
        self.all.mkdir()
        (self.root / "inner").rename(self.all / "inner")
        self.assertIn("inner holds more than one submission: name that folder", self.graded(1))
        self.write("late.zip", "")
        code, said = self.lab(f"grade {self.all}/inner {self.root}/late.zip --tasks fused_cpu")
        self.assertIn(f"of several names each is one: name {self.all}/inner/*", said)
        self.write("more.zip", "")
        code, said = self.lab(f"grade {self.all}/inner {self.root}/late.zip {self.root}/more.zip "
                              "--tasks fused_cpu")
        self.assertIn("inner has 0 points: fused_cpu.cpp is there more than once, ", said)

    def test_a_class_in_which_somebody_is_called_like_a_part_is_not_taken_for_one(self):
        self.submit("ann", fused_cpu="passed 1 of 1")
        self.write(f"all/{PATH}", "// passed 1 of 2")
        self.assertIn(f"and ann, as a class: name {self.all}/*", self.graded(1))
        code, _ = self.lab(f"grade {self.all}/ann {self.all}/part1_softmax_matmul "
                           f"--output {self.out}")
        self.assertEqual((code, self.table()["ann"]["score"]), (0, "1"))

    def test_a_hidden_case_of_no_task_is_an_error(self):
        self.submit("ann", fused_cpu="passed 1 of 1", measure="passed 1 of 1")
        for name in ("part1_fused_cpu.cpp", ".swp"):
            self.write(f"grading/hidden/{name}", "")
        self.graded()
        for name in ("part1_fusedcpu.cpp", "part1_fused_cpu.cc"):
            file = self.write(f"grading/hidden/{name}", "")
            for text in (self.graded(1), self.lab(f"export {self.root / 'x.zip'}")[1]):
                self.assertIn(f'grading/hidden/{name} is of no task (did you mean '
                              '"part1_fused_cpu.cpp"?); there may be part1_fused_cpu.cpp, '
                              "part1_fused_cuda.cpp, part1_measure.cpp, part1_puzzle.cpp\n", text)
            file.unlink()

    def test_a_hidden_case_that_the_solution_fails_stops_the_class(self):
        for name in ("ann", "bob"):
            self.submit(name, fused_cpu="passed 1 of 1", measure="passed 1 of 1")
        self.write("grading/hidden/part1_fused_cpu.cpp", "")
        self.write("part1_softmax_matmul/solution/fused_cpu.cpp", "x")
        for status, code in (("passed", 0), ("failed", 1)):
            tried = judging.Judged("part1.fused_cpu", 1, "graded", cases=(
                Case("one", "failed"), Case("hidden: two", status, "wrong")))
            self.judge.side_effect = lambda task, source, *rest, tried=tried: (
                tried if source == b"x" else fake_judge(task, source, *rest))
            text = self.graded(code)
            self.assertEqual("the solution of fused_cpu fails hidden: two: wrong" in text, code)

    def test_without_a_sandbox_nothing_is_graded(self):
        self.submit("ann", fused_cpu="passed 1 of 1")
        self.patch(sandbox, trouble=lambda: "bubblewrap is not installed")
        self.assertEqual(self.graded(code=1), "lab: bubblewrap is not installed\n")
        self.assertFalse(self.out.exists())

    def test_a_limit_that_the_judge_cannot_work_under_is_said_before_anybody_is_graded(self):
        self.patch(sandbox.resource, getrlimit=lambda _: (1 << 33, 1 << 33))
        self.patch(sandbox.shutil, which=lambda name: f"/usr/bin/{name}")
        self.assertRegex(self.trouble(), "8589934592 bytes of address space, .* `ulimit -v`")

    def test_one_submission_more_keeps_the_others(self):
        for name in ("ann", "bob"):
            self.submit(name, fused_cpu="passed 1 of 2", measure="passed 1 of 1")
        self.assertNotIn("kept", self.graded())
        before = self.table()
        self.write("late/bob/fused_cpu.cpp", "// passed 2 of 2")
        self.write("late/eve/fused_cpu.cpp", "// passed 2 of 2")
        self.all = self.root / "late"
        self.assertIn("rows kept from earlier commands: 1\n", self.graded())
        self.assertEqual({name: row["score"] for name, row in self.table().items()},
                         {"ann": "4.5", "bob": "1", "eve": "1"})
        self.assertEqual(self.table()["ann"], before["ann"])
        self.assertIn(">ann</a>", (self.out / "index.html").read_text())
        self.assertIn("not in grades.csv, because graded with other cases, tasks or options: ann; "
                      "name these submissions, too", self.graded(0, "--tasks", "fused_cpu"))
        self.assertEqual(list(self.table()), ["bob", "eve"])

    def test_a_zero_says_why(self):
        self.submit("right", fused_cpu="passed 1 of 1", measure="passed 1 of 1")
        self.submit("wrong", fused_cpu="passed 0 of 1", measure="passed 0 of 1")
        self.submit("broken", fused_cpu="broken", measure="broken")
        self.submit("refused", fused_cpu="refused", measure="not started")
        self.submit("half", fused_cpu="passed 1 of 1")
        self.write("all/unreadable.zip", "no zip")
        self.write("all/other/notes.txt", "")
        (self.all / "empty").mkdir()
        text = self.graded()
        both = "part1.fused_cpu, part1.measure"
        expected = {"broken": f"does not compile: {both}", "empty": NO_FILE,
                    "half": "missing: part1.measure", "other": f"missing: {both}",
                    "refused": "refused: part1.fused_cpu; not started: part1.measure",
                    "right": "", "unreadable": NO_ZIP,
                    "wrong": f"wrong: {both}"}
        self.assertEqual({name: row["why"] for name, row in self.table().items()}, expected)
        self.assertEqual([line for line in text.splitlines() if "has 0 points" in line], [
            f"{name} has 0 points: {why}" for name, why in expected.items()
            if name not in ("half", "right")])
        page = (self.out / "index.html").read_text()
        for why in ("does not compile", "missing", "refused", "not started", "wrong"):
            self.assertIn(f'0<br><span class="soft">{why}</span></td>', page)
        for why in (NO_FILE, NO_ZIP):
            self.assertIn(f'</a><br><span class="soft">{why}</span></div>', page)

    def test_a_bundle_of_another_version_is_graded_and_says_so(self):
        self.write(PATH, "// passed 1 of 1")
        self.all.mkdir()
        self.lab(f"bundle fused_cpu --output {self.all / 'ann.zip'}")
        self.graded()
        report = self.of("ann", "report.md")
        self.assertNotIn("This was written for", report.read_text())
        self.write("CMakeLists.txt", "project(flash VERSION 1.3 LANGUAGES CXX)\n")
        report.with_name("record.json").write_text("{")
        self.graded()
        self.assertRegex(self.of("ann", "report.md").read_text(),
                         r"written for version 1\.2\.3 .* with version 1\.3")
        self.assertEqual(self.table()["ann"]["part1.fused_cpu"], "1")

    def test_the_page_has_a_histogram_and_the_commonest_mistakes(self):
        for name, passed in (("a", 0), ("b", 0), ("c", 3), ("d", 4)):
            self.submit(name, fused_cpu=f"passed {passed} of 4", measure="passed 1 of 1")
        self.graded()
        page = (self.out / "index.html").read_text()
        self.assertIn("4 submissions, 0 not graded; of 5 points: mean 4.44, median 4.38, from 4 to "
                      "5.", page)
        self.assertIn('<td class="n">2</td><td class="text">part1.fused_cpu: case 0<br>', page)
        self.assertIn('<svg role="img" aria-label="histogram of points"', page)
        # Above the numbers of points: the last two bars have two submissions each.
        self.assertRegex(page, "(?s)>5</text>.*>2</text>.*>2</text>")


def packed(content=b"// passed 1 of 1", name="fused_cpu.cpp", method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(name, content)
    return out.getvalue()


def many_entries():
    """Twenty bytes of content, and more entries than Python should make objects of."""
    one = packed(b"", "x")
    begin, end = one.index(b"PK\1\2"), one.index(b"PK\5\6")
    return one[:begin] + one[begin:end] * 200_001 + one[end:]


class OneDoesNotStopTheClass(Class):
    """What one submission does, and what its row says; beside it a good one keeps its points."""

    def after(self, **files):
        """The rows of these submissions, name -> bytes of it, graded beside a good one."""
        self.submit("good", fused_cpu="passed 1 of 1", measure="passed 1 of 1")
        for name, content in files.items():
            self.write(f"all/{name}", "").write_bytes(content)
        self.graded()
        table = self.table()
        self.assertEqual(table.pop("good")["score"], "5")
        return table

    def test_a_zip_that_cannot_be_read(self):
        rows = self.after(**{"many.zip": many_entries(), "cut.zip": packed()[:-3],
                             "lzma.zip": packed(method=zipfile.ZIP_LZMA)})
        for name, why in (("many", "more than 200000 files; ./lab bundle"),
                          ("cut", "the zip cannot be read ("),
                          ("lzma", "unusual method); ./lab bundle makes")):
            self.assertEqual(rows[name]["score"], "0")
            self.assertIn(why, rows[name]["why"])

    def test_links_and_pipes_are_not_followed(self):
        self.write("secret/part1_softmax_matmul/skeleton/fused_cpu.cpp", "// passed 1 of 1")
        (self.root / "secret.zip").write_bytes(packed())
        self.all.mkdir()
        for name, target in (("eve", "secret"), ("zip.zip", "secret.zip"), ("gone.zip", "nothing"),
                             ("loop", "all/loop"), ("class", "all")):
            (self.all / name).symlink_to(self.root / target)
        (self.all / "inside").mkdir()
        (self.all / "inside/part1_softmax_matmul").symlink_to(
            self.root / "secret/part1_softmax_matmul")
        (self.all / "inside/fused_cpu.cpp").symlink_to("/etc/passwd")
        os.mkfifo(self.all / "inside/measure.cpp")
        os.mkfifo(self.all / "pipe.zip")
        rows = self.after()
        for name in ("eve", "zip", "gone", "loop", "class"):
            self.assertIn("a symbolic link, and none is followed", rows[name]["why"])
        self.assertEqual({row["score"] for row in rows.values()}, {"0"})
        self.assertIn("(a link, and none is followed)", self.of("inside", "report.md").read_text())
        self.assertNotIn("pipe", rows)  # named as left out

    def test_the_tasks_of_a_submission_share_its_time(self):
        self.submit("slow", fused_cpu="passed 1 of 1", measure="passed 1 of 1")
        self.graded()
        first, second = (call.args[5] for call in self.judge.call_args_list)
        self.assertTrue(second < first <= judging.JUDGE.seconds)

    def test_whatever_any_stage_raises_is_that_submissions_row(self):
        def is_graded(record, *_):
            records = record if isinstance(record, list) else [record]
            return [(one.id, one.status) for one in records] == [("eve", "graded")]

        stages = {(submissions, "read"): lambda place, *_: place.name == "eve",
                  (judging, "judge"): lambda task, source, *_: b"1 of 2" in source,
                  (grader, "write"): lambda path, *_: path.parent.name == "001",
                  (reports, "to_json"): is_graded, (reports, "gradescope"): is_graded,
                  (reports, "markdown"): is_graded, (reports, "html"): is_graded,
                  (reports, "row"): is_graded, (reports, "mistakes"): is_graded}
        self.submit("eve", fused_cpu="passed 1 of 2")
        kinds = itertools.cycle((ValueError, LabError, OSError, MemoryError, RecursionError))
        for (where, name), is_hit in stages.items():
            kind, real, self.out = next(kinds), getattr(where, name), self.root / name

            def fails(*given, kind=kind, real=real, is_hit=is_hit, **more):
                if is_hit(*given):
                    raise kind("surprise")
                return real(*given, **more)
            with mock.patch.object(where, name, fails):
                self.submit("good", fused_cpu="passed 1 of 1", measure="passed 1 of 1")
                said = self.graded(1)
            rows, why = self.table(), f"{kind.__name__}: surprise"
            self.assertEqual((rows["good"]["score"], rows["eve"]["status"], rows["eve"]["why"]),
                             ("5", "infra_error", why), name)
            self.assertEqual((rows["eve"]["score"], rows["eve"]["part1.fused_cpu"]), ("", ""))
            self.assertIn(f"eve was not graded: {why}", said)
        self.assertFalse(self.of("eve", "results.json").exists())
        self.assertIn("not graded yet", self.of("eve", "report.md").read_text())
        self.judge.reset_mock()
        self.graded()
        self.assertEqual(self.table()["eve"]["score"], "0.5")
        self.assertEqual(self.judge.call_count, 1)  # of the good one nothing was judged again


class Cluster(Class):
    """`--slurm`, with a cluster that runs a task of the array each time it is asked."""

    def setUp(self):
        super().setUp()
        self.submitted, self.left, self.asked = [], {}, lambda: None
        self.patch(slurm.shutil, which=lambda name: f"/usr/bin/{name}")
        self.patch(slurm, _ask=self.cluster, POLL=0, LATE=0)
        self.patch(slurm.sandbox, trouble=lambda *_: "")

    def cluster(self, argv):
        if argv[0] == "sbatch":
            self.submitted.append(argv)
            array, = (word for word in argv if word.startswith("--array"))
            first, last = re.fullmatch(r"--array=(\d+)-(\d+)(?:%\d+)?", array).groups()
            job = str(6 + len(self.submitted))
            self.left[job] = list(range(int(first), int(last) + 1))
            return mock.Mock(returncode=0, stdout=f"{job};cluster\n")
        job = argv[-1].removeprefix("--jobs=")
        self.asked()
        if self.left[job]:
            self.environment(SLURM_ARRAY_TASK_ID=str(self.left[job].pop(0)))
            script = Path(self.submitted[int(job) - 7][-1])
            self.printed(slurm.main, script.with_name("job.json"))
        return mock.Mock(returncode=0, stdout="x\n" * len(self.left[job]))

    def test_the_same_grades_as_without_a_cluster(self):
        for name in "abc":
            self.submit(name, fused_cpu=f"passed {ord(name) % 3} of 3", measure="passed 1 of 2")
        self.graded()
        whole, self.out = self.out, self.root / "by_cluster"
        self.graded(0, "--slurm", "--sbatch=--partition=cpu --mem=1G", "--jobs", "2")
        self.assertEqual(self.table()["b"]["score"], "2.667")
        self.assertEqual((self.out / "grades.csv").read_text(),
                         (whole / "grades.csv").read_text())
        argv, = self.submitted
        self.assertEqual(argv[-3:-1], ["--partition=cpu", "--mem=1G"])
        self.assertIn("--array=0-2%2", argv)
        self.assertIn(str(self.out / "slurm/cpu/job.json"), Path(argv[-1]).read_text())

    def test_a_command_that_was_stopped_waits_for_its_job_again(self):
        for name in "abc":
            self.submit(name, fused_cpu="passed 1 of 1")

        def stopped():
            self.asked = lambda: None
            raise KeyboardInterrupt
        self.asked = stopped
        self.graded(130, "--slurm")
        self.assertIn("grades other submissions",
                      self.graded(1, "--slurm", "--seconds", "3", "--tasks", "measure"))
        text = self.graded(0, "--slurm")
        self.assertIn("job 7 of an earlier command still runs", text)
        self.assertEqual((len(self.submitted), self.judge.call_count), (1, 3))

    def test_what_no_task_graded_is_no_zero_and_is_submitted_again(self):
        for name in "ab":
            self.submit(name, fused_cpu="passed 1 of 1")
        self.asked = lambda: self.left["7"].clear()  # the job is cancelled
        self.assertIn("a was not graded: its job left no record", self.graded(1, "--slurm"))
        self.assertEqual(self.table()["a"]["score"], "")
        self.asked = lambda: None
        self.graded(0, "--slurm")
        self.assertEqual(self.table()["a"]["score"], "1")

    def test_stages_for_gpus_and_for_what_is_timed(self):
        def judge(task, source, bench, seed=None, others=(), seconds=0, made=None):
            """Of CUDA tasks the cases that the backend runs."""
            done = fake_judge(task, source, bench)
            return done if not task.is_cuda else dataclasses.replace(done, seed=seed, cases=tuple(
                dataclasses.replace(case, name=f"{case.name} {backend}")
                for case in done.cases for backend in bench.backends))

        def set_up(tasks, headers, folder, seconds, backends):
            return mock.Mock(folder=folder, seconds_a_call=seconds, backends=backends)

        @contextlib.contextmanager
        def ready(wanted, tasks):
            yield mock.Mock(wanted=wanted, judge=lambda done, content: wanted.judged("passed", ""))
        part, = manifest.load_parts()
        self.tasks = [task for task in part.tasks if task.name in ("fused_cpu", "fused_cuda")]
        self.patch(judging, judge=judge, set_up=set_up, runners_of=lambda *_: [])
        self.patch(grade, _builds_for_gpu=lambda _: True)
        self.patch(speed, ready=ready)
        board = mock.MagicMock(device="cuda", tasks=("part1.fused_cuda",))
        board.name = "x"
        self.patch(boards, find=lambda _: board)
        for name, passed in (("a", 2), ("b", 1)):
            self.submit(name, fused_cpu="passed 1 of 1")
            self.write(f"all/{name}/part1_softmax_matmul/skeleton/fused_cuda.cu",
                       f"// passed {passed} of 2\n")
        self.graded(0, "--slurm", "--sbatch-gpu=--gres=gpu:1", "--speed", "x=2:1")
        self.assertEqual([[word for word in argv if re.match("--(array|gres|exclusive)", word)]
                          for argv in self.submitted],
                         [["--array=0-1", "--gres=gpu:1"], ["--array=0-1"],
                          ["--array=0-0%1", "--gres=gpu:1", "--exclusive"]])
        record = json.loads(self.of("a", "record.json").read_text())
        cuda = record["tasks"][1]
        self.assertEqual([case["name"] for case in cuda["cases"]],
                         ["case 0 gpu", "case 1 gpu", "case 0 checked", "case 1 checked"])
        self.assertEqual(cuda["seed"], int((self.out / "slurm/seed").read_text()))
        self.assertEqual([self.table()[name]["score"] for name in "ab"], ["5", "1"])
        self.assertIn("Not run, because part1.fused_cuda",
                      self.of("b", "report.md").read_text())
        self.graded(0, "--slurm", "--sbatch-gpu=--gres=gpu:1", "--speed", "x=2:1")
        self.assertEqual(len(self.submitted), 3)
        self.graded(0, "--slurm")  # now all cases are of the first array
        record = json.loads(self.of("a", "record.json").read_text())
        self.assertEqual([case["name"] for case in record["tasks"][1]["cases"]],
                         ["case 0 emulated", "case 0 checked", "case 1 emulated", "case 1 checked"])


class Files(Course):
    """Which files of a submission are taken."""

    def setUp(self):
        super().setUp()
        part, = manifest.load_parts()
        self.tasks = [task for task in part.tasks if task.name == "fused_cpu"]

    def zipped(self, *entries, name="a.zip"):
        with zipfile.ZipFile(self.root / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, content in entries:
                archive.writestr(entry, content)
        return self.taken(self.root / name)

    def taken(self, place):
        content = submissions.read(place, self.tasks)
        return content.problem or dict(content.files)

    def test_only_the_files_of_tasks(self):
        self.assertEqual(self.zipped((PATH, "mine"), ("tests/harness/judge/report.cpp", "evil"),
                                     ("part1_softmax_matmul/solution/fused_cpu.cpp", "stolen")),
                         {PATH: b"mine"})

    def test_below_a_folder_or_alone(self):
        self.assertEqual(self.zipped((f"repo-main/{PATH}", "x")), {PATH: b"x"})
        self.assertEqual(self.zipped(("fused_cpu.cpp", "y")), {PATH: b"y"})
        self.assertEqual(self.zipped((f"a/{PATH}", "x"), (f"a/old/{PATH}", "y")), {PATH: b"x"})
        self.assertEqual(submissions.read(self.root / "a.zip", self.tasks).chosen,
                         (f"a/{PATH} was graded; also there: a/old/{PATH}",))
        self.assertIn("more than once", self.zipped((f"a/{PATH}", "x"), (f"b/{PATH}", "y")))
        self.assertEqual(self.zipped(("notes.txt", "")), {})
        self.zipped(("notes.txt", ""), ("x/fused_cpu (1).cpp", ""))  # what a report then names
        self.assertEqual(submissions.read(self.root / "a.zip", self.tasks).others,
                         ("x/fused_cpu (1).cpp",))

    def test_hostile_archives(self):
        for index in ("{", "[]", '{"version": 3}', '{"version": {"number": "<b>", "commit": ""}}',
                      "[" * 100_000):
            self.assertEqual(self.zipped((PATH, "x"), ("bundle.json", index)), {PATH: b"x"})
            self.assertEqual(submissions.read(self.root / "a.zip", self.tasks).version, "")
        link = zipfile.ZipInfo(PATH)
        link.external_attr = 0o120777 << 16
        self.assertEqual(self.zipped((link, "/etc/passwd"), ("x", "")), {})
        self.assertEqual(self.zipped((f"../../{PATH}", "up")), {PATH: b"up"})  # nothing is unpacked
        self.assertIn("larger than", self.zipped((PATH, b"\0" * (1 << 26))))  # 64 MiB, zipped small
        with (self.root / "b.zip").open("wb") as large:
            large.truncate(submissions.LARGEST_ARCHIVE + 1)
        self.assertIn("at most", self.taken(self.root / "b.zip"))

    def test_a_folder_with_archives_in_it(self):
        path = self.root / "moodle"
        self.zipped((PATH, "x"), name="a.zip")
        (path / "old").mkdir(parents=True)
        for name in ("old/first.zip", "second.zip"):
            (path / name).write_bytes((self.root / "a.zip").read_bytes())
        self.assertEqual(self.taken(path), "it must hold one zip or the files of tasks; it holds "
                                           "second.zip and old/first.zip; a folder of submissions "
                                           "is named alone")
        (path / "second.zip").unlink()
        self.assertEqual(self.taken(path), {PATH: b"x"})
        (path / "old/first.zip").rename(path / "x.tar.gz")
        self.assertIn("it holds x.tar.gz", self.taken(path))
        (path / "fused_cpu.cpp").write_text("mine")
        self.assertEqual(self.taken(path), {PATH: b"mine"})

    def test_an_answer_in_a_folder_of_another_purpose(self):
        for place in ("build/fused_cpu.cpp", "hw1/solution/fused_cpu.cpp", f"solution/{PATH}"):
            self.assertEqual(self.zipped((place, "mine"), ("notes.txt", "")), {PATH: b"mine"})
            self.assertEqual(self.zipped((place, "old"), ("x/fused_cpu.cpp", "mine")),
                             {PATH: b"mine"})

    def test_many_files_beside_it(self):
        entries = [(f"data/{n}", "") for n in range(20_001)]
        self.assertEqual(self.zipped(*entries, (PATH, "mine")), {PATH: b"mine"})

    def test_names(self):
        for name in ("x y!.zip", "b.zip"):
            self.zipped((PATH, "x"), name=f"{name}")
        found, _ = submissions.find([self.root / "x y!.zip", self.root / "b.zip"], self.tasks)
        self.assertEqual([one.id for one in found], ["b", "x y!"])
        self.write("b/fused_cpu.cpp", "")
        both = [self.root / "b", self.root / "b.zip"]
        self.assertEqual([one.id for one in submissions.find(both, self.tasks)[0]], ["b", "b.zip"])
        text = self.refused(submissions.find, [self.root / "b", self.root / "b/../b"], self.tasks)
        self.assertIn("would both be called b", text)
        self.assertIn("does not exist", self.refused(submissions.find, [self.root / "no"], []))
        inside = self.write(f"home/{PATH}", "mine").parent
        found, _ = submissions.find([inside / "../.."], self.tasks)
        self.assertEqual([one.id for one in found], ["home"])


class Records(unittest.TestCase):
    def test_a_mistake_counts_once_for_each_student(self):
        def record(name, *cases, status="graded"):
            return reports.Record(name, "1", "k", "graded", "1", "j", (judging.Judged(
                "part1.x", 1, status, "x.cpp:3: error", cases=tuple(
                    Case(f"case {n}", "failed", f"{mistake or 'wrong'}\nmore", points=1,
                         diagnosis=mistake) for n, mistake in enumerate(cases))),))
        found = reports.mistakes([
            record("ann", "no alpha", *[""] * 12), record("bob", *["no alpha"] * 3, "no mask"),
            record("cat", *[""] * 12), record("dan", status="does not compile"), record("eve")])
        self.assertEqual(found, [
            (2, "part1.x: no alpha", "no alpha"), (1, "part1.x: no mask", "no mask"),
            (1, "part1.x: case 0", "wrong"), (1, "part1.x: does not compile", "x.cpp:3: error")])

    def test_the_earlier_of_two_hand_ins_is_no_student_of_the_class(self):
        case = Case("one", "failed", "wrong", points=1, diagnosis="no alpha")
        page = reports.page([reports.Record(name, "1", "k", "graded", "1", "j", (
            judging.Judged("part1.x", 1, "graded", cases=(case,)),))
            for name in ("ann_101_5001_x", "ann_LATE_101_5002_x", "bob_102_5003_x")], "Grades")
        self.assertIn("2 submissions, 0 not graded, and 1 that a later one of the same person", page)
        self.assertRegex(page, r'(?s)<td class="n">2</td><td class="text">part1.*no alpha')
        self.assertIn("replaced by ann_LATE_101_5002_x", page)

    def test_one_mistake_in_many_cases_is_shown_twice_and_counted(self):
        cases = tuple(Case(f"case {n}", "failed", f"{name or 'wrong'} {n}", points=0.1,
                           requirement="rows", diagnosis=name)
                      for name, many in (("", 1), ("no alpha", 5)) for n in range(many))
        report = reports.markdown(reports.Record("a", "1", "k", "graded", "1", "j", (
            judging.Judged("part1.x", 1, "graded", "", 3, cases),)))
        self.assertRegex(report, "(?s)### no alpha.*no alpha 1\n.*3 more cases.*: case 2; case 3; "
                                 "case 4\n.*### rows.*wrong 0")
        self.assertEqual(report.count("--seed 3"), 3)

    def test_a_hidden_case_has_no_command(self):
        task = judging.Judged("part1.x", 1, "graded", "", 3)
        for name, has_one in (("one", True), ("hidden: one", False)):
            case = Case(name, "failed", "wrong", points=0.5)
            record = reports.Record("a", "1", "k", "graded", "1", "j", (
                dataclasses.replace(task, cases=(case,)),))
            for text in (reports.markdown(record), reports.gradescope(record)):
                self.assertEqual("--seed 3" in text, has_one)

    def test_points_add_up_and_are_those_of_requirements(self):
        def cases(requirement, points, number, passed, counts):
            return [Case(f"{requirement} {n}", "passed" if n < passed else "failed", "wrong", "",
                         requirement, points / number, counts) for n in range(number)]
        task = judging.Judged("part1.x", 5, "graded", cases=(
            *cases("steps", 0.8, 7, 5, 1), *cases("mask", 1.2, 13, 12, 0.5 * 13 / 12),
            *cases("rows", 1.8, 30, 29, 0), *cases("memory", 1.2, 3, 3, 1)))
        record = reports.Record("a", "1", "k", "graded", "1", "j", (task,) * 3)
        results = json.loads(reports.gradescope(record))
        sums = [sum(Decimal(str(test[key])) for test in results["tests"] if key in test)
                for key in ("score", "max_score")]
        self.assertEqual(sums, [Decimal("7.113"), 15])
        self.assertEqual((results["score"], record.earned), (7.113, 7.113))
        row, = csv.DictReader(io.StringIO(reports.grades([record])))
        self.assertEqual((row["part1.x"], row["score"]), ("2.371", "7.113"))
        report = reports.markdown(record)
        for line in ("| steps | 0.571 | 0.8 | 5 of 7 cases |",
                     "| mask | 0.6 | 1.2 | 12 of 13 cases |",
                     "| rows | 0 | 1.8 | 29 of 30 cases |", "**rows 29** (rows)"):
            self.assertIn(f"{line}\n", report)
        self.assertNotRegex(report, r"\d points\)")
        self.assertIn("may run some cases more", report)


class Speed(Test):
    """Points for speed: what is measured is given by the test."""

    def judge(self, found, cases="passed", compiles=True):
        board = boards.find("part1-cpu")
        done = judging.Judged(board.tasks[0], 1, "graded", cases=(
            Case("one", cases, points=1),))

        def result(*_):
            if isinstance(found, Exception):
                raise found
            return mock.Mock(speedup=found, uncertainty=0.01)

        def libraries(*_):
            if not compiles:
                raise LabError("fused_cpu.cpp does not compile")

        self.patch(measuring, libraries=libraries, measure=mock.Mock())
        self.patch(speed, result_of=result)
        self.patch(machine, refuse_if_busy=lambda _: None)
        where = measuring.Site(board, (), None, self.folder())
        return speed.Speed(speed.threshold("part1-cpu=1.5:2"), where).judge(
            [done], submissions.Content({}))

    def test_what_counts_is_the_speed_over_the_reference(self):
        for found, cases, earned, said in (
                (1.6, "passed", 2, "1.60 times as fast, +- 1.0 %"),
                (1.4, "passed", 0, "1.40 times as fast"), (9, "failed", 0, "part1.fused_cpu does"),
                (NoResult("no time is that short"), "passed", 0, "no time is that short")):
            judged = self.judge(found, cases)
            case, = judged.cases
            self.assertEqual((judged.task, judged.points, judged.earned, case.name),
                             ("speed.part1-cpu", 2, earned,
                              "at least 1.5 times as fast as the reference"))
            self.assertIn(said, case.message)
            record = reports.Record("a", "1", "", "graded", "1", "j", (judged,))
            self.assertEqual(reports.why(record),
                             "" if earned else f"{case.status}: speed.part1-cpu")
            self.assertEqual(reports.again(judged, case),
                             "./lab submit part1-cpu --mode benchmark")
        self.assertIn("does not compile", self.judge(9, compiles=False).cases[0].message)
        with self.assertRaisesRegex(InfraError, "the machine is busy"):
            self.judge(Busy("the machine is busy"))

    def test_what_speed_is_asked_for(self):
        for text in ("part1-cpu", "part1-cpu=2", "part1-cpu=0:1", "part1-cpu=2:0", "part1-cpu=2:x"):
            self.assertIn("BOARD=SPEEDUP:POINTS", self.refused(speed.threshold, text))
        self.assertIn('no board "x"', self.refused(speed.threshold, "x=2:1"))
        code, text = self.printed(main.main, ["grade", "x", "--speed", "part1-cpu=2:1",
                                              "--jobs", "2"])
        self.assertEqual(code, 1)
        self.assertIn("one submission at a time", text)
