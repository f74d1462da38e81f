"""./lab tune: what it tries, how it ranks; bench_attention loads a rung that was compiled alone."""

import math
import re
import subprocess
from pathlib import Path

from course import BUILD, Test
from lab import manifest, paths, tables
from lab.verbs.author import tune

PROGRAM = BUILD / "bin" / "bench_attention"


def rungs() -> list[tuple[str, str]]:
    texts = [(name, file.read_text()) for part in manifest.load_parts()
             if part.name in tune.DIRECTIONS for name, file in tables.rungs(part.folder).items()]
    return [(name, text) for name, text in texts if tune.SPACE.search(text)]


class TuneTest(Test):
    def test_a_rung_tries_the_configurations_that_it_has(self):
        found = rungs()
        self.assertGreaterEqual(len(found), 10)
        for name, text in found:
            said = tune.SPACE.search(text)[1]
            for table in re.findall(r"Table<(Config<.*?>)>;", text, re.DOTALL):
                for own in re.findall(r"Config<(.*?)>", table):
                    own = own.replace("\n", " ")
                    tried = tune.space(said, int(own.split(",")[0]))
                    if own.count(",") < tried[0].count(","):
                        own += ", false"  # the last argument's default
                    with self.subTest(rung=name, configuration=own):
                        self.assertIn(own, tried)

    def test_the_tables_are_replaced_by_one_configuration(self):
        text = "using A =\n    Table<Config<64, 1>,\n          Config<128, 2>>;\nint x;\n" \
               "using B = Table<Config<64, 3, true>>;\n"
        self.assertEqual(tune.TABLE.sub("Table<Config<64, 9>>;", text),
                         "using A =\n    Table<Config<64, 9>>;\nint x;\n"
                         "using B = Table<Config<64, 9>>;\n")

    def test_the_fastest_comes_first(self):
        configs = {"rung-a": "64, 1", "rung-b": "64, 2", "rung-c": "64, 3"}
        times = {"rung": [1.0, 4.0], "rung-a": [1.0, 8.0], "rung-b": [0.5, 4.0],
                 "rung-c": [math.inf, 1.0]}
        self.assertEqual(tune.ranking("rung", configs, times),
                         ["\ntime over that of rung as it is:", "  0.707  Config<64, 2>",
                          "  1.414  Config<64, 1>", "1 of 3 do not fit on this GPU"])


class LoadTest(Test):
    def setUp(self):
        if not PROGRAM.is_file():
            self.skipTest("bench_attention is not built")
        self.here = self.folder()

    def call(self, *words: str | Path) -> tuple[int, str]:
        done = subprocess.run([PROGRAM, "--output", self.here / "rows.csv", "--quick",
                               "--seq-lens", "8", *words], capture_output=True, text=True,
                              timeout=120)
        return done.returncode, done.stdout + done.stderr

    def test_a_rung_that_was_compiled_alone(self):
        source, library = self.here / "mine.cpp", self.here / "mine.so"
        source.write_text("""#include "common/registry.hpp"
FLASH_ENTER(registry, name) {
  registry.forward.add({.name = name, .run = {.float32 = [](const flash::AttentionForward<float>&) {
    throw flash::Unsupported("called");
  }}});
}
""")
        compiled = subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", f"-I{paths.ROOT}",
                                   "-DFLASH_RUNG=enter_rung", source, "-o", library],
                                  capture_output=True, text=True)
        self.assertEqual((compiled.returncode, compiled.stderr), (0, ""))
        code, output = self.call("--load", library, "--forward", "mine,flash")
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"mine: unsupported: .*called")

    def test_a_library_without_a_rung(self):
        file = self.here / "none.so"
        code, output = self.call("--load", file)
        self.assertEqual((code, output.count("\n")), (2, 1), output)
        self.assertIn(f"--load is '{file}'; it must be a library with the function enter_rung()",
                      output)
