"""./lab check --sanitize with the compiler's own AddressSanitizer: the runner of a task takes a
sanitized library, and an access out of bounds gets its line.
"""

import json
import unittest
from types import SimpleNamespace

from course import BUILD, Built
from lab import libraries, manifest, outcomes, zoo
from lab.backends import Backends

# A text of the solution, what makes it wrong, and what that is.
MISTAKES = (
    ("std::fill_n(m.data(), rows, ", "std::fill_n(m.data(), rows + 1, ", "heap-buffer-overflow"),
    ("j < keys; ++j) m_new = ", "j <= keys; ++j) m_new = ", "an access before or after a tensor"))


@unittest.skipUnless(any(backend == libraries.SANITIZED for _, backend in libraries.load(BUILD)),
                     "the build has no sanitized libraries")
class Sanitized(Built):
    def test_a_right_program_passes_and_a_wrong_one_gets_its_line(self):
        task = manifest.select_one(manifest.load_parts(), "fused_cpu", "check")

        def ended(edit: tuple[str, ...], *cases: str) -> list[outcomes.CaseResult]:
            config = SimpleNamespace(asan=json.loads((BUILD / "config.json").read_text())["asan"])
            return self.run_member(zoo.Member("wrong", task, self.id(), edit), libraries.SANITIZED,
                                   cases, variables=Backends(config, sanitize=True).environment())

        cases = "one element", "no quadratic memory: 1 x 512 x 1024 x 32"
        self.assertEqual([case.status for case in ended((), *cases)], ["passed"] * 2)
        source = task.path("solution").read_text()
        for right, wrong, kind in MISTAKES:
            seen, = ended((right, wrong), cases[0])
            line = source[:source.index(right)].count("\n") + 1
            self.assertEqual(seen.status, "crashed")
            self.assertRegex(seen.message, rf"\AAddressSanitizer: {kind} at "
                                           rf"\S+/solution/fused_cpu\.cpp:{line}\Z")
