"""Part 1's problem on a GPU: its fused function, or the given unfused one, and PyTorch's two calls, on the same tensors."""

import contextlib
import math
import random
from collections.abc import Iterator
from typing import Any

from .attention import Verdict, judged, worst
from .library import SoftmaxMatmulLibrary
from .problems import SoftmaxMatmulCase


class SoftmaxMatmulBench:
    """What all cases share. `library` has the functions, `oracle` the float64 oracle."""

    def __init__(self, torch: Any, library: SoftmaxMatmulLibrary, oracle: SoftmaxMatmulLibrary) -> None:
        self.torch, self.library = torch, library
        self.peer = f"pytorch {torch.__version__} softmax, matmul"
        self._oracle = oracle
        self._known: dict[SoftmaxMatmulCase, list[tuple]] = {}

    def gemm(self, dtype: str) -> None:
        return None

    def peak(self, dtype: str) -> None:
        return None

    @contextlib.contextmanager
    def duel(self, case: SoftmaxMatmulCase, implementation: str) -> Iterator["SoftmaxMatmulDuel"]:
        with self.torch.inference_mode():
            yield SoftmaxMatmulDuel(self, case, implementation)

    def expected(self, case: SoftmaxMatmulCase, x: Any, v: Any) -> list[tuple[int, list[int], Any, float]]:
        """Of some rows, in up to three batches: the batch, the rows, what they have to be, and how far off rounding may be.

        The first and last rows, where blocks and tails go wrong, and some in between, as in bench_softmax_matmul: the oracle on all
        of them would take hours."""
        if case not in self._known:
            draw, torch = random.Random(case.d2), self.torch
            self._known[case] = []
            for b in sorted({0, case.batch // 2, case.batch - 1}):
                rows = sorted({0, case.d1 // 2, case.d1 - 1, *(draw.randrange(case.d1) for _ in range(5))})
                scores, values = x[b, rows].cpu().contiguous(), v[b].cpu().contiguous()
                want = torch.empty(len(rows), case.d3, dtype=torch.float64)
                limit = self._oracle.oracle(case.d2, case.d3, len(rows), scores.data_ptr(), values.data_ptr(), want.data_ptr())
                self._known[case].append((b, rows, want, limit))
        return self._known[case]


class SoftmaxMatmulDuel:
    """One case, one implementation: ours() and peer() do the pass once, check() says whether both are right."""

    def __init__(self, bench: SoftmaxMatmulBench, case: SoftmaxMatmulCase, implementation: str) -> None:
        torch = bench.torch
        self.bench, self.case = bench, case
        seeded = torch.Generator(case.device).manual_seed(case.d2)  # the same for each implementation, and so the oracle's result

        def normal(*shape: int) -> Any:
            return torch.randn(shape, generator=seeded, dtype=torch.float32, device=case.device)

        self.x, self.v = normal(case.batch, case.d1, case.d2), normal(case.batch, case.d2, case.d3)
        # NaN: what the pass leaves as it was fails the check.
        self.out = torch.full((case.batch, case.d1, case.d3), math.nan, dtype=torch.float32, device=case.device)
        self.ours = bench.library.prepared(case, self.x.data_ptr(), self.v.data_ptr(), self.out.data_ptr(), name=implementation)
        x, v = self.x, self.v
        self.peer = lambda: torch.softmax(x, -1) @ v

    def check(self) -> Verdict:
        self.ours()
        error, problem = self._judge(self.out, "out")
        peer_error, peer_problem = self._judge(self.peer(), "PyTorch's out")
        return Verdict(error, peer_error, problem or peer_problem)

    def _judge(self, out: Any, name: str) -> tuple[float, str]:
        """The rows that the oracle has, against it; of the others each element has to be finite."""
        largest, problem = 0.0, ""
        for b, rows, want, limit in self.bench.expected(self.case, self.x, self.v):
            scale = float(want.abs().max()) or 1.0
            error = float((out[b, rows].double().cpu() - want).abs().max()) / scale
            largest = worst(largest, error)
            problem = problem or judged(f"{name}, batch {b},", error, limit / scale)
        if not problem and not bool(self.bench.torch.isfinite(out).all()):
            problem = f"{name} has elements that are not finite, in rows that are not compared with the oracle"
        return largest, problem
