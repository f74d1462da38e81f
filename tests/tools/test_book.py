"""`./lab book`: what the book holds.

The site is built where `./lab book` has installed its generator before.
"""

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from course import Course, Test
from lab import bootstrap, paths
from lab.errors import LabError
from lab.verbs.student import book


class Pages(Course):
    def pages(self) -> dict[str, str]:
        folder = self.folder()
        book.write_pages(folder)
        return {file.relative_to(folder).as_posix(): file.read_text()
                for file in folder.rglob("*.md")}

    def test_links_contracts_and_ladders_make_the_book(self):
        self.write("README.md", "# Course\n\n[one](part1_softmax_matmul/README.md#task), "
                   "[step](part1_softmax_matmul/ladder/9_last.cu), [gone](gone.cpp)\n")
        self.write("part1_softmax_matmul/README.md",
                   "# Part 1\n\n[steps](ladder), [root](../README.md)\n")
        self.write("part1_softmax_matmul/contract.hpp", "// Contract.\n#pragma once\n")
        for step in ("10_more.cu", "9_last.cu"):
            self.write(f"part1_softmax_matmul/ladder/{step}", "// Rung 1: Take x_y.\nint x;\n")
        pages = self.pages()
        part = "part1_softmax_matmul"
        self.assertEqual(sorted(pages), ["index.md", f"{part}/contract.hpp.md", f"{part}/index.md",
                                         f"{part}/ladder/10_more.cu.md",
                                         f"{part}/ladder/9_last.cu.md", f"{part}/ladder/index.md"])
        self.assertIn(f"[one]({part}/index.md#task), [step]({part}/ladder/9_last.cu.md), "
                      "[gone](gone.cpp)", pages["index.md"])
        self.assertIn("[steps](ladder/index.md), [root](../index.md)", pages[f"{part}/index.md"])
        self.assertIn("hidden:\n9_last.cu.md\n10_more.cu.md\n", pages[f"{part}/ladder/index.md"])
        self.assertIn("- [`9_last.cu`](9_last.cu.md): Take x\\_y\n",
                      pages[f"{part}/ladder/index.md"])
        self.assertIn("````````cpp\n// Contract.\n#pragma once\n````````\n",
                      pages[f"{part}/contract.hpp.md"])

    def test_a_ladder_with_a_page_of_its_own_is_in_the_book_as_a_whole(self):
        self.write("README.md", "# Course\n")
        self.write("part1_softmax_matmul/README.md", "# Part 1\n\n[more](ladder/README.md)\n")
        self.write("part1_softmax_matmul/ladder/README.md", "# Going faster\n")
        self.write("part1_softmax_matmul/ladder/1_first.cu", "// Rung 1: x.\nint x;\n")
        pages = self.pages()
        self.assertIn("[more](ladder/index.md)", pages["part1_softmax_matmul/index.md"])
        self.assertIn("hidden:\nladder/index.md\n", pages["part1_softmax_matmul/index.md"])
        self.assertEqual(pages["part1_softmax_matmul/ladder/index.md"].split("\n")[0],
                         "# Going faster")
        self.assertIn("hidden:\n1_first.cu.md\n", pages["part1_softmax_matmul/ladder/index.md"])

    def test_without_a_network_it_says_so(self):
        self.patch(book, VENV=self.root / ".venv-book")
        offline = subprocess.CompletedProcess([], 1, "Name or service not known\nERROR: no match\n")
        self.patch(bootstrap.subprocess, run=lambda *_, **__: offline)
        self.assertIn("PyPI cannot be reached", self.refused(book.make_ready))


@unittest.skipUnless(book.is_ready(), "the book's generator is not installed (./lab book does it)")
class Site(Test):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="lab-test-"))
        cls.site = cls.printed(book.build_book, Path(folder))[0].parent

    def test_nothing_is_loaded_from_a_network(self):  # that links lead somewhere, Sphinx sees to
        pages = list(self.site.rglob("*.html"))
        self.assertGreater(len(pages), 50)
        for page in pages:
            loaded = re.findall(r'<(?!a\b)[a-z]+ [^>]*\b(?:src|href)="((?:\w+:)?//[^"]*)"',
                                page.read_text())
            self.assertEqual(loaded, [], page)

    def test_formulas_are_there_and_none_is_left_as_text(self):
        for handout in self.site.glob("*/index.html"):
            text = handout.read_text()
            if handout.parent.name.startswith("part"):
                self.assertIn("<math", text)
            self.assertNotRegex(text, "<mi>ln</mi><m(?!space)")  # it reads "lnl"
            prose = re.sub(r"<(pre|code|math)\b.*?</\1>", "", text, flags=re.DOTALL)
            self.assertNotRegex(prose, r"\$\$|\\(frac|sum|text|mathrm)\b", handout)

    def test_a_broken_link_stops_it(self):
        root = self.folder()
        self.patch(paths, ROOT=root)
        for page in ("[gone](gone.md)", "[gone](#no-heading)"):
            (root / "README.md").write_text(f"# A\n\n{page}\n")
            with self.assertRaises(LabError):
                self.printed(book.build_book, root / "book")
