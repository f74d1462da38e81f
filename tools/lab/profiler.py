"""Explains in five figures what Nsight Compute counted of a launch of part 3's forward kernel.

Text in, text out: `./lab profile` (verbs/profile.py) runs the programs. A counter that a GPU or a
version of ncu lacks is "n/a" or absent in the CSV, and what needs it reads "not counted on this
GPU".
"""

import contextlib
import csv
import re
from dataclasses import dataclass
from typing import NamedTuple

from lab.results import Row

KERNEL = "flash_forward"  # in the name of the kernel
NOT_COUNTED = "not counted on this GPU"

# By ncu's names. GPUs differ in some: then the first one that was counted is taken.
COUNTERS = {
    "time": "gpu__time_duration.sum",
    "fma at work": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active "
                   "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "fma overall": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed "
                   "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed",
    "cycles at work": "sm__cycles_active.avg",
    "cycles": "sm__cycles_elapsed.avg",
    "multiprocessors": "launch__sm_count device__attribute_multiprocessor_count",
    "grid": "launch__grid_size",
    "threads": "launch__block_size",
    "read": "dram__bytes_read.sum",
    "written": "dram__bytes_write.sum",
    "dram share": "dram__throughput.avg.pct_of_peak_sustained_elapsed "
                  "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L2 hits": "lts__t_sector_hit_rate.pct",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "most warps": "sm__maximum_warps_per_active_cycle_pct",
    "registers": "launch__registers_per_thread",
    "shared": "launch__shared_mem_per_block_dynamic",
    "static shared": "launch__shared_mem_per_block_static",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "turns": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "local loads": "smsp__sass_inst_executed_op_local_ld.sum smsp__inst_executed_op_local_ld.sum",
    "local stores": "smsp__sass_inst_executed_op_local_st.sum smsp__inst_executed_op_local_st.sum",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
}
LIMITS = {  # on the thread blocks of a multiprocessor
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
}
REASONS = {  # why a warp waits
    "long_scoreboard":
        "a load from device memory or L2 is under way: Q, K, V, or a spilled register",
    "short_scoreboard": "a read of shared memory, a shuffle or an exp2 is under way",
    "barrier": "__syncthreads(): other warps of the thread block have not reached it yet",
    "wait": "a fixed number of cycles, until the instruction before has its result",
    "math_pipe_throttle": "the multiply-add pipe is busy, which is as it should be",
    "mio_throttle": "too many reads of shared memory, shuffles and exp2s at a time",
    "lg_throttle": "too many loads and stores of device or local memory at a time",
    "no_instruction": "the next instruction is not in its cache yet: the code is long",
    "dispatch_stall": "ready, and the dispatcher held it back: as a rule two operands come from "
        "one bank of registers",
    "not_selected": "ready, and the scheduler took another warp: no time is lost",
}
NO_LOSS = ("math_pipe_throttle", "not_selected")
OTHERS = ("branch_resolving", "imc_miss", "drain", "membar", "sleeping", "tex_throttle", "gmma",
          "misc")  # this kernel has hardly any of these

# "selected" is the cycle in which an instruction is issued: ncu counts it with the stalls.
STALLS = {reason: f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
          for reason in ("selected", *REASONS, *OTHERS)}
METRICS = (*" ".join(COUNTERS.values()).split(), *LIMITS.values(), *STALLS.values())


class Tiles(NamedTuple):
    """Config<head_dim, queries, keys, warps> of the kernel."""

    head_dim: int
    queries: int
    keys: int
    warps: int


