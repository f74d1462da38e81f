"""Small programs that show what a compiler and its tools can do; some have a bug to be reported.

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
template <std::floating_point T> T sum(std::span<const T> x) {
  return std::accumulate(x.begin(), x.end(), T{});
}
int main() { const double x[] = {1, 2, 3}; std::printf("%g", sum<double>(x)); }
"""

HEAP_OVERFLOW = """
int main(int argc, char**) {
  int* x = new int[4];
  x[3 + argc] = 1;
  const int y = x[argc];
  delete[] x;
  return y;
}
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

# For the emulator.
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
    return std::printf("%s", error.what());
  }
  cudaMemcpy(y, x, sizeof y, cudaMemcpyDeviceToHost);
  std::printf("%d", y[0]);
}
"""
NO_BARRIER = BARRIER.replace("  __syncthreads();\n", "")


@dataclass(frozen=True)
class Ran:
    code: int
    output: str  # stripped
    failed_at: str = "run"  # "compile" or "run"

    @property
    def last_line(self) -> str:
        return self.output.rpartition("\n")[2].strip()


def run(argv: list[str]) -> Ran:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=TIMEOUT, env=os.environ | {"LC_ALL": "C"})
        return Ran(done.returncode, done.stdout.strip())
    except subprocess.TimeoutExpired:
        return Ran(-1, f"no end within {TIMEOUT} s")
    except OSError as error:
        return Ran(-1, str(error))


def compile_and_run(source: str, compiler: list[str], *, suffix: str = ".cpp", start: bool = True,
                    link: list[str] | None = None, before: list[str] | None = None,
                    arguments: list[str] | None = None) -> Ran:
    """Compiles a program and runs it, under the command `before` where there is one. With `link`,
    that command links it in a step of its own."""
    with tempfile.TemporaryDirectory(prefix="lab-doctor-") as folder:
        file, program = Path(folder) / f"planted{suffix}", Path(folder) / "planted"
        file.write_text(source)
        steps = [[*compiler, str(file), "-o", str(program)]]
        if link:
            compiled = str(program.with_suffix(".o"))
            steps = [[*compiler, "-c", str(file), "-o", compiled],
                     [link[0], compiled, "-o", str(program), *link[1:]]]
        for step in steps:
            built = run(step)
            if built.code:
                return Ran(built.code, built.output, "compile")
        return run([*(before or []), str(program), *(arguments or [])]) if start else built


def emulate(source: str, compiler: str, root: Path, build: Path, *, checked: bool = False) -> Ran:
    """Compiles a .cu program for the emulator, with its checks or without, links it with the
    libraries in `build`, and runs it. The flags are those of common/simt/CMakeLists.txt."""
    flags = [compiler, "-std=c++20", "-I", str(root), "-I", str(root / "common/simt/include"),
             "-DFLASH_SIMT=1", "-Wno-unknown-pragmas", "-fPIC", "-g", "-O1", "-x", "c++"]
    link = [compiler, f"-L{build / 'lib'}", "-lflash_cuda_emulated", "-lflash_simt",
            "-lflash_common", f"-Wl,-rpath,{build / 'lib'}"]
    if checked:
        flags += ["-DFLASH_SIMT_CHECKED=1", "-fsanitize=thread,bounds",
                  "--param=tsan-distinguish-volatile=1",
                  "--param=tsan-instrument-func-entry-exit=0"]
        link += ["-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset"]
    # -fsanitize would link the sanitizer's own library, and the emulator has one in its place.
    return compile_and_run(source, flags, suffix=".cu", link=link)
