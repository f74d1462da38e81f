"""./lab profile: what ncu prints is read, each of the five figures is worked out, and whatever stops a profile is one line.

ncu and bench_attention are scripts here. The numbers of COUNTED are an H200's.
"""

import csv
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

from course import MANIFEST, Course  # noqa: E402

from lab import attention_results, profiler, system  # noqa: E402
from lab.verbs import profile as verb  # noqa: E402

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
FMA, INST_FMA = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained", "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained"
KERNEL = ("void unnamed>::flash_forward_kernel<float, unnamed>::Config<64, 128, 64, 4>>(TensorView<const T1, 4>, "
          "TensorView<float, 3>, float, bool, int, int)")
COUNTED = {
    "gpu__time_duration.sum": "175,616", FMA + "_active": "41.81", FMA + "_elapsed": "19.88",
    "sm__cycles_active.avg": "164,327.15", "sm__cycles_elapsed.avg": "345,651.77", "launch__sm_count": "132",
    "launch__grid_size": "64", "launch__block_size": "128",
    "dram__bytes_read.sum": "6,392,320", "dram__bytes_write.sum": "0",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "n/a",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "0.76", "lts__t_sector_hit_rate.pct": "82.00",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "6.25", "sm__maximum_warps_per_active_cycle_pct": "12.50",
    "launch__registers_per_thread": "253", "launch__shared_mem_per_block_dynamic": "106,496",
    "launch__shared_mem_per_block_static": "0", "launch__occupancy_limit_registers": "2",
    "launch__occupancy_limit_shared_mem": "2", "launch__occupancy_limit_warps": "16", "launch__occupancy_limit_blocks": "32",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "0",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "6,938,880", "smsp__sass_inst_executed_op_local_ld.sum": "0",
    "smsp__sass_inst_executed_op_local_st.sum": "0", "smsp__issue_active.avg.pct_of_peak_sustained_active": "49.61",
    STALL.format("selected"): "1", STALL.format("long_scoreboard"): "0.33", STALL.format("wait"): "0.23",
    STALL.format("no_instruction"): "0.16", STALL.format("short_scoreboard"): "0.13", STALL.format("dispatch_stall"): "0.11",
    STALL.format("barrier"): "0.03", STALL.format("branch_resolving"): "0.02", STALL.format("not_selected"): "0",
}
PROBLEM = profiler.Problem("float32", 8, 1, 1024, 64, False)
BEFORE = """\
==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be inconsistent.
==PROF== Connected to process 1225 (/course/build/default/bin/bench_attention)
attention on NVIDIA H200: batch 8, 1 heads of 64, float32; 1 passes after 1
"lines of the program"
"in quotes"

seq_len 1024, not causal, float32
         flash        834.2           1.1      835.3     8.998           -         2.031             70       8.031
==PROF== Disconnected from process 1225
"""


def ncu_text(changes: dict[str, str] | None = None, kernel: str = KERNEL, launches: int = 1) -> str:
    """What ncu --csv prints, the program's lines before it."""
    stream = io.StringIO()
    table = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
    table.writerow(["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
                    "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value"])
    stream.write("==WARNING== a word of ncu's own\n")
    for launch in range(launches):
        for name, value in (COUNTED | (changes or {})).items():
            table.writerow([launch, "1225", "bench_attention", "127.0.0.1", kernel, "1", "7", "(128, 1, 1)", "(64, 1, 1)", "0",
                            "9.0", "Command line profiler metrics", name, "", value if launch == 0 else "77"])
    return BEFORE + stream.getvalue()


def figure(number: int, changes: dict[str, str] | None = None, problem: profiler.Problem = PROBLEM,
           kernel: str = KERNEL) -> tuple[dict[str, str], str]:
    """One of the five, as its rows by their labels, and what it says."""
    found = profiler.parse(ncu_text(changes, kernel))
    assert found is not None
    one = profiler.figures(found, problem)[number - 1]
    return dict(one.rows), one.meaning


