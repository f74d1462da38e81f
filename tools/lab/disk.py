"""Files, read and written byte by byte: as a whole, or not at all."""

import contextlib
import tempfile
from pathlib import Path

from lab.errors import LabError


def read_exact(path: Path) -> str:
    """A file's text such that write_exact gives the same bytes back."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def check_writable(folder: Path) -> None:
    """LabError where no file can be written into the folder: before the work for that file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise LabError(f"{folder} cannot be written ({error.strerror})") from None


def write_exact(path: Path, text: str | bytes) -> None:
    """Writes the whole file or nothing of it."""
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    temporary = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # such as a disk that is full
            temporary.unlink(missing_ok=True)
        raise LabError(f"{path} cannot be written ({error.strerror})") from None
