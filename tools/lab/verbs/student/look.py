"""`./lab look`: a page that shows a kernel run: its tiles over time, and which lanes of a warp touch
which banks and sectors."""

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import jinja2

from lab import bootstrap, build, counts, disk, paths, picture, running, timeline
from lab.backends import CHECKED
from lab.console import say
from lab.errors import LabError
from lab.manifest import Task
from lab.outcomes import PASSED, CaseResult

HELP = "write a page that shows your kernel run: tiles over time, lanes, banks and sectors"

# Draws the picture. The package brings 84 MB, of which 0.9 MB of JavaScript are kept.
LIBRARY = "vl-convert-python==1.9.0.post1"
WITH_RUNGS = ("part1", "part3")  # whose tasks run in the problem of a rung, too
MOST = 700_000  # characters of a picture; a larger one is left out

WORD, BANKS, SECTOR_WORDS = 4, 32, 8  # bytes; of shared memory; of a sector


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TASK", help="a CUDA task")
    parser.add_argument("--solution", action="store_true",
                        help="show the reference solution instead of what you wrote")
    parser.add_argument("--rung", metavar="NAME",
                        help="beside your kernel show this one of the part's ladder, as "
                             "3_sgemm, in the same problem")
    parser.add_argument("--case", metavar="NAME",
                        help="show this graded case's problem; where it fails, the page opens at "
                             "the first wrong element")


def run(args: argparse.Namespace) -> int:
    implementation = "solution" if args.solution else "skeleton"
    folder = paths.OUTPUTS / "look"
    disk.check_writable(folder)
    for task in counts.tasks(args.name, implementation, build.configured()):
        problems, pictures = {}, []
        if args.rung:
            show_rung(task, implementation, args.rung, folder)
            continue
        for case in counts.cases(task, args.case):
            with tempfile.TemporaryDirectory(prefix="flash-look-") as events:
                result, problems[case] = counts.run(task, case, implementation, Path(events))
                pictures += _pictures(result, problems[case], Path(events))
        file = folder / f"{task.name}.html"
        file.write_text(page(task.name, problems, pictures, _library()), encoding="utf-8")
        say(f"open {paths.relative(file)} in a browser")
    return 0


def show_rung(task: Task, implementation: str, rung: str, folder: Path) -> None:
    """A page of the rung, and of the task's kernel in the same problem."""
    problems, pictures, beside, told = {}, [], {}, {}
    library = running.library(task, implementation, CHECKED)
    for name, of in ((task.name, library), (rung, None)):
        if of is not None and task.part not in WITH_RUNGS:
            continue
        with tempfile.TemporaryDirectory(prefix="flash-look-") as events:
            try:
                launches = counts.run_rung(task.part, rung, Path(events), of)
            except LabError as error:
                if of is None:
                    raise
                say(f"{name} is left out: {error}", "yellow")
                continue
            result = CaseResult(name, PASSED)
            problems[name], beside[name] = launches, counts.figures(launches)
            for story in timeline.stories(launches, Path(events))[:1]:
                beside[name] |= story.figures()
                told[name] = story
            pictures += _pictures(result, launches, Path(events))
    file = folder / f"{task.name}_{rung}.html"
    reasons = timeline.compared(told) if len(told) == 2 else ("", [])
    waits = {line for story in told.values() for line in story.waits_at.split(", ") if line}
    file.write_text(page(f"{task.name} and {rung}", problems, pictures, _library(), beside,
                         reasons, waits), encoding="utf-8")
    say(f"open {paths.relative(file)} in a browser")


def _library() -> str:
    """The JavaScript of Vega-Lite; "" where it cannot be had."""
    file = paths.STATE / "vega.js"
    if not file.is_file():
        say("fetching Vega-Lite, which draws the tiles: 30 MB, once")
        try:
            with tempfile.TemporaryDirectory(prefix="flash-vega-") as folder:
                pins = Path(folder) / "pins.txt"
                pins.write_text(f"{LIBRARY}\n")
                bootstrap.install(Path(folder) / "venv", pins)
                bundled = subprocess.run(
                    [Path(folder) / "venv/bin/python", "-c",
                     "import vl_convert; print(vl_convert.javascript_bundle())"],
                    capture_output=True, text=True, check=True)
                file.write_text(bundled.stdout, encoding="utf-8")
        except (LabError, OSError, subprocess.CalledProcessError) as error:
            say(f"the page is without tiles over time: {error}", "yellow")
            return ""
    return file.read_text(encoding="utf-8")


def _pictures(result: CaseResult, launches: Sequence[counts.Launch],
              events: Path) -> Iterator[dict[str, object]]:
    # A case that fails is run on other problems, too, to give the mistake a name.
    mine = [launch for launch in launches if launch.tensors == launches[0].tensors]
    for launch, story in zip(mine, timeline.stories(mine, events), strict=False):
        row = _wrong_row(result.message, launch) if result.status != PASSED else None
        wrong = result.message.partition("\n")[2] if row is not None else ""
        spec = json.dumps(picture.spec(story, events, row), separators=(",", ":"),
                          allow_nan=False)
        if story.events and len(spec) <= MOST:
            sizes = ", ".join(f"{name} {matrix.rows} x {matrix.columns}"
                              for name, matrix in story.matrices.items())
            yield {"title": f"{result.name}: kernel {launch.kernel}, {launch.blocks} "
                            f"block{'s' * (launch.blocks > 1)} of "
                            f"{launch.threads} threads ({sizes})", "wrong": wrong,
                   "remarks": list(story.remarks()), "spec": spec}


