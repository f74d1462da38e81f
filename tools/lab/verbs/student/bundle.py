"""`./lab bundle`: packs what a student hands in: the files of the tasks, and the results with the
work log. Nothing else."""

import argparse
import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from lab import handed_in, manifest, paths, released, worklog
from lab.bundles import FORMAT, INDEX, LARGEST, content_of, pack
from lab.console import say
from lab.errors import LabError
from lab.submission import at_home

HELP = "pack your files, results and work log into submission.zip, to hand in"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="PART|TASK",
                        help="part1, fused_cpu or part1.fused_cpu (default: all)")
    parser.add_argument("--output", type=Path, default=paths.ROOT / "submission.zip",
                        metavar="FILE", help="the archive to write (default: submission.zip)")


def run(args: argparse.Namespace) -> int:
    parts = manifest.load_parts()
    tasks = manifest.select(parts, [name for word in args.names for name in word.split(",")])
    files = {task.shown_path(): content_of(task) for task in tasks if task.path().exists()}
    if not files:
        raise LabError("nothing to hand in: no task of these has its file")
    own = len(files)
    results, missing = worklog.files(list(dict.fromkeys(task.part for task in tasks)))
    begun = worklog.write()
    if begun or worklog.history():
        results[worklog.PAGE] = paths.ROOT / worklog.PAGE
    for path, file in results.items():
        if file.is_symlink() or file.stat().st_size > LARGEST:
            missing.append(f"{paths.relative(file)}: it is a link, or has more than {LARGEST} bytes")
        else:
            files[path] = file.read_bytes()
    if not begun:
        missing.append(f"your words in {worklog.PAGE}: what you tried, and what it brought")
    version = released.version_of(paths.ROOT)
    index = {"format": FORMAT, "version": asdict(version),
             "files": {path: hashlib.sha256(content).hexdigest()
                       for path, content in files.items()}}
    text = (json.dumps(index, indent=1, sort_keys=True) + "\n").encode()
    pack(args.output, {path: (content, 0o644) for path, content in {INDEX: text, **files}.items()})
    for task in tasks:
        for finding in at_home.findings(task):
            say(f"  {task.shown_path()}: the grader refuses a task that does this: {finding}", "red")
        note = ("is missing, and is not packed" if task.shown_path() not in files else
                "is still the skeleton" if files[task.shown_path()] == released.skeleton(task)
                else "")
        say(f"  {task.shown_path()}{' ' * bool(note)}{note}", "yellow" if note else None)
    for path in list(files)[own:]:
        say(f"  {path}")
    for task in tasks:
        if task.results and any(path.endswith(".csv") for path in files):
            for line in handed_in.of_task(files, task)[1]:
                say(f"  {line}")
    for what in missing:
        say(f"  missing: {what}", "yellow")
    if changed := released.changed_given_files(parts):
        for line in changed:
            say(f"  {line}", "yellow")
        say("  the grader has given files of its own: what you changed in yours is not handed in")
    say(f"{paths.relative(args.output.absolute())}: {own} file{'s' * (own > 1)}"
        f"{f' and {len(files) - own} of results' * (len(files) > own)}, for version {version} of the course")
    return 0
