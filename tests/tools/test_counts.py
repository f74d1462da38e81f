"""What the emulator counts of a kernel, and what `./lab profile` says of slow ones.

Needs the solutions' checked libraries in the build that FLASH_BUILD names.
"""

import dataclasses
import re

from course import BUILD, Built, Test
from lab import advice, arithmetic, build, counts, manifest, outcomes, running, timeline, zoo
from lab.backends import CHECKED, Backends
from lab.verbs.author import counts as comparison
from lab.verbs.student import look, profile

ALL_LOADS = "checks: loads are coalesced"
V_LOOPS = """for (int c = threadIdx.x; c < kFusedChunk; c += kThreads) {
      FLASH_UNROLL_BY(8)  // eight loads in flight
      for (int j = 0; j < BLOCK_2; ++j) {"""


class Planted(Built):
    """Right kernels with one mistake each that makes them slow."""

    def findings(self, task: str, case: str, *edit: str) -> list[str]:
        task, = manifest.select(manifest.load_parts(), [task])
        self.member = zoo.Member("slow", task, self._testMethodName, edit)
        folder = self.folder()
        file = folder / "counts.tsv"
        self.run_member(self.member, CHECKED, [case], profile=True, variables={
            counts.VARIABLE: str(file), counts.EVENTS: str(folder)})
        launches, self.story_folder = counts.load(file), folder
        self.story, = timeline.stories(launches, folder)
        self.broken = [broken for broken in counts.habits(launches, task.part).values() if broken]
        return counts.findings(launches, task.part)

    def assert_named(self, found: list[str], code: str, pattern: str) -> None:
        """A sentence names the line of `code` in the member's file, and matches."""
        source = self.member.source()
        number = source[:source.index(code)].count("\n") + 1
        place = f"{self.member.task.file}:{number}"
        self.assertTrue(any(where.endswith(place) for broken in self.broken for where in broken),
                        (place, self.broken))
        wanted = rf"{re.escape(place)}\b.*{pattern}"
        self.assertTrue(any(re.search(wanted, text) for text in found), (wanted, found))

    def test_the_solution_s_only_slow_access_is_the_store_of_its_result(self):
        found = self.findings("fused_cuda", ALL_LOADS)
        self.assert_named(found, "out(b, row0 + r, column) =", "store out: not coalesced")
        self.assertTrue(all("store out" in text or "load x" in text for text in found), found)
        v = [hold for hold in self.story.holds if hold.tensor == "v" and hold.block == 0]
        self.assertEqual([hold.rectangles for hold in v], [[(0, 32, 0, 256)], [(32, 64, 0, 256)]])
        self.assertTrue(v[0].end == v[1].begin and v[0].shared == v[1].shared, v)  # its successor
        self.assertEqual(list(self.story.remarks()), [])
        for name in ("x", "v"):
            self.assertTrue(any(hold.reads for hold in self.story.holds if hold.tensor == name))
        *_, last = self.story.softmax(self.story_folder, [40])
        stored, = self.story.stored(self.story_folder, [40])
        for mine, its in zip(last["out"], stored["out"], strict=True):
            self.assertAlmostEqual(mine, its, places=5)

    def test_a_stride_of_32_floats(self):
        found = self.findings(
            "fused_cuda", ALL_LOADS, "kPOfWarp = BLOCK_2 * kRowsPerWarp", "kPOfWarp = BLOCK_2 * 32",
            "(s * kLanesPerRow + first_key) * kRowsPerWarp", "(s * kLanesPerRow + first_key) * 32",
            "&P_smem[j * kRowsPerWarp + r]", "&P_smem[j * 32 + r]")
        self.assert_named(found, "(s * kLanesPerRow + first_key) * 32",
                          "store shared memory: bank conflicts: a request takes 4 wavefronts")

    def test_v_that_is_not_coalesced(self):
        found = self.findings(
            "fused_cuda", ALL_LOADS, V_LOOPS,
            "for (int j = threadIdx.x; j < BLOCK_2; j += kThreads) {\n"
            "      for (int c = 0; c < kFusedChunk; ++c) {")
        self.assert_named(found, "inside ? v(b, key0 + j", "load v: not coalesced: a request "
                          "touches 32 sectors")

    def test_a_tile_that_every_warp_loads(self):
        found = self.findings("fused_cuda", ALL_LOADS, "for (int c = threadIdx.x; c < kFusedChunk; "
                              "c += kThreads)", "for (int c = lane; c < kFusedChunk; c += 32)")
        self.assert_named(found, "inside ? v(b, key0 + j", "v is loaded 8 times, and each thread "
                          "block needs it at most once: 2 times")
        self.assertIn("columns 0 to 255 of v 4 times", "".join(self.story.remarks()))

    def test_a_causal_loop_that_is_not_divided(self):
        found = self.findings(
            "flash_forward_cuda", "causal: sequence 257",
            "some_see = shape.visible_keys(last, causal)", "some_see = shape.keys")
        for tensor in "kv":
            call = "load_tile<C::kBlockK, C::kHeadDim, C::kThreads>("
            self.assert_named(found, f"{call}\n{' ' * (8 if tensor == 'v' else 10)}{tensor}_head",
                              f"{tensor} is loaded 3 times under a causal mask")
        drawn = {rectangle for _, rectangle, *_ in self.story.scores()}
        self.assertIn((0, 128, 192, 256), drawn)  # which the solution's loop leaves out


