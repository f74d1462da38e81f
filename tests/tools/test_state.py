"""lab.state: progress survives, and damage to it is no obstacle."""

import contextlib
import io
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from course import Course  # noqa: E402

from lab import state  # noqa: E402


class StateFile(Course):
    def test_what_is_kept_comes_back(self) -> None:
        with state.edit() as student:
            student.hints["part1.measure"] = 2
            student.results["part1.measure"] = state.LastResult("passed", 4.0, "abc")
        again = state.load()
        self.assertEqual(again.hints, {"part1.measure": 2})
        self.assertEqual(again.results["part1.measure"], state.LastResult("passed", 4.0, "abc"))
        self.assertEqual([path.name for path in (self.root / ".lab").iterdir()], ["state.json"])

    def test_nothing_is_written_when_an_edit_fails(self) -> None:
        with contextlib.suppress(KeyError), state.edit() as student:
            student.hints["part1.measure"] = 2
            raise KeyError
        self.assertEqual(state.load(), state.State())

    def test_a_damaged_file_is_set_aside(self) -> None:
        for damaged in ("{", "[]", "\0\0", '{"version": 99, "hints": {}, "results": {}}',
                        '{"version": 1, "hints": {"a": "b"}, "results": {}}',
                        '{"version": 1, "hints": {}, "results": {"a": 1}}'):
            with self.subTest(damaged=damaged):
                self.write(".lab/state.json", damaged)
                said = io.StringIO()
                with contextlib.redirect_stderr(said):
                    self.assertEqual(state.load(), state.State())
                self.assertRegex(said.getvalue(), r"\A\.lab/state\.json is damaged: kept as \.lab/state\.damaged-\S+\.json, "
                                                  r"progress and hints start anew\n\Z")
                kept = re.search(r"kept as (\S+),", said.getvalue())[1]
                self.assertEqual((self.root / kept).read_text(), damaged)
                (self.root / kept).unlink()

    def test_a_state_that_cannot_be_written_ends_nothing(self) -> None:
        self.write(".lab", "a file where the folder should be")
        said = io.StringIO()
        with contextlib.redirect_stderr(said), state.edit() as student:
            student.hints["part1.measure"] = 1
        self.assertIn("progress is not kept", said.getvalue())

    def test_copies_never_overwrite_one_another(self) -> None:
        file = self.write("part1_softmax_matmul/skeleton/measure.cpp", "first")
        one = state.keep_copy(file)
        file.write_text("second")
        two = state.keep_copy(file)
        self.assertEqual((one.read_text(), two.read_text()), ("first", "second"))
        self.assertRegex(str(one.relative_to(self.root)), r"^\.lab/backup/[0-9_-]+/part1_softmax_matmul/skeleton/measure\.cpp$")
