"""flash_course::attention in PyTorch: its gradients, torch.compile, errors, skeletons."""

import os
import subprocess
import sys
import unittest

import torch

LIBRARIES = os.environ["FLASH_LIBRARIES"]
SOLUTION = f"{LIBRARIES}/libflash_course_solution.so"
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
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


def inputs(queries=7, keys=9, head_dim=8, dtype=torch.float64, device="cpu"):
    random = torch.Generator().manual_seed(1)
    x = [torch.randn(2, 2, n, head_dim, generator=random, dtype=torch.float64)
         for n in (queries, keys, keys)]
    return [one.to(device, dtype).requires_grad_() for one in x]


def reference(q, k, v, causal=False, scale=None):
    """Attention in float64 with gradients, from its formula."""
    q, k, v = q.double(), k.double(), v.double()
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v


@unittest.skipUnless(os.path.exists(SOLUTION), "skipped: there are no solutions")
class Operator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.ops.load_library(SOLUTION)

    def test_gradients_are_those_of_the_formula(self):
        for names in [("flash", "flash"), ("standard", "standard"), ("4_balanced", "flash"),
                      ("flash", "pytorch_flash"), ("pytorch_math", "pytorch_math")]:
            for causal in (False, True):
                with self.subTest(names=names, causal=causal):
                    torch.autograd.gradcheck(
                        lambda q, k, v: attention(q, k, v, causal, 0.4, *names), inputs())

    def test_agrees_with_float64(self):
        for device in DEVICES:
            for dtype, bound in [(torch.float32, 2e-5), (torch.bfloat16, 0.06)]:
                if device == "cpu" and dtype == torch.bfloat16:
                    continue
                with self.subTest(device=device, dtype=dtype):
                    x = inputs(70, 70, 64, dtype, device)
                    got, want = attention(*x, causal=True), reference(*x, causal=True)
                    d_out = torch.randn_like(got)
                    results = [got, *torch.autograd.grad(got, x, d_out)]
                    expected = [want, *torch.autograd.grad(want, x, d_out.double())]
                    for one, other in zip(results, expected):
                        error = (one.double() - other.double()).abs().max() / other.abs().max()
                        self.assertLess(error, bound)

    def test_is_an_operator_as_pytorch_wants_it(self):
        for device in DEVICES:
            for x in (inputs(dtype=torch.float32, device=device),
                      [one.transpose(1, 2) for one in inputs(2, 2, 8, torch.float32, device)]):
                torch.library.opcheck(torch.ops.flash_course.attention.default, x, {"causal": True})

    def test_torch_compile_takes_it_whole(self):
        compiled = torch.compile(lambda q, k, v: attention(q.sin(), k, v, causal=True).cos(),
                                 fullgraph=True, backend="aot_eager")
        for queries in (7, 12):
            x = inputs(queries)
            want = reference(x[0].sin(), *x[1:], causal=True).cos()
            got = compiled(*x)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(torch.autograd.grad(got.sum(), x),
                                       torch.autograd.grad(want.sum(), x))

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
                 lambda: attention(q, no_k, no_v, forward="pytorch_flash"))]:
            with self.subTest(words=words), self.assertRaisesRegex(error, words):
                call()

    def test_the_profiler_and_a_pass_of_pytorchs_do_not_meet(self):
        with torch.profiler.profile(profile_memory=True):
            attention(*inputs(), forward="pytorch_flash", backward="pytorch_flash").sum().backward()


class Skeleton(unittest.TestCase):
    def test_says_what_is_not_written_yet(self):  # a process of its own: operators are defined once
        run = subprocess.run([sys.executable, "-c", SKELETON.format(LIBRARIES)], text=True,
                             capture_output=True)
        self.assertEqual(run.stdout, "part2.flash_forward is not written yet\nTrue\n", run.stderr)


if __name__ == "__main__":
    unittest.main()
