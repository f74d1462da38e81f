"""The leaderboard as Markdown, as CSV and as one static HTML page: no script, nothing loaded."""

import datetime
import itertools
from collections.abc import Sequence

from lab import text
from lab.instructor import web
from lab.instructor.standings import MARK, Entry, Standing
from lab.leaderboard.receipts import TIME

# Colours of Okabe and Ito, which colour-blind people can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_GREY = "#5b6776"
_A_DAY = datetime.timedelta(days=1)


def _cells(row: Entry) -> tuple[str, ...]:
    result = row.result
    return (str(row.place or ""), row.name, f"{result.speedup:.3f}",
            f"{100 * result.uncertainty:.1f}", f"{result.total:.4g}",
            f"{100 * result.roofline:.1f}", row.state, row.time[:10])


_HEAD = ("place", "name", "speed-up", "±, %", "total, ms", "roofline, %", "state", "date")
_CLASSES = ("n", "text", "n", "n wide", "n wide", "n wide", "", "wide")  # of HTML's columns
_EXPLAINED = ("*Speed-up* is over the reference, measured in turns with it: the inverse of the "
              "mean of the relative times of all passes; ± is how far it moves when turns are "
              "drawn again from those that were measured. *Total* is the sum of the median times. "
              "*Roofline* is the share of what one core, or the GPU, could do at best. Only a "
              "verified result has a place; a mark (the solution, a rung of the ladder) stands "
              "there to compare with.")


def markdown(standings: Sequence[Standing]) -> str:
    return web.page("leaderboard.md", standings=standings, head=_HEAD, cells=_cells,
                    explained=text.Markdown(_EXPLAINED))


def table(standings: Sequence[Standing]) -> str:
    head = ["board", "device", "place", "name", "speedup", "uncertainty_percent", "total_ms",
            "roofline_percent", "state", "date", "course", "files"]
    return text.table([head, *([standing.board.name, standing.device, *_cells(row),
                                row.receipt.course, " ".join(row.receipt.sources.values())]
                               for standing in standings for row in standing.rows)])


def page(standings: Sequence[Standing], made: str) -> str:
    return web.page("leaderboard.html", title="Leaderboard", standings=standings, made=made,
                    explained=_EXPLAINED.replace("*", ""), head=_HEAD, classes=_CLASSES,
                    cells=_cells, progress=[progress(standing) for standing in standings])


def progress(standing: Standing) -> str:
    """Best verified speed-up so far over time, a line a person; the marks as level lines. As SVG;
    "" where nothing is verified: a claim could have any number, and any time."""
    entries = standing.verified
    if not entries:
        return ""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # it takes two seconds

    drawn: list[str] = []
    with web.figure(4.8, 3.6, f"best speed-up over time on {standing.board.name}", drawn) as axes:
        last = max(_time(entry.time) for entry in entries)
        people = [row.name for row in standing.rows if row.place]
        for number, name in enumerate(people):
            mine = [entry for entry in entries if entry.name == name]
            times = [_time(entry.time) for entry in mine]
            best = list(itertools.accumulate((entry.result.speedup for entry in mine), max))
            named = number < len(_COLOURS)
            colour = _COLOURS[number] if named else "#c5ccd6"
            axes.step([*times, last], [*best, best[-1]], where="post", color=colour,
                      label=name if named else None)
            axes.plot(times, [entry.result.speedup for entry in mine], "o", color=colour,
                      markersize=5)
        marks = [row for row in standing.rows if row.state == MARK]
        for number, mark in enumerate(marks):
            # On alternating sides, since two marks may lie close together.
            right = number % 2
            axes.axhline(mark.result.speedup, color=_GREY, linewidth=0.8, linestyle="--")
            axes.annotate(mark.name, (0.99 if right else 0.01, mark.result.speedup), fontsize=8,
                          xycoords=("axes fraction", "data"), color=_GREY, va="bottom",
                          ha="right" if right else "left")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}x")
        axes.yaxis.set_minor_formatter("{x:g}x" if _is_narrow(*axes.get_ylim()) else "")
        axes.set_ylabel("speed-up over the reference")
        locator = AutoDateLocator(maxticks=5)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        axes.margins(x=0.08, y=0.12)
        moments = [_time(entry.time) for entry in entries]
        if max(moments) - min(moments) < _A_DAY:  # else a single day has no axis
            middle = min(moments) + (max(moments) - min(moments)) / 2
            axes.set_xlim(middle - _A_DAY / 2, middle + _A_DAY / 2)
        axes.grid(alpha=0.25)
        axes.figure.legend(fontsize=8, loc="outside lower center", ncols=2, frameon=False)
    return drawn[0]


def _is_narrow(low: float, high: float) -> bool:
    return high / low < 8


def _time(moment: str) -> datetime.datetime:
    return datetime.datetime.strptime(moment, TIME)