class Parse(unittest.TestCase):
    def test_numbers_are_found_among_the_lines_of_the_program(self) -> None:
        found = profiler.parse(ncu_text())
        self.assertEqual(found.kernel, KERNEL)
        self.assertEqual(found.get("dram__bytes_read.sum"), 6392320)
        self.assertEqual(found.get("sm__cycles_active.avg"), 164327.15)

    def test_what_was_not_counted_is_absent(self) -> None:
        for text in ("n/a", "no data", "", "nan", "inf", "(1, 1, 1)"):
            found = profiler.parse(ncu_text({"gpu__time_duration.sum": text}))
            self.assertNotIn("gpu__time_duration.sum", found.metrics, text)

    def test_the_second_name_is_taken_where_the_first_was_not_counted(self) -> None:
        found = profiler.parse(ncu_text())
        self.assertEqual(found.get(*profiler.DRAM_SHARE), 0.76)

    def test_of_several_launches_the_first(self) -> None:
        self.assertEqual(profiler.parse(ncu_text(launches=2)).get("launch__grid_size"), 64)

    def test_output_without_a_table_or_without_rows_is_no_profile(self) -> None:
        header = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
        for text in ("", BEFORE, BEFORE + header):
            self.assertIsNone(profiler.parse(text))

    def test_the_configuration_is_read_from_the_kernels_name(self) -> None:
        old = "void flash_forward_kernel<float, Config<(int)128, (int)32, (int)16, (int)2>>(float)"
        self.assertEqual(profiler.parse(ncu_text()).tiles, profiler.Tiles(64, 128, 64, 4))
        self.assertEqual(profiler.Profile(old, {}).tiles, profiler.Tiles(128, 32, 16, 2))
        self.assertIsNone(profiler.Profile("flash_forward_kernel(float)", {}).tiles)


class SectionSeven(unittest.TestCase):
    """asked_bytes() against the tables of the handout, and against a count of its own."""

    def test_the_table(self) -> None:
        for queries, keys, causal, gib in ((64, 32, False, 16.06), (64, 32, True, 8.09), (128, 64, False, 8.06),
                                           (128, 64, True, 4.09)):
            problem = profiler.Problem("float32", 8, 1, 16384, 64, causal)
            asked = profiler.asked_bytes(problem, profiler.Tiles(64, queries, keys, 4))
            self.assertAlmostEqual((asked + problem.result_bytes) / 2**30, gib, delta=0.005)

    def test_where_nothing_divides_and_a_head_is_in_slices(self) -> None:
        # Blocks of 4, 4 and 2 queries see 4, 8 and 10 of 10 keys, in 2, 3 and 4 blocks of 3. The 5 columns are 2 slices of 4.
        problem = profiler.Problem("float16", 1, 3, 10, 5, True)
        q, k, v = 4 * 2 * 2 + 4 * 2 * 3 + 2 * 2 * 4, 2 * (6 + 9 + 10), 6 + 9 + 10
        self.assertEqual(profiler.asked_bytes(problem, profiler.Tiles(4, 4, 3, 1)), 2 * 3 * 5 * (q + k + v))
        self.assertEqual(profiler.asked_bytes(problem, profiler.Tiles(8, 4, 3, 1)), 2 * 3 * 5 * (10 + v + v))


