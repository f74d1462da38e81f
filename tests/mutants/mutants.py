#!/usr/bin/env python3
"""Copies a .cu file so that each of its barriers can be switched off at run time.

    python3 mutants.py KERNELS.cu COPY.cu

A mutant is the file without one call of a barrier, fence or wait, or with one atomicAdd() as an
ordinary addition. All mutants are in one copy, which is compiled once: each such call has a number,
and the copy skips the call whose number is flash::mutants::switched_off, a variable of the copy.
The copy also defines flash_mutants_KERNELS(), which gives the list of the calls. It has the line
numbers and the name of the original, so that the emulator reports places in the original.

A ladder's headers are part of the copy, and their calls have numbers, too. What they declare is in
a namespace of the copy, since other copies in the same library have it as well.

If the checks cannot notice that a barrier is missing, say so in a comment on its line:

    __syncthreads();  // no race without it: REASON
    __syncwarp();     // no race without it in 6_wgmma_one_pass: REASON
"""

import json
import re
import sys
from pathlib import Path

BARRIERS = (
    *("__syncthreads", "__syncwarp", "cp_async_commit", "cp_async_wait"),
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
  | ^\#include[ ]"(?P<header> [^"\n]+ )"\n
  | "(?:\\.|[^"\\\n])*" | (?<!\w)'(?:\\.|[^'\\\n])+'
  | (?P<condition> ^[ \t]*\#[ \t]*(?:if|ifdef|ifndef|elif|else|endif)\b(?:\\\n|[^\n])* )
  | \bvoid[ ]\w+\(
  | (?P<barrier> (?:\w+(?:::|\.))* \b(?:{"|".join(BARRIERS)})\b (?=\s*[(<]) )
  | (?P<atomic> (?:::)? \b(?:{"|".join(ATOMICS)})\b [ ]*\( )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
EXCUSE = re.compile(r"//.*?\bno race without it(?: in (?P<file>\w+))?: *(?P<reason>.*)")
NAMESPACE = re.compile(r"^namespace flash::(\w+) \{", re.MULTILINE)


class Copy:
    """The text of the copy of a file, and of its headers."""

    def __init__(self, original: Path) -> None:
        self.original = original
        self.table: list[str] = []  # the entries of all(), each under its call's #if
        self.count = 0
        self.headers: set[Path] = set()
        self.namespaces: set[str] = set()
        text = self._mutated(original)
        for name in self.namespaces:
            text = re.sub(rf"\b{name}\b(?=\s*(?:::|\{{|;))", f"{name}_{self._stem()}", text)
        entries = "\n".join(self.table)
        self.text = f"""\
#include "tests/mutants/mutants.hpp"
namespace flash::mutants {{
static int switched_off = -1;
static bool reached[{max(self.count, 1)}];
// The emulator's checks do not see it.
[[gnu::noinline, gnu::no_sanitize("thread"), maybe_unused]] static bool is_off(int number) {{
  reached[number] = true;
  return switched_off == number;
}}
}}
{text}
namespace flash::mutants {{
extern "C" FLASH_EXPORT void flash_mutants_{self._stem()}(std::vector<Mutant>& list) {{
  list = {{
{entries}
  }};
}}
}}  // namespace flash::mutants
"""

    def _stem(self) -> str:
        return self.original.name.split(".")[0]

    def _mutated(self, file: Path) -> str:
        source = file.read_text(encoding="utf-8")
        lines = source.splitlines()

        def replace(token: re.Match[str]) -> str:
            text = token.group()
            if token["condition"]:
                self.table.append(text)
            line = source.count("\n", 0, token.start()) + 1
            if token["header"]:
                if (included := self._included(token["header"])) is None:
                    return text
                return f"{included}\n#line {line + 1} {quoted(file)}\n"
            if not (token["barrier"] or token["atomic"]):
                return text
            excuse = EXCUSE.search(lines[line - 1])
            holds = excuse and excuse["file"] in (None, self._stem())
            in_header = "true" if file != self.original else "false"
            self.table.append(
                f"{{{self.count}, {quoted(f'{file}:{line}')}, {quoted(lines[line - 1].strip())}, "
                f"{quoted(excuse['reason'] if holds else '')}, {in_header}, &switched_off, "
                f"&reached[{self.count}]}},")
            is_off = f"::flash::mutants::is_off({self.count})"
            self.count += 1
            if token["atomic"]:
                return f"::flash::mutants::add(!{is_off}, "
            return f"{is_off} ? (void)0 : {text}"

        return f"#line 1 {quoted(file)}\n{TOKEN.sub(replace, source)}"

    def _included(self, name: str) -> str | None:
        """The text of the header `name`; None if it is not of this ladder."""
        header = self.original.parent / Path(name).name
        if header.parent.name != "ladder" or not str(header).endswith(f"/{name}"):
            return None
        if header in self.headers:
            return ""
        self.headers.add(header)
        self.namespaces.update(NAMESPACE.findall(header.read_text(encoding="utf-8")))
        return self._mutated(header).replace("#pragma once\n", "\n")


def quoted(text: object) -> str:
    return json.dumps(str(text))


if __name__ == "__main__":
    original, target = map(Path, sys.argv[1:])
    target.write_text(Copy(original).text, encoding="utf-8")
