"""PyTorch alone, measured as bench_attention measures ours: rows of the implementation pytorch_sdpa for that program's CSV.

The protocol is that of task 3.B (part3_flash_cuda/measure_attention.hpp): the forward passes alone, then the backward passes, each
behind a forward pass that is not measured; caches evicted before each; memory beyond what was there when the pass began. Which
kernel runs is PyTorch's own choice. What differs on a CPU is said at `Cpu`.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .attention import Inputs, Truth
from .errors import one_line, status_of
from .problems import Case
from .table import Row, Schema
from .turns import eviction_buffer

IMPLEMENTATION = "pytorch_sdpa"
MIB = 2**20

# Of attention_rows.cpp.
BENCH_ATTENTION = Schema(
    ("implementation", "d_model", "seq_len", "forward_ms", "forward_peak_MiB", "backward_ms", "backward_peak_MiB",
     "saved_activations_MiB", "status", "gpu", "device", "dtype", "batch", "heads", "causal", "total_ms", "tflops",
     "percent_of_peak"),
    ("implementation", "d_model", "seq_len", "gpu", "device", "dtype", "batch", "heads", "causal"))

# The defaults of bench_attention on either device. Those of --quick are in no complete run.
_ANY: dict[str, Any] = {"dtypes": ("float32",), "directions": ("forward",), "head_dims": (64,), "causal": (False, True)}
SIZES: dict[str, dict[str, Any]] = {
    "cuda": _ANY | {"batch_heads": ((8, 1),), "seq_lens": (256, 1024, 4096, 8192, 16384), "warmups": 10, "passes": 100},
    "cpu": _ANY | {"batch_heads": ((1, 4),), "seq_lens": (256, 512, 1024, 2048, 4096), "warmups": 1, "passes": 5}}
QUICK_SIZES: dict[str, dict[str, Any]] = {
    "cuda": SIZES["cuda"] | {"batch_heads": ((2, 1),), "seq_lens": (256, 1024), "warmups": 2, "passes": 10},
    "cpu": SIZES["cpu"] | {"batch_heads": ((1, 2),), "seq_lens": (128, 256, 512)}}


# ---- what it runs on ---------------------------------------------------------------------------------------------------------


class Gpu:
    """The GPU as machine.cpp has it, with PyTorch's allocator as the meter; a time is the mean of the passes."""

    device = "cuda"
    average = staticmethod(statistics.fmean)

    def __init__(self, torch: Any) -> None:
        self.torch, self.gpu = torch, torch.cuda.get_device_name(0)
        self._eviction, self._fill = eviction_buffer(torch), 0

    def evict_caches(self) -> None:
        self._fill = (self._fill + 1) % 256
        self._eviction.fill_(self._fill)

    def warm_up(self, run: Callable[[], None]) -> int:
        run()
        return 0

    def timed(self, run: Callable[[], None]) -> tuple[float, int]:
        """Milliseconds, with the launch and the waiting, and the peak of memory in bytes."""
        cuda = self.torch.cuda
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda.synchronize()
        before = cuda.memory_allocated()
        cuda.reset_peak_memory_stats()
        begin.record()
        begin.synchronize()
        run()
        cuda.synchronize()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end), cuda.max_memory_allocated() - before

    def peak_gflops(self, dtype: str) -> float | None:
        return None

    def release(self) -> None:
        self.torch.cuda.empty_cache()


