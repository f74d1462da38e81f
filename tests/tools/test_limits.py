"""The emulator beside nvcc: what emulator/README.md names as not there does not compile, and says
in one sentence why; nvcc takes it, and all kernels of the emulator's corpus."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from course import Test
from lab import build, paths

EMULATOR = ["-DFLASH_SIMT=1", "-I", paths.ROOT / "emulator/headers", "-include", "cuda_runtime.h"]
# What a kernel does with `x`, `i` and `h`, and what the message says then. The first are points of
# the page.
POINTS = {
    "clusters": ("cooperative_groups::this_cluster().sync();", "no this_cluster: a cluster has"),
    "textures": ("x[i] = tex1Dfetch<float>(textured, i);", "no tex1Dfetch"),
    "graphs": ("cudaGraph_t graph; (void)graph;", "no cudaGraph_t"),
    "8-bit numbers": ("__nv_fp8_e4m3 number; (void)number;", "no __nv_fp8_e4m3: take half"),
    "`__activemask()`": ("i = __activemask();", "the GPU decides which lanes run together"),
    "`clock64()`": ("i = clock64();", "its times say nothing about a GPU"),
    "a reference as a kernel's parameter": (
        "} __global__ void by_reference(float& a) { a = 1; } inline void starts(float& a) { "
        "flash::launch(\"\", by_reference, {1, 1}, a);", "a kernel takes its arguments by value"),
}
OTHERS = (
    ("} __global__ void __cluster_dims__(2) also() {", "no __cluster_dims__: take"),
    ("i = __vadd4(i, i);", "no __vadd4: compute with each byte"),
    ("x[i] = __fadd_rz(x[i], 1);", "__fadd_rn(), or the ordinary"),
    ("x[i] = __dadd_rn(x[i], 1);", "write the ordinary operation"),
    ("atomicAdd_block(x, 1.0f);", "take atomicAdd()"),
    ("i = __isShared(x);", "take shared_address()"),
    ("h = __hmax_nan(h, h);", "convert to float and back"),
    ("x[i] = erfinvf(x[i]);", "the functions of <math.h>"),
    ("__prof_trigger(1);", "emulator/README.md lists"),
    ("cooperative_groups::grid_group g = cooperative_groups::this_grid(); g.sync();",
     "a block runs to its end before the next"),
    ("auto lanes = cooperative_groups::coalesced_threads();", "take a tile"),
    ("cooperative_groups::invoke_one(cooperative_groups::this_thread_block(), [] {});",
     "blocks, tiles of a warp"),
)
REFUSED_BY_BOTH = (
    ("x[i] = __shfl_down(x[i], 1);", "__shfl_down_sync() names the lanes"),
    ("} template <class F> __global__ void g(F) {} inline void h() { auto f = [] {}; "
     "flash::simt::launch(\"g\", g<decltype(f)>, {1, 1, 1}, {1, 1, 1}, 0, nullptr, "
     "std::tuple(f));", "nvcc takes no lambda"),
    ("atomicMax(x, 1.0f);", "no atomicMax for these types: repeat atomicCAS()"),
)
BEFORE = """#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cooperative_groups.h>
#include "common/cuda/launch.hpp"
"""


class Limits(Test):
    def compiles(self, compiler, *words, code):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "a.cu"
            file.write_text(code)
            done = subprocess.run([compiler, "-std=c++20", "-I", paths.ROOT, *words, file],
                                  cwd=folder, capture_output=True, text=True,
                                  env=os.environ | {"LC_ALL": "C"})
        return "" if done.returncode == 0 else done.stderr or "it failed"

    @staticmethod
    def nvcc():
        return ["-ptx", "-arch=compute_90a", "-o", "a.ptx", "-I", paths.ROOT / "tests", "-w"]

    @staticmethod
    def kernels(bodies):
        return BEFORE + "".join(f'''#line {number} "a.cu"
__global__ void k{number}(float* x, unsigned i, __half h, unsigned long long textured) {{ {body} }}
''' for number, body in enumerate(bodies, 1))

    def test_each_thing_that_is_not_there_has_its_sentence(self):
        page = (paths.ROOT / "emulator/README.md").read_text()
        point = page[page.index("**Not there"):].split("\n- ")[0]
        for name in ("inline PTX", *POINTS):
            self.assertIn(name, point)
        named = [*POINTS.values(), *OTHERS, *REFUSED_BY_BOTH]
        # clang compiles no template after another error, and stops at the twentieth error.
        templates = [named.pop(n) for n in (5, 4)]
        alone = [one for one in named if "launch(" in one[0]]
        named = [one for one in named if one not in alone]
        for tried in (named[::2], named[1::2], templates, *([one] for one in alone)):
            log = self.compiles("c++", *EMULATOR, "-fsyntax-only", "-x", "c++",
                                code=self.kernels(body for body, _ in tried))
            for number, (body, said) in enumerate(tried, 1):
                with self.subTest(body):
                    own = re.search(rf"^a\.cu:{number}:.* error: .*", log, re.MULTILINE)
                    # A static_assert of the emulator's is reported in its header.
                    self.assertIn(said, build.first_error(own[0], paths.ROOT) if own else log)

    def test_nvcc_takes_it(self):
        if not shutil.which("nvcc"):
            self.skipTest("no nvcc")
        bodies = [body for body, _ in (*POINTS.values(), *OTHERS)]
        self.assertEqual(self.compiles("nvcc", *self.nvcc(), code=self.kernels(bodies)), "")

    def test_nvcc_takes_the_corpus(self):
        if not shutil.which("nvcc"):
            self.skipTest("no nvcc")
        files = sorted((paths.ROOT / "tests/emulator/corpus").glob("*.cu"))
        code = "".join(f'#include "{file}"\n' for file in files)
        self.assertEqual(self.compiles("nvcc", *self.nvcc(), code=code), "")
        kernels = re.findall(r"^(?:MISTAKE\(\w+, |[A-Z_]+\()(\w+), \(", "".join(
            file.read_text() for file in files), re.MULTILINE)
        self.assertGreater(len(set(kernels)), 120)
