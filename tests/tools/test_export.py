"""`./lab export`: what Gradescope, Canvas and Moodle take."""

import csv
import io
import json
import subprocess
import zipfile
from pathlib import Path
from unittest import mock

from course import Course
from lab import handout
from lab.instructor import release

GRADESCOPE = Path(__file__).parents[2] / "grading/gradescope"
CANVAS = ("\ufeffStudent,ID,SIS Login ID,Section,Homework 1 (77),Homework 10 (78)\r\n"
          "    Points Possible,,,,28,10\r\n"
          '"Doe, Jane",101,jane,A,,9\r\n"Roe, Max",102,max,A,3,\r\n"Poe, Ann",10,ann,A,,\r\n')
MOODLE = ("Identifier,Full name,Grade,Maximum Grade,Feedback comments\r\n"
          "Participant 101,Jane Doe,,28,\r\nParticipant 102,Max Roe,,28,\r\n")


class Export(Course):
    def setUp(self):
        super().setUp()
        self.write("CMakeLists.txt", "project(flash VERSION 1.2.3 LANGUAGES CXX)\n")

    def filled(self, worksheet, ids, *more, code=0):
        self.write("grades/grades.csv", "id,status,score,max_score\n" + "".join(
            f"{name},graded,{score},28\n" for name, score in ids.items()))
        self.write("table.csv", worksheet)
        out = self.root / "out.csv"
        ended, text = self.lab(f"export {out} --into {self.root / 'table.csv'} "
                               f"--grades {self.root / 'grades'}", *more)
        self.assertEqual(ended, code, text)
        return list(csv.reader(io.StringIO(out.read_bytes().decode()))) if out.exists() else text

    def test_grades_for_canvas(self):
        ids = {"doejane_101_5001_submission": "27.5", "roemax_LATE_102_5002_submission": ""}
        rows = self.filled(CANVAS, ids, "--column", "Homework 1")
        self.assertEqual([row[4:] for row in rows[1:]],
                         [["28", "10"], ["27.5", "9"], ["3", ""], ["", ""]])
        self.assertEqual(rows[2][0], "Doe, Jane")

    def test_grades_for_moodle(self):
        rows = self.filled(MOODLE, {"Jane_Doe_101_assignsubmission_file": "12", "strange": "1"},
                           code=1)
        self.assertEqual([row[2] for row in rows[1:]], ["12", ""])

    def test_a_table_that_does_not_fit(self):
        for table, column, said in (("a,b\n", "", "neither Moodle's"),
                                    (CANVAS, "Homework 2", 'no column "Homework 2"')):
            self.assertIn(said, self.filled(table, {}, "--column", column, code=1))
        two = {"doejane_101_1_submission": "1", "doejane_101_2_submission": "2"}
        self.assertIn("would both be", self.filled(CANVAS, two, "--column", "Homework 1", code=1))

    def test_an_autograder_for_gradescope(self):
        for name in ("setup.sh", "run_autograder"):
            self.write(f"grading/gradescope/{name}", (GRADESCOPE / name).read_text())
        self.write("lab", "#!/bin/sh\n").chmod(0o755)
        self.write("outputs/reference/big.csv", "")
        tracked = ["lab", "CMakeLists.txt", "outputs/reference/big.csv"]
        out = self.root / "hw1.zip"
        with mock.patch.object(release, "tracked", lambda: tracked):
            self.lab(f"export {out} --tasks fused_cpu")
        with zipfile.ZipFile(out) as archive:
            files = {entry.filename: entry for entry in archive.infolist()}
            self.assertEqual(sorted(files), ["course/.course/release.json", "course/CMakeLists.txt",
                                             "course/lab", "run_autograder", "setup.sh"])
            for name in ("setup.sh", "run_autograder", "course/lab"):
                self.assertEqual(files[name].external_attr >> 16 & 0o777, 0o755, name)
            text = archive.read("setup.sh").decode() + archive.read("run_autograder").decode()
            record = json.loads(archive.read("course/.course/release.json"))
        self.assertNotIn("@", text)
        self.assertIn("flash_graders\n", text)
        self.assertIn("--tasks part1.fused_cpu\n", text)
        self.assertEqual(record["version"]["number"], handout.version_of(self.root).number)
        for name in ("setup.sh", "run_autograder"):
            self.assertEqual(subprocess.run(["bash", "-n", GRADESCOPE / name]).returncode, 0)