class Cpu:
    """The CPU with its steady clock; a time is the median of the passes.

    Memory is counted in the warm-ups by PyTorch's profiler, which would slow down a pass that is timed; the processor's peak is
    measured behind each pass that is, by `library`.
    """

    device, gpu = "cpu", ""
    average = staticmethod(statistics.median)

    def __init__(self, torch: Any, library: Any) -> None:
        self.torch, self._library = torch, library
        self._eviction = torch.empty(32 * MIB, dtype=torch.uint8)  # the most that machine.cpp takes
        self._fill = 0

    def evict_caches(self) -> None:
        self._fill = (self._fill + 1) % 256
        self._eviction.fill_(self._fill)

    def warm_up(self, run: Callable[[], None]) -> int:
        """The peak of memory in bytes: of the allocations and releases in the profiler's trace, in their order."""
        profiler = self.torch.profiler
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            run()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            profile.export_chrome_trace(str(file))
            trace = json.loads(file.read_text(encoding="utf-8"))
        used = most = 0
        for event in sorted((one for one in trace["traceEvents"] if one.get("name") == "[memory]"), key=lambda one: one["ts"]):
            used += event["args"]["Bytes"]
            most = max(most, used)
        return most

    def timed(self, run: Callable[[], None]) -> tuple[float, int]:
        begin = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - begin), 0

    def peak_gflops(self, dtype: str) -> float | None:
        return self._library.fma_peak_gflops(dtype)

    def release(self) -> None:
        pass


# ---- what is measured --------------------------------------------------------------------------------------------------------


