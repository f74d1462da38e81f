"""The leaderboard: what is a result, who has a place, and that no cheat gets one.

The cheats need submit_leaderboard and the runner of part 1 in the build (FLASH_BUILD, which ctest
sets) and bubblewrap. Those in CUDA are measured on the emulator, by the same judge, and once more
on a GPU where there is one.
"""

import contextlib
import copy
import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attacks import FRAME, fast
from course import BUILD, Test
from lab import build, main, paths, released
from lab.backends import EMULATED, GPU
from lab.instructor import pages, pytorch, standings
from lab.leaderboard import boards, machine, measuring, receipts, result
from lab.leaderboard.measuring import Measured, Site
from lab.leaderboard.result import Busy, NoResult, result_of
from lab.submission import gpu, judging, sandbox
from lab.verbs.student import submit

NEEDED = [BUILD / "bin" / name for name in ("submit_leaderboard", "flash_sandboxed_runner")]
EMULATED_SOLUTION = "lib/libpart1_fused_cuda_solution_emulated.so"
CHEATS = paths.ROOT / "tests/tools/cheats"


def lacks(*names):
    """Which of these files the build does not have."""
    missing = [name for name in names if not (BUILD / name).is_file()]
    return f"{BUILD} has no {', '.join(missing)}" if missing else ""


def samples(board, turns=result.TURNS, **values):
    """A measurement with the same numbers in each sample."""
    numbers = {"student_ms": 5.1, "student_processor_ms": 5.1, "reference_ms": 10.1,
               "reference_processor_ms": 10.1, "exchange_ms": 0.1, "exchange_processor_ms": 0.05,
               "peak_gflops": 100, "bandwidth_gbs": 10, "extra_bytes": 64} | values
    return [{"problem": problem, "pass": name, "turn": turn} | numbers
            for problem in board.problems for turn in range(turns) for name in board.passes]


class Numbers(Test):
    """From samples to one number, or to none."""

    board = boards.find("part2-cpu")

    def none(self, samples, said, kind=NoResult, board=board):
        with self.assertRaises(kind) as caught:
            result_of(board, samples)
        self.assertIn(said, str(caught.exception))

    def test_the_exchange_is_subtracted_from_both(self):
        found = result_of(self.board, samples(self.board))
        self.assertAlmostEqual(found.speedup, 2)
        self.assertAlmostEqual(found.total, 5 * len(found.passes))
        self.assertAlmostEqual(found.uncertainty, 0)
        # Of the board, not of the samples: 2 products of 2 x 8 x 256 x 256 x 64 operations, with a
        # mask half of these and the diagonal, at 100 GFLOP/s.
        self.assertAlmostEqual(found.passes[0].floor, 1.34217728)
        self.assertAlmostEqual(found.passes[2].floor, 1.34217728 * 257 / 512)
        self.assertAlmostEqual(found.passes[1].floor, 1.34217728 * 5 / 2)

    def test_a_time_that_no_machine_can_have_is_refused(self):
        self.none(samples(self.board, student_ms=1.05, student_processor_ms=1.05),
                  "no time is that short")
        for zero in (0.0, 0.1):  # the exchange alone
            self.none(samples(self.board, student_ms=zero), "no time is that short")

    def test_one_pass_without_time_does_not_sink_the_mean(self):
        passes = result_of(self.board, samples(self.board)).passes
        none = dataclasses.replace(passes[0], ratios=(0.0,))
        with_zero = result.Result((none, *passes[1:]), 0)
        self.assertAlmostEqual(with_zero.speedup, 2 * len(passes) / (len(passes) - 1))

    def test_what_is_no_number_or_missing_gives_nothing(self):
        for value in (float("nan"), float("inf"), -1, True, "5", None, 10**4000, 1e300, [], {}):
            bad = samples(self.board)
            bad[7]["student_ms"] = value
            self.none(bad, "student_ms of a sample")
        for key, value in (("bandwidth_gbs", 0), ("peak_gflops", 1e-300), ("peak_gflops", 1e9),
                           ("extra_bytes", 2**60)):
            self.none(samples(self.board, **{key: value}), f"{key} of a sample is")
        self.none(samples(self.board, reference_ms=1e-9, exchange_ms=0), "speed-up would be")
        self.none(samples(self.board)[:-1], "samples")
        self.none(samples(self.board, turns=1), "samples")
        self.none([copy.copy(one) | {"turn": 0} for one in samples(self.board)], "samples")

    def test_a_busy_machine_is_said_and_is_no_verdict(self):
        self.none(samples(self.board, student_processor_ms=4.0), "the machine is busy", Busy)
        slow = samples(self.board)
        for one in slow[::3]:
            one["peak_gflops"] = 80
        self.none(slow, "the machine is busy", Busy)

    def test_what_is_left_on_a_gpu_when_a_call_begins_gives_no_result(self):
        board = boards.find("part3-forward")
        waits = {"student_wait_ms": 0.1, "reference_wait_ms": 0.2, "peak_gflops": 1e6,
                 "bandwidth_gbs": 1e4}
        # What the processor does meanwhile is of no account.
        right = samples(board, student_processor_ms=0, **waits)
        self.assertAlmostEqual(result_of(board, right).speedup, 2)
        for one in right[::3]:
            one |= {"student_wait_ms": 2.4, "reference_wait_ms": 1.3}
        self.none(right, "something else ran on the GPU when 33 %", board=board)
        self.none(samples(board), "student_wait_ms of a sample", board=board)


