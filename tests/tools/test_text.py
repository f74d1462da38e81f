"""Text of strangers: shown as text, whatever it holds."""

from unittest import mock

from lab import build, console, handed_in, paths, worklog
from lab.submission import source, spaces
from lab.text import cell, code, fenced, has_one_alphabet, line, looks, markdown, plain
from course import Test


class Text(Test):
    def test_a_cell_is_no_formula(self):
        for text in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "  =1", '"=1', "＝1", "x;=1",
                     "missing: a, =1", "a|@b", "\x1b[31m=1", "x\n=1;+2"):
            self.assertNotRegex(cell(text), "(^|[;,|])[\\s\"]*[=+@＝＋－＠-]")
        self.assertEqual(cell("missing: part1.x; 1 of 2"), "missing: part1.x; 1 of 2")

    def test_a_terminal_is_not_repainted_nor_turned_around(self):
        hostile = "a\x1b[2J\x1b]0;title\x07b\x9b31m\u202egnp.exe\u2066\r\x00\ud800" + "o\u0301" * 9
        for text in (plain(hostile), self.printed(console.say, hostile)[1]):
            self.assertTrue(text.strip().isprintable(), ascii(text))
        self.assertEqual(line("a\n b\u2028c\t\td"), "a b\N{REPLACEMENT CHARACTER}c d")
        self.assertEqual(plain("e" + "\u0301" * 99), "e" + "\u0301" * 4)
        self.assertEqual(len(line("x" * 999)), 200)

    def test_markdown_stays_in_its_place(self):
        for text, shown in (("[a](http://x)", r"\[a\](http:\//x)"), ("# a", r"\# a"),
                            ("a_b_c", "a_b_c"), ("_a_ **b**", r"\_a\_ \*\*b\*\*"),
                            ("<img src=x>", r"\<img src=x\>"), ("a | b", r"a \| b"),
                            ("![x](y)", r"\!\[x\](y)"), ("a\n\n# b", r"a \# b")):
            self.assertEqual(markdown(text), shown)
        self.assertEqual(code("a ``b`"), "``` a ``b` ```")
        self.assertEqual(fenced("````\nx"), "`````text\n````\nx\n`````")

    def test_names_that_look_the_same(self):
        for one, other in (("ann", "\u0430nn"), ("Eve", "\u0415v\u0435"), ("AI", "A1"),
                           ("Bob", "B0b"), ("modern", "modem"), ("ann-k", "ANN K"),
                           ("NHT", "\u039d\u0397\u03a4"), ("김철수", "김철수\u3164"),
                           ("عمر", "عمر\u0640")):
            self.assertEqual(looks(one), looks(other))
        self.assertNotEqual(looks("Järg"), looks("Jörg"))
        for name, is_one in (("Järg Ørsted", True), ("田中さくら", True), ("김철수", True), ("عمر", True),
                             ("\u0430nn", False), ("\u13aann", False), ("\u0251nn", False),
                             ("x\u0665", False)):
            self.assertEqual(has_one_alphabet(name), is_one, name)

    def test_nothing_is_read_again_for_each_of_its_beginnings(self):
        """Such texts took minutes, and no other submission of a class goes on meanwhile."""
        many, folder = 150_000, self.folder()
        read = source.Source("", folder)
        found = read.findings(f"\n{read.mark}\n" + "'R\"(\n" * many)
        for opening in ("'R\"(\n", "'/*\n"):
            found += spaces.findings("#if 0\n" + opening * many, folder)
        self.assertEqual([line.split(" a ", 1)[1] for line in found],
                         ["text that nothing ends"] + ["comment or a text that nothing ends"] * 2)
        self.assertEqual(source.poisoned("x.cu:3: error: #error " + "a" * many), [])
        self.assertEqual(build.first_error("s/skeleton/" * many, paths.ROOT)[:12], "s/skeleton/s")
        row = mock.Mock(ok=False)
        row.kind.size = "batch"
        log = b"| bench x; batch " + b"a" * many
        self.assertEqual(handed_in._other_than_logged([row], {worklog.PAGE: log}), [])
