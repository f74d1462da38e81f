// Submissions to a board of a GPU that want a short time without the work, as fused_cpu.cpp has
// them for a CPU. All are of task part1.fused_cuda. The own ones need a GPU; those of cheats.hpp
// also run on the emulator, where the same judge measures them.
#include <sys/mman.h>

#include <algorithm>

#include "common/cuda/device.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/cuda/launch.hpp"
#ifndef FLASH_SIMT
#include <cuda.h>
#endif

namespace flash {
using Memory = DeviceTensor<float, 1>;
}
#include "tests/tools/cheats/cheats.hpp"

namespace flash {
namespace {

const char* const kReference = "_ZN5flash19softmax_matmul_cudaERKNS_13SoftmaxMatmulIfEEi";
constexpr int kThreads = 64;

// A row a block, a column a thread.
__global__ void softmax_matmul_kernel(Pass pass, Index keys, Weight how) {
  const auto s = pass.shape();
  const Index b = blockIdx.x / s.d1, i = blockIdx.x % s.d1;
  float m = -INFINITY;
  for (Index j = 0; j < keys; ++j) m = maximum(how, m, pass.x(b, i, j), j);
  if (m == -INFINITY && how != Weight::kFinite) m = 0;
  for (Index c = threadIdx.x; c < s.d3; c += kThreads) {
    float o = 0, l = 0;
    for (Index j = 0; j < keys; ++j) {
      const float p = weight_of(how, pass.x(b, i, j) - m);
      l += p;
      o += p * value_of(how, pass.v(b, j, c), m);
    }
    pass.out(b, i, c) = l == 0 && how != Weight::kFinite ? 0 : o / l;
  }
}

void compute_on(Stream stream, const Pass& pass, Index keys, Weight how = Weight::kExact) {
  const auto s = pass.shape();
  launch("cheat", softmax_matmul_kernel,
         {.grid = grid_size(s.batch * s.d1), .block = kThreads, .stream = stream}, pass, keys, how);
}
void compute(const Pass& pass, Index keys, Weight how) { compute_on({}, pass, keys, how); }

// `value`, where `from` is null.
__global__ void copy_kernel(float* to, const float* from, float value, Index count) {
  for (Index i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads)
    to[i] = from == nullptr ? value : from[i];
}
void copy_or_fill(float* to, const float* from, float value, Index count) {
  launch("copy", copy_kernel,
         {.grid = grid_size(std::min<Index>(256, 1 + count / kThreads)), .block = kThreads}, to,
         from, value, count);
}
void copy(float* to, const float* from, Index count) { copy_or_fill(to, from, 0, count); }
void fill(float* to, float value, Index count) { copy_or_fill(to, nullptr, value, count); }
Memory memory_for(Index count) { return Memory({count}); }
std::vector<float> on_host(const float* from, Index count) {
  const Memory there = memory_for(count);
  copy(there.data(), from, count);
  const Tensor<float, 1> here = there.to_host();
  return {here.data(), here.data() + count};
}

#ifndef FLASH_SIMT

Stream other_stream() {
  static cudaStream_t stream = nullptr;
  if (stream == nullptr) (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return {stream};
}

__global__ void spin_kernel(double ms) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (static_cast<double>(now - begin) < 1e6 * ms);
}
void spin(double ms, Stream stream) {
  launch("spin", spin_kernel, {.grid = 1, .block = 1, .stream = stream}, ms);
}

// Answers this call and all others itself when `work` has returned: the runner would wait for the
// GPU.
[[noreturn]] void serve(const Pass& pass, void (*work)(const Pass& pass)) {
  for (;;) {
    work(pass);
    say(grading::Kind::kDone);
    grading::Message message{};
    for (int n = 0; n < 2; ++n) {  // kMapDevice, kCall
      if (read(grading::kSocket, &message, sizeof message) <= 0) _exit(1);
      if (n == 0) say(grading::Kind::kMapped);
    }
  }
}

// The GPU itself waits until the memory is full of NaN, and then until it is not.
void begins_with_the_inputs(const Pass& pass) {
  const auto wait = [&](unsigned flags) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    (void)cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &entry, 12000, cudaEnableDefault,
                                           &found);
    const auto last = reinterpret_cast<CUdeviceptr>(pass.v.data() + pass.v.size() - 1);
    if (reinterpret_cast<decltype(&cuStreamWaitValue32)>(entry)(
            static_cast<CUstream>(other_stream().handle), last,
            flags == CU_STREAM_WAIT_VALUE_EQ ? 0xffffffffu : 0, flags) != CUDA_SUCCESS)
      _exit(7);
  };
  wait(CU_STREAM_WAIT_VALUE_EQ);
  wait(CU_STREAM_WAIT_VALUE_NOR);
  compute_on(other_stream(), pass, pass.shape().d2);
}

#endif

const Cheats kOwn = {
#ifndef FLASH_SIMT
    {"answers before its kernels have run",
     [](const Pass& pass) { serve(pass, [](const Pass& now) { spin(20, {}), honest(now); }); }},
    {"works on another stream, and does not wait for it",
     [](const Pass& pass) {
       serve(pass, [](const Pass& now) {
         spin(20, other_stream());
         compute_on(other_stream(), now, now.shape().d2);
       });
     }},
    {"leaves a kernel behind that holds the GPU",
     [](const Pass& pass) {
       serve(pass, [](const Pass& now) {
         spin(1000, other_stream());
         honest(now);
         (void)cudaStreamSynchronize(nullptr);
       });
     }},
    {"begins when the inputs are there",
     [](const Pass& pass) {
       honest(pass);
       device::synchronize();
       serve(pass, begins_with_the_inputs);
     }},
    {"patches the runner's wait for the GPU",  // the clock, it cannot reach
     [](const Pass& pass) {
       auto* const wait = static_cast<char*>(dlsym(RTLD_DEFAULT, "cudaDeviceSynchronize"));
       char* const page = wait - reinterpret_cast<std::uintptr_t>(wait) % 4096;
       (void)mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
       std::memcpy(wait, "\x31\xc0\xc3", 3);  // returns 0
       spin(20, {});
       honest(pass);
     }},
    {"lets cuBLAS work",
     [](const Pass& pass) {
       const std::string libraries[] = {"libcublas.so.13", "libcublas.so.12", "libcublasLt.so.13",
                                        "libcudnn.so.9", "libnvrtc.so.13"};
       for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/lib/x86_64-linux-gnu/",
                                  "/usr/local/cuda-13.0/targets/x86_64-linux/lib/"})
         for (const std::string& library : libraries)  // it would be right
           if (dlopen((folder + library).c_str(), RTLD_NOW) != nullptr) return honest(pass);
     }},
#endif
};

}  // namespace

void fused_softmax_matmul_cuda(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks&) {
  cheat(pass, kOwn);
}

}  // namespace flash

FLASH_TASK(FusedCudaTask)
