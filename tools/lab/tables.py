"""The results table of README.md, generated from the committed CSVs: outputs/reference/<machine>/csv/."""

from pathlib import Path

from lab import paths
from lab.errors import LabError
from lab.results import Group, Row, groups, load

BEGIN = "<!-- BEGIN RESULTS softmax_matmul -->"
END = "<!-- END RESULTS softmax_matmul -->"
CSV_NAME = "softmax_matmul_benchmark.csv"

HEADER = ("d2", "unfused, ms", "best fused, ms (block)", "speed-up", "fused, TFLOP/s", "extra memory unfused, MiB",
          "extra memory fused, MiB")


def reference_csvs() -> list[Path]:
    """Every committed CSV of bench_softmax_matmul. LabError when there is none."""
    found = sorted((paths.OUTPUTS / "reference").glob(f"*/csv/{CSV_NAME}"))
    if not found:
        raise LabError(f"there is no outputs/reference/<machine>/csv/{CSV_NAME} to make a table of")
    return found


def results_tables() -> str:
    """What belongs between the markers: a heading and a table for each CSV and problem size."""
    sections = []
    for file in reference_csvs():
        for group in groups(load(file)):
            sections.append(f"**{group.title}** ([CSV]({paths.relative(file)}))\n\n{table(group)}")
    return "\n\n".join(sections)


def table(group: Group) -> str:
    """One group as a Markdown table, a row for each d2."""
    lines = ["| " + " | ".join(HEADER) + " |", "|" + " ---: |" * len(HEADER)]
    for d2 in group.d2s:
        unfused, fused = group.unfused(d2), group.best_fused(d2)
        speed_up = group.speed_up(d2, fused)
        cells = [str(d2), _time(unfused), f"{fused.ms_mean:.4g} ({fused.block})" if fused else _no_fused(group, d2),
                 f"{speed_up:.2f}x" if speed_up is not None else "", f"{fused.tflops:.3g}" if fused else "",
                 _extra(unfused), _extra(fused)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def updated(text: str, file: str) -> str:
    """`text` with its marked region regenerated. LabError when a marker is missing, out of order, or there twice."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        raise LabError(f"{file} has to have one line {BEGIN} and, after it, one line {END}")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{results_tables()}\n{END}{after}"


def _time(row: Row | None) -> str:
    return "" if row is None else f"{row.ms_mean:.4g}" if row.ok else row.status


def _extra(row: Row | None) -> str:
    """Host allocators round up, so that a few KiB are there without being asked for: shown as 0."""
    if row is None or row.extra_mib is None:
        return ""
    return "0" if row.extra_mib < 0.1 else f"{row.extra_mib:.4g}"


def _no_fused(group: Group, d2: int) -> str:
    return ", ".join(sorted({row.status for row in group.rows if row.d2 == d2 and row.fused}))
