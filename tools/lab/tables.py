"""The tables between markers in the README pages: results and ladders.

`./lab table` makes them from the committed CSV files (outputs/reference/<machine>/csv/) and the
first comment of each rung. A page has the regions that it wants:

    <!-- BEGIN RESULTS attention_cpu -->     ...     <!-- END RESULTS attention_cpu -->
    <!-- BEGIN LADDER part2 -->              ...     <!-- END LADDER part2 -->
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from lab import manifest, paths, results
from lab.errors import LabError
from lab.results import DIRECTIONS, Group, Row

# What times_of_rung() returns.
TIMES = ("forward, ms", "PyTorch's time over it", "backward, ms", "PyTorch's time over it")

KINDS = "(RESULTS|LADDER)"
REGION = re.compile(rf"(<!-- BEGIN {KINDS} (\w+) -->\n)(.*?)(<!-- END \2 \3 -->)", re.DOTALL)


def pages() -> list[Path]:
    return sorted([*paths.ROOT.glob("README.md"), *paths.ROOT.glob("*/README.md"),
                   *paths.ROOT.glob("*/ladder/README.md")])


def updated(text: str, page: Path) -> str:
    """`text` with all its marked regions generated anew. LabError when one cannot be."""
    new, found = REGION.subn(lambda match: "".join((
        match[1], region(match[2], match[3], page), "\n", match[5])), text)
    if len(re.findall(f"<!-- (BEGIN|END) {KINDS} ", text)) != 2 * found:
        raise LabError(f"{paths.relative(page)}: markers have to come in pairs, "
                       "<!-- BEGIN KIND NAME --> and then <!-- END KIND NAME -->")
    return new


def region(kind: str, name: str, page: Path) -> str:
    """What belongs between the markers."""
    if kind == "LADDER":
        return ladder_table(name, page)
    if name == "ladders":
        return ladders_table(page)
    table = re.sub("_(cpu|gpu)$", "", name)
    if name not in ("softmax_matmul", "attention_cpu", "attention_gpu", "decode"):
        raise LabError(f"{paths.relative(page)}: RESULTS is '{name}'; "
                       "it must be ladders, softmax_matmul, attention_cpu, attention_gpu or decode")
    tables: dict[str, tuple[Callable[..., str], list[Group]]] = {}  # by their captions
    found = references(table)
    in_bfloat16 = {_problem(file, group) for file, group in found
                   if group.rows[0].dtype == "bfloat16"}
    for file, group in found:
        make, title = softmax_matmul_table, group.title
        if table == "attention" and (group.device == "cpu") != name.endswith("_cpu"):
            continue
        if group.rows[0].dtype == "float16" and _problem(file, group) in in_bfloat16:
            continue  # the same rungs; the CSV has it
        if table == "decode":
            make, title = decode_table, re.sub(r"batch \d+, |, [\w-]+ lengths", "", title)
        elif name == "attention_gpu" and not any(
                each.startswith("standard") for each in group.names):
            make, title = beside_pytorch_table, f"Other problems on {group.rows[0].gpu}"
        elif table == "attention":
            make, title = attention_table, f"{title}, sequence length {group.sizes[-1]}"
        caption = f"**{title}** ({_csv(file, page)})"
        tables.setdefault(caption, (make, []))[1].append(group)
    if not tables:
        raise LabError(f"there is no outputs/reference/<machine>/csv/{table}_benchmark.csv "
                       f"to make the table '{name}' of")
    # The other problems come last.
    return "\n\n".join(f"{caption}\n\n{make(*groups)}" for caption, (make, groups) in sorted(
        tables.items(), key=lambda each: each[1][0] is beside_pytorch_table))


def _problem(file: Path, group: Group) -> tuple:
    """What it is about, but for the type."""
    row = group.rows[0]
    return file, group.sizes[-1], *(getattr(row, name) for name in group.kind.group
                                    if name != "dtype")


def references(table: str) -> list[tuple[Path, Group]]:
    files = sorted((paths.OUTPUTS / "reference").glob(f"*/csv/{table}_benchmark.csv"))
    return [(file, group) for file in files for group in results.groups(results.load(file))]


def references_of(part: str) -> list[tuple[Path, Group]]:
    return references({"part1": "softmax_matmul", "decode": "decode"}.get(part, "attention"))


def _csv(file: Path, page: Path) -> str:
    """A link that says on which machine the results were measured."""
    return f"[CSV of {file.parents[1].name}]({_link(file, page)})"


def _link(file: Path, page: Path) -> str:
    return Path(os.path.relpath(file, page.parent)).as_posix()


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 0) -> str:
    """A table without the columns that have no value; the first `left` are aligned to the left."""
    rules = ["-"] * left + ["-:"] * (len(header) - left)
    columns = [column for column in zip(header, rules, *rows) if any(column[2:])]
    return "\n".join(f"|{'|'.join(cells)}|" for cells in zip(*columns))


def _number(value: float | None, digits: int = 4) -> str:
    """Never with an exponent."""
    if value is None:
        return ""
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"


# ---- results ------------------------------------------------------------------------------------


def softmax_matmul_table(group: Group) -> str:
    """A row for each d2: unfused beside the fastest block of the fused function, PyTorch's
    functions and the fastest rung."""
    header = ["d2", "unfused, ms", "best fused, ms (block)", "speed-up", "fused, TFLOP/s",
              "extra memory unfused, MiB", "extra memory fused, MiB", "PyTorch unfused, ms",
              "fastest rung, ms", "speed-up over PyTorch"]
    rows = []
    for d2 in group.sizes:
        fused = [row for row in group.rows if row.d2 == d2 and row.BLOCK is not None]
        unfused, best = group.find("unfused", d2), _fastest(fused)
        torch = group.find("pytorch_unfused", d2)
        rung = _fastest([row for row in group.rows if row.d2 == d2 and re.match(r"\d", row.name)])
        rows.append([
            str(d2), _times(unfused)[0],
            f"{_number(best.forward_ms_mean)} ({best.BLOCK})" if best
            else ", ".join(sorted({row.status for row in fused})),
            _over(unfused, best), _number(best.tflops, 3) if best else "",
            *("" if row is None or row.extra_mib is None else "0" if row.extra_mib < 0.1
              else _number(row.extra_mib) for row in (unfused, best)),
            _times(torch)[0], f"{_number(rung.forward_ms_mean)} ({rung.name})" if rung else "",
            _over(torch, rung)])
    return _markdown(header, rows)


def _over(slow: Row | None, fast: Row | None) -> str:
    """How many times as fast."""
    if slow is None or fast is None or not slow.ok:
        return ""
    return f"{slow.forward_ms_mean / fast.forward_ms_mean:.2f}x"


def _fastest(rows: Iterable[Row]) -> Row | None:
    return min((row for row in rows if row.ok), key=lambda row: row.forward_ms_mean, default=None)


def _times(row: Row | None) -> list[str]:
    """Of both passes; where one has no result the status, once."""
    if row is None:
        return ["", ""]
    forward, backward = map(row.ms, DIRECTIONS)
    if forward is None:
        return [row.status, ""]
    return [_number(forward), _number(backward) or ("" if row.ok else row.status)]


def attention_table(group: Group) -> str:
    """At the longest sequence, a row for each implementation that takes the problem; times and
    rates with each mask, and the larger of their numbers of bytes."""
    unit, factor = group.rate_unit
    memory = ("forward_peak_MiB", "backward_peak_MiB", "saved_activations_MiB")
    at = {(name, mask): row for name in group.names for mask in group.masks
          if (row := group.find(name, group.sizes[-1], mask)) and row.status != "unsupported"}
    rows = []
    for name in group.names:
        if name.endswith("+none") and name[:-5] in group.names:
            continue  # the same forward pass once more
        cells = [name]
        for mask in group.masks:
            standard = next((row for one in ("standard", "standard+none")
                             if (row := at.get((one, mask))) and row.ok), None)
            row = at.get((name, mask))
            rates = [row.forward_tflops, row.backward_tflops] if row else [None, None]
            cells += [*_times(row), _speed_up(row, standard) if row else "",
                      *(_number(rate and factor * rate, 3) for rate in rates),
                      _number(row and row.percent_of_peak, 3)]
        here = [at[name, mask] for mask in group.masks if (name, mask) in at]
        cells += [_number(max(filter(None, (getattr(row, column) for row in here)), default=None))
                  for column in memory]
        if here:
            rows.append(cells)
    header = [f"{'causal: ' * mask}{column}" for mask in group.masks for column in (
        "forward, ms", "backward, ms", "over standard", f"forward, {unit}", f"backward, {unit}",
        "% of peak")]
    return _markdown(["implementation", *header, "forward peak, MiB", "backward peak, MiB",
                      "saved, MiB"], rows)


def beside_pytorch_table(*found: Group) -> str:
    """At the longest sequence, a row for each problem: with each mask, of each direction, our
    fastest pass and PyTorch's."""
    header = ["problem", *(
        f"{'causal: ' * mask}{column}" for mask in (False, True) for direction in DIRECTIONS
        for column in (f"{direction}, ms", "TFLOP/s", "PyTorch, ms", "ratio"))]
    rows = []
    for group in found:
        cells = [f"{group.title.removeprefix(f'{group.rows[0].gpu}, ')}, {group.sizes[-1]} keys"]
        for mask in (False, True):
            row = next((row for row in group.rows
                        if (row.size, row.mask) == (group.sizes[-1], mask)), None)
            for direction, products in zip(DIRECTIONS, (4, 10)):
                ms, ours, *peer = _beside_pytorch(group.times(direction, mask))
                cells += [ours, _number(row and row.rate(products, ms), 3), *peer]
        rows.append(cells)
    return _markdown(header, rows, left=1)


