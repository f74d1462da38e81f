"""Receipts: what a submission to a board leaves, and what a verification adds.

    outputs/leaderboard/receipts/    submissions that were measured here
    outputs/leaderboard/marks/       the solution and the rungs of a ladder, measured like these
    outputs/leaderboard/verified/    receipts of others that ./lab leaderboard verify measured again

A receipt comes from anywhere, so that nothing in it is believed: its numbers are computed anew from
its samples, and it gets a place only when the last of these folders says so.
"""

import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lab import derive, handout, paths
from lab.errors import LabError
from lab.leaderboard.boards import Board
from lab.leaderboard.measuring import Measured
from lab.leaderboard.result import Result, result_of

FORMAT = 1
FOLDER = "leaderboard"  # of outputs/
RECEIPTS, MARKS, VERIFIED = "receipts", "marks", "verified"
LARGEST = 4 << 20  # bytes of a receipt
NAME = r"[\w.-](?:[\w. -]{0,28}[\w.-])?"
NAME_IS = "1 to 30 letters, digits, spaces, dots, dashes and underscores"


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
    seed: int
    samples: list[dict[str, object]]

    @property
    def device(self) -> str:
        return str(self.machine["device"])

    def result(self, board: Board) -> Result:
        return result_of(board, self.samples)


@dataclass(frozen=True)
class Verification:
    """What became of a receipt when it was measured again."""

    verifies: str    # sha256 of the receipt's file
    holds: bool
    why: str         # where it does not hold
    receipt: Receipt  # as it was measured again


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def make(board: Board, name: str, sources: Mapping[str, bytes], machine: dict[str, object],
         compiler: Sequence[str], measured: Measured) -> Receipt:
    return Receipt(FORMAT, board.name, board.sha256, name, False, now(),
                   str(handout.version_of(paths.ROOT)),
                   {path: hashlib.sha256(text).hexdigest() for path, text in sources.items()},
                   machine, list(compiler), measured.seed, list(measured.samples))


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
    derive.write_exact(file, text + "\n")
    return file


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def load(file: Path) -> Receipt:
    """LabError where the file is no receipt."""
    return _receipt(_json(file), file)


def load_verification(file: Path) -> Verification:
    data = _json(file)
    try:
        return Verification(str(data["verifies"]), data["holds"] is True, str(data["why"]),
                            _receipt(data["receipt"], file))
    except KeyError as error:
        raise LabError(f"{paths.relative(file)} is no verification: it has no {error}") from None


def _json(file: Path) -> dict:
    try:
        if file.stat().st_size > LARGEST:
            raise LabError(f"{paths.relative(file)} is no receipt: more than {LARGEST} bytes")
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise LabError(f"{paths.relative(file)} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise LabError(f"{paths.relative(file)} is no receipt; ./lab submit BOARD --name NAME "
                       f"writes receipts into {paths.relative(folder(RECEIPTS))}/")
    return data


_DIGEST = r"[0-9a-f]{64}"


def _receipt(data: object, file: Path) -> Receipt:
    def wants(key: str, fits: bool, wanted: str) -> None:
        if not fits:
            raise LabError(f"{paths.relative(file)} is no receipt: {key} must be {wanted}")

    def text(key: str, pattern: str) -> bool:
        return isinstance(data.get(key), str) and bool(re.fullmatch(pattern, data[key]))

    wants("it", isinstance(data, dict) and data.keys() == Receipt.__dataclass_fields__.keys(),
          f"an object with the keys {', '.join(Receipt.__dataclass_fields__)}")
    wants("format", data["format"] == FORMAT, f"{FORMAT}: another version of the course wrote it")
    wants("board", text("board", r"[\w-]{1,60}"), "the name of a board")
    wants("board_sha256", text("board_sha256", _DIGEST), "a SHA-256")
    wants("name", text("name", NAME), NAME_IS)
    wants("mark", isinstance(data["mark"], bool), "true or false")
    wants("time", text("time", r"20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\dZ") and
          _is_time(data["time"]), "a time such as 2026-01-31T12:00:00Z")
    wants("course", text("course", r"[\w. ()-]{1,80}"), "a version of the course")
    sources = data["sources"]
    wants("sources", isinstance(sources, dict) and 0 < len(sources) < 10 and all(
        re.fullmatch(r"[\w./-]{1,200}", path) and isinstance(digest, str)
        and re.fullmatch(_DIGEST, digest) for path, digest in sources.items()),
        "paths with a SHA-256 each")
    machine = data["machine"]
    wants("machine", isinstance(machine, dict) and isinstance(machine.get("device"), str) and
          bool(re.fullmatch(r"[\w .,()@/+-]{1,120}", machine["device"])), "an object with a device")
    wants("compiler", isinstance(data["compiler"], list)
          and all(isinstance(word, str) for word in data["compiler"]), "a list of texts")
    wants("seed", type(data["seed"]) is int, "a whole number")
    samples = data["samples"]
    wants("samples", isinstance(samples, list) and len(samples) <= 10_000
          and all(isinstance(one, dict) for one in samples), "a list of objects")
    return Receipt(**data)


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return False
    return True


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
