"""Who stands where: from receipts and verifications to the rows of a board."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab import paths, released, text
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
    person: str = ""   # of verified entries only
    place: int | None = None

    @property
    def name(self) -> str:
        return self.receipt.name

    @property
    def time(self) -> str:
        return self.receipt.time

    @property
    def device(self) -> str:
        return self.receipt.device


@dataclass(frozen=True)
class Standing:
    """One board on one model of device."""

    board: Board
    device: str
    rows: tuple[Entry, ...]    # best per person: verified and marks, the fastest first, then claims
    verified: tuple[Entry, ...]  # all of them, the oldest first
    beside: str = ""           # a sentence about what else is known to compare with


def collect(places: Iterable[Path]) -> tuple[list[Standing], list[str]]:
    """The standings, and of each receipt that is left out the reason."""
    known = {board.sha256: board for board in boards.load_all()}
    left_out: list[str] = []
    judged: dict[str, Verification] = {}
    for file in _files([receipts.folder(VERIFIED)]):
        try:
            found = receipts.load_verification(file)
        except Exception as error:
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
            digest = released.sha256(file)
            if digest in seen:
                continue
            seen.add(digest)
            is_ours = file.resolve().is_relative_to(receipts.folder(MARKS).resolve())
            if receipt.mark and not is_ours:
                raise LabError("only a mark that was measured here stands on the board")
            entries.append(_entry(receipt, known, judged.get(digest)))
        except Exception as error:  # whatever is in it, the others stand on the page
            why, shown = str(error) or type(error).__name__, paths.relative(file)
            left_out.append(why if why.startswith(shown) else f"{shown}: {why}")
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.board.name, entry.device), []).append(entry)
    # A device that only claims name comes last: there may be any number of them.
    return [_standing(group, left_out) for _, group in sorted(groups.items(), key=lambda item: (
        all(entry.state == CLAIMED for entry in item[1]), item[0]))], left_out


def _files(places: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        if place.is_file():
            found.append(place)
        elif place.is_dir():
            found += sorted(place.rglob("*.json"))
    return found


def _entry(receipt: Receipt, known: dict[str, Board], found: Verification | None) -> Entry:
    board = known.get(receipt.board_sha256)
    if board is None or board.name != receipt.board:
        raise LabError(f"it is for another version of the board {receipt.board}")
    if not receipt.mark and text.looks(receipt.name) in map(text.looks, ("solution", *board.marks)):
        raise LabError(f'"{receipt.name}" looks like a mark: another name is needed')
    if found is None:
        state = MARK if receipt.mark else CLAIMED
        entry = Entry(board, receipt, receipt.result(board), state)
    elif not found.holds:
        raise LabError(f"it was measured again and does not hold: {found.why}")
    else:
        again = found.receipt
        entry = Entry(board, again, again.result(board), VERIFIED_STATE, found.person)
    _ = entry.result.uncertainty  # so that nothing is left to fail when the page is made
    return entry


def _standing(group: Sequence[Entry], left_out: list[str]) -> Standing:
    """A verified result stands before a claim, however good the claim is. A person has one row, and
    so have names that look the same; and claims with the same files are one person's."""
    rows: list[Entry] = []
    seen: dict[object, Entry] = {}
    for entry in sorted(group, key=lambda entry: (entry.state == CLAIMED, -entry.result.speedup)):
        files = tuple(entry.receipt.sources.values())
        mine = [(entry.state == MARK, text.looks(entry.name)), entry.person or files]
        first = next((seen[key] for key in mine[:2 - (entry.state == MARK)] if key in seen), entry)
        if first is entry:
            rows.append(entry)
        elif first.name != entry.name:
            left_out.append(f"{entry.name} on {entry.board.name}: its name or its files are those "
                            f"of {first.name}")
        if first is entry or entry.state != CLAIMED:
            seen |= dict.fromkeys((*mine, files), first)
    places = itertools.count(1)
    board, device = group[0].board, group[0].device
    return Standing(board, device, tuple(
        replace(entry, place=next(places)) if entry.state == VERIFIED_STATE else entry
        for entry in rows), tuple(sorted(
            (entry for entry in group if entry.state == VERIFIED_STATE),
            key=lambda entry: entry.time)), pytorch.line(pytorch.times(board, device)))