class SdpaWork:
    """scaled_dot_product_attention on one problem: AttentionWork of measure_attention.hpp."""

    def __init__(self, torch: Any, machine: Any, inputs: Inputs) -> None:
        self._torch, self._machine = torch, machine
        self.dtype, self._causal, self._d_out = inputs.case.dtype, inputs.case.causal, inputs.d_out
        self._leaves = [one.detach().requires_grad_() for one in (inputs.q, inputs.k, inputs.v)]
        self.out: Any = None
        self.gradients: tuple = ()

    def prepare(self) -> None:
        self.gradients = ()
        self.out = None
        self._machine.evict_caches()

    def forward(self) -> None:
        self.out = self._torch.nn.functional.scaled_dot_product_attention(*self._leaves, is_causal=self._causal)

    def prepare_backward(self) -> None:
        self._machine.evict_caches()

    def backward(self) -> None:
        self.gradients = self._torch.autograd.grad(self.out, self._leaves, self._d_out)

    def saved_bytes(self) -> int:
        """Bytes of the tensors that autograd keeps from a forward pass for its backward pass, as autograd says: with a fused kernel
        q, k, v, out, lse and a few bytes; with `math`, the matrices too."""
        kept: dict[int, int] = {}

        def pack(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        self.prepare()
        with self._torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            self.forward()
        return sum(kept.values())


@dataclass
class Measurement:
    """What was not measured is None."""

    status: str = "ok"
    message: str = ""
    kernel: str = ""  # of the backward pass, and so whose forward pass it was
    forward_ms: float | None = None
    forward_peak: int | None = None  # bytes
    backward_ms: float | None = None
    backward_peak: int | None = None
    saved: int | None = None
    ceilings: list[float] = field(default_factory=list)  # GFLOP/s


def measure(work: Any, machine: Any, warmups: int, passes: int) -> Measurement:
    """The passes of measure_attention(). When memory runs out, a direction that was measured whole has its numbers."""
    result = Measurement()

    def series(run: Callable[[], None], prepare: Callable[[], None]) -> tuple[float, int]:
        times, most = [], 0
        for number in range(-warmups, passes):  # below 0: warm-up
            prepare()
            if number < 0:
                most = max(most, machine.warm_up(run))
                continue
            milliseconds, peak = machine.timed(run)
            times.append(milliseconds)
            most = max(most, peak)
            ceiling = machine.peak_gflops(work.dtype)
            if ceiling is not None:
                result.ceilings.append(ceiling)
        return machine.average(times), most

    def prepare_backward() -> None:
        work.prepare()
        work.forward()
        work.prepare_backward()

    try:
        saved = work.saved_bytes()
        forward = series(work.forward, work.prepare)
        (result.forward_ms, result.forward_peak), result.saved = forward, saved
        result.backward_ms, result.backward_peak = series(work.backward, prepare_backward)
    except (RuntimeError, MemoryError) as failure:
        result.status, result.message = status_of(failure), one_line(failure)
        if result.status == "OOM" and result.forward_ms is not None:
            result.status = "OOM(backward)"
    return result


def checked(work: Any, truth: Truth, inputs: Inputs) -> Measurement:
    """One pass each way against the oracle. A backward pass that does not fit is left to measure(), which says so."""
    direction = "forward"
    try:
        work.prepare()
        work.forward()
        kernel = work.out.grad_fn.name()
        problem = truth.judge(inputs, direction, [work.out.detach()])[1]
        if not problem:
            direction = "backward"
            work.backward()
            problem = truth.judge(inputs, direction, work.gradients)[1]
        return Measurement("error", f"wrong result: {problem}") if problem else Measurement(kernel=kernel)
    except (RuntimeError, MemoryError) as failure:
        status = status_of(failure)
        if status == "OOM" and direction == "backward":
            return Measurement(kernel=kernel)
        return Measurement(status, one_line(failure))


def measured(torch: Any, machine: Any, truth: Truth, case: Case, warmups: int, passes: int) -> Measurement:
    """One problem: its inputs, the check, the times."""
    try:
        inputs = Inputs(torch, case)
        work = SdpaWork(torch, machine, inputs)
    except (RuntimeError, MemoryError) as failure:
        return Measurement(status_of(failure), one_line(failure))
    found = checked(work, truth, inputs)
    work.prepare()
    machine.release()  # what the check leaves behind is not in a peak, and may be what a pass lacks
    if found.status == "ok":
        kernel, found = found.kernel, measure(work, machine, warmups, passes)
        found.kernel = kernel
    del work, inputs
    machine.release()
    return found


# ---- the row -----------------------------------------------------------------------------------------------------------------


def row_of(case: Case, machine: Any, found: Measurement) -> Row:
    """The cells of bench_attention, by its formulas (README.md)."""
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.6g}"

    def mib(size: int | None) -> float | None:
        return None if size is None else size / MIB

    forward = found.status in ("ok", "OOM(backward)")
    backward = found.status == "ok"
    total = found.forward_ms + found.backward_ms if backward else None
    pairs = case.seq_len * (case.seq_len + 1) / 2 if case.causal else case.seq_len**2
    gflops = 14 * pairs * case.batch * case.heads * case.head_dim / total * 1e-6 if backward else None
    ceiling = statistics.median(found.ceilings) if found.ceilings and backward else None
    return {
        "implementation": IMPLEMENTATION, "d_model": str(case.heads * case.head_dim), "seq_len": str(case.seq_len),
        "forward_ms": number(found.forward_ms if forward else None),
        "forward_peak_MiB": number(mib(found.forward_peak) if forward else None),
        "backward_ms": number(found.backward_ms if backward else None),
        "backward_peak_MiB": number(mib(found.backward_peak) if backward else None),
        "saved_activations_MiB": number(mib(found.saved) if forward else None),
        "status": found.status, "gpu": machine.gpu, "device": case.device, "dtype": case.dtype, "batch": str(case.batch),
        "heads": str(case.heads), "causal": str(case.causal), "total_ms": number(total),
        "tflops": number(gflops * 1e-3 if gflops else None),
        "percent_of_peak": number(100 * gflops / ceiling if gflops and ceiling else None)}


_DIRECTION = len("backward ")  # begins the line of a case; a row here is both
HEADING = (f"{Case.heading[_DIRECTION:]} {'forward, ms':>11} {'backward':>9} {'both':>9} {'GFLOP/s':>9} {'forward MiB':>11} {'backward':>9} "
           f"{'saved':>9}")


def progress(case: Case, row: Row, found: Measurement) -> str:
    """A line of the screen."""
    def short(column: str, scale: float = 1) -> str:
        return f"{scale * float(row[column]):.4g}" if row[column] else "-"

    problem = str(case)[_DIRECTION:]
    if not row["forward_ms"]:
        return f"{problem} {found.status}: {found.message}"
    numbers = (f"{short('forward_ms'):>11} {short('backward_ms'):>9} {short('total_ms'):>9} {short('tflops', 1e3):>9} "
               f"{short('forward_peak_MiB'):>11} {short('backward_peak_MiB'):>9} {short('saved_activations_MiB'):>9}")
    return f"{problem} {numbers}  {found.kernel if found.status == 'ok' else f'{found.status}: {found.message}'}"
