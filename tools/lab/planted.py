"""Small programs that prove what a compiler and its tools can do, some with a bug that a tool has to report.

Standard library only, as `./lab doctor` is.
"""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 120  # seconds for one program to compile or to run

CPP20 = """
#include <concepts>
#include <cstdio>
#include <numeric>
#include <span>
template <std::floating_point T> T sum(std::span<const T> x) { return std::accumulate(x.begin(), x.end(), T{}); }
int main() { const double x[] = {1, 2, 3}; std::printf("%g", sum<double>(x)); }
"""

HEAP_OVERFLOW = """
int main(int argc, char**) { int* x = new int[4]; x[3 + argc] = 1; const int y = x[argc]; delete[] x; return y; }
"""

SIGNED_OVERFLOW = """
#include <climits>
int main(int argc, char**) { int x = INT_MAX; x += argc; return x == 0; }
"""

DATA_RACE = """
#include <thread>
int x = 0;
int main() { std::thread t([] { x = 1; }); x = 2; t.join(); return x == 0; }
"""

KERNEL = """
#include <concepts>
#include <cstdio>
template <std::integral T> __global__ void add(T* x, int past) { x[threadIdx.x + past] += 1; }
int main(int argc, char**) {
  int* x = nullptr;
  int y[4] = {};
  cudaMalloc(&x, sizeof y);
  cudaMemset(x, 0, sizeof y);
  add<<<1, 4>>>(x, (argc - 1) * 1024);  // with an argument: out of bounds
  cudaMemcpy(y, x, sizeof y, cudaMemcpyDeviceToHost);
  std::printf("%d", y[0] + y[3]);
}
"""

# For the emulator of common/simt. Without the barrier one thread reads what another has written, in no order.
BARRIER = """
#include <cstdio>
#include "common/cuda/launch.hpp"
__global__ void reverse(int* x) {
  __shared__ int tile[64];
  tile[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  x[threadIdx.x] = tile[63 - threadIdx.x];
}
int main() {
  int* x = nullptr;
  int y[64] = {};
  cudaMalloc(reinterpret_cast<void**>(&x), sizeof y);
  try {
    flash::launch("reverse", reverse, {.grid = dim3(1), .block = dim3(64)}, x);
  } catch (const std::exception& error) {
    std::printf("%s", error.what());
    return 1;
  }
  cudaMemcpy(y, x, sizeof y, cudaMemcpyDeviceToHost);
  std::printf("%d", y[0]);
}
"""
NO_BARRIER = BARRIER.replace("  __syncthreads();\n", "")


@dataclass(frozen=True)
class Ran:
    code: int
    output: str
    failed_at: str = "run"  # "compile" or "run"

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1] if lines else ""


def run(argv: list[str]) -> Ran:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=TIMEOUT, env=os.environ | {"LC_ALL": "C"})
        return Ran(done.returncode, done.stdout.strip())
    except subprocess.TimeoutExpired:
        return Ran(-1, f"no end within {TIMEOUT} s")
    except OSError as error:
        return Ran(-1, str(error))


def emulate(source: str, compiler: str, root: Path, build: Path, *, checked: bool = False) -> Ran:
    """Compiles a .cu program for the emulator, with its checks or without, links it with the libraries in `build`, and runs it.
    The flags are those of common/simt/CMakeLists.txt."""
    flags = [compiler, "-std=c++20", "-I", str(root), "-I", str(root / "common/simt/include"), "-DFLASH_SIMT=1",
             "-Wno-unknown-pragmas", "-fPIC", "-g", "-O1"]
    libraries = [f"-L{build / 'lib'}", "-lflash_cuda_emulated", "-lflash_simt", "-lflash_common", f"-Wl,-rpath,{build / 'lib'}"]
    if checked:
        flags += ["-DFLASH_SIMT_CHECKED=1", "-fsanitize=thread", "-fsanitize=bounds", "--param=tsan-distinguish-volatile=1",
                  "--param=tsan-instrument-func-entry-exit=0"]
        libraries += ["-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset"]
    with tempfile.TemporaryDirectory(prefix="lab-doctor-") as folder:
        file, compiled, program = (Path(folder) / name for name in ("planted.cu", "planted.o", "planted"))
        file.write_text(source)
        # In two steps: a linker that saw -fsanitize would take the sanitizer's own library, and the emulator has one in its place.
        for command in ([*flags, "-x", "c++", "-c", str(file), "-o", str(compiled)],
                        [compiler, str(compiled), "-o", str(program), *libraries]):
            built = run(command)
            if built.code != 0:
                return Ran(built.code, built.output, "compile")
        return run([str(program)])


def compile_and_run(source: str, compiler: list[str], *, suffix: str = ".cpp", start: bool = True,
                 before: list[str] | None = None, arguments: list[str] | None = None) -> Ran:
    """Compiles a program in a temporary folder and runs it, under the command `before` where there is one."""
    with tempfile.TemporaryDirectory(prefix="lab-doctor-") as folder:
        file, program = Path(folder) / f"planted{suffix}", Path(folder) / "planted"
        file.write_text(source)
        built = run([*compiler, str(file), "-o", str(program)])
        if built.code != 0:
            return Ran(built.code or -1, built.output, "compile")
        return run([*(before or []), str(program), *(arguments or [])]) if start else built
