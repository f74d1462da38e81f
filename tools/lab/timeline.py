"""What the blocks of a kernel do, in their order (emulator/run/events.hpp): which tile of which
tensor a block holds, and where; which scores it has seen; what a row's softmax is by then."""

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.counts import Launch

MOST_RECTANGLES = 64  # of an event; more are drawn as the one around them
ROWS, COLUMNS = 24, 16  # rows whose softmax can be chosen; columns of them that are drawn
NEVER = 10**9
SMALL = 4096  # bytes of a tensor that every thread may load for itself
# Of an H100: operations of float32 (a multiply-add is two) that a multiprocessor does in the time
# of one wavefront; that the card does in the time of one byte of device memory.
AT_ONCE, RIDGE = 256, 20

Rectangle = tuple[int, int, int, int]  # rows first to end, columns first to end
Range = tuple[int, int]


@dataclass
class Event:
    launch: int
    block: int
    step: int  # of the block
    place: str
    what: str    # "load", "store"; of Hopper's barriers "arrive", "wait", "go on", "copy", "landed"
    object: str  # the tensor, "" for shared memory; of a barrier its address
    number: int  # the phase of a barrier
    warps: list[int]
    asked: int         # bytes of all lanes
    runs: list[Range]  # bytes behind the tensor's first element, each once
    to: Range | None   # where in shared memory a load goes

    @property
    def line(self) -> str:
        return self.place.rpartition("/")[2]

    @property
    def bytes(self) -> int:
        return sum(end - begin for begin, end in self.runs)


@dataclass
class Hold:
    """Elements of a tensor that a block has, from one of its steps to another."""

    tensor: str
    block: int
    rectangles: list[Rectangle]
    begin: int
    line: str
    shared: Range | None
    times: int  # for the how many-th time the block loads them
    end: int = NEVER
    reads: list[int] = field(default_factory=list)  # steps in which it reads them in shared memory


def load(folder: Path) -> list[Event]:
    with (folder / "events.tsv").open(newline="") as table:
        return [Event(int(row["launch"]), int(row["block"]), int(row["step"]), row["place"],
                      row["what"], row["object"], int(row["number"]),
                      [warp for warp in range(33) if int(row["warps"]) >> warp & 1],
                      int(row["asked"]), list(_ranges(row["runs"])),
                      next(_ranges(row["to"]), None))
                for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)]


def _ranges(text: str) -> Iterator[Range]:
    for part in text.split(",") if text else ():
        begin, _, end = part.partition("-")
        yield int(begin), int(end)


# ---- where elements are -------------------------------------------------------------------------


class Matrix:
    """A tensor as rows and columns: its last axis, and all others."""

    def __init__(self, launch: Launch, name: str) -> None:
        self.name = name
        self.width, *shape = launch.tensors[name]
        strides = launch.strides.get(name) or [
            math.prod(shape[axis + 1:]) for axis in range(len(shape))]
        axes = [axis for axis, extent in enumerate(shape) if extent > 1] or [len(shape) - 1]
        self.columns = shape[axes[-1]] if len(axes) > 1 else 1
        rows = axes[:-1] if len(axes) > 1 else axes
        self.rows = math.prod(shape[axis] for axis in rows)
        self._axes = sorted(((strides[axis], math.prod(shape[other] for other in rows
                                                       if other > axis) if axis in rows else 0)
                             for axis in axes), reverse=True)
        self._step = strides[axes[-1]] if len(axes) > 1 else 0

    def place(self, element: int) -> tuple[int, int]:
        """Its row and column."""
        row = column = 0
        for stride, rows in self._axes:
            index, element = divmod(element, max(1, stride))
            row, column = (row + index * rows, column) if rows else (row, index)
        return row, column

    def rectangles(self, runs: Sequence[Range]) -> list[Rectangle]:
        spans: dict[Range, list[int]] = {}
        for begin, end in runs:
            element, last = begin // self.width, -(-end // self.width)
            while element < last:
                row, column = self.place(element)
                length = min(last - element, self.columns - column) if self._step == 1 else 1
                spans.setdefault((column, column + max(1, length)), []).append(row)
                element += max(1, length)
        found = []
        for (left, right), rows in spans.items():
            rows.sort()
            first = 0
            for at in range(1, len(rows) + 1):
                if at == len(rows) or rows[at] > rows[at - 1] + 1:
                    found.append((rows[first], rows[at - 1] + 1, left, right))
                    first = at
        if len(found) > MOST_RECTANGLES:
            top, bottom, left, right = zip(*found)
            found = [(min(top), max(bottom), min(left), max(right))]
        return found


