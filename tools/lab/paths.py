"""Where things are."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]  # where this package lives
ROOT = REPOSITORY  # of the course: in tests a temporary folder
BUILD = ROOT / "build" / "default"
OUTPUTS = ROOT / "outputs"
STATE = ROOT / ".lab"


def build_folder(preset: str = "default") -> Path:
    return ROOT / "build" / preset


def relative(path: Path | str) -> str:
    """`path` as a person at the root would type it; unchanged when it lies outside."""
    path = Path(path)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
