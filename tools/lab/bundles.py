"""What a student hands in: an archive of the files that he may change, and an index of them."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from lab import disk
from lab.errors import LabError
from lab.manifest import Task

# In the place of a result that has too many bytes.
TOO_LARGE = b"(too large)"

FORMAT = 1
INDEX = "bundle.json"  # in the archive, beside the files: who reads it checks all of it
LARGEST = 1 << 20  # bytes of one file; the largest solution has 20 thousand


def content_of(task: Task, implementation: str = "skeleton") -> bytes:
    path, shown = task.path(implementation), task.shown_path(implementation)
    if path.is_symlink() or not path.is_file():
        raise LabError(f"{shown} must be an ordinary file, and no link")
    content = path.read_bytes()
    if len(content) > LARGEST:
        raise LabError(f"{shown} has {len(content)} bytes; {LARGEST} are the most")
    return content


def pack(output: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, (content, mode) in files.items():
            entry = zipfile.ZipInfo(path)  # of 1980: the same files give the same archive
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    disk.write_exact(output, packed.getvalue())
