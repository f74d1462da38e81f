"""The two problems that are compared, what tells their rows apart, and the sizes of a complete run and of --quick."""

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

from .table import Schema

DTYPES = ("float32", "float64", "float16", "bfloat16")  # in the order of FlashDType
ON_DEVICE = {"cpu": ("float32", "float64"), "cuda": ("float32", "float16", "bfloat16")}
# PyTorch's, on a GPU, by the names of torch.nn.attention.SDPBackend.
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}
DIRECTIONS = ("forward", "backward", "both")  # both: a forward pass and its backward pass, timed as one piece of work

OF_CASE = ("device", "direction", "dtype", "batch", "heads", "seq_len", "head_dim", "causal")
ATTENTION = Schema(
    (*OF_CASE, "implementation", "peer", "ms", "peer_ms", "ratio", "error", "peer_error", "machine", "gflops", "peer_gflops",
     "gemm_gflops", "fma_peak_gflops", "share_of_gemm", "share_of_peak", "threads", "isa", "turns", "status", "others"),
    (*OF_CASE, "implementation", "peer", "machine", "threads", "isa"))

# No threads, no instruction set and no ceilings: this problem is compared on a GPU only.
OF_SOFTMAX_MATMUL = ("device", "dtype", "batch", "d1", "d2", "d3")
SOFTMAX_MATMUL = Schema(
    (*OF_SOFTMAX_MATMUL, "implementation", "peer", "ms", "peer_ms", "ratio", "error", "peer_error", "machine", "gflops",
     "peer_gflops", "turns", "status"),
    (*OF_SOFTMAX_MATMUL, "implementation", "peer", "machine"))


@dataclass(frozen=True)
class Case:
    """One problem of attention and one direction."""

    device: str
    direction: str
    dtype: str
    batch: int
    heads: int
    seq_len: int
    head_dim: int
    causal: bool

    schema: ClassVar[Schema] = ATTENTION
    heading: ClassVar[str] = f"{'':<18}heads   keys head       "  # above what __str__ gives

    @property
    def flop(self) -> float:
        """Two products of n x n x d forward, five backward, a multiplication and an addition each; with causal, half."""
        products = {"forward": 2, "backward": 5, "both": 2 + 5}[self.direction]
        whole = 2 * products * self.batch * self.heads * self.seq_len**2 * self.head_dim
        return whole / 2 if self.causal else whole

    def cells(self) -> dict[str, str]:
        return {name: str(getattr(self, name)) for name in OF_CASE}

    def __str__(self) -> str:
        return (f"{self.direction:<8} {self.dtype:<8} {f'{self.batch}x{self.heads}':>5} {self.seq_len:>6} {self.head_dim:>4} "
                f"{'causal' if self.causal else '':<6}")


@dataclass(frozen=True)
class SoftmaxMatmulCase:
    """Part 1's problem: softmax(x) v, with x (batch, d1, d2) and v (batch, d2, d3)."""

    device: str
    dtype: str
    batch: int
    d1: int
    d2: int
    d3: int

    schema: ClassVar[Schema] = SOFTMAX_MATMUL
    heading: ClassVar[str] = f"{'batch':>5} {'d1':>6} {'d2':>6} {'d3':>6}"

    @property
    def flop(self) -> float:
        """Of the product, a multiplication and an addition each; the softmax is not counted."""
        return 2 * self.batch * self.d1 * self.d2 * self.d3

    def cells(self) -> dict[str, str]:
        return {name: str(getattr(self, name)) for name in OF_SOFTMAX_MATMUL}

    def __str__(self) -> str:
        return f"{self.batch:>5} {self.d1:>6} {self.d2:>6} {self.d3:>6}"


# The sizes of --quick are in no complete run, so that its rows, of fewer turns, never replace those of one.
FULL: dict[str, Any] = {"dtypes": ON_DEVICE["cpu"], "directions": ("forward", "backward"), "head_dims": (64, 128),
                        "seq_lens": (512, 1024, 2048, 4096), "batch_heads": ((1, 1), (1, 8)), "causal": (False, True), "turns": 21}
QUICK: dict[str, Any] = FULL | {"dtypes": ("float32",), "head_dims": (64,), "seq_lens": (384, 768), "batch_heads": ((1, 8),),
                                "turns": 9}

# On a GPU the homework's problem, and one with wider heads; of each dtype, since each has backends of its own.
CUDA_FULL: dict[str, Any] = FULL | {"dtypes": ON_DEVICE["cuda"], "directions": DIRECTIONS, "seq_lens": (1024, 4096, 16384),
                                    "batch_heads": ((8, 1),), "turns": 11}
CUDA_QUICK: dict[str, Any] = CUDA_FULL | {"head_dims": (64,), "seq_lens": (768,), "turns": 7}

# Those of bench_softmax_matmul.
SOFTMAX_MATMUL_FULL: dict[str, Any] = {"batch": 16, "d1": 2048, "d2": (64, 128, 256, 512, 1024, 2048, 4096, 8192), "d3": 512,
                                       "turns": 11}
SOFTMAX_MATMUL_QUICK: dict[str, Any] = SOFTMAX_MATMUL_FULL | {"batch": 4, "turns": 7}


def cases(sizes: dict[str, Any], device: str = "cpu") -> list[Case]:
    """All combinations; those that share an oracle's result lie side by side."""
    return [Case(device, direction, dtype, batch, heads, seq_len, head_dim, causal)
            for dtype, head_dim, seq_len, causal, (batch, heads), direction in itertools.product(
                *(sizes[name] for name in ("dtypes", "head_dims", "seq_lens", "causal", "batch_heads", "directions")))]


def softmax_matmul_cases(sizes: dict[str, Any]) -> list[SoftmaxMatmulCase]:
    return [SoftmaxMatmulCase("cuda", "float32", sizes["batch"], sizes["d1"], d2, sizes["d3"]) for d2 in sizes["d2"]]
