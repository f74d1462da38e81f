"""Measures the errors of our float32 attention beside those of PyTorch's memory-efficient kernel,
on a GPU: on ordinary inputs, and on those that are hard for numbers cut in pieces.

    PYTHON part3_flash_cuda/ladder/float32_errors.py build/default/lib/libflash_course_solution.so

Each figure is an error of ours over PyTorch's on the same inputs: the geometric mean over the
seeds, and the worst of them. Errors are those against float64: relative by the Frobenius norm, and
the largest of one element.
"""

import argparse
import itertools
import math
import pathlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser(description="Compares errors of float32 attention with PyTorch's.")
parser.add_argument("library", help="libflash_course_solution.so")
parser.add_argument("--forward", default="flash_best,11_float32_planes_robust",
                    help="names of forward passes (%(default)s)")
parser.add_argument("--seeds", type=int, default=30)
options = parser.parse_args()
torch.ops.load_library(str(pathlib.Path(options.library).resolve()))
torch.backends.cuda.matmul.allow_tf32 = False
HEADS, HEAD_DIMS, LENGTHS = 8, (64, 128), (1024, 4096)


def normal(*shape):
    return torch.randn(shape, device="cuda")


def lognormal(x):
    """Rows and columns each times a factor of their own."""
    return x * normal(*x.shape[:-1], 1).exp() * normal(x.shape[-1]).exp()


def with_outlier(x, size):
    """One element in each head."""
    at = torch.randint(x[0, 0].numel(), (HEADS,), device="cuda")
    x.view(HEADS, -1)[torch.arange(HEADS, device="cuda"), at] = size
    return x


INPUTS = {"N(0, 1)": lambda x: x, "q x 8": lambda x: (8 * x[0], *x[1:]),
          "lognormal": lambda x: map(lognormal, x)}
for size, (place, letter) in itertools.product((1e3, 1e6), enumerate("qkv")):
    INPUTS[f"{size:.0e} in {letter}"] = lambda x, size=size, place=place: (
        with_outlier(one, size) if n == place else one for n, one in enumerate(x))


def reference(q, k, v, causal):
    """Attention in float64, a head at a time."""
    out = torch.empty_like(q, dtype=torch.float64)
    hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device="cuda").triu(1)
    for h in range(HEADS):
        scores = q[0, h].double() @ k[0, h].double().mT * q.shape[-1] ** -0.5
        if causal:
            scores.masked_fill_(hidden, -math.inf)
        out[0, h] = scores.softmax(-1) @ v[0, h].double()
    return out


def errors(out, expected):
    wrong = out.double() - expected
    return float(wrong.norm() / expected.norm()), float(wrong.abs().max())


print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {options.seeds} seeds\n"
      f"{'':34}     Frobenius norm    largest error\n"
      f"{'inputs':12} {'head_dim':>8} {'keys':>6} {'causal':>6}       mean   worst    mean   worst")
for (name, change), head_dim, length, causal in itertools.product(
        INPUTS.items(), HEAD_DIMS, LENGTHS, (False, True)):
    ratios = {forward: [] for forward in options.forward.split(",")}
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        x = tuple(change(tuple(normal(1, HEADS, length, head_dim) for _ in range(3))))
        expected = reference(*x, causal)
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            theirs = errors(torch.nn.functional.scaled_dot_product_attention(
                *x, is_causal=causal), expected)
        for forward, of_seeds in ratios.items():
            ours = errors(torch.ops.flash_course.attention(*x, causal=causal, forward=forward),
                          expected)
            of_seeds.append([a / b for a, b in zip(ours, theirs)])
    for forward, of_seeds in ratios.items():
        row = [number for kind in zip(*of_seeds)
               for number in (math.exp(sum(map(math.log, kind)) / len(kind)), max(kind))]
        print(f"{name:12} {head_dim:8} {length:6} {causal!s:>6}  ",
              *(f"{x:7.2f}" for x in row), " ", forward, flush=True)
