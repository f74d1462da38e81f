"""Submissions that try to earn points without solving part1.fused_cpu, for test_judge.py.

Each is a name, code outside of a function, and the body of the function. None writes a right
output; so each must earn nothing, with the audit and, to show that grades do not stand on it,
without. CUDA_ATTACKS, at the end, are for part1.fused_cuda.
"""

import dataclasses


def fast(bench):
    """Compiles fast, because nobody measures."""
    return dataclasses.replace(bench, builds={
        task: tuple(dataclasses.replace(build, flags=tuple(
            {"-O2": "-O1", "-ftree-vectorize": "-w"}.get(word, word) for word in build.flags))
            for build in builds) for task, builds in bench.builds.items()})


FRAME = """#include <cstdint>
#include <cstdio>
#include <cmath>
#include <limits>
#include <vector>
#include "common/checks.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
{top}
namespace flash {{
template <class Value>
void write_all(const SoftmaxMatmul<float>& pass, Value value) {{
  const auto s = pass.shape();
  for (Index b = 0; b < s.batch; ++b)
    for (Index i = 0; i < s.d1; ++i)
      for (Index c = 0; c < s.d3; ++c) pass.out(b, i, c) = value(b, i, c);
}}
void fused_softmax_matmul(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks& blocks) {{
  (void)pass; (void)blocks;
  {body}
}}
}}
FLASH_TASK(FusedCpuTask)
"""

# A softmax matmul that is right and holds all of softmax(X) in P: it must not earn the memory case.
QUADRATIC = """
  const auto s = check_softmax_matmul(pass);
  const Index need = s.batch * s.d1 * s.d2;
  %s
  for (Index b = 0; b < s.batch; ++b)
    for (Index i = 0; i < s.d1; ++i) {
      float* row = P + (b * s.d1 + i) * s.d2;
      float m = -INFINITY, l = 0;
      for (Index j = 0; j < s.d2; ++j) m = std::fmax(m, pass.x(b, i, j));
      for (Index j = 0; j < s.d2; ++j)
        l += row[j] = pass.x(b, i, j) == -INFINITY ? 0 : std::exp(pass.x(b, i, j) - m);
      for (Index c = 0; c < s.d3; ++c) {
        float o = 0;
        for (Index j = 0; j < s.d2; ++j) o += row[j] * pass.v(b, j, c);
        pass.out(b, i, c) = l == 0 ? 0 : o / l;
      }
    }
"""

_SYSCALL = """
static long raw(long n, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  long r; register long r10 asm("r10") = d; register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return r;
}
"""
# A message of the runner's protocol, as an attacker who has read it would build it.
_FORGED = """
static unsigned words[690];  // sizeof(Message) / 4
"""