def _beside_pytorch(times: dict[str, float], rungs: Collection[str] = ()) -> tuple:
    """Of these passes the time of ours that is fastest (of `rungs`, if there are any), then cells:
    ours, PyTorch's fastest, and its time over ours."""
    theirs = {name.removeprefix("pytorch_"): ms for name, ms in times.items()
              if name.startswith("pytorch")}
    ours = {name: ms for name, ms in times.items() if name in rungs or not rungs
            and not name.startswith("pytorch") and name not in ("standard", "none")}
    best, peer = (min(each, key=each.get, default="") for each in (ours, theirs))
    shown = (f"{_number(each[name])} ({name})" if name else ""
             for each, name in ((ours, best), (theirs, peer)))
    ratio = f"{theirs[peer] / ours[best]:.2f}x" if best and peer else ""
    return ours.get(best), *shown, ratio


def decode_table(*found: Group) -> str:
    """A row for each problem and implementation."""
    header = ["sequences x keys", "implementation", "ms", "GB/s", "% of a copy", "tokens/s",
              "peak, MiB"]
    rows = []
    for row in (row for group in found for size in group.sizes for name in group.names
                if (row := group.find(name, size))):
        lengths = "" if row.lengths == "equal" else f", {row.lengths}"
        rows.append([f"{row.batch} x {row.size}{lengths}", row.name, *(
            [_number(row.forward_ms), _number(row.gb_per_s), _number(row.percent_of_copy, 3),
             _number(row.tokens_per_s), _number(row.forward_peak_MiB)]
            if row.ok else [row.status, *[""] * 4])])
    return _markdown(header, rows)


