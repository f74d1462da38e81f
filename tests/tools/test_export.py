"""`./lab export`: what Gradescope, Canvas and Moodle take."""

import csv
import io
import json
import os
import subprocess
import zipfile
from pathlib import Path
from unittest import mock

from course import Course
from lab import released, text
from lab.instructor import export, release

GRADESCOPE = Path(__file__).parents[2] / "grading/gradescope"
CANVAS = ("\ufeffStudent,ID,SIS Login ID,Section,Homework 1 (77),Homework 10 (78)\r\n"
          "    Points Possible,,,,28,10\r\n"
          '"Doe, Jane",101,jane,A,,9\r\n"Roe, Max",102,max,A,3,\r\n"Poe, Ann",10,ann,A,,\r\n')
MOODLE = ("Identifier,Full name,Grade,Maximum Grade,Feedback comments\r\n"
          "Participant 101,Jane Doe,,28,\r\nParticipant 102,Max Roe,,28,\r\n")


class Export(Course):
    def filled(self, worksheet, ids, *more, code=0):
        self.write("grades/grades.csv", text.table([
            ("id", "score"), *(ids.items() if isinstance(ids, dict) else ids)]))
        self.write("table.csv", worksheet)
        out = self.root / "out.csv"
        ended, said = self.lab(f"export {out} --into {self.root / 'table.csv'} "
                               f"--grades {self.root / 'grades'}", *more)
        self.assertEqual(ended, code, said)
        self.said = said
        return list(csv.reader(io.StringIO(out.read_bytes().decode()))) if out.exists() else said

    def test_grades_for_canvas(self):
        ids = {"doejane_101_5001_submission": "27.5", "roemax_LATE_102_5002_submission": ""}
        rows = self.filled(CANVAS, ids, "--column", "Homework 1", code=1)
        self.assertIn("roemax_LATE_102_5002_submission: it is not graded yet", self.said)
        self.assertIn("without a submission: Poe, Ann\n", self.said)
        self.assertNotIn("replaced", self.said)
        self.filled(CANVAS, {"roemax_102_5002_x": "3.0"}, "--column", "Homework 1")
        self.assertNotIn("replaced", self.said)
        self.filled(CANVAS, {"roemax_102_5002_x": "2"}, "--column", "Homework 1")
        self.assertIn("replaced: Roe, Max had 3, and has 2 now", self.said)
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

    def test_only_what_the_platform_wrote_says_whose_points_they_are(self):
        canvas, moodle = "doejane_101_5001_", "Jane Doe_101_assignsubmission_file_"
        for table, column, ids, points, left in (
                # A student's own file name has another's number in it, in the platform's form.
                (CANVAS, "Homework 1", [(f"{canvas}roemax_102_9999_x", "1")], {"101": "1"}, 0),
                (MOODLE, "", [(f"{moodle}Max Roe_102_assignsubmission_file_x", "1")],
                 {"Participant 101": "1"}, 0),
                # A person is called so that the part before the file is another's, too.
                (CANVAS.replace("Doe, Jane", "roemax_102"), "Homework 1",
                 [("roemax_102_101_5001_x", "1"), ("roemax_102_77_x", "2")],
                 {"102": "2"}, 1),
                (MOODLE, "", [("Max Roe_102_assignsubmission_file_101_assignsubmission_file_", "1"),
                              ("Max Roe_102_assignsubmission_file_", "2")], {}, 2),
                # Nobody's, by a number or a name that is not in the table, or without one.
                (CANVAS, "Homework 1", [("doejane_102_5001_x", "1"), ("roemax_101_5_x", "2"),
                                        ("x", "13"), ("101", "4"), ("=1", "5")], {}, 5),
                (MOODLE, "", [("Max Roe_101_assignsubmission_file_", "1"), ("102", "2")], {}, 2),
                (MOODLE, "", [("Participant_101_assignsubmission_file_", "1")],
                 {"Participant 101": "1"}, 0)):
            with self.subTest(ids):
                rows = self.filled(table, ids, "--column", column, code=int(left > 0))
                got = {row[who]: row[where] for row in rows[1:]
                       for who, where in [(0, 2) if table == MOODLE else (1, 4)]
                       if row[where] in {score for _, score in ids}}
                self.assertEqual((got, self.said.count("not exported: ")), (points, left))

    def test_of_two_that_a_person_handed_in_the_later_one_counts(self):
        early, late = "doejane_101_5001_submission", "doejane_LATE_101_5002_submission-1"
        self.assertEqual(list(export.twice([late, "doejane_102_9_x", early, "x"])), [(early, late)])
        for order in ([(early, "1"), (late, "2")], [(late, "2"), (early, "1")]):
            rows = self.filled(CANVAS, order, "--column", "Homework 1")
            self.assertEqual(rows[2][4], "2")
            self.assertIn("late, with all points: Doe, Jane; deduct there", self.said)
            self.assertIn(f"not exported: {early}: {late} was handed in after it", self.said)
        self.filled(CANVAS, [("doejane_101_5001_my_LATE_work", "1")], "--column", "Homework 1")
        self.assertNotIn("late, with all points", self.said)
        two = [("Jane Doe_101_assignsubmission_file_a", "1"),
               ("Jane Doe_101_assignsubmission_file_b", "2")]
        rows = self.filled(MOODLE, two, code=1)
        self.assertEqual((rows[1][2], self.said.count("handed in together")), ("", 2))

    def test_an_autograder_for_gradescope(self):
        for name in ("setup.sh", "run_autograder"):
            self.write(f"grading/gradescope/{name}", (GRADESCOPE / name).read_text())
        self.write("lab", "#!/bin/sh\n").chmod(0o755)
        self.write("outputs/reference/x/plots/big.png", "")
        tracked = ["lab", "CMakeLists.txt", "outputs/reference/x/plots/big.png"]
        out = self.root / "hw1.zip"
        with mock.patch.object(release, "tracked", lambda: tracked):
            self.lab(f"export {out} --tasks fused_cpu")
        with zipfile.ZipFile(out) as archive:
            files = {entry.filename: entry for entry in archive.infolist()}
            self.assertEqual(sorted(files), ["course/.course/release.json", "course/CMakeLists.txt",
                                             "course/lab", "run_autograder", "setup.sh"])
            for name in ("setup.sh", "run_autograder", "course/lab"):
                self.assertEqual(files[name].external_attr >> 16 & 0o777, 0o755, name)
            scripts = archive.read("setup.sh").decode() + archive.read("run_autograder").decode()
            record = json.loads(archive.read("course/.course/release.json"))
        self.assertNotIn("@", scripts)
        self.assertIn("flash_graders\n", scripts)
        self.assertIn("--tasks part1.fused_cpu\n", scripts)
        self.assertEqual(record["version"]["number"], released.version_of(self.root).number)
        self.assertEqual(subprocess.run(["bash", "-n", GRADESCOPE / "setup.sh"]).returncode, 0)

    def test_the_autograder_hands_over_what_grade_wrote_of_its_one_submission(self):
        # A ./lab that writes what the real one does: test_grade.py holds the folder's name.
        self.write("source/course/lab", '#!/bin/sh\nmkdir -p "$4/001"; ls "$2" > '
                                        '"$4/001/results.json"\n').chmod(0o755)
        self.write("submission/fused_cpu.cpp", "")
        subprocess.run(["bash", GRADESCOPE / "run_autograder"], check=True,
                       env=os.environ | {"AUTOGRADER": str(self.root)})
        self.assertEqual((self.root / "results/results.json").read_text(), "submission\n")
