"""Draws the benchmarks' results: for each device and kind of problem time, rates and memory."""

import io
import itertools
import math
import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # files only: no display is needed, and none is opened

from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import LogFormatter  # noqa: E402

from lab import disk  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.paths import relative  # noqa: E402
from lab.results import Group, Row, groups, load  # noqa: E402

matplotlib.rcParams.update({
    "savefig.dpi": 150, "grid.color": "0.9", "axes.spines.top": False, "axes.spines.right": False,
    "legend.frameon": False})

Value = Callable[[Row], float | None]

# Colours of Okabe and Ito, which colour-blind people can tell apart. What is compared with is
# black.
_FIXED = {name: {"color": color, "marker": marker} for name, color, marker in (
    ("standard", "#000000", "s"), ("unfused", "#000000", "s"), ("flash", "#D55E00", "o"),
    ("fused_16", "#0072B2", "o"), ("fused_32", "#D55E00", "^"), ("fused_64", "#009E73", "D"))}
_PYTORCH = ("#CC79A7", "#56B4E9", "#E69F00", "#0072B2")
_MARKERS = "^vD<>PXph*"


def plot(csv_file: Path, folder: Path) -> list[Path]:
    """Draws a CSV of any benchmark and returns the files written. The figures of the first group
    (the GPU's, the largest problem) have the table's name, each other group has its device and
    sizes behind it. A group of one size is drawn only where there is no other, or where it has
    several rungs of a GPU's ladder: those of 16 bits with as many tokens and columns as the first
    are one figure for each direction, and all groups of float32 with a rung another one. LabError
    where nothing can be drawn. Decoding's problems are all in one figure."""
    all_groups = groups(load(csv_file))
    found = [group for group in all_groups if len(group.sizes) > 1] or all_groups
    if not found:
        raise LabError(f"{relative(csv_file)} has no rows yet: ./lab bench measures some")
    if found[0].kind.table == "decode":
        return [_save(_decode(all_groups), folder / "decode.png")]
    drawn = {f"{_base_name(group, number == 0)}{suffix}": figure
             for number, group in enumerate(found) for suffix, figure in figures(group)}
    with_rungs = [group for group in all_groups if _rungs(group)
                  and group.rows[0].query_scale == 1]
    for direction, name in (("forward", "attention_ladder"),
                            ("backward", "attention_backward_ladder")):
        ladder = [group for group in all_groups
                  if group not in found and len(_rungs(group, direction)) > 1
                  and group.rows[0].query_scale == 1 and group.rows[0].dtype != "float32"]
        if ladder:
            drawn[name] = _ladder([group for group in ladder if _kind(group) == _kind(ladder[0])],
                                  direction)
    float32 = [group for group in with_rungs if group.rows[0].dtype == "float32" and any(
        row.frobenius_error for row in group.rows if row.name in _rungs(group))]
    if float32:
        drawn["attention_float32"] = _errors(float32)
    return [_save(figure, folder / f"{name}.png") for name, figure in drawn.items()]


def figures(group: Group) -> list[tuple[str, Figure]]:
    """The figures of a group, each with what its file is called behind the group's name."""
    if group.kind.table == "softmax_matmul":
        return [("", _softmax_matmul(group))]
    return [("", _attention_speed(group)), ("_memory", _attention_memory(group))]


def _base_name(group: Group, first: bool) -> str:
    row, table = group.rows[0], group.kind.table
    if first:
        return table
    sizes = "x".join(str(getattr(row, name)) for name in group.kind.group[-3:])
    where = re.sub(r"[^a-z0-9]+", "-", (row.gpu or row.device).lower()).strip("-")
    scale = f"_q{row.query_scale}" if row.query_scale > 1 else ""
    return f"{table}_{where}_{sizes}" + (f"_{row.dtype}{scale}" if table == "attention" else "")


def _save(figure: Figure, file: Path) -> Path:
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    disk.write_exact(file, out.getvalue())
    return file


# ---- the figures --------------------------------------------------------------------------------


