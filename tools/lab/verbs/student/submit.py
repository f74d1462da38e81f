"""`./lab submit`: measures what you wrote on a board of the leaderboard, and writes a receipt."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from lab import build, disk, paths, worklog
from lab.console import say
from lab.errors import LabError
from lab.leaderboard import boards, machine, measuring, receipts, screen
from lab.leaderboard.boards import Board
from lab.leaderboard.measuring import Site
from lab.leaderboard.receipts import Receipt
from lab.leaderboard.result import TURNS, Busy, Result, result_of
from lab.submission import submissions

HELP = "measure what you wrote on a board of the leaderboard, and write a receipt"

MODES = {"test": "run the graded cases of the board's tasks, and nothing else",
         "benchmark": "measure with few turns: no tests, no receipt",
         "profile": "the same, with operations, bytes and memory",
         "leaderboard": "run the tests, measure, and write the receipt (the default)"}
FEW_TURNS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("board", nargs="?", metavar="BOARD",
                        help="a file of benchmarking/boards/, without .toml; without it the boards "
                             "are listed")
    parser.add_argument("submission", nargs="?", type=Path, metavar="FILE_OR_DIR",
                        help="a bundle, a zip or a folder (default: your files in skeleton/)")
    parser.add_argument("--mode", choices=MODES, default="leaderboard",
                        help="; ".join(f"{mode}: {does}" for mode, does in MODES.items()))
    parser.add_argument("--name", help="who you are on the board; a pseudonym will do (default: "
                                       "the name of your last receipt)")


def run(args: argparse.Namespace) -> int:
    if args.board is None:
        return _list()
    try:
        return _run(args, boards.find(args.board))
    except Busy as busy:
        if args.mode != "leaderboard":
            raise
        raise Busy(f"{busy} (--mode benchmark measures all the same)") from None


def _run(args: argparse.Namespace, board: Board) -> int:
    name = "" if args.mode != "leaderboard" else _name(args.name)
    if args.mode == "leaderboard":
        disk.check_writable(receipts.folder(receipts.RECEIPTS))
        machine.refuse_if_busy(board)
    with measuring.site(board) as where:
        sources = sources_of(where, args.submission)
        if args.mode in ("test", "leaderboard"):
            measuring.test(where, sources)
        if args.mode == "test":
            return 0
        libraries = measuring.libraries(where, sources)
        if args.mode != "leaderboard":
            measured = measuring.measure(where, libraries, FEW_TURNS)
            result = result_of(board, measured.samples, FEW_TURNS, most_disturbed=1)
            if args.mode == "benchmark":
                screen.show(result)
                return 0
            screen.profile(result)
            for task, library in zip(where.tasks, libraries):
                if task.is_cuda and (found := measuring.kernels(library)):
                    say(f"{task.file}: {found}; ./lab profile counts what they do")
            return 0
        receipt, result = take(where, name, sources, libraries)
    screen.show(result)
    file = receipts.save(receipt, receipts.RECEIPTS)
    say(f"receipt: {paths.relative(file)}")
    worklog.add(f"submit {board.name}", f"{result.speedup:.3f} times the reference's speed, "
                f"{result.total:.4g} ms in all")
    mine = receipts.own(board, receipt.device, receipt.name)
    if len(mine) > 1:
        say(f"\n{receipt.name} on {board.name}, {receipt.device}:")
        screen.history(board, mine)
    say("next: hand in the receipt and your files (./lab bundle)")
    return 0


def take(where: Site, name: str, sources: dict[str, bytes], libraries: list[Path],
         variables: Mapping[str, str] = {}) -> tuple[Receipt, Result]:
    """Measures as a place on the board needs it. NoResult where there is none."""
    facts = machine.facts(where.board)
    measured = measuring.measure(where, libraries, TURNS, variables)
    result = result_of(where.board, measured.samples)
    options = where.bench.builds[where.tasks[0].id][0].flags[1:]
    compiler = [build.configured().compiler, *options]
    return receipts.make(where.board, name, sources, facts, compiler, measured), result


def _list() -> int:
    here = [board for board in boards.load_all() if board.is_here()]
    for board in here:
        say(f"{board.name:<24}{board.title}")
    if not here:
        say("no board: each measures a part that this copy of the course does not have")
    say("\nthe rules: benchmarking/boards/README.md; ./lab submit BOARD measures what you wrote")
    return 0


def _name(given: str | None) -> str:
    if given is None:
        files = receipts.folder(receipts.RECEIPTS).glob("*.json")
        if last := max(files, key=lambda file: file.stat().st_mtime, default=None):
            return receipts.load(last).name
        raise LabError("choose a name for the board, once: --name NAME (a pseudonym will do)")
    if not receipts.is_name(given):
        raise LabError(f"--name is {given!r}; it must be {receipts.NAME_IS}")
    return given


def sources_of(where: Site, place: Path | None) -> dict[str, bytes]:
    if place is None:
        return measuring.read_own(where.tasks)
    found, _ = submissions.find([place], where.tasks)
    if len(found) != 1:
        raise LabError(f"{place} holds {len(found)} submissions; name one")
    content = submissions.read(found[0].place, where.tasks)
    if missing := [task.shown_path() for task in where.tasks
                   if task.shown_path() not in content.files]:
        raise LabError(content.problem or f"{place} has no {missing[0]}")
    return dict(content.files)
