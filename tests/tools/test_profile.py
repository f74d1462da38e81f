"""./lab profile: ncu's output is read, the five figures are computed, every trouble is one line.

ncu and bench_attention are scripts here. The numbers of COUNTED are an H200's.
"""

import json
import sys
import tempfile

from course import MANIFEST, Course, Test
from lab import profiler, results, system

KERNEL = ("void unnamed>::flash_forward_kernel<float, unnamed>::Config<64, 128, 64, "
          "4>>(TensorView<const T1, 4>, TensorView<float, 3>, float, bool, int, int)")
NAMES = ({name: names.split() for name, names in profiler.COUNTERS.items()}
         | {f"limit {name}": [metric] for name, metric in profiler.LIMITS.items()}
         | {f"stall {name}": [metric] for name, metric in profiler.STALLS.items()})
COUNTED = {
    "time": "175,616", "fma at work": "41.81", "fma overall": "19.88",
    "cycles at work": "164,327.15", "cycles": "345,651.77", "multiprocessors": "132",
    "grid": "64", "threads": "128", "read": "6,392,320", "written": "0", "dram share": "0.76",
    "L2 hits": "82.00", "warps": "6.25", "most warps": "12.50", "registers": "253",
    "shared": "106,496", "static shared": "0", "limit registers": "2", "limit shared memory": "2",
    "limit warps": "16", "limit blocks": "32", "conflicts": "0", "turns": "6,938,880",
    "local loads": "0", "local stores": "0", "issue": "49.61", "stall selected": "1",
    "stall long_scoreboard": "0.33", "stall wait": "0.23", "stall no_instruction": "0.16",
    "stall short_scoreboard": "0.13", "stall dispatch_stall": "0.11", "stall barrier": "0.03",
    "stall branch_resolving": "0.02", "stall not_selected": "0",
}


def problem(dtype="float32", heads=1, seq_len=1024, width=64, causal=False, batch=8):
    return results.Row(results.KINDS[1], dict(dtype=dtype, batch=batch, heads=heads, causal=causal,
                                              seq_len=seq_len, d_model=heads * width))


def ncu_text(changes={}, launches=1):
    """What ncu --csv prints, the program's lines before it. Of several names of a counter only the
    last is counted."""
    text = ('==PROF== Connected to process 1225 (/course/build/default/bin/bench_attention)\n'
            '"lines of the program"\n==WARNING== a line of ncu\'s own\n'
            '"ID","Process ID","Kernel Name","Metric Name","Unit","Metric Value"\n')
    for launch in range(launches):
        for name, value in (COUNTED | changes).items():
            *others, last = NAMES[name]
            counts = dict.fromkeys(others, "n/a") | {last: value if launch == 0 else "77"}
            for metric, count in counts.items():
                text += f'"{launch}","1225","{KERNEL}","{metric}","","{count}"\n'
    return text


class Figures(Test):
    def test_what_all_blocks_load(self):
        # The tables of section 7 of the handout.
        for queries, keys, causal, gib in ((64, 32, False, 16.06), (64, 32, True, 8.09),
                                           (128, 64, False, 8.06), (128, 64, True, 4.09)):
            row = problem(seq_len=16384, causal=causal)
            asked = profiler.asked_bytes(row, profiler.Tiles(64, queries, keys, 4))
            self.assertAlmostEqual((asked + profiler.result_bytes(row)) / 2**30, gib, delta=0.005)
        # Blocks of 4, 4 and 2 queries see 4, 8 and 10 of 10 keys, in 2, 3 and 4 blocks of 3. The 5
        # columns are 2 slices of 4.
        row = problem("float16", 3, 10, 5, True, batch=1)
        q, k, v = 4 * 2 * 2 + 4 * 2 * 3 + 2 * 2 * 4, 2 * (6 + 9 + 10), 6 + 9 + 10
        for width, elements in ((4, q + k + v), (8, 10 + v + v)):
            asked = profiler.asked_bytes(row, profiler.Tiles(width, 4, 3, 1))
            self.assertEqual(asked, 2 * 3 * 5 * elements)

    def test_what_depends_on_the_counters(self):
        """A part with - must not be there."""
        for number, changes, *parts in (
            (1, {}, "The grid is too small: 68 of 132 multiprocessors got no thread block"),
            (1, {"grid": "396"}, "The grid is 1.5 times what fits at a time", "-too small"),
            (1, {"cycles at work": "340,000"}, "-idle", "Nearly the whole GPU has work"),
            (2, {}, "about once. Device memory is not the limit."),
            (2, {"read": str(18 * 2**20), "dram share": "88"},
             "was read 3.0 times over", "Device memory is near its limit"),
            (3, {"limit warps": "2"}, "The limit is registers and shared memory and warps. "),
            (4, {"conflicts": "1,734,720"}, "Of 100 turns at shared memory 25 are repeats"),
            (4, {"local loads": "4,096"}, "in registers are in local"),
            (5, {"stall not_selected": "1.5", "stall math_pipe_throttle": "0.9"},
             "2.2 warps to choose from.", "that could be less is long_scoreboard."),
            (5, {"issue": "91"}, "nearly always busy", "-less"),
        ):
            figure = profiler.figures(profiler.parse(ncu_text(changes)), problem())[number - 1]
            for part in parts:
                check = self.assertNotIn if part.startswith("-") else self.assertIn
                check(part.removeprefix("-"), figure.meaning)

    def test_counters_that_a_gpu_lacks(self):
        for one in profiler.figures(profiler.Profile("flash_forward_kernel(float)", {}), problem()):
            self.assertEqual(one.meaning, "")
            self.assertIn("not counted on this GPU", dict(one.rows).values(), one.title)
        for name in COUNTED:
            for value in ("n/a", "0"):
                profiler.figures(profiler.parse(ncu_text({name: value})), problem())


