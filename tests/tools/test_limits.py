"""The emulator beside nvcc: what emulator/README.md names as not there does not compile, and says
in one sentence why; nvcc takes it, and all kernels of the emulator's corpus."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from course import Test
from lab import paths

EMULATOR = ["-DFLASH_SIMT=1", "-I", paths.ROOT / "emulator/headers", "-include", "cuda_runtime.h"]
# What a kernel does with `x` and `i`; outside of it; a part of the emulator's message.
NOT_THERE = {
    "inline PTX": ('asm volatile("mov.u32 %0, %laneid;" : "=r"(i));', "", ""),
    "clusters": ("cooperative_groups::this_cluster().sync();",
                 "#include <cooperative_groups.h>\n", "this_cluster"),
    "textures": ("x[i] = tex1Dfetch<float>(texture, i);", "__device__ cudaTextureObject_t texture;",
                 "cudaTextureObject_t"),
    "8-bit numbers": ("", "#include <cuda_fp8.h>\n__device__ __nv_fp8_e4m3 number;",
                      "the emulator has no 8-bit numbers"),
    "graphs": ("", "cudaGraph_t graph;", "cudaGraph_t"),
    "__activemask()": ("i = __activemask();", "", "the GPU decides which lanes run together"),
    "clock64()": ("i = clock64();", "", "its times say nothing about a GPU"),
}


class Limits(Test):
    def compiles(self, compiler, *words, code):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "a.cu"
            file.write_text(code)
            done = subprocess.run([compiler, "-std=c++20", "-I", paths.ROOT, *words, file],
                                  cwd=folder, capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stderr or "it failed"

    @staticmethod
    def nvcc():
        return ["-ptx", "-arch=compute_90a", "-o", "a.ptx", "-I", paths.ROOT / "tests", "-w"]

    def test_what_is_not_there_does_not_compile(self):
        page = (paths.ROOT / "emulator/README.md").read_text()
        point = page[page.index("**Not there"):].split("\n- ")[0]
        for name, (body, outside, said) in NOT_THERE.items():
            if name == "inline PTX":
                continue  # the host's assembler refuses it
            with self.subTest(name):
                self.assertIn(name, point)
                code = f"{outside}\n__global__ void k(float* x, unsigned i) {{ {body} x[i] = 1; }}\n"
                self.assertIn(said, self.compiles("c++", *EMULATOR, "-fsyntax-only", "-x", "c++",
                                                  code=code) or self.fail("it compiles"))

    def test_nvcc_takes_it(self):
        if not shutil.which("nvcc"):
            self.skipTest("no nvcc")
        code = "".join(f"{outside}\n" for _, outside, _ in NOT_THERE.values())
        code += "__global__ void k(float* x, unsigned i) {\n"
        code += "\n".join(body for body, _, _ in NOT_THERE.values()) + "\n}\n"
        self.assertEqual(self.compiles("nvcc", *self.nvcc(), code=code), "")

    def test_nvcc_takes_the_corpus(self):
        if not shutil.which("nvcc"):
            self.skipTest("no nvcc")
        files = sorted((paths.ROOT / "tests/emulator/corpus").glob("*.cu"))
        code = "".join(f'#include "{file}"\n' for file in files)
        self.assertEqual(self.compiles("nvcc", *self.nvcc(), code=code), "")
        kernels = re.findall(r"^(?:MISTAKE\(\w+, |[A-Z_]+\()(\w+), \(", "".join(
            file.read_text() for file in files), re.MULTILINE)
        self.assertGreater(len(set(kernels)), 120)