def _softmax_matmul(group: Group) -> Figure:
    figure = Figure(figsize=(13.5, 4.8), layout="constrained")
    time, speed, memory = figure.subplots(1, 3)
    names = group.names
    _panel(time, group, "Time of a forward pass", "ms", attrgetter("forward_ms_mean"),
           spread=attrgetter("forward_ms_std"))

    def speed_up(row: Row) -> float | None:
        unfused = group.find("unfused", row.size)
        if unfused is None or not (row.ok and unfused.ok) or row.disturbed or unfused.disturbed:
            return None
        return unfused.forward_ms_mean / row.forward_ms_mean

    _panel(speed, group, "Speed-up over unfused", "unfused time / time", speed_up, log=False,
           names=[name for name in names if name != "unfused"])
    _panel(memory, group, "Peak memory, output included", "MiB", attrgetter("forward_peak_MiB"),
           nested=True)
    if speed.lines:
        speed.axhline(1, color="#000000", linewidth=1, linestyle=":")
        speed.set_ylim(bottom=0, top=max(1.1, 1.05 * speed.get_ylim()[1]))
        speed.annotate("as fast as unfused", (0.02, 1), xycoords=("axes fraction", "data"),
                       xytext=(0, 3), textcoords="offset points", fontsize=8)
    return _finish(figure, group, f"softmax(X) V: {group.title}", group.rows)


