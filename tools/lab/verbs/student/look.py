"""`./lab look`: a page that shows which lanes of a warp touch which banks and sectors."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import jinja2

from lab import build, counts, derive, paths
from lab.console import say

HELP = "write a page that shows which lanes of your kernel touch which banks and sectors"

WORD, BANKS, SECTOR_WORDS = 4, 32, 8  # bytes; of shared memory; of a sector


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TASK", help="a CUDA task")
    parser.add_argument("--solution", action="store_true",
                        help="show the reference solution instead of what you wrote")
    parser.add_argument("--test", metavar="NAME", help="show this graded case's problem")


def run(args: argparse.Namespace) -> int:
    implementation = "solution" if args.solution else "skeleton"
    folder = paths.OUTPUTS / "look"
    derive.check_writable(folder)
    for task in counts.tasks(args.name, implementation, build.configured()):
        problems = {case: counts.run(task, case, implementation)[1]
                    for case in counts.cases(task, args.test)}
        file = folder / f"{task.name}.html"
        file.write_text(page(task.name, problems), encoding="utf-8")
        say(f"open {paths.relative(file)} in a browser")
    return 0


def page(task: str, problems: Mapping[str, Sequence[counts.Launch]]) -> str:
    """Of the launches of each graded case."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(counts.__file__).parent / "templates"), autoescape=True,
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    return templates.get_template("look.html").render(task=task, problems={
        case: list(_accesses(launches)) for case, launches in problems.items()})


def _accesses(launches: Sequence[counts.Launch]) -> Iterator[dict[str, object]]:
    elements = {name: shape[0] for launch in launches for name, shape in launch.tensors.items()}
    for line in counts.by_line(launches):
        if line.is_access:
            yield _access(line, elements)


def _access(line: counts.Line, elements: Mapping[str, int]) -> dict[str, object]:
    return {"place": line.place.rpartition("/")[2], "code": _code(line.place),
            "what": f"{line.width} bytes a lane, {line.what} {line.tensor}",
            "cost": f"{'wavefronts' if line.is_shared else 'sectors'} a request: {line.each:.3g}",
            "advice": counts.advice(line), "banks": list(_banks(line)),
            "sectors": list(_sectors(line, elements.get(line.tensor, line.width)))}


def _code(place: str) -> str:
    file, _, number = place.rpartition(":")
    try:
        return (paths.ROOT / file).read_text(encoding="utf-8").splitlines()[int(number) - 1].strip()
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
