"""The judge, the runner and the audit: right code gets its points, and no attack gets one.

It needs the target flash_graders of the build (FLASH_BUILD, which ctest sets) and bubblewrap.
"""

import csv
import dataclasses
import json
import os
import re
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from attacks import (ATTACKS, CUDA_ATTACKS, CUDA_FRAME, CUDA_MEMORY, FOUND_BY_CHECKS, FRAME,
                     GADGET, MEMORY, NO_MEMORY, QUADRATIC, fast)
from course import BUILD, Test
from lab import build, derive, disk, main, manifest, outcomes, paths
from lab.backends import EMULATED, GPU
from lab.instructor import reports
from lab.leaderboard import measuring
from lab.submission import apart, assembly, at_home, audit, gpu, judging, sandbox, source

TASKS = [task for part in manifest.load_parts() for task in part.tasks
         if judging.can_judge(task, BUILD)]
# In the tests of every day some attacks, and without the audit these; with this variable all, and
# the solutions of all CUDA tasks.
EVERYTHING = bool(os.environ.get("FLASH_ALL_ATTACKS"))
DANGEROUS = [ATTACKS[name] for name in (
    "static object exits", "answers from a constructor", "kills all processes",
    "a thread that stays behind", "calls the oracle", "opens the report", "fills the disk")]
FEW = ("one element", "ragged: 3 x 33 x 47 x 65", "no keys: 2 x 9 x 0 x 5", "one-hot rows",
       "NaN stays in its row", "strides: spread out")
NOT_REFUSED = ("nothing else", "answers by the buffer of stdout", "catches what the checks found",
               "prints a report")
FEW_IN_CUDA = ("a pointer that another one changed", "a lane that computes alone, by logarithms",
               "a row below the stack", "a race before nothing")
MEMORY_CASE = "no quadratic memory: 1 x 512 x 1024 x 32"


