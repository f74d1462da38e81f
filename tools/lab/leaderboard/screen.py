"""What a person sees of a result: tables on the terminal."""

from collections.abc import Sequence

from rich.table import Table

from lab import console
from lab.console import say
from lab.errors import LabError
from lab.leaderboard.boards import Board
from lab.leaderboard.receipts import Receipt
from lab.leaderboard.result import Result


def show(result: Result) -> None:
    _print_table(("problem", "pass", "median, ms", "p10 - p90", "reference, ms", "speed-up",
                  "GFLOP/s", "roofline"), [
        (one.problem, one.name, f"{one.median:.4g}", f"{one.p10:.4g} - {one.p90:.4g}",
         f"{one.reference:.4g}", f"{1 / one.relative:.3f}x", f"{one.flops / one.median / 1e6:.1f}",
         f"{100 * one.floor / one.median:.1f} %") for one in result.passes], left=2)
    say(f"exchange of messages, already subtracted: {_range(one.exchange for one in result.passes)}"
        f" ms a call; disturbed by other programs: {100 * result.disturbed:.0f} % of the calls")
    say(f"speed-up over the reference: {result.speedup:.3f}x +- {100 * result.uncertainty:.1f} %; "
        f"{result.total:.4g} ms in all; {100 * result.roofline:.1f} % of the roofline", "bold")


def profile(result: Result) -> None:
    """What takes the time: operations, bytes and memory, beside what the machine can do."""
    _print_table(("problem", "pass", "median, ms", "processor, ms", "at best, ms", "MFLOP",
                  "GFLOP/s", "MiB", "GB/s", "extra, KiB"), [
        (one.problem, one.name, f"{one.median:.4g}", f"{one.processor:.4g}", f"{one.floor:.4g}",
         f"{one.flops / 1e6:.4g}", f"{one.flops / one.median / 1e6:.1f}",
         f"{one.bytes / 2**20:.3g}", f"{one.bytes / one.median / 1e6:.2f}",
         f"{one.extra_bytes / 1024:.4g}") for one in result.passes], left=2)
    say("MFLOP are the operations of the products, MiB the bytes of inputs and outputs: the least "
        "work that there is. \"At best\" is its time at the rates of one core, which are measured "
        "in the same turns, or at the highest of a GPU. \"Processor\" holds the exchange, too; "
        "\"extra\" is a call's memory.")


def history(board: Board, receipts: Sequence[Receipt]) -> None:
    rows, before = [], None
    for receipt in receipts:
        try:
            result = receipt.result(board)
        except LabError:
            continue
        gained = f"{result.speedup / before:.3f}x" if before else ""
        before = result.speedup
        rows.append((receipt.time.replace("T", " ").rstrip("Z"), f"{result.speedup:.3f}x", gained,
                     f"{result.total:.4g}", f"{100 * result.roofline:.1f} %",
                     " ".join(digest[:8] for digest in receipt.sources.values())))
    _print_table(("when (UTC)", "speed-up", "to the one before", "total, ms", "roofline", "files"),
                 rows, left=1)


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> None:
    """The first `left` columns are aligned to the left."""
    table = Table(box=None, pad_edge=False)
    for number, title in enumerate(head):
        table.add_column(title, justify="left" if number < left else "right", no_wrap=not number)
    for row in rows:
        table.add_row(*row)
    console.console.print(table)


def _range(values) -> str:
    found = sorted(values)
    low, high = f"{found[0]:.2g}", f"{found[-1]:.2g}"
    return low if low == high else f"{low} to {high}"
