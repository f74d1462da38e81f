"""The picture over time of `./lab look`: a specification for Vega-Lite, which draws it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.timeline import NEVER, ROWS, Story, pipeline

# Okabe and Ito's; the page says the same in words or by a border.
SHARED, REGISTERS, WRITTEN, EARLIER, WRONG = "#e69f00", "#56b4e9", "#009e73", "#dde3e9", "#d55e00"
OF_TENSORS = ("#0072b2", "#cc79a7", "#009e73", "#f0e442", "#56b4e9", "#d55e00", "#e69f00", "#000000")
MOST_BLOCKS = 64  # that have a row of the plan
PANEL = 125  # pixels: two of them fit on a phone, six on a desktop


def spec(story: Story, folder: Path, row: int | None) -> dict:
    """`row` is the one that it opens with."""
    rows = _rows(story, row)
    row = rows[0] if row is None and rows else row
    block, step = _start(story, row)
    params = [
        {"name": "step", "value": step,
         "bind": {"input": "range", "min": 0, "max": story.steps, "step": 1, "name": "step"}},
        {"name": "block", "value": block,
         "bind": {"input": "select", "options": [-1, *story.blocks], "name": "thread block",
                  "labels": ["all", *map(str, story.blocks)]}}]
    panels = [_tensor(story, name) for name in story.matrices if _is_touched(story, name)]
    if scores := list(story.scores()):
        panels.append(_scores(story, scores))
    charts = [_plan(story), {"concat": panels, "columns": 4}]
    if bars := pipeline(story.barriers):
        charts.insert(1, _pipeline(bars))
    if softmax := list(story.softmax(folder, rows)):
        params.append({"name": "row", "value": row, "bind": {
            "input": "select", "options": rows, "name": "row"}})
        charts.append({"concat": list(_row(story, softmax, list(story.stored(folder, rows)))),
                       "columns": 4})
    return {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", "params": params,
            "vconcat": charts, "resolve": {"scale": {"color": "independent"}}, "config": {
                "view": {"stroke": "#aab4c0"}, "axis": {"grid": False, "tickMinStep": 1},
                "legend": {"orient": "top", "columns": 4}, "title": {"anchor": "start", "fontSize": 12}}}


def _rows(story: Story, wanted: int | None) -> list[int]:
    """That can be chosen: at even distances, the first and the last, and the one that is wanted."""
    matrix = story.matrices.get("out")
    if matrix is None or story.is_backward:
        return []
    count = min(matrix.rows, ROWS)
    rows = {round(n * (matrix.rows - 1) / max(1, count - 1)) for n in range(count)}
    return sorted(rows | ({wanted} if wanted is not None and wanted < matrix.rows else set()))


def _start(story: Story, row: int | None) -> tuple[int, int]:
    """The block that writes the row, or that has loaded its query, in its middle."""
    touched = [(event.block, rectangles) for event, rectangles in story.stores
               if event.object == "out"]
    touched += [(hold.block, hold.rectangles) for hold in story.holds if hold.tensor in ("q", "x")]
    block = next((block for block, rectangles in touched if any(
        row is not None and top <= row < bottom for top, bottom, *_ in rectangles)),
        story.blocks[0] if story.blocks else 0)
    last = max((event.step for event in story.events if event.block == block), default=0)
    return block, last // 2


def _is_touched(story: Story, name: str) -> bool:
    return any(event.object == name for event in story.events)


def _what(event) -> str:
    if event.what == "load":
        return f"load {event.object}" if event.object else "read shared memory"
    return f"store {event.object}" if event.object else "write shared memory"


def _plan(story: Story) -> dict:
    """Blocks from top to bottom, their steps from left to right."""
    rows = [{"b": event.block, "f": event.step, "u": event.step + 1, "what": _what(event),
             "line": event.line, "warps": len(event.warps)}
            for event in story.events if event.block < MOST_BLOCKS]
    names = list(dict.fromkeys(row["what"] for row in rows))
    memory = {"read shared memory": "#dde3e9", "write shared memory": "#5b6776"}
    colours = iter(OF_TENSORS * len(names))
    return {"title": {"text": "Steps of each thread block", "offset": 22},
            "width": 900, "height": {"step": 18}, "data": {"values": rows}, "layer": [
                {"mark": {"type": "bar", "stroke": "white", "strokeWidth": .5}, "encoding": {
                    "x": {"field": "f", "type": "quantitative", "title": "step",
                          "scale": {"domain": [0, story.steps], "nice": False}},
                    "x2": {"field": "u"},
                    "y": {"field": "b", "type": "ordinal", "title": "thread block"},
                    "color": {"field": "what", "type": "nominal", "title": None,
                              "scale": {"domain": names, "range": [
                                  memory.get(name) or next(colours) for name in names]}},
                    "opacity": {"condition": {"test": "block < 0 || datum.b == block", "value": 1},
                                "value": .45},
                    "tooltip": [{"field": field} for field in ("what", "line", "warps")]}},
                {"data": {"values": [{}]},
                 "mark": {"type": "rule", "strokeWidth": 2},
                 "encoding": {"x": {"datum": {"expr": "step + 0.5"}, "type": "quantitative"}}},
                {"transform": [
                    {"filter": "datum.f == step && datum.b == block"},
                    {"calculate": "'now: ' + datum.what + ' (' + datum.line + ')'", "as": "now"}],
                 "mark": {"type": "text", "align": "left", "fontSize": 12},
                 "encoding": {"text": {"field": "now"}, "x": {"value": 0}, "y": {"value": -10}}}]}


def _pipeline(bars: Sequence[dict]) -> dict:
    names = {"copy": SHARED, "issue copy": WRITTEN, "arrive": REGISTERS, "wait": EARLIER,
             "wgmma": "#0072b2", "wait for wgmma": "#8794a1"}
    lanes = sorted({bar["lane"] for bar in bars}, key=lambda lane: (
        lane == "TMA", int(lane.split()[1]) if lane != "TMA" else 0))
    position = {"y": {"field": "lane", "type": "ordinal", "sort": lanes, "title": None},
                "x": {"field": "f", "type": "quantitative",
                      "title": "operations, when each takes one unit and a copy three"},
                "x2": {"field": "u"}}
    return {"title": f"Producer, consumers and copies of block {bars[0]['block']}: who waits for whom",
            "width": 900, "height": {"step": 26}, "data": {"values": list(bars)}, "layer": [
                {"mark": {"type": "bar", "stroke": "white", "strokeWidth": .5}, "encoding": {
                    **position, "color": {
                        "field": "what", "type": "nominal", "title": None,
                        "scale": {"domain": list(names), "range": list(names.values())}},
                    "tooltip": [{"field": field} for field in (
                        "what", "line", "barrier", "phase", "tensor")]}},
                {"transform": [{"filter": "datum.tensor != ''"}],
                 "mark": {"type": "text", "align": "left", "dx": 2, "fontSize": 9},
                 "encoding": {"y": position["y"], "x": position["x"],
                              "text": {"field": "tensor"}}}]}


def _box(**encoding: object) -> dict:
    """Data have a rectangle's top, end, left and right."""
    return {"y": {"field": "t", "type": "quantitative"}, "y2": {"field": "e"},
            "x": {"field": "l", "type": "quantitative"}, "x2": {"field": "r"}, **encoding}


