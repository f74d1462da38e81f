"""What a student's .cu file for the emulator may say, read behind the preprocessor.

The preprocessor runs once, and its text is compiled for both emulated builds: nothing in it can
tell the two apart. What the file may include comes first; then a mark that nobody can guess; all
behind the mark is the student's, whatever its lines claim to be.
"""

import re
import secrets
from pathlib import Path

HEADERS_OF_CUDA = "/emulator/headers/"

# The standard library's headers: what of it is the host's, the audit of the object and the checks
# say. Not <atomic>, whose operations are none of CUDA's, nor <iostream>, which makes its objects
# when it is loaded, even where the file only seems to include it; no processor's instructions.
_STANDARD = re.compile(r"(?!(atomic|iostream)$)\w+|(assert|ctype|dlfcn|errno|float|inttypes"
                       r"|limits|math|pthread|setjmp|signal|std(arg|def|int|io|lib)|string|time"
                       r"|unistd)\.h")
_MACROS = ("FLASH_SIMT", "__CUDACC__", "__NVCC__", "__CUDA_ARCH__", "__SANITIZE_THREAD__")
_MANAGED = "__managed__"
_EMULATED = "code must not know whether it runs on a GPU or on the emulator"
_INSIDE = "it is inside the emulator"
_UNSEEN = "the emulator's checks would not see what it does"
_RESERVED = "names that begin like this are the compiler's, except for CUDA's own"
_ELSEWHERE = ("in a class a kernel does not share memory with host code; give it its numbers as "
              "arguments, or write them into the file")
_WORDS = {"is_emulated": _EMULATED, "asm": _UNSEEN, "gnu": _UNSEEN,
          **dict.fromkeys((f"cuda{name}" for name in (
              "MemcpyToSymbol", "MemcpyToSymbolAsync", "MemcpyFromSymbol", "MemcpyFromSymbolAsync",
              "GetSymbolAddress", "GetSymbolSize")), _ELSEWHERE)}
# Of the compiler's own names: what common macros stand for.
_OF_COMPILER = re.compile(
    r"__builtin_(inff?|nanf?|huge_valf?|offsetof|unreachable|expect|assume_aligned|popcount|clz|ctz"
    r"|ffs)"
    r"|__(restrict|func__|FUNCTION__|PRETTY_FUNCTION__|assert_fail|extension__)")
# What the course's and CUDA's macros leave in the text.
_OF_MACROS = re.compile(r"::flash::simt::dynamic_shared_memory\(\)"
                        r"|\[\[gnu::visibility\(\s*\)\]\]"  # "default" is a text
                        r"|__attribute__\(\(always_inline\)\)")
_OF_ALIGNAS = re.compile(r"__attribute__\(\(aligned\((flash::simt::alignment<)?")
_LONGEST = 1000  # of what stands in alignas(): nobody searches all of the text for its end
_PRAGMAS = re.compile(r"#pragma (unroll\b.*|nv_\w+.*|once|GCC diagnostic .*)")
_TOKEN = re.compile(
    r'(?s:(?:u8|[uUL])?R"(?P<raw>[^ ()\\\t\n]*)\((?:.*?\)(?P=raw)"\w*|(?P<open>.*)))'
    # With the suffix: behind it R"( begins no raw text.
    r'|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"\w*|(?:u8|[uUL])?\'(?:\\.|[^\'\\\n])*\'\w*'
    r"|\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*"
    r"|(?P<line>^\#.*$)|(?P<word>[^\W\d]\w*)", re.MULTILINE)


_LIBRARIES = r"std|nvcuda|cooperative_groups|cuda|__\w+"

_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*(?P<shown>[<"](?P<name>[\w./+-]+)[>"])')
# Why a header may not be included.
_NO_USE = {"iostream": "it runs code before the first call; use printf",
           "atomic": "its operations are none of CUDA's; use atomicAdd() and the like"}
_MANY = 8  # findings that are worth the time