class Arithmetic(unittest.TestCase):
    def test_time_rate_and_shares(self) -> None:
        rows, _ = figure(1)
        self.assertEqual(rows["time"], f"0.1756 ms, {4 * 8 * 1024**2 * 64 / 175616e-9 * 1e-12:.3g} TFLOP/s")
        self.assertEqual(rows["multiply-add pipe"],
                         "41.8 % of its peak where a multiprocessor has work; 19.9 % of the whole GPU's")
        self.assertEqual(rows["multiprocessors"], "132; 48 % of the time with work")
        self.assertEqual(rows["grid"], "64 thread blocks; room for 264 at a time")

    def test_the_rate_counts_the_keys_that_are_seen(self) -> None:
        causal = profiler.Problem("float32", 2, 3, 100, 32, True)
        self.assertEqual(causal.flops, 4 * 2 * 3 * 32 * sum(range(1, 101)))

    def test_a_grid_that_is_too_small(self) -> None:
        meaning = figure(1)[1]
        self.assertIn("52 % of the GPU stood idle", meaning)
        self.assertIn("The grid is too small: 68 of 132 multiprocessors got no thread block.", meaning)

    def test_a_grid_whose_last_turn_is_not_full(self) -> None:
        meaning = figure(1, {"launch__grid_size": "396"})[1]
        self.assertIn("The grid is 1.5 times what fits at a time", meaning)
        self.assertNotIn("too small", meaning)

    def test_a_busy_gpu(self) -> None:
        meaning = figure(1, {"sm__cycles_active.avg": "340,000", FMA + "_active": "85"})[1]
        self.assertEqual(meaning, "Nearly the whole GPU has work from start to end. The pipe is near its limit: only fewer "
                                  "operations would be faster.")

    def test_the_pipes_other_name(self) -> None:
        absent = {FMA + "_active": "n/a", FMA + "_elapsed": "n/a"}
        rows = figure(1, absent | {INST_FMA + "_active": "61", INST_FMA + "_elapsed": "60"})[0]
        self.assertEqual(rows["multiply-add pipe"], "61 % of its peak where a multiprocessor has work; 60 % of the whole GPU's")

    def test_multiprocessors_by_the_devices_attribute(self) -> None:
        rows = figure(1, {"launch__sm_count": "n/a", "device__attribute_multiprocessor_count": "40"})[0]
        self.assertEqual(rows["grid"], "64 thread blocks; room for 80 at a time")