class OfReceipts(Test):
    """Receipts and verifications in a folder of their own."""

    def setUp(self):
        self.root = self.folder()
        shutil.copytree(paths.ROOT / boards.FOLDER, self.root / boards.FOLDER)
        shutil.copy(paths.ROOT / "CMakeLists.txt", self.root)
        self.patch(paths, ROOT=self.root, OUTPUTS=self.root / "outputs")
        self.board = boards.find("part2-cpu")

    def receipt(self, name, speed, **values):
        made = receipts.make(self.board, name, {"a.cpp": name.encode()},
                             machine.facts(self.board), ["c++"],
                             Measured(tuple(samples(
                                 self.board, student_ms=0.1 + 10 / speed, peak_gflops=1000,
                                 student_processor_ms=10 / speed))))
        return dataclasses.replace(made, **values)

    def verify(self, file, holds=True, person=""):
        again = receipts.load(file)
        receipts.save_verification(receipts.Verification(
            released.sha256(file), holds, "" if holds else "slower", person or again.name, again))

    def rows(self, *places):
        found, left_out = standings.collect(places)
        return [[(row.place, row.name, row.state) for row in standing.rows]
                for standing in found], left_out


class Places(OfReceipts):
    """The page that is made of them."""

    def test_only_a_verified_result_has_a_place_and_the_best_of_a_person_counts(self):
        for name, speed, state in (("ann", 2, True), ("ann", 3, True), ("bob", 4, None),
                                   ("eve", 5, False), ("dan", 2.5, True)):
            file = receipts.save(self.receipt(name, speed), receipts.RECEIPTS)
            if state is not None:
                self.verify(file, state)
        receipts.save(self.receipt("solution", 2.2, mark=True), receipts.MARKS)
        rows, left_out = self.rows()
        self.assertEqual(rows, [[(1, "ann", "verified"), (2, "dan", "verified"),
                                 (None, "solution", "mark"), (None, "bob", "not verified")]])
        self.assertIn("does not hold: slower", *left_out)

    def test_a_receipt_is_verified_by_measuring_its_own_files_on_its_own_device(self):
        @contextlib.contextmanager
        def site(board):
            yield Site(board, (), None, self.root)

        measured = []  # what the next measurement gives
        self.patch(measuring, site=site, test=lambda *_: None, libraries=lambda *_: [])
        self.patch(machine, refuse_if_busy=lambda _: None)
        self.patch(submit, sources_of=lambda *_: {"a.cpp": b"ann"},
                   take=lambda where, name, *_: (measured[0], measured[0].result(where.board)))
        file = receipts.save(self.receipt("ann", 2), receipts.RECEIPTS)
        verify = ["leaderboard", "verify", str(file), "a folder"]
        for speed, code, state in ((1.8, 1, []), (1.95, 0, [(1, "ann", "verified")])):
            measured[:] = [self.receipt("ann", speed, time=f"2026-01-31T12:00:0{1 - code}Z")]
            ended, text = self.printed(main.main, verify)
            self.assertEqual((ended, self.rows()[0]), (code, [state] if state else []), text)
        for handle, source, said in (("Ann", "bob", 'the handle "ann" is of a folder, and SOURCE '
                                      "is of bob"),
                                     ("ann 2", "a folder", "a person has one handle"),
                                     ("4nn", "a folder", "a person has one handle")):
            other = receipts.save(self.receipt(handle, 2), receipts.RECEIPTS)
            code, text = self.printed(main.main, ["leaderboard", "verify", str(other), source])
            self.assertEqual(code, 1)
            self.assertIn(said, text)
        roster = self.folder() / "gradebook.csv"
        roster.write_text('Student,ID\n"Doe, Ann",101\n')
        for source, said in (("doeann_102_5_x.zip", "is of no row"), ("a folder", "is of no row"),
                             ("doeann_101_5_x.zip", "is of a folder, and SOURCE is of 101")):
            code, text = self.printed(main.main, [*verify[:-1], source, "--roster", str(roster)])
            self.assertIn(said, text)
        self.patch(submit, sources_of=lambda *_: {"a.cpp": b"bob"})
        self.assertIn("a.cpp differs", self.printed(main.main, verify)[1])
        self.patch(machine, device=lambda _: "another model")
        self.assertIn("never mixes two models", self.printed(main.main, verify)[1])

    def test_two_models_of_a_device_are_two_boards(self):
        for device in ("A", "B"):
            receipts.save(self.receipt("ann", 2, machine={"device": device}), receipts.RECEIPTS)
        self.assertEqual(len(self.rows()[0]), 2)

    def test_one_receipt_does_not_stop_the_page_nor_gain_by_its_numbers(self):
        place = self.folder()
        good = dataclasses.asdict(self.receipt("bob", 2))
        self.verify(receipts.save(self.receipt("ann", 2), receipts.RECEIPTS))
        bad = {
            "a result of its own": good | {"speedup": 100},
            "a mark from elsewhere": good | {"mark": True},
            "another board": good | {"board_sha256": "0" * 64},
            "a name that is no name": good | {"name": "<script>alert(1)</script>"},
            "a name that a legend leaves out": good | {"name": "_bob"},
            "a name without a letter": good | {"name": "--"},
            "two alphabets": good | {"name": "\N{CYRILLIC SMALL LETTER A}bc"},
            "the name of a mark": good | {"name": "4 Balanced"},
            "no samples": good | {"samples": []},
            "samples of another kind": good | {"samples": [[]] * 40},
            "the far future": good | {"time": "9999-12-31T23:59:59Z"},
            "the far past": good | {"time": "0001-01-01T00:00:00Z"},
            "no object": [],
            "a verification": {"verifies": "0" * 64, "holds": True, "why": "", "receipt": good}}
        for number, content in enumerate(bad.values()):
            (place / f"{number}.json").write_text(json.dumps(content))
        (place / "deep.json").write_text("[" * 100_000)
        (place / "many_digits.json").write_text("9" * 100_000)
        os.mkfifo(place / "pipe.json")
        mine, = receipts.folder(receipts.RECEIPTS).glob("*.json")
        (place / "link.json").symlink_to(mine)
        rows, left_out = self.rows(place)
        self.assertEqual(rows, [[(1, "ann", "verified")]])
        self.assertEqual(len(left_out), len(bad) + 4, left_out)
        code, text = self.printed(main.main, ["leaderboard", str(place)])
        self.assertEqual((code, text.count("left out: ")), (0, len(bad) + 4))

    def test_a_claim_stands_below_what_is_verified_and_a_person_has_one_row(self):
        self.verify(receipts.save(self.receipt("ann", 2), receipts.RECEIPTS))
        self.verify(receipts.save(self.receipt("bob", 1.5), receipts.RECEIPTS))
        same = {"a.cpp": hashlib.sha256(b"eve").hexdigest()}
        for number in range(40):
            receipts.save(self.receipt(f"eve {number}", 9, sources=same), receipts.RECEIPTS)
        for name in ("Ann", "A-N-N", "zed"):
            receipts.save(self.receipt(name, 9.5), receipts.RECEIPTS)
        receipts.save(self.receipt("zed", 9.5, machine={"device": "(a device)"}), receipts.RECEIPTS)
        (rows, below), left_out = self.rows()
        self.assertEqual(below, [(None, "zed", "not verified")])
        self.assertEqual(rows, [(1, "ann", "verified"), (2, "bob", "verified"),
                                (None, "zed", "not verified"), (None, "eve 0", "not verified")])
        self.assertIn("Ann on part2-cpu: its name or its files are those of ann", left_out)
        self.assertEqual(len(left_out), 39 + 2)

    def test_pytorch_stands_beside_a_board_of_the_gpu_that_it_was_measured_on(self):
        board, device = boards.find("gpu-forward-backward"), "NVIDIA H200 (143771 MiB)"
        self.assertEqual(pytorch.times(board, device), ())
        row = {
            "status": "ok", "gpu": "NVIDIA H200", "device": "cuda", "dtype": "float32",
            "batch": 8, "heads": 1, "d_model": 64, "query_scale": 1, "causal": False}
        rows = [row | {"implementation": name, "seq_len": keys, "forward_ms": ms,
                       "backward_ms": 2 * ms, "total_ms": 3 * ms} | other
                for name, keys, ms, other in (
                    ("pytorch_sdpa", 16384, 15, {}), ("pytorch_math", 16384, 10, {}),
                    ("pytorch_sdpa", 8192, 1, {}),
                    ("pytorch_math", 16384, 1, {"causal": True}),
                    ("pytorch_math", 16384, 1, {"query_scale": 8}),
                    ("pytorch_math", 8192, 1, {"gpu": "NVIDIA A100"}),
                    ("pytorch_flash", 8192, 1, {}), ("7_ours", 16384, 1, {}))]
        file = self.root / "outputs/x/csv/attention_benchmark.csv"
        file.parent.mkdir(parents=True)
        file.write_text("\n".join(",".join(map(str, line)) for line in (
            rows[0], *(one.values() for one in rows))) + "\n")
        self.assertEqual(pytorch.times(board, device), (("pytorch_math", 30), ("pytorch_sdpa", 45)))
        self.assertEqual(pytorch.times(boards.find("part3-forward"), device)[0],
                         ("pytorch_math", 10))
        self.assertEqual(pytorch.times(board, "NVIDIA A100"), ())
        self.assertEqual(pytorch.times(self.board, device), ())
        self.assertIn("math 30 ms; sdpa 45 ms", pytorch.line(pytorch.times(board, device)))

    def test_the_page_has_all_rows_and_loads_nothing(self):
        for name, speed in (("ann", 2), ("m & l", 3)):
            receipt = self.receipt("ann", speed)
            object.__setattr__(receipt, "name", name)
            self.verify(receipts.save(receipt, receipts.RECEIPTS)) if name == "ann" else None
        receipts.save(self.receipt("4_balanced", 9, mark=True), receipts.MARKS)
        found, _ = standings.collect([])
        text = pages.page(found, "2026-01-31")
        for wanted in ("4_balanced", ">2.000<", self.board.title, "<svg"):
            self.assertIn(wanted, text)
        # Names of XML's vocabularies are addresses too; nothing else may be one.
        self.assertEqual(re.findall(r"(?:src|href)=\"(?!#)|<script|@import|url\((?!#)", text), [])
        self.assertIn("| 1 | ann | 2.000 |", pages.markdown(found))
        self.assertEqual(pages.table(found).count("\n"), 3)