def _rectangle(rectangle: Sequence[int]) -> dict[str, int]:
    return dict(zip("telr", rectangle, strict=True))


def _panel(title: str, rows: int, columns: int, layers: list[dict], **more: object) -> dict:
    """A matrix, its first row on top."""
    frame = {"mark": {"type": "rect", "opacity": 0},
             "data": {"values": [_rectangle((0, rows, 0, columns))]}, "encoding": _box()}
    for axis, domain in (("y", [rows, 0]), ("x", [0, columns])):
        frame["encoding"][axis] |= {"scale": {"domain": domain, "nice": False, "zero": False}}
    for layer in (frame, *layers):
        for axis in "xy":
            layer["encoding"][axis] |= {"title": None}
    return {"title": title, "width": PANEL if columns > 1 else PANEL // 8, "height": PANEL,
            "layer": [frame, *layers], **more}


def _fill(when: str, **mark: object) -> dict:
    return {"transform": [{"filter": when}], "mark": {"type": "rect", **mark},
            "encoding": _box(tooltip=[{"field": field} for field in ("line", "block", "where")])}


def _tensor(story: Story, name: str) -> dict:
    matrix = story.matrices[name]
    mine = "(block < 0 || datum.block == block)"
    now = f"{mine} && datum.begin <= step && step < datum.end"
    rows = [{**_rectangle(rectangle), "block": hold.block, "begin": hold.begin,
             "end": min(hold.end, NEVER), "line": hold.line, "times": hold.times,
             "reads": hold.reads, "kind": "load",
             "where": "shared memory" if hold.shared else "registers"}
            for hold in story.holds if hold.tensor == name for rectangle in hold.rectangles]
    rows += [{**_rectangle(rectangle), "block": event.block, "begin": event.step, "kind": "store",
              "line": event.line, "where": "written"}
             for event, rectangles in story.stores if event.object == name
             for rectangle in rectangles]
    layers = [_fill("datum.kind == 'load' && datum.begin <= step", color=EARLIER)]
    is_thin = any(PANEL * (row["e"] - row["t"]) < 4 * matrix.rows for row in rows)
    for where, colour in (("shared memory", SHARED), ("registers", REGISTERS)):
        layers.append(_fill(f"datum.where == '{where}' && {now}", color=colour,
                            **{} if is_thin else {"stroke": "white"}))
    layers += [
        _fill(f"datum.kind == 'load' && {now} && indexof(datum.reads, step) >= 0",
              filled=False, stroke="black", strokeWidth=3),
        _fill(f"datum.kind == 'load' && {now} && datum.times > 1", filled=False, stroke=WRONG,
              strokeWidth=4, strokeDash=[6, 3]),
        _fill("datum.kind == 'store' && datum.begin <= step", color=WRITTEN)]
    if name in story.outputs and (missing := story.never_written(name)):
        layers.append({"data": {"values": [_rectangle((*rows_, 0, matrix.columns))
                                           for rows_ in missing]},
                       "mark": {"type": "rect", "filled": False, "stroke": WRONG,
                                "strokeWidth": 3, "strokeDash": [4, 4]}, "encoding": _box()})
    size = f"{matrix.rows}" + (f" x {matrix.columns}" if matrix.columns > 1 else "")
    return _panel(f"{name} ({size})", matrix.rows, matrix.columns, layers, data={"values": rows})


