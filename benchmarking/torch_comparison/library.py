"""Ours, as C functions: benchmarking/c_interface/ through ctypes."""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import REPOSITORY, ComparisonError, Failed, OutOfMemory, Unsupported, shown
from .problems import DTYPES, Case, SoftmaxMatmulCase

SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
LIBRARY = REPOSITORY / "build/default/lib" / f"libflash_attention_c{SUFFIX}"
TARGETS = ("flash_attention_c", "flash_attention_cuda_c", "flash_softmax_matmul_c", "flash_softmax_matmul_cuda_c")


def beside(library: Path, target: str) -> Path:
    """The file of another of the libraries: the build puts all of them into one folder."""
    return library.with_name(f"lib{target}{SUFFIX}")


class CLibrary:
    """A library whose functions return a FlashResult. Pointers are addresses of tensors that the caller keeps alive."""

    RESULTS = {1: Failed, 2: Unsupported, 3: OutOfMemory}
    TARGET = ""  # of the build, where the file's name does not say it

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            name = file.stem.removeprefix("lib")
            raise ComparisonError(f"{shown(file)} is not there: cmake --preset default && cmake --build --preset default "
                                  f"--target {name if name in TARGETS else self.TARGET}")
        try:
            self._c = ctypes.CDLL(str(file))
            self._c.flash_last_error.restype = ctypes.c_char_p
        except (OSError, AttributeError) as error:
            raise ComparisonError(f"{shown(file)} cannot be used: {error}") from None

    def call(self, function: str, *arguments: Any) -> None:
        self._raise(getattr(self._c, f"flash_{function}")(*arguments))

    def _bound(self, function: str, words: list[Any]) -> Callable[[], None]:
        """A call with its arguments converted once: what is timed is the pass, and the 2 us of a call through ctypes."""
        run, check = getattr(self._c, f"flash_{function}"), self._raise

        def call() -> None:
            result = run(*words)
            if result:
                check(result)

        return call

    def _raise(self, result: int) -> None:
        if result:
            raise self.RESULTS.get(result, Failed)(self._c.flash_last_error().decode(errors="replace"))


class Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "heads", "queries", "keys", "head_dim")]


class Library(CLibrary):
    """attention_c.h: the implementations on one kind of device, and on the CPU the oracle."""

    TARGET = "flash_attention_c"

    def names(self) -> list[str]:
        """The implementations, slowest first."""
        count = ctypes.c_int()
        self.call("implementation_count", ctypes.byref(count))
        found = []
        for index in range(count.value):
            name = ctypes.c_char_p()
            self.call("implementation_name", index, ctypes.byref(name))
            found.append((name.value or b"").decode())
        return found

    def has(self, name: str, dtype: str) -> bool:
        has = ctypes.c_int()
        self.call("implementation_has_dtype", name.encode(), DTYPES.index(dtype), ctypes.byref(has))
        return bool(has.value)

    def saves_p(self, name: str) -> bool:
        saves = ctypes.c_int()
        self.call("implementation_saves_p", name.encode(), ctypes.byref(saves))
        return bool(saves.value)

    def isa(self) -> str:
        text = ctypes.c_char_p()
        self.call("isa", ctypes.byref(text))
        return (text.value or b"").decode()

    def set_threads(self, threads: int) -> None:
        self.call("set_threads", threads)

    def fma_peak_gflops(self, dtype: str) -> float:
        gflops = ctypes.c_double()
        self.call("fma_peak_gflops", DTYPES.index(dtype), ctypes.byref(gflops))
        return gflops.value

    def prepared(self, function: str, case: Case, *addresses: int | None, name: str | None = None,
                 heads: bool = True) -> Callable[[], None]:
        """The call of a function that takes a problem; without `heads` it is about one head of the case."""
        batch, count = (case.batch, case.heads) if heads else (1, 1)
        shape = Shape(batch, count, case.seq_len, case.seq_len, case.head_dim)
        words = [ctypes.c_int(DTYPES.index(case.dtype)), ctypes.byref(shape), ctypes.c_int(case.causal),
                 *(ctypes.c_void_p(address) for address in addresses)]
        if name is not None:
            words.insert(0, ctypes.c_char_p(name.encode()))
        return self._bound(function, words)


class SoftmaxMatmulShape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "d1", "d2", "d3")]


class SoftmaxMatmulLibrary(CLibrary):
    """softmax_matmul_c.h: part 1's functions on a GPU in one library, the oracle in another."""

    NAMES = ("unfused", "fused_16", "fused_32", "fused_64")  # with block_1 = block_2

    def names(self) -> tuple[str, ...]:
        return self.NAMES

    def has(self, name: str, dtype: str) -> bool:
        return dtype == "float32"

    def prepared(self, case: SoftmaxMatmulCase, *addresses: int, name: str) -> Callable[[], None]:
        """A pass of one of `NAMES`, with the addresses of x, v and out."""
        block = int(name.removeprefix("fused_")) if name != "unfused" else 0
        shape = SoftmaxMatmulShape(case.batch, case.d1, case.d2, case.d3)
        words = [ctypes.byref(shape), *(ctypes.c_void_p(address) for address in addresses)]
        if block:
            return self._bound("fused_softmax_matmul", [*words, ctypes.c_int64(block), ctypes.c_int64(block)])
        return self._bound("softmax_matmul", words)

    def oracle(self, d2: int, d3: int, rows: int, *addresses: int) -> float:
        """Computes `rows` rows of one batch: of x (rows, d2) and v (d2, d3), on the host, into out, float64. Returns how far off an
        element may be by rounding."""
        largest = ctypes.c_double()
        shape = SoftmaxMatmulShape(1, rows, d2, d3)
        self.call("softmax_matmul_oracle", ctypes.byref(shape), *(ctypes.c_void_p(address) for address in addresses),
                  ctypes.byref(largest))
        return largest.value
