"""Reads the CSV of bench_attention: rows, and groups of them that share a figure or a table.

benchmarking/README.md says what each column means.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.paths import OUTPUTS
from lab.results import Cells, read_table

ATTENTION_CSV = OUTPUTS / "csv" / "attention_benchmark.csv"
COLUMNS = ("implementation", "d_model", "seq_len", "forward_ms", "forward_peak_MiB", "backward_ms", "backward_peak_MiB",
           "saved_activations_MiB", "status", "gpu", "device", "dtype", "batch", "heads", "causal", "total_ms", "tflops",
           "percent_of_peak")
STATUSES = ("ok", "OOM", "OOM(backward)", "unsupported", "error")


@dataclass(frozen=True)
class Row:
    """One implementation on one problem. What was not measured is None."""

    implementation: str
    d_model: int
    seq_len: int
    forward_ms: float | None  # there where status is "ok" or "OOM(backward)", as the other numbers of the forward pass
    forward_peak_mib: float | None
    backward_ms: float | None  # there where status is "ok"
    backward_peak_mib: float | None
    saved_mib: float | None
    status: str
    gpu: str  # empty on a CPU
    device: str  # "cuda" or "cpu"
    dtype: str
    batch: int
    heads: int
    causal: bool
    total_ms: float | None
    tflops: float | None
    percent_of_peak: float | None  # None as well where no peak was measured

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def _tflops(self, per_pair: int, ms: float | None) -> float | None:
        pairs = self.seq_len * (self.seq_len + 1) // 2 if self.causal else self.seq_len**2
        return None if ms is None else per_pair * pairs * self.batch * self.d_model / ms * 1e-9

    @property
    def forward_tflops(self) -> float | None:
        """2 products of a multiplication and an addition for each pair of a query and a key that it sees."""
        return self._tflops(4, self.forward_ms)

    @property
    def backward_tflops(self) -> float | None:
        """5 products, one of which computes the scores again."""
        return self._tflops(10, self.backward_ms)


@dataclass(frozen=True)
class Group:
    """The rows of one device and one kind of problem, over implementation, sequence length and mask."""

    device: str
    gpu: str
    dtype: str
    batch: int
    heads: int
    d_model: int
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        heads = f"{self.heads} heads of {self.d_model // self.heads}" if self.heads > 1 else f"1 head of {self.d_model}"
        return f"{self.gpu or self.device.upper()}, {self.dtype}, batch {self.batch}, {heads}"

    @property
    def seq_lens(self) -> list[int]:
        return sorted({row.seq_len for row in self.rows})

    @property
    def masks(self) -> list[bool]:
        """Which of not causal and causal there are, in that order."""
        return sorted({row.causal for row in self.rows})

    @property
    def implementations(self) -> list[str]:
        """In the order of the file, which is the program's."""
        names: list[str] = []
        for row in self.rows:
            if row.implementation not in names:
                names.append(row.implementation)
        return names

    def find(self, implementation: str, seq_len: int, causal: bool) -> Row | None:
        return next((row for row in self.rows
                     if (row.implementation, row.seq_len, row.causal) == (implementation, seq_len, causal)), None)


def load(file: Path) -> list[Row]:
    """The rows of a CSV. What is not such a table is a LabError that names the file, the line and the column."""
    return [_row(cells) for cells in read_table(file, COLUMNS)]


def groups(rows: Iterable[Row]) -> list[Group]:
    """The rows by device and problem; GPUs first, then the largest problem, then float32."""
    collected: dict[tuple, list[Row]] = {}
    for row in rows:
        collected.setdefault((row.device, row.gpu, row.dtype, row.batch, row.heads, row.d_model), []).append(row)
    found = [Group(*key, rows=tuple(members)) for key, members in collected.items()]
    return sorted(found, key=lambda group: (group.device == "cpu", -group.batch * group.d_model * group.seq_lens[-1], group.gpu,
                                            group.dtype != "float32", group.dtype))


def _row(cells: Cells) -> Row:
    status = cells.choice("status", STATUSES)
    forward, backward = status in ("ok", "OOM(backward)"), status == "ok"

    def measured(column: str, there: bool, above_zero: bool = False) -> float | None:
        return cells.number(column, above_zero) if there else None

    return Row(
        cells.text("implementation"), cells.integer("d_model"), cells.integer("seq_len"),
        measured("forward_ms", forward, above_zero=True), measured("forward_peak_MiB", forward),
        measured("backward_ms", backward, above_zero=True), measured("backward_peak_MiB", backward),
        measured("saved_activations_MiB", forward), status, cells.text("gpu"), cells.choice("device", ("cuda", "cpu")),
        cells.text("dtype"), cells.integer("batch"), cells.integer("heads"),
        cells.choice("causal", ("True", "False")) == "True", measured("total_ms", backward, above_zero=True),
        measured("tflops", backward), measured("percent_of_peak", backward and cells.text("percent_of_peak") != ""))
