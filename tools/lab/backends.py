"""Where CUDA tasks run: on a GPU, or emulated on the CPU (emulator), with its checks or without.

Each backend of a task is a library of its own. The checked one finds data races, reads of memory
that nobody wrote and accesses out of bounds, and is slower; cases that need its checks run only
there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lab.build import Config
from lab.errors import LabError
from lab.manifest import Task

# As the harness reports them. CPU: not a CUDA task.
CPU, GPU, EMULATED, CHECKED = "cpu", "gpu", "emulated", "checked"


@dataclass(frozen=True)
class Backends:
    config: Config
    asked: str = ""  # EMULATED or CHECKED; empty: the GPU, and the emulator where there is none
    sanitize: bool = False  # tasks in C++ run with AddressSanitizer in their library

    def of(self, task: Task) -> str | None:
        """The backend that runs the task. GPU without a GPU: it can only be compiled here. None:
        not even that."""
        if not task.is_cuda:
            return CPU
        if self.config.emulated and (self.asked or self.config.cuda != "gpu"):
            return self.asked or EMULATED
        return GPU if self.config.cuda != "none" else None

    def has_checks(self, task: Task) -> bool:
        return task.is_cuda and self.config.checked

    def sanitizes(self, task: Task) -> bool:
        return self.sanitize and not task.is_cuda

    def environment(self) -> dict[str, str]:
        """Of the runner of a library with AddressSanitizer."""
        if not self.sanitize:
            return {}
        return {"LD_PRELOAD": self.config.asan, "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=0",
                "UBSAN_OPTIONS": "abort_on_error=1:print_stacktrace=0"}

    def to_build(self, task: Task) -> list[str]:
        """The backends that a check of the task may need, the first one for most of its cases."""
        backends = [self.of(task), CHECKED if self.has_checks(task) else None]
        return list(dict.fromkeys(filter(None, backends)))

    def out_of_reach(self, task: Task) -> bool:
        return self.of(task) in (GPU, None) and self.config.cuda != "gpu"

    def words(self, backend: str | None) -> str:
        """For the card: where CUDA tasks ran, "emulated on the CPU (no GPU here)"."""
        if backend == CHECKED:
            return "emulated with all checks"
        if backend == EMULATED:
            return "emulated on the CPU" + ("" if self.config.cuda == "gpu" else " (no GPU here)")
        if self.config.cuda == "gpu":
            return f"on {self.config.gpu or 'the GPU'}"
        why = "no GPU here" + ("" if self.config.emulated else ", and no emulator")
        return f"compiled and not run ({why})" if backend == GPU else f"not run ({why})"


def choose(config: Config, emulate: bool = False, check_races: bool = False,
           sanitize: bool = False, tasks: Sequence[Task] = ()) -> Backends:
    """What the options mean on this machine. LabError where it cannot do that, or where an option
    would do nothing for these tasks."""
    names = ", ".join(task.name for task in tasks)
    if (emulate or check_races) and tasks and not any(task.is_cuda for task in tasks):
        asked = "--check-races checks kernels" if check_races else "--emulate runs kernels"
        raise LabError(f"{asked}, and there are none in {names}: --sanitize checks C++")
    if sanitize and tasks and all(task.is_cuda for task in tasks):
        raise LabError(f"--sanitize checks C++, and there is none in {names}: --check-races checks "
                       "kernels")
    if sanitize and not config.asan:
        raise LabError("--sanitize needs g++ on Linux with its libasan, which this build does not "
                       "have")
    option = "--check-races" if check_races else "--emulate"
    if (emulate or check_races) and not config.emulated:
        raise LabError(f"{option} needs the emulator, which this build does not have: it takes "
                       "Linux on x86-64 or AArch64, and a build without FLASH_SIMT=OFF")
    if check_races and not config.checked:
        raise LabError(f"{option} needs g++, whose instrumentation finds the races, and "
                       f"build/default was configured with {config.compiler}: delete "
                       "build/default, and try again with CXX=g++ in front")
    return Backends(config, CHECKED if check_races else EMULATED if emulate else "", sanitize)
