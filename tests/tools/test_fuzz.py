"""Random hostile submissions and receipts: none stops a class or a page, gains a point or a place,
or is more than text in what an instructor opens.

ctest runs a few rounds of each, the same ones. For minutes, with other seeds:
    PYTHONPATH=tools:tests/tools python tests/tools/test_fuzz.py MINUTES [SEED]
"""

import csv
import dataclasses
import io
import json
import os
import random
import shutil
import struct
import sys
import time
import warnings
import zipfile
from html.parser import HTMLParser

from lab import main
from lab.leaderboard import receipts
from lab.submission import judging
from test_grade import SCHEMA, Class, problems
from test_leaderboard import OfReceipts

ROUNDS = {"submissions": 5, "receipts": 20}
TEXTS = ("ann", "Järg", "J\u0308arg", "陈伟", "عمر", "\u202egpj", "\x1b[2J\x1b]0;x\x07", "\r", "\n",
         "\t", "=1+1", "+cmd|' /C calc'!A0", "@x", "＝1", ";=1", ",", "|", '"', "'", "`", "```", "_",
         "[x](http://y)", "![x](y)", "<script>alert(1)</script>", "</pre>", "&lt;", "# ", "-", " ",
         ".", "..", "\\", "%s", "{{7*7}}", "{%", "\u2028", "\u0301" * 20, "\x85", "\x7f", "$x$",
         "_101_5001_", "roemax_102_7_", "_LATE_102_5_", "Jane_101_assignsubmission_file_", ".zip",
         "grades.csv", "index.html", "slurm", "001", "record.json", "solution", "__MACOSX",
         "\ud800", "\udcff", "\ufffe", "\U0001f600", "0", "x" * 200,
         "part1_softmax_matmul/skeleton/", "fused_cpu.cpp", "measure.cpp", "bundle.json")
SECRET = "the secret of another folder"
RIGHT = b"// passed 1 of 1\n"
VALUES = (None, True, False, 0, -1, -0.0, 1, 1e-320, 1e300, 10**400, 2**64, float("nan"),
          float("inf"), -float("inf"), "", "x" * 3000, [], {}, [[]], [{}], {"device": "x"},
          "9999-12-31T23:59:59Z", "0000-00-00T00:00:00Z", "a" * 64)


def some_text(chance, most=5):
    return "".join(chance.choice(TEXTS) for _ in range(chance.randint(0, most)))