@dataclass(frozen=True)
class Profile:
    """What was counted of one launch."""

    kernel: str  # as ncu writes its name
    metrics: dict[str, float]

    def __getitem__(self, counter: str) -> float | None:
        """One of COUNTERS; None where it was not counted."""
        found = (self.metrics[name] for name in COUNTERS[counter].split() if name in self.metrics)
        return next(found, None)

    @property
    def tiles(self) -> Tiles | None:
        """None where the kernel is not the handout's template. Older ncu: Config<(int)64, ...>."""
        found = re.search(r"Config<([^<>]*)>", self.kernel)
        numbers = re.findall(r"\d+", found[1]) if found else []
        return Tiles(*map(int, numbers)) if len(numbers) == 4 else None

    @property
    def busy(self) -> float | None:
        """The percentage of the kernel's time in which a multiprocessor has work."""
        cycles, at_work = self["cycles"], self["cycles at work"]
        return None if not cycles or at_work is None else 100 * at_work / cycles

    @property
    def limits(self) -> dict[str, float]:
        return {name: self.metrics[each] for name, each in LIMITS.items() if each in self.metrics}

    @property
    def room(self) -> float | None:
        """How many thread blocks the GPU can hold at a time."""
        limits, multiprocessors = self.limits, self["multiprocessors"]
        return min(limits.values()) * multiprocessors if limits and multiprocessors else None


@dataclass(frozen=True)
class Figure:
    title: str
    rows: tuple[tuple[str, str], ...]  # label, value
    meaning: str                       # in sentences; empty where nothing was counted


# ---- What the programs print ----