def _speed_up(row: Row, standard: Row | None) -> str:
    """Of both passes, or of the forward pass where there is no other."""
    if standard is None or not row.ok:
        return ""
    if row.total_ms and standard.total_ms:
        return f"{standard.total_ms / row.total_ms:.3g}x"
    return f"{standard.forward_ms / row.forward_ms:.3g}x"


# ---- ladders ------------------------------------------------------------------------------------


def ladder_table(part: str, page: Path) -> str:
    """A row for each rung: its story, and its times at the largest problem, without a mask, beside
    those of PyTorch's fastest kernel. Of all results on a CPU, and of those on a GPU, the ones that
    have the most rungs, then the most columns, then the first; a table each."""
    folder = next((one.folder for one in manifest.load_parts() if one.name == part), None)
    if folder is None:
        raise LabError(f"{paths.relative(page)}: LADDER is '{part}'; there is no such part")
    files = rungs(folder)
    best = {}  # device: (rank, caption, the cells of each rung that was measured there)
    for csv_file, group in references_of(part):
        here = {name: cells for name in files if any(cells := times_of_rung(group, name))}
        rank, device = (len(here), group.rows[0].d_model or 0), group.rows[0].device
        if here and (device not in best or rank > best[device][0]):
            best[device] = rank, (f"{group.title}, {group.kind.size} {group.sizes[-1]} "
                                  f"({_csv(csv_file, page)}):\n\n"), here
    measured = [(caption, here) for _, (_, caption, here) in sorted(best.items())] or [("", {})]
    measured[0][1].update({name: [""] * 4 for name in files
                           if not any(name in here for _, here in measured)})
    return "\n\n".join(caption + _markdown(["rung", "what is new", *TIMES], [
        [f"[`{name}`]({_link(file, page)})", story(file), *here[name]]
        for name, file in files.items() if name in here], left=2) for caption, here in measured)


