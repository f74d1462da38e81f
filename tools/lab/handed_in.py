"""The results that a student hands in beside the code: what is missing in the benchmarks' CSV, and
what no run of the benchmark would have written. `./lab bundle` says it to the student, `./lab grade`
gives points where there is nothing to say.
"""

import contextlib
import functools
import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import paths, results, worklog
from lab.bundles import TOO_LARGE
from lab.errors import LabError
from lab.manifest import Task
from lab.results import Row


@dataclass(frozen=True)
class Asked:
    """What has to be in a task's table."""

    table: str
    sizes: tuple[int, ...]
    sizes_on_a_cpu: tuple[int, ...]  # where no row is of a GPU
    names: tuple[str, ...]  # of implementations


ASKED = {
    "part1.measure": Asked("softmax_matmul", (64, 128, 256, 512, 1024, 2048, 4096, 8192),
                           (64, 128, 256, 512, 1024),
                           ("unfused", "fused_16", "fused_32", "fused_64")),
    "part3.measure_attention": Asked("attention", (256, 1024, 4096, 8192, 16384), (256, 512),
                                     ("standard",))}
MOST = {"float32": 500, "float64": 150}  # TFLOP/s, more than the fastest GPU; others:
MOST_OF_16_BITS = 2500
MOST_OF_A_CORE = 0.3  # TFLOP/s: two multiply-adds of 16 numbers a cycle, at 4.7 GHz
DRIVERS_NAMES = r"(NVIDIA|Tesla|Quadro|GeForce|GRID)\b"
SHOWN = 3  # rows that a line names
# float32 without tensor cores, TFLOP/s, by the vendor's data sheets; the fastest of a name.
PEAKS = {"H200": 67, "H100": 67, "A100": 19.5, "V100": 15.7, "P100": 10.6, "T4": 8.1, "L4": 30.3,
         "L40S": 91.6, "A10G": 31.2, "RTX 3090": 35.6, "RTX 4090": 82.6}
PNG, PNG_END = b"\x89PNG\r\n\x1a\n", b"\0\0\0\0IEND\xaeB`\x82"
WIDEST = 5000  # pixels of a plot


def findings(handed_in: Mapping[str, bytes], tasks: Sequence[Task]) -> tuple[str, ...]:
    """Nothing where none of these tasks measures."""
    measuring = [task for task in tasks if task.id in ASKED]
    found = []
    for task in measuring:
        _, lines = of_task(handed_in, task)
        found += lines
    if measuring and not any(name.endswith(".png") for name in handed_in):
        found.append("there are no plots")
    if measuring:
        log = handed_in.get(worklog.PAGE, b"").decode("utf-8", "replace")
        if not log:
            found.append(f"{worklog.PAGE} is missing")
        elif not worklog.is_begun(log):
            found.append(f"{worklog.PAGE} has no word of the student's own")
    return tuple(found)


def of_task(handed_in: Mapping[str, bytes], task: Task) -> tuple[bool, list[str]]:
    """Whether the table of a task that measures is complete and plausible, and what to know."""
    asked = ASKED[task.id]
    try:
        wrong, notes = _of_table(handed_in, asked)
    except Exception as error:  # a stranger's numbers: columns that are not there, 10^400
        wrong, notes = [f"results/{asked.table}_benchmark.csv, or the machine.json beside it, has "
                        f"what no benchmark writes ({type(error).__name__})"], []
    return not wrong, wrong + notes


def plots(handed_in: Mapping[str, bytes]) -> dict[str, bytes]:
    """Pictures that a browser can show: of a file of 400 KB it may make gigabytes."""
    return {Path(name).name: content for name, content in handed_in.items()
            if re.fullmatch(r"results/\w+\.png", name) and _is_plot(content)}


def _is_plot(content: bytes) -> bool:
    if not content.startswith(PNG) or not content.endswith(PNG_END):
        return False
    width, height = (int.from_bytes(content[at:at + 4], "big") for at in (16, 20))
    return 0 < width <= WIDEST and 0 < height <= WIDEST


def times(handed_in: Mapping[str, bytes], tasks: Sequence[Task]) -> tuple[str, ...]:
    """The measured times, each as a few digits of its hash."""
    found = []
    for task in tasks:
        with contextlib.suppress(Exception):  # of what cannot be read
            found += [_hash(row) for row in _load(handed_in, ASKED[task.id].table) if row.ok]
    return tuple(found)


def _hash(row: Row) -> str:
    return hashlib.sha256(repr(_time(row)).encode()).hexdigest()[:12]


def _time(row: Row) -> tuple[object, ...]:
    return (row.name, row.size, row.ms("forward"), row.backward_ms,
            row.forward_ms_std or row.forward_spread_percent)