def _drawn(value: float) -> float | None:
    """NaN and infinities are not drawn; JSON lacks them."""
    return round(float(value), 6) if math.isfinite(value) else None


def _overlap(one: Range, other: Range) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _meet(one: Rectangle, other: Rectangle) -> bool:
    return _overlap(one[:2], other[:2]) and _overlap(one[2:], other[2:])


class Story:
    """Of one launch."""

    def __init__(self, launch: Launch, events: Sequence[Event],
                 stored_by_others: Collection[str] = ()) -> None:
        self.launch, self.stored_by_others = launch, stored_by_others
        self.matrices = {name: Matrix(launch, name) for name in launch.tensors}
        self.is_cut = any(event.what == "cut" for event in events)
        self.barriers = [event for event in events if event.block == events[0].block]
        # The picture's steps are those that access memory.
        steps: dict[int, int] = {}
        self.events = []
        for event in events:
            if event.what in ("load", "store"):
                step = steps[event.block] = steps.get(event.block, -1) + 1
                self.events.append(replace(event, step=step))
        self.steps = max((event.step for event in self.events), default=0) + 1
        self.blocks = sorted({event.block for event in self.events})
        self.holds = [hold for block in self.blocks for hold in self._holds(block)]
        self.stores = [(event, self.matrices[event.object].rectangles(event.runs))
                       for event in self.events
                       if event.what == "store" and event.object in self.matrices]

    def _holds(self, block: int) -> Iterator[Hold]:
        mine: list[Hold] = []
        for event in self.events:
            if event.block != block:
                continue
            if not event.object and event.runs:
                for hold in mine:
                    if not (hold.shared and hold.end == NEVER
                            and _overlap(hold.shared, event.runs[0])):
                        continue
                    if event.what == "load":
                        hold.reads.append(event.step)
                    elif hold.reads:  # something else comes to its place
                        hold.end = event.step
            if event.what != "load" or event.object not in self.matrices:
                continue
            rectangles = self.matrices[event.object].rectangles(event.runs)
            is_small = self.launch.bytes_of(event.object) < SMALL
            times = 1 if is_small else round(event.asked / max(1, event.bytes))
            for hold in mine:
                if hold.end == NEVER and (
                        hold.reads and _overlap(hold.shared, event.to)
                        if hold.shared and event.to else
                        not hold.shared and hold.line == event.line):
                    hold.end = event.step
                if not is_small and hold.tensor == event.object and any(
                        _meet(one, other) for one in hold.rectangles for other in rectangles):
                    times += hold.times
            mine.append(Hold(event.object, block, rectangles, event.step, event.line, event.to,
                             times))
        yield from mine

    def figures(self) -> dict[str, tuple[str, str]]:
        """What two kernels for the same problem are compared by: a number, and what it means."""
        loads = []
        for name in self.matrices:
            if asked := sum(event.asked for event in self.events
                            if (event.what, event.object) == ("load", name)):
                times = asked / self.launch.bytes_of(name)
                loads.append(f"{name} " + ("once" if times == 1 else f"{times:.3g} times"))
        tiles = [f"{name}: {most}" for name in ("k", "v") if name in self.matrices
                 and (most := self.most_tiles(name))]
        return {
            "loads, by all blocks together": (
                ", ".join(loads), "The more rows of the output a block has, the fewer blocks load "
                "the same tile."),
            "tiles in shared memory at once": (
                ", ".join(tiles), "With two, the next one is on its way while the block computes "
                "with this one. With one, the block loads, waits, and only then computes.")}

    def parts(self) -> dict[str, float]:
        """In which multiple of the arithmetic's time an H100 would do the rest of a long loop, by
        formula; {} for a kernel with tensor cores."""
        lines, flops = self.launch.lines, self.launch.flops
        loaded = sum(event.asked for event in self.events if event.what == "load" and event.object)
        wavefronts = sum(line.wavefronts for line in lines)
        if not flops or not loaded or any("mma" in line.what for line in lines):
            return {}
        return {"arithmetic": 1.0, "shared memory": AT_ONCE * wavefronts / flops,
                "loads": RIDGE * loaded / flops}

    @property
    def waits_at(self) -> str:
        """The lines that load tiles of which only one is there at a time; "" where there are two."""
        names = [name for name in ("k", "v") if self.most_tiles(name)]
        if any(self.most_tiles(name) > 1 for name in names):
            return ""
        return ", ".join(dict.fromkeys(hold.line for hold in self.holds if hold.tensor in names))

    def most_tiles(self, tensor: str) -> int:
        """That a block has in shared memory at once."""
        mine = [hold for hold in self.holds if hold.tensor == tensor and hold.shared]
        return max((len({other.shared for other in mine if other.block == hold.block
                         and other.begin <= hold.begin < other.end}) for hold in mine), default=0)

    @property
    def outputs(self) -> list[str]:
        """That this kernel has to write, as no other one of the problem does."""
        names = ("d_q", "d_k", "d_v") if self.is_backward else ("out", "lse")
        return [name for name in names if name in self.matrices and
                name not in self.stored_by_others]

    @property
    def is_backward(self) -> bool:
        return "d_out" in self.matrices

    def never_written(self, name: str) -> list[Range]:
        """Rows of which an element is never stored, from first to end."""
        matrix = self.matrices[name]
        written = [0] * matrix.rows
        for event, rectangles in self.stores:
            if event.object == name:
                for top, bottom, left, right in rectangles:
                    for row in range(top, min(bottom, matrix.rows)):
                        written[row] += right - left
        missing = [row for row in range(matrix.rows) if written[row] < matrix.columns]
        found: list[Range] = []
        for row in missing:
            if found and found[-1][1] == row:
                found[-1] = found[-1][0], row + 1
            else:
                found.append((row, row + 1))
        return found

    # ---- scores ---------------------------------------------------------------------------------

    def scores(self) -> Iterator[tuple[int, Rectangle, int, int]]:
        """Block, queries and keys, first step, end: which scores a block can compute then."""
        if "x" in self.matrices and "v" in self.matrices:
            for hold in self.holds:
                if hold.tensor == "x":
                    for rectangle in hold.rectangles:
                        yield hold.block, rectangle, hold.begin, hold.end
            return
        if not {"q", "k"} <= self.matrices.keys() or self.launch.is_paged:
            return
        queries, keys = (self.launch.tensors[name][3] for name in "qk")
        for block in self.blocks:
            q, k = ([hold for hold in self.holds if hold.block == block and hold.tensor == name]
                    for name in "qk")
            for one in q:
                for other in k:
                    begin, end = max(one.begin, other.begin), min(one.end, other.end)
                    if begin >= end:
                        continue
                    # Tiles that lie side by side in a head are one tile of scores.
                    for rows in {rectangle[:2] for rectangle in one.rectangles}:
                        for columns in {rectangle[:2] for rectangle in other.rectangles}:
                            if rows[0] // queries == columns[0] // keys:
                                head = columns[0] // keys * keys
                                yield (block, (*rows, columns[0] - head, columns[1] - head),
                                       begin, end)

    def softmax(self, folder: Path, wanted: Iterable[int]) -> Iterator[dict]:
        """For each of these rows and each step with new scores of it: the maximum, the sum and the
        output, computed here from the inputs that its block has loaded by then."""
        import numpy as np

        names = ("x", "v") if "x" in self.matrices else ("q", "k", "v")
        arrays = {name: self._array(folder, name) for name in names if name in self.matrices}
        if len(arrays) < len(names) or any(array is None for array in arrays.values()):
            return
        seen_by: dict[int, list] = {}
        for block, rectangle, begin, _ in sorted(self.scores(), key=lambda one: one[2]):
            seen_by.setdefault(block, []).append((rectangle, begin))
        keys = self.launch.tensors["v"][2 if "x" in arrays else 3]
        queries = self.matrices["x"].rows if "x" in arrays else self.launch.tensors["q"][3]
        for row in wanted:
            if "x" in arrays:
                scores = arrays["x"][row].astype(float)
                first = row // self.launch.tensors["x"][2] * keys
            else:
                first = row // queries * keys
                query = arrays["q"][row].astype(float)
                scores = arrays["k"][first:first + keys].astype(float) @ query / len(query)**0.5
            values = arrays["v"][first:first + keys, :COLUMNS].astype(float)
            visible = np.arange(keys) <= (row % queries if self.launch.causal else keys)
            for block, parts in seen_by.items():
                steps = sorted({begin for (top, bottom, *_), begin in parts if top <= row < bottom})
                for step in steps:
                    have = np.zeros(keys, bool)
                    for (top, bottom, left, right), begin in parts:
                        if begin <= step and top <= row < bottom:
                            have[left:right] = True
                    have &= visible
                    if not have.any():
                        continue
                    maximum = scores[have].max()
                    weights = np.exp(scores[have] - maximum)
                    yield {"row": row, "block": block, "step": step,
                           "max": _drawn(maximum), "sum": _drawn(weights.sum()),
                           "out": [*map(_drawn, weights @ values[have] / weights.sum())]}

    def stored(self, folder: Path, wanted: Iterable[int]) -> Iterator[dict]:
        """What the kernel left of these rows of `out`."""
        array = self._array(folder, "out") if "out" in self.matrices else None
        for row in wanted if array is not None else ():
            steps = [event.step for event, rectangles in self.stores if event.object == "out"
                     and any(top <= row < bottom for top, bottom, *_ in rectangles)]
            if steps:
                yield {"row": row, "step": min(steps), "out": [*map(_drawn, array[row, :COLUMNS])]}

    def _array(self, folder: Path, name: str):
        """A tensor of float32 as a matrix; None where it is another type."""
        import numpy as np

        matrix, file = self.matrices[name], folder / f"{self._number}.{name}"
        if matrix.width != 4 or not file.is_file():
            return None
        flat = np.fromfile(file, np.float32)
        array = np.empty((matrix.rows, matrix.columns), np.float32)
        _, *shape = self.launch.tensors[name]
        strides = self.launch.strides.get(name)
        if strides is None:
            return None
        view = np.lib.stride_tricks.as_strided(flat, shape, [4 * stride for stride in strides])
        array[:] = view.reshape(matrix.rows, matrix.columns)
        return array

    @property
    def _number(self) -> int:
        return self.events[0].launch if self.events else 0

    # ---- in words -------------------------------------------------------------------------------

    def remarks(self) -> Iterator[str]:
        """What the picture shows that should not be."""
        for name in self.outputs:
            for first, end in self.never_written(name)[:3]:
                rows = f"row {first}" if end == first + 1 else f"rows {first} to {end - 1}"
                yield f"{rows} of {name}: not every element is ever written."
        seen = set()
        for hold in self.holds:
            if hold.times > 1 and (hold.tensor, hold.line) not in seen:
                seen.add((hold.tensor, hold.line))
                top, bottom, left, right = hold.rectangles[0]
                yield (f"{hold.line}: block {hold.block} loads rows {top} to {bottom - 1}, columns "
                       f"{left} to {right - 1} of {hold.tensor} {hold.times} times.")
        if self.is_cut:
            yield "The kernel does more than is drawn: its later events are left out."


