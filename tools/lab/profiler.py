"""What Nsight Compute counted of one launch of part 3's forward kernel: read from its CSV, and put into five figures and words.

Text in, text out: `./lab profile` (verbs/profile.py) runs the programs. A counter that a GPU or a version of ncu lacks is "n/a"
in the CSV, or not there; what needs it reads "not counted on this GPU". Where GPUs differ in a name both names are asked for.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KERNEL = "flash_forward"  # in the name of the kernel
NOT_COUNTED = "not counted on this GPU"

TIME = "gpu__time_duration.sum"
FMA_AT_WORK = ("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
               "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active")
FMA_OVERALL = ("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
               "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed")
CYCLES_AT_WORK, CYCLES = "sm__cycles_active.avg", "sm__cycles_elapsed.avg"
MULTIPROCESSORS = ("launch__sm_count", "device__attribute_multiprocessor_count")
GRID, THREADS = "launch__grid_size", "launch__block_size"

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
DRAM_SHARE = ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed")
L2_HITS = "lts__t_sector_hit_rate.pct"

WARPS, MOST_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active", "sm__maximum_warps_per_active_cycle_pct"
REGISTERS = "launch__registers_per_thread"
SHARED, STATIC_SHARED = "launch__shared_mem_per_block_dynamic", "launch__shared_mem_per_block_static"
LIMITS = {  # on the thread blocks of a multiprocessor
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
}

CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
TURNS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
LOCAL_LOADS = ("smsp__sass_inst_executed_op_local_ld.sum", "smsp__inst_executed_op_local_ld.sum")
LOCAL_STORES = ("smsp__sass_inst_executed_op_local_st.sum", "smsp__inst_executed_op_local_st.sum")

ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
SELECTED = "selected"  # the cycle in which an instruction is issued: ncu counts it with the stalls
REASONS = {
    "long_scoreboard": "a load from device memory or L2 is on its way: Q, K, V, or a spilled register",
    "short_scoreboard": "a read of shared memory, a shuffle or an exp2 is on its way",
    "barrier": "__syncthreads(): other warps of the thread block are not there yet",
    "wait": "a fixed number of cycles, until the instruction before has its result",
    "math_pipe_throttle": "the multiply-add pipe is busy, which is as it should be",
    "mio_throttle": "too many reads of shared memory, shuffles and exp2s at a time",
    "lg_throttle": "too many loads and stores of device or local memory at a time",
    "no_instruction": "the next instruction is not in its cache yet: the code is long",
    "dispatch_stall": "ready, and the dispatcher held it back: as a rule two operands come from one bank of registers",
    "not_selected": "ready, and the scheduler took another warp: no loss",
    "branch_resolving": "a jump, until its target is known",
    "imc_miss": "a constant, as an argument of the kernel, is not in its cache",
    "drain": "stores have to leave before the warp can end",
    "membar": "a memory fence",
    "sleeping": "the warp sleeps",
    "tex_throttle": "too many texture operations at a time",
    "gmma": "wgmma, which this kernel does not use",
    "misc": "other reasons",
}
NO_LOSS = ("math_pipe_throttle", "not_selected")
SHOWN_REASONS = 3


def _stall(reason: str) -> str:
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


METRICS = (
    TIME, *FMA_AT_WORK, *FMA_OVERALL, CYCLES_AT_WORK, CYCLES, *MULTIPROCESSORS, GRID, THREADS,
    READ, WRITTEN, *DRAM_SHARE, L2_HITS,
    WARPS, MOST_WARPS, REGISTERS, SHARED, STATIC_SHARED, *LIMITS.values(),
    CONFLICTS, TURNS, *LOCAL_LOADS, *LOCAL_STORES,
    ISSUE, *(_stall(reason) for reason in (SELECTED, *REASONS)),
)


@dataclass(frozen=True)
class Problem:
    """The problem that was profiled."""

    dtype: str
    batch: int
    heads: int
    seq_len: int
    head_dim: int
    causal: bool

    @property
    def title(self) -> str:
        heads = "1 head" if self.heads == 1 else f"{self.heads} heads"
        mask = "causal" if self.causal else "not causal"
        return f"batch {self.batch}, {heads} of {self.head_dim}, {self.dtype}, seq_len {self.seq_len}, {mask}"

    @property
    def flops(self) -> int:
        """2 products of a multiplication and an addition for each pair of a query and a key that it sees."""
        pairs = self.seq_len * (self.seq_len + 1) // 2 if self.causal else self.seq_len**2
        return 4 * self.batch * self.heads * pairs * self.head_dim

    @property
    def element_bytes(self) -> int:
        return 2 if self.dtype in ("float16", "bfloat16") else 4

    @property
    def tensor_bytes(self) -> int:
        """Of one of q, k, v, out."""
        return self.element_bytes * self.batch * self.heads * self.seq_len * self.head_dim

    @property
    def result_bytes(self) -> int:
        return self.tensor_bytes + 4 * self.batch * self.heads * self.seq_len


@dataclass(frozen=True)
class Tiles:
    """Config<head_dim, queries, keys, warps> of the kernel."""

    head_dim: int
    queries: int
    keys: int
    warps: int


@dataclass(frozen=True)
class Profile:
    """One launch: the kernel's name as ncu writes it, and what was counted."""

    kernel: str
    metrics: dict[str, float]

    def get(self, *names: str) -> float | None:
        """The first of the metrics that was counted."""
        return next((self.metrics[name] for name in names if name in self.metrics), None)

    @property
    def tiles(self) -> Tiles | None:
        """None where the kernel is not the handout's template. Older versions of ncu write Config<(int)64, ...>."""
        found = re.search(r"Config<([^<>]*)>", self.kernel)
        numbers = re.findall(r"\d+", found[1]) if found else []
        return Tiles(*map(int, numbers)) if len(numbers) == 4 else None


