"""What the emulator counts of a kernel, and what `./lab profile` says of slow ones.

Needs the solutions' checked libraries in the build that FLASH_BUILD names.
"""

import re

from course import BUILD, Built, Test
from lab import advice, counts, manifest, outcomes, running, zoo
from lab.backends import CHECKED
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
        file = self.folder() / "counts.tsv"
        self.run_member(self.member, CHECKED, [case], variables={counts.VARIABLE: str(file)})
        return counts.findings(counts.load(file), task.part)

    def assert_named(self, found: list[str], code: str, pattern: str) -> None:
        """A sentence names the line of `code` in the member's file, and matches."""
        source = self.member.source()
        number = source[:source.index(code)].count("\n") + 1
        wanted = rf"{re.escape(self.member.task.file)}:{number}\b.*{pattern}"
        self.assertTrue(any(re.search(wanted, text) for text in found), (wanted, found))

    def test_the_solution_s_only_slow_access_is_the_store_of_its_result(self):
        found = self.findings("fused_cuda", ALL_LOADS)
        self.assert_named(found, "out(b, row0 + r, column) =", "store out: not coalesced")
        self.assertTrue(all("store out" in text or "load x" in text for text in found), found)

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

    def test_a_causal_loop_that_is_not_divided(self):
        found = self.findings(
            "flash_forward_cuda", "causal: sequence 257",
            "some_see = shape.visible_keys(last, causal)", "some_see = shape.keys")
        for tensor in "kv":
            call = "load_tile<C::kBlockK, C::kHeadDim, C::kThreads>("
            self.assert_named(found, f"{call}\n{' ' * (8 if tensor == 'v' else 10)}{tensor}_head",
                              f"{tensor} is loaded 3 times under a causal mask")


class Profile(Built):
    def test_it_shows_lines_tensors_the_roofline_and_the_occupancy(self):
        task, = manifest.select(manifest.load_parts(), ["fused_cuda"])
        if not running.library(task, "solution", CHECKED).is_file():
            self.skipTest("the solution is not built")
        _, shown = self.printed(profile._count_case, task, ALL_LOADS, "solution", "T4", {})
        for pattern in (r"fused_cuda\.cu:\d+ +load v +4 +1024 +4 +100%",
                        r"fused_cuda\.cu:\d+ +__syncthreads +4 +128",
                        r"fused_softmax_matmul +v +65536 +2 times", r"Roofline: 4\.92 operations",
                        r"128 threads and 36864 bytes of shared.* A100 4 \(16 of 64 warps"):
            self.assertRegex(shown, pattern)


    def test_every_cuda_task_can_be_profiled(self):
        for task in manifest.select(manifest.load_parts(), []):
            if task.is_cuda and running.library(task, "solution", CHECKED).is_file():
                with self.subTest(task.name):
                    for case in counts.cases(task, None)[:2]:
                        _, shown = self.printed(profile._count_case, task, case, "solution", "T4",
                                                {})
                        self.assertRegex(shown, rf"{task.file}:\d+ +load ")


class Advice(Test):
    def test_a_failed_case_about_access_patterns_names_the_verbs(self):
        task, = manifest.select(manifest.load_parts(), ["fused_cuda"])
        for requirement, named in (("access patterns", True), ("memory", False)):
            failed = outcomes.CaseResult(ALL_LOADS, outcomes.WRONG, requirement=requirement)
            result = outcomes.TaskResult(task, "skeleton", outcomes.WRONG, [failed])
            self.assertEqual("./lab look fused_cuda" in "".join(advice._about(result, None)), named)


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
        self.assertEqual({row["kernel"] for row in rows if row["why"]},
                         {"fewer rounds for some lanes"})

    def test_ncu_s_table_is_read(self):
        file = self.folder() / "ncu.csv"
        metric = comparison.NSIGHT["global", "sectors"].format(op="ld")
        file.write_text('==PROF== Connected to process 7\n"ID","Kernel Name","Metric Name",'
                        '"Metric Unit","Metric Value"\n'
                        f'"0","one(int)","{metric}","sector","1,024"\n"1","two","other","","5"\n')
        self.assertEqual(comparison.read_nsight(file), {("1", "global load", "sectors"): 1024})
