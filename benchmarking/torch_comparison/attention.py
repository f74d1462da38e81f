"""Attention's inputs, what its results have to be, and the verdict on those that there are."""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .library import Library
from .problems import Case


@dataclass
class Verdict:
    """Largest error of each, over the largest element of the oracle's result; `problem` is empty when both are right."""

    error: float
    peer_error: float
    problem: str = ""


def judged(what: str, error: float, limit: float) -> str:
    """Empty when the error is within the limit, which NaN never is."""
    return "" if error <= limit else f"{what} is off by {error:.2g} of the largest element; rounding explains {limit:.2g}"


def worst(*values: float) -> float:
    """The largest; NaN when there is one, which max() may lose."""
    return math.nan if any(math.isnan(value) for value in values) else max(values)


class Inputs:
    """q, k, v and d_out of a case on its device, seeded N(0, 1).

    Every head is the first one with its head_dim columns rotated by the head's number, in all four alike. Its scores are then
    the same, and its results the first head's, rotated: one head in the oracle checks all of them, and yet no two heads have
    the same data.
    """

    def __init__(self, torch: Any, case: Case) -> None:
        self.case, self.dtype = case, getattr(torch, case.dtype)
        self.of_queries = case.batch, case.heads, case.seq_len, case.head_dim
        random = torch.Generator().manual_seed(case.seq_len)
        # Of q, k, v and d_out; on the host, where the oracle reads it.
        self.head = torch.randn(4, case.seq_len, case.head_dim, generator=random, dtype=torch.float64).to(self.dtype)
        self.q, self.k, self.v, self.d_out = (
            torch.stack([one.roll(h, -1) for h in range(case.batch * case.heads)]).reshape(self.of_queries).to(case.device)
            for one in self.head)


class Truth:
    """The float64 oracle of `library`, a result for all cases that share it, and the verdict by it."""

    def __init__(self, torch: Any, library: Library) -> None:
        self._torch, self._library = torch, library
        self._known: dict[tuple, tuple[list[Any], list[float]]] = {}

    def expected(self, inputs: Inputs, direction: str) -> tuple[list[Any], list[float]]:
        """The results for the first head, and how far off rounding may be: out and lse, or three gradients."""
        case, torch = inputs.case, self._torch
        key = (direction, case.dtype, case.seq_len, case.head_dim, case.causal)
        if key not in self._known:
            wide = [torch.empty(case.seq_len, case.head_dim, dtype=torch.float64) for _ in range(3)]
            addresses = [one.data_ptr() for one in inputs.head]
            if direction == "forward":
                lse, largest = torch.empty(case.seq_len, dtype=torch.float64), ctypes.c_double()
                self._library.prepared("attention_oracle", case, *addresses[:3], wide[0].data_ptr(), lse.data_ptr(),
                                       ctypes.addressof(largest), heads=False)()
                self._known[key] = [wide[0], lse], [largest.value]
            else:
                errors = (ctypes.c_double * 3)()
                self._library.prepared("attention_backward_oracle", case, *addresses, *(one.data_ptr() for one in wide),
                                       ctypes.addressof(errors), heads=False)()
                self._known[key] = wide, list(errors)
        return self._known[key]

    def judge(self, inputs: Inputs, direction: str, results: Sequence[Any], whose: str = "",
              lse: Any = None) -> tuple[float, str]:
        """The largest error of out, or of the three gradients, over the oracle's largest element; and what is wrong, if it is."""
        wanted, limits = self.expected(inputs, direction)
        # The limits hold for any data, and are far away for the gradients of N(0, 1), whose terms cancel. This is 10 times what
        # three implementations in both dtypes came to, at 64 to 2048 keys, and far below what one key left out of 4096 changes.
        usual = 8 * self._torch.finfo(inputs.dtype).eps * math.sqrt(inputs.case.seq_len)
        largest, problem = 0.0, ""
        names = ("out",) if direction == "forward" else ("d_q", "d_k", "d_v")
        for name, got, want, limit in zip(names, results, wanted, limits):
            scale = float(want.abs().max()) or 1.0
            error = largest_error(got, want) / scale
            largest = worst(largest, error)
            problem = problem or judged(whose + name, error, min(limit / scale, usual))
        if lse is not None:
            # An error of lse is one of exp's argument: the same bound, since the magnitude in the limit is about 1 here.
            error = largest_error(lse[..., None], wanted[1][..., None])
            problem = problem or judged(whose + "lse", error / float(wanted[1].abs().max()), limits[0])
        return largest, problem


def largest_error(got: Any, want: Any) -> float:
    """The largest difference from `want` (seq_len, columns), over all heads, each rotated as its inputs are."""
    return worst(*(float((one.double().cpu() - want.roll(h, -1)).abs().max())
                   for h, one in enumerate(got.reshape(-1, *want.shape))))
