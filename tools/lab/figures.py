"""What the figures of all benchmarks share: files, axes over a size, and marks where there is no result."""

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # files only: no display is needed, and none is opened

from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator  # noqa: E402

from lab.errors import LabError  # noqa: E402

DPI = 150

Failures = tuple[object, list[tuple[int, str]]]  # a series' colour; the sizes without a result, with the status of each


def write_all(folder: Path, draw: Callable[[], list[tuple[str, Figure]]]) -> list[Path]:
    """Saves figures under their names, each file whole or not at all; LabError where the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_save(figure, folder / name) for name, figure in draw()]
    except OSError as error:
        raise LabError(f"{folder} cannot be written: {error.strerror}") from None


def _save(figure: Figure, file: Path) -> Path:
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        figure.savefig(temporary, dpi=DPI, format="png", metadata={"Software": None})
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return file


def in_file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def axes_over(axes: Axes, sizes: Sequence[int], title: str, x_label: str, y_label: str) -> None:
    """Labels and looks of a panel over sizes that double. To be called when its lines are there."""
    if not axes.lines:
        axes.text(0.5, 0.4, "nothing to show", transform=axes.transAxes, ha="center", color="0.35")
        axes.yaxis.set_major_locator(NullLocator())
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:.0f}"))
    axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
    axes.tick_params(axis="x", labelsize=9)
    axes.grid(True, color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def log_scale(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _label_narrow_range(axes)


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
        axes.yaxis.set_major_locator(LogLocator(base=10))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}") if high / low <= 8 else NullFormatter())


def same_limits(panels: Sequence[Axes]) -> None:
    """Gives panels that are to be compared the same range of y. To be called last."""
    drawn = [axes for axes in panels if axes.lines]
    if not drawn:
        return
    low, high = min(axes.get_ylim()[0] for axes in drawn), max(axes.get_ylim()[1] for axes in drawn)
    for axes in drawn:
        axes.set_ylim(low, high)
        if axes.get_yscale() == "log":
            _label_narrow_range(axes)


def mark_failures(axes: Axes, sizes: Sequence[int], failures: Sequence[Failures]) -> None:
    """Along the upper edge of a panel with a logarithmic scale, a line for each series: an x where it has no result, and the
    status above each run of them. Series that failed alike share a grey line. To be called when the lines are there."""
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
        axes.plot([size for size, _ in failed], [y] * len(failed), transform=axes.get_xaxis_transform(), linestyle="none",
                  marker="x", markersize=7, markeredgewidth=1.8, color=color, clip_on=False)
        for status, run in itertools.groupby(failed, key=lambda one: one[1]):
            members = [size for size, _ in run]
            left = members[0] <= sizes[(len(sizes) - 1) // 2]  # the text stays inside the panel
            axes.annotate(status if len(owners) == 1 else f"{status} ({len(owners)} lines)",
                          (members[0] if left else members[-1], y), xycoords=("data", "axes fraction"),
                          xytext=(-4 if left else 4, 5), textcoords="offset points", ha="left" if left else "right",
                          fontsize=8, color=color)


def legend(figure: Figure, series: Sequence[tuple[str, dict]], has_failures: bool, columns: int = 8) -> None:
    handles = [Line2D([], [], label=label, linewidth=1.6, markersize=5, **style) for label, style in series]
    if has_failures:
        handles.append(Line2D([], [], label="no result, for the reason above it", linestyle="none", marker="x", markersize=7,
                              markeredgewidth=1.8, color="0.35"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)), frameon=False)
