"""What a receipt says about the machine, and whether it is free enough to be measured on."""

import os
import platform
import re
import time
from pathlib import Path

from lab.errors import LabError

BUSY = 0.5  # processors that other programs may use before a measurement begins


def device() -> str:
    """The model of the processor, as exactly as the system tells it: a board never mixes two."""
    facts = _cpuinfo()
    name = facts.get("model name") or platform.processor() or platform.machine()
    detail = [f"{word} {facts[key]}" for key, word in (("cpu family", "family"),
              ("model", "model"), ("stepping", "stepping")) if key in facts]
    return f"{name} ({', '.join([platform.machine(), *detail])})"


def now() -> dict[str, object]:
    """What changes from minute to minute, where the system lets it be read."""
    clocks = [float(clock) for clock in re.findall(r"^cpu MHz\s*: ([\d.]+)", _text("/proc/cpuinfo"),
                                                   re.MULTILINE)]
    zones = [_text(zone) for zone in sorted(Path("/sys/class/thermal").glob("thermal_zone*/temp"))]
    warm = [int(text) / 1000 for text in zones if text.strip().lstrip("-").isdigit()]
    return {"clock_mhz": max(clocks) if clocks else None,
            "temperature_c": max(warm) if warm else None,
            "load": round(os.getloadavg()[0], 2)}


def facts() -> dict[str, object]:
    governor = _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip()
    return {"device": device(), "processors": os.cpu_count(),
            "system": f"{platform.system()} {platform.release()}", "governor": governor or None}


def refuse_if_busy(seconds: float = 1.0) -> None:
    """LabError where other programs leave less than one and a half processors, for the judge and
    the code that it measures (one where there is only one)."""
    before = _busy_ticks()
    time.sleep(seconds)
    used = (_busy_ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds
    processors = os.cpu_count() or 1
    if used > max(BUSY, processors - 1.5):
        raise LabError(f"the machine is busy: other programs use {used:.1f} of its {processors} "
                       "processors, so that a time would mean nothing; try again when it is idle "
                       "(--mode benchmark measures all the same)")


def _busy_ticks() -> float:
    words = _text("/proc/stat").split("\n", 1)[0].split()[1:9]
    ticks = [float(word) for word in words]
    return sum(ticks) - sum(ticks[3:5])  # all but idle and iowait


def _cpuinfo() -> dict[str, str]:
    lines = _text("/proc/cpuinfo").split("\n\n", 1)[0].splitlines()
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
