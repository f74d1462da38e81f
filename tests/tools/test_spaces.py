"""lab.submission.spaces: host code in a kernel is found in the text of a file, as nvcc finds it."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from course import Test
from lab import manifest, paths
from lab.submission import spaces

FRAME = """#include <cooperative_groups.h>
#include "common/cuda/device.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>
#define ON_DEVICE __device__ __forceinline__
struct Given { __device__ int size() const { return 1; } };
"""
# A line each: what stands outside of the kernel, and its body. All get their `x`, `y` and `n`.
WRONG = (
    ("float half_of(float a) { return a / 2; }", "x[0] = half_of(x[1]);"),
    ("template <class T> T half_of(T a) { return a / 2; }", "x[0] = 1 + half_of<float>(x[1]);"),
    ("float half_of(float a); ON_DEVICE float f(float a) { return half_of(a); }", "x[0] = f(1);"),
    ("static inline float half_of(float a) { return a / 2; }",
     "const auto f = [&](float a) { return half_of(a); }; x[0] = f(x[1]);"),
    ("struct S { int a; int times_two() const { return 2 * a; } };", "y[0] = S{1}.times_two();"),
    ("int limit = 3;", "y[0] = n < limit;"),
    ("const int kTable[2] = {1, 2};", "y[0] = kTable[n];"),
    ("", "y[0] = std::max(n, 3);"),
    ("", "std::swap(x[0], x[1]);"),
    ("", "x[0] = -std::numeric_limits<float>::infinity();"),
    ("", "std::vector<int> many(3); y[0] = many[0];"),
    ("", "y[0] = rand() % 3;"),
    ("", "memmove(x, y, 4);"),
    ("", "if (n < 0) throw n;"),
    ("", "__shared__ int count = 0; y[0] = count;"),
    ("", "__shared__ float tile[2][3] = {}; x[0] = tile[0][0];"),
    ("__device__ int twice(int a) { return 2 * a; } int on_host() { return twice(1); }", ""),
    ("__global__ void other() {} void on_host() { other(); }", ""),
    ("__global__ void other() {}", "other();"),
    ("constexpr int half_of(int a) { return a / 2; }", "y[0] = half_of(n);"),
    ("", "constexpr int a = std::max(1, 2); y[0] = a;"),
    ("constexpr float kTable[2] = {1, 2};", "x[0] = kTable[n];"),
    ("struct C { static constexpr float table[2] = {1, 2}; };", "x[0] = C::table[n];"),
    ("const float kE = std::exp(1.0f);", "x[0] = kE;"),
    ("struct S { float a; explicit S(float b) : a(b) {} };", "S s(1); x[0] = s.a;"),
    ("struct S { float a; S(float b) : a(b) {} };", "x[0] = S{1}.a;"),
    ("float half_of(float a);", "float (*f)(float) = half_of; x[0] = f(1);"),
    ("", "__device__ float a = 1; x[0] = a;"),
    ("", "const auto f = [=] __device__ (float a) { return a; }; x[0] = f(1);"),
    ("__global__ int counts() { return 1; }", ""),
    ("float4 operator+(float4 a, float4 b) { a.x += b.x; return a; }",
     "float4 a{}; a = a + a; x[0] = a.x;"),
    ("struct V { float a; }; V& operator+=(V& a, const V& b) { a.a += b.a; return a; }",
     "V a{1}; a += a; x[0] = a.a;"),
    ("", "x[0] = 1 / sqrt(n);"),
    ("", "x[0] = fmax(x[1], 0.0);"),
    ("", "x[0] = std::fmin(x[n + 1], 1);"),
    ("struct S { __global__ void other() {} };", ""),
    ("const float kScale = 2; __device__ float f(const float* a) { return *a; }",
     "x[0] = f(&kScale);"),
    ("", "const unsigned* own = &threadIdx.x; y[0] = *own;"),
    ("", "static int first = n; y[0] = first;"),
    ("", "std::array<int, 2> a{1, n}; y[0] = a[1];"),
    ("", "y[0] = __builtin_ctz(n);"),
    ("static __device__ const float kSlope = 1 / sqrtf(64.0f);", "x[0] = kSlope;"),
    ("__constant__ float kRate = std::exp(1.0f);", "x[0] = kRate;"),
    ("", "static const float kRoot = sqrtf(2.0f); x[0] = kRoot;"),
)
RIGHT = (
    ("constexpr int kN = 3; const int kM = 4; enum { kE = 1 };", "y[0] = kN + kM + kE;"),
    ("static const float kScale = 0.5f;", "x[0] *= kScale;"),
    ("constexpr int half_of(int a) { return a / 2; } constexpr int kH = half_of(4);", "y[0] = kH;"),
    ("__host__ __device__ int both(int a) { return a; } int on_host() { return both(1); }",
     "y[0] = both(n);"),
    ("template <class T> __device__ T later(T a);", "y[0] = later(n);"),
    ("template <class T> __device__ T later(T a) { return a; }", "y[0] = later<int>(n);"),
    ("ON_DEVICE float f(float a) { return a; }", "x[0] = f(x[1]);"),
    ("int limit = 3;", "const int limit = n; y[0] = limit;"),
    ("float half(float a);", "const auto half = [](float a) { return a / 2; }; x[0] = half(1);"),
    ("struct S { int a = 1; __device__ S() {} __device__ int twice() { return 2 * a; } };",
     "y[0] = S().twice();"),
    ("struct T { int size(); };", "y[0] = Given().size();"),
    ("__constant__ float weights[2]; __device__ int calls;", "x[0] = weights[1]; ++calls;"),
    ("", "__shared__ float tile[2][3]; tile[0][n] = 1; x[0] = tile[0][n];"),
    ("", "x[0] = std::fmax(std::exp(x[1]), std::abs(x[2])); int z = std::move(n); y[0] = z;"),
    ("", "auto block = cooperative_groups::this_thread_block(); y[0] = block.size();"),
    ("", "float* own = (float*)malloc(4); free(own); *x = max(*x, 1.0f);"),
    ("", "memcpy(x, y, 4); printf(\"std::sort() %d\", n); /* std::sort() */"),
    ("constexpr int kSizes[2] = {1, 2};",
     "constexpr int a = kSizes[1]; float b[kSizes[0]]; b[0] = a; x[0] = b[0] + sizeof(kSizes);"),
    ("struct C { static constexpr int kN = 2; };", "y[0] = C::kN;"),
    ("const int kA = sizeof(float) * 2, kB = int(2.5f);", "y[0] = kA + kB;"),
    ("struct S { float a; S() = default; S(float b) : a(b) {} };", "S s; s.a = 1; x[0] = s.a;"),
    ("struct S { float a; S(float b) : a(b) {} }; __device__ float f(S s) { return s.a; }",
     "struct L { __device__ int f() { return 1; } }; y[0] = L().f();"),
    ("__device__ float4 operator+(float4 a, float4 b) { a.x += b.x; return a; }",
     "float4 a{}; a = a + a; x[0] = a.x + n;"),
    ("", "x[0] = sqrt(x[n]) + fmax(x[1], 0.0f) + fmax(1.0 * n, 0.0) + pow(x[1], 2) + fmaxf(n, 1);"),
    ("", "static __device__ int calls; calls = 1; y[0] = calls;"),
    ("const int kMask = 3; __device__ int f(const int (&a)[2], const int* b) { return a[*b]; }",
     "int a[2] = {}; y[0] = f(a, &n) + (n & kMask) + (n & threadIdx.x) + (&a[1] - a);"),
    ("constexpr int kStart = 3;",
     "static int calls = kStart + sizeof(float); y[0] = ++calls + __builtin_clz(n);"),
    ("", "y[0] = std::is_same_v<int, int> ? int(sizeof(std::size_t)) : 0;"),
    ("\n#define KERNEL(name) __global__ void name(float* to)\nKERNEL(never) { *to = 1; }", ""),
    # Left out before a compiler reads it.
    ("\n#define V (0)\n#undef DEBUG\n",
     "\n#if V || 0x0 || defined DEBUG\nstd::vector<int> old; struct A{ }\n#endif\n"),
    ("", "\n#ifdef NOBODY\nthrow n;\n#elif defined(NOBODY) && NOBODY > 3\nrand();\n#endif\n"),
    ("\n#define SLOW 0\n#if SLOW\nint f();\n#else\n__device__ int f();\n#endif\n", "y[0] = f();"),
    ("\n#define OWN\n#ifdef OWN\n__device__ int f();\n#else\nint f();\n#endif\n", "y[0] = f();"),
)


def source(snippets):
    """With the line of each snippet."""
    lines = {f"line {FRAME.count(chr(10)) + 1 + n}": snippet for n, snippet in enumerate(snippets)}
    return lines, FRAME + "\n".join(
        f"namespace n{n} {{ {outside} __global__ void k(float* x, int* y, int n) {{ {body} }} }}"
        for n, (outside, body) in enumerate(snippets)) + "\n"


def refused_by_nvcc(text):
    """The lines that nvcc names. It ends after the phase in which it found something: what it
    found is taken out, until it takes the rest."""
    found, lines = set(), text.split("\n")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.cu"
        while True:
            file.write_text("\n".join("" if n in found else line
                                      for n, line in enumerate(lines, 1)))
            done = subprocess.run(["nvcc", "-std=c++20", "-cuda", "-arch=compute_80", "-I",
                                   paths.ROOT, file, "-o", Path(folder) / "a.ii"], capture_output=True, text=True)
            named = {int(line) for line in re.findall(r"a\.cu\((\d+)\): error", done.stderr)}
            if done.returncode == 0 or named <= found:
                return {f"line {line}" for line in found}
            found |= named


class Spaces(Test):
    def found(self, text):
        return {re.match(r"line \d+", line)[0]: line
                for line in spaces.findings(text, paths.ROOT)}

    def test_each_mistake_is_named_with_its_line(self):
        lines, text = source(WRONG)
        found = self.found(text)
        for line, snippet in lines.items():
            with self.subTest(snippet):
                self.assertIn(line, found)
        self.assertIn("calls `half_of()` in a kernel: nvcc refuses there what is not `__device__`",
                      found["line 14"])

    def test_variables_of_the_hosts_threads_are_shared_memory_in_the_emulator(self):
        found = spaces.findings("void f() {\n  thread_local int kept[2];\n}\n", paths.ROOT)
        self.assertEqual(len(found), 1)
        self.assertIn("line 2 has `thread_local`", found[0])

    def test_right_code_is_welcome(self):
        self.assertEqual(self.found(source(RIGHT)[1]), {})
        self.assertEqual(self.found("#if FLASH_UNKNOWN\n#else\n" + "struct A{" * 3000), {})

    def test_the_courses_kernels_are_welcome(self):
        files = [file for part in manifest.load_parts() for file in part.folder.rglob("*.cu")]
        self.assertGreater(len(files), 30)
        for file in files:
            with self.subTest(file.name):
                self.assertEqual(spaces.findings(file.read_text(), paths.ROOT), [])

    def test_nvcc_says_the_same(self):
        if not shutil.which("nvcc"):
            self.skipTest("no nvcc")
        lines, text = source(WRONG)
        self.assertEqual(refused_by_nvcc(text), set(lines))
        self.assertEqual(refused_by_nvcc(source(RIGHT)[1]), set())

    def test_variables_that_nobody_set(self):
        lines, text = source([("struct Sums { float m, l[4]; };" * (body[:4] == "Sums"), body)
                              for body in (
            "Sums sums; for (int i = 0; i < n; ++i) sums.l[i % 4] += x[i]; x[0] = sums.l[n];",
            "float s[4]; const auto add = [&](int i) { s[i] += x[i]; }; add(n); x[0] = s[n];",
            "float sum; for (int i = 0; i < n; ++i) sum += x[i]; x[0] = sum;",
            "float o[8][2]; for (int r = 0; r < 8; ++r) o[r][0] += x[r]; x[0] = o[n][0];",
            "float a, m; a = 1; m = fmaxf(m, x[n]); x[0] = m + a;",
            "int count; if (n > 3) ++count;  y[0] = count;".replace("++count", "count++"))])
        found = spaces.unset(text)
        self.assertEqual({f"line {line}" for line in found}, set(lines))
        self.assertTrue(any("`o` is used before anything is assigned to it" in said
                            for said in found.values()))

    def test_variables_that_are_set(self):
        text = source([("struct Set { float m = 0; };" * (body[:3] == "Set"), body) for body in (
            "Set set; set.m += x[0];", "float s; auto add = [&] { s += 1; }; s = x[0]; add();",
            "float s; const auto add = [&] { s += 1; }; load(&s); add();",
            "float sum = 0; sum += x[0];", "float sum; sum = x[0]; sum += x[1];",
            "float o[4]; load(x, o); o[0] += 1;", "__shared__ float s[4]; s[n] += 1;",
            "float a[2]; const auto add = [&] { a[0] += 1; }; a[0] = x[0]; add();",
            "float row; row = work.row + x[0]; row += 1;")])[1]
        self.assertEqual(spaces.unset(text), {})
