"""Who stands where: from receipts and verifications to the rows of a board."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab import handout, paths
from lab.errors import LabError
from lab.instructor import pytorch
from lab.leaderboard import boards, receipts
from lab.leaderboard.boards import Board
from lab.leaderboard.receipts import MARKS, RECEIPTS, VERIFIED, Receipt, Verification
from lab.leaderboard.result import Result

VERIFIED_STATE, CLAIMED, MARK = "verified", "not verified", "mark"


@dataclass(frozen=True)
class Entry:
    board: Board
    receipt: Receipt   # of the verification, where there is one
    result: Result
    state: str
    time: str          # of the submission
    place: int | None = None  # of verified entries only

    @property
    def name(self) -> str:
        return self.receipt.name

    @property
    def device(self) -> str:
        return self.receipt.device


@dataclass(frozen=True)
class Standing:
    """One board on one model of device."""

    board: Board
    device: str
    rows: tuple[Entry, ...]    # best per person, and the marks; the fastest first
    entries: tuple[Entry, ...]  # all of them, the oldest first
    beside: str = ""           # a sentence about what else is known to compare with


def collect(places: Iterable[Path]) -> tuple[list[Standing], list[str]]:
    """The standings, and of each receipt that is left out the reason."""
    known = {board.sha256: board for board in boards.load_all()}
    left_out: list[str] = []
    judged: dict[str, Verification] = {}
    for file in _files([receipts.folder(VERIFIED)]):
        try:
            found = receipts.load_verification(file)
        except LabError as error:
            left_out.append(str(error))
            continue
        # The last word counts: a receipt may be measured again.
        if found.verifies not in judged or found.receipt.time >= judged[
                found.verifies].receipt.time:
            judged[found.verifies] = found
    entries, seen = [], set()
    for file in _files([receipts.folder(RECEIPTS), receipts.folder(MARKS), *places]):
        try:
            receipt = receipts.load(file)
            digest = handout.sha256(file)
            if digest in seen:
                continue
            seen.add(digest)
            is_ours = file.resolve().is_relative_to(receipts.folder(MARKS).resolve())
            if receipt.mark and not is_ours:
                raise LabError("only a mark that was measured here stands on the board")
            entries.append(_entry(receipt, known, judged.get(digest)))
        except (LabError, RecursionError) as error:  # one that is nested too deeply to be shown
            text = str(error)
            shown = paths.relative(file)
            left_out.append(text if text.startswith(shown) else f"{shown}: {text}")
    return _standings(entries), left_out


def _files(places: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        if place.is_file():
            found.append(place)
        elif place.is_dir():
            found += [file for file in sorted(place.rglob("*.json")) if file.is_file()]
    return found


def _entry(receipt: Receipt, known: dict[str, Board], found: Verification | None) -> Entry:
    board = known.get(receipt.board_sha256)
    if board is None or board.name != receipt.board:
        raise LabError(f"it is for another version of the board {receipt.board}")
    if found is None:
        return Entry(board, receipt, receipt.result(board), MARK if receipt.mark else CLAIMED,
                     receipt.time)
    if not found.holds:
        raise LabError(f"it was measured again and does not hold: {found.why}")
    return Entry(board, found.receipt, found.receipt.result(board), VERIFIED_STATE, receipt.time)


def _standings(entries: Sequence[Entry]) -> list[Standing]:
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.board.name, entry.device), []).append(entry)
    return [Standing(group[0].board, device, _rows(group),
                     tuple(sorted(group, key=lambda entry: entry.time)),
                     pytorch.line(pytorch.times(group[0].board, device)))
            for (_, device), group in sorted(groups.items())]


def _rows(group: Sequence[Entry]) -> tuple[Entry, ...]:
    best: dict[tuple[str, bool], Entry] = {}
    for entry in group:
        key = entry.name, entry.state == MARK
        other = best.get(key)
        # A verified result stands before a claim, however good the claim is.
        if other is None or _rank(entry) > _rank(other):
            best[key] = entry
    places = itertools.count(1)
    return tuple(replace(entry, place=next(places)) if entry.state == VERIFIED_STATE else entry
                 for entry in sorted(best.values(), key=lambda entry: -entry.result.speedup))


def _rank(entry: Entry) -> tuple[bool, float]:
    return entry.state != CLAIMED, entry.result.speedup
