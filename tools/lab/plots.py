"""Draws the results of bench_softmax_matmul: one figure a device and problem size, with time, speed-up and peak memory over d2.

The figures of bench_attention: attention_plots.py.
"""

import math
from collections.abc import Callable
from pathlib import Path

from lab.errors import LabError
from lab.figures import Axes, Figure, axes_over, in_file_name, legend, log_scale, mark_failures, write_all
from lab.results import Group, Row, groups, load

NAME = "softmax_matmul"

# Okabe and Ito's colours, which colour-blind people can tell apart; each line has a marker of its own as well.
_UNFUSED = {"color": "#000000", "marker": "s"}
_FUSED = ({"color": "#0072B2", "marker": "o"}, {"color": "#D55E00", "marker": "^"}, {"color": "#009E73", "marker": "D"},
          {"color": "#CC79A7", "marker": "v"}, {"color": "#E69F00", "marker": "P"}, {"color": "#56B4E9", "marker": "X"})

Series = tuple[str, int | None, dict]  # label, block, style


def plot_softmax_matmul(csv_file: Path, folder: Path) -> list[Path]:
    """Draws a CSV of bench_softmax_matmul; returns the files written. The first group (the GPU's, the largest problem) is
    softmax_matmul.png, each other one has its device and sizes behind that name. LabError where there is nothing to draw."""
    found = groups(load(csv_file))
    if not found:
        raise LabError(f"{csv_file} has no rows yet: ./lab bench measures some")
    return write_all(folder, lambda: [(file_name(group, first=number == 0), _figure(group))
                                      for number, group in enumerate(found)])


def file_name(group: Group, first: bool) -> str:
    if first:
        return f"{NAME}.png"
    return f"{NAME}_{in_file_name(group.gpu or group.device)}_{group.batch_size}x{group.d1}x{group.d3}.png"


def _figure(group: Group) -> Figure:
    series: list[Series] = [("unfused", None, _UNFUSED)] if any(not row.fused for row in group.rows) else []
    series += [(f"fused, block {block}", block, _FUSED[number % len(_FUSED)]) for number, block in enumerate(group.blocks)]

    figure = Figure(figsize=(13.5, 4.8), layout="constrained")
    time, speed, memory = figure.subplots(1, 3)
    _panel(time, group, series, "Time of a forward pass", "ms", lambda row: row.ms_mean, spread=lambda row: row.ms_std)
    _panel(speed, group, [one for one in series if one[1] is not None], "Speed-up over unfused", "unfused time / fused time",
           lambda row: group.speed_up(row.d2, row))
    _panel(memory, group, series, "Peak memory, inputs and output included", "MiB", lambda row: row.peak_mib, nested=True)
    failures = [(style["color"], [(d2, row.status) for d2 in group.d2s
                                  if (row := group.find(d2, block)) is not None and not row.ok]) for _, block, style in series]
    for axes in (time, memory):
        log_scale(axes)
        mark_failures(axes, group.d2s, failures)
    if speed.lines:
        speed.axhline(1, color=_UNFUSED["color"], linewidth=1, linestyle=":")
        speed.set_ylim(bottom=0, top=max(1.1, 1.05 * speed.get_ylim()[1]))
        speed.annotate("as fast as unfused", (0.02, 1), xycoords=("axes fraction", "data"), xytext=(0, 3),
                       textcoords="offset points", fontsize=8)
    figure.suptitle(f"softmax(X) V: {group.title}", fontsize=13)
    legend(figure, [(label, style) for label, _, style in series], any(not row.ok for row in group.rows))
    return figure


def _panel(axes: Axes, group: Group, series: list[Series], title: str, unit: str, value: Callable[[Row], float | None],
           spread: Callable[[Row], float | None] | None = None, nested: bool = False) -> None:
    """`nested`: the fused lines lie on each other, so the later ones get smaller markers."""
    for number, (_, block, style) in enumerate(series):
        rows = [row for d2 in group.d2s if (row := group.find(d2, block)) is not None]
        values = [value(row) for row in rows]
        if all(one is None for one in values):
            continue
        # NaN breaks the line where a configuration has no result.
        axes.errorbar([row.d2 for row in rows], [math.nan if one is None else one for one in values],
                      yerr=[spread(row) or 0 for row in rows] if spread else None, capsize=2, linewidth=1.6,
                      markersize=5 + 2 * (len(series) - 1 - number) if nested and block is not None else 5, **style)
    axes_over(axes, group.d2s, title, "d2, number of keys", unit)
