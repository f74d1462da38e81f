"""The hints for kinds of mistakes: tests/harness/diagnosis/hints.toml."""

import tomllib

from lab import paths


def of(kind: str) -> str:
    """"" where there is none."""
    file = paths.ROOT / "tests/harness/diagnosis/hints.toml"
    return tomllib.loads(file.read_text()).get(kind, "").strip() if kind else ""