def _wrong_row(message: str, launch: counts.Launch) -> int | None:
    """The first wrong row among those of all batches and heads, as the verdict names it."""
    found = re.search(r"^first at (.*)", message, re.MULTILINE)
    if found is None:
        return None
    place = {name: int(n) for name, n in re.findall(r"(batch|head|row|query|key) (\d+)", found[1])}
    row = next((place[name] for name in ("row", "query", "key") if name in place), None)
    of = launch.tensors.get("q") or launch.tensors.get("x")
    if row is None or of is None:
        return None
    heads, rows = (of[2], of[3]) if "q" in launch.tensors else (1, of[2])
    return (place.get("batch", 0) * heads + place.get("head", 0)) * rows + row


def figure(task: Task, number: int, code: str) -> str:
    """A page with nothing but the lanes on the line of this code, or without code the tiles, in the
    task's counted case of this number."""
    case = counts.cases(task, None)[number]
    with tempfile.TemporaryDirectory(prefix="flash-look-") as events:
        result, launches = counts.run(task, case, "solution", Path(events))
        pictures = [] if code else list(_pictures(result, launches, Path(events)))
    for shown in pictures:  # at their end
        spec = json.loads(shown["spec"])
        spec["params"][0]["value"] = spec["params"][0]["bind"]["max"] - 1
        for param in spec["params"]:
            del param["bind"]
        spec["vconcat"] = spec["vconcat"][:2]  # without a row's softmax
        shown["spec"] = json.dumps(spec)
    lines = [line for launch in launches for line in launch.lines
             if code and line.is_access and code in _code(line.place)]
    for launch in launches:
        launch.lines = [line for line in lines if counts.advice(line)] or lines[:1]
    return page("", {"": launches[:1]}, pictures, _library())


def page(task: str, problems: Mapping[str, Sequence[counts.Launch]],
         pictures: Sequence[Mapping[str, object]] = (), library: str = "",
         beside: Mapping[str, Mapping[str, tuple[str, str]]] | None = None,
         reasons: tuple[str, list[list[str]]] = ("", []),
         opened: Collection[str] = ()) -> str:
    """Of the launches of each graded case; `beside` has figures of kernels, by their name."""
    rows = dict.fromkeys(row for figures in (beside or {}).values() for row in figures)
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(counts.__file__).parent / "templates"), autoescape=True,
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    return templates.get_template("look.html").render(
        task=task, pictures=pictures if library else (), library=library,
        reasons=reasons, opened=opened, kernels=list(beside or ()), beside=[
            (row, [figures.get(row, ("",))[0] for figures in beside.values()],
             next(figures[row][1] for figures in beside.values() if row in figures))
            for row in rows], problems={
            case: list(_accesses(launches)) for case, launches in problems.items()})


def _accesses(launches: Sequence[counts.Launch]) -> Iterator[dict[str, object]]:
    elements = {name: shape[0] for launch in launches for name, shape in launch.tensors.items()}
    for line in counts.by_line(launches):
        if line.is_access:
            yield _access(line, elements)


def _access(line: counts.Line, elements: Mapping[str, int]) -> dict[str, object]:
    return {"place": line.place.rpartition("/")[2], "code": _code(line.place),
            "what": f"{line.width} bytes a lane, {line.what} {line.tensor}",
            "cost": (f"{line.each:.3g} {'wavefront' if line.is_shared else 'sector'}"
                     f"{'s' * (line.each > 1)} a request, "
                     f"{(line.least or line.least_sectors) / max(1, line.requests):.3g} needed"),
            "advice": counts.advice(line), "banks": list(_banks(line)),
            "sectors": list(_sectors(line, elements.get(line.tensor, line.width)))}


def _code(place: str) -> str:
    file, _, number = place.rpartition(":")
    try:
        lines = (paths.ROOT / file).read_text(encoding="utf-8").splitlines()[int(number) - 1:]
        goes_on = lines[0].endswith(("=", ",", "("))
        return " ".join(line.strip() for line in lines[:1 + goes_on])
    except (OSError, ValueError, IndexError):
        return ""


def _words(line: counts.Line, lanes: range) -> dict[int, list[int]]:
    """The lanes that touch each word."""
    found: dict[int, list[int]] = {}
    for lane in lanes:
        if (begin := line.offsets[lane]) is not None:
            for word in range(begin // WORD, (begin + line.width - 1) // WORD + 1):
                found.setdefault(word, []).append(lane)
    return dict(sorted(found.items()))


def _named(lanes: Sequence[int]) -> str:
    """"0", "0, 4" or "0-7"."""
    if len(lanes) > 2 and lanes[-1] - lanes[0] == len(lanes) - 1:
        return f"{lanes[0]}-{lanes[-1]}"
    return ", ".join(map(str, lanes))


def _banks(line: counts.Line) -> Iterator[dict]:
    """Of shared memory: of all lanes, or of the halves or quarters that 8 and 16 bytes take."""
    part = 32 if line.width <= 4 else 16 if line.width <= 8 else 8
    for first in range(0, 32 if line.is_shared else 0, part):
        rows: list[list[str]] = []
        for word, lanes in _words(line, range(first, first + part)).items():
            row = next((row for row in rows if not row[word % BANKS]), None)
            if row is None:
                rows.append(row := [""] * BANKS)
            row[word % BANKS] = _named(lanes)
        if rows:
            yield {"lanes": f"lanes {first} to {first + part - 1}", "wavefronts": rows}


def _sectors(line: counts.Line, element: int) -> Iterator[dict]:
    """Of device memory."""
    words = {} if line.is_shared else _words(line, range(32))
    for sector in dict.fromkeys(word // SECTOR_WORDS for word in words):
        begin = sector * SECTOR_WORDS
        yield {"name": f"element {(begin * WORD - line.first) // element}",
               "words": [_named(words.get(begin + n, ())) for n in range(SECTOR_WORDS)]}