def ladders_table(page: Path) -> str:
    """For each ladder, direction, device and type the fastest rung without a mask, at the largest
    size of the results that have the most rungs (then the most columns), beside PyTorch's fastest
    kernel."""
    found = {}  # (part, direction, device, dtype): (rank, cells)
    for part in manifest.load_parts():
        for csv_file, group in references_of(part.name):
            row = group.rows[0]
            if row.query_scale != 1 or row.dtype == "float16":
                continue  # the rungs for float16 are those for bfloat16
            for direction in DIRECTIONS:
                ms, *cells = _beside_pytorch(group.times(direction), rungs(part.folder))
                key = part.name, direction, row.device, row.dtype
                rank = (sum(name in rungs(part.folder) for name in group.times(direction)),
                        row.d_model or 0)
                if not ms or rank <= found.get(key, ((0, 0), []))[0]:
                    continue
                link = _link(part.folder / "ladder", page)
                found[key] = rank, [
                    f"[{part.name}]({link})", direction,
                    f"{group.title}, {group.kind.size} {group.sizes[-1]} ({_csv(csv_file, page)})",
                    *cells]
    header = ["ladder", "pass", "problem", "fastest rung, ms", "PyTorch, ms", "ratio"]
    return _markdown(header, [cells for _, cells in found.values()], left=3)


def rungs(part: Path) -> dict[str, Path]:
    """Name and file of each rung in the part's folder, in their order. The build collects the same
    files (cmake/FlashRegistry.cmake)."""
    files = [file for file in part.glob("ladder/[0-9]*_*")
             if re.fullmatch(r"\d+_[a-z0-9_]+(\.isa\.cpp|\.sm90a\.cu|\.cpp|\.cu)", file.name)]
    return {file.name.split(".")[0]: file
            for file in sorted(files, key=lambda file: (int(file.name.split("_")[0]), file.name))}


def find_rung(name: str) -> tuple[str, str, Path]:
    """The part, the name and the file of a rung; `name` may begin with the part."""
    known = {f"{part.name}/{rung}": file for part in manifest.load_parts()
             for rung, file in rungs(part.folder).items()}
    found = [rung for rung in known if f"/{rung}".endswith(f"/{name}")]
    if len(found) != 1:
        raise LabError(f'{len(found)} rungs are called "{name}"; there are '
                       f"{', '.join(sorted(known))}. A new one is a file ladder/N_name.cpp or .cu; "
                       "its name has small letters, digits and _")
    part, name = found[0].split("/")
    return part, name, known[found[0]]


def story(file: Path) -> str:
    """The first line of the file, a comment, and what follows until a line ends with a full stop;
    without "Rung 4: "."""
    words = []
    for line in file.read_text().splitlines():
        words.append(line.removeprefix("//").strip())
        if not line.startswith("//") or line.endswith("."):
            break
    return re.sub(r"^Rung \d+[^:]*: ", "", " ".join(words)).rstrip(".")


def times_of_rung(group: Group, name: str) -> list[str]:
    """Of both passes the time, and PyTorch's over it."""
    cells = []
    for direction in DIRECTIONS:
        times = group.times(direction)
        ours = times.get(name)
        theirs = min((ms for one, ms in times.items() if one.startswith("pytorch")), default=None)
        cells += [_number(ours), f"{theirs / ours:.2f}x" if ours and theirs else ""]
    return cells
