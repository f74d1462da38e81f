"""Reads the benchmarks' CSV files: rows, and groups of rows that share a figure or a table.

benchmarking/README.md describes the columns.
"""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import paths
from lab.errors import LabError

DIRECTIONS = ("forward", "backward")
TEXTS = {"implementation", "status", "device", "gpu", "dtype", "lengths"}  # columns; others have numbers
DISTURBED = 5  # percent of the processors, from which on benchmarking/core.cpp says so


@dataclass(frozen=True)
class Kind:
    """What the rows of a table are grouped by: a figure or table shows them over `size`."""

    table: str
    size: str
    size_label: str
    group: tuple[str, ...]
    time: str  # the column that every row with the status ok has

    @property
    def csv(self) -> Path:
        return paths.OUTPUTS / "csv" / f"{self.table}_benchmark.csv"


KINDS = (
    Kind("softmax_matmul", "d2", "d2, number of keys",
         ("device", "gpu", "dtype", "batch_size", "d1", "d3"), "forward_ms_mean"),
    Kind("attention", "seq_len", "sequence length",
         ("device", "gpu", "dtype", "query_scale", "batch", "heads", "d_model"), "forward_ms"),
    Kind("decode", "keys", "keys of a sequence",
         ("device", "gpu", "dtype", "lengths", "kv_heads", "page_size", "batch", "heads",
          "head_dim"), "forward_ms"),
)


class Row:
    """One implementation on one problem: an attribute for each column, None where nothing was
    measured or an older file has no such column."""

    def __init__(self, kind: Kind, values: dict[str, Any]) -> None:
        self.kind, self._values = kind, values

    def __getattr__(self, column: str) -> Any:
        return self._values.get(column)

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def disturbed(self) -> bool:
        """Whether its times are no measurement, because other programs had the processors."""
        return (self.others_percent or 0) > DISTURBED

    @property
    def query_scale(self) -> int:
        return self._values.get("query_scale") or 1

    @property
    def group(self) -> tuple:
        return tuple(getattr(self, name) for name in self.kind.group)

    @property
    def size(self) -> int:
        return self._values[self.kind.size]

    @property
    def mask(self) -> bool:
        return bool(self._values.get("causal"))

    @property
    def name(self) -> str:
        return self.implementation

    def pass_name(self, direction: str) -> str:
        """Of the pair of passes that a row like flash+plain is about."""
        return self.name.split("+")[0 if direction == "forward" else -1]

    def ms(self, direction: str) -> float | None:
        return getattr(self, self.kind.time if direction == "forward" else "backward_ms")

    @property
    def extra_mib(self) -> float | None:
        """The peak without the output; allocators round up, so that it may be a little above 0."""
        if self.forward_peak_MiB is None:
            return None
        return max(0.0, self.forward_peak_MiB - 4 * self.batch_size * self.d1 * self.d3 / 2**20)

    def rate(self, per_pair: int, ms: float | None) -> float | None:
        """TFLOP/s of `per_pair` operations for each element of a row, for each pair of a query and
        a key that it sees."""
        pairs = self.seq_len * (self.seq_len + 1) // 2 if self.causal else self.seq_len**2
        return None if not ms else per_pair * pairs * self.batch * self.d_model / ms * 1e-9

    @property
    def forward_tflops(self) -> float | None:
        """2 products."""
        return self.rate(4, self.forward_ms)

    @property
    def backward_tflops(self) -> float | None:
        """5 products, one of which computes the scores again."""
        return self.rate(10, self.backward_ms)


