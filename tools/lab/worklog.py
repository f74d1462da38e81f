"""worklog.md: what a student tried, and what it brought.

Checks, benchmarks and submissions write a line each into `.lab/log.jsonl`. `./lab bundle` lists
these in the page, and leaves alone what the student writes below them.
"""

import csv
import datetime
import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lab import build, disk, paths, results, system, text
from lab.errors import LabError

PAGE = "worklog.md"
MACHINE = "machine.json"  # beside the CSV files: where the last benchmark ran
BEGIN, END = "<!-- BEGIN HISTORY -->", "<!-- END HISTORY -->"
MOST = 300  # lines of the history, the last ones
BELOW = """
## What I tried, and what it brought

Write one line for each change that you measured: what you expected, what the numbers say, and which
column of the CSV or which counter says so.
"""
TOP = f"""# Work log

`./lab` wrote down what ran. What you write below the table stays.

{BEGIN}
{END}
"""


def add(what: str, ended: str) -> None:
    """A line of the history. Where it cannot be written, nothing else stops."""
    line = {"when": f"{datetime.datetime.now():%Y-%m-%d %H:%M}", "what": what, "ended": ended}
    try:
        paths.STATE.mkdir(parents=True, exist_ok=True)
        with _log().open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError:
        pass


def history() -> list[tuple[str, str, str]]:
    try:
        lines = _log().read_text(encoding="utf-8", errors="replace").splitlines()[-MOST:]
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
            found.append((str(entry["when"]), str(entry["what"]), str(entry["ended"])))
        except (ValueError, TypeError, KeyError):  # a line that was cut off
            continue
    return found


def write() -> bool:
    """Brings the page up to date. Whether the student has written something into it."""
    page = paths.ROOT / PAGE
    content = disk.read_exact(page) if page.is_file() else TOP + BELOW
    if BEGIN not in content or END not in content.split(BEGIN, 1)[1]:
        content = TOP + "\n" + content
    before, rest = content.split(BEGIN, 1)
    below = rest.split(END, 1)[1]
    rows = ["| when | what | how it ended |", "|---|---|---|"]
    rows += ["| " + " | ".join(map(text.markdown, line)) + " |" for line in history()]
    content = f"{before}{BEGIN}\n" + "\n".join(rows) + f"\n{END}{below}"
    disk.write_exact(page, content)
    return is_begun(content)


def is_begun(content: str) -> bool:
    """Whether a student has written something into this page."""
    return content.partition(END)[2].strip() != BELOW.strip()


def to_read(content: str) -> str:
    """The student's own words, then the history, its last lines first: a report may cut it off."""
    before, _, rest = content.partition(BEGIN)
    lines, _, below = rest.partition(END)
    words = (before.replace(TOP.partition(BEGIN)[0], "") + below.replace(BELOW, "")).strip()
    return "\n".join([words, "", *reversed(lines.strip().splitlines()[2:])]).strip()


def measured(kind: results.Kind, before: int) -> str:
    """What a benchmark appended to its CSV, which had `before` bytes: how many rows of each status,
    and the fastest of the largest problem."""
    try:
        content = kind.csv.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "no rows"
    header = content.split("\n", 1)[0]
    new = content[before:] if before else content.partition("\n")[2]
    rows = list(csv.DictReader([header, *new.splitlines()]))
    if not rows:
        return "no rows"
    counts = Counter(row["status"] for row in rows)
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    done = [row for row in rows if row["status"] == "ok" and row.get(kind.time)]
    if done:
        largest = max(int(row[kind.size]) for row in done)
        best = sorted((row for row in done if int(row[kind.size]) == largest),
                      key=lambda row: float(row[kind.time]))[:3]
        said += f"; {kind.size} {largest}: " + ", ".join(
            f"{row['implementation']} {float(row[kind.time]):.4g} ms" for row in best)
    return said


def size_of(kind: results.Kind) -> int:
    return kind.csv.stat().st_size if kind.csv.is_file() else 0


def note_machine() -> None:
    """Where the benchmark ran that has just ended."""
    gpu = build.configured().gpu
    facts = {"when": f"{datetime.datetime.now():%Y-%m-%d %H:%M}", "processor": system.processor(),
             "processors": os.cpu_count(), "gpu": gpu,
             "system": f"{platform.system()} {platform.release()}"}
    try:
        disk.write_exact(paths.OUTPUTS / "csv" / MACHINE, json.dumps(facts, indent=1) + "\n")
    except LabError:
        pass


def _log() -> Path:
    return paths.STATE / "log.jsonl"


def files(parts: Sequence[str]) -> tuple[dict[str, Path], list[str]]:
    """What is handed in beside the code of these parts: its place in the archive and the file; and
    what is missing, with the command that makes it."""
    found: dict[str, Path] = {}
    missing = []
    kinds = {"softmax_matmul": [part for part in parts if part == "part1"],
             "attention": [part for part in parts if part not in ("part1", "decode")]}
    for kind in results.KINDS:
        wanted = kinds.get(kind.table)  # decoding has no points for results
        if not wanted:
            continue
        if kind.csv.is_file():
            found[f"results/{kind.csv.name}"] = kind.csv
            plots = sorted((paths.OUTPUTS / "plots").glob(f"{kind.table}*.png"))
            found |= {f"results/{plot.name}": plot for plot in plots}
            if not plots:
                missing.append(f"plots of {kind.csv.name}: ./lab plot draws them")
        else:
            on_a_cpu = "part1" if wanted[0] == "part1" else "part2"
            missing.append(f"{paths.relative(kind.csv)}: ./lab bench {wanted[0]} writes it; "
                           f"without a GPU: ./lab bench {on_a_cpu} --quick")
    machine = paths.OUTPUTS / "csv" / MACHINE
    if machine.is_file() and found:
        found[f"results/{MACHINE}"] = machine
    return found, missing