ATTACKS = {
    # ---- taking the process over ----
    "static object exits": (
        'extern "C" void _exit(int);\nstruct A { A() { _exit(0); } };\nstatic A a;', ""),
    "exit(0)": ('extern "C" void exit(int);', "exit(0);"),
    "crash when it is loaded": (
        "struct A { A() { *(volatile int*)8 = 1; } };\nstatic A a;", ""),
    "an exception of a type that nobody knows": ("", "throw 42;"),
    # ---- forging a result ----
    "prints a verdict and a report": ("", r"""
      std::printf("{\"event\":\"end\",\"case\":\"one element\",\"status\":\"passed\","
                  "\"message\":\"\",\"seconds\":0}\n"
                  "{\"event\":\"complete\"}\nverdict:passed\n");"""),
    "says done before it is done": (_SYSCALL + _FORGED, """
      words[0] = 6; raw(44, 3, (long)words, sizeof words); raw(44, 3, (long)words, sizeof words);
      for (;;) {}"""),
    "answers from a constructor": (_SYSCALL + _FORGED + """
      struct A { A() { words[0] = 2; raw(44, 3, (long)words, sizeof words);
                       words[0] = 6; raw(44, 3, (long)words, sizeof words); } };
      static A a;""", ""),
    "a message of the wrong size": (_SYSCALL + _FORGED, "raw(44, 3, (long)words, 17);"),
    "writes to every descriptor": (_SYSCALL, """
      for (long fd = 0; fd < 64; ++fd) raw(1, fd, (long)"{\\"event\\":\\"complete\\"}\\n", 21);"""),
    "opens the report": ("", """
      for (const char* name : {"report.jsonl", "/tmp/report.jsonl", "../report.jsonl"})
        if (FILE* f = std::fopen(name, "a")) std::fputs("{}", f);"""),
    "an exception that breaks the report": ("#include <stdexcept>", r"""
      throw std::runtime_error("\xff\xfe\xe2\x80\xa8\r\n{\"event\":\"complete\"}\x85\x1e");"""),
    "an error message that blames the machine": (
        '#line 1 "bwrap: No space left on device"\n#error bwrap: execvp', ""),
    # ---- the reference ----
    "includes the oracle": (
        '#include "common/oracle.cpp"',
        "auto o = softmax_matmul_oracle(pass.x, pass.v); (void)o;"),
    "calls the oracle": (
        "namespace flash { Tensor<double, 3> softmax_matmul_oracle(TensorView<const float, 3>, "
        "TensorView<const float, 3>); }",
        "auto o = softmax_matmul_oracle(pass.x, pass.v); "
        "write_all(pass, [&](auto... at) { return (float)o(at...); });"),
    "includes the solution": (
        '#include "part1_softmax_matmul/solution/fused_cpu.cpp"', ""),
    "includes a file of the machine": ('const char* secret =\n#include "/etc/passwd"\n;', ""),
    # ---- outputs that were not computed ----
    "does nothing": ("", ""),
    "writes NaN": ("", "write_all(pass, [](auto...) { return NAN; });"),
    "returns memory that nobody wrote": ("", """
      const auto s = pass.shape();
      if (s.d2 == 0) return;  // 0 would be right there
      float* stale = new float[1 << 20];
      write_all(pass, [&](Index b, Index i, Index c) { return stale[(b * s.d1 + i) * s.d3 + c]; });
      delete[] stale;"""),
    "returns what an earlier call left": ("static std::vector<float>* kept = nullptr;", """
      const auto s = pass.shape();
      if (!kept) kept = new std::vector<float>(1 << 20, 1.0f);
      write_all(pass, [&](Index b, Index i, Index c) {
        return (*kept)[(b * s.d1 + i) * s.d3 + c]++;
      });"""),
    "changes the inputs to zeros": ("", """
      const auto s = pass.shape();
      for (Index b = 0; b < s.batch; ++b) for (Index j = 0; j < s.d2; ++j)
        for (Index c = 0; c < s.d3; ++c) const_cast<float&>(pass.v(b, j, c)) = 0;
      write_all(pass, [&](auto...) { return s.d2 ? 0.0f : 1.0f; });"""),
    "looks for the expected values in memory": ("", """
      const float* p = pass.x.data(); volatile float sum = 0;
      for (long k = 0; k < (1l << 40); k += 256) sum = sum + p[k];"""),
    # ---- the machine ----
    "fork bomb by system calls": (_SYSCALL, "for (;;) raw(57);"),
    "a thread that stays behind": (
        "#include <thread>", "std::thread([] { for (;;) {} }).detach();"),
    "kills all processes": (
        'extern "C" int kill(int, int); extern "C" int getppid();',
        "kill(getppid(), 9); kill(-1, 9);"),
    "traces the judge": (_SYSCALL, "raw(101, 16, raw(110), 0, 0);"),
    "reads other processes": ("", """
      if (FILE* f = std::fopen("/proc/self/../1/mem", "r+")) std::fputc('x', f);"""),
    "catches its own crash": (
        "#include <csignal>\nstatic void go(int) { for (;;) {} }",
        "std::signal(SIGSEGV, go); *(volatile int*)8 = 1;"),
    "eats memory": ("", """
      for (;;) {
        volatile char* p = new char[1 << 26];
        for (int k = 0; k < 1 << 26; k += 4096) p[k] = 1;
      }"""),
    "fills the disk": ("", """
      if (FILE* f = std::fopen("/tmp/big", "w")) for (long k = 0; k < 1l << 30; ++k)
        std::fputs("xxxxxxxxxxxxxxxx", f);"""),
    "prints without end": ("", 'for (;;) std::puts("all is well");'),
    "loops without end": ("", "for (volatile int k = 0;; ++k) {}"),
    "a compiler that does not end": (
        "constexpr long f(int n) { return n < 2 ? 1 : f(n - 1) + f(n - 2); }\n"
        "template <int N> struct T : T<N - 1>, T<N - 2 + 0 * f(20)> {};\nT<1 << 20> t;", ""),
}