SCRIPT = '''#!{python} -IS
import json, os, sys
with open({calls!r}, "a") as calls:
    name = os.path.basename(sys.argv[0])
    print(json.dumps([name, os.environ.get("FLASH_TUNING_FILE"), *sys.argv[1:]]), file=calls)
if {table!r}:
    with open(sys.argv[sys.argv.index("--output") + 1], "w") as table:
        table.write({table!r})
print(end={out!r})
sys.exit({code})
'''
TABLE = ("d_model,seq_len,forward_ms,status,gpu,dtype,batch,heads,causal\n"
         "64,1024,1.5,ok,NVIDIA H200,float32,8,1,False\n")
SHOWN = """\
NVIDIA H200, float32, batch 8, 1 head of 64, seq_len 1024, not causal; \
128 queries x 64 keys, 4 warps
1  Time and multiply-adds
   time               0.1756 ms; 12.2 TFLOP/s
   multiprocessors    132; 48 % of the time with work
   grid               64 thread blocks; room for 264 at a time
2  Device memory
   each tensor once   6 MiB of q, k, v; 2.031 MiB of out, lse
   all thread blocks  load 34 MiB (section 7)
3  Occupancy
   a thread block   128 threads; 253 registers each; 104 KiB of shared memory
4  Shared memory and spills
   bank conflicts  0 of 6,938,880 turns, 0.0 %
5  What warps wait for
   wait             0.23 cycles: a fixed number of cycles, until the instruction before \
has its result
"""