@unittest.skipIf(sandbox.trouble(), sandbox.trouble())
@unittest.skipUnless(TASKS, f"{BUILD} has no judges: build the target {judging.TARGET}")
class Judge(Test):
    @classmethod
    def setUpClass(cls):
        headers = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="lab-test-")))
        cls.bench = fast(judging.set_up(TASKS, headers, BUILD, seconds_a_call=0.5))
        # Of each attack not all cases, which takes a minute; with EVERYTHING, all.
        cls.few = dataclasses.replace(cls.bench, only=() if EVERYTHING else (*FEW, MEMORY_CASE))
        cls.slow = dataclasses.replace(cls.bench, seconds_a_call=20)
        cls.fused = next(task for task in TASKS if task.name == "fused_cpu")

    @staticmethod
    def checks(task):
        """Its cases that need the emulator's checks."""
        listed = subprocess.run([BUILD / "bin" / judging.judge_of(task), "--task", task.id,
                                 "--needs-checks", "--list-cases"], capture_output=True, text=True)
        # A race does not decide these two, and kernels without shared memory pass the first.
        return [name for name in listed.stdout.splitlines()
                if name not in ("checks: the product reads 16 bytes at a time", CUDA_MEMORY)]

    def judged(self, code, bench=None):
        return judging.judge(self.fused, code.encode(), bench or self.slow)

    def judged_in_cuda(self, parts, cases, audited=True):
        task = next(task for task in TASKS if task.name == "fused_cuda")
        top, attribute, body = parts
        return judging.judge(
            task, CUDA_FRAME.format(top=top, attribute=attribute, body=body).encode(),
            dataclasses.replace(self.slow, only=cases, audited=audited))

    def test_solutions_get_all_points_and_skeletons_none(self):
        self.assertTrue(any(not task.is_cuda for task in TASKS))
        for task in TASKS:
            if task is self.fused:
                continue  # test_from_submissions_to_a_table
            if not task.is_cuda or task.name in ("ten_kernels", "fused_cuda") or EVERYTHING:
                solutions = {one.shown_path(): one.path("solution").read_bytes() for one in TASKS}
                solved = judging.judge(task, task.path("solution").read_bytes(), self.slow,
                                       others=solutions)
                self.assertEqual((solved.status, solved.message), ("graded", ""))
                self.assertEqual([case for case in solved.cases if case.status != "passed"], [])
                self.assertAlmostEqual(solved.earned, task.points)
            if task.name in ("measure_attention", "fused_cuda") or EVERYTHING:
                empty = judging.judge(task, derive.derive_task(task).encode(), self.slow)
                self.assertEqual({case.status for case in empty.cases}, {"not started"})
                self.assertEqual((empty.earned, empty.status), (0, "graded"))

    def test_from_submissions_to_a_table(self):
        self.patch(build, build=lambda *_: mock.Mock(ok=True),
                   configured=lambda *_: mock.Mock(checked=True))
        self.patch(paths, BUILD=BUILD)
        right, folder = self.fused.path("solution").read_text(), self.folder()
        top, body = ATTACKS["exit(0)"]
        begin, failing = "  const auto [x, v, out, stream] = pass;\n", "many batches: 700 x 3 x 9 x 5"
        self.assertIn(begin, right)
        for name, code in (
                ("right", right), ("broken", right + "}"),
                ("hostile", FRAME.format(top=top, body=body)),
                ("partial", right.replace(begin, f"  if (pass.x.extent(0) == 700) return;\n{begin}"))):
            disk.write_exact(folder / f"class/{name}/fused_cpu.cpp", code)
        code, text = self.printed(main.main, [
            "grade", str(folder / "class"), "--output", str(folder), "--tasks", "fused_cpu"])
        self.assertEqual(code, 0, text)
        with (folder / "grades.csv").open() as file:
            table = {row["id"]: row for row in csv.DictReader(file)}
        record = json.loads((folder / table["right"]["folder"] / "record.json").read_text())
        cases = [outcomes.CaseResult(
            case["name"], outcomes.WRONG if case["name"] == failing else outcomes.PASSED,
            requirement=case["requirement"]) for case in record["tasks"][0]["cases"]]
        lost = self.fused.points - sum(
            case.earned for case in outcomes.with_points(self.fused, cases))
        self.assertTrue(0 < lost < self.fused.points, lost)
        self.assertEqual({name: (row["score"], row["why"]) for name, row in table.items()}, {
            "broken": ("0", "does not compile: part1.fused_cpu"),
            "hostile": ("0", "refused: part1.fused_cpu"),
            "partial": (reports.shown(self.fused.points - lost), ""),
            "right": (f"{self.fused.points:g}", "")})

    def test_the_other_solutions_in_cuda_are_compiled_and_not_refused(self):
        for task in TASKS:
            if task.is_cuda and task.name not in ("ten_kernels", "fused_cuda") and not EVERYTHING:
                judging.compiled(task, task.path("solution").read_bytes(),
                                 self.folder() / task.name, self.slow)

    def test_what_is_precompiled_takes_no_name_from_a_file(self):
        first = self.folder() / "first"
        first.mkdir()
        (first / "first.hpp").write_text("namespace flash { struct Helper {}; }")
        right = self.fused.path("solution").read_bytes()
        judging.compiled(self.fused, right + b"namespace flash { using Helper = int; }",
                         self.folder() / "work", dataclasses.replace(self.bench, first=first))

    def test_a_right_result_does_not_excuse_what_else_was_done(self):
        right, first = self.fused.path("solution").read_text(), "  check_at_least"
        for done, said in (
                ("  pass.out.data()[-3] = 0;\n",
                 "writes outside of `out`, to 1 place: 3 places before"),
                ("  const_cast<float*>(pass.x.data())[-1] = 0;\n", "It changes `x`"),
                ("  const_cast<float&>(pass.v.data()[0]) += 1;\n", "It changes `v`"),
                ("  static float calls = 0; const_cast<Index&>(blocks.block_2) += 0 * ++calls;\n"
                 "  struct L { const SoftmaxMatmul<float>& p; ~L() { p.out.data()[0] *= "
                 "1 + 1e-7f * calls; } } last{pass};\n", "give two results in `out`")):
            result = self.judged(right.replace(first, done + first, 1),
                                 dataclasses.replace(self.slow, only=(FEW[1],)))
            failed = [case.message for case in result.cases if case.name == FEW[1]]
            self.assertIn(said, failed[0], done)
            self.assertEqual(result.earned, 0, done)

    def test_the_seed_of_a_result_gives_the_same_result_again(self):
        code = FRAME.format(top="", body=QUADRATIC % MEMORY["in a vector"][1])
        bench = dataclasses.replace(self.slow, only=(*FEW, MEMORY_CASE))
        first = self.judged(code, bench)
        again = judging.judge(self.fused, code.encode(), bench, seed=first.seed)
        self.assertEqual([case.status for case in again.cases],
                         [case.status for case in first.cases])
        self.assertNotEqual(self.judged(code, bench).seed, first.seed, first.message)

    def test_no_attack_gains_a_point(self):
        with ThreadPoolExecutor(3) as pool:
            results = dict(zip(ATTACKS, pool.map(self.attack, ATTACKS.values())))
        for name, (audited, alone) in results.items():
            with self.subTest(name):
                for result in (audited, alone):
                    self.assertEqual(result.earned, 0, [c for c in result.cases if c.earned])
                if ATTACKS[name] in DANGEROUS:
                    self.assertEqual(audited.status, "refused")

    def attack(self, parts):
        """With the audit, and where that refuses it without, so that the code does run."""
        code = FRAME.format(top=parts[0], body=parts[1])
        audited = self.judged(code, self.few)
        again = audited.status == "refused" and (parts in DANGEROUS or EVERYTHING)
        return audited, self.unaudited(code) if again else audited

    def unaudited(self, code, seconds=0.5):  # that an endless loop may take
        return self.judged(code, dataclasses.replace(self.few, audited=False,
                                                     seconds_a_call=seconds))

    @unittest.skipUnless(any(task.is_cuda for task in TASKS), "no judges of CUDA tasks: not g++")
    def test_no_attack_on_the_checks_of_the_emulator_gains_a_point(self):
        task = next(task for task in TASKS if task.name == "fused_cuda")
        checks = self.checks(task)
        attacks = {name: parts for name, parts in CUDA_ATTACKS.items()
                   if name not in NOT_REFUSED[2:] or EVERYTHING}
        with ThreadPoolExecutor(3) as pool:
            results = dict(zip(attacks, pool.map(
                lambda parts: self.judged_in_cuda(parts, ("one element", *checks)),
                attacks.values())))
        for name, result in results.items():
            with self.subTest(name):
                ended = {case.name: case.status for case in result.cases}
                if name in NOT_REFUSED:
                    self.assertEqual([ended[case] for case in ("one element", *checks)],
                                     ["passed", *["failed"] * len(checks)])
                    race, = [case.message for case in result.cases if case.name == checks[0]]
                    self.assertIn("a data race between part1_softmax_matmul/skeleton/"
                                  "fused_cuda.cu:", race)
                else:
                    self.assertIn(result.status, ("refused", "does not compile"))
                    self.assertEqual(ended, {})
                if "pasted" in name:
                    self.assertRegex(result.message, "^line 7 of fused_cuda.cu has `FLASH_SIMT`: "
                                     "code must not know")

    @unittest.skipUnless(any(task.is_cuda for task in TASKS), "no judges of CUDA tasks: not g++")
    def test_host_code_is_in_another_process_than_what_was_found(self):
        case = "checks: no race and no stray access"
        result = self.judged_in_cuda(CUDA_ATTACKS["the emulator by its linker names"], (case,),
                                     audited=False)
        self.assertEqual([(one.name, one.status) for one in result.cases], [(case, "failed")],
                         result.message)
        self.assertIn("a data race", result.cases[0].message)

    @unittest.skipUnless(any(task.is_cuda for task in TASKS), "no judges of CUDA tasks: not g++")
    def test_host_code_in_a_kernel_is_refused(self):
        task = next(task for task in TASKS if task.name == "fused_cuda")
        bench = dataclasses.replace(self.slow, only=("one element",))
        solution = task.path("solution").read_text()
        row_max, namespace = "  m_new = row_max(m_new);\n", "namespace {\n"
        named = solution.replace(namespace, namespace + "float same(float m) { return m; }\n")
        named = named.replace(row_max, f"{row_max}    m_new = same(m_new);\n")
        result = judging.judge(task, named.encode(), bench)
        self.assertEqual(result.status, "refused")
        self.assertRegex(result.message, r"^line \d+ calls `same\(\)` in a kernel: nvcc refuses")

    @unittest.skipUnless(any(task.is_cuda for task in TASKS), "no judges of CUDA tasks: not g++")
    def test_a_text_that_takes_too_long_to_read_is_refused(self):
        self.patch(apart, LIMITS=sandbox.Limits(seconds=0))
        result = self.judged_in_cuda(CUDA_ATTACKS["nothing else"], ("one element",))
        self.assertEqual((result.status, result.message.split(" after")[0]),
                         ("refused", "reading its text was stopped"))

    @unittest.skipUnless(any(task.is_cuda for task in TASKS), "no judges of CUDA tasks: not g++")
    def test_the_checks_see_what_hides_from_them(self):
        for name, (case, said, top, launch) in FOUND_BY_CHECKS.items():
            if name in FEW_IN_CUDA or EVERYTHING:
                with self.subTest(name):
                    result = self.judged_in_cuda((top, "", launch), (case,))
                    failed = {one.name: one.message for one in result.cases
                              if one.status == "failed"}
                    self.assertEqual(list(failed), [case] * (result.status != "refused"))
                    self.assertIn(said, failed.get(case, result.message))

    def test_memory_that_was_given_stays(self):
        code = self.fused.path("solution").read_text()
        old = "= check_softmax_matmul(pass);\n"
        self.assertIn(old, code)
        code = code.replace(old, old + """  struct Gone {
    long at, bytes;
    ~Gone() { borrowed(11, at, bytes, 0); }
  } gone{(reinterpret_cast<long>(x.data()) + 4095) & -4096, d1 == 512 ? 4096 : 0};
""")
        result = self.unaudited(f"#include <cstdlib>\n{GADGET}{code}", seconds=20)
        failed = {case.name: case.message for case in result.cases if case.status != "passed"}
        self.assertEqual(list(failed), [MEMORY_CASE], result.message)
        self.assertIn("unmaps memory that is not its own", failed[MEMORY_CASE])

    def test_memory_that_the_meter_does_not_see_is_seen(self):
        with ThreadPoolExecutor(3) as pool:
            results = dict(zip([*MEMORY, *NO_MEMORY], pool.map(
                lambda parts: self.unaudited(FRAME.format(
                    top=parts[0], body=QUADRATIC % parts[1]), seconds=20),
                [*MEMORY.values(), *NO_MEMORY.values()])))
        for name, result in results.items():
            with self.subTest(name):
                failed = [case.name for case in result.cases if case.status != "passed"]
                self.assertIn(MEMORY_CASE, failed, result.message)
                if name in MEMORY:
                    self.assertNotIn("one element", failed, result.cases[:2])  # it did run

    def test_a_judge_that_cannot_work_is_not_the_students_fault(self):
        broken = dataclasses.replace(self.bench, folder=self.folder())
        with self.assertRaises(sandbox.InfraError):
            self.judged(self.fused.path("solution").read_text(), broken)