@dataclass(frozen=True)
class Figure:
    title: str
    rows: tuple[tuple[str, str], ...]  # label, value
    meaning: str                       # in sentences; empty where nothing was counted


# ---- What the programs print -----------------------------------------------------------------------------------------------

def parse(text: str) -> Profile | None:
    """The first launch in the output of `ncu --csv --print-units base`, in which the program's own lines stand as well. None
    where no launch was profiled."""
    lines = text.splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith('"ID",') and '"Metric Name"' in line), None)
    if begin is None:
        return None
    rows = list(csv.DictReader(line for line in lines[begin:] if line.startswith('"')))
    first = [row for row in rows if row["ID"] == rows[0]["ID"]]
    if not first:
        return None
    counted = {row["Metric Name"]: _number(row.get("Metric Value")) for row in first}
    return Profile(first[0].get("Kernel Name") or "", {name: value for name, value in counted.items() if value is not None})


def _number(text: str | None) -> float | None:
    """6,392,320 or 41.55; None for n/a and "no data"."""
    return float(text.replace(",", "")) if re.fullmatch(r"-?[\d,]*\.?\d+(e[+-]?\d+)?", text or "", re.IGNORECASE) else None


def program_trouble(code: int, output: str) -> str:
    """Why bench_attention measured nothing, in one line."""
    missing = re.search(r"^task (\S+) is not started", output, re.MULTILINE)
    if missing:
        return (f"task {missing[1]} is not started, so that there is nothing to profile; next: ./lab check {missing[1]} "
                "(or ./lab profile --solution)")
    said = re.search(r"^(?:\w+: )?(?:error|OOM|unsupported): .*$", output, re.MULTILINE)
    return said[0] if said else f"the program ended with exit code {code}; last line: {_last_line(output)}"


def profiler_trouble(code: int, output: str, is_root: bool) -> str:
    """Why ncu profiled nothing, in one line."""
    if "ERR_NVGPUCTRPERM" in output:
        container = "; in a container: start that with --cap-add=SYS_ADMIN"
        as_root = f"root may, but not this one{container}" if is_root else f"run it as root (sudo ./lab profile){container}"
        return ("ERR_NVGPUCTRPERM: the driver lets only an administrator read the GPU's counters. Two ways out: "
                f"{as_root}; or give the counters to everybody: `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in "
                "a file of /etc/modprobe.d/, then restart the machine")
    errors = [line for line in output.splitlines() if line.startswith("==ERROR==")]
    if code != 0 or errors:
        last = errors[-1].removeprefix("==ERROR==").strip() if errors else _last_line(output)
        return f"ncu failed (exit code {code}): {last}"
    return f"ncu profiled no kernel: none with {KERNEL} in its name was launched often enough"


def _last_line(output: str) -> str:
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "it printed nothing")


# ---- Five figures ----------------------------------------------------------------------------------------------------------

def figures(profile: Profile, problem: Problem) -> list[Figure]:
    return [_arithmetic(profile, problem), _device_memory(profile, problem), _occupancy(profile), _shared_memory(profile),
            _waiting(profile)]


def asked_bytes(problem: Problem, tiles: Tiles) -> int:
    """What all thread blocks load, by the formula of section 7 of part 3's handout; without a cache all of it would come from
    device memory."""
    n, slices = problem.seq_len, _ceil(problem.head_dim, tiles.head_dim)
    elements = 0
    for first in range(0, n, tiles.queries):
        queries = min(tiles.queries, n - first)
        keys = min(n, tiles.keys * _ceil(first + queries, tiles.keys)) if problem.causal else n
        # Of a head in slices each thread block computes all scores, and fetches Q again for each block of keys.
        q = queries * (slices * _ceil(keys, tiles.keys) if slices > 1 else 1)
        elements += problem.head_dim * (q + slices * keys + keys)
    return problem.batch * problem.heads * problem.element_bytes * elements


