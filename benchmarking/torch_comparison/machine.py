"""The processor, and how much of it others had while something was measured."""

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def machine() -> str:
    """The processor's name, and how many of them this process may use."""
    name = ""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        name = found[1].strip() if found else ""
    except OSError:
        if sys.platform == "darwin":
            name = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True).stdout.strip()
    return f"{name or platform.processor() or platform.machine()} ({logical_cores()} logical cores)"


def logical_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Others:
    """How much of the processors was not ours since the last look: other programs', or stolen by other virtual machines."""

    def __init__(self, stat: Path = Path("/proc/stat"), own: Callable[[], float] = time.process_time) -> None:
        self._stat, self._own = stat, own
        self._before = self._look()

    def share(self) -> float:
        """From 0 to 1; 0 where the system does not say."""
        before, now = self._before, self._look()
        self._before = now
        total, busy, own = (new - old for old, new in zip(before, now))
        return max(0.0, busy - own) / total if total > 0 else 0.0

    def _look(self) -> tuple[float, float, float]:
        """Seconds of all processors, of those not idle, and of this process with its threads."""
        try:
            # user nice system idle iowait irq softirq steal; what follows is in user already
            ticks = [int(word) for word in self._stat.read_text(encoding="utf-8").split("\n")[0].split()[1:9]]
            second = os.sysconf("SC_CLK_TCK")
            return sum(ticks) / second, (sum(ticks) - ticks[3] - ticks[4]) / second, self._own()
        except (OSError, ValueError, IndexError):
            return 0.0, 0.0, 0.0