@unittest.skipIf(sandbox.trouble(), sandbox.trouble())
@unittest.skipUnless((BUILD / "bin/flash_sandboxed_runner_gpu").is_file(),
                     f"{BUILD} has no runner of a GPU: nvcc builds it")
class OnGpu(Test):
    @classmethod
    def setUpClass(cls):
        headers = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="lab-test-")))
        cls.fused = next(task for task in TASKS if task.name == "fused_cuda")
        cls.bench = judging.set_up([cls.fused], headers, BUILD, backends=(GPU,))

    def test_nvcc_compiles_in_the_sandbox_and_the_audit_takes_what_is_right(self):
        right = self.fused.path("solution").read_bytes()
        library = judging.compiled(self.fused, right, self.folder() / "right", self.bench)
        self.assertGreater(library.stat().st_size, 10_000)
        self.assertRegex(measuring.kernels(library),
                         r"9 kernels, \d+ to \d+ registers a thread, up to \d+ bytes of static "
                         r"shared memory; 0 of them spill")
        wrong = b"#include <dlfcn.h>\nstatic void* const library = dlopen(\"libcublas.so\", 2);\n"
        text = self.refused(judging.compiled, self.fused, wrong + right, self.folder() / "wrong",
                            self.bench)
        self.assertIn("it loads other code at run time", text)
        self.assertIn("it runs code before the first call", text)

    @unittest.skipUnless(gpu.devices(), "there is no GPU here")
    def test_the_solution_gets_all_points_of_the_cases_that_need_no_checks(self):
        result = judging.judge(self.fused, self.fused.path("solution").read_bytes(), self.bench)
        self.assertEqual((result.status, result.message), ("graded", ""))
        self.assertEqual([case for case in result.cases if case.status != "passed"], [])
        self.assertIn("more batches than a grid is tall: 65600 x 1 x 3 x 1",
                      {case.name for case in result.cases})