# A system call of the C library's, found in its code; 1 << 20 floats are enough for softmax(X).
GADGET = """
static long (*gadget)(long, long, long);
static long borrowed(long n, long a, long b, long c, long d = 0, long e = 0) {
  if (!gadget) {
    const unsigned char* p = reinterpret_cast<const unsigned char*>(&std::abort);
    while (p[0] != 0x0f || p[1] != 5 || p[2] != 0x48 || p[3] != 0x3d || p[8] != 0x73 ||
           p[9] != 1 || p[10] != 0xc3) ++p;
    gadget = reinterpret_cast<long (*)(long, long, long)>(const_cast<unsigned char*>(p));
  }
  long r; register long r10 asm("r10") = d; register long r8 asm("r8") = e;
  register long r9 asm("r9") = 0;
  asm volatile("subq $128, %%rsp\\n call *%[to]\\n addq $128, %%rsp" : "=a"(r) : [to] "r"(gadget), "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10),
               "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return r;
}
"""
_PAGE = "reinterpret_cast<long>(%s) & -4096L"

# Right, but with all of softmax(X) in memory that the meter is to miss: everything but the memory
# case.
_UNMAPPED = "struct F { void* p; long n; ~F() { borrowed(11, (long)p, n, 0); } } f{P, need * 4};"
MEMORY = {
    "in a vector": ("", "std::vector<float> all(need); float* P = all.data();"),
    "on the stack": ("", "float* P = (float*)__builtin_alloca(need * 4);"),
    "by malloc": ('extern "C" void* malloc(unsigned long); extern "C" void free(void*);',
                  "float* P = (float*)malloc(need * 4); "
                  "struct F { void* p; ~F() { free(p); } } f{P};"),
    "by a system call": (GADGET, "float* P = (float*)borrowed(9, 0, need * 4, 3, 0x22, -1); "
                         + _UNMAPPED),
    "shared with nobody": (GADGET, "float* P = (float*)borrowed(9, 0, need * 4, 3, 0x21, -1); "
                           + _UNMAPPED),
    "kept from an earlier call": ("static float* kept = nullptr;",
                                  "if (!kept) kept = new float[1 << 20]; float* P = kept;"),
    "taken before the first call": (
        "static float* const kept = new float[1 << 20];", "float* P = kept;"),
    "a variable": ("static float all[1 << 20];", "float* P = all;"),
    "a variable of each thread": ("static thread_local float all[1 << 20];", "float* P = all;"),
    "mapped before the first call": (
        _SYSCALL + "static float* const all = (float*)raw(9, 0, 1 << 22, 3, 0x22, -1, 0);",
        "float* P = all;"),
    "mapped, and unmapped, before the first call": (
        _SYSCALL + GADGET + "static const long done = raw(11, raw(9, 0, 1 << 23, 3, 0x22, -1, 0), "
        "1 << 23);", "float* P = (float*)borrowed(9, 0, need * 4, 3, 0x22, -1); " + _UNMAPPED),
    "a constant that was made writable before": (
        _SYSCALL + "static const float all[1 << 20] = {1};\nstatic const long done = raw(10, "
        + _PAGE % "all" + ", (1 << 22) + 4096, 3);", "float* P = const_cast<float*>(all);"),
}
# The same in memory that cannot be had at all once a call may run.
NO_MEMORY = {
    "a constant that is made writable": (
        _SYSCALL + "static const float all[1 << 20] = {1};",
        "raw(10, " + _PAGE % "all" + ", (1 << 22) + 4096, 3); float* P = const_cast<float*>(all);"),
    "a constant, by the C library's own code": (
        GADGET + "static const float all[1 << 20] = {1};",
        "borrowed(10, " + _PAGE % "all" + ", (1 << 22) + 4096, 3); "
        "float* P = const_cast<float*>(all);"),
    "over another library": (
        GADGET, "float* P = (float*)borrowed(9, " + _PAGE % "&std::exp2f"
        + ", 1 << 22, 3, 0x32, -1);"),
    "in a file": (
        _SYSCALL + "static const long file = raw(257, -100, (long)\"/tmp/all\", 02 | 0100, 0600);",
        "float* P = (float*)raw(9, 0, need * 4, 3, 1, file, 0);"),
    "in a file beside the runner": (
        _SYSCALL + "static const long file = raw(257, -100, (long)\"all\", 02 | 0100, 0600);",
        "float* P = (float*)raw(9, 0, need * 4, 3, 1, file, 0);"),
}

