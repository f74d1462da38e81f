"""The hints for kinds of mistakes: tests/harness/diagnosis/hints.toml."""

import re
from collections.abc import Sequence

import tomllib

from lab import paths


# What a failed case without a name is about, by its name or by its requirement.
KINDS = {"slices": "slices", "NaN": "nan", "inf|no keys": "empty-row",
         "negative|-1.2e9|rising|large scores": "maximum", "far apart": "shared-maximum",
         "strides": "strides", "elements apart": "offsets", "mask": "mask", "causal": "mask",
         "ragged ends": "keys", "delta|d[KQV]": "gradients", "scale": "scale"}


def kind_of(case: str, requirement: str) -> str:
    """The kind of mistakes that a case looks for; "" where it looks for all of them."""
    if kernel := re.match(r"kernel \d+(?=: )", case):  # of the ten small ones
        return kernel[0]
    return next((kind for about, kind in KINDS.items()
                 if re.search(about, case) or re.fullmatch(about, requirement)), "")


def of(kind: str, own: Sequence[str]) -> str:
    """"" where there is none. `own` are those of the task: of the small kernels one each."""
    if kernel := re.fullmatch(r"kernel (\d+)", kind):
        return own[int(kernel[1]) - 1].strip()
    file = paths.ROOT / "tests/harness/diagnosis/hints.toml"
    return tomllib.loads(file.read_text()).get(kind, "").strip() if kind else ""
