"""lab.zoo: members cannot rot, and what the harness says of them is compared with what it must."""

import dataclasses
import datetime
from collections import Counter

from course import Built, Test
from lab import manifest, outcomes, zoo
from lab.outcomes import PASSED, WRONG, CaseResult, TaskResult

TASKS = [task for part in manifest.load_parts() for task in part.tasks]
FORWARD = next(task for task in TASKS if task.name == "flash_forward")
# What --explain shows of a member's case.
EXPLAINED = {
    "flash_forward/no_rescale_of_O": """\
batch 1, heads 1, queries 1, keys 3, head_dim 2, scale 0.7071, blocks of 2 queries and 2 keys
The steps for query 0:
  Q = [0 2]
   key j   K(j)   V(j)  S = scale Q K  P = exp(S - m)
       0   2 -4    0 1         -5.657         0.01437
       1  -2 -4  -1 -6         -5.657         0.01437
       2  -1 -1   -2 1         -1.414               1
Block by block (O is not divided yet):
   keys    alpha       m      l              O
   0..1        0  -5.657      2          -1 -5
   2..2  0.01437  -1.414  1.029  -2.014 0.9282
The result O = P V / l:
                    expected   found
              O(0)    -1.958  -2.916  <-- the first difference
              O(1)    0.9022  -3.888
   lse = m + log l    -1.386  -1.386
""",
    "flash_backward/dK_overwritten": """\
batch 1, heads 1, queries 2, keys 2, head_dim 2, scale 0.7071
The steps for dK, key 0:
  K = [2 -4], V = [0 1]
   query i  Q(i)  dO(i)       S  lse(i)        P  dP  delta(i)       dS
         0   0 2   0 -1  -5.657  -4.964      0.5  -1       2.5    -1.75
         1  -1 1  -1 -1  -4.243  -1.357  0.05581  -1     6.554  -0.4215
The result dK = scale * sum of dS Q:
          expected    found
   dK(0)    0.2981   0.2981
   dK(1)    -2.773  -0.2981  <-- the first difference
""",
    "fused_cpu/nan_hidden_by_fmax": """\
batch 1, d1 3, d2 1, d3 1, blocks of 2 rows and 2 keys
The steps for row 2:
   key j  X(j)    V(j)  P = exp(X - m)
       0   nan  -1.177             nan
  m = -inf, l = sum of P = nan
The result O = P V / l:
         expected  found
   O(0)       nan      0  <-- the first difference
""",
}


class Members(Test):
    def test_an_old_text_occurs_exactly_once(self):
        self.assertEqual(zoo.edited("a b c", ["a", "x", "c", ""], "m"), "x b ")
        self.assertEqual(zoo.edited("a b c", ["b", "(…, …)"], "m"), "a (b, b) c")
        for text, count in (("b", 0), ("a a", 2)):
            self.assertIn(f"m: this occurs {count} times in the solution; it must occur once: a",
                          self.refused(zoo.edited, text, ["a", "x"], "m"))
        self.assertIn("edit has 1 texts", self.refused(zoo.edited, "a", ["a"], "m"))

    def test_three_programs_of_a_task_for_one_mistake_are_enough(self):
        number = Counter((member.task.id, member.named) for member in zoo.load(TASKS)
                         if member.named)
        self.assertEqual([mistake for mistake in number if number[mistake] > 3], [])

    def test_a_region_is_all_that_a_student_writes(self):
        text = "1\n// BEGIN SOLUTION the sum (3 lines)\n2\n// END SOLUTION\n3"
        self.assertEqual(zoo.edited(text, ["region: the sum", "x"], "m"), "1\nx\n3")

    def test_a_sample_is_another_each_day(self):
        members = [zoo.Member("wrong", task, str(n), (), "a") for task in TASKS for n in range(9)]
        days = [zoo.sample(members, 5, datetime.date(2026, 1, day)) for day in (1, 1, 2)]
        self.assertEqual(days[0], days[1])
        self.assertNotEqual(days[0], days[2])
        self.assertEqual(len(days[0]), 5)


class WithSmallNumbers(Built):
    def test_what_is_shown(self):
        wrong = {member.id: member for member in zoo.load(TASKS) if member.kind == "wrong"}
        for name, text in EXPLAINED.items():
            with self.subTest(name):
                backend = zoo.HERE.to_build(wrong[name].task)[0]
                case, = self.run_member(wrong[name], backend, [wrong[name].case], explain=True)
                self.assertEqual(case.explanation, text)
        large = wrong["flash_forward_cuda/no_rescale_of_O"]  # a block has 64 keys
        case, = self.run_member(large, zoo.HERE.to_build(large.task)[0], [large.case], explain=True)
        self.assertIn("\nNo problem of at most 4 queries and 6 keys was wrong", case.explanation)
        self.assertLessEqual(max(map(len, case.explanation.splitlines())), 100)

    def test_what_cannot_be_followed(self):
        few = EXPLAINED["flash_forward/no_rescale_of_O"]
        many = few.replace("keys 3", "keys 7")
        for text, wanted in (
            ("", []), (few, []),
            (many, ["--explain shows 1 queries and 7 keys, and does not say why"]),
            (f"{many}No problem of at most 4 queries and 6 keys was wrong", []),
            (few.replace("-2.916", "-1.958"), ["--explain shows no difference"]),
            (few.replace("<--", ""), ["--explain shows no difference"]),
        ):
            self.assertEqual(list(zoo.unclear(text)), wanted)


