"""`./lab book`: the course's pages as a site, made by Sphinx (tools/book/conf.py).

The book begins with README.md, goes where links lead, and has every contract and every ladder. It
holds files that are here: the book of a release has no solution that the release lacks. Sphinx
reads build/book/pages, which gets the Markdown pages with their links changed, and a page for each
source file.
"""

import argparse
import os
import re
import shutil
from pathlib import Path

from lab import bootstrap, console, manifest, paths
from lab.console import say
from lab.errors import LabError
from lab.tables import story

HELP = "make a site of the handouts, contracts and ladders, to read and search in a browser"

SETTINGS = paths.REPOSITORY / "tools" / "book"
PINS = SETTINGS / "requirements.txt"
VENV = paths.REPOSITORY / ".venv-book"

LINK = re.compile(r"\]\((?P<target>[^()\s#:]+)(?P<anchor>#[^()\s]*)?\)")
COPIED = (".svg", ".png", ".csv", ".ipynb")  # shown, or downloaded
LEXERS = {".py": "python", ".json": "json", ".toml": "toml", "": "text"}  # any other: C++


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(args: argparse.Namespace) -> int:
    make_ready()
    page = build_book(paths.build_folder("book"))
    say(f"{paths.relative(page)} is the first page: open it in a browser")
    return 0


def is_ready() -> bool:
    stamp = VENV / "lab-stamp"
    return stamp.is_file() and stamp.read_text() == PINS.read_text()


def make_ready() -> None:
    """Installs Sphinx, once for each version of PINS. LabError where there is no network."""
    if is_ready():
        return
    say(f"setting up {VENV.name} with Sphinx (tools/book/requirements.txt), once: about 100 MB")
    bootstrap.install(VENV, PINS)
    shutil.copy(PINS, VENV / "lab-stamp")


def build_book(folder: Path) -> Path:
    """Makes the site, and returns its first page. LabError where a link leads nowhere."""
    pages, site = folder / "pages", folder / "site"
    for old in (pages, site):
        shutil.rmtree(old, ignore_errors=True)
    write_pages(pages)
    command = [VENV / "bin" / "python", "-m", "sphinx", "--quiet", "--fail-on-warning",
               "--no-color", "--conf-dir", SETTINGS, pages, site]
    console.print_command(command)
    done = console.stream(command, "building the book")
    if done.code != 0:
        say(done.output.rstrip())
        raise LabError("the book has a fault: Sphinx names it above, by its place in "
                       f"{paths.relative(pages)}")
    return site / "index.html"


def gather() -> list[Path]:
    """The files and folders that the book has, in natural order: step 10 comes after step 9."""
    waiting = [paths.ROOT / "README.md"]
    for part in manifest.load_parts():
        waiting += [part.folder / "README.md", *part.folder.glob("*.hpp"), part.folder / "ladder"]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if (path / "README.md").is_file():
            if path.name == "ladder":  # all of a ladder is in the book, also what no page links to
                waiting += [file for file in path.iterdir() if file.is_file()]
            path /= "README.md"
        if path in found or not path.exists() or not path.is_relative_to(paths.ROOT):
            continue
        found.add(path)
        if path.is_dir():
            waiting += [file for file in path.rglob("[!.]*") if file.is_file()]
        elif path.suffix == ".md":
            waiting += [_target(path, link)
                        for link in LINK.finditer(path.read_text())]
    return sorted(found, key=lambda path: [
        (int(number or 0), rest) for number, rest in re.findall(r"(\d*)(\D+)", str(path))])


def _target(page: Path, link: re.Match[str]) -> Path:
    return Path(os.path.normpath(page.parent / link["target"]))


def place(path: Path) -> Path:
    """Where the page of a file or a folder is in the book."""
    inside = path.relative_to(paths.ROOT)
    if path.is_dir() or inside.name == "README.md":
        return (inside if path.is_dir() else inside.parent) / "index.md"
    return inside if inside.suffix in (".md", *COPIED) else Path(f"{inside}.md")


def write_pages(pages: Path) -> None:
    found = gather()
    below = contents(found)
    in_contents = {page for group in below.values() for page in group}
    for path in found:
        target = pages / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in COPIED:
            shutil.copy(path, target)
            continue
        make = (folder_page if path.is_dir() else
                markdown_page if path.suffix == ".md" else source_page)
        orphan = "" if path in in_contents else "---\norphan: true\n---\n\n"
        names = [os.path.relpath(place(page), place(path).parent) for page in below.get(path, [])]
        listed = "\n".join(["", "```{toctree}", ":hidden:", *names, "```", ""]) if names else ""
        target.write_text(orphan + make(path) + listed)


def contents(found: list[Path]) -> dict[Path, list[Path]]:
    """What stands below a page in the table of contents."""
    below = {folder: [path for path in found if folder in path.parents and path.is_file()]
             for folder in found if folder.is_dir()}
    handouts = [part.folder / "README.md" for part in manifest.load_parts()]
    for handout in handouts:
        below[handout] = [path for path in found if path.parent == handout.parent
                          and path.suffix == ".hpp"]
        ladder = handout.parent / "ladder"
        below[handout] += [path for path in found if path in (ladder, ladder / "README.md")]
        below[ladder / "README.md"] = [path for path in found if path.parent == ladder
                                       and path.name != "README.md"]
    first = paths.ROOT / "README.md"
    placed = {first, *handouts, *(page for group in below.values() for page in group)}
    below[first] = handouts + [path for path in found
                               if path.suffix == ".md" and path not in placed]
    return below


def markdown_page(path: Path) -> str:
    def changed(link: re.Match[str]) -> str:
        target = _target(path, link)
        if not target.exists() or not target.is_relative_to(paths.ROOT):  # Sphinx reports it
            return link[0]
        return f"]({os.path.relpath(place(target), place(path).parent)}{link['anchor'] or ''})"

    return LINK.sub(changed, path.read_text())


def folder_page(folder: Path) -> str:
    """A list of the files, each with its title, or the first sentences of its first comment."""
    lines = [f"# `{folder.relative_to(paths.ROOT)}/`", ""]
    for file in contents(gather())[folder]:
        about = (file.read_text().split("\n")[0].strip("# ")
                 if file.suffix == ".md" else story(file))
        name = file.relative_to(folder)
        link = place(file).relative_to(place(folder).parent)
        lines.append(f"- [`{name}`]({link}): {_escaped(about)}")
    return "\n".join(lines) + "\n"


def source_page(path: Path) -> str:
    fence = "`" * 8
    return "\n".join([f"# `{path.name}`", "", f"`{path.relative_to(paths.ROOT)}`", "",
                      fence + LEXERS.get(path.suffix, "cpp"),
                      path.read_text().rstrip("\n"), fence, ""])


def _escaped(text: str) -> str:
    """Markdown that shows `text` as it is, but for `code`."""
    pieces = re.split(r"(`[^`]+`)", text)
    pieces[::2] = [re.sub(r"([\\*_\[\]<>$#|~+=`])", r"\\\1", piece) for piece in pieces[::2]]
    return "".join(pieces)
