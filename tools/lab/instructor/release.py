"""Makes the students' repository out of the course's.

What is handed out is listed in grading/release/files.txt; a file that no line names is an error.
Skeletons are derived from the solutions, so that an instructor may have solved some in place.
`--open` hands out a part with its solutions and its ladder.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from lab import derive, disk, manifest, paths, released, zoo
from lab.errors import LabError
from lab.manifest import Part
from lab.released import CLOSED, OPEN, Release

TEMPLATES = "grading/release"    # what a release has in place of the course's own files
LIST = f"{TEMPLATES}/files.txt"  # which files are handed out
EVERYBODY, WHEN_OPEN, NEVER = "everybody", "open", "never"

_LINK = re.compile(r"\[(?P<text>[^][]*(?:\[[^][]*\][^][]*)*)\]\((?P<target>[^()\s]+)\)")


def release(out: Path, parts: Sequence[Part], opened: Sequence[Part]) -> Release:
    """Writes the students' repository into the folder `out`, which must be new or empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise LabError(f"{out} exists already; ./lab release writes into a new folder "
                       "(--update brings a newer course into a student's)")
    for part in parts:
        for problem in manifest.lint_files(part) if part.has("solution") else (
                f"{part.folder.name}/solution/ is missing: skeletons are derived from it",):
            raise LabError(problem)
    texts = {task.shown_path(): derive.derive_task(task) for part in parts for task in part.tasks}
    chosen = list(_chosen(parts, opened))
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _write(partial, chosen, texts, parts, opened)
        made = Release(
            released.version_of(paths.ROOT),
            {part.name: OPEN if part in opened else CLOSED for part in parts},
            {path.relative_to(partial).as_posix(): released.sha256(path)
             for path in sorted(partial.rglob("*")) if path.is_file()},
            tuple(sorted(texts)),
            {task.id: zoo.mistakes(task) for part in parts for task in part.tasks})
        released.write(partial, made)
        if out.exists():
            out.rmdir()
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return made


def _write(out: Path, chosen: Sequence[str], texts: dict[str, str], parts: Sequence[Part],
           opened: Sequence[Part]) -> None:
    templates = paths.ROOT / TEMPLATES
    disk.write_exact(out / "README.md", _readme(templates / "README.md", parts, opened))
    disk.write_exact(out / "AGENTS.md", disk.read_exact(templates / "AGENTS.md"))
    disk.write_exact(out / ".github/workflows/test.yml",
                     disk.read_exact(templates / "ci.yml"))
    for path, text in texts.items():
        disk.write_exact(out / path, text)
    for path in chosen:
        target = out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(paths.ROOT / path, target)
    for page in sorted(out.rglob("*.md")):
        disk.write_exact(page, without_dead_links(disk.read_exact(page), page, out))


def tracked() -> list[str]:
    """The files of the repository that git knows: no build, no notes of the instructor's."""
    try:
        git = subprocess.run(["git", "ls-files", "-z"], cwd=paths.ROOT, capture_output=True)
    except FileNotFoundError:
        raise LabError("git is not installed; a release holds the files that git tracks") from None
    if git.returncode:
        raise LabError("a release is made from a clone of the course's repository: git says "
                       f"{git.stderr.decode(errors='replace').strip()}")
    tracked = [path for path in git.stdout.decode().split("\0") if path]
    return [path for path in tracked if (paths.ROOT / path).is_file()]


def read_list() -> list[tuple[str, str]]:
    """Who gets the files of each pattern."""
    lines = []
    for number, text in enumerate((paths.ROOT / LIST).read_text().splitlines(), 1):
        words = text.split("#")[0].split()
        if words and (len(words) != 2 or words[0] not in (EVERYBODY, WHEN_OPEN, NEVER)):
            raise LabError(f"{LIST}:{number} is '{text}'; it must be {EVERYBODY}, {WHEN_OPEN} or "
                           f"{NEVER}, and a pattern")
        lines += [tuple(words)] if words else []
    return lines


def line_of(path: str, lines: Sequence[tuple[str, str]], parts: Sequence[Part]) -> int:
    """The index of the line that decides."""
    if part := _part_of(path, parts):
        path = path.replace(part.folder.name, "PART", 1).replace(f"tests/{part.name}", "tests/PART")
    for number, (_, pattern) in enumerate(lines):
        if path.startswith(pattern) if pattern.endswith("/") else fnmatch(path, pattern):
            return number
    raise LabError(f"{LIST} does not say who gets {path}")


def _part_of(path: str, parts: Sequence[Part]) -> Part | None:
    return next((part for part in parts if path.startswith(
        (f"{part.folder.name}/", f"tests/{part.name}/"))), None)


def _chosen(parts: Sequence[Part], opened: Sequence[Part]) -> Iterator[str]:
    """The files that are handed out."""
    everything, lines = manifest.load_parts(), read_list()
    for path in tracked():
        who, part = lines[line_of(path, lines, everything)][0], _part_of(path, everything)
        if (part is None or part in parts) and (
                who == EVERYBODY or who == WHEN_OPEN and part in opened):
            yield path


def without_dead_links(text: str, page: Path, root: Path) -> str:
    """A page whose links to files that were not handed out are plain text."""
    def replaced(link: re.Match[str]) -> str:
        target = link["target"].split("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        place = (page.parent / target).resolve()
        return link[0] if place.is_relative_to(root.resolve()) and place.exists() else link["text"]
    return _LINK.sub(replaced, text)


def _readme(template: Path, parts: Sequence[Part], opened: Sequence[Part]) -> str:
    rows = ["| part | tasks | points | what you edit |", "|---|---|---:|---|"]
    for part in parts:
        title = f"[{part.title}]({part.folder.name}/README.md)"
        points = sum(task.points + task.results for task in part.tasks)
        edit = (f"nothing: the solutions are in `{part.folder.name}/solution/`"
                if part in opened else f"`{part.folder.name}/skeleton/`")
        rows.append(f"| {part.name}. {title} | {', '.join(task.name for task in part.tasks)} | "
                    f"{points:g} | {edit} |")
    first = next((part for part in parts if part not in opened), parts[0])
    # --explain, which the table names, does nothing for a warm-up without attention.
    task = next((task for task in first.tasks if task.points), first.tasks[0])
    values = {"PARTS": "\n".join(rows), "PART": first.name,
              "COMMANDS": "\n".join(_commands(parts, task.name)),
              "VERSION": str(released.version_of(paths.ROOT))}
    text = disk.read_exact(template)
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _commands(parts: Sequence[Part], task: str) -> list[str]:
    """The lines of the course's own table of commands that name nothing but these parts and their
    tasks, with `task` in the place of fused_cpu."""
    def names(some: Sequence[Part]) -> set[str]:
        return {part.name for part in some} | {task.name for part in some for task in part.tasks}
    absent = names(manifest.load_parts()) - names(parts)
    lines = re.findall(r"^\| `\./lab .*", disk.read_exact(paths.ROOT / "README.md"), re.MULTILINE)
    lines = [re.sub(r"\bfused_cpu\b", task, line) for line in lines]
    return [line for line in lines if not absent & set(re.findall(r"\w+", line))]
