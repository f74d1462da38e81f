"""The hint for a mistake that the harness named: tests/harness/diagnosis/hints.toml."""

import re

import tomllib

from lab import paths


def load() -> list[tuple[str, str]]:
    """What the names have in common, and the hint."""
    file = paths.ROOT / "tests/harness/diagnosis/hints.toml"
    return [(entry["names"], entry["hint"].strip())
            for entry in tomllib.loads(file.read_text(encoding="utf-8"))["hint"]]


def of(diagnosis: str) -> str:
    """"" where there is none."""
    if not diagnosis:
        return ""
    return next((hint for names, hint in load() if re.search(names, diagnosis)), "")
