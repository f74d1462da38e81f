"""Receipts: what a submission to a board leaves, and what a verification adds.

    outputs/leaderboard/receipts/    submissions that were measured here
    outputs/leaderboard/marks/       the solution and the rungs of a ladder, measured like these
    outputs/leaderboard/verified/    receipts of others that ./lab leaderboard verify measured again

A receipt comes from anywhere: each value has a range, its numbers are computed anew from its
samples and the board's file, and it gets a place only when the last of these folders says so.
"""

import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lab import disk, manifest, paths, released, text
from lab.errors import LabError
from lab.leaderboard.boards import Board
from lab.leaderboard.measuring import Measured
from lab.leaderboard.result import Result, result_of
from lab.manifest import is_text
from lab.submission import submissions

FORMAT = 2
FOLDER = "leaderboard"  # of outputs/
RECEIPTS, MARKS, VERIFIED = "receipts", "marks", "verified"
LARGEST = 4 << 20  # bytes of a receipt
TIME = "%Y-%m-%dT%H:%M:%SZ"
NAME = r"[^\W_](?:[\w. +-]{0,28}[\w.-])?"
NAME_IS = ("1 to 30 letters of one alphabet, digits, spaces, and . - _ +, and begin with a letter or a "
           "digit")


@dataclass(frozen=True)
class Receipt:
    format: int
    board: str
    board_sha256: str
    name: str                  # of a person: a pseudonym will do
    mark: bool                 # measured to compare with: it has no place
    time: str                  # UTC, "2026-01-31T12:00:00Z"
    course: str                # its version
    sources: dict[str, str]    # path -> sha256
    machine: dict[str, object]
    compiler: list[str]        # and its options
    samples: list[dict[str, object]]

    @property
    def device(self) -> str:
        return " ".join(str(self.machine["device"]).split())

    def result(self, board: Board) -> Result:
        return result_of(board, self.samples)


@dataclass(frozen=True)
class Verification:
    """What became of a receipt when it was measured again."""

    verifies: str    # sha256 of the receipt's file
    holds: bool
    why: str         # where it does not hold
    person: str      # whose files they are
    receipt: Receipt  # as it was measured again


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime(TIME)


def make(board: Board, name: str, sources: Mapping[str, bytes], machine: dict[str, object],
         compiler: Sequence[str], measured: Measured) -> Receipt:
    return Receipt(FORMAT, board.name, board.sha256, name, False, now(),
                   str(released.version_of(paths.ROOT)),
                   {path: hashlib.sha256(text).hexdigest() for path, text in sources.items()},
                   machine, list(compiler), list(measured.samples))


def folder(kind: str) -> Path:
    return paths.OUTPUTS / FOLDER / kind


def save(receipt: Receipt, kind: str) -> Path:
    """Writes a new file; an older receipt is never replaced."""
    stem = re.sub(r"[^\w.-]+", "_", f"{receipt.board}-{receipt.time}-{receipt.name}")
    return _write(folder(kind), stem, json.dumps(asdict(receipt), indent=1))


def save_verification(verification: Verification) -> Path:
    stem = f"{verification.verifies[:16]}-{verification.receipt.time.replace(':', '')}"
    return _write(folder(VERIFIED), stem, json.dumps(asdict(verification), indent=1))


def _write(place: Path, stem: str, text: str) -> Path:
    number, file = 1, place / f"{stem}.json"
    while file.exists():
        number += 1
        file = place / f"{stem}-{number}.json"
    disk.write_exact(file, text + "\n")
    return file


def load(file: Path) -> Receipt:
    return _receipt(_json(file), file)


def load_verification(file: Path) -> Verification:
    data = _json(file)
    try:
        return Verification(str(data["verifies"]), data["holds"] is True, str(data["why"]),
                            str(data["person"]), _receipt(data["receipt"], file))
    except (KeyError, TypeError, AttributeError) as error:
        raise LabError(f"{paths.relative(file)} is no verification: {error!r}") from None


def _json(file: Path) -> dict:
    try:
        data = submissions.bytes_of(file, LARGEST)
    except OSError as error:
        raise LabError(f"{paths.relative(file)} cannot be read ({error.strerror})") from None
    if len(data) > LARGEST:
        raise LabError(f"{paths.relative(file)} is no receipt: more than {LARGEST} bytes")
    try:
        data = json.loads(data)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise LabError(f"{paths.relative(file)} is no receipt; ./lab submit BOARD --name NAME "
                       f"writes receipts into {paths.relative(folder(RECEIPTS))}/")
    return data


_is_digest = is_text(r"[0-9a-f]{64}")


def _is_time(value: object) -> bool:
    try:
        moment = datetime.datetime.strptime(str(value), TIME)
    except ValueError:
        return False
    tomorrow = datetime.datetime.strptime(now(), TIME) + datetime.timedelta(days=1)
    return moment.strftime(TIME) == value and datetime.datetime(2020, 1, 1) < moment < tomorrow


def is_name(value: object) -> bool:
    return is_text(NAME)(value) and text.has_one_alphabet(value)


# What the value of a key must be: a test, and the words for it.
_KEYS = {
    "format": (lambda value: value == FORMAT, f"{FORMAT}: another version of the course wrote it"),
    "board": (is_text(r"[\w-]{1,60}"), "the name of a board"),
    "board_sha256": (_is_digest, "a SHA-256"),
    "name": (is_name, NAME_IS),
    "mark": (lambda value: isinstance(value, bool), "true or false"),
    "time": (_is_time, "a time such as 2026-01-31T12:00:00Z, and not in the future"),
    "course": (is_text(r"[\w. ()-]{1,80}"), "a version of the course"),
    "sources": (lambda value: isinstance(value, dict) and 0 < len(value) < 10 and all(
        re.fullmatch(r"[\w./-]{1,200}", path) and _is_digest(digest)
        for path, digest in value.items()), "paths with a SHA-256 each"),
    "machine": (lambda value: isinstance(value, dict) and is_text(
        r"[\w .,()@/+-]{1,120}")(value.get("device")), "an object with a device"),
    "compiler": (lambda value: isinstance(value, list) and all(
        isinstance(word, str) for word in value), "a list of texts"),
    "samples": (lambda value: isinstance(value, list) and len(value) <= 10_000 and all(
        isinstance(one, dict) for one in value), "a list of objects"),
}


def _receipt(data: dict, file: Path) -> Receipt:
    manifest.check(f"{paths.relative(file)} is no receipt", data, _KEYS)
    return Receipt(**data)


def own(board: Board, device: str, name: str = "") -> list[Receipt]:
    """The receipts of submissions that were measured here, the oldest first: of this version of the
    board, on this device, by this name (or any)."""
    found = []
    for file in sorted(folder(RECEIPTS).glob("*.json")):
        try:
            receipt = load(file)
        except LabError:
            continue  # ./lab leaderboard says what is wrong with it
        if (receipt.board_sha256, receipt.device) == (board.sha256, device) and (
                not name or receipt.name == name):
            found.append(receipt)
    return sorted(found, key=lambda receipt: receipt.time)
