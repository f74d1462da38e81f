"""Draws benchmark results: one figure a device and problem size, with time, speed-up and peak memory over d2."""

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # files only: no display is needed, and none is opened

from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator  # noqa: E402

from lab.errors import LabError  # noqa: E402
from lab.results import Group, Row, groups, load  # noqa: E402

NAME = "softmax_matmul"
DPI = 150

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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_save(_figure(group), folder / file_name(group, first=number == 0)) for number, group in enumerate(found)]
    except OSError as error:
        raise LabError(f"{folder} cannot be written: {error.strerror}") from None


def file_name(group: Group, first: bool) -> str:
    if first:
        return f"{NAME}.png"
    device = re.sub(r"[^a-z0-9]+", "-", (group.gpu or group.device).lower()).strip("-")
    return f"{NAME}_{device}_{group.batch_size}x{group.d1}x{group.d3}.png"


def _save(figure: Figure, file: Path) -> Path:
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        figure.savefig(temporary, dpi=DPI, format="png", metadata={"Software": None})
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return file


def _figure(group: Group) -> Figure:
    series: list[Series] = [("unfused", None, _UNFUSED)] if any(not row.fused for row in group.rows) else []
    series += [(f"fused, block {block}", block, _FUSED[number % len(_FUSED)]) for number, block in enumerate(group.blocks)]

    figure = Figure(figsize=(13.5, 4.8), layout="constrained")
    time, speed, memory = figure.subplots(1, 3)
    _panel(time, group, series, "Time of a forward pass", "ms", lambda row: row.ms_mean, spread=lambda row: row.ms_std)
    _panel(speed, group, [one for one in series if one[1] is not None], "Speed-up over unfused", "unfused time / fused time",
           lambda row: group.speed_up(row.d2, row))
    _panel(memory, group, series, "Peak memory, inputs and output included", "MiB", lambda row: row.peak_mib, nested=True)
    for axes in (time, memory):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        _label_narrow_range(axes)
        _mark_failures(axes, group, series)  # last, when the limits stand
    if speed.lines:
        speed.axhline(1, color=_UNFUSED["color"], linewidth=1, linestyle=":")
        speed.set_ylim(bottom=0, top=max(1.1, 1.05 * speed.get_ylim()[1]))
        speed.annotate("as fast as unfused", (0.02, 1), xycoords=("axes fraction", "data"), xytext=(0, 3),
                       textcoords="offset points", fontsize=8)
    figure.suptitle(f"softmax(X) V: {group.title}", fontsize=13)
    handles = [Line2D([], [], label=label, linewidth=1.6, markersize=5, **style) for label, _, style in series]
    if any(not row.ok for row in group.rows):
        handles.append(Line2D([], [], label="no result, for the reason above it", linestyle="none", marker="x", markersize=7,
                              markeredgewidth=1.8, color="0.35"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
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
    if not axes.lines:
        axes.text(0.5, 0.4, "nothing to show", transform=axes.transAxes, ha="center", color="0.35")
        axes.yaxis.set_major_locator(NullLocator())
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("d2, number of keys")
    axes.set_ylabel(unit)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(group.d2s))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:.0f}"))
    axes.set_xlim(group.d2s[0] / 1.3, group.d2s[-1] * 1.3)
    axes.tick_params(axis="x", labelsize=9)
    axes.grid(True, color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _label_narrow_range(axes: Axes) -> None:
    """A logarithmic axis over a decade or two has few powers of ten to label: 2 and 5 join in."""
    low, high = axes.get_ylim()
    if not axes.lines:
        axes.yaxis.set_major_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
    elif 8 < high / low < 300:
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}") if high / low <= 8 else NullFormatter())


def _mark_failures(axes: Axes, group: Group, series: list[Series]) -> None:
    """Along the panel's upper edge, a line a series: an x where it has no result, and the status above each run of them."""
    statuses = [(style["color"], [(d2, row.status) for d2 in group.d2s
                                  if (row := group.find(d2, block)) is not None and not row.ok]) for _, block, style in series]
    statuses = [(color, failed) for color, failed in statuses if failed]
    if axes.lines:
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** (0.13 * len(statuses)))  # room above the lines
    for place, (color, failed) in enumerate(statuses):
        y = 0.94 - 0.1 * place
        axes.plot([d2 for d2, _ in failed], [y] * len(failed), transform=axes.get_xaxis_transform(), linestyle="none",
                  marker="x", markersize=7, markeredgewidth=1.8, color=color, clip_on=False)
        for status, run in itertools.groupby(failed, key=lambda one: one[1]):
            members = [d2 for d2, _ in run]
            left = members[0] <= group.d2s[(len(group.d2s) - 1) // 2]  # the text stays inside the panel
            axes.annotate(status, (members[0] if left else members[-1], y), xycoords=("data", "axes fraction"),
                          xytext=(-4 if left else 4, 5), textcoords="offset points", ha="left" if left else "right",
                          fontsize=8, color=color)
