"""Reads what the benchmarks write: the CSV of bench_softmax_matmul as rows, and rows as groups that share a plot or a table.

benchmarking/README.md says what each column means. The CSV of bench_attention: attention_results.py.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.paths import OUTPUTS, relative

SOFTMAX_MATMUL_CSV = OUTPUTS / "csv" / "softmax_matmul_benchmark.csv"
COLUMNS = ("batch_size", "d1", "d2", "d3", "fused", "BLOCK", "forward_ms_mean", "forward_ms_std", "forward_peak_MiB",
           "device", "dtype", "status", "tflops", "gpu")
STATUSES = ("ok", "OOM", "unsupported", "error")


@dataclass(frozen=True)
class Row:
    """One configuration. The numbers that were measured are None unless status is "ok"."""

    batch_size: int
    d1: int
    d2: int
    d3: int
    block: int | None  # None: unfused
    ms_mean: float | None
    ms_std: float | None
    peak_mib: float | None  # inputs and output are part of it
    device: str  # "cuda" or "cpu"
    dtype: str
    status: str
    tflops: float | None
    gpu: str  # empty on a CPU

    @property
    def fused(self) -> bool:
        return self.block is not None

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def extra_mib(self) -> float | None:
        """The peak beyond x, v and out; never below 0, which the allocator's rounding could make of it."""
        if self.peak_mib is None:
            return None
        elements = self.d1 * self.d2 + self.d2 * self.d3 + self.d1 * self.d3
        return max(0.0, self.peak_mib - 4 * self.batch_size * elements / 2**20)


@dataclass(frozen=True)
class Group:
    """What one figure or table shows: the rows of one device and one problem size, over d2 and the block."""

    device: str
    gpu: str
    dtype: str
    batch_size: int
    d1: int
    d3: int
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        return f"{self.gpu or self.device.upper()}, {self.dtype}, batch {self.batch_size}, d1 {self.d1}, d3 {self.d3}"

    @property
    def d2s(self) -> list[int]:
        return sorted({row.d2 for row in self.rows})

    @property
    def blocks(self) -> list[int]:
        return sorted({row.block for row in self.rows if row.block is not None})

    def unfused(self, d2: int) -> Row | None:
        return self.find(d2, None)

    def find(self, d2: int, block: int | None) -> Row | None:
        return next((row for row in self.rows if row.d2 == d2 and row.block == block), None)

    def best_fused(self, d2: int) -> Row | None:
        """The fastest block that worked."""
        done = [row for row in self.rows if row.d2 == d2 and row.fused and row.ms_mean is not None]
        return min(done, key=lambda row: row.ms_mean or math.inf, default=None)

    def speed_up(self, d2: int, fused: Row | None) -> float | None:
        """The unfused time over that of `fused`; None where either is missing."""
        unfused = self.unfused(d2)
        if fused is None or unfused is None or unfused.ms_mean is None or fused.ms_mean is None:
            return None
        return unfused.ms_mean / fused.ms_mean


def load(file: Path) -> list[Row]:
    """The rows of a CSV. What is not such a table is a LabError that names the file, the line and the column."""
    return [_row(cells) for cells in read_table(file, COLUMNS)]


class Cells:
    """One line of a CSV: its cells, read as what they have to be. A wrong one is a LabError that names line and column."""

    def __init__(self, where: str, columns: Sequence[str], record: Sequence[str]) -> None:
        if len(record) != len(columns):
            raise LabError(f"{where}: {len(record)} cells; there have to be {len(columns)}")
        self._where = where
        self._cells = dict(zip(columns, record))

    def text(self, column: str) -> str:
        return self._cells[column]

    def integer(self, column: str) -> int:
        cell = self._cells[column]
        if not cell.isascii() or not cell.isdigit() or int(cell) < 1:
            raise self.wrong(column, "an integer, at least 1")
        return int(cell)

    def number(self, column: str, above_zero: bool = False) -> float:
        try:
            value = float(self._cells[column])
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf or (above_zero and value == 0):
            raise self.wrong(column, "a number above 0" if above_zero else "a number, at least 0")
        return value

    def choice(self, column: str, choices: Sequence[str]) -> str:
        if self._cells[column] not in choices:
            raise self.wrong(column, f"one of {', '.join(choices)}")
        return self._cells[column]

    def wrong(self, column: str, wanted: str) -> LabError:
        return LabError(f"{self._where}: {column} is '{self._cells[column]}'; it must be {wanted}")


def read_table(file: Path, columns: Sequence[str]) -> list[Cells]:
    """The lines of a CSV that has exactly these columns; LabError for every other file."""
    shown = relative(file)
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            records = list(csv.reader(stream, strict=True))
    except FileNotFoundError:
        raise LabError(f"{shown} does not exist: ./lab bench writes it") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabError(f"{shown} cannot be read: {error}") from None
    if not records or records[0] != list(columns):
        raise LabError(f"{shown} does not begin with the header {','.join(columns)}")
    return [Cells(f"{shown}:{number}", columns, record) for number, record in enumerate(records[1:], 2)]


def groups(rows: Iterable[Row]) -> list[Group]:
    """The rows by device and problem; GPUs first, then the largest problem."""
    collected: dict[tuple, list[Row]] = {}
    for row in rows:
        collected.setdefault((row.device, row.gpu, row.dtype, row.batch_size, row.d1, row.d3), []).append(row)
    found = [Group(*key, rows=tuple(members)) for key, members in collected.items()]
    return sorted(found, key=lambda group: (group.device == "cpu", -group.batch_size * group.d1 * group.d3, group.gpu))


def _row(cells: Cells) -> Row:
    status = cells.choice("status", STATUSES)
    fused = cells.choice("fused", ("True", "False")) == "True"
    if not fused and cells.text("BLOCK"):
        raise cells.wrong("BLOCK", "empty where fused is False")

    def measured(column: str, above_zero: bool = False) -> float | None:
        return cells.number(column, above_zero) if status == "ok" else None

    return Row(cells.integer("batch_size"), cells.integer("d1"), cells.integer("d2"), cells.integer("d3"),
               cells.integer("BLOCK") if fused else None, measured("forward_ms_mean", above_zero=True),
               measured("forward_ms_std"), measured("forward_peak_MiB"), cells.choice("device", ("cuda", "cpu")),
               cells.text("dtype"), status, measured("tflops"), cells.text("gpu"))