class Verb(Course):
    """./lab profile with scripts in the place of ncu and bench_attention."""

    cuda = "gpu"

    def setUp(self):
        super().setUp()
        self.write("part3_flash_cuda/tasks.toml", MANIFEST.replace("part1", "part3"))
        self.write("part3_flash_cuda/skeleton/fused_cpu.cpp", "")
        self.program()
        self.ncu(ncu_text(launches=2))  # the first launch is shown
        self.environment(remove=("CUDACXX",), PATH=str(self.root / "tool"))
        self.patch(system, CUDA=self.root / "cuda")
        self.temporary = self.folder()
        self.patch(tempfile, tempdir=str(self.temporary))

    def script(self, path, out, code, table=""):
        self.write(path, SCRIPT.format(python=sys.executable, calls=str(self.root / "calls"),
                                       out=out, code=code, table=table)).chmod(0o755)

    def program(self, out="attention\n", code=0, table=TABLE):
        for name in ("bench_attention_skeleton", "bench_attention"):
            self.script(f"build/default/bin/{name}", out, code, table)

    def ncu(self, out, code=0):
        self.script("tool/ncu", out, code)

    def called(self):
        """The calls of the scripts since the last look."""
        file = self.root / "calls"
        calls = file.read_text().splitlines() if file.is_file() else []
        file.unlink(missing_ok=True)
        return [json.loads(line) for line in calls]

    def error(self, options=""):
        code, out = self.lab(f"profile {options}")
        self.assertEqual((code, list(self.temporary.iterdir())), (1, []), out)
        return out.splitlines()[-1].removeprefix("lab: ")

    def after(self, words, option):
        return words[words.index(option) + 1]

    def test_five_figures_of_the_problem_that_the_program_measured(self):
        code, out = self.lab("profile part3")
        program = "build/default/bin/bench_attention_skeleton --device cuda"
        commands, shown = out.split("\n\n", 1)
        lines = [line for line in shown.splitlines(True) if line in SHOWN.splitlines(True)]
        self.assertEqual((code, "".join(lines)), (0, SHOWN))
        env = r"\$ /usr/bin/env FLASH_TUNING_FILE=\S+"
        self.assertRegex(commands,
                         rf"{env} {program} .*\n{env} \S+/tool/ncu --csv .* {program} .*--output")
        alone, profiled = self.called()
        self.assertEqual((alone[0], profiled[0]), ("bench_attention_skeleton", "ncu"))
        self.assertEqual(alone[1], profiled[1])  # the tuner's choice is of both
        self.assertTrue(alone[1].startswith(str(self.temporary)))
        self.assertEqual([self.after(alone, f"--{pass_}") for pass_ in ("forward", "backward")],
                         ["flash", "plain"])
        place = profiled.index(str(self.binary("bench_attention_skeleton")))
        self.assertEqual(profiled[place + 1:], alone[2:])
        for option, value in (("--kernel-name", "regex:flash_forward"), ("--launch-skip", "2"),
                              ("--metrics", ",".join(profiler.METRICS)), ("--launch-count", "1")):
            self.assertEqual(self.after(profiled[:place], option), value)
        self.assertEqual(list(self.temporary.iterdir()), [])

    def test_options_replace_the_defaults(self):
        for words, skipped in (("--warmups 5", "6"), ("--warmups=7", "8")):
            self.assertEqual(self.lab(f"profile -- {words}")[0], 0)
            alone, profiled = self.called()
            self.assertEqual(sum(word.startswith("--warmups") for word in alone[2:]), 1)
            self.assertEqual(self.after(profiled, "--launch-skip"), skipped)
        self.lab("profile -- --impl flash")  # it is --forward by another name
        self.assertNotIn("--forward", self.called()[0])
        self.program(out="", table="")
        self.assertEqual(self.lab("profile -- --help")[0], 0)
        self.assertEqual([call[-1] for call in self.called()], ["--help"])
        self.assertIn("--output is not for a profile", self.error("-- --output=x.csv"))
        self.assertEqual(self.error("--solution"), "part3 has no solution/ folder here")

    def test_every_trouble_is_one_line(self):
        task = "task part3.measure_attention is not started, so"
        for out, said in (
            (f"attention\n\n{task} rows are missing; next: ...\n",
             f"{task} there is nothing to profile; next: ./lab check part3.measure_attention (or "
             "./lab profile --solution)"),
            ("t\nflash: error: wrong result\n\nsaved in x\n", "flash: error: wrong result"),
            ("", "the program ended with exit code 1; last line: it printed nothing"),
        ):
            self.program(out, 1, table="")
            self.assertEqual(self.error(), said)
            self.assertEqual(len(self.called()), 1)  # ncu was not started
        self.program("flash: OOM: 3 GiB more\n\nsaved in x\n",
                     table=TABLE.replace("1.5", "").replace(",ok,", ",OOM,"))
        self.assertEqual(self.error(), "flash: OOM: 3 GiB more")
        self.program()
        denied = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"
        failed = "==ERROR== Failed to prepare kernel\n==ERROR== The driver is too old\nbye\n"
        for root, out, code, said in (
            (True, "==WARNING== No kernels were profiled.\n", 0, "ncu profiled no kernel"),
            (True, failed, 9, "ncu failed (exit code 9): The driver is too old"),
            (True, denied, 1, "Either in a container, start that with --cap-add=SYS_ADMIN"),
            (False, denied, 1, "Either run it as root (sudo ./lab profile)"),
        ):
            self.ncu(out, code)
            self.patch(system, is_root=lambda root=root: root)
            self.assertIn(said, self.error())
        (self.root / "tool/ncu").unlink()
        self.assertIn("there is no ncu (Nsight Compute) in PATH or beside nvcc", self.error())
        for self.cuda, said in (("none", "this build has no CUDA"),
                                ("toolkit", "there is no GPU here")):
            self.assertIn(said, self.error())
