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

KERNEL = """
#include <concepts>
#include <cstdio>
template <std::integral T> __global__ void add(T* x) { x[threadIdx.x] += 1; }
int main() {
  int* x = nullptr;
  int y[4] = {};
  cudaMalloc(&x, sizeof y);
  cudaMemset(x, 0, sizeof y);
  add<<<1, 4>>>(x);
  cudaMemcpy(y, x, sizeof y, cudaMemcpyDeviceToHost);
  std::printf("%d", y[0] + y[3]);
}
"""


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


def compile_and_run(source: str, compiler: list[str], *, suffix: str = ".cpp",
                    start: bool = True) -> Ran:
    with tempfile.TemporaryDirectory(prefix="lab-doctor-") as folder:
        file, program = Path(folder) / f"planted{suffix}", Path(folder) / "planted"
        file.write_text(source)
        built = run([*compiler, str(file), "-o", str(program)])
        if built.code:
            return Ran(built.code, built.output, "compile")
        return run([str(program)]) if start else built
