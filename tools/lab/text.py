"""Text of strangers: whatever a student can influence passes through here before it is shown.

Lines of a terminal (console.say), cells of a table, Markdown and HTML (instructor/web.py): nothing
in it may repaint a screen, turn a line around, run as a formula, or end the block that it is in.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence

LONGEST = 200   # characters of a name or a reason on one line
MOST_MARKS = 4  # accents on one letter: more paint over the lines above it


class Markdown(str):
    """What is made safe already."""


def plain(text: str) -> str:
    """Without control codes, marks that turn the direction, and what no file can hold."""
    if text.isascii() and text.isprintable():
        return text
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r\n", "\n"))
    kept, marks = [], 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char)[0] == "M" else 0
        if marks <= MOST_MARKS:
            kept.append(char if char in "\n\t" or char.isprintable()
                        else "\N{REPLACEMENT CHARACTER}")
    return "".join(kept)


def line(text: str) -> str:
    """One line of at most LONGEST characters."""
    words = " ".join(plain(text).split())
    return words if len(words) <= LONGEST else f"{words[:LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"


def cell(text: str) -> str:
    """Of a table that a spreadsheet opens: there an apostrophe makes a formula a text. Some split a
    cell at its semicolons, and some take the wide forms of the signs."""
    return re.sub(r"(^|[;,|])([\s\"']*)(?=[=+\-@＝＋－＠])", r"\1\2'", line(text))


def table(rows: Iterable[Sequence[object]]) -> str:
    """As CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        [cell(value) if isinstance(value, str) else value for value in row] for row in rows)
    return out.getvalue()


def markdown(text: str) -> Markdown:
    """Inside a line of Markdown. An underscore inside a word has no meaning there."""
    escaped = re.sub(r"([\\`*\[\]<>|~#&!]|(?<![^\W_])_|_(?![^\W_])|(?<=:)(?=//)|(?<=www)(?=\.))",
                     r"\\\1", line(text))
    return Markdown(escaped)


def code(text: str) -> Markdown:
    """In a line of Markdown, too."""
    text = line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " * ("`" in (text[:1], text[-1:]))
    return Markdown(f"{fence}{space}{text}{space}{fence}")


def fenced(text: str, most: int = 4000) -> Markdown:
    """A block of Markdown that the text in it cannot end."""
    text = plain(text[:most])
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return Markdown(f"{fence}text\n{text}\n{fence}")


# ---- Names that look the same, after Unicode's confusables (UTS 39) ------------------------------

# Letters of these alphabets, one alphabet in a name; of Latin those of a keyboard, with accents.
_ALPHABETS = {name: name for name in (
    "LATIN GREEK CYRILLIC ARABIC HEBREW DEVANAGARI THAI HANGUL CJK").split()} | {
    "HIRAGANA": "CJK", "KATAKANA": "CJK"}
_MORE_LATIN = "ßæœøłđðþħŋ"
_LOOKS_LIKE = str.maketrans(
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαεγηικνορτυχωϲϳ" "АВЕЗКМНОРСТУХІЈЅҮЌавекмнорстухіјѕүԁԍԛԝһѵгпьзӏІ01",
    "ABEZHIKMNOPTYXaeynikvoptuxwcj" "ABE3KMHOPCTYXIJSYKabekmhopctyxijsydgqwhvrnb3lIol")
_TWO = {"m": "rn", "w": "vv", "d": "cl", "i": "l"}


def has_one_alphabet(name: str) -> bool:
    found = set()
    for char in unicodedata.normalize("NFD", name):
        if char.isalpha():
            alphabet = unicodedata.name(char, "?").replace("-", " ").split()[0]
            if alphabet == "LATIN" and not char.isascii() and char.casefold() not in _MORE_LATIN:
                return False
            found.add(_ALPHABETS.get(alphabet))
        elif char.isnumeric() and not char.isascii():
            return False
    return len(found) <= 1 and None not in found


def looks(name: str) -> str:
    """The same for two names that a person can take for each other."""
    folded = unicodedata.normalize("NFKC", name).translate(_LOOKS_LIKE).casefold()
    folded = folded.translate(_LOOKS_LIKE)
    # Two letters of Hangul are drawn as nothing, and one of Arabic as a longer line.
    return "".join(_TWO.get(char, char) for char in folded if char not in " ._-\u115f\u1160\u0640")
