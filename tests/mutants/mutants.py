#!/usr/bin/env python3
"""Copies a .cu file so that each of its barriers can be switched off at run time.

    python3 mutants.py KERNELS.cu COPY.cu

A mutant is the file without one call of a barrier, fence or wait, or with one atomicAdd() as an
ordinary addition. All mutants are in one copy, which is compiled once: each such call has a number,
and the copy skips the call whose number is flash::mutants::switched_off, a variable of the copy.
The copy also defines flash_mutants_KERNELS(), which gives the list of the calls. It has the line
numbers and the name of the original, so that the emulator reports places in the original.

If the checks cannot notice that a barrier is missing, say so in a comment on its line:

    __syncthreads();  // no race without it: REASON
"""

import json
import re
import sys
from pathlib import Path

BARRIERS = (
    *("__syncthreads", "__syncwarp", "cp_async_wait"),
    *("wait", "arrive", "arrive_expecting", "fence_barrier_init", "sync_named", "arrive_named"),
    *("wait_full", "wait_empty", "release"),  # of a Pipeline
    "tell",  # a warp arrives
    *("fence_proxy_async", "tma_commit", "tma_wait", "tma_wait_read"),
    *("wgmma_fence", "wgmma_commit", "wgmma_wait"),
)
ATOMICS = ("atomicAdd",)

# What to skip comes first: the names also occur in comments and strings.
TOKEN = re.compile(
    rf"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
  | "(?:\\.|[^"\\\n])*" | (?<!\w)'(?:\\.|[^'\\\n])+'
  | (?P<condition> ^[ \t]*\#[ \t]*(?:if|ifdef|ifndef|elif|else|endif)\b(?:\\\n|[^\n])* )
  | (?P<barrier> (?:\w+(?:::|\.))* \b(?:{"|".join(BARRIERS)})\b (?=\s*[(<]) )
  | (?P<atomic> (?:::)? \b(?:{"|".join(ATOMICS)})\b [ ]*\( )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
EXCUSE = re.compile(r"//.*?\bno race without it: *(.*)")


def mutate(source: str, name: str) -> str:
    """The text of the copy of `source`, which is the file `name`."""
    lines = source.splitlines()
    table: list[str] = []  # the entries of all(), each under its call's #if
    count = 0

    def replace(token: re.Match[str]) -> str:
        nonlocal count
        text = token.group()
        if token["condition"]:
            table.append(text)
        if not (token["barrier"] or token["atomic"]):
            return text
        line = source.count("\n", 0, token.start()) + 1
        excuse = EXCUSE.search(lines[line - 1])
        text_and_excuse = map(json.dumps, (lines[line - 1].strip(), excuse[1] if excuse else ""))
        table.append(f"{{{count}, {json.dumps(f'{name}:{line}')}, {', '.join(text_and_excuse)}, "
                     "&switched_off},")
        number, count = count, count + 1
        if token["atomic"]:
            return f"::flash::mutants::add(::flash::mutants::switched_off != {number}, "
        return f"::flash::mutants::switched_off == {number} ? (void)0 : {text}"

    copy = TOKEN.sub(replace, source)
    entries = "\n".join(table)
    return f"""\
#include "tests/mutants/mutants.hpp"
namespace flash::mutants {{ static int switched_off = -1; }}
#line 1 {json.dumps(name)}
{copy}
namespace flash::mutants {{
extern "C" FLASH_EXPORT void flash_mutants_{Path(name).name.split(".")[0]}(
    std::vector<Mutant>& list) {{
  list = {{
{entries}
  }};
}}
}}  // namespace flash::mutants
"""


if __name__ == "__main__":
    original, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.write_text(mutate(original.read_text(encoding="utf-8"), str(original)), encoding="utf-8")
