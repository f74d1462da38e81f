"""flash_course::attention in PyTorch: PyTorch's passes and ours, alone and together; torch.compile,
errors, skeletons. flash_course::decode, and what bench_attention says of the memory of PyTorch's
passes."""

import csv
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
from torch.autograd import forward_ad

LIBRARIES = os.environ["FLASH_LIBRARIES"]
SOLUTION = f"{LIBRARIES}/libflash_course_solution.so"
BENCHMARK = f"{LIBRARIES}/../bin/bench_attention"
# Relative errors by the Frobenius norm. One key of 257 that is left out is an error of 0.06.
BOUNDS = {torch.float32: 3e-6, torch.float64: 1e-14, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
SHAPES = [(1, 1, 64, 64, 64), (2, 3, 100, 100, 64), (1, 2, 257, 257, 128), (1, 2, 130, 70, 32),
          (1, 2, 70, 130, 32), (1, 1, 33, 47, 13)]  # batch, heads, queries, keys, head_dim
OWN = [(f"pytorch_{name}",) * 2 for name in ("flash", "math", "sdpa")]
OURS = [("flash_best", "flash_best"), ("standard", "standard"), ("standard", "pytorch_flash"),
        ("flash", "pytorch_flash"), ("pytorch_flash", "flash")]
SCALE = 0.2  # not the default
ROOT = pathlib.Path(__file__).parents[2]
LADDER = ROOT / "bonus_backward/ladder"
SKELETON = """
import torch
torch.ops.load_library("{}/libflash_course_skeleton.so")
q = torch.randn(1, 1, 4, 8, requires_grad=True)
attention = torch.ops.flash_course.attention
try:
    attention(q, q, q)
except NotImplementedError as error:
    print(error)
attention(q, q, q, forward="pytorch_flash", backward="pytorch_flash").sum().backward()
print(bool(q.grad.isfinite().all()))
"""


def attention(*arguments, **options):
    return torch.ops.flash_course.attention(*arguments, **options)


def normal(seed, *shape, dtype=torch.float64, device="cpu"):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=random, dtype=torch.float64).to(device, dtype)


def inputs(batch=2, heads=2, queries=7, keys=9, head_dim=8, swapped=False, **options):
    """q, k and v. Where `swapped`, they lie in memory as (batch, sequence, heads, head_dim)."""
    x = [normal(seed, batch, n, heads, head_dim, **options).transpose(1, 2)
         for seed, n in enumerate((queries, keys, keys))]
    return [(one if swapped else one.contiguous()).requires_grad_() for one in x]


def reference(q, k, v, causal, scale=None):
    """Attention with gradients, from its formula."""
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v