def stories(launches: Sequence[Launch], folder: Path) -> list[Story]:
    of: dict[int, list[Event]] = {}
    for event in load(folder):
        of.setdefault(event.launch, []).append(event)
    together = list(zip(launches, of.values(), strict=False))
    return [Story(launch, events, {
        event.object for other, its in together for event in its if other is not launch
        and other.tensors == launch.tensors and event.what == "store"} - {
        event.object for event in events if event.what == "store"})
        for launch, events in together]


# ---- Hopper's barriers --------------------------------------------------------------------------

COPY = 3  # what a TMA copy takes in the picture, in operations of a warpgroup; a GPU's is not known
_SHOWN = {"arrive": "arrive", "copy": "issue copy", "wgmma": "wgmma",
          "wgmma done": "wait for wgmma"}


def pipeline(events: Sequence[Event]) -> list[dict]:
    """Bars of one block: each operation of a warpgroup takes one unit of time, and a wait ends with
    the phase of its barrier. Empty for a kernel without such barriers."""
    tensors = {event.place: event.object for event in events
               if event.what == "load" and event.object}
    names: dict[str, str] = {}  # of the barriers
    now: dict[str, int] = {}    # of a lane
    ends: dict[tuple[str, int], int] = {}                # of the phases of barriers
    copies: dict[tuple[str, int], tuple[int, str]] = {}  # the last one of a phase
    bars: list[dict] = []

    def bar(lane: str, what: str, begin: int, end: int, event: Event, tensor: str = "") -> None:
        bars.append({"lane": lane, "what": what, "f": begin, "u": end, "line": event.line,
                     "barrier": names.get(event.object, ""), "phase": event.number,
                     "tensor": tensor, "block": event.block})

    done = set()
    for event in events:
        if event.what not in ("go on", "landed", *_SHOWN):
            continue
        lane = f"warps {event.warps[0] // 4 * 4} to {event.warps[0] // 4 * 4 + 3}"
        phase = event.object, event.number
        if (event.what, lane, *phase) in done:  # by another warp of the warpgroup
            continue
        done.add((event.what, lane, *phase))
        time = now.get(lane, 0)
        if not event.what.startswith("wgmma"):
            names.setdefault(event.object, f"barrier {len(names)}")
        if event.what == "landed":
            begin, tensor = copies.get(phase, (0, ""))
            ends[phase] = max(ends.get(phase, 0), begin + COPY)
            bar("TMA", "copy", begin, begin + COPY, event, tensor)
        elif event.what == "go on":
            now[lane] = max(time, ends.get((event.object, event.number - 1), 0))
            if now[lane] > time:
                bar(lane, "wait", time, now[lane], event)
        else:
            now[lane] = time + 1
            if event.what == "arrive":
                ends[phase] = max(ends.get(phase, 0), time + 1)
            if event.what == "copy":
                copies[phase] = time + 1, tensors.get(event.place, "")
            bar(lane, _SHOWN[event.what], time, time + 1, event)
    return bars