def _ceil(count: int, of: int) -> int:
    return -(-count // of)


def _arithmetic(p: Profile, problem: Problem) -> Figure:
    time, at_work, overall = p.get(TIME), p.get(*FMA_AT_WORK), p.get(*FMA_OVERALL)
    grid, multiprocessors, busy, room = p.get(GRID), p.get(*MULTIPROCESSORS), _busy(p), _room(p)
    rows = (
        ("time", f"{time * 1e-6:.4g} ms, {problem.flops / time * 1e-3:.3g} TFLOP/s" if time else NOT_COUNTED),
        ("multiply-add pipe", _counted((at_work, "{:.3g} % of its peak where a multiprocessor has work"),
                                       (overall, "{:.3g} % of the whole GPU's"))),
        ("multiprocessors", _counted((multiprocessors, "{:.0f}"), (busy, "{:.0f} % of the time with work"))),
        ("grid", _counted((grid, "{:.0f} thread blocks"), (room, "room for {:.0f} at a time"))),
    )
    said = []
    if busy is not None and busy >= 90:
        said.append("Nearly the whole GPU has work from start to end.")
    elif busy is not None:
        said.append(f"{100 - busy:.0f} % of the GPU stood idle, so that every figure of the whole GPU is that much smaller.")
        if grid and multiprocessors and grid < multiprocessors:
            said.append(f"The grid is too small: {multiprocessors - grid:.0f} of {multiprocessors:.0f} multiprocessors got no "
                        "thread block. More heads, more queries, or fewer queries a block make more of them.")
        elif grid and room and grid > room:
            said.append(f"The grid is {grid / room:.2g} times what fits at a time, and in its last turn only a part of the GPU "
                        "has a thread block.")
    if at_work is not None:
        said.append("The pipe is near its limit: only fewer operations would be faster." if at_work >= 80 else
                    "Where there is work the pipe multiplies in most cycles." if at_work >= 50 else
                    "Also where there is work the pipe multiplies in less than half of the cycles: figure 5 says what for.")
    return Figure("Time and multiply-adds", rows, " ".join(said))


def _device_memory(p: Profile, problem: Problem) -> Figure:
    read, written, share, tiles = p.get(READ), p.get(WRITTEN), p.get(*DRAM_SHARE), p.tiles
    inputs, results = 3 * problem.tensor_bytes, problem.result_bytes
    rows = [
        ("traffic", _counted((_mib(read), "{:.4g} MiB read"), (_mib(written), "{:.4g} MiB written"),
                             (share, "{:.3g} % of the peak rate"))),
        ("each tensor once", _counted((_mib(inputs), "{:.4g} MiB of q, k, v"), (_mib(results), "{:.4g} MiB of out, lse"))),
        ("L2 cache", _counted((p.get(L2_HITS), "answers {:.0f} % of what reaches it"))),
    ]
    if tiles is not None:
        asked = _counted((_mib(asked_bytes(problem, tiles)), "load {:.4g} MiB"))
        rows.insert(2, ("all thread blocks", f"{asked}, with {tiles.queries} queries a block (section 7)"))
    said = []
    if read is not None and read <= 1.5 * inputs:
        said.append("Each input came from device memory about once; when further thread blocks ask for K and V, L2 answers.")
    elif read is not None:
        said.append(f"Device memory was read {read / inputs:.1f} times over: K and V did not stay in L2 between the thread "
                    "blocks that share them, or registers are spilled (figure 4).")
    if written is not None and written < 0.9 * results:
        said.append("What is missing of out and lse still lay in L2 when the kernel ended.")
    elif written is not None and written > 1.5 * results:
        said.append("More was written than out and lse: look at local memory in figure 4.")
    if share is not None:
        said.append("Device memory is not the limit." if share < 60 else
                    "Device memory is near its limit, and the kernel with it.")
    return Figure("Device memory", tuple(rows), " ".join(said))


def _occupancy(p: Profile) -> Figure:
    warps, most, limits, registers = p.get(WARPS), p.get(MOST_WARPS), _limits(p), p.get(REGISTERS)
    shared, grid, room = p.get(SHARED), p.get(GRID), _room(p)
    kib = None if shared is None else (shared + (p.get(STATIC_SHARED) or 0)) / 1024
    rows = (
        ("warps", _counted((warps, "{:.3g} % of what a multiprocessor can hold"), (most, "of this kernel {:.3g} % fit"))),
        ("blocks that fit", ", ".join(f"by {name} {count:.0f}" for name, count in limits.items()) or NOT_COUNTED),
        ("a thread block", _counted((p.get(THREADS), "{:.0f} threads"), (registers, "{:.0f} registers each"),
                                (kib, "{:.4g} KiB of shared memory"))),
    )
    said = []
    if limits:
        least = min(limits.values())
        names = [name for name, count in limits.items() if count == least]
        said.append(f"The limit is {' and '.join(names)}: no more than {_count(least, 'thread block')} on a multiprocessor.")
    if warps is not None and most is not None and warps < 0.75 * most:
        said.append(f"Not even those were there: the grid has {grid:.0f} thread blocks, and there is room for {room:.0f}."
                    if grid and room and grid < room else
                    "Not even those were there all the time: thread blocks do not end together.")
    if warps is not None:
        said.append("A low figure is no fault by itself: where a warp has many multiply-adds that do not wait for each other, "
                    "few warps are enough (section 8). Figure 5 says whether they were.")
    return Figure("Occupancy", rows, " ".join(said))


def _shared_memory(p: Profile) -> Figure:
    conflicts, turns, loads, stores = p.get(CONFLICTS), p.get(TURNS), p.get(*LOCAL_LOADS), p.get(*LOCAL_STORES)
    share = None if conflicts is None or not turns else 100 * conflicts / turns
    rows = (
        ("bank conflicts", NOT_COUNTED if share is None else f"{conflicts:,.0f} of {turns:,.0f} turns, {share:.1f} %"),
        ("local memory", _counted((loads, "{:,.0f} loads"), (stores, "{:,.0f} stores"))),
    )
    said = []
    if share is not None:
        said.append("Lanes that use shared memory at the same time come to different banks." if share < 1 else
                    f"Of 100 turns at shared memory {share:.0f} are repeats: lanes want different words of one bank. Section 2 "
                    "has the arithmetic, look at the `+ 4` and the `+ 8`.")
    if loads or stores:
        said.append("What should be registers lies in local memory, which is device memory: an array is indexed by a number "
                    "that the compiler does not know (FLASH_UNROLL is missing), or a thread wants more registers than it may "
                    "have.")
    elif loads is not None and stores is not None:
        said.append("S, O, m and l are registers: nothing is spilled.")
    return Figure("Shared memory and spills", rows, " ".join(said))


def _waiting(p: Profile) -> Figure:
    issue, cycles = p.get(ISSUE), {reason: value for reason in REASONS if (value := p.get(_stall(reason))) is not None}
    selected = p.get(_stall(SELECTED))
    largest = sorted((reason for reason in cycles if cycles[reason] >= 0.005), key=lambda reason: -cycles[reason])
    total = sum(cycles.values()) + (1 if selected is None else selected)
    rows = [
        ("issue", _counted((issue, "an instruction in {:.3g} % of the cycles in which a scheduler had warps"))),
        ("a warp", f"{total:.2f} cycles from one instruction to the next: 1 to issue it, {total - 1:.2f} of waiting"
         if cycles else NOT_COUNTED),
        *((reason, f"{cycles[reason]:.2f} cycles: {REASONS[reason]}") for reason in largest[:SHOWN_REASONS]),
    ]
    said = []
    if issue is not None:
        said.append("The schedulers are nearly always busy: only fewer instructions would be faster." if issue >= 80 else
                    f"In {100 - issue:.0f} of 100 cycles no warp of a scheduler could go on.")
        if cycles:
            warps = issue / 100 * total
            said.append(f"A scheduler had {warps:.1f} warps to choose from" +
                        (": while one waits, hardly another is there to run." if warps < 1.5 else "."))
    worst = next((reason for reason in largest if reason not in NO_LOSS), None)
    if worst and issue is not None and issue < 80:
        said.append(f"Most of the waiting that could be less is {worst}.")
    return Figure("What warps wait for", tuple(rows), " ".join(said))


def _busy(p: Profile) -> float | None:
    """How long a multiprocessor has work, on average over all of them, in percent of the kernel's time."""
    cycles, at_work = p.get(CYCLES), p.get(CYCLES_AT_WORK)
    return None if not cycles or at_work is None else 100 * at_work / cycles


def _limits(p: Profile) -> dict[str, float]:
    return {name: value for name, metric in LIMITS.items() if (value := p.get(metric)) is not None}


def _room(p: Profile) -> float | None:
    """How many thread blocks the GPU can hold at a time."""
    limits, multiprocessors = _limits(p), p.get(*MULTIPROCESSORS)
    return min(limits.values()) * multiprocessors if limits and multiprocessors else None


# ---- Words -----------------------------------------------------------------------------------------------------------------

def _counted(*parts: tuple[float | None, str]) -> str:
    """Those of the values that were counted, each in its words."""
    return "; ".join(text.format(value) for value, text in parts if value is not None) or NOT_COUNTED


def _mib(count: float | None) -> float | None:
    return None if count is None else count / 2**20


def _count(number: float, what: str) -> str:
    return f"{number:.0f} {what}{'' if number == 1 else 's'}"
