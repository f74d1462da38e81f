"""Attention, ours and PyTorch's, on the same tensors: on the CPU, or on a GPU beside one of PyTorch's backends."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from .attention import Inputs, Truth, Verdict
from .errors import ComparisonError, Unsupported
from .library import Library
from .problems import BACKENDS, ON_DEVICE, Case

GEMM_SIZE = 2048


class TorchBench:
    """What all cases share on the CPU: PyTorch's flash attention as the peer, the oracle, the ceilings."""

    backend = "FLASH_ATTENTION"

    def __init__(self, torch: Any, library: Library, threads: int) -> None:
        self.torch, self.library, self.truth = torch, library, Truth(torch, library)
        torch.set_num_threads(threads)
        self.peer = f"pytorch {torch.__version__} sdpa flash"
        self._gemm: dict[str, tuple] = {}
        for dtype in ON_DEVICE["cpu"]:  # to ask for its flash attention should do; that it ran is better
            q = torch.zeros(1, 1, 2, 8, dtype=getattr(torch, dtype), requires_grad=True)
            with self.chosen():
                kernel = torch.nn.functional.scaled_dot_product_attention(q, q, q).grad_fn.name()
            if "FlashAttentionForCpu" not in kernel:
                raise ComparisonError(f"PyTorch {torch.__version__} runs {kernel} for {dtype}, not its flash attention")

    def chosen(self) -> Any:
        """Within this, PyTorch's own choice is the backend, or an error."""
        attention = self.torch.nn.attention
        if not hasattr(attention.SDPBackend, self.backend):
            raise Unsupported(f"PyTorch {self.torch.__version__} has no {self.backend}")
        return attention.sdpa_kernel(getattr(attention.SDPBackend, self.backend))

    def gemm(self, dtype: str) -> Callable[[], float] | None:
        """A measurement of torch.mm in GFLOP/s: a small product to wake its threads, then a large one. None where there is none."""
        torch = self.torch
        if dtype not in self._gemm:
            with torch.inference_mode(False):  # what is made in that mode cannot be written outside of it
                a, b = (torch.randn(GEMM_SIZE, GEMM_SIZE, dtype=getattr(torch, dtype)) for _ in range(2))
                self._gemm[dtype] = a, b, torch.empty_like(a)
        a, b, out = self._gemm[dtype]

        def measured() -> float:
            torch.mm(a[:256], b[:, :256])
            begin = time.perf_counter()
            torch.mm(a, b, out=out)
            return 2e-9 * GEMM_SIZE**3 / (time.perf_counter() - begin)

        return measured

    def peak(self, dtype: str) -> Callable[[], float] | None:
        """A measurement of what the machine's multiply-adds can do, in GFLOP/s; None where there is none."""
        return lambda: self.library.fma_peak_gflops(dtype)

    @contextlib.contextmanager
    def duel(self, case: Case, implementation: str) -> Iterator["TorchDuel"]:
        """What is to be measured, in the surroundings that PyTorch measures best in, entered once and not in each call."""
        with self.chosen():
            duel = TorchDuel(self, case, implementation)
            with self.torch.inference_mode(case.direction == "forward"):
                yield duel


class CudaBench(TorchBench):
    """The same on a GPU, beside one of PyTorch's backends; without ceilings. Benches share `truth`, whose inputs are the same."""

    def __init__(self, torch: Any, library: Library, truth: Truth, backend: str) -> None:
        self.torch, self.library, self.truth = torch, library, truth
        self.backend = BACKENDS[backend]
        self.peer = f"pytorch {torch.__version__} sdpa {backend}"

    def gemm(self, dtype: str) -> None:
        return None

    def peak(self, dtype: str) -> None:
        return None


class TorchDuel:
    """One case, one implementation: ours() and peer() do its direction once, check() says whether both are right."""

    def __init__(self, bench: Any, case: Case, implementation: str) -> None:
        torch, library = bench.torch, bench.library
        self.bench, self.case, self.inputs = bench, case, Inputs(torch, case)
        q, k, v, d_out = self.inputs.q, self.inputs.k, self.inputs.v, self.inputs.d_out
        of_queries, dtype = self.inputs.of_queries, self.inputs.dtype

        def unwritten(*shape: int, of: Any = dtype) -> Any:  # NaN: what the pass leaves as it was fails the check
            return torch.full(shape, math.nan, dtype=of, device=case.device)

        out = unwritten(*of_queries)
        lse = unwritten(*of_queries[:3], of=torch.float32 if case.device == "cuda" else dtype)
        saves_p = library.saves_p(implementation)
        p = unwritten(*of_queries[:3], case.seq_len) if saves_p else None
        self._alive = p, out, lse  # the C library has their addresses
        self.lse = lse if case.direction != "backward" and not saves_p else None
        passed = [None if one is None else one.data_ptr() for one in (q, k, v, out, lse, p)]
        forward = library.prepared("attention_forward", case, *passed, name=implementation)
        attention = torch.nn.functional.scaled_dot_product_attention
        if case.direction == "forward":
            self.ours, self.results = forward, {"out": out}
            self.peer = lambda: attention(q, k, v, is_causal=case.causal)
            return
        gradients = {name: unwritten(*of_queries) for name in ("d_q", "d_k", "d_v")}
        backward = library.prepared("attention_backward", case, *passed, d_out.data_ptr(),
                                    *(one.data_ptr() for one in gradients.values()), name=implementation)
        leaves = [one.detach().requires_grad_() for one in (q, k, v)]
        if case.direction == "backward":
            forward()
            self.ours, self.results = backward, gradients
            graph = attention(*leaves, is_causal=case.causal)
            self.peer = lambda: torch.autograd.grad(graph, leaves, d_out, retain_graph=True)
        else:
            def both() -> None:
                forward()
                backward()

            self.ours, self.results = both, {"out": out} | gradients
            self.peer = lambda: torch.autograd.grad(attention(*leaves, is_causal=case.causal), leaves, d_out)

    def check(self) -> Verdict:
        """The errors are those of what PyTorch returns, which of `both` is the gradients; our out and lse have to be right too."""
        self.ours()
        theirs = self.peer()
        theirs = theirs if isinstance(theirs, tuple) else (theirs,)
        judge, direction, problem = self.bench.truth.judge, "forward", ""
        gradients = [one for name, one in self.results.items() if name != "out"]
        if "out" in self.results:
            error, problem = judge(self.inputs, direction, [self.results["out"]], lse=self.lse)
        if gradients:
            direction = "backward"
            error, of_gradients = judge(self.inputs, direction, gradients)
            problem = problem or of_gradients
        peer_error, peer_problem = judge(self.inputs, direction, theirs, "PyTorch's ")
        return Verdict(error, peer_error, problem or peer_problem)