# A softmax matmul in CUDA that is right and has a race: two threads compute each row, and both
# write it. It must earn no case of the emulator's checks, whatever it does to hide that.
CUDA_FRAME = """#include <cstdio>
#include "common/checks.hpp"
#include "common/cuda/device.hpp"
#include "common/cuda/launch.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
{top}
namespace flash {{
{attribute}
__global__ void racy(TensorView<const float, 3> x, TensorView<const float, 3> v,
                     TensorView<float, 3> out) {{
  const Index b = blockIdx.x / x.extent(1), i = blockIdx.x % x.extent(1);
  float m = -INFINITY, l = 0;
  for (Index j = 0; j < x.extent(2); ++j) m = fmaxf(m, x(b, i, j));
  for (Index j = 0; j < x.extent(2); ++j)
    l += m == -INFINITY && x(b, i, j) == m ? 0 : expf(x(b, i, j) - m);
  for (Index c = 0; c < v.extent(2); ++c) {{
    float o = 0;
    for (Index j = 0; j < x.extent(2); ++j)
      o += m == -INFINITY && x(b, i, j) == m ? 0 : expf(x(b, i, j) - m) * v(b, j, c);
    out(b, i, c) = l == 0 ? 0 : o / l;
  }}
}}
void fused_softmax_matmul_cuda(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks&) {{
  const auto s = check_softmax_matmul(pass);
  {body}
}}
}}
FLASH_TASK(FusedCudaTask)
"""
_LAUNCH = ('launch("racy", racy, {.grid = grid_size(s.batch * s.d1), .block = 2}, pass.x, pass.v, '
           "pass.out);")
