"""./lab tune: what it tries, what it says of each; bench_attention loads what was compiled alone."""

import math
import re
import subprocess
from pathlib import Path

from course import BUILD, Test
from lab import libraries, manifest, paths, system, tables
from lab.backends import EMULATED
from lab.verbs.student import tune

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

    def test_the_report_names_the_fastest_and_what_the_others_lack(self):
        def one(config: str, **figures: int) -> tune.Tried:
            return tune.Tried(config, Path("a.so"), **{
                "registers": 250, "shared": 100 * 1024, "threads": 128, "own": 128, "streamed": 64,
                **figures})
        tried = [one("slow"), one("spills", spilled=40), one("large", shared=300 * 1024),
                 one("few", shared=200 * 1024), one("small", own=32), one("second"), one("fastest"),
                 one("third"), tune.Tried("forbidden", error="an assertion forbids it")]
        times = {"a": dict(zip(("fastest", "second", "third", "slow", "spills", "few", "small",
                                "flash"), range(1, 9))),
                 "b": dict.fromkeys(("slow", "spills", "few", "small", "second", "third", "flash"),
                                    4.0) | {"fastest": 1.0, "large": math.inf}}
        lines = tune.table(tried, times, 90, "flash").splitlines()
        self.assertIn("| a | `Config<fastest>` | 1 | 8 |", lines)
        said = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
        for config, text in {
                "fastest": "0.177 | 250 |  | 100 | 8 | fast: no spills; 8 warps on a "
                           "multiprocessor, 0 of 7 have more; 43 products",
                "second": "fast: ", "third": "fast: ", "slow": "these figures do not",
                "spills": "registers: 250 a thread are too few, 40 bytes are spilled",
                "few": "shared memory: 4 warps, the fastest has 8",
                "large": "shared memory: a block needs 300 KiB and can have at most 227",
                "small": "reads: 21 products for each row that its tile of 32 x 64 reads, the "
                         "fastest has 43", "forbidden": "an assertion forbids it"}.items():
            with self.subTest(config=config):
                self.assertIn(text, said[config])

    def test_a_task_is_compiled_with_one_configuration(self):
        known = libraries.load(paths.build_folder())
        for name, config, shared in (("flash_forward_cuda", "64, 128, 64, 4", 106496),
                                     ("flash_backward_cuda", "64, 64, 32, 2, 8", 61696)):
            tuned = tune.find(name, False)
            library = known.get((tuned.file, EMULATED))
            if library is None:
                self.skipTest("the emulator is not built")
            with self.subTest(task=name):
                made = tune.compile_one(tuned, library, self.folder(), config)
                self.assertEqual((made.error, made.shared, made.own), ("", shared,
                                 int(config.split(", ")[1])))
        tuned = tune.find("flash_forward_cuda", False)
        refused = tune.compile_one(tuned, known[tuned.file, EMULATED], self.folder(),
                                   "64, 128, 64, 3")
        self.assertRegex(refused.error, "an assertion")


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
        compiled = subprocess.run([system.find_compiler(), "-std=c++20", "-shared", "-fPIC",
                                   f"-I{paths.ROOT}", "-DFLASH_RUNG=enter_rung", source, "-o",
                                   library], capture_output=True, text=True)
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
