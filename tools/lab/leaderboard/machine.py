"""What a receipt says about the machine, and whether it is free enough to be measured on."""

import os
import platform
import re
import time
from pathlib import Path

from lab import system
from lab.errors import LabError
from lab.leaderboard.boards import Board
from lab.leaderboard.result import DISTURBED, Busy
from lab.submission import gpu


def device(board: Board) -> str:
    """The model of the processor or of the GPU, as exactly as the system tells it: a board never
    mixes two."""
    if board.device == "cuda":
        name, memory = _of_gpu("name", "memory.total")
        return re.sub(r"[^\w .,()@/+-]", " ", f"{name} ({memory})")
    facts = system.cpuinfo()
    detail = [f"{word} {facts[key]}" for key, word in (("cpu family", "family"),
              ("model", "model"), ("stepping", "stepping")) if key in facts]
    return f"{system.processor()} ({', '.join([platform.machine(), *detail])})"


def facts(board: Board) -> dict[str, object]:
    if board.device == "cuda":
        driver, = _of_gpu("driver_version")
        return {"device": device(board), "driver": driver,
                "processor": system.processor(),
                "system": f"{platform.system()} {platform.release()}"}
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {"device": device(board), "processors": os.cpu_count(),
            "system": f"{platform.system()} {platform.release()}",
            "governor": governor.read_text().strip() if governor.is_file() else None}


def refuse_if_busy(board: Board, seconds: float = 0.5) -> None:
    """Computes for a moment. LabError where other programs take the processor away meanwhile; or
    where another process has the GPU."""
    if board.device == "cuda":
        others = _query("--query-compute-apps=pid,process_name", "--format=csv,noheader")
        if lines := others.strip().splitlines():
            raise Busy(f"the GPU is busy: others compute on it ({'; '.join(lines[:3])}); end these "
                       "processes, or try again later")
        return
    begin, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        pass
    lost = 1 - (time.process_time() - used) / (time.perf_counter() - begin)
    if lost > DISTURBED:
        raise Busy(f"the machine is busy: other programs take {100 * lost:.0f} % of a processor "
                   "away, so that a time would mean nothing; try again when it is idle")


def _of_gpu(*keys: str) -> list[str]:
    """What nvidia-smi says about the GPU that is used."""
    said = _query(f"--query-gpu={','.join(keys)}", "--format=csv,noheader")
    values = [value.strip() for value in said.partition("\n")[0].split(",")]
    if len(values) != len(keys):
        raise LabError(f"nvidia-smi does not say {', '.join(keys)} of a GPU: {said.strip()[:200]}")
    return values


def _query(*options: str) -> str:
    return gpu.output("nvidia-smi", "-i", gpu.chosen(), *options)