class AtHome(Test):
    def test_the_object_file_of_the_build_is_audited_unless_it_is_old(self):
        folder = self.folder()
        source = folder / "skeleton" / "x.cpp"
        made = folder / "part/CMakeFiles/x.dir/skeleton/x.cpp.o"
        for file in (source, made, folder / "lib/runner/libflash_common.so"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        source.write_text('#include <thread>\nextern "C" void flash_task() {\n'
                          "  std::thread([] {}).join();\n}\n", encoding="utf-8")
        subprocess.run(["c++", "-std=c++20", "-c", source, "-o", made], check=True)
        task = mock.Mock(is_cuda=False, path=lambda kind: source, target=lambda *_: "x")
        with mock.patch.object(paths, "BUILD", folder), \
                mock.patch.object(judging, "defined", lambda library: ()):
            self.assertIn("it uses `std::thread` in line 3: it starts threads, and this task is "
                          "written without", at_home.findings(task))
            os.utime(source, (2e9, 2e9))
            self.assertEqual(at_home.findings(task), [])

    @unittest.skipUnless(any(task.is_cuda for task in TASKS), "no judges of CUDA tasks: not g++")
    def test_the_text_of_a_kernel_is_read_as_in_a_class(self):
        task = next(task for task in TASKS if task.name == "fused_cuda")
        right = task.path("solution").read_text()
        with mock.patch.object(paths, "BUILD", BUILD):
            for top, said in (
                    ("", []), ("#include <vector>\n#include <string>\n", []),
                    ("#include <string>\n#include <iostream>\n", [
                        "line 2 of fused_cuda.cu includes <iostream>: it runs code before the first "
                        "call; use printf"]),
                    ("#include \"tests/harness/data.hpp\"\n", [
                        "it does not compile with the headers that a class has: "
                        "part1_softmax_matmul/skeleton/fused_cuda.cu:1:10: fatal error: "
                        "tests/harness/data.hpp: No such file or directory"]),
                    ("\nfloat __weight;\n", [
                        "line 2 of fused_cuda.cu has `__weight`: names that begin like this are the "
                        "compiler's, except for CUDA's own"]),
                    ("__managed__ int n;\n", [
                        "line 1 of fused_cuda.cu has `__managed__`: in a class a kernel does not share "
                        "memory with host code; give it its numbers as arguments, or write them into "
                        "the file"]),
                    ("bool emulated = FLASH_SIMT;", [
                        "line 1 of fused_cuda.cu has `FLASH_SIMT`: code must not know whether it "
                        "runs on a GPU or on the emulator"])):
                self.assertEqual(at_home.of_object(task, top + right, None), said)


class Audit(Test):
    def findings(self, symbols, sections=""):
        return audit.findings(symbols, sections, ["_Zf"], ["_ZN5flash5checkEv"])

    def test_each_refusal_says_why(self):
        for line, said in (
                ("dlopen U", "loads other code"), ("system U", "starts another program"),
                ("socket U", "uses the network"), ("malloc U", "nobody counts"),
                ("cublasSgemm_v2 U", "a library does the exercise"),
                ("_ZN5flash21softmax_matmul_oracleEv U", "calls the reference"),
                ("_ZN5flash4simt5resetEv U", "inside the course"),
                ("_ZNSt8ios_base4InitC1Ev U", "<iostream>"), ("strange U", "not on the list"),
                ("main T 0 1", "not its own"), ("_Znwm T 0 1", "not its own"),
                ("_Zg i 0 1", "ifunc"), ("evil x T 0 1", "odd character")):
            text, = self.findings(f"_Zf T 0 9\n{line}\n")
            self.assertIn(said, text)
        self.assertIn("does not define the function `_Zf`", self.findings("")[0])

    def test_ordinary_cpp_is_allowed_and_the_source_says_where_the_rest_is(self):
        allowed = ("__dynamic_cast", "_ZNSo3putEc", "_ZNSdD2Ev", "__libc_single_threaded", "__mulsc3",
                   "cabsf", "qsort", "pthread_mutex_lock", "fprintf", "stderr", "__cxa_thread_atexit",
                   "_ZTTNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEE", "_ZTISo",
                   "_ZTIPKc")
        self.assertEqual(self.findings("_Zf T 0 9\n" + "".join(f"{name} U\n" for name in allowed)), [])
        source = "#include <thread>\n// std::thread is not here\nvoid f() { std::thread t; }\n"
        self.assertEqual(audit.findings("_ZNSt6thread4joinEv U\nmmap U\n", "", [], [], source=source), [
            "it uses `std::thread` in line 3: it starts threads, and this task is written without",
            "it uses `mmap`: it asks the system for memory; use std::vector or Tensor"])

    def test_a_clock_is_refused_however_it_is_spelled(self):
        source = "void f() {\n  auto t = std::chrono::steady_clock::now();\n}\n"
        for symbol, name in (
                ("_ZNSt6chrono3_V212steady_clock3nowEv",
                 "`std::chrono::steady_clock::now` in line 2"),
                ("_ZNSt11this_thread11__sleep_forENSt6chrono8durationIlSt5ratioILl1ELl1EEEES1_",
                 "`std::chrono::steady_clock::now` in line 2"),
                *((name, f"`{name}`") for name in (
                    "clock", "time", "times", "ftime", "clock_gettime", "__clock_gettime64",
                    "timespec_get", "gettimeofday", "getrusage", "nanosleep", "usleep", "random",
                    "drand48", "getrandom"))):
            self.assertEqual(audit.findings(f"{symbol} U\n", "", [], [], source=source), [
                f"it uses {name}: its result could depend on the time or on chance"])

    def test_what_clang_puts_into_every_object_is_allowed(self):
        for size, refused in (("000000", 0), ("000008", 1)):
            found = self.findings("_Zf T 0 9\n__clang_call_terminate W 0 9\n",
                                  "  [13] .linker-options   LOOS+0xfff4c01  0000000000000000 "
                                  f"001b30 {size} 00   E  0   0  1\n")
            self.assertEqual(len(found), refused)

    def test_of_the_emulator_only_what_kernels_and_launches_need(self):
        for name, allowed in (("_ZN5flash4simt3runERKNS0_10KernelCallE", True),
                              ("_ZN5flash4simt7barrierEPKcNS0_4SiteEi", True),
                              ("_ZN5flash4simt3ptx9arrive_namedEiiNS0_4SiteE", True),
                              ("_ZN5flash4simt14reset_countersEv", False),
                              ("_ZN5flash6device8allocateEmNS_6StreamE", True),
                              ("_ZN5flash6device13reset_trafficEv", False),
                              ("_ZN5flash6device11is_emulatedEv", False),
                              ("_Z16cudaGetLastErrorv", True),
                              ("_Z18cudaGetErrorString11cudaError_t", True),
                              ("_Z10cudaMallocPPvm", False)):
            self.assertEqual(audit.may_be_used_in_cuda(name), allowed, name)

    def test_an_intrinsic_that_math_h_declares_is_no_function_of_the_files(self):
        self.assertEqual(self.findings("_Zf T 0 9\n__powf W 0 9\n__sincosf W 0 9\n"), [])
        self.assertNotEqual(self.findings("_Zf T 0 9\n__cosf W 0 9\n"), [])

    def test_what_nvcc_makes_of_kernels_is_allowed_and_no_more_of_cuda(self):
        symbols = ("_Zf T 0 9\n__cudaRegisterFatBinary U\n__cudaLaunchKernel U\natexit U\nexit U\n"
                   "cudaLaunchKernelExC U\ncudaFuncSetAttribute U\n")
        sections = "".join(f"  [ 1] {name} PROGBITS 0000000000000000 000040 {size:06x} 00 A 0 0 8\n"
                           for name, size in ((".nv_fatbin", 9), (".nvFatBinSegment", 24),
                                              (".init_array", 8), (".rela.init_array", 24)))

        def findings(symbols, sections):
            return audit.findings(symbols, sections, ["_Zf"], [], GPU)

        self.assertEqual(findings(symbols, sections), [])
        self.assertNotEqual(audit.findings(symbols, "", ["_Zf"], [], EMULATED), [])
        for name, said in (("cudaMalloc", "nobody counts"), ("cudaMemcpyAsync", "copies between"),
                           ("cudaStreamCreateWithFlags", "stream that it is given"),
                           ("cudaStreamSetAttribute", "changes the GPU"),
                           ("cudaGraphLaunch", "stream that it is given"),
                           ("cudaDeviceSetLimit", "changes the GPU"),
                           ("cudaCtxResetPersistingL2Cache", "changes the GPU"),
                           ("cudaEventRecord", "stream that it is given"),
                           ("cudaGetDriverEntryPointByVersion", "asks the driver"),
                           ("cuLaunchKernel", "asks the driver"), ("nvrtcCompileProgram", "driver"),
                           ("cublasSgemm_v2", "a library does"), ("dlopen", "loads other code")):
            text, = findings(symbols + f"{name} U\n", sections)
            self.assertIn(said, text)
        # A constructor of the student's is a second entry.
        text, = findings(symbols, sections.replace("000008 00", "000010 00"))
        self.assertIn("before the first call", text)

    def test_sections(self):
        for name, size, said in ((".init_array", 8, "before the first call"),
                                 (".rela.init_array", 8, "before the first call"),
                                 (".init_array.1 x", 8, "odd name"),
                                 (".evil", 8, "no function or constant needs"),
                                 (".bss", 1 << 20, "variables outside of functions"),
                                 (".rodata.many", 1 << 20, "variables outside of functions")):
            line = f"  [ 1] {name} PROGBITS 0000000000000000 000040 {size:06x} 00 WA 0 0 8\n"
            text, = self.findings("_Zf T 0 9\n", line)
            self.assertIn(said, text)
        text, = self.findings("_Zf T 0 9\n_Zlarge C 100000 100000\n")
        self.assertIn("variables outside of functions", text)
        shared = "  [ 1] .tbss NOBITS 0000000000000000 000040 100000 00 WAT 0 0 8\n"
        self.assertEqual(len(self.findings("_Zf T 0 9\n", shared)), 1)
        for size, said in (("130000", []), ("300000", ["its __shared__ and thread_local"])):
            found = audit.findings("_Zf T 0 9\n", shared.replace("100000", size), ["_Zf"], [],
                                   EMULATED)
            self.assertEqual([text[:31] for text in found], said)


@unittest.skipUnless(assembly.IS_KNOWN, "another processor's assembly")
class Assembly(Test):
    def touched(self, *lines, section=""):
        """The accesses for which a call was put in. `section` is where `table` lies."""
        text = assembly.instrumented(
            f"\t.section\t{section}\ntable:\n\t.long\t1\n\t.text\n" * bool(section) +
            "kernel:\n" + "".join(f"\t{line}\n" for line in lines))
        return re.findall(r"leaq\t(.*), %rdi\n(?:\t(?!call).*\n|77.*\n)*?\tleaq\t(\d+), %rsi\n"
                          r"\tcall\tflash_simt_touch", text)

    def test_only_what_the_compiler_did_not_tell_of_is_told(self):
        told = ("leaq\t8(%rbx,%rcx,4), %rdi", "call\t__tsan_read4@PLT")
        self.assertEqual(self.touched("movq\t%r12, %rbx", *told, "movss\t8(%rbx,%rcx,4), %xmm0"),
                         [("8(%rbx,%rcx,4)", "4")])  # a call spoils %rcx
        self.assertEqual(self.touched("movq\t%r12, %rcx", *told, "movq\t%r12, %rcx",
                                      "movss\t8(%rbx,%rcx,4), %xmm0"), [])
        self.assertEqual(self.touched("movq\t%rbx, %rdi", "call\t__tsan_write4@PLT",
                                      "movl\t%eax, (%rbx)", "movl\t%eax, 4(%rbx)"),
                         [("4(%rbx)", str(4 | assembly.IS_WRITE))])
        self.assertEqual(self.touched("movups\t%xmm0, -32(%rsp)"), [])
        table = "movl\ttable(%rip), %eax"
        self.assertEqual(self.touched(table, section=".rodata"), [])
        self.assertEqual(self.touched(table, section=".data"), [("table(%rip)", "4")])
        self.assertEqual(self.touched("movss\t(%rsp,%rcx,4), %xmm0"), [("8(%rsp,%rcx,4)", "4")])
        self.assertEqual(self.touched("leaq\ttable(%rip), %rdx", "movss\t(%rdx,%rcx,4), %xmm0"),
                         [("(%rdx,%rcx,4)", "4")])  # the index may lead anywhere
        own = "movq\t%rsp, %rbp"  # a pointer to a local, or the frame
        later = (own, "jne\t.L1\n.L1:", "movl\t(%rbp), %eax")
        self.assertEqual(self.touched("pushq\t%rbp", *later), [])
        self.assertEqual(self.touched("pushq\t%rbp", "subq\t$32, %rsp", *later), [("(%rbp)", "4")])

    def test_an_offset_may_be_a_symbol(self):
        self.assertEqual(self.touched("leaq\t8(%rsp), %rax", "addq\t$shared@dtpoff, %rax",
                                      "movl\t(%rax), %eax"), [("(%rax)", "4")])

    def test_a_register_that_is_written_beside_another_is_not_known(self):
        for line, register in (("mulq\t%rcx", "%rax"), ("divq\t%rcx", "%rdx"),
                               ("mulx\t%rcx, %rsi, %rdi", "%rsi"), ("xchgq\t%rsi, %rcx", "%rsi"),
                               ("rep movsq", "%rdi")):
            read = f"movl\t({register}), %eax"
            self.assertEqual(self.touched(f"leaq\t8(%rsp), {register}", read), [])
            self.assertIn((f"({register})", "4"),
                          self.touched(f"leaq\t8(%rsp), {register}", line, read))

    def test_what_operands_do_not_tell_is_refused(self):
        for line in ("vgatherdps\t%ymm1, (%rax,%ymm2,4), %ymm0", "movntps\t%xmm0, (%rdi)",
                     "vmovups\t%zmm0, (%rax){%k1}", "jmp\t*%rax", "syscall", "stosq"):
            with self.assertRaises(assembly.Odd):
                self.touched(line)

    def test_no_file_makes_it_slow(self):
        lines = ("\tmovslq\t%eax, %rax\n\taddq\t%rsi, %rax\n", "\taddq\t%rax, %rax\n",
                 "\tmovq\t(%rbx), %rcx\n\taddq\t%rcx, %rax\n\tmovq\t%rax, (%rsp,%rcx)\n")
        for line in lines:  # each could double what is known of %rax
            assembly.instrumented("kernel:\n" + line * 2000)

    def test_an_operator_of_cudas_function_objects_is_the_files_code(self):
        for name, read in (("_ZNK5flash4simt4plusI3OwnEclERKS2_S5_", True),
                           ("_ZN5flash4simt8exchangeEv", False)):
            text = assembly.instrumented(f"{name}:\n\tmovl\t(%rbx), %eax\n")
            self.assertEqual("flash_simt_touch" in text, read)

    def test_a_reduction_with_a_type_of_its_own_is_refused(self):
        label = "_ZN5flash4simt{}EvPKPvj:\n\tret"
        for right in ("8exchangeI4OwnE", "13combine_lanesIfNS0_4plusIfEEE"):
            assembly.instrumented(label.format(right))
        for own in ("13combine_lanesI3JobNS0_4plusIS2_EEE", "13combine_lanesIl4BothIlEE",
                    "13combine_lanesIN5flash12_GLOBAL__N_13JobENS0_4plusIS2_EEE"):
            with self.assertRaisesRegex(assembly.Odd, "a type of its own"):
                assembly.instrumented(label.format(own))


class Apart(Test):
    def test_no_text_takes_more_than_its_limits(self):
        self.patch(apart, LIMITS=sandbox.Limits(seconds=2))
        self.assertEqual(apart.call(divmod, 7, 3), (2, 1))
        with self.assertRaises(ZeroDivisionError):
            apart.call(divmod, 7, 0)
        read = source.Source("", self.folder())  # this took hours
        with self.assertRaisesRegex(apart.TooMuch, "stopped after 2 s"):
            apart.call(read.findings, f"\n{read.mark}\n" + "[[" * 100_000)


class Source(Test):
    def test_words_count_where_they_are_words(self):
        aligned = "struct __attribute__((aligned(flash::simt::alignment<%s>()%s))) V {};"
        read = source.Source("", paths.ROOT)
        for own, found in (('const char* s = "simt asm __atomic"; // ', []),
                           ('auto s = R"x(asm)x"; int n = 1\'000;', []),
                           ("int asm_count = __shfl_sync(0, 1, 2);", ["__shfl_sync"]),
                           ("auto f = R\"x(\")x\"; asm(\"nop\");", ["asm"]),
                           ("int n = \"a\"R\"(\"; asm(\"nop\"); auto s = \")\";", ["asm"]),
                           ("int n = 'a'R\"(\"; asm(\"nop\"); auto s = \")\";", ["asm"]),
                           (aligned % ("sizeof(T) * N", ""), []), (aligned % ("asm", ""), ["asm"]),
                           (aligned % ("4", "), no_sanitize(0"),
                            ["__attribute__", "simt", "no_sanitize"]),
                           ("float a __attribute__((aligned(sizeof(T))));", []),
                           *((f'auto a = R"({macro}"; asm("nop"); auto b = ")";', ["asm"])
                             for macro in ("::flash::simt::dynamic_shared_memory()",
                                           "__attribute__((aligned(x)))")),
                           ('[[gnu::visibility("default")]] extern int a;', []),
                           ("__builtin_ia32_pause();", ["__builtin_ia32_pause"]),
                           ("constexpr int kSimtWidth = 32;", []),
                           ("using namespace flash::simt;", ["simt"]),
                           ("[[gnu::hot]] void f();", ["gnu"]), ("#pragma unroll", []),
                           ("#pragma GCC optimize(3)", ["#pragma GCC optimize(3)"])):
            said = read.findings(f"int before;\n{read.mark}\n# 1 \"a.cu\"\n{own}\n")
            self.assertEqual([re.search("`(.*)`", one)[1] for one in said], found, own)

    def test_a_header_is_named_by_the_line_that_includes_it(self):
        read = source.Source("int a;\n#include <atomic>\n", paths.ROOT)
        for header, line, said in (
                ("bits/atomic_base.h", 2, "<atomic>: its operations are none of CUDA's; use "
                 "atomicAdd() and the like"),
                ("sched.h", 1, "sched.h: a kernel and its launcher have no use for it")):
            self.assertEqual(read.findings(
                f'int b;\n{read.mark}\n# {line} "/course/x.cu"\n'
                f'# 1 "/usr/include/{header}" 1 3\nint __own; namespace std {{ }}\n'),
                [f"line {line} of x.cu includes {said}"])

    def test_templates_of_libraries_have_no_versions_of_a_files_own(self):
        read = source.Source("", paths.ROOT)
        for own, is_foreign in (
                ("template <> class nvcuda::wmma::fragment<A, 16, int> { Own x[8]; };", True),
                ("template <class T> struct alignas(sizeof(int)) std::tuple<Own<T>> {};", True),
                ("template <> struct ::std::tuple_size<Own> {};", True),
                ("template <> inline constexpr bool std::is_same_v<Own, float> = true;", True),
                ("namespace s = std; template <class T> constexpr bool s::is_same_v<T, Own>{1};",
                 True),
                ("namespace [[maybe_unused]] nvcuda {", True),
                ("template <class T> T twice(T x) requires std::floating_point<T> {", False),
                ("template <class T> requires std::floating_point<T> T twice(T x) {", False),
                ("template <> struct Outer::Width<float> {", False),
                ("template <> constexpr decltype(true) std::is_same_v<Own, A<(1 == 1)>> = true;",
                 True),
                ("template <class T> auto f(T x) -> std::vector<T> { return {x}; }", False),
                ("template <class T, class = std::enable_if_t<(sizeof(T) > 4)>> void f();", False),
                ("namespace std { template <> struct tuple<Own>; }", True),
                ("namespace nvcuda::wmma { }", True), ("namespace groups = std;", False),
                ("template <int N> struct Own : std::array<int, N> {};", False),
                ("template <int N> struct Own : std::true_type { std::size_t n = N; };", False),
                ("template <class T> std::array<T, 3> f(std::array<T, 3> a) { return a; }", False),
                ("template <class T> constexpr int f = sizeof(T);", False),
                ("template <int N> constexpr auto f = std::array<int, N>{};", False),
                ("template <class T> constexpr bool f = std::is_same_v<T, int> == true;", False),
                ("template <> constexpr decltype([] { return true; }()) std::is_same_v<A, B> = 1;",
                 True),
                ("auto y = run_template<4>(x, [&](int i) { return i; });", False),
                ("auto y = x.template get<4>(z, [&](int i) { return i; });", False),
                ("template <> template <> __half::Float16(unsigned long long a) : b(0) {}", True),
                ("template <> void nvcuda::wmma::fragment<Own, 16, int>::fill(int) {}", True),
                ("template <> half::operator Own() const {}", True),
                ("template <> int nvcuda::Some<Own>::value = 3;", True),
                ("template <> std::size_t sum<std::size_t>(std::vector<int> x) { return 0; }",
                 False),
                ("template <> __global__ void __launch_bounds__(own::k) f<4>(int n) { own::g(n); }",
                 False),
                ("template <> constexpr A<int, [] {}>::type std::is_same_v<Own, T> = true;", True),
                ("template <> constexpr int f<std::size_t> = 3;", False),
                ("template <class T, std::size_t N> __device__ void f(T (&a)[N]) { a[0] = {}; }",
                 False),
                ("template <> struct Own<flash::Half> { static constexpr int n = 2; };", False)):
            said = read.findings(f"int before;\n{read.mark}\n# 1 \"a.cu\"\n{own}\n")
            self.assertEqual(any("of a library" in one for one in said), is_foreign, own)