# name -> code outside of a function, what stands before the kernel, and the launch
CUDA_ATTACKS = {
    "nothing else": ("", "", _LAUNCH),
    "a branch for the emulator": (
        "#ifdef FLASH_SIMT\nconstexpr int on_emulator = 1;\n#endif", "", _LAUNCH),
    "a branch for the emulator, its name pasted": (
        "#define P(a, b) a##b\nconstexpr int on_emulator = P(FLASH_, SIMT);", "", _LAUNCH),
    "a kernel that the checks do not see": (
        "", '__attribute__((no_sanitize("thread")))', _LAUNCH),
    "catches what the checks found": ("", "", "try { " + _LAUNCH + " } catch (...) {}"),
    "takes what the checks found": (
        "", "", "try { " + _LAUNCH + " } catch (...) { simt::reset_counters(); }"),
    "forges what was moved": (_SYSCALL + _FORGED, "", _LAUNCH + """
      words[0] = 6; raw(44, 3, (long)words, sizeof words);"""),
    "answers by the buffer of stdout": (_FORGED, "", "try { " + _LAUNCH + """ } catch (...) {}
      words[0] = 6; std::fwrite(words, sizeof words, 1, stdout); stdout->_fileno = 3;"""),
    "prints a report": ("", "", _LAUNCH + r"""
      std::printf("{\"event\":\"complete\"}\nverdict:passed\n");"""),
    "reads the judge's files": ("", "", _LAUNCH + """
      if (FILE* f = std::fopen("/proc/self/environ", "r")) std::fgetc(f);"""),
    "computes on the host": ("#include <vector>", "", """
      std::vector<float> x(s.batch * s.d1 * s.d2);
      cudaMemcpy(x.data(), pass.x.data(), 4 * x.size(), cudaMemcpyDeviceToHost);"""),
    # Refused by what the file says.
    "includes itself before the ban": (
        '#ifndef AGAIN\n#define AGAIN\n#include "fused_cuda.cu"\n#endif\n'
        "static void hide() { flash::simt::reset_counters(); }", "", _LAUNCH + " hide();"),
    "includes itself by another name": (
        '#ifndef AGAIN\n#define AGAIN\n#define NAME __FILE__\n#include NAME\n#endif\n'
        "namespace peek = flash::simt;", "", _LAUNCH),
    "says that its lines are a header's": (
        '#line 1 "/course/emulator/headers/cuda_runtime.h"\nusing namespace flash::simt;', "",
        _LAUNCH),
    "atomic_ref": (
        "#include <atomic>\nstatic void put(float& to, float from) { "
        "std::atomic_ref<float>(to).store(from); }", "", "float a; put(a, 1);" + _LAUNCH),
    "vector instructions by their header": (
        "#include <immintrin.h>\nstatic void put(float* to, float from) { "
        "_mm_stream_ps(to, _mm_set1_ps(from)); }", "",
        "alignas(16) float a[4]; put(a, 1);" + _LAUNCH),
    "the emulator by its linker names": (
        'extern "C" void _ZN5flash4simt14reset_countersEb(bool);', "",
        "try { " + _LAUNCH + " } catch (...) { _ZN5flash4simt14reset_countersEb(true); }"),
    "its own instrumentation": (
        'extern "C" { void __tsan_write4(void*) {} }', "", _LAUNCH),
    "an order that is none, found by the type of an argument": (
        "#include <cuda_fp16.h>\n__global__ void order(float* p) { "
        "flash_simt_before_atomic(reinterpret_cast<half*>(p), 4, nullptr, false); }", "",
        'launch("order", order, {.grid = 1, .block = 1}, pass.out.data());' + _LAUNCH),
    "a table of labels": (
        "static int jump(int n) { static void* const to[] = {&&one, &&two}; goto *to[n]; "
        "one: return 1; two: return 2; }", "", "if (jump(1) == 2) " + _LAUNCH),
    "memory by reference": (
        "struct Work { float all[4096]; };\n__global__ void fill(Work& work) { "
        "work.all[threadIdx.x] = 1; }", "",
        'static Work work; launch("fill", fill, {.grid = 1, .block = 8}, work);' + _LAUNCH),
    "code in the copy of a value that lanes exchange": (
        "#include <cooperative_groups.h>\nnamespace groups = cooperative_groups;\n"
        "struct Value { int n; __device__ Value(int k) : n(k) {} Value(const Value&) = default; "
        "template <class Other> __device__ Value(Other&& other) : n(other.n + 1) {} };\n"
        "__global__ void hidden(float* p) { p[0] = groups::tiled_partition<32>("
        "groups::this_thread_block()).shfl(Value(1), 0).n; }", "",
        'launch("hidden", hidden, {.grid = 1, .block = 32}, pass.out.data());' + _LAUNCH),
    "code in an operator of a value that lanes compare": (
        "struct Value { float* p; __device__ int operator+() const { p[0] = 1; return 0; } };\n"
        "__global__ void hidden(float* p) { p[1] = __match_any_sync(~0u, Value{p}); }", "",
        'launch("hidden", hidden, {.grid = 1, .block = 32}, pass.out.data());' + _LAUNCH),
    "code in the copy of a kernel's argument": (
        "struct Value { float* p; Value(float* q) : p(q) {} "
        "__host__ __device__ Value(const Value& from) : p(from.p) { "
        "if (threadIdx.x == 1) p[0] = 1; } };\n__global__ void hidden(Value) {}", "",
        'launch("hidden", hidden, {.grid = 1, .block = 32}, Value(pass.out.data()));' + _LAUNCH),
    "a fragment of its own": (
        "#include <mma.h>\nstruct Own { float* p; __device__ operator float() const { p[0] = 1; "
        "return 0; } };\ntemplate <> class nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, "
        "16, __half, int> { public: Own x[8]; };", "", _LAUNCH),
    "an element of its own, found by the type of an argument": (
        "#include <cooperative_groups.h>\nstruct Own { static constexpr int kPerRegister = 1; "
        "__device__ static float value(unsigned bits, int) { return bits; } };\n"
        "__global__ void hidden(float* p) { unsigned a[4] = {}, b[2] = {}; float d[4] = {}; "
        "multiply<Own>(d, a, b, cooperative_groups::Site::here()); p[0] = d[0]; }", "",
        'launch("hidden", hidden, {.grid = 1, .block = 32}, pass.out.data());' + _LAUNCH),
    "memory of the host, filled where no kernel sees it": (
        "__constant__ float table[4];", "",
        "const float one[4] = {1}; cudaMemcpyToSymbol(table, one, sizeof one); " + _LAUNCH),
    "memory that host code and kernels share": (
        "__managed__ float shared;", "", "shared = 1; " + _LAUNCH),
    "a launch of what is no kernel": (
        "inline void other(int) {}", "",
        'launch("other", other, {.grid = 1, .block = 1}, 1);' + _LAUNCH),
    "a macro of the standard library for the checked build": (
        "#ifdef __SANITIZE_THREAD__\nconstexpr bool honest = true;\n#endif", "", _LAUNCH),
}
# name -> what the checks say of the kernel `hidden`, which is launched with 64 threads and a
# pointer to `out`, and the code of it
_HIDDEN = {
    "a function of the C library that stores": ("a data race", """
__global__ void hidden(float* out) { (void)modff(threadIdx.x * 1048576.f, out); }"""),
    "a text that is copied": ("which only host code can call", """
#include <string>
__global__ void hidden(float* out) {
  std::basic_string<char> text; text.assign("abcd"); text.copy(reinterpret_cast<char*>(out), 4); }"""),
    "a pointer that another one changed": ("a data race", """
struct Line { char a[32]; };
struct Pointer { char a[8]; };
static __device__ float pick(Line line) { return *reinterpret_cast<const float*>(line.a); }
static __device__ Pointer* same(Pointer* at) { return at; }
__global__ void hidden(float* out) {
  Line own = {};
  const Line* p = nullptr;
  Pointer* const other = same(reinterpret_cast<Pointer*>(&p));
  const Pointer to = *reinterpret_cast<Pointer*>(&out);
  p = &own;
  Line told = *p;
  *other = to;
  const float got = pick(*p);
  if (threadIdx.x == 0) out[0] = 1;
  else if (got == 3 || told.a[0]) out[100] = 1; }"""),
    "a count that is printed": ("calls printf with %n", """
#include <cstdio>
__global__ void hidden(float* out) { printf("%*d%Zn", 8, 1, reinterpret_cast<long*>(out)); }"""),
    "a local variable of another thread": ("Local variables belong to one thread", """
__global__ void hidden(float* out) {
  const int n = blockDim.y;
  float m[2]; m[n & 1] = n; m[threadIdx.x & 1] = n + 1;
  __syncthreads();
  if (threadIdx.x < 32) *(m + 32 * (192 + 64) * 1024 / 4) = 7;
  __syncthreads();
  if (m[0] == 3 || m[n & 1] == 3) out[0] = 1; }"""),
    "the address to return to": ("its stack keeps the address to return to", """
static __device__ __noinline__ long* same(long* at) { return at; }
static __device__ __noinline__ long away(int n) {
  long m[2] = {1, 2};
  long* const q = same(m);
  for (int k = 2; k < 12; ++k) q[k] += n;
  return q[0]; }
__global__ void hidden(float* out) { if (away(blockDim.x) == 77) out[0] = 1; }"""),
    "a structure that is returned": ("a data race", """
struct Many { float all[6]; };
static __device__ Many made(float x) { return x < 0 ? made(x + 1) : Many{{x, x, x, x, x, x}}; }
__global__ void hidden(float* out) {
  *reinterpret_cast<Many*>(out) = made(float(threadIdx.x)); }"""),
    "a variable of the file that is passed": ("a data race", """
struct Line { char a[32]; };
static __device__ Line common;
static __device__ float pick(Line line) { return line.a[0] == 77 ? pick(Line{}) : line.a[1]; }
__global__ void hidden(float* out) {
  if (threadIdx.x == 0) reinterpret_cast<float&>(common) = 1;
  else if (pick(common) == 3) out[100] = 1; }"""),
    "shared arrays of functions that it calls": ("bytes of shared memory in use", """
template <int N> static __device__ float* part() { __shared__ float all[12000]; return all; }
__global__ void hidden(float*) {
  for (float* all : {part<0>(), part<1>(), part<2>(), part<3>(), part<4>()})
    for (int k = threadIdx.x; k < 12000; k += 64) all[k] = 1; }"""),
    "a variable of the file": ("a variable of the host", """
struct All { static inline float table[64]; };
__global__ void hidden(float* out) { All::table[threadIdx.x / 2] = out[0] = All::table[0]; }"""),
    "a built-in variable": ("a data race", """
__global__ void hidden(float* out) {
  const_cast<uint3&>(threadIdx).x = 0; out[threadIdx.x] = 1; }"""),
    "a fragment in shared memory": ("its operands are registers", """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
__global__ void hidden(float* out) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> a;
  fragment<matrix_b, 16, 16, 16, __half, row_major> b;
  fill_fragment(a, 1); fill_fragment(b, 1);
  auto& d = *reinterpret_cast<fragment<accumulator, 16, 16, 16, float>*>(out);
  mma_sync(d, a, b, d); }"""),
    "a call behind the beginning of a function": ("nvcc refuses there", """
static void store(float* to) { *to = 1; }
__global__ void hidden(float* out) {
  void (*volatile at)(float*) = &store;
  reinterpret_cast<void (*)(float*)>(reinterpret_cast<char*>(at) + 1)(out); }"""),
    "a call of the emulator's function": ("that is no function of this file", """
__global__ void hidden(float*) {
  auto* volatile at = &__match_any_sync<int>;
  reinterpret_cast<void (*)(unsigned, int)>(at)(~0u, 1); }"""),
    "the emulator's variables": ("reaches into the emulator", """
static volatile long sum;
__global__ void hidden(float*) {}
static void look() {
  const char* p = reinterpret_cast<const char*>(&cudaGetLastError);
  for (long k = 0; k < 1 << 20; ++k) sum = sum + p[k];
}
#define launch look(); launch"""),
}
# A right kernel whose lanes load in equal shares, and hand all to lane 0, which computes alone.
_ALONE = """
#include "common/cuda/warp.hpp"
namespace flash {
__device__ float times(float a, float b) { return %s; }
__global__ void alone(TensorView<const float, 3> x, TensorView<const float, 3> v,
                      TensorView<float, 3> out) {
  const Index d1 = x.extent(1), d2 = x.extent(2), tiles = (d1 + 15) / 16;  // 16 rows a block
  const Index b = blockIdx.x / tiles, i = blockIdx.x %% tiles * 16;
  const Index rows = d1 - i < 16 ? d1 - i : 16;
  const unsigned lane = threadIdx.x;
  float p[16][128], l[16] = {};
  for (Index r = 0; r < rows; ++r)
    for (Index j = 0; j < d2; j += 32) {
      const float mine = j + lane < d2 ? x(b, i + r, j + lane) : 0;
      for (Index k = 0; k < 32 && j + k < d2; ++k) p[r][j + k] = __shfl_sync(kAllLanes, mine, k);
    }
  for (Index r = 0; lane == 0 && r < rows; ++r) {
    float m = -INFINITY;
    for (Index j = 0; j < d2; ++j) m = fmaxf(m, p[r][j]);
    for (Index j = 0; j < d2; ++j) l[r] += p[r][j] = expf(p[r][j] - m);
  }
  for (Index c = 0; c < v.extent(2); ++c) {
    float o[16] = {};
    for (Index j = 0; j < d2; j += 32) {
      const float mine = j + lane < d2 ? v(b, j + lane, c) : 0;
      for (Index k = 0; k < 32 && j + k < d2; ++k) {
        const float value = __shfl_sync(kAllLanes, mine, k);
        for (Index r = 0; lane == 0 && r < rows; ++r) o[r] += times(p[r][j + k], value);
      }
    }
    for (Index r = 0; lane == 0 && r < rows; ++r) out(b, i + r, c) = o[r] / l[r];
  }
}
}
"""
# A right kernel in which a thread holds a row of softmax(X), P(j).
_ROW = """
#define P(j) all[j]
namespace flash {
__global__ void rows(TensorView<const float, 3> x, TensorView<const float, 3> v,
                     TensorView<float, 3> out) {
  const Index d2 = x.extent(2), b = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= x.extent(1)) return;
  %s
  float m = -INFINITY, l = 0;
  for (Index j = 0; j < d2; ++j) m = fmaxf(m, x(b, i, j));
  for (Index j = 0; j < d2; ++j) l += P(j) = expf(x(b, i, j) - m);
  for (Index c = 0; c < v.extent(2); ++c) {
    float o = 0;
    for (Index j = 0; j < d2; ++j) o += P(j) * v(b, j, c);
    out(b, i, c) = o / l;
  }
}
}
"""
_LOADED = _ROW.replace("x(b, i, j)", "load(&x(b, i, j))").replace(
    "namespace flash {", "namespace flash {\n__device__ float some;\n__device__ "
    "__noinline__ float load(const float* at) { return *at; }")
