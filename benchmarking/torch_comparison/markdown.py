"""The tables of a CSV, to be read: geometric means, then every ratio."""

import math
from collections.abc import Callable, Iterable, Sequence

from .errors import ComparisonError
from .table import Row

DISTURBED = 0.05  # share of the processors that others may have before it is said


def markdown(rows: list[Row]) -> str:
    """For each machine, implementation and peer: a line for each direction and dtype, then the ratios."""
    is_attention = not rows or "seq_len" in rows[0]
    kind = ("direction", "dtype") if is_attention else ("dtype",)
    sections = []
    for members in grouped(rows, "device", "machine", "threads", "isa", "implementation", "peer").values():
        first = members[0]
        threads = f"{first['threads']} threads" if first.get("threads") else ""
        title = ", ".join(filter(None, (first["device"], first["machine"], threads, first.get("isa"))))
        sections.append(f"**`{first['implementation']}` beside {first['peer']}: {title}**\n\n" + "\n".join(_means(members, kind)))
        for words, ratios in grouped(members, *kind).items():
            grid = _attention_grid(ratios) if is_attention else _softmax_matmul_grid(ratios)
            sections.append(f"{', '.join(words)}: {first['peer'].split()[0]}'s time over ours\n\n" + "\n".join(grid))
    return "\n\n".join(sections)


def grouped(rows: Iterable[Row], *columns: str) -> dict[tuple[str, ...], list[Row]]:
    """By the columns that there are."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name, "") for name in columns), []).append(row)
    return groups


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def number(row: Row, column: str, least: float = math.ulp(0)) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        wanted = "above 0" if least else "from 0"
        raise ComparisonError(f"{column} is '{row[column]}' in a row with the status ok; it must be a number {wanted}")
    return value


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _means(rows: list[Row], kind: Sequence[str]) -> list[str]:
    """A line for each `kind` of row. The ceilings, and whether the machine was idle, are measured on a CPU only."""
    on_cpu = rows[0]["device"] == "cpu"
    header = [*kind, "ratio, geometric mean", "worst", "best", "faster in",
              *(("of torch.mm", "of the FMA peak", "disturbed") if on_cpu else ()), "failed"]
    lines = [_line(header), "|" + " --- |" * len(kind) + " ---: |" * (len(header) - len(kind))]
    for words, members in grouped(rows, *kind).items():
        done = sorted((row for row in members if row["status"] == "ok"), key=lambda row: number(row, "ratio"))
        cells = [""] * (len(header) - len(kind) - 1)
        if done:
            ratios = [number(row, "ratio") for row in done]
            cells = [f"{geometric_mean(ratios):.2f}x", _where(done[0]), _where(done[-1]),
                     f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)}"]
            if on_cpu:
                cells += [*(f"{100 * geometric_mean([number(row, column) for row in done]):.0f} %"
                            for column in ("share_of_gemm", "share_of_peak")),
                          str(sum(number(row, "others", least=0) > DISTURBED for row in done))]
        failed = ", ".join(sorted({row["status"] for row in members} - {"ok"}))
        count = len(members) - len(done)
        lines.append(_line([*words, *cells, f"{count} ({failed})" if count else "0"]))
    return lines


def _where(row: Row) -> str:
    if "seq_len" in row:
        place = f"{row['batch']}x{row['heads']}, {row['seq_len']}, {row['head_dim']}{', causal' if row['causal'] == 'True' else ''}"
    else:
        place = f"{row['batch']}, {row['d1']}, {row['d2']}, {row['d3']}"
    return f"{number(row, 'ratio'):.2f}x ({place})"


def _size(row: Row, *columns: str) -> tuple[int, ...]:
    return tuple(int(row[name]) for name in columns)


def _attention_grid(rows: list[Row]) -> list[str]:
    """A line for each head_dim and batch x heads, a column for each sequence and mask."""
    return _grid({((row["causal"] == "True", *_size(row, "seq_len")), _size(row, "head_dim", "batch", "heads")): row for row in rows},
                 ["head_dim", "batch x heads"], lambda place: [str(place[0]), f"{place[1]} x {place[2]}"],
                 lambda column: f"{column[1]}{' causal' if column[0] else ''}")


def _softmax_matmul_grid(rows: list[Row]) -> list[str]:
    """A line for each batch, d1 and d3, a column for each d2."""
    return _grid({(_size(row, "d2"), _size(row, "batch", "d1", "d3")): row for row in rows}, ["batch", "d1", "d3"],
                 lambda place: [str(one) for one in place], lambda column: f"d2 {column[0]}")


def _grid(cells: dict[tuple, Row], header: list[str], place_text: Callable[[tuple], list[str]],
          column_text: Callable[[tuple], str]) -> list[str]:
    """Rows by column and place."""
    columns = sorted({column for column, _ in cells})
    lines = [_line([*header, *(column_text(column) for column in columns)]), "|" + " ---: |" * (len(header) + len(columns))]
    for place in sorted({place for _, place in cells}):
        found = (cells.get((column, place)) for column in columns)
        lines.append(_line([*place_text(place), *("" if row is None else f"{number(row, 'ratio'):.2f}" if row["status"] == "ok"
                                                  else row["status"] for row in found)]))
    return lines