def _of_table(handed_in: Mapping[str, bytes], asked: Asked) -> tuple[list[str], list[str]]:
    """What is wrong, and what is only worth knowing."""
    table = asked.table
    name = f"results/{table}_benchmark.csv"
    if name not in handed_in:
        return [f"{name} is missing"], []
    if handed_in[name] == TOO_LARGE:
        return [f"{name} is larger than any benchmark's"], []
    if not handed_in[name].endswith(b"\n"):
        return [f"{name} is cut off in its last line"], []
    if odd := re.search(rb"(?<=,)\d*_\d*(?=,)|[^\x00-\x7f]",
                        handed_in[name].removeprefix(b"\xef\xbb\xbf")):
        return [f"{name} has {odd[0]!r}, which no benchmark writes"], []
    try:
        rows = _load(handed_in, table)
    except LabError as error:
        return [f"{name} cannot be used: {error}"], []
    if not rows or rows[0].kind.table != table:
        return [f"{name} has no row of {table}"], []
    ok = [row for row in rows if row.ok]
    if not ok:
        return [f"{table}: no row has a time"], []
    if unwritten := [row for row in ok if not _is_written(row)]:
        return _named(table, "numbers that no benchmark writes", unwritten), []
    known = {_time(row) for row in _of_the_course(table)}
    found = [*_missing(rows, asked), *_machine(rows, handed_in),
             *_named(table, "the time is another row's, to the last digit", _repeated(ok)),
             *_named(table, "the columns for times and rates do not fit each other",
                     [row for row in ok if not _fits(row)]),
             *_named(table, "the peak of memory is smaller than what the pass writes",
                     [row for row in ok if not _has_room(row)]),
             *_named(table, "faster than any machine", [row for row in ok if _too_fast(row)]),
             *_named(table, "faster than this processor",
                     [row for row in _above_the_processor(ok, handed_in) if not _too_fast(row)]),
             *_named(table, "faster than the data sheet of this GPU allows",
                     [row for row in ok if not _too_fast(row) and _is_above_the_peak(row)]),
             *_named(table, "a row of the course's own outputs/reference, to the last digit",
                     [row for row in ok if _time(row) in known])]
    notes = [*_named(table, "disturbed by other programs", [row for row in ok if row.disturbed]),
             *_other_than_logged(rows, handed_in)]
    if not found:
        counts = Counter(row.status for row in rows)
        notes.insert(0, f"{table}: complete and plausible: {len(rows)} rows ("
                        + ", ".join(f"{count} {status}" for status, count in counts.items())
                        + f"), on {rows[0].gpu or _machine_of(handed_in).get('processor')}")
    return found, notes


def _other_than_logged(rows: Sequence[Row], handed_in: Mapping[str, bytes]) -> list[str]:
    """What the log's last benchmark says of its fastest rows, which the table no longer has. Costs
    nothing: the log may be from another machine than the notebook's."""
    kind = rows[0].kind
    log = handed_in.get(worklog.PAGE, b"").decode("utf-8", "replace")
    last = [line for line in re.findall(r"\| bench .*", log) if f"; {kind.size} " in line][-1:]
    times = {(row.name, f"{row.ms('forward'):.4g}") for row in rows if row.ok}
    if not last:
        return [f"{kind.table}: {worklog.PAGE} lists no run of this benchmark"] if log else []
    lack = [f"{name} {ms} ms" for name, ms in re.findall(r"(?<![\w+])([\w+]+) (\S+) ms", last[0])
            if (name, ms) not in times]
    return [f"{kind.table}: {worklog.PAGE} has times of the last run that the table lacks: "
            + ", ".join(lack)] if lack else []


def _load(handed_in: Mapping[str, bytes], table: str) -> list[Row]:
    """LabError where this is no table of a benchmark. A spreadsheet writes it with a mark in front
    and other ends of lines."""
    name = f"{table}_benchmark.csv"
    content = handed_in[f"results/{name}"].removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(content)
        try:
            return results.load(file)
        except LabError as error:
            raise LabError(str(error).replace(f"{folder}/", "")) from None


@functools.cache
def _of_the_course(table: str) -> list[Row]:
    return [row for file in (paths.REPOSITORY / "outputs/reference").glob(f"*/csv/{table}_benchmark.csv")
            for row in results.load(file) if row.ok]


def _named(table: str, what: str, rows: Sequence[Row]) -> list[str]:
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return [f"{table}: {what}: {', '.join(map(_shown, rows[:SHOWN]))}{more}"] if rows else []


def _shown(row: Row) -> str:
    return f"{row.name} at {row.kind.size} {row.size}"