class Boards(Test):
    def test_all_boards_can_be_read_and_name_what_is_there(self):
        found = boards.load_all()
        self.assertTrue({"part1-cpu", "part2-cpu"} <= {board.name for board in found})
        for board in found:
            for mark in board.marks:
                self.assertTrue(board.rungs(mark), f"{board.name}: {mark}")

    def test_a_mistake_in_a_board_is_named(self):
        right = (paths.ROOT / boards.FOLDER / "part2-cpu.toml").read_text()
        for old, new, said in (("8x1x256x64:causal", "8x1x256", "problems is"),
                               ('"cpu"', '"tpu"', 'device is "tpu"'), ("title", "titel", '"titel"'),
                               ("tasks = [", 'tasks = ["a.b", ', "tasks is")):
            file = self.folder() / "bad.toml"
            file.write_text(right.replace(old, new, 1))
            self.assertIn(said, self.refused(boards.load, file))

    def test_what_this_machine_lacks_is_said(self):
        def submit(board):
            code, text = self.printed(main.main, ["submit", board, "--mode", "benchmark"])
            self.assertEqual(code, 1)
            return text

        for cuda, checked, said in (("none", True, "has no CUDA"),
                                    ("toolkit", True, "there is none here"),
                                    ("gpu", False, "needs g++")):
            config = build.Config("", "", cuda, "", "", True, checked)
            self.patch(build, configured=lambda *_, config=config: config)
            self.assertIn(said, submit("part3-forward"))
        self.patch(build, configured=lambda *_: dataclasses.replace(config, checked=True))
        self.patch(sandbox.shutil, which=lambda _: None)
        for board in ("part1-cpu", "part3-forward"):
            self.assertIn("bubblewrap is not installed", submit(board))
        self.assertIn('no board "part1"', submit("part1"))

    def test_a_gpu_is_asked_for_its_model_and_for_others_that_use_it(self):
        board = boards.find("part3-forward")
        said = {"--query-gpu=name,memory.total": "NVIDIA H200, 143771 MiB\n",
                "--query-compute-apps=pid,process_name": "17, python3\n"}
        self.patch(machine, _query=lambda what, *_: said[what])
        self.assertEqual(machine.device(board), "NVIDIA H200 (143771 MiB)")
        with self.assertRaisesRegex(Busy, "others compute on it .17, python3."):
            machine.refuse_if_busy(board)
        said["--query-compute-apps=pid,process_name"] = ""
        machine.refuse_if_busy(board)
        self.patch(machine, _query=lambda *_: "")
        self.assertIn("nvidia-smi does not say", self.refused(machine.device, board))


