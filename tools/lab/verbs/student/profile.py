"""`./lab profile`: part 3's forward kernel under Nsight Compute."""

import argparse
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab import benchmarks, build, console, results, system
from lab.build import Config
from lab.console import say
from lab.errors import LabError

HELP = "run part 3's kernel under Nsight Compute (on a GPU): its counters, and its advice"

PART = "part3"
# What is profiled by default: one problem that fills any GPU, and no more passes than needed.
DEFAULTS = {"--batch": "8", "--seq-lens": "4096", "--causal": "off", "--warmups": "1",
            "--passes": "1"}
# The plain backward pass is given in part 3: it needs no bonus.
PASSES = {"--forward": "flash", "--backward": "plain"}
ENVIRONMENT = {"LC_ALL": "C"}  # numbers as 6,392,320.5, whatever the user's locale

KERNEL = "flash_forward"  # in the name of the kernel
SECTIONS = ("SpeedOfLight", "LaunchStats", "MemoryWorkloadAnalysis",
            "MemoryWorkloadAnalysis_Tables", "Occupancy", "SchedulerStats", "WarpStateStats")
# What these sections lack. GPUs have one or the other counter of the multiply-add pipe.
METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum", *(
    f"{counter}.avg.pct_of_peak_sustained_{of}" for of in ("active", "elapsed")
    for counter in ("sm__pipe_fma_cycles_active", "sm__inst_executed_pipe_fma")))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("part", nargs="?", default=PART, choices=[PART],
                        help=f"{PART} (the default)")
    parser.add_argument("--solution", action="store_true",
                        help="profile the reference solution instead of what you wrote")
    parser.options_example = ("./lab profile -- --seq-lens 1024 --causal on; ./lab profile -- "
                              "--help lists all")


def run(args: argparse.Namespace) -> int:
    implementation = "solution" if args.solution else "skeleton"
    if "--help" in args.options or "-h" in args.options:
        return benchmarks.run_program(args.part, implementation, ["--help"])
    given = {word.split("=")[0] for word in args.options}
    if "--output" in given:
        raise LabError("--output is not for a profile: a time taken under a profiler is no result")
    ncu = _ready(build.configured())
    program = benchmarks.built(args.part, implementation)
    defaults = DEFAULTS | ({} if "--impl" in given else PASSES)  # another name of --forward
    options = benchmarks.with_defaults(args.options, defaults)
    with tempfile.TemporaryDirectory(prefix="flash-profile-") as folder:
        output = Path(folder) / "attention.csv"
        _profile(ncu, [*program, *options, "--output", output], output)
    return 0


def _ready(config: Config) -> str:
    """The path of ncu. LabError where something that a profile needs is missing."""
    if config.cuda == "none":
        raise LabError("this build has no CUDA, and a profile needs a kernel on a GPU: nvcc 12.0 "
                       "or newer has to be in PATH (./lab doctor says more)")
    if config.cuda != "gpu":
        raise LabError("there is no GPU here, and a profile needs one: the emulator measures no "
                       "time (./lab doctor says more)")
    ncu = system.find_ncu()
    if ncu is None:
        package = "-".join(["cuda-nsight-compute", *config.cuda_version.split(".")[:2]])
        raise LabError("there is no ncu (Nsight Compute) in PATH or beside nvcc: it is part of "
                       f"NVIDIA's CUDA Toolkit, and the package {package} of NVIDIA's apt "
                       "repository; put its folder in PATH")
    return ncu


def _profile(ncu: str, program: Sequence[str | Path], output: Path) -> None:
    """Prints what ncu says of one launch of `program`, which writes its CSV to `output`."""
    # Once without the profiler: the tuner (part3_flash_cuda/tuning.hpp) launches the kernel too
    # when a problem is new, and leaves its choice in a file; errors are seen without ncu's lines;
    # and the row says what the problem is.
    environment = ["/usr/bin/env", f"FLASH_TUNING_FILE={output.with_name('tuning.txt')}"]
    alone = _run([*environment, *program], "running once without the profiler")
    found = results.groups(results.load(output)) if output.is_file() else []
    if alone.code != 0 or not found or not found[0].rows[0].forward_ms:
        raise LabError(_trouble_of_program(alone.code, alone.output))

    # The first timed launch comes after the one whose result is checked, and the warm-ups. The
    # clocks are left alone, so that the time is the benchmark's; ncu empties caches.
    skipped = 1 + int(benchmarks.value(program, "--warmups"))
    options = [*(word for section in SECTIONS for word in ("--section", section)),
               "--metrics", ",".join(METRICS), "--clock-control", "none",
               "--kernel-name", f"regex:{KERNEL}", "--launch-skip", str(skipped),
               "--launch-count", "1"]
    profiled = _run([*environment, ncu, *options, *program], "profiling")
    _, _, said = profiled.output.partition("==PROF== Disconnected")
    if profiled.code or " Section: " not in said:
        raise LabError(_trouble_of_ncu(profiled.code, profiled.output))
    group, row = found[0], found[0].rows[0]
    say(f"\n{group.title}, seq_len {row.size}, {'' if row.mask else 'not '}causal; alone: "
        f"{row.forward_ms:.4g} ms, {row.forward_tflops:.3g} TFLOP/s")
    for line in said.splitlines()[1:]:
        if not line.startswith("==WARNING== No metrics"):  # its rules look at them all the same
            say(line.rstrip())
    say("part3_flash_cuda/ladder/README.md, section 14, says in which order to read it")


def _run(command: Sequence[str | Path], description: str) -> console.Finished:
    console.print_command(command)
    return console.stream(command, description, env=ENVIRONMENT)


def _trouble_of_program(code: int, output: str) -> str:
    if missing := re.search(r"^task (\S+) is not started", output, re.MULTILINE):
        return (f"task {missing[1]} is not started, so there is nothing to profile; next: "
                f"./lab check {missing[1]} (or ./lab profile --solution)")
    said = re.search(r"^(?:\w+: )?(?:error|OOM|unsupported): .*$", output, re.MULTILINE)
    return said[0] if said else (f"the program ended with exit code {code}; "
                                 f"last line: {_last_line(output)}")


def _trouble_of_ncu(code: int, output: str) -> str:
    if "ERR_NVGPUCTRPERM" in output:
        container = "in a container, start that with --cap-add=SYS_ADMIN"
        as_root = (container if system.is_root()
                   else f"run it as root (sudo ./lab profile); {container}")
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