class Hostile:
    """A class' folder with random submissions in it, and what it holds."""

    def __init__(self, chance, folder, secret):
        self.chance, self.folder, self.secret = chance, folder, secret

    def name(self, suffix=""):
        text = some_text(self.chance).replace("/", "_").replace("\0", "")
        named = text.encode("utf-8", "surrogatepass")[:255 - len(suffix)] + suffix.encode()
        return os.fsdecode(b"x" if named.strip(b".") in (b"", b"doejane") else named)

    def content(self):
        return self.chance.choice((
            RIGHT, b"", b"junk", self.chance.randbytes(300), b"\0" * (1 << 21),
            some_text(self.chance, 40).encode("utf-8", "surrogatepass"), b"[" * 100_000,
            json.dumps({"version": {"number": some_text(self.chance), "commit": ""}}).encode()))

    def path(self):
        """Of a file in a submission."""
        task = "part1_softmax_matmul/skeleton/fused_cpu.cpp"
        return self.chance.choice((
            task, task, "fused_cpu.cpp", f"/{task}", f"../../{task}", task.replace("/", "\\"),
            "bundle.json", f"{some_text(self.chance)}/{task}", some_text(self.chance, 12) or "x",
            "a/" * self.chance.choice((3, 100, 8000)) + "fused_cpu.cpp"))[-60_000:]

    def zipped(self):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # two files of one name
            for _ in range(self.chance.choice((0, 1, 1, 2, 5, 300))):
                entry = zipfile.ZipInfo(self.path().encode("utf-8", "replace").decode())
                entry.external_attr = self.chance.choice(
                    (0, 0, 0o100644, 0o120777, 0o010644, 0o040755, 0o104777)) << 16
                method = self.chance.choice((0, 8, 8, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
                content = str(self.secret).encode() if entry.external_attr >> 28 == 0xa \
                    else self.content()
                archive.writestr(entry, content, method)
        return self.damaged(packed.getvalue())

    def damaged(self, packed):
        """Or not: bytes that are others, missing, or twice there, and numbers that lie."""
        packed, at = bytearray(packed), self.chance.randrange(len(packed))
        match self.chance.randrange(8):
            case 0:
                for _ in range(self.chance.randint(1, 30)):
                    packed[self.chance.randrange(len(packed))] = self.chance.randrange(256)
            case 1:
                del packed[at:at + self.chance.randint(1, 99)]
            case 2:
                packed[at:at] = self.chance.randbytes(self.chance.randint(1, 99))
            case 3:
                packed += bytes(packed)
            case 4 if b"PK\1\2" in packed:  # a field of an entry
                place = packed.index(b"PK\1\2") + self.chance.randrange(4, 44, 2)
                struct.pack_into("<H", packed, place, self.chance.choice((0, 1, 9, 99, 65535)))
            case 5:  # of the end: how many entries there are, how long, and where
                place = packed.rindex(b"PK\5\6") + self.chance.randrange(4, 20, 2)
                struct.pack_into("<H", packed, place, self.chance.choice((0, 1, 9, 65535)))
        return bytes(packed)

    def add(self):
        kind = self.chance.randrange(10)
        place = self.folder / self.name(".zip" if kind < 5 else "")
        if os.path.lexists(place) or place.name.startswith("doejane"):
            return
        if kind < 5:
            place.write_bytes(self.zipped())
        elif kind == 5:
            place.symlink_to(self.chance.choice((self.secret, self.folder, "/dev/zero", "nothing",
                                                 self.secret / "fused_cpu.cpp", place)))
        elif kind == 6:
            os.mkfifo(place)
        elif kind == 7:
            place.write_bytes(self.content())
        else:
            self.fill(place)

    def fill(self, place):
        place.mkdir()
        for _ in range(self.chance.choice((0, 1, 2, 4))):
            inside = place / self.chance.choice((
                "fused_cpu.cpp", "measure.cpp", "a.zip", "b.zip", "c.tar.gz", self.name(),
                "part1_softmax_matmul/skeleton/fused_cpu.cpp"))
            if os.path.lexists(inside) or inside.parent.is_file():
                continue
            inside.parent.mkdir(parents=True, exist_ok=True)
            match self.chance.randrange(4):
                case 0:
                    inside.symlink_to(self.chance.choice((
                        self.secret / "fused_cpu.cpp", self.secret, place, "/dev/zero")))
                case 1:
                    os.mkfifo(inside)
                case _:
                    inside.write_bytes(self.zipped() if inside.suffix == ".zip"
                                       else self.content())


class Shown:
    """What no page, table or line of ours may hold."""

    TAGS = set("html head meta title style body h1 h2 h3 p svg g defs path use text table tr th td "
               "div a span br wbr b clippath rect metadata rdf:rdf cc:work dc:type dc:format dc:title "
               "section thead tbody strong pre code em ul li".split())

    def check_html(self, text):
        self.check_lines(text)
        tags = []
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, given: tags.append((tag, given))
        parser.feed(text)
        self.assertEqual({tag for tag, _ in tags} - self.TAGS, set())
        for _, given in tags:
            for name, value in given:
                self.assertFalse(name.startswith("on"), given)
                if name in ("href", "src"):
                    self.assertRegex(value, r"\A\d+/report\.html\Z")

    def check_lines(self, text):
        for shown in text.split("\n"):
            self.assertTrue(shown.replace("\t", "").isprintable(), ascii(shown))

    def check_table(self, text):
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        for row in rows:
            for cell in row.values():
                self.assertTrue(cell.isprintable(), ascii(cell))
                self.assertNotRegex(cell, "(^|[;,|])[\\s\"]*[=+@＝＋－＠-]")
        return rows


def fuzz_judge(task, source, *_):
    """Right where it says so; else the message is what the file says."""
    if source.startswith(RIGHT.strip()):
        return judging.Judged(task.id, task.points, judging.GRADED, cases=(
            judging.Case("one", "passed", requirement="all", points=task.points),))
    said = source.decode("utf-8", "surrogateescape")[:2000]
    if len(source) % 2:
        return judging.Judged(task.id, task.points, judging.BUILD_FAILED, said)
    return judging.Judged(task.id, task.points, judging.GRADED, "", 7, (
        judging.Case("one", "failed", said, requirement="all", points=task.points,
                     diagnosis="a name" * (len(source) % 4 == 0)),))


class Submissions(Shown, Class):
    GOOD = "doejane_101_5001_x"
    ROSTER = "Student,ID,HW (1)\n" + '"Doe, Jane",101,\n"Roe, Max",102,\n'

    def test_random_submissions(self):
        for seed in range(ROUNDS["submissions"]):
            with self.subTest(seed):
                self.round(seed)

    def setUp(self):
        super().setUp()
        self.judge.side_effect = fuzz_judge
        self.write("secret/fused_cpu.cpp", RIGHT.decode() + SECRET)
        self.write("roster.csv", self.ROSTER)

    def round(self, seed):
        chance = random.Random(seed)
        for folder in (self.all, self.out):
            shutil.rmtree(folder, ignore_errors=True)
        self.submit(self.GOOD, fused_cpu="passed 1 of 1", measure="passed 1 of 1")
        hostile = Hostile(chance, self.all, self.root / "secret")
        for _ in range(12):
            hostile.add()
        everybody = sorted(place.name for place in self.all.iterdir())
        places = [self.all / name for name in everybody] if chance.randrange(3) == 0 else [self.all]
        code, said = self.lab(f"grade --output {self.out}", "--", *map(str, places))
        self.assertEqual(code, 0, said)
        self.check_lines(said)
        rows = self.check_table((self.out / "grades.csv").read_text())
        self.assertEqual(len(rows) + said.count("left out: "), len(everybody), said)
        self.assertEqual({row["status"] for row in rows}, {"graded"}, rows)
        good, = [row for row in rows if row["id"] == self.GOOD]
        self.assertEqual(good["score"], "5")
        self.assertTrue(all(row["score"] in ("0", "1", "4", "5") for row in rows))
        self.check_html((self.out / "index.html").read_text())
        self.assertEqual({place.name for place in self.out.iterdir()},
                         {row["folder"] for row in rows} | {"grades.csv", "index.html"})
        for row in rows:
            self.check_folder(self.out / row["folder"])
        code, said = self.lab(f"export {self.root / 'out.csv'} --into {self.root / 'roster.csv'} "
                              f"--grades {self.out} --column HW")
        exported = (self.root / "out.csv").read_text().splitlines()
        self.assertEqual(exported[1], '"Doe, Jane",101,5', said)
        self.check_lines(said)

    def check_folder(self, folder):
        self.assertEqual({place.name for place in folder.iterdir()},
                         {"record.json", "report.html", "report.md", "results.json"})
        files = {place.name: place.read_text() for place in folder.iterdir()}
        for text in files.values():
            self.assertNotIn(SECRET, text)
        self.check_html(files["report.html"])
        self.check_lines(files["report.md"])
        self.assertEqual(problems(json.loads(files["results.json"]), SCHEMA), [])


class Receipts(Shown, OfReceipts):
    def test_random_receipts(self):
        for seed in range(ROUNDS["receipts"]):
            with self.subTest(seed):
                self.round(seed)

    def setUp(self):
        super().setUp()
        self.verify(receipts.save(self.receipt("ann", 2), receipts.RECEIPTS))
        self.good = json.dumps(dataclasses.asdict(self.receipt("bob", 3)))
        self.place = self.root / "receipts"

    def changed(self, chance):
        data = json.loads(self.good)
        data["name"] = chance.choice(("bob", "ann", "Ann", "\u0430nn", some_text(chance, 2)))
        one, machine = chance.choice(data["samples"]), data["machine"]
        data["sources"] = {"a.cpp": f"{chance.randrange(2**256):064x}"}
        for _ in range(chance.choice((0, 1, 1, 3))):
            where = chance.choice((data, data, one, machine))
            key = chance.choice([*where, some_text(chance, 1)])
            value = chance.choice((*VALUES, some_text(chance), lambda old: old * 1e9,
                                   lambda old: old * 1e-9, lambda old: [old]))
            try:
                where[key] = value(where[key]) if callable(value) else value
            except (TypeError, KeyError, OverflowError):
                where.pop(key, None)
        if chance.randrange(4) == 0 and isinstance(data.get("samples"), list):
            key = chance.choice(("student_ms", "reference_ms", "exchange_ms", "peak_gflops"))
            factor = chance.choice((1e-12, 1e-6, 0.5, 2, 1e3, 1e6, 1e200))
            for one in data["samples"]:
                if isinstance(one, dict) and isinstance(one.get(key), float):
                    one[key] *= factor
        text = json.dumps(data).encode()
        if chance.randrange(6) == 0:
            text = bytearray(text)
            for _ in range(chance.randint(1, 5)):
                text[chance.randrange(len(text))] = chance.randrange(256)
        return bytes(text)

    def round(self, seed):
        chance = random.Random(seed)
        for folder in (self.place, self.root / "page"):
            shutil.rmtree(folder, ignore_errors=True)
        self.place.mkdir()
        number = chance.randint(1, 30)
        for n in range(number):
            (self.place / f"{n}.json").write_bytes(self.changed(chance))
        code, said = self.printed(main.main, ["leaderboard", str(self.place), "--output",
                                              str(self.root / "page")])
        self.assertEqual(code, 0, said)
        self.check_lines(said)
        self.check_html((self.root / "page/index.html").read_text())
        self.check_lines((self.root / "page/leaderboard.md").read_text())
        rows = self.check_table((self.root / "page/leaderboard.csv").read_text())
        self.assertEqual([(row["place"], row["name"]) for row in rows if row["place"]],
                         [("1", "ann")])
        self.assertEqual(rows[0]["name"], "ann")


def for_minutes(minutes, seed):
    """Until then, or to the first round that finds something."""
    for kind in (Submissions, Receipts):
        test = kind()
        until, rounds = time.monotonic() + 30 * minutes, 0
        test.setUp()
        try:
            while time.monotonic() < until:
                test.round(seed + rounds)
                rounds += 1
        except BaseException:
            print(f"{kind.__name__}: seed {seed + rounds}")
            raise
        finally:
            test.doCleanups()
        print(f"{kind.__name__}: {rounds} rounds from seed {seed}, and nothing found", flush=True)


if __name__ == "__main__":
    for_minutes(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10**6)
