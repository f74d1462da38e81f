"""An endless loop in each task: how long does ./lab check take to say so, and does it name the line?

    ./lab release /tmp/course && PYTHONPATH=tools python3 tests/tools/endless_loops.py /tmp/course

It works in a release, in whose skeletons nobody has written yet, and takes about 12 seconds a task
and the time to build it. TASK ... behind the folder names the tasks (default: all).
"""

import re
import subprocess
import sys
import time
from pathlib import Path

from lab import manifest

MOST = 15.0  # seconds from the end of the build
LOOP = "for (volatile int turn = 0; turn < 1;) {}"


def main(course: Path, *names: str) -> int:
    assert (course / ".course").exists(), f"{course} is not a release"
    slow = 0
    for task in manifest.select(manifest.load_parts(), names):
        file = course / task.shown_path()
        before = file.read_text()
        text = re.sub(r"throw NotYetImplemented\(.*?\);", LOOP, before, count=1)
        line = text[:text.index(LOOP)].count("\n") + 1
        file.write_text(text)
        try:
            for _ in ("builds as well", "is timed"):
                begin = time.monotonic()
                shown = subprocess.run(["./lab", "check", task.name], cwd=course, text=True,
                                       capture_output=True).stdout
                seconds = time.monotonic() - begin
        finally:
            file.write_text(before)
        named = re.search(rf"timed out after .* at {re.escape(task.shown_path())}:{line}\b", shown)
        slow += seconds > MOST or not named
        print(f"{task.name}: {seconds:.1f} s, {named[0] if named else 'without its line'}",
              flush=True)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