def _missing(rows: Sequence[Row], asked: Asked) -> list[str]:
    table, names = asked.table, asked.names
    sizes = asked.sizes if any(row.gpu for row in rows) else asked.sizes_on_a_cpu
    # The first has a matrix of all scores, which a small machine has no room for.
    there = {(row.name, row.size) for row in rows if row.ok or (
        row.status.startswith("OOM") and row.name == names[0]
        and row.size in sizes[len(sizes) // 2:][-2:])}
    lines = []
    for name in names:
        lack = [str(size) for size in sizes if (name, size) not in there]
        if lack:
            lines.append(f"{table}: no row of {name} at {rows[0].kind.size} {', '.join(lack)}")
    if {row.name for row in rows} <= {*names} and len(names) == 1:
        lines.append(f"{table}: no row of the student's own passes")
    return lines


def _machine_of(handed_in: Mapping[str, bytes]) -> dict[str, object]:
    try:
        facts = json.loads(handed_in.get(f"results/{worklog.MACHINE}", b""))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _machine(rows: Sequence[Row], handed_in: Mapping[str, bytes]) -> list[str]:
    table = rows[0].kind.table
    gpus = sorted({row.gpu for row in rows if row.gpu})
    facts = _machine_of(handed_in)
    lines = [f"{table}: no driver calls a GPU '{gpu}'" for gpu in gpus
             if not re.match(DRIVERS_NAMES, gpu)]
    if len(gpus) > 1:
        lines.append(f"{table}: rows of {len(gpus)} GPUs: {', '.join(gpus)}")
    if not facts:
        lines.append(f"{table}: results/{worklog.MACHINE} is missing, or cannot be read")
    elif gpus and facts.get("gpu") not in gpus:
        lines.append(f"{table}: rows of {gpus[0]}, handed in with the machine "
                     f"'{facts.get('gpu') or facts.get('processor')}'")
    return lines


def _is_written(row: Row) -> bool:
    """Whether its numbers are there, and finite."""
    spread = row.forward_ms_std if row.forward_ms_std is not None else row.forward_spread_percent
    times = (row.ms("forward"), *([] if row.backward_ms is None else [row.backward_ms]))
    return spread is not None and 0 <= spread < 1e9 and all(0 < ms < 1e9 for ms in times) and (
        0 < row.tflops < 1e9 if row.tflops is not None else row.kind.table != "softmax_matmul")


def _repeated(rows: Sequence[Row]) -> list[Row]:
    """Two measurements do not agree in six digits of time and spread."""
    key = {row: _time(row)[2:] for row in rows}
    counts = Counter(key.values())
    return [row for row in rows if counts[key[row]] > 1 and key[row][-1]]


def _flop(row: Row) -> float:
    if row.kind.table == "softmax_matmul":
        return 2.0 * row.batch_size * row.d1 * row.d2 * row.d3
    pairs = row.seq_len * (row.seq_len + 1) // 2 if row.causal else row.seq_len**2
    return 14.0 * pairs * row.batch * row.d_model


def _fits(row: Row) -> bool:
    """Whether the rate follows from the time, the total from its parts, and median from mean."""
    ms = row.ms("forward")
    if row.kind.table == "attention":
        if row.backward_ms is None:
            return True
        ms += row.backward_ms
        if row.total_ms and not abs(row.total_ms - ms) <= 1e-3 * ms:
            return False
    elif row.forward_ms_median and row.forward_ms_std is not None:
        if not abs(row.forward_ms_median - ms) <= 1.5 * row.forward_ms_std + 0.01 * ms:
            return False
    return not row.tflops or abs(_flop(row) / ms * 1e-9 - row.tflops) <= 1e-2 * row.tflops


def _above_the_processor(rows: Sequence[Row], handed_in: Mapping[str, bytes]) -> list[Row]:
    """Also where the peak that follows from a row's rate and share is not that of other rows."""
    cores = _machine_of(handed_in).get("processors")
    most = MOST_OF_A_CORE * (cores if isinstance(cores, int) else 256)
    rows = [row for row in rows if row.device == "cpu" and row.dtype == "float32" and row.tflops]
    peaks = {row: row.tflops / row.percent_of_peak for row in rows
             if row.percent_of_peak and not row.disturbed}
    middle = sorted(peaks.values())[len(peaks) // 2] if peaks else 0
    return [row for row in rows if row.tflops > most or peaks.get(row, 0) > 3 * middle]


def _has_room(row: Row) -> bool:
    """Whether its peak has room for the output, and for a matrix that the pass keeps."""
    if row.kind.table == "softmax_matmul":
        elements = row.batch_size * row.d1 * (row.d3 + row.d2 * (row.name == "unfused"))
    else:
        elements = row.batch * row.seq_len * (
            row.d_model + row.heads * row.seq_len * (row.name == "standard"))
    size = {"float32": 4, "float64": 8}.get(row.dtype, 2)
    return row.forward_peak_MiB is None or row.forward_peak_MiB > 0.999 * size * elements / 2**20


def _is_above_the_peak(row: Row) -> bool:
    """Of the course's plain float32 kernels and cuBLAS; ladders and PyTorch use tensor cores."""
    plain = row.name.startswith(("fused_", "unfused")) or row.name in ("standard", "flash")
    peaks = [peak for name, peak in PEAKS.items() if re.search(rf"\b{name}\b", row.gpu or "")]
    return plain and row.dtype == "float32" and bool(peaks) and (
        _flop(row) / row.ms("forward") * 1e-9 > 1.15 * max(peaks) * (
            3.5 if row.kind.table == "attention" else 1))


def _too_fast(row: Row) -> bool:
    most = MOST.get(row.dtype, MOST_OF_16_BITS)
    return _flop(row) / row.ms("forward") * 1e-9 > most * (3.5 if row.kind.table == "attention"
                                                           else 1) or (
        row.percent_of_peak or 0) > 110
