"""`./lab leaderboard`: makes the page of all receipts; measures one of them again, or our own code.
"""

import argparse
import dataclasses
import hashlib
from pathlib import Path

from lab import disk, paths, released, text
from lab.console import say
from lab.errors import LabError
from lab.instructor import export, pages, standings
from lab.leaderboard import boards, machine, measuring, receipts, screen
from lab.leaderboard.boards import Board
from lab.leaderboard.measuring import Site
from lab.leaderboard.receipts import Verification
from lab.leaderboard.result import NoResult, Result
from lab.verbs.student import submit

HELP = "the leaderboard's page; verify RECEIPT SOURCE measures one again, marks BOARD our own"

# A receipt holds when the same files reach this share of its speed-up.
HOLDS = 0.95


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = ("lab leaderboard [PLACE ...] [--output DIR]\n"
                    "       lab leaderboard verify RECEIPT SOURCE [--roster CSV]\n"
                    "       lab leaderboard marks BOARD")
    parser.add_argument("words", nargs="*", metavar="PLACE",
                        help="receipts, and folders of receipts, besides those of outputs/")
    parser.add_argument("--roster", type=Path, metavar="CSV",
                        help="of verify: Canvas' gradebook or Moodle's grading worksheet, where "
                             "SOURCE, as it was handed in, has to be of one row")
    parser.add_argument("--output", type=Path, default=paths.OUTPUTS / receipts.FOLDER,
                        metavar="DIR", help="where the pages go (default: outputs/leaderboard)")


def run(args: argparse.Namespace) -> int:
    if args.words[:1] == ["verify"]:
        if len(args.words) != 3:
            raise LabError("a receipt and the files that it is of are needed: "
                           "./lab leaderboard verify RECEIPT SOURCE (receipts are in "
                           f"{paths.relative(receipts.folder(receipts.RECEIPTS))}/)")
        return _verify(Path(args.words[1]), Path(args.words[2]), args.roster)
    if args.words[:1] == ["marks"]:
        if len(args.words) != 2:
            raise LabError("a board is needed: ./lab leaderboard marks BOARD measures the solution "
                           "and the rungs of the ladder, to compare with")
        return _marks(boards.find(args.words[1]))
    places = [Path(word) for word in args.words]
    for place in places:
        if not place.exists():
            raise LabError(f"{place} does not exist")
    return write(places, args.output)


def write(places: list[Path], output: Path) -> int:
    found, left_out = standings.collect(places)
    for name, text in (("leaderboard.md", pages.markdown(found)),
                       ("leaderboard.csv", pages.table(found)),
                       ("index.html", pages.page(found, receipts.now()[:10]))):
        disk.write_exact(output / name, text)
    for line in left_out:
        say(f"left out: {line}", "yellow")
    if not found:
        say("no receipts yet; ./lab submit BOARD --name NAME writes one", "yellow")
    for standing in found:
        rows = [row for row in standing.rows if row.place]
        first = f"; first: {rows[0].name}" if rows else ""
        say(f"{standing.board.name} on {standing.device}: places: {len(rows)}{first}")
    shown = paths.relative(output.absolute())
    say(f"{shown}/index.html, leaderboard.md, leaderboard.csv")
    return 0