class Source:
    """The text of one file, before the preprocessor and behind it."""

    def __init__(self, text: str, course: Path) -> None:
        """`course` has the headers of the course that the file may include."""
        self.mark = f"#pragma flash_{secrets.token_hex(8)}"
        allowed = {str(file.relative_to(folder))
                   for folder in (course, course / HEADERS_OF_CUDA.strip("/"))
                   for file in folder.rglob("*") if file.is_file()}
        # By line, the name and how it is written.
        self._includes = {number: (found["name"], found["shown"])
                          for number, line in enumerate(text.split("\n"), 1)
                          if (found := _INCLUDE.match(line))}
        included = [name for name in dict.fromkeys(name for name, _ in self._includes.values())
                    if name in allowed or _STANDARD.fullmatch(name)]
        # The headers name what the file must not, and so come before the ban.
        self.first = "\n".join([*(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif"
                                  for name in included),
                                *(f"#pragma GCC poison {word}" for word in (*_MACROS, _MANAGED)),
                                self.mark, ""])

    def findings(self, text: str) -> list[str]:
        """What is refused of the preprocessed text, a sentence each."""
        before, own = text.split(self.mark, 1)
        cuda = _names_of_cuda(before)
        found: list[str] = []
        headers: list[str] = []  # what is said of those that the file may not include
        place, at = "", 0  # the student's file, and the line of its #include that is read
        file, line, last = "", before.count("\n"), 0
        own = _without_texts(own)  # first: in these nothing is a macro's
        own = _without_alignas(_OF_MACROS.sub(lambda gone: " " * len(gone[0]), own))
        for token in _TOKEN.finditer(own):
            line += own.count("\n", last, token.start())
            last = token.start()
            if file.endswith(".cu"):
                place, at = Path(file).name, line
            said = ""
            if token["open"] is not None:
                said = "begins a text that nothing ends"
            elif directive := token["line"]:
                if marker := re.match(r'# (\d+) "([^"]*)"', directive):
                    file, line = marker[2], int(marker[1]) - 1
                elif not _PRAGMAS.fullmatch(directive.rstrip()):
                    said = f"has `{directive[:60]}`: of pragmas a kernel needs only #pragma unroll"
            elif (word := token["word"]) and (why := self._why(word, cuda)):
                said = f"has `{word}`: {why}"
            if said and at and not file.endswith(".cu"):
                headers.append(f"line {at} of {place} includes {self._included(at, file)}")
            elif said:
                found.append(f"line {line} of {Path(file).name} {said}")
            if len(found) + len(headers) > _MANY:
                break
        if headers:
            return list(dict.fromkeys(found + headers))
        code = re.sub(r"\[\s*\[.*?\]\s*\]", " ", _TOKEN.sub(lambda token: token["word"] or " ", own))
        libraries = "|".join([_LIBRARIES, *re.findall(r"\bnamespace\s+(\w+)\s*=", code)])
        for statement in re.findall(r"[^;{}]+.", code):
            if _is_foreign(statement, libraries):
                shown = " ".join(statement.split())[:60]
                found.append(f"it has `{shown}`: a kernel needs no template of a library in a "
                             "version of its own, and the checks would not see what that does")
        if odd := re.search(r"[^ -~\s]|[\\$@`]", _TOKEN.sub("", own)):
            found.append(f"it has the character {odd[0]!r} outside of a text: names have letters "
                         "of ASCII only")
        return list(dict.fromkeys(found))

    def _included(self, line: int, file: str) -> str:
        """The header that this line of the student's file asks for, and why it may not."""
        name, shown = self._includes.get(line, ("", Path(file).name))
        return f"{shown}: {_NO_USE.get(name, 'a kernel and its launcher have no use for it')}"

    @staticmethod
    def _why(word: str, cuda: set[str]) -> str:
        if re.search(r"(?i)^simt(_detail)?$|flash_?simt|\dsimt", word):
            return _INSIDE
        if word.startswith("no_sanitize"):
            return _UNSEEN
        if re.match(r"__|_[A-Z]", word) and word not in cuda and not _OF_COMPILER.fullmatch(word):
            unseen = re.match(r"__(asm|attribute|atomic|sync|builtin)", word)
            return _UNSEEN if unseen else _RESERVED
        return _WORDS.get(word, "")


def _without_texts(text: str) -> str:
    """Blanks in the place of texts and numbers."""
    return _TOKEN.sub(lambda token: token[0] if token["word"] or token["line"] or
                      token["open"] is not None else re.sub(r"[^\n]", " ", token[0]), text)


def _without_alignas(text: str) -> str:
    """With the expression alone of each alignas() and __align__(), which are macros."""
    kept, last = [], 0
    for found in _OF_ALIGNAS.finditer(text):
        end, depth = found.start() + len("__attribute__((aligned"), 0
        for end in range(end, min(end + _LONGEST, len(text))):
            depth += (text[end] == "(") - (text[end] == ")")
            if depth == 0:
                break
        after = 3 if found[1] else 0  # >()
        if depth or found.start() < last or text[end:end + 3] != ")))" or (
                found[1] and text[end - after:end] != ">()"):
            continue
        kept += [text[last:found.start()], " " * len(found[0]), text[found.end():end - after],
                 " " * (after + 3)]
        last = end + 3
    return "".join([*kept, text[last:]])


