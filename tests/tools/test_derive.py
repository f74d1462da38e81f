"""lab.derive: the markers, byte for byte, and the words for a marker that is wrong."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from course import Course  # noqa: E402

from lab import derive, manifest  # noqa: E402
from lab.errors import LabError  # noqa: E402


class Markers(unittest.TestCase):
    def test_a_region(self) -> None:
        solution = ("// head\n"
                    "void f() {\n"
                    "  check();\n"
                    "    // BEGIN SOLUTION the loop over the keys, about 6 lines\n"
                    "    //   m: running max\n"
                    "    //   l: running sum\n"
                    "    // STUB (void)x;\n"
                    '    // STUB throw NotYetImplemented("part1.f");\n'
                    "    // a comment of the solution\n"
                    "    work();\n"
                    "    // END SOLUTION\n"
                    "}\n")
        skeleton = ("// head\n"
                    "void f() {\n"
                    "  check();\n"
                    "    // TODO the loop over the keys, about 6 lines\n"
                    "    //   m: running max\n"
                    "    //   l: running sum\n"
                    "    (void)x;\n"
                    '    throw NotYetImplemented("part1.f");\n'
                    "}\n")
        self.assertEqual(derive.derive(solution, "f.cpp"), skeleton)

    def test_several_regions_and_one_without_stub(self) -> None:
        solution = "a\n// BEGIN SOLUTION one\nx\n// END SOLUTION\nb\n\t// BEGIN SOLUTION two\n\t// STUB s;\n// END SOLUTION\nc"
        self.assertEqual(derive.derive(solution, "f"), "a\n// TODO one\nb\n\t// TODO two\n\ts;\nc")

    def test_every_other_byte_stays(self) -> None:
        body = b"\xff caf\xc3\xa9 \x0c\x0b\xe2\x80\xa8 trailing  \r\n\r\nno newline at the end"
        solution = b"// BEGIN SOLUTION p\r\nx\r\n// END SOLUTION\r\n" + body
        text = derive.derive(solution.decode("utf-8", "surrogateescape"), "f")
        self.assertEqual(text.encode("utf-8", "surrogateescape"), b"// TODO p\r\n" + body)

    def test_a_comment_of_the_solution_is_not_a_prompt(self) -> None:
        solution = "// BEGIN SOLUTION p\n// short comment\n//   looks like a prompt, comes after code\nx\n// END SOLUTION\n"
        self.assertEqual(derive.derive(solution, "f"), "// TODO p\n")

    def test_malformed_markers(self) -> None:
        cases = {
            "// BEGIN SOLUTION a\n// BEGIN SOLUTION b\n":
                "f.cu:2: BEGIN SOLUTION inside the region that line 1 begins; regions do not nest",
            "x\n// BEGIN SOLUTION a\n": "f.cu:2: BEGIN SOLUTION without an END SOLUTION after it",
            "x\n\n// END SOLUTION\n": "f.cu:3: END SOLUTION without a BEGIN SOLUTION before it",
            "// BEGIN SOLUTION \n": "f.cu:1: BEGIN SOLUTION without a prompt; say what to write and in about how many lines",
            "// BEGIN SOLUTION a\n// END SOLUTION b\n": 'f.cu:2: END SOLUTION is followed by "b"; nothing may follow it',
            "// STUB x;\n": "f.cu:1: STUB outside of a region; it stands right after BEGIN SOLUTION and its prompt",
            "// BEGIN SOLUTION a\nx;\n// STUB y;\n":
                "f.cu:3: STUB after code; it stands right after BEGIN SOLUTION (line 1) and its prompt",
            "// BEGIN SOLUTION a\n// STUB\n": "f.cu:2: STUB without code",
            "int x; // BEGIN SOLUTION a\n": "f.cu:1: a marker must stand on a line of its own, as a // comment",
            "int x;\n": "f.cu:1: no BEGIN SOLUTION in this file; its skeleton would be the solution itself",
        }
        for solution, message in cases.items():
            with self.subTest(solution=solution), self.assertRaises(LabError) as caught:
                derive.derive(solution, "f.cu")
            self.assertEqual(str(caught.exception), message)


class Tasks(Course):
    def test_the_skeleton_names_its_own_task(self) -> None:
        solution = self.part / "solution" / "measure.cpp"
        task = manifest.select_one(manifest.load_parts(), "measure", "this")
        for old, new, found in (("part1.measure", "part1.fused_cpu", '"part1.fused_cpu"'), ("STUB throw", "throw", "nothing")):
            text = solution.read_text()
            solution.write_text(text.replace(old, new))
            with self.assertRaises(LabError) as caught:
                derive.derive_task(task)
            self.assertEqual(str(caught.exception), "part1_softmax_matmul/solution/measure.cpp: its skeleton throws "
                                                    f'NotYetImplemented of {found}; it must be of "part1.measure"')
            solution.write_text(text)