def _attention_speed(group: Group) -> Figure:
    """A row of panels for each mask: the rates of both passes, and the share of the peak, or the
    time of both passes where no peak is known. Without a backward pass a panel for each mask."""
    unit, factor = group.rate_unit
    has_peak = any(row.percent_of_peak is not None for row in group.rows)
    lines, columns = (len(group.masks), 3) if _has_backward(group) else (1, len(group.masks))
    figure = Figure(figsize=(13.5, 0.8 + 3.9 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).reshape(len(group.masks), -1)

    def rate(column: str) -> Value:
        return lambda row: None if getattr(row, column) is None else factor * getattr(row, column)

    for mask, (forward, *others) in zip(group.masks, grid):
        words = ", causal" if mask else ""
        _panel(forward, group, f"Forward pass{words}", unit, rate("forward_tflops"), mask)
        if not others:
            continue
        _panel(others[0], group, f"Backward pass{words}", unit, rate("backward_tflops"), mask)
        _panel(others[1], group, f"Forward and backward{words}", "% of peak" if has_peak else "ms",
               attrgetter("percent_of_peak" if has_peak else "total_ms"), mask, log=not has_peak)
        if has_peak:
            others[1].set_ylim(bottom=0)
    _same_limits(grid[:, :2].flat)
    _same_limits(grid[:, 2:].flat)
    return _finish(figure, group, f"Attention: {group.title}", group.rows)


def _has_backward(group: Group) -> bool:
    return any(row.backward_ms or row.status == "OOM(backward)" for row in group.rows)


def _attention_memory(group: Group) -> Figure:
    """Of one mask: no implementation here allocates another amount with the other one."""
    mask = group.masks[0]
    shown = [("Forward pass, its peak", "forward_peak_MiB"),
             *[("Backward pass, its peak", "backward_peak_MiB")] * _has_backward(group),
             ("Saved for the backward pass", "saved_activations_MiB")]
    figure = Figure(figsize=(13.5, 4.8), layout="constrained")
    panels = figure.subplots(1, len(shown))
    for axes, (title, column) in zip(panels, shown):
        _panel(axes, group, title, "MiB", attrgetter(column), mask, nested=True)
    _same_limits(panels)
    title = f"Memory of attention: {group.title}, {'causal' if mask else 'not causal'}"
    return _finish(figure, group, title, [row for row in group.rows if row.mask == mask])


# Dense products of 16 bits with float32 sums, TFLOP/s, from the vendor's data sheets.
_TENSOR_CORES = {"NVIDIA H200": 989, "NVIDIA H100 80GB HBM3": 989}


def _rungs(group: Group, direction: str = "forward") -> list[str]:
    """The rungs of a GPU's ladder that have a pass of this direction in these rows."""
    if group.kind.table != "attention" or group.device != "cuda":
        return []
    names = {row.pass_name(direction) for row in group.rows if row.ms(direction)}
    return sorted((name for name in names if re.fullmatch(r"\d+_\w+", name)),
                  key=lambda name: int(name.split("_")[0]))


def _kind(group: Group) -> tuple[str | int | None, ...]:
    """What the problems of a ladder's figure have in common."""
    row = group.rows[0]
    return row.dtype, row.d_model, row.batch * row.seq_len


def _ladder(found: Sequence[Group], direction: str) -> Figure:
    """A panel for each problem: the rate of each rung, with a mask and without, and of PyTorch's
    kernels as lines."""
    ordered = sorted(found, key=lambda group: (group.head_dim, group.sizes[-1]))
    columns = sum(group.head_dim == ordered[0].head_dim for group in ordered)
    lines = math.ceil(len(ordered) / columns)
    figure = Figure(figsize=(4.5 * columns, 0.9 + 3.1 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).flat
    ceiling = _TENSOR_CORES.get(found[0].rows[0].gpu or "")
    handles: dict[str, Any] = {}
    for group, axes in zip(ordered, panels):  # in this order: zip() takes no panel too many
        rungs = _rungs(group, direction)
        rates = {(row.pass_name(direction), row.mask): rate for row in group.rows
                 if row.size == group.sizes[-1] and (rate := getattr(row, f"{direction}_tflops"))}
        for mask, color, label in ((False, "#0072B2", "every key"), (True, "#56B4E9", "causal")):
            handles[label] = axes.bar(
                [place + (0.4 if mask else 0) for place in range(len(rungs))],
                [rates.get((name, mask), 0) for name in rungs], 0.4, color=color, label=label)
            for name, style in (("pytorch_flash", ":"), ("pytorch_cudnn", "--")):
                if rate := rates.get((name, mask)):
                    text = name + (", causal" if mask else "")
                    handles[text] = axes.axhline(rate, linestyle=style, linewidth=1.3, label=text,
                                                 color="#E69F00" if mask else "#D55E00")
        if ceiling:
            handles["data sheet"] = axes.axhline(ceiling, color="0.5", linewidth=1,
                                                 label="data sheet")
        axes.set_title(f"heads of {group.head_dim}, {group.sizes[-1]} keys", fontsize=10)
        axes.set_ylabel("TFLOP/s")
        axes.set_xticks([place + 0.2 for place in range(len(rungs))], rungs, rotation=40,
                        ha="right", fontsize=7)
    for axes in list(panels):
        axes.set_visible(False)
    row = found[0].rows[0]
    figure.suptitle(f"The ladder's {direction} passes: {row.gpu}, {row.dtype}, "
                    f"{row.batch * row.seq_len} tokens of {row.d_model} columns", fontsize=13)
    return _with_legend(figure, list(handles.values()), 7)


def _decode(found: Sequence[Group]) -> Figure:
    """A bar for each implementation and problem: the bytes of the cache that it reads in a second,
    over those that a copy moves in the same turns."""
    problems = [(group, size) for group in found for size in group.sizes]
    names = [name for name in dict.fromkeys(name for group in found for name in group.names)
             if name != "copy"]
    figure = Figure(figsize=(max(6, 2.2 * len(problems)), 4.8), layout="constrained")
    axes = figure.subplots()
    looks, width = styles(names), 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        rows = [group.find(name, size) for group, size in problems]
        axes.bar([place + width * (number - (len(names) - 1) / 2) for place in range(len(rows))],
                 [row.percent_of_copy or 0 if row else 0 for row in rows], width,
                 color=looks[name]["color"], label=name)
    axes.axhline(100, color="#000000", linewidth=1, linestyle=":")
    axes.set_ylabel("% of a copy's bytes a second")
    axes.set_xticks(range(len(problems)), [
        f"{group.rows[0].batch} x " + f"{size} keys" * (group.rows[0].lengths == "equal")
        + f"1 to {size} keys" * (group.rows[0].lengths != "equal") for group, size in problems])
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    row = found[0].rows[0]
    figure.suptitle(f"Decoding, one query: {row.gpu}, {row.dtype}, {row.heads} heads on "
                    f"{row.kv_heads} of {row.head_dim}, pages of {row.page_size}", fontsize=13)
    return _with_legend(figure, axes.get_legend_handles_labels()[0])


def _errors(found: Sequence[Group]) -> Figure:
    """Error against speed of forward passes in float32: a column for each problem, at its longest
    sequence, a row for each mask, and a point for each implementation."""
    def points(group: Group) -> list[Row]:
        return [row for row in group.rows if row.size == group.sizes[-1] and row.backward_ms is None
                and row.forward_tflops and row.frobenius_error]

    figure = Figure(figsize=(4 * len(found), 7.5), layout="constrained")
    panels = figure.subplots(2, len(found), squeeze=False)
    looks = styles(list(dict.fromkeys(row.name for group in found for row in points(group))))
    for column, group in enumerate(found):
        for axes, mask in zip(panels[:, column], (False, True)):
            for row in points(group):
                if row.mask == mask:
                    axes.plot(row.forward_tflops, row.frobenius_error, linestyle="none",
                              markersize=7, alpha=0.8, label=row.name.removesuffix("+none"),
                              **{key: looks[row.name][key] for key in ("color", "marker")})
            axes.set(xlabel="forward, TFLOP/s", ylabel="relative error (Frobenius norm)",
                     title=f"heads of {group.head_dim}, {group.sizes[-1]} keys"
                     + (", causal" if mask else ""))
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
            axes.margins(0.1)
            axes.grid()
    handles = {label: handle for axes in panels.flat
               for handle, label in zip(*axes.get_legend_handles_labels())}
    figure.suptitle(f"float32: error and speed, {found[0].rows[0].gpu}", fontsize=13)
    return _with_legend(figure, list(handles.values()))


def _with_legend(figure: Figure, handles: list[Any], columns: int = 6) -> Figure:
    longest = max((len(handle.get_label()) for handle in handles), default=0)
    room = int(figure.get_figwidth() / (0.6 + 0.085 * longest))  # inches of a sign and its name
    figure.legend(handles=handles, loc="outside lower center",
                  ncols=max(1, min(columns, len(handles), room)))
    return figure


def _finish(figure: Figure, group: Group, title: str, rows: Sequence[Row]) -> Figure:
    figure.suptitle(title, fontsize=13)
    handles = [Line2D([], [], label=name.replace("fused_", "fused, block "), linewidth=1.6,
                      markersize=5, **style) for name, style in styles(group.names).items()]
    if any(not row.ok for row in rows):
        handles.append(Line2D([], [], label="no result, for the reason above it", linestyle="none",
                              marker="x", markersize=7, markeredgewidth=1.8, color="0.35"))
    if any(row.disturbed for row in rows):
        handles.append(Line2D([], [], label="disturbed by other programs: measure it again",
                              linestyle="none", marker="o", markerfacecolor="white", color="0.35"))
    return _with_legend(figure, handles)


def styles(names: Sequence[str]) -> dict[str, dict]:
    """A look for each line: the rungs of a ladder go from dark to light in their order, PyTorch's
    lines are dashed."""
    looks = dict(_FIXED)
    pytorch = [name for name in names if name.startswith("pytorch")]
    others = [name for name in names if name not in _FIXED and name not in pytorch]
    for number, name in enumerate(pytorch):
        looks[name] = {"color": _PYTORCH[number % len(_PYTORCH)], "linestyle": "--"}
    for number, name in enumerate(others):
        # The map's last fifth, its yellow, is too light for a line on white.
        shade = matplotlib.colormaps["viridis"](0.8 * number / max(1, len(others) - 1))
        looks[name] = {"color": matplotlib.colors.to_hex(shade)}
    for number, name in [*enumerate(pytorch), *enumerate(others)]:
        looks[name]["marker"] = _MARKERS[number % len(_MARKERS)]
    return {name: looks[name] for name in names}


# ---- panels -------------------------------------------------------------------------------------


def _panel(axes: Axes, group: Group, title: str, unit: str, value: Value, mask: bool = False,
           log: bool = True, nested: bool = False, names: Sequence[str] | None = None,
           spread: Value | None = None) -> None:
    """A line for each implementation over the sizes; what other programs disturbed has a hollow
    marker. `nested`: of memory, whose lines lie on each other, so that the later ones get smaller
    markers. With a logarithmic axis rows without a result are marked."""
    failures = []
    looks = styles(group.names)
    for number, name in enumerate(names or group.names):
        rows = group.series(name, mask)
        values = [value(row) for row in rows]
        failed = [(row.size, row.status) for row, one in zip(rows, values)
                  if one is None and not row.ok]
        failures.append((looks[name]["color"], failed))
        if all(one is None for one in values):
            continue
        # NaN breaks the line where there is no result.
        smaller = nested and looks[name]["color"] != "#000000"
        axes.errorbar([row.size for row in rows],
                      [math.nan if one is None else one for one in values],
                      yerr=[spread(row) or 0 for row in rows] if spread else None,
                      capsize=2, linewidth=1.6,
                      markersize=4 + 1.2 * (len(looks) - 1 - number) if smaller else 5,
                      **looks[name])
        hollow = [] if nested else [(row.size, one) for row, one in zip(rows, values)
                                    if row.disturbed and one is not None]
        for place in hollow:
            axes.plot(*place, markersize=5, markerfacecolor="white", zorder=3, **looks[name])
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(_Plain())
        axes.yaxis.set_minor_formatter(_Plain(minor_thresholds=(2.5, 0.9)))
    _label(axes, group, title, unit)
    if log:
        _mark_failures(axes, group.sizes, failures)


class _Plain(LogFormatter):
    """Numbers without an exponent. Over less than a decade all ticks have one, over up to 2.5
    decades some between the powers of ten, too."""

    def __call__(self, number: float, place: int | None = None) -> str:
        return super().__call__(number, place) and f"{number:g}"


def _label(axes: Axes, group: Group, title: str, unit: str) -> None:
    if not axes.lines:
        why = ":\nother programs disturbed the rows" * any(row.disturbed for row in group.rows)
        axes.text(0.5, 0.4, f"nothing to show{why}", transform=axes.transAxes, ha="center",
                  color="0.35")
        axes.set_yticks([])
        axes.set_yticks([], minor=True)
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(group.kind.size_label)
    axes.set_ylabel(unit)
    axes.set_xscale("log", base=2)
    axes.set_xticks(group.sizes, map(str, group.sizes), fontsize=9)
    axes.set_xticks([], minor=True)
    axes.set_xlim(group.sizes[0] / 1.3, group.sizes[-1] * 1.3)
    axes.grid()
    axes.set_axisbelow(True)


def _same_limits(panels: Sequence[Axes]) -> None:
    """Gives panels that are to be compared the same range of y. To be called last."""
    drawn = [axes for axes in panels if axes.lines]
    if not drawn:
        return
    low, high = min(axes.get_ylim()[0] for axes in drawn), max(axes.get_ylim()[1] for axes in drawn)
    for axes in drawn:
        axes.set_ylim(low, high)


def _mark_failures(axes: Axes, sizes: Sequence[int], failures: Sequence[tuple[str, list]]) -> None:
    """Along the upper edge, a line for each series: an x where it has no result, and the status
    above each run of them. Series that failed alike share a grey line."""
    colors: dict[tuple, list] = {}
    for color, failed in failures:
        if failed:
            colors.setdefault(tuple(failed), []).append(color)
    if axes.lines:
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** (0.13 * len(colors)))  # room above the lines
    for place, (failed, owners) in enumerate(colors.items()):
        y = 0.94 - 0.1 * place
        color = owners[0] if len(owners) == 1 else "0.35"
        axes.plot([size for size, _ in failed], [y] * len(failed), linestyle="none", marker="x",
                  markersize=7, markeredgewidth=1.8, color=color, clip_on=False,
                  transform=axes.get_xaxis_transform())
        for status, run in itertools.groupby(failed, key=lambda one: one[1]):
            members = [size for size, _ in run]
            left = members[0] <= sizes[(len(sizes) - 1) // 2]  # the text stays inside the panel
            axes.annotate(status if len(owners) == 1 else f"{status} ({len(owners)} lines)",
                          (members[0] if left else members[-1], y), fontsize=8, color=color,
                          xycoords=("data", "axes fraction"), xytext=(-4 if left else 4, 5),
                          textcoords="offset points", ha="left" if left else "right")