def parse(text: str) -> Profile | None:
    """The first launch in the output of `ncu --csv --print-units base`, which also has the
    program's own lines. None where no launch was profiled."""
    _, _, table = text.partition('\n"ID",')
    lines = ('"ID",' + table).splitlines()
    rows = list(csv.DictReader(line for line in lines if line.startswith('"')))
    if not rows:
        return None
    counted = {}
    for row in rows:
        if row["ID"] == rows[0]["ID"]:
            with contextlib.suppress(ValueError):  # n/a, or "no data"
                counted[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return Profile(rows[0]["Kernel Name"], counted)


def program_trouble(code: int, output: str) -> str:
    """Why bench_attention measured nothing."""
    if missing := re.search(r"^task (\S+) is not started", output, re.MULTILINE):
        return (f"task {missing[1]} is not started, so there is nothing to profile; next: "
                f"./lab check {missing[1]} (or ./lab profile --solution)")
    said = re.search(r"^(?:\w+: )?(?:error|OOM|unsupported): .*$", output, re.MULTILINE)
    return said[0] if said else (f"the program ended with exit code {code}; "
                                 f"last line: {_last_line(output)}")


def profiler_trouble(code: int, output: str, is_root: bool) -> str:
    """Why ncu profiled nothing."""
    if "ERR_NVGPUCTRPERM" in output:
        container = "in a container, start that with --cap-add=SYS_ADMIN"
        as_root = container if is_root else f"run it as root (sudo ./lab profile); {container}"
        return ("ERR_NVGPUCTRPERM: the driver lets only an administrator read the GPU's counters. "
                f"Either {as_root}; or let everybody read them: put `options nvidia "
                "NVreg_RestrictProfilingToAdminUsers=0` into a file of /etc/modprobe.d/ and "
                "restart the machine")
    errors = [line for line in output.splitlines() if line.startswith("==ERROR==")]
    if code or errors:
        last = _last_line(errors[-1] if errors else output).removeprefix("==ERROR== ")
        return f"ncu failed (exit code {code}): {last}"
    return f"ncu profiled no kernel: none with {KERNEL} in its name was launched often enough"


def _last_line(output: str) -> str:
    return output.strip().rpartition("\n")[2] or "it printed nothing"


# ---- Five figures ----

def figures(profile: Profile, problem: Row) -> list[Figure]:
    return [_arithmetic(profile, problem), _device_memory(profile, problem), _occupancy(profile),
            _shared_memory(profile), _waiting(profile)]


def tensor_bytes(problem: Row) -> int:
    """Of one of q, k, v, out."""
    element = 2 if problem.dtype in ("float16", "bfloat16") else 4
    return element * problem.batch * problem.seq_len * problem.d_model


def result_bytes(problem: Row) -> int:
    """Of out and lse."""
    return tensor_bytes(problem) + 4 * problem.batch * problem.heads * problem.seq_len


def asked_bytes(problem: Row, tiles: Tiles) -> int:
    """What all thread blocks load, by the formula of section 7 of part 3's handout."""
    n, slices = problem.seq_len, _ceil(problem.d_model // problem.heads, tiles.head_dim)
    rows = 0  # of q, k and v, in each head
    for first in range(0, n, tiles.queries):
        queries = min(tiles.queries, n - first)
        keys = min(n, tiles.keys * _ceil(first + queries, tiles.keys)) if problem.causal else n
        # With slices, each thread block computes all scores, and fetches Q for each key block.
        q = queries * (slices * _ceil(keys, tiles.keys) if slices > 1 else 1)
        rows += q + slices * keys + keys
    return tensor_bytes(problem) * rows // n


def _ceil(count: int, of: int) -> int:
    return -(-count // of)


def _arithmetic(p: Profile, problem: Row) -> Figure:
    time, grid, multiprocessors, busy = p["time"], p["grid"], p["multiprocessors"], p.busy
    ms = None if time is None else time * 1e-6
    rows = (
        ("time", _counted((ms, "{:.4g} ms"), (problem.rate(4, ms), "{:.3g} TFLOP/s"))),
        ("multiply-add pipe",
         _counted((p["fma at work"], "{:.3g} % of its peak where a multiprocessor has work"),
                  (p["fma overall"], "{:.3g} % of the whole GPU's"))),
        ("multiprocessors",
         _counted((multiprocessors, "{:.0f}"), (busy, "{:.0f} % of the time with work"))),
        ("grid", _counted((grid, "{:.0f} thread blocks"), (p.room, "room for {:.0f} at a time"))),
    )
    said = ""
    if busy is not None:
        said = ("Nearly the whole GPU has work from start to end." if busy >= 90 else
                f"{100 - busy:.0f} % of the GPU was idle, so every figure of the whole GPU is that "
                "much smaller.")
    if busy is not None and busy < 90 and grid:
        if multiprocessors and grid < multiprocessors:
            said += (f" The grid is too small: {multiprocessors - grid:.0f} of "
                     f"{multiprocessors:.0f} multiprocessors got no thread block. More heads, more "
                     "queries, or fewer queries a block make more of them.")
        elif p.room and grid > p.room:
            said += (f" The grid is {grid / p.room:.2g} times what fits at a time, and at the end "
                     "only a part of the GPU has a thread block.")
    return Figure("Time and multiply-adds", rows, said)


def _device_memory(p: Profile, problem: Row) -> Figure:
    read, share, tiles = p["read"], p["dram share"], p.tiles
    inputs, results = 3 * tensor_bytes(problem), result_bytes(problem)
    asked = None if tiles is None else asked_bytes(problem, tiles)
    rows = (
        ("traffic", _counted((_mib(read), "{:.4g} MiB read"),
                             (_mib(p["written"]), "{:.4g} MiB written"),
                             (share, "{:.3g} % of the peak rate"))),
        ("each tensor once", _counted((_mib(inputs), "{:.4g} MiB of q, k, v"),
                                      (_mib(results), "{:.4g} MiB of out, lse"))),
        ("all thread blocks", _counted((_mib(asked), "load {:.4g} MiB (section 7)"))),
        ("L2 cache", _counted((p["L2 hits"], "has {:.0f} % of what is asked of it"))),
    )
    said = []
    if read is not None:
        said.append("Each input came from device memory about once." if read <= 1.5 * inputs else
                    f"Device memory was read {read / inputs:.1f} times over: K and V did not stay "
                    "in L2 between the thread blocks that share them, or registers are spilled "
                    "(figure 4).")
    if share is not None:
        said.append("Device memory is not the limit." if share < 60
                    else "Device memory is near its limit, and it limits the kernel.")
    return Figure("Device memory", rows, " ".join(said))


def _occupancy(p: Profile) -> Figure:
    limits = p.limits
    shared = None if p["shared"] is None else (p["shared"] + (p["static shared"] or 0)) / 1024
    rows = (
        ("warps", _counted((p["warps"], "{:.3g} % of what a multiprocessor can hold"),
                           (p["most warps"], "of this kernel {:.3g} % fit"))),
        ("blocks that fit", ", ".join(f"by {name} {count:.0f}" for name, count in limits.items())
         or NOT_COUNTED),
        ("a thread block", _counted((p["threads"], "{:.0f} threads"),
                                    (p["registers"], "{:.0f} registers each"),
                                    (shared, "{:.4g} KiB of shared memory"))),
    )
    said = ""
    if limits:
        least = min(limits.values())
        names = " and ".join(name for name, count in limits.items() if count == least)
        said = (f"The limit is {names}. A low figure is no fault by itself: where a warp has many "
                "multiply-adds that do not wait for each other, few warps are enough (section 8). "
                "Figure 5 says whether they were.")
    return Figure("Occupancy", rows, said)


def _shared_memory(p: Profile) -> Figure:
    conflicts, turns = p["conflicts"], p["turns"]
    loads, stores = p["local loads"], p["local stores"]
    share = None if conflicts is None or not turns else 100 * conflicts / turns
    rows = (
        ("bank conflicts", NOT_COUNTED if share is None else
         f"{conflicts:,.0f} of {turns:,.0f} turns, {share:.1f} %"),
        ("local memory", _counted((loads, "{:,.0f} loads"), (stores, "{:,.0f} stores"))),
    )
    said = []
    if share is not None and share >= 1:
        said.append(f"Of 100 turns at shared memory {share:.0f} are repeats: lanes want different "
                    "words of one bank (section 2). Look at the `+ 4` and the `+ 8`.")
    if loads or stores:
        said.append("Values that should be in registers are in local memory, which is device "
                    "memory: an array is indexed by a number that the compiler does not know "
                    "(FLASH_UNROLL is missing), or a thread needs more registers than it may have.")
    return Figure("Shared memory and spills", rows, " ".join(said))


def _waiting(p: Profile) -> Figure:
    issue = p["issue"]
    cycles = {reason: p.metrics[name] for reason, name in STALLS.items() if name in p.metrics}
    selected = cycles.pop("selected", 1)
    largest = sorted((reason for reason in cycles if cycles[reason] >= 0.005), key=cycles.get,
                     reverse=True)
    total = sum(cycles.values()) + selected
    rows = (
        ("issue", _counted((issue, "an instruction in {:.3g} % of the cycles in which a scheduler "
                                   "had warps"))),
        ("a warp", f"{total:.2f} cycles from one instruction to the next: 1 to issue it, "
         f"{total - 1:.2f} of waiting" if cycles else NOT_COUNTED),
        *((name, f"{cycles[name]:.2f} cycles: {REASONS.get(name, 'another reason')}")
          for name in largest[:3]),
    )
    said = ""
    if issue is not None and cycles:
        worst = next((reason for reason in largest if reason not in NO_LOSS), None)
        said = (f"A scheduler had {issue / 100 * total:.1f} warps to choose from. "
                + ("It is nearly always busy: only fewer instructions help." if issue >= 80 else
                   f"Most of the waiting that could be less is {worst}." if worst else ""))
    return Figure("What warps wait for", rows, said.strip())


# ---- Words ----

def _counted(*parts: tuple[float | None, str]) -> str:
    """Those of the values that were counted, each in its words."""
    shown = [text.format(value) for value, text in parts if value is not None]
    return "; ".join(shown) or NOT_COUNTED


def _mib(count: float | None) -> float | None:
    return None if count is None else count / 2**20