@unittest.skipIf(sandbox.trouble(), sandbox.trouble())
@unittest.skipUnless(all(file.is_file() for file in NEEDED),
                     f"{BUILD} has no judge of the leaderboard: build the target flash_leaderboard")
class Cheats(Test):
    def site(self, board, backend="", **changes):
        """A board as it is measured, without the audit, on which results do not stand."""
        board = dataclasses.replace(boards.find(board), **changes)
        tasks = tuple(board.load_tasks())
        work = self.folder()
        bench = fast(judging.set_up(tasks, work / "headers", BUILD, backends=(backend,)))
        return Site(board, tasks, dataclasses.replace(bench, audited=False), work)

    def test_no_cheat_gets_a_result_and_what_is_right_gets_one(self):
        where = self.site("part1-cpu", problems=("1x256x512x64", "2x64x256x64"))
        self.none_gets_a_result(where, 2)

    @unittest.skipIf(lacks("bin/submit_leaderboard_emulated", EMULATED_SOLUTION),
                     lacks("bin/submit_leaderboard_emulated", EMULATED_SOLUTION))
    def test_no_cheat_in_cuda_gets_a_result_on_the_emulator(self):
        where = self.site("part1-gpu", EMULATED, problems=("1x26x70x40", "2x13x64x33"))
        self.none_gets_a_result(where, 2, BUILD / EMULATED_SOLUTION)
        many_keys = self.site("part1-gpu", EMULATED, problems=("1x26x2048x32",))
        self.none_gets_a_result(many_keys, 1, BUILD / EMULATED_SOLUTION, "14 of the 24 bits")

    @unittest.skipIf(lacks("bin/submit_leaderboard_gpu") or not gpu.devices(),
                     lacks("bin/submit_leaderboard_gpu") or "there is no GPU here")
    def test_no_cheat_in_cuda_gets_a_result_on_a_gpu(self):
        where = self.site("part1-gpu", GPU, problems=("1x2048x4096x128", "8x2048x4096x128"))
        self.none_gets_a_result(where, 1)

    def none_gets_a_result(self, where, at_a_time, reference=None, only=""):
        own = CHEATS / where.tasks[0].file
        for file, root in ((paths.ROOT / "tests/harness/judge/protocol.hpp", paths.ROOT / "tests"),
                           (CHEATS / "cheats.hpp", paths.ROOT)):
            copied = where.bench.headers / file.relative_to(root)
            copied.parent.mkdir(parents=True)
            shutil.copy(file, copied)
        libraries = measuring.libraries(where, {where.tasks[0].shown_path(): own.read_bytes()})
        source = (CHEATS / "cheats.hpp").read_text()
        if where.backend != EMULATED:  # there it has none of its own
            source += own.read_text()
        names = re.findall(r'^    \{"([^"]+)",', source, re.MULTILINE)
        self.assertGreater(len(names), 20)

        def measured(name):
            work = Path(tempfile.mkdtemp(dir=where.work))
            try:
                # Not every turn has what these leave out; of 24 some have.
                turns = 12 if re.search("maximum|score", name) else 3
                done = measuring.measure(dataclasses.replace(where, work=work), libraries, turns,
                                         {"CHEAT": name}, warm_up_ms=0, reference=reference)
                if where.backend == GPU:
                    result_of(where.board, done.samples, 3)
                return "it was measured to its end"
            except NoResult as error:
                return str(error)

        names = [name for name in names if only in name]
        left = "|something else ran on the GPU" * (where.backend == GPU)
        with ThreadPoolExecutor(at_a_time) as pool:
            for name, said in zip(names, pool.map(measured, names)):
                with self.subTest(name):
                    self.assertRegex(said, "it was measured to its end" if name == "honest" else
                                     "no time is taken of a wrong result" + left)
                    if "fingerprint" not in name:  # emulated, host code has no device memory
                        self.assertNotIn("cudaError", said)  # it fails as on a GPU

    def test_a_backward_pass_that_ignores_an_lse_of_minus_infinity_gets_no_result(self):
        where = self.site("part2-cpu", problems=("2x4x48x16",))
        forward, backward = (task.path("solution").read_text() for task in where.tasks)
        rule = "if (lse(b, h, i) == -kInfinity) continue;"
        self.assertIn(rule, backward)
        for code, wrong in ((backward, ""), (backward.replace(rule, ""), "a wrong result")):
            again = dataclasses.replace(where, work=self.folder())
            libraries = measuring.libraries(again, dict(zip(
                (task.shown_path() for task in where.tasks), (forward.encode(), code.encode()))))
            try:
                measuring.measure(again, libraries, 12, warm_up_ms=0)
                said = ""
            except NoResult as error:
                said = str(error)
            self.assertIn(wrong, said)
            self.assertEqual(bool(wrong), bool(said))

    def test_a_call_that_sleeps_takes_that_time_and_is_no_busy_machine(self):
        where = self.site("part1-cpu", problems=("1x256x512x64",))
        task, = where.tasks
        right = task.path("solution").read_text()
        sleeps = right.replace("  check_at_least", """  static int never = 0;
  const timespec tenth{0, 100'000'000};
  syscall(SYS_futex, &never, 0 /* FUTEX_WAIT */, 0, &tenth, nullptr, 0);
  check_at_least""", 1)
        self.assertNotEqual(sleeps, right)
        code = f"#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n{sleeps}"
        library = measuring.libraries(where, {task.shown_path(): code.encode()})
        for one in measuring.measure(where, library, 2, warm_up_ms=0).samples:
            self.assertGreater(one["student_ms"], 100)
            self.assertGreater(one["student_processor_ms"], 90)  # nobody else had the core in it

    def test_a_library_that_does_the_work_is_refused(self):
        # It would be right and fast: only the audit stands against it.
        where = self.site("part1-cpu")
        where = dataclasses.replace(where, bench=dataclasses.replace(where.bench, audited=True))
        for top, body, said in (
                ('extern "C" void cblas_sgemm(...);', "cblas_sgemm(0);", "does the exercise"),
                ("#include <dlfcn.h>", 'dlopen("libblas.so.3", RTLD_NOW);', "loads other code")):
            code = FRAME.format(top=top, body=body).encode()
            again = dataclasses.replace(where, work=self.folder())
            self.assertIn(said, self.refused(measuring.libraries, again,
                                             {where.tasks[0].shown_path(): code}))