class DeviceMemory(unittest.TestCase):
    def test_traffic_beside_the_tensors_and_the_formula(self) -> None:
        rows, meaning = figure(2)
        self.assertEqual(rows["traffic"], f"{6392320 / 2**20:.4g} MiB read; 0 MiB written; 0.76 % of the peak rate")
        self.assertEqual(rows["each tensor once"], "6 MiB of q, k, v; 2.031 MiB of out, lse")
        self.assertEqual(rows["all thread blocks"], "load 34 MiB, with 128 queries a block (section 7)")
        self.assertEqual(rows["L2 cache"], "answers 82 % of what reaches it")
        self.assertEqual(meaning, "Each input came from device memory about once; when further thread blocks ask for K and V, "
                                  "L2 answers. What is missing of out and lse still lay in L2 when the kernel ended. Device "
                                  "memory is not the limit.")

    def test_tensors_of_16_bits(self) -> None:
        rows = figure(2, problem=profiler.Problem("bfloat16", 8, 1, 1024, 64, False))[0]
        self.assertEqual(rows["each tensor once"], "3 MiB of q, k, v; 1.031 MiB of out, lse")

    def test_inputs_that_come_again_and_again(self) -> None:
        meaning = figure(2, {"dram__bytes_read.sum": str(18 * 2**20), "dram__bytes_write.sum": str(2 * 2**20),
                             "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "88"})[1]
        self.assertIn("was read 3.0 times over", meaning)
        self.assertNotIn("missing of out", meaning)
        self.assertIn("Device memory is near its limit", meaning)

    def test_more_written_than_results(self) -> None:
        self.assertIn("More was written than out and lse", figure(2, {"dram__bytes_write.sum": str(4 * 2**20)})[1])

    def test_another_kernel_has_no_formula(self) -> None:
        self.assertNotIn("all thread blocks", figure(2, kernel="flash_forward_kernel(float)")[0])


class Occupancy(unittest.TestCase):
    def test_what_was_there_and_what_limits_it(self) -> None:
        rows, meaning = figure(3)
        self.assertEqual(rows["warps"], "6.25 % of what a multiprocessor can hold; of this kernel 12.5 % fit")
        self.assertEqual(rows["blocks that fit"], "by registers 2, by shared memory 2, by warps 16, by blocks 32")
        self.assertEqual(rows["a thread block"], "128 threads; 253 registers each; 104 KiB of shared memory")
        self.assertIn("The limit is registers and shared memory: no more than 2 thread blocks on a multiprocessor.", meaning)
        self.assertIn("Not even those were there: the grid has 64 thread blocks, and there is room for 264.", meaning)

    def test_one_limit_and_a_tail(self) -> None:
        meaning = figure(3, {"launch__occupancy_limit_shared_mem": "1", "launch__grid_size": "300"})[1]
        self.assertIn("The limit is shared memory: no more than 1 thread block on a multiprocessor.", meaning)
        self.assertIn("thread blocks do not end together", meaning)

    def test_a_full_house(self) -> None:
        self.assertNotIn("Not even", figure(3, {"sm__warps_active.avg.pct_of_peak_sustained_active": "12.3"})[1])

    def test_static_shared_memory_counts(self) -> None:
        self.assertIn("105 KiB", figure(3, {"launch__shared_mem_per_block_static": "1,024"})[0]["a thread block"])


class SharedMemory(unittest.TestCase):
    def test_no_conflicts_and_no_spills(self) -> None:
        rows, meaning = figure(4)
        self.assertEqual(rows, {"bank conflicts": "0 of 6,938,880 turns, 0.0 %", "local memory": "0 loads; 0 stores"})
        self.assertEqual(meaning, "Lanes that use shared memory at the same time come to different banks. S, O, m and l are "
                                  "registers: nothing is spilled.")

    def test_conflicts(self) -> None:
        rows, meaning = figure(4, {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "1,734,720"})
        self.assertEqual(rows["bank conflicts"], "1,734,720 of 6,938,880 turns, 25.0 %")
        self.assertIn("Of 100 turns at shared memory 25 are repeats", meaning)

    def test_spills_by_either_name(self) -> None:
        for name in ("smsp__sass_inst_executed_op_local_{}.sum", "smsp__inst_executed_op_local_{}.sum"):
            absent = {"smsp__sass_inst_executed_op_local_ld.sum": "n/a", "smsp__sass_inst_executed_op_local_st.sum": "n/a"}
            rows, meaning = figure(4, absent | {name.format("ld"): "4,096", name.format("st"): "0"})
            self.assertEqual(rows["local memory"], "4,096 loads; 0 stores")
            self.assertIn("What should be registers lies in local memory", meaning)
            self.assertNotIn("nothing is spilled", meaning)


class Waiting(unittest.TestCase):
    def test_the_largest_reasons_in_words(self) -> None:
        rows, meaning = figure(5)
        self.assertEqual(list(rows), ["issue", "a warp", "long_scoreboard", "wait", "no_instruction"])
        self.assertEqual(rows["issue"], "an instruction in 49.6 % of the cycles in which a scheduler had warps")
        self.assertEqual(rows["a warp"], "2.01 cycles from one instruction to the next: 1 to issue it, 1.01 of waiting")
        self.assertEqual(rows["long_scoreboard"],
                         "0.33 cycles: a load from device memory or L2 is on its way: Q, K, V, or a spilled register")
        self.assertEqual(meaning, "In 50 of 100 cycles no warp of a scheduler could go on. A scheduler had 1.0 warps to choose "
                                  "from: while one waits, hardly another is there to run. Most of the waiting that could be "
                                  "less is long_scoreboard.")

    def test_what_is_no_loss_is_not_blamed(self) -> None:
        rows, meaning = figure(5, {STALL.format("not_selected"): "1.5", STALL.format("math_pipe_throttle"): "0.9"})
        self.assertEqual(list(rows)[2:], ["not_selected", "math_pipe_throttle", "long_scoreboard"])
        self.assertIn("A scheduler had 2.2 warps to choose from.", meaning)
        self.assertTrue(meaning.endswith("could be less is long_scoreboard."), meaning)

    def test_busy_schedulers(self) -> None:
        meaning = figure(5, {"smsp__issue_active.avg.pct_of_peak_sustained_active": "91"})[1]
        self.assertIn("nearly always busy", meaning)
        self.assertNotIn("could be less", meaning)

    def test_each_reason_has_its_sentence(self) -> None:
        for reason, words in profiler.REASONS.items():
            self.assertGreater(len(words), 8, reason)
            self.assertIn(STALL.format(reason), profiler.METRICS)


class NotCounted(unittest.TestCase):
    def test_a_gpu_without_any_of_the_counters(self) -> None:
        nothing = profiler.Profile("flash_forward_kernel(float)", {})
        for one in profiler.figures(nothing, PROBLEM):
            for label, value in one.rows:
                if label != "each tensor once":
                    self.assertEqual(value, "not counted on this GPU", (one.title, label))
            self.assertEqual(one.meaning, "")

    def test_any_one_that_lacks_is_no_crash(self) -> None:
        for name in COUNTED:
            for value in ("n/a", "0"):
                with self.subTest(name=name, value=value):
                    for number in range(1, 6):
                        figure(number, {name: value})

    def test_all_that_is_read_is_asked_for_once(self) -> None:
        self.assertEqual(set(COUNTED) - set(profiler.METRICS), set())
        self.assertEqual(len(set(profiler.METRICS)), len(profiler.METRICS))


class Trouble(unittest.TestCase):
    def test_the_counters_are_for_administrators(self) -> None:
        output = BEFORE + "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance ..."
        said = profiler.profiler_trouble(1, output, is_root=False)
        for words in ("only an administrator", "as root (sudo ./lab profile)", "NVreg_RestrictProfilingToAdminUsers=0",
                      "--cap-add=SYS_ADMIN"):
            self.assertIn(words, said)
        self.assertNotIn("\n", said)
        self.assertNotIn("sudo", profiler.profiler_trouble(1, output, is_root=True))

    def test_another_error_is_ncus_last(self) -> None:
        output = "==ERROR== Failed to prepare kernel\n==ERROR== The application returned an error code (9).\nbye\n"
        self.assertEqual(profiler.profiler_trouble(9, output, False),
                         "ncu failed (exit code 9): The application returned an error code (9).")
        said = profiler.profiler_trouble(7, "hello\nno such option\n\n", False)
        self.assertEqual(said, "ncu failed (exit code 7): no such option")
        self.assertEqual(profiler.profiler_trouble(7, "", False), "ncu failed (exit code 7): it printed nothing")

    def test_no_kernel(self) -> None:
        said = profiler.profiler_trouble(0, BEFORE + "==WARNING== No kernels were profiled.\n", False)
        self.assertEqual(said, "ncu profiled no kernel: none with flash_forward in its name was launched often enough")

    def test_the_program(self) -> None:
        for output, wanted in (
                ("attention\n\ntask part3.measure_attention is not started, so rows of 'flash' are missing; next: ...\n",
                 "task part3.measure_attention is not started, so that there is nothing to profile; next: "
                 "./lab check part3.measure_attention (or ./lab profile --solution)"),
                ("error: --device is 'cuda'; it must be cpu here\n", "error: --device is 'cuda'; it must be cpu here"),
                ("table\nflash: error: wrong result: out\n\nsaved in x.csv\n", "flash: error: wrong result: out"),
                ("table\nflash: OOM: 1 GiB more\n\nsaved in x.csv\n", "flash: OOM: 1 GiB more"),
                ("attention\ncaches\n", "the program ended with exit code 1; last line: caches"),
                ("", "the program ended with exit code 1; last line: it printed nothing")):
            self.assertEqual(profiler.program_trouble(1, output), wanted)


SCRIPT = '''#!{python} -IS
import json, os, sys
with open({calls!r}, "a") as calls:
    print(json.dumps([os.path.basename(sys.argv[0]), os.environ.get("FLASH_TUNING_FILE"), *sys.argv[1:]]), file=calls)
{body}
sys.stdout.write({out!r})
sys.exit({code})
'''
WRITE_ROW = '''
with open(sys.argv[sys.argv.index("--output") + 1], "w") as table:
    table.write({text!r})
'''
ROW = dict(implementation="flash", d_model="128", seq_len="2048", forward_ms="1.5", forward_peak_MiB="1", backward_ms="2",
           backward_peak_MiB="1", saved_activations_MiB="1", status="ok", gpu="NVIDIA H200", device="cuda", dtype="float32",
           batch="8", heads="2", causal="False", total_ms="3.5", tflops="1", percent_of_peak="")
OUT_OF_MEMORY = ROW | dict(forward_ms="", forward_peak_MiB="", backward_ms="", backward_peak_MiB="", saved_activations_MiB="",
                           total_ms="", tflops="", status="OOM")


class Verb(Course):
    """./lab profile with scripts in the place of ncu and bench_attention."""

    cuda = "gpu"

    def setUp(self) -> None:
        super().setUp()
        self.write("part3_flash_cuda/tasks.toml", MANIFEST.replace("part1", "part3"))
        self.write("part3_flash_cuda/skeleton/fused_cpu.cpp", "")
        self.write("part3_flash_cuda/solution/fused_cpu.cpp", "")
        self.write("part2_flash_cpu/tasks.toml", MANIFEST.replace("part1", "part2"))
        self.write("part2_flash_cpu/skeleton/fused_cpu.cpp", "")
        self.program()
        self.ncu()
        foreign = ("FLASH_TUNING_FILE", "CUDA_HOME", "CUDACXX")
        environment = {name: value for name, value in os.environ.items() if name not in foreign}
        environment |= {"PATH": str(self.root / "tool"), "XDG_CACHE_HOME": str(self.root / "cache")}
        self.temporary = self.root / "temporary"
        self.temporary.mkdir()
        for patch in (mock.patch.dict(os.environ, environment, clear=True),
                      mock.patch.object(system, "CUDA", self.root / "cuda"),
                      mock.patch.object(tempfile, "tempdir", str(self.temporary))):
            patch.start()
            self.addCleanup(patch.stop)

    def script(self, path: str, out: str, code: int, body: str = "") -> None:
        script = SCRIPT.format(python=sys.executable, calls=str(self.root / "calls"), out=out, code=code, body=body)
        self.write(path, script).chmod(0o755)

    def program(self, out: str = "attention\n", code: int = 0, row: dict[str, str] | None = ROW) -> None:
        table = "" if row is None else WRITE_ROW.format(text=",".join(attention_results.COLUMNS) + "\n" + ",".join(
            row[column] for column in attention_results.COLUMNS) + "\n")
        for name in ("bench_attention_skeleton", "bench_attention"):
            self.script(f"build/default/bin/{name}", out, code, table)

    def ncu(self, out: str | None = None, code: int = 0, path: str = "tool/ncu") -> None:
        self.script(path, ncu_text() if out is None else out, code)

    def calls(self) -> list[list[str]]:  # type: ignore[override]
        file = self.root / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []

    def error(self, *argv: str) -> str:
        code, out = self.lab("profile", *argv)
        self.assertEqual(code, 1, out)
        last = out.splitlines()[-1]
        self.assertTrue(last.startswith("lab: "), out)
        self.assertEqual(list(self.temporary.iterdir()), [])
        return last.removeprefix("lab: ")

    def after(self, words: list[str], option: str) -> str:
        return words[words.index(option) + 1]

    def test_five_figures_of_the_problem_that_the_program_measured(self) -> None:
        code, out = self.lab("profile", "part3")
        self.assertEqual(code, 0, out)
        self.assertIn("\nNVIDIA H200, batch 8, 2 heads of 64, float32, seq_len 2048, not causal; "
                      "128 queries x 64 keys, 4 warps\n", out)
        for number, title in enumerate(("Time and multiply-adds", "Device memory", "Occupancy", "Shared memory and spills",
                                        "What warps wait for"), 1):
            self.assertIn(f"\n{number}  {title}\n   ", out)
        self.assertIn("   each tensor once   24 MiB of q, k, v; 8.125 MiB of out, lse\n", out)

    def test_the_program_runs_alone_first_and_then_under_ncu(self) -> None:
        self.assertEqual(self.lab("profile")[0], 0)
        alone, profiled = self.calls()
        self.assertEqual((alone[0], profiled[0]), ("bench_attention_skeleton", "ncu"))
        place = profiled.index(str(self.binary("bench_attention_skeleton")))
        self.assertEqual(profiled[place + 1:], alone[2:])
        for option, value in verb.DEFAULTS.items():
            self.assertEqual(self.after(alone, option), value)
        ncus = profiled[:place]
        self.assertEqual(self.after(ncus, "--kernel-name"), "regex:flash_forward")
        self.assertEqual(self.after(ncus, "--metrics").split(","), list(profiler.METRICS))
        self.assertEqual([self.after(ncus, f"--launch-{what}") for what in ("skip", "count")], ["2", "1"])
        self.assertEqual((self.after(ncus, "--print-units"), self.after(ncus, "--clock-control")), ("base", "none"))
        self.assertEqual(self.built, ["bench_attention_skeleton"])

    def test_the_commands_are_shown(self) -> None:
        out = self.lab("profile")[1]
        self.assertIn("\n$ build/default/bin/bench_attention_skeleton --device cuda --impl flash --batch 8", "\n" + out)
        self.assertRegex(out, r"\n\$ \S+/tool/ncu --csv .* build/default/bin/bench_attention_skeleton --device cuda .*--output")

    def test_nothing_is_left_behind(self) -> None:
        self.lab("profile")
        self.assertEqual(Path(self.after(self.calls()[0], "--output")).parents[1], self.temporary)
        self.assertEqual(list(self.temporary.iterdir()), [])
        self.assertFalse((self.root / "outputs").exists())

    def test_the_solution(self) -> None:
        self.lab("profile", "--solution")
        self.assertEqual((self.built, self.calls()[0][0]), (["bench_attention"], "bench_attention"))

    def test_options_take_the_place_of_what_is_the_default(self) -> None:
        for words, skipped in ((("--warmups", "5"), "6"), (("--warmups=7",), "8"), (("--causal=on",), "2")):
            (self.root / "calls").unlink(missing_ok=True)
            self.assertEqual(self.lab("profile", "--", "--seq-lens", "512", *words)[0], 0)
            alone, profiled = self.calls()
            self.assertEqual(self.after(alone, "--seq-lens"), "512")
            self.assertEqual(sum(word.startswith(words[0].split("=")[0]) for word in alone[2:]), 1, alone)
            self.assertEqual(self.after(profiled, "--launch-skip"), skipped)

    def test_help_of_the_program(self) -> None:
        self.program(out="", row=None)
        self.assertEqual(self.lab("profile", "--", "--help")[0], 0)
        self.assertEqual([call[2:] for call in self.calls()], [["--device", "cuda", "--help"]])

    def test_the_tuners_own_file_is_left_to_it_where_it_can_be_written(self) -> None:
        self.lab("profile")
        self.assertEqual([call[1] for call in self.calls()], [None, None])

    def test_else_both_runs_share_one_that_goes_with_the_profile(self) -> None:
        self.write("cache", "a file where a folder should be")
        with mock.patch.dict(os.environ, PATH=f"{self.root / 'tool'}:/usr/bin:/bin"):  # env is a program
            code, out = self.lab("profile")
        self.assertEqual(code, 0, out)
        alone, profiled = (call[1] for call in self.calls())
        self.assertEqual(alone, profiled)
        self.assertEqual(Path(alone).parent, Path(self.after(self.calls()[0], "--output")).parent)
        self.assertIn(f"$ env FLASH_TUNING_FILE={alone} build/default/bin/bench_attention_skeleton", out)

    def test_no_cuda_no_gpu(self) -> None:
        self.cuda = "none"
        self.assertIn("this build has no CUDA", self.error())
        self.cuda = "toolkit"
        self.assertIn("there is no GPU here", self.error())
        self.assertEqual((self.built, self.calls()), ([], []))

    def test_no_ncu(self) -> None:
        (self.root / "tool/ncu").unlink()
        self.assertIn("there is no ncu (Nsight Compute) in PATH or beside nvcc: it is part of NVIDIA's CUDA", self.error())
        self.assertEqual(self.calls(), [])

    def test_ncu_is_found_beside_the_toolkit(self) -> None:
        (self.root / "tool/ncu").unlink()
        self.write("real/bin/nvcc", "#!/bin/sh\n").chmod(0o755)
        os.symlink(self.root / "real/bin/nvcc", self.root / "tool/nvcc")
        for folder in ("real/bin", "home/bin", "cuda/bin"):  # each is looked at before the one in front of it
            self.ncu(path=f"{folder}/ncu")
            with mock.patch.dict(os.environ, CUDA_HOME=str(self.root / "home")):
                self.assertEqual(system.find_ncu(), str(self.root / folder / "ncu"))
        self.assertEqual(self.lab("profile")[0], 0)

    def test_a_program_that_does_not_build(self) -> None:
        self.broken["bench_attention_skeleton"] = "flash_forward_cuda.cu:3: error: no"
        self.assertEqual(self.error(), "bench_attention_skeleton does not build: flash_forward_cuda.cu:3: error: no")

    def test_a_task_that_is_not_started(self) -> None:
        self.program("\ntask part3.flash_forward_cuda is not started, so rows of 'flash' are missing\n", 1, row=None)
        self.assertIn("task part3.flash_forward_cuda is not started, so that there is nothing to profile", self.error())
        self.assertEqual([call[0] for call in self.calls()], ["bench_attention_skeleton"])

    def test_a_wrong_result(self) -> None:
        self.program("flash: error: wrong result: out of batch 7\n\nsaved in x\n", 1)
        self.assertEqual(self.error(), "flash: error: wrong result: out of batch 7")

    def test_no_memory_is_a_row_and_no_profile(self) -> None:
        self.program("flash: OOM: 3 GiB more\n\nsaved in x\n", row=OUT_OF_MEMORY)
        self.assertEqual(self.error(), "flash: OOM: 3 GiB more")

    def test_what_stops_ncu(self) -> None:
        self.ncu("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", 1)
        self.assertIn("ERR_NVGPUCTRPERM: the driver lets only an administrator", self.error())
        self.ncu("==WARNING== No kernels were profiled.\n")
        self.assertIn("ncu profiled no kernel", self.error())
        self.ncu("==ERROR== the driver is too old\n", 3)
        self.assertEqual(self.error(), "ncu failed (exit code 3): the driver is too old")

    def test_other_mistakes(self) -> None:
        self.assertIn("--output is not for a profile", self.error("--", "--output", "x.csv"))
        self.assertIn("--output is not for a profile", self.error("--", "--output=x.csv"))
        self.assertEqual(self.lab("profile", "part1")[0], 2)
        (self.part.parent / "part3_flash_cuda/solution/fused_cpu.cpp").unlink()
        (self.part.parent / "part3_flash_cuda/solution").rmdir()
        self.assertEqual(self.error("--solution"), "part3 has no solution/ folder here")


if __name__ == "__main__":
    unittest.main()
