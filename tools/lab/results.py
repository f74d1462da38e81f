"""Reads the benchmarks' CSV files: rows, and groups of rows that share a figure or a table.

The tables of benchmarking/README.md describe the columns; the programs read them too.
"""

import csv
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.paths import OUTPUTS, REPOSITORY, relative

COLUMNS_FILE = REPOSITORY / "benchmarking" / "README.md"


@dataclass(frozen=True)
class Column:
    name: str
    role: str  # "key", "value" or "added"
    type: str  # "text", "number", "integer" or "integer or empty"; empty where there are choices
    choices: list[str]


@cache
def columns(table: str) -> tuple[Column, ...]:
    _, _, text = COLUMNS_FILE.read_text(encoding="utf-8").partition(f"### {table}_benchmark.csv\n")
    found = []
    text = text.partition("\n#")[0]
    for name, cell in re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.MULTILINE):
        type, *_, role = cell.split(", ") + ["value"] * (not cell.endswith(("key", "added")))
        choices = re.findall("`(.*?)`", cell)
        found.append(Column(name, role, "" if choices else type, choices))
    return tuple(found)


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
        return OUTPUTS / "csv" / f"{self.table}_benchmark.csv"


KINDS = (
    Kind("softmax_matmul", "d2", "d2, number of keys",
         ("device", "gpu", "dtype", "batch_size", "d1", "d3"), "forward_ms_mean"),
    Kind("attention", "seq_len", "sequence length",
         ("device", "gpu", "dtype", "query_scale", "batch", "heads", "d_model"), "forward_ms"),
)


class Row:
    """One implementation on one problem: an attribute for each column, None where nothing was
    measured or an older file has no such column."""

    def __init__(self, kind: Kind, values: dict[str, Any]) -> None:
        self.kind, self._values = kind, values

    def __getattr__(self, column: str) -> Any:
        try:
            return self._values[column]
        except KeyError:
            raise AttributeError(column) from None

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def query_scale(self) -> int:
        return self._values.get("query_scale") or 1

    @property
    def size(self) -> int:
        return self._values[self.kind.size]

    @property
    def mask(self) -> bool:
        """Whether there is a causal mask."""
        return bool(self._values.get("causal"))

    @property
    def name(self) -> str:
        """The implementation's; the first files of softmax_matmul say it by `fused` and `BLOCK`."""
        return self.implementation or (f"fused_{self.BLOCK}" if self.fused else "unfused")

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
        scale = f", Q times {row.query_scale}" if row.query_scale > 1 else ""
        return f"{where}{row.batch}, {heads}{scale}"

    @property
    def device(self) -> str:
        return self.rows[0].device

    @property
    def head_dim(self) -> int:
        return self.rows[0].d_model // self.rows[0].heads

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

    def find(self, name: str, size: int, mask: bool = False) -> Row | None:
        return next(
            (row for row in self.rows if (row.name, row.size, row.mask) == (name, size, mask)),
            None)

    def series(self, name: str, mask: bool = False) -> list[Row]:
        return [row for size in self.sizes if (row := self.find(name, size, mask)) is not None]


def load(file: Path) -> list[Row]:
    """The rows of a CSV of any benchmark. What is not such a table is a LabError that names the
    file, the line and the column."""
    shown = relative(file)
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            records = list(csv.reader(stream, strict=True))
    except FileNotFoundError:
        raise LabError(f"{shown} does not exist: ./lab bench writes it") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabError(f"{shown} cannot be read: {error}") from None
    header = records[0] if records else []
    for kind in KINDS:
        known = {column.name: column for column in columns(kind.table)}
        needed = {column.name for column in known.values() if column.role == "value"}
        if needed <= set(header) <= set(known):
            return [_row(kind, f"{shown}:{line}", known, header, record)
                    for line, record in enumerate(records[1:], 2)]
    raise LabError(f"{shown} has the wrong header: expected the columns of a benchmark "
                   f"({relative(COLUMNS_FILE)}), found '{','.join(header)}'")


def _row(kind: Kind, where: str, known: dict[str, Column], header: Sequence[str],
         record: Sequence[str]) -> Row:
    if len(record) != len(header):
        raise LabError(f"{where}: {len(record)} cells; there have to be {len(header)}")
    values: dict[str, Any] = dict.fromkeys(known)
    for name, cell in zip(header, record):
        values[name], wanted = _value(known[name], cell)
        if name == kind.time and record[header.index("status")] == "ok" and not values[name]:
            wanted = "a number above 0"
        if wanted:
            raise LabError(f"{where}: {name} is '{cell}'; it must be {wanted}")
    return Row(kind, values)


def _value(column: Column, cell: str) -> tuple[Any, str]:
    """What the cell says, and what it had to be, if it is not that."""
    if column.choices:
        value: Any = cell == "True" if column.choices == ["True", "False"] else cell
        return value, "" if cell in column.choices else f"one of {', '.join(column.choices)}"
    if column.type == "text":
        return cell, ""
    if cell == "" and column.type != "integer":
        return None, ""
    kind, least = ("a number", 0) if column.type == "number" else ("an integer", 1)
    try:
        value = float(cell) if column.type == "number" else int(cell)
    except ValueError:
        value = math.nan
    return value, "" if least <= value < math.inf else f"{kind}, at least {least}"


def groups(rows: Iterable[Row]) -> list[Group]:
    """By device and problem; GPUs first, then the smallest query_scale, the largest problem,
    float32."""
    collected: dict[tuple, list[Row]] = {}
    for row in rows:
        collected.setdefault(tuple(getattr(row, name) for name in row.kind.group), []).append(row)
    found = [Group(members[0].kind, tuple(members)) for members in collected.values()]

    def order(group: Group) -> tuple:
        row, extents = group.rows[0], group.kind.group[-3:]
        elements = math.prod(getattr(row, name) for name in extents if name != "heads")
        size = elements * (group.sizes[-1] if group.kind.table == "attention" else 1)
        return (row.device == "cpu", row.query_scale, -size, row.gpu, row.dtype != "float32",
                row.dtype)

    return sorted(found, key=order)
