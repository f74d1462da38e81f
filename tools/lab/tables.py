"""The results tables of README.md, generated from the committed CSVs: outputs/reference/<machine>/csv/."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab import attention_results, paths
from lab.errors import LabError
from lab.results import Group, Row, groups, load


@dataclass(frozen=True)
class Section:
    """A region of README.md between two markers, made of the CSVs of one benchmark. It may be missing where there are none."""

    name: str
    csv_name: str
    tables: Callable[[Path], list[str]]  # of one CSV: a heading and a table each

    @property
    def begin(self) -> str:
        return f"<!-- BEGIN RESULTS {self.name} -->"

    @property
    def end(self) -> str:
        return f"<!-- END RESULTS {self.name} -->"

    def csvs(self) -> list[Path]:
        return sorted((paths.OUTPUTS / "reference").glob(f"*/csv/{self.csv_name}"))

    def updated(self, text: str, file: str) -> str:
        """`text` with this region regenerated. LabError when there is no CSV for it, or a marker is missing, out of order, or
        there twice."""
        found, tables = (text.count(self.begin), text.count(self.end)), [one for csv in self.csvs() for one in self.tables(csv)]
        if found == (0, 0) and not tables:
            return text
        if not tables:
            raise LabError(f"there is no outputs/reference/<machine>/csv/{self.csv_name} to make the table '{self.name}' of")
        if found != (1, 1) or text.index(self.end) < text.index(self.begin):
            raise LabError(f"{file} has to have one line {self.begin} and, after it, one line {self.end}")
        before, rest = text.split(self.begin)
        _, after = rest.split(self.end)
        joined = "\n\n".join(tables)
        return f"{before}{self.begin}\n{joined}\n{self.end}{after}"


def updated(text: str, file: str) -> str:
    """`text` with all its marked regions regenerated; LabError when one cannot be."""
    for section in SECTIONS:
        text = section.updated(text, file)
    return text


def _markdown(header: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [list(header), *rows]
    shown = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([shown[0], "|" + " ---: |" * len(header), *shown[1:]])


# ---- softmax-matmul ----------------------------------------------------------------------------------------------------

HEADER = ("d2", "unfused, ms", "best fused, ms (block)", "speed-up", "fused, TFLOP/s", "extra memory unfused, MiB",
          "extra memory fused, MiB")


def softmax_matmul_tables(file: Path) -> list[str]:
    return [f"**{group.title}** ([CSV]({paths.relative(file)}))\n\n{table(group)}" for group in groups(load(file))]


def table(group: Group) -> str:
    """One group as a Markdown table, a row for each d2."""
    rows = []
    for d2 in group.d2s:
        unfused, fused = group.unfused(d2), group.best_fused(d2)
        speed_up = group.speed_up(d2, fused)
        rows.append([str(d2), _time(unfused), f"{fused.ms_mean:.4g} ({fused.block})" if fused else _no_fused(group, d2),
                     f"{speed_up:.2f}x" if speed_up is not None else "", f"{fused.tflops:.3g}" if fused else "",
                     _extra(unfused), _extra(fused)])
    return _markdown(HEADER, rows)


def _time(row: Row | None) -> str:
    return "" if row is None else f"{row.ms_mean:.4g}" if row.ok else row.status


def _extra(row: Row | None) -> str:
    """Host allocators round up, so that a few KiB are there without being asked for: shown as 0."""
    if row is None or row.extra_mib is None:
        return ""
    return "0" if row.extra_mib < 0.1 else f"{row.extra_mib:.4g}"


def _no_fused(group: Group, d2: int) -> str:
    return ", ".join(sorted({row.status for row in group.rows if row.d2 == d2 and row.fused}))


# ---- attention ---------------------------------------------------------------------------------------------------------


def cpu_attention_tables(file: Path) -> list[str]:
    return [f"**{group.title}, sequence length {group.seq_lens[-1]}** ({_link(file)})\n\n{cpu_attention_table(group)}"
            for group in attention_results.groups(attention_results.load(file)) if group.device == "cpu"]


def gpu_attention_tables(file: Path) -> list[str]:
    return [f"**{group.title}, sequence length {group.seq_lens[-1]}** ({_link(file)})\n\n{gpu_attention_table(group)}"
            for group in attention_results.groups(attention_results.load(file)) if group.device == "cuda"]


def _link(file: Path) -> str:
    return f"[CSV]({paths.relative(file)})"


def cpu_attention_table(group: attention_results.Group) -> str:
    """One group at its longest sequence as a Markdown table, a row for each implementation."""
    seq_len = group.seq_lens[-1]
    header = ["implementation"]
    for causal in group.masks:
        mask = "causal: " if causal else ""
        header += [f"{mask}forward, ms", f"{mask}backward, ms", f"{mask}GFLOP/s", f"{mask}% of peak"]
    header += ["forward peak, MiB", "backward peak, MiB", "saved, MiB"]

    rows = []
    for name in group.implementations:
        found = [group.find(name, seq_len, causal) for causal in group.masks]
        if all(row is None for row in found):
            continue
        cells = [name]
        for row in found:
            if row is None:
                cells += [""] * 4
            else:
                cells += [row.status if row.forward_ms is None else f"{row.forward_ms:.4g}",
                          row.status if row.backward_ms is None and row.forward_ms is not None else _number(row.backward_ms, 4),
                          _number(None if row.tflops is None else 1000 * row.tflops, 4), _number(row.percent_of_peak, 3)]
        first = next(row for row in found if row is not None)
        rows.append([*cells, *(_number(mib, 4) for mib in (first.forward_peak_mib, first.backward_peak_mib, first.saved_mib))])
    return _markdown(tuple(header), rows)


GPU_HEADER = ("implementation", "causal", "forward, ms", "backward, ms", "total, ms", "forward, TFLOP/s", "backward, TFLOP/s",
              "forward peak, MiB", "backward peak, MiB", "saved, MiB")


def gpu_attention_table(group: attention_results.Group) -> str:
    """One group at its longest sequence as a Markdown table, a row for each mask and implementation."""
    rows = []
    for causal in group.masks:
        for name in group.implementations:
            row = group.find(name, group.seq_lens[-1], causal)
            if row is None:
                continue
            failed = "" if row.ok else row.status
            rows.append([name, "yes" if causal else "no", _number(row.forward_ms, 4) or failed,
                         _number(row.backward_ms, 4) or failed, _number(row.total_ms, 4), _number(row.forward_tflops, 3),
                         _number(row.backward_tflops, 3),
                         *(_number(mib, 4) for mib in (row.forward_peak_mib, row.backward_peak_mib, row.saved_mib))])
    return _markdown(GPU_HEADER, rows)


def _number(value: float | None, digits: int) -> str:
    """Never with an exponent."""
    return "" if value is None else f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"


SECTIONS = (Section("softmax_matmul", "softmax_matmul_benchmark.csv", softmax_matmul_tables),
            Section("attention_cpu", "attention_benchmark.csv", cpu_attention_tables),
            Section("attention_gpu", "attention_benchmark.csv", gpu_attention_tables))