def _is_foreign(statement: str, libraries: str) -> bool:
    """Whether a declaration, with the `;` or `{` behind it, specialises a class or a variable of a
    library or a member of any class, or opens its namespace. What the emulator's own code does with
    them nobody checks."""
    name = rf"\b({libraries})\s*::[\w\s:]*<"
    if re.search(rf"\bnamespace\s+(::\s*)?({libraries})\b[\w\s:]*{{$", statement):
        return True
    begin = re.search(r"\btemplate\s*(?=<)", statement)
    rest = statement[begin.end():] if begin else ""
    # A lambda in the type of what is declared ends the statement here, before the name.
    if re.search(r"[<,]\s*\[", rest) or rest.count("(") > rest.count(")"):
        return True
    is_special = False
    while rest.lstrip().startswith("<"):
        is_special |= bool(re.match(r"\s*<\s*>", rest))
        rest = rest[_end_of_list(rest, rest.index("<")):].lstrip()
        if rest.startswith("template"):
            rest = rest.removeprefix("template")
            continue
        if re.match(r"(struct|class|union)\b", rest):
            return bool(re.match(rf"[^<:]*(::\s*)?{name}", rest))
        if is_special and _MEMBER.search(_without_parentheses(rest)):
            return True
        end = 0
        while found := re.compile(name).search(rest, end):  # of a variable, before its value
            end, before = _end_of_list(rest, found.end() - 1), rest[:found.start()]
            if re.compile(r"\s*[={]").match(rest, end) and not _is_function(before):
                return not re.search(r"[^=!<>]=[^=]", _without_parentheses(before))
        return False
    return False


# Of a class or a namespace that is named before the `::`, which may be the emulator's. A type that
# is returned has a name behind it.
_MEMBER = re.compile(r"::\s*(~?\w+|operator\b[^(]*)\s*(<[^;{}()]*>)?\s*[({=;]")


def _without_parentheses(text: str) -> str:
    """What stands in parentheses is left out."""
    kept, depth = [], 0
    for letter in text:
        depth -= letter == ")"
        kept.append(letter if depth <= 0 else "")
        depth += letter == "("
    return "".join(kept)


def _is_function(before: str) -> bool:
    """Whether parameters stand in the beginning of a declaration."""
    return any(word not in ("decltype", "alignas", "requires", "explicit")
               for word in re.findall(r"(\w+)\s*\(", _without_parentheses(before)))


def _end_of_list(text: str, begin: int) -> int:
    """Behind the `>` for the `<` at `begin`, without what stands in parentheses."""
    angles = parentheses = 0
    for at in range(begin, len(text)):
        parentheses += (text[at] in "([") - (text[at] in ")]")
        angles += parentheses == 0 and (text[at] == "<") - (text[at] == ">")
        if angles == 0 and parentheses == 0:
            return at + 1
    return len(text)


def _names_of_cuda(text: str) -> set[str]:
    """The reserved names that the emulator's headers have for kernels."""
    parts = re.split(r'(?m)^# \d+ "(.*?)".*$', text)
    return {name for file, part in zip(parts[1::2], parts[2::2]) if HEADERS_OF_CUDA in file
            for name in re.findall(r"\b__\w+", part)
            if not re.match(r"__(asm|attribute|atomic|sync_|builtin|thread\b)", name)}


def poisoned(output: str) -> list[str]:
    """What the preprocessor said about macros that are banned, a sentence each."""
    found = re.findall(
        r'(?m)^(?:\S*/)?([\w.]+):(\d+):\d+: error: attempt to use poisoned "(\w+)"', output)
    return list(dict.fromkeys(
        f"line {line} of {file} has `{word}`: {_ELSEWHERE if word == _MANAGED else _EMULATED}"
        for file, line, word in found))


def macros(text: str, file: str) -> list[str]:
    """The same of a text that no preprocessor has read, without its comments and strings."""
    code = re.sub(r'//.*|(?s:/\*.*?\*/)|"(?:\\.|[^"\\\n])*"', lambda gone: "\n" * gone[0].count("\n"),
                  text)
    return [f"line {code.count(chr(10), 0, use.start()) + 1} of {file} has `{use[0]}`: {_EMULATED}"
            for use in re.finditer(rf"\b({'|'.join(_MACROS)})\b", code)]
