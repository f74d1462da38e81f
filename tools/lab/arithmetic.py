"""The compiler's assembly of a kernel with counters: how often threads run each piece of straight
code, and what arithmetic it has, by source line (emulator/check/straight_code.hpp). x86-64 only.
"""

import platform
import re
from collections import Counter
from collections.abc import Iterator

IS_KNOWN = platform.machine() in ("x86_64", "AMD64")
OPTIONS = ("-mno-red-zone", "-S", "-o")  # of the compiler: a counter needs the stack
_FILE = re.compile(r'\t\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_LOC = re.compile(r"\t\.loc\s+(\d+)\s+(\d+)")
# A thread may wait in a call, but not in one of the instrumentation.
_ENDS = re.compile(r"\s(?:j\w+|ret|notrack|callq?\s(?!__(?:tsan|ubsan)))")
_FUSED, _TIMES, _PLUS = (re.compile(name) for name in (
    r"vfn?m(?:add|sub)\d+[sp][sd]", r"v?mul[sp][sd]", r"v?(?:add|sub)[sp][sd]"))
_NOT_OURS = re.compile(r"/emulator/headers/|^/usr/")  # functions of CUDA, and of the C++ library


def counted(text: str) -> str:
    """The assembly with a counter for each piece."""
    return "\n".join(_lines(text)) + "\n"


def _lines(text: str) -> Iterator[str]:
    files: dict[str, str] = {}
    rows: list[tuple[str, str, int, int, int, int]] = []  # file, line, piece, and what it has
    piece, pieces, place = Counter(), 0, ("", "")
    yield from ("\t.macro flash_piece number", "\tpushq\t%rax",
                "\tmovq\t.Lflash_times+8*\\number(%rip), %rax", "\tleaq\t1(%rax), %rax",
                "\tmovq\t%rax, .Lflash_times+8*\\number(%rip)", "\tpopq\t%rax", "\t.endm")
    for line in text.split("\n"):
        if found := _LOC.match(line):
            place = files.get(found[1], ""), found[2]
        elif found := _FILE.match(line):
            files[found[1]] = f"{found[2]}/{found[3]}" if found[3] else found[2]
        elif line[:1] not in "\t " or _ENDS.match(line):
            if piece:
                rows += ((*where, pieces, *(piece[where, what] for what in ("", "*", "+")))
                         for where in dict.fromkeys(where for where, _ in piece))
                yield f"\tflash_piece {pieces}"
                pieces, piece = pieces + 1, Counter()
        if line[:1] == "\t" and line[1:2] not in ".#" and not _NOT_OURS.search(place[0]):
            name = line.split(None, 1)[0]
            numbers = 1
            if name[-2:-1] == "p":  # a vector
                numbers = (32 if "%ymm" in line else 16) // (4 if name[-1] == "s" else 8)
            piece[place, ""] += 1
            piece[place, "*"] += numbers * bool(_FUSED.fullmatch(name) or _TIMES.fullmatch(name))
            piece[place, "+"] += numbers * bool(_FUSED.fullmatch(name) or _PLUS.fullmatch(name))
        yield line
    names = {name: n for n, name in enumerate(dict.fromkeys(row[0] for row in rows))}
    yield from ("\t.bss", "\t.align 8", ".Lflash_times:", f"\t.zero {8 * max(1, pieces)}",
                "\t.data", "\t.align 8", ".Lflash_rows:")
    for name, *numbers in rows:
        yield f"\t.quad .Lflash_file{names[name]}, .Lflash_times+8*{numbers[1]}"
        yield f"\t.long {numbers[0]}, {', '.join(map(str, numbers[2:]))}"
    yield ".Lflash_rows_end:"
    for name, n in names.items():
        yield f'.Lflash_file{n}:\t.string "{name}"'
    yield from ("\t.text", ".Lflash_tell:", "\tleaq\t.Lflash_rows(%rip), %rdi",
                "\tleaq\t.Lflash_rows_end(%rip), %rsi", "\tjmp\tflash_simt_pieces@PLT",
                '\t.section .init_array,"aw"', "\t.align 8", "\t.quad .Lflash_tell")