def compared(stories: dict[str, Story]) -> tuple[str, list[list[str]]]:
    """Where the time of two kernels for one problem goes: a sentence, and for each kernel its name,
    multiply-adds, loads, shared memory and total; none for a kernel with tensor cores."""
    rows, totals = [], []
    for name, story in stories.items():
        if not (parts := story.parts()):
            return "", []
        longest = max(parts["arithmetic"], parts["shared memory"])
        waits = story.waits_at
        total = longest + parts["loads"] if waits else max(longest, parts["loads"])
        reads = sorted((line for line in story.launch.lines if line.is_shared and
                        line.what == "load"), key=lambda line: -line.wavefronts)[:2]
        at = ", ".join(dict.fromkeys(line.place.rpartition("/")[2] for line in reads))
        rows.append([
            name, "1", f"{'+ ' * bool(waits)}{parts['loads']:.2g}, "
            + (f"the block waits: {waits}" if waits else "hidden: the next tile is on its way"),
            f"{parts['shared memory']:.2g}, "
            + ("hidden" if parts["shared memory"] <= 1 else "the limit") + f": {at}",
            f"{total:.2f}"])
        totals.append(total)
    one, other = stories
    return (f"By formula, {one} takes at most {totals[0] / totals[1]:.2g} times as long as {other} "
            "on an H100, in a long loop over keys.", rows)