def _scores(story: Story, scores: Sequence[tuple]) -> dict:
    """Of all blocks, those that the chosen one has now with a border."""
    queries = max(rectangle[1] for _, rectangle, *_ in scores)
    keys = max(rectangle[3] for _, rectangle, *_ in scores)
    rows = [{**_rectangle(rectangle), "block": block, "begin": begin, "end": end}
            for block, rectangle, begin, end in scores]
    now = "datum.begin <= step && step < datum.end && (block < 0 || datum.block == block)"
    of = story.launch.tensors
    whole = story.matrices["x" if "x" in story.matrices else "q"].rows
    layers = [_fill("datum.begin <= step", color="#f7d9a8", stroke="white"),
              _fill(now, color=SHARED, stroke="black", strokeWidth=2)]
    if story.launch.causal and queries <= of["q"][3]:
        end = min(of["q"][3], keys)
        layers.append({"data": {"values": [{"l": 0, "t": 0}, {"l": end, "t": end}]},
                       "mark": {"type": "line", "color": "black", "strokeDash": [3, 3]},
                       "encoding": {"x": {"field": "l", "type": "quantitative"},
                                    "y": {"field": "t", "type": "quantitative"}}})
    return _panel("S (queries x keys)", whole,
                  max(keys, of["k"][3] if "k" in of else 0), layers, data={"values": rows})


def _row(story: Story, softmax: Sequence[dict], stored: Sequence[dict]) -> Iterator[dict]:
    until = "datum.row == row && datum.step <= step"
    step = {"field": "step", "type": "quantitative", "title": "step",
            "scale": {"domain": [0, story.steps]}}
    for field, title in (("max", "running maximum"), ("sum", "running sum")):
        yield {"title": title, "width": PANEL, "height": PANEL, "data": {"values": [
            {name: one[name] for name in ("row", "step", field)} for one in softmax]},
            "transform": [{"filter": until}],
            "mark": {"type": "line", "interpolate": "step-after", "point": True},
            "encoding": {"x": step, "y": {"field": field, "type": "quantitative", "title": None,
                                          "scale": {"zero": field != "max"}}}}
    values = [{"row": one["row"], "step": one["step"], "column": column, "value": value,
               "who": who}
              for who, all_ in (("loaded", softmax), ("stored", stored)) for one in all_
              for column, value in enumerate(one["out"])]
    column = {"field": "column", "type": "ordinal", "title": "column",
              "axis": {"labelAngle": 0, "labelOverlap": True}}
    value = {"field": "value", "type": "quantitative", "title": None}
    newest = [{"filter": until}, {"joinaggregate": [
        {"op": "max", "field": "step", "as": "newest"}], "groupby": ["who", "column"]},
        {"filter": "datum.step == datum.newest"}]
    yield {"title": "output (stored: line)", "width": PANEL,
           "height": PANEL, "data": {"values": values}, "transform": newest, "layer": [
               {"transform": [{"filter": "datum.who == 'loaded'"}],
                "mark": {"type": "bar", "color": REGISTERS}, "encoding": {"x": column, "y": value}},
               {"transform": [{"filter": "datum.who == 'stored'"}],
                "mark": {"type": "tick", "color": "black", "thickness": 2},
                "encoding": {"x": column, "y": value}}]}