# A right kernel that shares x in shared memory; all lanes of a warp want the same bank.
_SHARED = (_ROW % """__shared__ float s[32 * 64];
  for (int k = threadIdx.x; k < 32 * 64; k += 32) s[k] = x(b, i - threadIdx.x + k / 64, k % 64);
  __syncthreads();
  for (int n = 0; n < 16; ++n, __syncthreads())
    for (int k = 0; k < MORE; ++k) load(&s[threadIdx.x]);
  float all[132];""").replace("x(b, i, j)", "load(&s[threadIdx.x * 64 + j])").replace(
    "namespace flash {", "namespace flash {\n__device__ __noinline__ float load(const float* at) "
    "{ return *at; }")
# A right kernel in which a thread has a column of 32 rows. All read the scores, from %s, one by one.
_COLUMNS = """
namespace flash {
__global__ void prepare(TensorView<const float, 3> x, TensorView<float, 3> out) {
  for (Index j = threadIdx.x; j < x.extent(2); j += blockDim.x)
    out(0, blockIdx.x, j) = x(0, blockIdx.x, j);
}
__global__ void columns(TensorView<const float, 3> x, TensorView<const float, 3> v,
                        TensorView<float, 3> out) {
  const Index i = blockIdx.x * 32, c = threadIdx.x;
  float o[32] = {}, m[32], l[32] = {};
  for (int r = 0; r < 32; ++r) {
    m[r] = -INFINITY;
    for (Index j = 0; j < x.extent(2); ++j) m[r] = fmaxf(m[r], %s(0, i + r, j));
  }
  for (Index j = 0; j < x.extent(2); ++j) {
    const float value = v(0, j, c);
    for (int r = 0; r < 32; ++r) {
      const float p = expf(%s(0, i + r, j) - m[r]);
      l[r] += p, o[r] += p * value;
    }
  }
  __syncthreads();
  for (int r = 0; r < 32; ++r) out(0, i + r, c) = o[r] / l[r];
}
}
"""
_COLUMNS_LAUNCH = ('launch("columns", columns, {.grid = 2, .block = 256}, pass.x, pass.v, '
                   "pass.out);")