def _verify(file: Path, source: Path, roster: Path | None) -> int:
    receipt = receipts.load(file)
    board = boards.find(receipt.board)
    person = _person(receipt.name, source, roster)
    if receipt.board_sha256 != board.sha256:
        raise LabError(f"{file} is for another version of the board {board.name}: "
                       "submit the files again")
    if (here := machine.device(board)) != receipt.device:
        raise LabError(f"{file} was measured on {receipt.device}, and this machine is {here}: a "
                       "board never mixes two models, so verify it on one like that")
    claimed = receipt.result(board)
    if (version := str(released.version_of(paths.ROOT))) != receipt.course:
        say(f"{file} is of version {receipt.course} of the course, and this is {version}", "yellow")
    _refuse_in_vain(board, receipts.VERIFIED)
    with measuring.site(board) as where:
        sources = submit.sources_of(where, source)
        for path, digest in receipt.sources.items():
            if path not in sources or hashlib.sha256(sources[path]).hexdigest() != digest:
                raise LabError(f"{source} is not what {file} was measured with: {path} differs")
        measuring.test(where, sources)
        libraries = measuring.libraries(where, sources)
        try:
            again, result = submit.take(where, receipt.name, sources, libraries)
        except NoResult as error:
            refuted = Verification(released.sha256(file), False, str(error), person, receipt)
            raise LabError(f"it does not hold: {error}; "
                           f"{paths.relative(receipts.save_verification(refuted))}") from None
    screen.show(result)
    holds, why = _compare(claimed, result)
    saved = receipts.save_verification(
        Verification(released.sha256(file), holds, why, person, again))
    say(f"{'it holds' if holds else why}: {result.speedup:.3f}x of the reference, the receipt says "
        f"{claimed.speedup:.3f}x; {paths.relative(saved)}")
    return 0 if holds else 1


def _person(handle: str, source: Path, roster: Path | None) -> str:
    """Whose files they are, by the name of SOURCE. LabError where this handle is not the person's
    only one on the boards, or looks like another's."""
    person = source.absolute().name.removesuffix(".zip")
    if roster is not None:
        table = export.roster(roster)
        fits = table.fits(person)
        if len(fits) != 1:
            raise LabError(f"{source} is of {len(fits) or 'no'} row of {roster}, by the name and "
                           "number that the platform wrote: name it as it was handed in")
        person = table.rows[fits[0][0]][table.number]
    for file in sorted(receipts.folder(receipts.VERIFIED).glob("*.json")):
        other = receipts.load_verification(file)
        same = text.looks(other.receipt.name) == text.looks(handle)
        if other.holds and same != (other.person == person):
            raise LabError(f'the handle "{other.receipt.name}" is of {other.person}, and SOURCE is '
                           f'of {person}, whose receipt says "{handle}": a person has one handle, '
                           "which looks like no other; without --roster a person is the name of "
                           "SOURCE, so name it after the person")
    return person


def _refuse_in_vain(board: Board, kind: str) -> None:
    """Before a minute of building."""
    disk.check_writable(receipts.folder(kind))
    machine.refuse_if_busy(board)


def _compare(claimed: Result, measured: Result) -> tuple[bool, str]:
    if measured.speedup >= HOLDS * claimed.speedup:
        return True, ""
    return False, (f"it is slower than its receipt says, by "
                   f"{100 * (1 - measured.speedup / claimed.speedup):.0f} %")


def _marks(board: Board) -> int:
    """Measures the solution and rungs of the ladder: they stand on the board to compare with."""
    _refuse_in_vain(board, receipts.MARKS)
    for name in board.marks:
        board.rungs(name)  # one that is not there is said before a minute of building
    with measuring.site(board) as where:
        return _measure_marks(where)


def _measure_marks(where: Site) -> int:
    solution = measuring.read_own(where.tasks, "solution")
    ours = measuring.libraries(where, solution)
    marks = [("solution", solution, ours, {})]
    for name in where.board.marks:
        files = where.board.rungs(name)
        ladders = {file.parent.parent for file in files}
        sources = {paths.relative(file): file.read_bytes() for file in files} | {
            task.shown_path(): solution[task.shown_path()]
            for task in where.tasks if task.folder not in ladders}
        rungs = [measuring.passes(where) if task.folder in ladders else library
                 for task, library in zip(where.tasks, ours)]
        marks.append((name, sources, rungs, measuring.variables_of_rung(name)))
    for name, sources, libraries, variables in marks:
        try:
            receipt, result = submit.take(where, name, sources, libraries, variables)
        except NoResult as error:
            say(f"{name}: {error}", "red")
            continue
        receipt = dataclasses.replace(receipt, mark=True)
        file = receipts.save(receipt, receipts.MARKS)
        say(f"{name}: {result.speedup:.3f}x of the reference, "
            f"{100 * result.roofline:.1f} % of the roofline; {paths.relative(file)}")
    return 0
