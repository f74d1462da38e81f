"""Draws the results of bench_attention: for each device and kind of problem a figure of how fast, one of how much memory."""

import math
from collections.abc import Callable
from pathlib import Path

import matplotlib

from lab.attention_results import Group, Row, groups, load
from lab.errors import LabError
from lab.figures import (Axes, Failures, Figure, axes_over, in_file_name, legend, log_scale, mark_failures, same_limits,
                         write_all)

NAME = "attention"

# Two of Okabe and Ito's colours; the rungs of a ladder go from dark to light in their order. Each line has a marker of its own.
_STANDARD = {"color": "#000000", "marker": "s"}
_FLASH = {"color": "#D55E00", "marker": "o"}
_MARKERS = "^vD<>PXph*"

Series = tuple[str, dict]  # implementation, style


def plot_attention(csv_file: Path, folder: Path) -> list[Path]:
    """Draws a CSV of bench_attention; returns the files written. The first group (the GPU's, the largest problem) is
    attention.png and attention_memory.png, each other one has its device, sizes and type behind the name. A group of one
    sequence length is drawn only where there is no other. LabError where there is nothing to draw."""
    all_groups = groups(load(csv_file))
    found = [group for group in all_groups if len(group.seq_lens) > 1] or all_groups
    if not found:
        raise LabError(f"{csv_file} has no rows yet: ./lab bench part2 measures some")

    def draw() -> list[tuple[str, Figure]]:
        figures = []
        for number, group in enumerate(found):
            name = base_name(group, first=number == 0)
            figures += [(f"{name}.png", _speed(group)), (f"{name}_memory.png", _memory(group))]
        return figures

    return write_all(folder, draw)


def base_name(group: Group, first: bool) -> str:
    if first:
        return NAME
    return f"{NAME}_{in_file_name(group.gpu or group.device)}_{group.batch}x{group.heads}x{group.d_model}_{group.dtype}"


def _series(group: Group) -> list[Series]:
    fixed = {"standard": _STANDARD, "flash": _FLASH}
    others = [name for name in group.implementations if name not in fixed]
    shades = matplotlib.colormaps["viridis"]
    # The map's last fifth, its yellow, is too light for a line on white.
    styles = fixed | {name: {"color": matplotlib.colors.to_hex(shades(0.8 * number / max(1, len(others) - 1))),
                             "marker": _MARKERS[number % len(_MARKERS)]} for number, name in enumerate(others)}
    return [(name, styles[name]) for name in group.implementations]


def _speed(group: Group) -> Figure:
    """A row of panels for each mask: the rates of both passes, and the share of the peak, or their time where no peak is known."""
    series = _series(group)
    unit, factor = ("TFLOP/s", 1) if group.device == "cuda" else ("GFLOP/s", 1000)
    has_peak = any(row.percent_of_peak is not None for row in group.rows)
    figure = Figure(figsize=(13.5, 0.8 + 3.9 * len(group.masks)), layout="constrained")
    grid = figure.subplots(len(group.masks), 3, squeeze=False)
    for causal, panels in zip(group.masks, grid):
        mask = ", causal" if causal else ""
        _panel(panels[0], group, causal, series, f"Forward pass{mask}", unit,
               lambda row: None if row.forward_tflops is None else factor * row.forward_tflops)
        _panel(panels[1], group, causal, series, f"Backward pass{mask}", unit,
               lambda row: None if row.backward_tflops is None else factor * row.backward_tflops)
        for axes, pass_failed in zip(panels, (lambda row: row.forward_ms is None, lambda row: row.backward_ms is None)):
            log_scale(axes)
            mark_failures(axes, group.seq_lens, _failures(group, causal, series, pass_failed))
        if has_peak:
            _panel(panels[2], group, causal, series, f"Forward and backward{mask}", "% of peak",
                   lambda row: row.percent_of_peak)
            panels[2].set_ylim(bottom=0)
        else:
            _panel(panels[2], group, causal, series, f"Forward and backward{mask}", "ms", lambda row: row.total_ms)
            log_scale(panels[2])
            mark_failures(panels[2], group.seq_lens, _failures(group, causal, series, lambda row: not row.ok))
    same_limits(grid[:, :2].flat)
    same_limits(grid[:, 2:].flat)
    figure.suptitle(f"Attention: {group.title}", fontsize=13)
    legend(figure, series, any(not row.ok for row in group.rows), columns=6)
    return figure


def _memory(group: Group) -> Figure:
    """Of one mask: no implementation here allocates another amount with the other one."""
    series = _series(group)
    causal = group.masks[0]
    figure = Figure(figsize=(13.5, 4.8), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, (title, value, failed) in zip(panels, (
            ("Forward pass, its peak", lambda row: row.forward_peak_mib, lambda row: row.forward_ms is None),
            ("Backward pass, its peak", lambda row: row.backward_peak_mib, lambda row: row.backward_ms is None),
            ("Saved for the backward pass", lambda row: row.saved_mib, lambda row: row.forward_ms is None))):
        _panel(axes, group, causal, series, title, "MiB", value, nested=True)
        log_scale(axes)
        mark_failures(axes, group.seq_lens, _failures(group, causal, series, failed))
    same_limits(panels)
    mask = "causal" if causal else "not causal"
    figure.suptitle(f"Memory of attention: {group.title}, {mask}", fontsize=13)
    legend(figure, series, any(not row.ok for row in group.rows if row.causal == causal), columns=6)
    return figure


def _failures(group: Group, causal: bool, series: list[Series], failed: Callable[[Row], bool]) -> list[Failures]:
    return [(style["color"], [(row.seq_len, row.status) for row in _rows(group, name, causal) if failed(row)])
            for name, style in series]


def _rows(group: Group, name: str, causal: bool) -> list[Row]:
    return [row for seq_len in group.seq_lens if (row := group.find(name, seq_len, causal)) is not None]


def _panel(axes: Axes, group: Group, causal: bool, series: list[Series], title: str, unit: str,
           value: Callable[[Row], float | None], nested: bool = False) -> None:
    """`nested`: lines lie on each other, so the later ones get smaller markers; standard attention's lies alone."""
    for number, (name, style) in enumerate(series):
        rows = _rows(group, name, causal)
        values = [value(row) for row in rows]
        if all(one is None for one in values):
            continue
        # NaN breaks the line where there is no result.
        axes.plot([row.seq_len for row in rows], [math.nan if one is None else one for one in values], linewidth=1.6,
                  markersize=4 + 1.2 * (len(series) - 1 - number) if nested and name != "standard" else 5, **style)
    axes_over(axes, group.seq_lens, title, "sequence length", unit)