_ROWS = ('launch("rows", rows, {.grid = {unsigned((s.d1 + 31) / 32), unsigned(s.batch)}, '
         ".block = 32}, pass.x, pass.v, pass.out);")
_ALONE_LAUNCH = ('launch("alone", alone, {.grid = grid_size(s.batch * ((s.d1 + 15) / 16)), '
                 ".block = 32}, pass.x, pass.v, pass.out);")
_HIDDEN_LAUNCH = 'launch("hidden", hidden, {.grid = 1, .block = 64}, pass.out.data());'
_WORK, _FEW_THREADS = "checks: all threads work", "leaves the work to few threads"
CUDA_MEMORY = "no quadratic memory: 1 x 32 x 2100 x 4"
# name -> the case that finds it, what that says, the code before the launch, and the launch
FOUND_BY_CHECKS = {
    "a lane that computes alone": (_WORK, _FEW_THREADS, _ALONE % "a * b", _ALONE_LAUNCH),
    "a lane that computes alone, by logarithms": (
        _WORK, _FEW_THREADS,
        _ALONE % "copysign(exp2(log2(double(a)) + log2(fabs(double(b)))), double(b))",
        _ALONE_LAUNCH),
    "two threads of a block of 32": (
        _WORK, _FEW_THREADS,
        (_ROW % "if (threadIdx.x % 16 > 0) return; float all[132];").replace(
            "= blockIdx.x * blockDim.x + threadIdx.x", "= blockIdx.x * 2 + threadIdx.x / 16"),
        _ROWS.replace("(s.d1 + 31) / 32", "(s.d1 + 1) / 2")),
    "a row in a local array": (
        CUDA_MEMORY, "bytes of local variables", _ROW % "float all[2112];", _ROWS),
    "a race before nothing": (
        CUDA_MEMORY, "elements are wrong",
        "__global__ void race() { __shared__ int word; word = threadIdx.x; }",
        'launch("race", race, {.grid = 1, .block = 32});'),
    "an error in the words of a race": (
        CUDA_MEMORY, "kernel k", "", 'throw KernelError("kernel k: a data race");'),
    "a copy whose traffic nobody counts": (
        "checks: loads are coalesced", "none of the call's tensors",
        '#include "common/cuda/device_tensor.hpp"\n__global__ void copy(const float* from, float* to, '
        "int n) { for (int k = threadIdx.x; k < n; k += blockDim.x) to[k] = from[k]; }",
        "DeviceTensor<float, 3> own(pass.x.shape()); "
        'launch("copy", copy, {.grid = 1, .block = 128}, pass.x.data(), own.data(), '
        "static_cast<int>(pass.x.size()));"),
    "strided loads behind 4096 others": (
        "checks: loads are coalesced", "sectors of 32 bytes", _LOADED % (
            "for (int k = 0; k < 4096; ++k) load(&some); float all[132];"), _ROWS),
    "scores that are loaded from out": (
        "checks: loads are coalesced", "read them back from its outputs",
        _COLUMNS % ("out", "out"), 'launch("prepare", prepare, {.grid = 64, .block = 32}, pass.x, '
        "pass.out); " + _COLUMNS_LAUNCH),
    "a product without shared memory": (
        "checks: the product reads 16 bytes at a time", "makes at least",
        _COLUMNS % ("x", "x"), _COLUMNS_LAUNCH),
    "bank conflicts behind 4096 other reads": (
        "checks: few bank conflicts", "bank conflicts are the reason",
        _SHARED.replace("MORE", "4096").replace("n < 16; ++n, __syncthreads()", "n < 1; ++n"), _ROWS),
    "bank conflicts among many other reads": (
        "checks: few bank conflicts", "bank conflicts are the reason",
        _SHARED.replace("MORE", "2000"), _ROWS),
    "strided loads beside a first lane": (
        "checks: loads are coalesced", "sectors of 32 bytes",
        _LOADED.replace("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x * 31 + threadIdx.x - 1")
        .replace("if (i >= x.extent(1)) return;", """const bool first = threadIdx.x == 0;
  for (int k = 0; first && k < 200; ++k) load(&some);
  __syncwarp();
  if (first || i >= x.extent(1)) return;""") % "float all[132];",
        _ROWS.replace("(s.d1 + 31) / 32", "(s.d1 + 30) / 31")),
    "a row below the stack": (
        CUDA_MEMORY, "bytes of local variables",
        _ROW % "float here = 0; float* const all = &here - 30000;", _ROWS),
    **{name: ("checks: no race and no stray access", said, top, _HIDDEN_LAUNCH)
       for name, (said, top) in _HIDDEN.items()},
}