@unittest.skipUnless(os.path.exists(SOLUTION), "skipped: there are no solutions")
class Operator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.ops.load_library(SOLUTION)

    def taken(self, pairs, swapped=False, **options):
        """How many problems each pair of passes takes; checks the results of each."""
        counts = dict.fromkeys(pairs, 0)
        bound = BOUNDS[options["dtype"]]
        for shape, causal in itertools.product(SHAPES, (False, True)):
            x = inputs(*shape, swapped, **options)
            wide = [one.detach().double().requires_grad_() for one in x]
            want = reference(*wide, causal, SCALE)
            d_out = normal(3, *want.shape, **options)
            expected = [want, *torch.autograd.grad(want, wide, d_out.double())]
            for names in pairs:
                try:
                    out = attention(*x, causal, SCALE, *names)
                    results = [out, *torch.autograd.grad(out, x, d_out)]
                except NotImplementedError:
                    continue
                counts[names] += 1
                for got, want in zip(results, expected):
                    error = (got.double() - want).norm() / want.norm()
                    with self.subTest(names=names, shape=shape, causal=causal):
                        self.assertLess(error, bound)
        return counts

    def test_passes_are_right_alone_and_together_on_every_problem_that_they_take(self):
        for dtype, swapped in itertools.product(BOUNDS, (False, True)):
            with self.subTest(dtype=dtype, swapped=swapped):
                counts = self.taken(OWN + OURS, swapped, dtype=dtype)
                self.assertEqual(counts, dict.fromkeys(OWN + OURS, 12))

    @unittest.skipUnless(torch.cuda.is_available(), "skipped: there is no GPU")
    def test_passes_on_a_gpu_are_right_alone_and_together_on_what_they_take(self):
        kernels = [(f"pytorch_{name}",) * 2 for name in ("efficient", "cudnn")]
        kernels += [("pytorch_efficient", "flash"), ("flash", "pytorch_efficient"),
                    ("pytorch_cudnn", "flash")]
        with torch.cuda.stream(torch.cuda.Stream()):
            for dtype in BOUNDS:
                with self.subTest(dtype=dtype):
                    counts = self.taken(OWN + OURS + kernels, dtype=dtype, device="cuda")
                    flash, math, sdpa = (counts[names] for names in OWN)
                    self.assertEqual((math, sdpa), (12, 12))
                    if dtype == torch.float32:
                        self.assertEqual(counts[kernels[0]], 10)  # not a head_dim of 13
                    elif dtype != torch.float64:
                        self.assertEqual((flash, counts[kernels[1]]), (8, 10))
                    if dtype != torch.float64:
                        self.assertGreater(counts[OURS[0]], 0)

    @unittest.skipUnless(torch.cuda.is_available(), "skipped: there is no GPU")
    def test_gradients_of_long_sequences_keep_two_identities(self):
        """out is linear in v, so <d_out, out(w)> is <d_v, w>; and q times a number is k times it,
        so <d_q, q> is <d_k, k>. Each difference is measured by the norms of its factors."""
        rungs = sorted(file.name.split(".")[0] for file in LADDER.glob("[0-9]*"))
        for dtype, head_dim, causal in itertools.product((torch.float16, torch.bfloat16),
                                                         (64, 128, 256, 512), (False, True)):
            q, k, v, w, d_out = (normal(seed, 1, 2, 16384, head_dim, device="cuda", dtype=dtype)
                                 .requires_grad_() for seed in range(5))
            taken = 0
            for rung in rungs:
                try:
                    out = attention(q, k, v, causal, SCALE, "flash_best", rung)
                    d_q, d_k, d_v = torch.autograd.grad(out, (q, k, v), d_out)
                except NotImplementedError:
                    continue
                taken += 1
                other = attention(q, k, w, causal, SCALE, "flash_best", rung)
                for a, b, c, d in ((d_out, other, d_v, w), (d_q, q, d_k, k)):
                    a, b, c, d = (one.detach().double() for one in (a, b, c, d))
                    size = a.norm() * b.norm() + c.norm() * d.norm()
                    with self.subTest(rung=rung, dtype=dtype, head_dim=head_dim, causal=causal):
                        self.assertLess(((a * b).sum() - (c * d).sum()).abs() / size,
                                        BOUNDS[dtype] / 16)
            self.assertGreater(taken, 2 if head_dim <= 256 else 0)

    def test_decoding_needs_a_gpu_and_knows_its_shapes_without_one(self):
        q, k, v = (normal(seed, *shape, dtype=torch.half) for seed, shape in enumerate(
            [(3, 4, 1, 64), (9, 16, 2, 64), (9, 16, 2, 64)]))
        x = q, k, v, torch.zeros(3, 3, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
        with self.assertRaisesRegex(NotImplementedError, "decode.*'CPU'"):
            torch.ops.flash_course.decode(*x)
        out, lse = torch.ops.flash_course.decode(*(one.to("meta") for one in x))
        self.assertEqual((out.shape, lse.shape), (q.shape, q.shape[:3]))
        self.assertEqual((out.dtype, lse.dtype), (torch.half, torch.float32))

    @unittest.skipUnless(torch.cuda.is_available(), "skipped: there is no GPU")
    def test_decoding_from_pages_is_attention_of_the_last_queries(self):
        lengths, queries, pages = [70, 0, 33, 600], 2, 38
        decode, on = torch.ops.flash_course.decode, {"device": "cuda"}
        table = torch.randperm(4 * pages, **on).view(4, pages).int()
        there = torch.tensor(lengths, dtype=torch.int32, **on)
        for dtype in (torch.float32, torch.half, torch.bfloat16):
            q, k, v = (normal(seed, *shape, dtype=dtype, **on) for seed, shape in enumerate(
                [(4, 4, queries, 64), (4 * pages, 16, 2, 64), (4 * pages, 16, 2, 64)]))
            torch.library.opcheck(decode.default, (q, k, v, table, there))
            for name, (b, length) in itertools.product(("flash_best", "flash", "2_split"),
                                                       enumerate(lengths)):
                keys, values = (x[table[b]].flatten(0, 1)[:length].double().transpose(0, 1)
                                .repeat_interleave(2, 0) for x in (k, v))
                later = torch.ones(queries, length, dtype=torch.bool, **on).triu(
                    length - queries + 1)
                scores = (q[b].double() @ keys.mT * SCALE).masked_fill(later, -torch.inf)
                out, lse = decode(q, k, v, table, there, SCALE, name)
                with self.subTest(dtype=dtype, name=name, length=length):
                    want = scores.softmax(-1) @ values
                    self.assertLessEqual((out[b] - want).norm(), BOUNDS[dtype] * want.norm())
                    torch.testing.assert_close(lse[b], scores.logsumexp(-1).float())
        with self.assertRaisesRegex(ValueError, "lengths is Long on cuda:0, with 1 axes"):
            decode(q, k, v, table, there.long())

    @unittest.skipUnless(torch.cuda.is_available(), "skipped: there is no GPU")
    def test_the_example_generates_text(self):
        run = subprocess.run([sys.executable, ROOT / "benchmarking/torch/train_character_model.py",
                              SOLUTION, *"--steps 20 --device cuda --decode flash".split()],
                             text=True, capture_output=True)
        self.assertRegex(run.stdout, r"tokens a second; one text of 16:\n", run.stderr)

    def test_is_an_operator_as_pytorch_wants_it(self):
        for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
            for swapped in (False, True):
                x = inputs(swapped=swapped, dtype=torch.float32, device=device)
                torch.library.opcheck(torch.ops.flash_course.attention.default, x, {"causal": True})

    def test_torch_compile_takes_it_whole(self):
        compiled = torch.compile(lambda q, k, v: attention(q.sin(), k, v, causal=True).cos(),
                                 fullgraph=True, backend="aot_eager")
        for queries in (7, 12):
            x = inputs(queries=queries)
            want = reference(x[0].sin(), *x[1:], causal=True).cos()
            got = compiled(*x)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(torch.autograd.grad(got.sum(), x),
                                       torch.autograd.grad(want.sum(), x))
            without_gradients = [one.detach() for one in x]
            torch.testing.assert_close(compiled(*without_gradients), want)

    def test_a_derivative_forwards_is_an_error(self):
        q, k, v = (one.detach() for one in inputs())
        with forward_ad.dual_level(), self.assertRaisesRegex(NotImplementedError, "forward AD"):
            attention(forward_ad.make_dual(q, q), k, v)

    def test_a_second_derivative_is_an_error(self):
        q, k, v = inputs()
        (d_q,) = torch.autograd.grad(attention(q, k, v).sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "not implemented"):
            d_q.sum().backward()

    def test_errors_are_ours(self):
        x = q, k, v = inputs()
        no_k, no_v = k[:, :, :0], v[:, :, :0]
        for error, words, call in [
                (ValueError, "pass is 'flush'; on cpu it must be one of: standard, flash",
                 lambda: attention(*x, forward="flush")),
                (ValueError, "forward is 'flash_best'; backward pass 'standard' reads",
                 lambda: attention(*x, backward="standard")),
                (ValueError, "v is Float on cpu; it must be Double on cpu, as q is",
                 lambda: attention(q, k, v.float())),
                (ValueError, "k has shape", lambda: attention(q, k[..., :4], v)),
                (ValueError, "q has 3 axes", lambda: attention(q[0], k, v)),
                (NotImplementedError, "q is Int", lambda: attention(q.int(), k.int(), v.int())),
                (NotImplementedError, "keys is 0",
                 lambda: attention(q, no_k, no_v, forward="pytorch_flash")),
                (NotImplementedError, "k's stride along head_dim is 9; PyTorch's kernel needs 1",
                 lambda: attention(q, k.mT.contiguous().mT, v, forward="pytorch_flash"))]:
            with self.subTest(words=words), self.assertRaisesRegex(error, words):
                call()

    def test_the_profiler_and_a_pass_of_pytorchs_do_not_meet(self):
        with torch.profiler.profile(profile_memory=True):
            attention(*inputs(), forward="pytorch_flash", backward="pytorch_flash").sum().backward()

    def test_the_benchmark_sees_what_pytorch_allocates(self):
        with tempfile.NamedTemporaryFile("r") as rows:
            subprocess.run([BENCHMARK, "--output", rows.name, *"--impl pytorch_flash,pytorch_math "
                            "--batch 1 --heads 2 --seq-lens 2048 --head-dim 16 --causal off "
                            "--passes 1".split()], check=True, capture_output=True,
                           env=os.environ | {"FLASH_THREADS": "2"})  # each has its own buffers
            flash, math = csv.DictReader(rows)
        out, matrix = 2 * 2048 * 17 * 4 / 2**20, 2 * 2048**2 * 4 / 2**20  # lse belongs to out
        self.assertTrue(out <= float(flash["forward_peak_MiB"]) < matrix, flash)
        self.assertGreaterEqual(float(math["forward_peak_MiB"]), matrix)
        self.assertGreaterEqual(float(math["saved_activations_MiB"]), matrix)


class Skeleton(unittest.TestCase):
    def test_says_what_is_not_written_yet(self):  # a process of its own: operators are defined once
        run = subprocess.run([sys.executable, "-c", SKELETON.format(LIBRARIES)], text=True,
                             capture_output=True)
        self.assertEqual(run.stdout, "part2.flash_forward is not written yet\nTrue\n", run.stderr)