class Profile(Built):
    def test_it_shows_lines_tensors_the_roofline_and_the_occupancy(self):
        task, = manifest.select(manifest.load_parts(), ["fused_cuda"])
        if not running.library(task, "solution", CHECKED).is_file():
            self.skipTest("the solution is not built")
        _, shown = self.printed(profile._count_case, task, ALL_LOADS, "solution", "T4", {})
        for pattern in (r"fused_cuda\.cu:\d+ +load v +4 +1024 +4 +100%",
                        r"fused_cuda\.cu:\d+ +__syncthreads +4 +128 +0%",
                        r"fused_cuda\.cu:\d+ +1048576 +1048576 +32", "device memory, 13312 sectors",
                        r"fused_softmax_matmul +v +65536 +2 times", r"Roofline: 4\.92 operations",
                        r"128 threads and 36864 bytes of shared.* A100 4 \(16 of 64 warps"):
            self.assertRegex(shown, pattern)
        _, shown = self.printed(profile._count_case, task, "ragged: 3 x 33 x 47 x 65", "solution",
                                "T4", {})
        for pattern in (r"__syncthreads +27 +64 +[1-9]%",  # of the last rows a block has only one
                        r"fused_cuda\.cu:\d+ +6435 +2\d"):  # 3 x 33 x 65, and ends of rows
            self.assertRegex(shown, pattern)

    def test_every_cuda_task_can_be_profiled(self):
        self.patch(counts, library=lambda task, implementation: None)  # compiles it once more
        for task in manifest.select(manifest.load_parts(), []):
            if task.is_cuda and running.library(task, "solution", CHECKED).is_file():
                with self.subTest(task.name):
                    for case in counts.cases(task, None)[:1]:
                        _, shown = self.printed(profile._count_case, task, case, "solution", "T4",
                                                {})
                        self.assertRegex(shown, rf"{task.file}:\d+ +load ")
                    if task.name == "flash_decode_cuda":  # of 8 lines each
                        self.assertRegex(shown, r"store shared +16 +512 +8 +0")


class StraightCode(Test):
    def test_its_arithmetic_is_counted_where_it_ends(self):
        counted = arithmetic.counted("""\t.file 1 "/a" "one.cu"
\t.loc 1 7 3
\tvfmadd231ss\t%xmm0, %xmm1, %xmm2
\tcall\t__tsan_read4@PLT
\t.loc 1 8 3
\taddsd\t%xmm0, %xmm1
\tjne\t.L2
.L2:
\tret""")
        self.assertRegex(counted, r"\n\tflash_piece 0\n\tjne")
        self.assertRegex(counted, r"times\+8\*0\n\t\.long 7, 2, 1, 1\n.*\n\t\.long 8, 1, 0, 1\n")


class Ptx(Test):
    PTX = """.loc 1 7 3
ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
.loc 2 5 1, function_name $L__info_string0, inlined_at 1 9 5
ld.shared.f32 %f5, [%r1];
.file 1 "/somewhere/one.cu"
.file 2 "/somewhere/tile.hpp"
"""

    def test_an_access_that_the_compiler_widened_is_named(self):
        lines = [counts.Line("one", f"part/one.cu:{line}", "load", tensor, 4)
                 for line, tensor in ((7, "x"), (9, counts.SHARED))]
        merged, = counts.merged(lines, self.PTX)
        self.assertIn("part/one.cu:7: nvcc merges: 4 of these accesses (load x) are one instruction "
                      "of 16 bytes", merged)
        lines[0].width = 16
        self.assertEqual(counts.merged(lines, self.PTX), [])