@dataclass(frozen=True)
class Group:
    """The rows of one device and one kind of problem, over implementation, size and mask."""

    kind: Kind
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        row = self.rows[0]
        where = f"{row.gpu or row.device.upper()}, {row.dtype}, batch "
        if self.kind.table == "softmax_matmul":
            return f"{where}{row.batch_size}, d1 {row.d1}, d3 {row.d3}"
        heads = f"{row.heads} head{'s' * (row.heads > 1)} of {self.head_dim}"
        if self.kind.table == "decode":
            return (f"{where}{row.batch}, {row.heads} heads on {row.kv_heads} of {row.head_dim}, "
                    f"pages of {row.page_size}, {row.lengths} lengths")
        scale = f", Q times {row.query_scale}" if row.query_scale > 1 else ""
        return f"{where}{row.batch}, {heads}{scale}"

    @property
    def device(self) -> str:
        return self.rows[0].device

    @property
    def rate_unit(self) -> tuple[str, float]:
        """And how many of it are one TFLOP/s."""
        return ("TFLOP/s", 1) if self.device == "cuda" else ("GFLOP/s", 1000)

    @property
    def head_dim(self) -> int:
        return self.rows[0].head_dim or self.rows[0].d_model // self.rows[0].heads

    @property
    def sizes(self) -> list[int]:
        return sorted({row.size for row in self.rows})

    @property
    def masks(self) -> list[bool]:
        return sorted({row.mask for row in self.rows})

    @property
    def names(self) -> list[str]:
        """Of the implementations, in the order of the file, which is the program's."""
        return list(dict.fromkeys(row.name for row in self.rows))

    def times(self, direction: str, mask: bool = False) -> dict[str, float]:
        """The shortest time of each pass of this direction, at the largest size."""
        found: dict[str, float] = {}
        for row in self.rows:
            if (row.ok and row.mask == mask and row.size == self.sizes[-1]
                    and row.ms(direction)):
                name = row.pass_name(direction)
                found[name] = min(row.ms(direction), found.get(name, math.inf))
        return found

    def find(self, name: str, size: int, mask: bool = False) -> Row | None:
        return next(
            (row for row in self.rows if (row.name, row.size, row.mask) == (name, size, mask)),
            None)

    def series(self, name: str, mask: bool = False) -> list[Row]:
        return [row for size in self.sizes if (row := self.find(name, size, mask)) is not None]


def load(file: Path) -> list[Row]:
    """The rows of a CSV of any benchmark; of those about one configuration the last one, in the
    place of the first. What is not such a table is a LabError that names the file, the line and
    the column."""
    shown = paths.relative(file)
    try:
        with file.open(newline="") as stream:
            records = list(csv.reader(stream, strict=True))
    except FileNotFoundError:
        raise LabError(f"{shown} does not exist: ./lab bench writes it") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabError(f"{shown} cannot be read: {error}") from None
    header = records[0] if records else []
    for kind in KINDS:
        if {"implementation", "status", kind.size, kind.time} <= set(header):
            rows = [_row(kind, f"{shown}:{line}", header, record)
                    for line, record in enumerate(records[1:], 2)]
            return list({(row.group, row.name, row.size, row.mask): row for row in rows}.values())
    raise LabError(f"{shown} has the wrong header: expected the columns of a benchmark "
                   f"(benchmarking/README.md), found '{','.join(header)}'")


def _row(kind: Kind, where: str, header: list[str], record: list[str]) -> Row:
    if len(record) != len(header):
        raise LabError(f"{where}: {len(record)} cells; there have to be {len(header)}")
    values: dict[str, Any] = {}
    for name, cell in zip(header, record):
        try:
            values[name] = cell if name in TEXTS else _number(cell)
        except ValueError:
            raise LabError(f"{where}: {name} is '{cell}'; it must be a number") from None
    row = Row(kind, values)
    if row.ok and not values[kind.time]:
        raise LabError(f"{where}: {kind.time} is '{record[header.index(kind.time)]}'; it must be "
                       "above 0")
    return row


def _number(cell: str) -> bool | int | float | None:
    known = {"": None, "True": True, "False": False}
    return known[cell] if cell in known else int(cell) if cell.isdigit() else float(cell)


def groups(rows: Iterable[Row]) -> list[Group]:
    """By device and problem; GPUs first, then the smallest query_scale, equal lengths, the largest
    problem, float32."""
    collected: dict[tuple, list[Row]] = {}
    for row in rows:
        collected.setdefault(row.group, []).append(row)
    found = [Group(members[0].kind, tuple(members)) for members in collected.values()]

    def order(group: Group) -> tuple:
        row, extents = group.rows[0], group.kind.group[-3:]
        elements = math.prod(getattr(row, name) for name in extents if name != "heads")
        size = elements * (1 if group.kind.table == "softmax_matmul" else group.sizes[-1])
        return (row.device == "cpu", row.query_scale, row.lengths or "", -size, row.gpu, row.dtype != "float32",
                row.dtype)

    return sorted(found, key=order)
