"""lab.zoo: members cannot rot, and what the harness says of them is compared with what it must say."""

import dataclasses
import datetime
import unittest

from course import Test
from lab import grading, manifest, zoo
from lab.grading import PASSED, WRONG, CaseResult, TaskResult

TASKS = [task for part in manifest.load_parts() for task in part.tasks]
FORWARD = next(task for task in TASKS if task.name == "flash_forward")


class Members(Test):
    def test_an_old_text_occurs_exactly_once(self):
        self.assertEqual(zoo.edited("a b c", ["a", "x", "c", ""], "m"), "x b ")
        for text, count in (("b", 0), ("a a", 2)):
            self.assertIn(f"m: this occurs {count} times in the solution; it must occur once: a",
                          self.refused(zoo.edited, text, ["a", "x"], "m"))
        self.assertIn("edit has 1 texts", self.refused(zoo.edited, "a", ["a"], "m"))

    def test_a_region_is_all_that_a_student_writes(self):
        text = "1\n// BEGIN SOLUTION the sum (3 lines)\n2\n// END SOLUTION\n3"
        self.assertEqual(zoo.edited(text, ["region: the sum", "x"], "m"), "1\nx\n3")

    @unittest.skipUnless(FORWARD.path("solution").is_file(), "there are no solutions here")
    def test_all_members_fit_their_solutions(self):
        members = zoo.load(TASKS)
        self.assertGreater(sum(member.kind == "wrong" for member in members), 150)
        self.assertEqual(len({(member.kind, member.id) for member in members}), len(members))

    def test_a_sample_is_another_each_day_and_not_too_long(self):
        members = [zoo.Member("wrong", task, str(n), (), "a") for task in TASKS for n in range(9)]
        days = [zoo.sample(members, 50, datetime.date(2026, 1, day)) for day in (1, 1, 2)]
        self.assertEqual(days[0], days[1])
        self.assertNotEqual(days[0], days[2])
        self.assertLessEqual(sum(zoo.COST[one.task.is_cuda] for one in days[0]), 50)


class Problems(Test):
    MEMBER = zoo.Member("wrong", FORWARD, "m", (), "b", named="scale missing")

    def problems(self, *cases: CaseResult, **changes: object) -> list[str]:
        member = dataclasses.replace(self.MEMBER, **changes)
        seen = zoo.Seen(member, TaskResult(FORWARD, "solution", WRONG, list(cases)))
        return list(zoo.problems(member, seen))

    @staticmethod
    def case(name: str, status: str = PASSED, diagnosis: str = "") -> CaseResult:
        return CaseResult(name, status, "x", requirement="mask", points=2, diagnosis=diagnosis)

    def test_what_the_harness_must_say(self):
        a, b = self.case("a"), self.case("b", WRONG, "scale missing")
        a_wrong, other = self.case("a", WRONG), self.case("b", WRONG, "delta missing")
        for cases, changes, wanted in (
            ((a, b), {}, []),
            ((a_wrong, b), {}, []),  # what has a name is shown first
            ((a, self.case("b")), {}, ["passes"]),
            ((self.case("a", WRONG, "scale missing"),), {}, ['"b" does not catch it']),
            ((a, other), {}, ["misnamed: delta missing", 'first shown is "b", which says '
                              "delta missing, not scale missing"]),
            ((a, self.case("b", WRONG)), {}, ['first shown is "b", which says no name, not '
                                              "scale missing"]),
            ((a, b), {"passes": ("a",)}, []),
            ((a_wrong, b), {"passes": ("a",)}, ['"a" does not pass']),
            ((a_wrong, b), {"alone": True}, ["caught by 1 more cases, as by 'a'"]),
            ((a, b), {"kind": "right"}, ['"b" is wrong: x']),
            ((a,), {"kind": "right"}, []),
        ):
            self.assertEqual(self.problems(*cases, **changes), wanted)

    def test_what_a_mistake_must_cost(self):
        cases = [CaseResult(name, status, "x", points=points, diagnosis=self.MEMBER.named * (
            status == WRONG)) for name, status, points in (("a", PASSED, 3.4), ("b", WRONG, 0.6))]
        self.assertEqual(self.problems(*cases), [])
        self.assertEqual(self.problems(*cases, least=0.25),
                         ["costs 15% of the points; it must cost 25%"])


class Order(Test):
    def test_races_then_names_then_the_rest(self):
        cases = [CaseResult("a", WRONG, "2 of 3 elements"), CaseResult("b", WRONG, "x", diagnosis="y"),
                 CaseResult("c", WRONG, "kernel f: a data race"), CaseResult("d", WRONG)]
        self.assertEqual([case.name for case in grading.in_order(cases)], ["c", "b", "a", "d"])


if __name__ == "__main__":
    unittest.main()