class Advice(Test):
    def test_a_failed_case_names_what_shows_it(self):
        config = build.Config("", "", "none", "", "", True, True)
        task, = manifest.select(manifest.load_parts(), ["fused_cuda"])
        wrong = "2 of 8 elements are wrong\nfirst at row 1: got 0, expected 1"
        for message, verb in (("16 sectors", "profile fused_cuda"),
                              (wrong, f'look fused_cuda --case "{ALL_LOADS}"')):
            failed = outcomes.CaseResult(ALL_LOADS, outcomes.WRONG, message,
                                         requirement="access patterns")
            result = outcomes.TaskResult(task, "skeleton", outcomes.WRONG, [failed])
            lines = "".join(advice._about(result, Backends(config), None))
            self.assertIn(f"./lab {verb}", lines)


class Look(Test):
    def cells(self, html: str) -> list[str]:
        return re.findall(r'<td class="(\w+)">([^<]*)</td>', html)

    def page(self, tensor: str, width: int, offsets: range, **counted: int) -> str:
        line = counts.Line("one", "one.cu:7", "load", tensor, width, requests=1, lanes=len(offsets),
                           bytes=width * len(offsets), offsets=(*offsets,), **counted)
        return look.page("one", {"a": [counts.Launch("one", 1, 32, 0, False, {}, "", [line])]})

    def test_a_conflict_takes_a_row_for_each_word_of_the_bank(self):
        column = self.page(counts.SHARED, 4, range(0, 4096, 128), wavefronts=32, least=1)
        self.assertEqual([cell for cell in self.cells(column) if cell[1]],
                         [("used", "0"), *(("again", str(lane)) for lane in range(1, 32))])
        self.assertIn("bank conflicts: a request takes 32 wavefronts", column)
        padded = self.page(counts.SHARED, 4, range(0, 32 * 132, 132), wavefronts=1, least=1)
        self.assertEqual(self.cells(padded), [("used", str(lane)) for lane in range(32)])

    def test_lanes_of_16_bytes_come_in_quarters(self):
        page = self.page(counts.SHARED, 16, range(0, 512, 16), wavefronts=4, least=4)
        self.assertEqual(re.findall("<caption>(.*)</caption>", page),
                         [f"lanes {n} to {n + 7}" for n in (0, 8, 16, 24)])

    def test_what_moves_for_nothing_is_empty(self):
        page = self.page("x", 4, range(0, 2048, 64), sectors=32)
        self.assertEqual(self.cells(page)[:9],
                         [("used", "0"), *[("unused", "")] * 7, ("used", "1")])