class Prices(Test):
    def test_each_requirement_is_broken_alone_by_a_member(self):
        broken = {(member.task.id, member.breaks) for member in zoo.load(TASKS)}
        for task in TASKS:
            for name in task.requirements:
                self.assertIn((task.id, name), broken)

    def test_what_another_requirement_loses_is_told(self):
        cases = [CaseResult(name, WRONG if name in "ab" else PASSED, requirement=name, points=1,
                            counts=1) for name in "abc"]
        task = dataclasses.replace(FORWARD, points=3, requirements={"a": 40, "b": 30, "c": 30})

        def told(*cases: CaseResult) -> list[str]:
            member = zoo.Member("wrong", task, "m", (), "a", breaks="a")
            return list(zoo.problems(zoo.Seen(member, TaskResult(task, "solution", WRONG, [*cases]))))

        self.assertEqual(told(*cases), ["breaks a, b; it must break a alone"])
        self.assertEqual(told(cases[0], cases[2]), ["costs 1.0 points; a is worth 1.2"])
        cheap = dataclasses.replace(cases[0], points=0.6)
        self.assertEqual(told(cheap, cases[2]), [])


class Problems(Test):
    MEMBER = zoo.Member("wrong", FORWARD, "m", (), "b", named="scale missing")

    def problems(self, *cases: CaseResult, **changes: object) -> list[str]:
        member = dataclasses.replace(self.MEMBER, **changes)
        seen = zoo.Seen(member, TaskResult(FORWARD, "solution", WRONG, list(cases)))
        return list(zoo.problems(seen))

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
            ((self.case("a", WRONG, "scale missing"), self.case("b")), {},
             ['"b" does not catch it']),
            ((self.case("a", WRONG, "scale missing"),), {}, ['the task has no case "b"']),
            ((a, other), {}, ["misnamed: delta missing", 'first shown is "b", which says '
                              "delta missing, not scale missing"]),
            ((a, self.case("b", WRONG)), {}, ['first shown is "b", which says no name, not '
                                              "scale missing"]),
            ((a, b), {"passes": ("a",)}, []),
            ((a_wrong, b), {"passes": ("a",)}, ['"a" does not pass']),
            ((a_wrong, b), {"alone": True}, ["caught by other cases than it says: a"]),
            ((a_wrong, b), {"alone": ("a",)}, []),
            ((a, b), {"alone": ("a",)}, ["caught by other cases than it says: a"]),
            ((a, b), {"kind": "right"}, ['"b" is wrong: x']),
            ((a,), {"kind": "right"}, []),
        ):
            self.assertEqual(self.problems(*cases, **changes), wanted)

    def test_what_changes_an_output(self):
        count = "dQ: 3 of 9 elements are wrong: only query 0\nfirst at ..."
        for message, changes, wanted in (
            (count, {"named": ""}, True),
            ("lse is wrong. 1 of 1 element is wrong", {"named": ""}, True),
            ("kernel f: a data race\n3 of 9 elements are wrong", {"named": ""}, False),
            ("It changes `q`, or writes around it.", {"named": ""}, False),
            ("The two batches lie far apart.\n" + count, {}, True),  # it has a name
            (count, {"breaks": "mask"}, True),
            (count, {"named": "", "breaks": "mask"}, False),
            (count, {"passes": ("a",)}, False),
            (count, {"kind": "right"}, False),
        ):
            case = dataclasses.replace(self.case("b", WRONG), message=message)
            member = dataclasses.replace(self.MEMBER, **changes)
            seen = zoo.Seen(member, TaskResult(FORWARD, "solution", WRONG, [case]))
            self.assertIs(seen.changes_output, wanted, (message, changes))

    def test_what_a_mistake_must_cost(self):
        cases = [CaseResult(name, status, "x", points=points, diagnosis=self.MEMBER.named * (
            status == WRONG)) for name, status, points in (("a", PASSED, 3.4), ("b", WRONG, 0.6))]
        self.assertEqual(self.problems(*cases), [])
        self.assertEqual(self.problems(*cases, least=0.25),
                         ["costs 15% of the points; it must cost 25%"])


class Order(Test):
    def test_ordinary_numbers_come_before_hard_ones_and_a_rare_name_behind(self):
        cases = [CaseResult("NaN in q", WRONG), CaseResult("causal: 3", WRONG)]
        self.assertEqual(outcomes.in_order(cases)[0].name, "causal: 3")
        cases = [CaseResult("step 4: the scores", WRONG), CaseResult("head_dim 40", WRONG)]
        self.assertEqual(outcomes.in_order(cases)[0].name, "step 4: the scores")
        many = [CaseResult(str(n), WRONG) for n in range(outcomes.RARE)]
        rare = CaseResult("rare", WRONG, diagnosis="x")
        self.assertEqual(outcomes.in_order([*many, rare])[0].name, "0")
        kept = CaseResult("kept", WRONG, "The call before this one, with other numbers, was right")
        self.assertEqual(outcomes.in_order([*many, kept])[0].name, "kept")
        self.assertEqual(outcomes.in_order([*many[1:], rare])[0].name, "rare")