class Picture(Test):
    EVENTS = """launch block step place what object number warps asked runs to
1 0 0 one.cu:7 load q 0 1 64 0-64 -
1 0 1 one.cu:8 load k 0 1 128 0-64 0-64
1 0 2 one.cu:9 load - 0 1 64 0-64 -
1 0 3 one.cu:8 load k 0 1 64 64-128 0-64
1 0 4 one.cu:5 store out 0 1 32 0-32 -
2 0 0 one.cu:5 store lse 0 1 32 0-32 -
"""

    def story(self) -> timeline.Story:
        return self.stories()[0]

    def stories(self) -> list[timeline.Story]:
        folder = self.folder()
        (folder / "events.tsv").write_text(self.EVENTS.replace(" ", "\t").replace("-\n", "\n")
                                           .replace("\t-\t", "\t\t"))
        shape = (4, 1, 1, 8, 4)
        tensors = {name: shape for name in ("q", "k", "v", "out", "lse")}
        launch = counts.Launch("one", 1, 32, 0, False, tensors, "", [])
        return timeline.stories([launch, dataclasses.replace(launch)], folder)

    def test_a_tile_is_held_until_its_memory_is_filled_anew(self):
        q, first, second = self.story().holds
        self.assertEqual((q.shared, first.end, first.reads, second.begin), (None, 3, [2], 3))

    def test_a_wrong_kernel_shows_its_mistakes(self):
        self.patch(timeline, SMALL=0)
        text = "\n".join(self.story().remarks())
        self.assertIn("rows 2 to 7 of out: not every element is ever written", text)
        self.assertIn("one.cu:8: block 0 loads rows 0 to 3, columns 0 to 3 of k 2 times",
                      text)

    def test_what_another_kernel_of_the_problem_writes_is_no_mistake(self):
        self.assertEqual([story.outputs for story in self.stories()], [["out"], ["lse"]])

    def test_scores_are_what_a_block_has_at_once(self):
        self.assertEqual([(rectangle, begin) for _, rectangle, begin, _ in self.story().scores()],
                         [((0, 4, 0, 4), 1), ((0, 4, 4, 8), 3)])

    def test_a_wait_ends_with_the_copies_of_its_phase(self):
        def event(step: int, warp: int, what: str, number: int) -> timeline.Event:
            return timeline.Event(1, 0, step, "one.cu:9", what, "64", number, [warp], 0, [], None)

        bars = timeline.pipeline([
            event(0, 4, "wait", 1), event(1, 0, "arrive", 0), event(2, 0, "copy", 0),
            event(3, 32, "landed", 0), event(4, 4, "go on", 1), event(5, 5, "go on", 1),
            event(6, 4, "wgmma", 1)])
        self.assertEqual(
            [(bar["lane"], bar["what"], bar["f"], bar["u"]) for bar in bars],
            [("warps 0 to 3", "arrive", 0, 1), ("warps 0 to 3", "issue copy", 1, 2),
             ("TMA", "copy", 2, 5), ("warps 4 to 7", "wait", 0, 5), ("warps 4 to 7", "wgmma", 5, 6)])

    def test_a_rung_stands_beside_the_task_s_kernel(self):
        program = BUILD / "bin/part1_look_checked"
        if not program.is_file():
            self.skipTest(f"{program} is not built")
        self.patch(build, build=lambda targets: build.BuildResult(True, "", ""),
                   binary=lambda target: BUILD / "bin" / target)
        folder = self.folder()
        launches = counts.run_rung("part1", "3_sgemm", folder)
        story, = timeline.stories(launches, folder)
        self.assertEqual([shown for shown, _ in story.figures().values()],
                         ["x once, v 2 times", "v: 2"])
        page = look.page("one", {}, beside={"3_sgemm": counts.figures(launches)})
        self.assertIn("<td>376</td>", page)
        library = BUILD / "lib/libpart1_fused_cuda_solution_checked.so"
        if library.is_file():
            launches = counts.run_rung("part1", "3_sgemm", folder, library)
            task_s, = timeline.stories(launches, folder)
            said, rows = timeline.compared({"fused_cuda": task_s, "3_sgemm": story})
            self.assertIn("fused_cuda takes at most 1.8 times as long as 3_sgemm", said)
            self.assertIn("the block waits: fused_cuda.cu:", rows[0][2])
            self.assertIn("hidden", rows[1][2])

    def test_the_page_opens_at_the_row_of_the_first_wrong_element(self):
        launch = self.story().launch
        launch.tensors["q"] = (4, 2, 3, 8, 4)
        row = look._wrong_row("2 of 8 elements are wrong\nfirst at batch 1, head 2, row 5, column 3: "
                              "got 0, expected 1", launch)
        self.assertEqual(row, (1 * 3 + 2) * 8 + 5)


class Nsight(Built):
    def test_the_emulator_counts_what_a_gpu_counts(self):
        """As the committed table of a Hopper GPU says of the small kernels: a solution that changes
        needs no GPU here."""
        program = BUILD / f"bin/{comparison.PROGRAM}_checked"
        if not program.is_file():
            self.skipTest(f"{program} is not built")
        emulated, kernels = comparison.emulate([program])
        rows = [row for row in comparison.with_emulator(emulated) if row["launch"] in kernels]
        self.assertGreater(len(rows), 1700)
        self.assertEqual([row for row in rows if comparison.differs(row)], [])
        self.assertEqual({row["kernel"] for row in rows if row["why"]}, {
            "fewer rounds for some lanes", "shared 8: 32 (l % 2)", "shared 16: 32 (l % 2)"})

    def test_the_table_says_why_counts_differ(self):
        rows = comparison.committed()
        self.assertEqual([row for row in rows if comparison.differs(row)], [])
        self.assertGreater({row["launch"].partition(".")[0] for row in rows},
                           {*comparison.TASKS, "3_sgemm", "6_warp_specialised", "8_ordered"})
        self.assertLessEqual({row["why"] for row in rows}, {"", *comparison.WHY})

    def test_ncu_s_table_is_read(self):
        file = self.folder() / "ncu.csv"
        metric = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
        file.write_text('==PROF== Connected to process 7\n"ID","Kernel Name","Metric Name",'
                        '"Metric Unit","Metric Value"\n'
                        f'"0","one(int)","{metric}","sector","1,024"\n"0","one","other","","5"\n')
        self.assertEqual(comparison.read_nsight(file, {"1": "one"}), {("1", "global load", "sectors"): 1024})
