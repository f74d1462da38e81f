// Submissions to a board of a GPU that want a short time without the work, as fused_cpu.cpp has
// them for a CPU. All are of task part1.fused_cuda. Those after "only on a GPU" need one; the
// others run on the emulator, too, where the same judge measures them.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "common/cuda/device.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/cuda/launch.hpp"
#include "common/error.hpp"
#include "grading/judge/protocol.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#ifndef FLASH_SIMT
#include <cuda.h>
#endif

namespace flash {
namespace {

using Pass = SoftmaxMatmul<float>;
constexpr int kThreads = 64;

int calls = 0;  // this one included

enum class Weight { kExact, kOne, kRounded, kCheap, kWithoutSmall };

__device__ float weight_of(Weight how, float x) {
  if (how == Weight::kOne) return 1;
  if (how == Weight::kWithoutSmall && x < -5) return 0;
  if (how == Weight::kCheap) {
    const int bits = static_cast<int>(12102203.0f * fmaxf(x, -80.0f)) + 1064866805;
    return __int_as_float(bits);
  }
  const float p = expf(x);
  return how == Weight::kRounded ? __int_as_float(__float_as_int(p) & 0xffff0000) : p;
}

// softmax(X) V of the keys before `keys`: a row a block, a column a thread.
__global__ void softmax_matmul_kernel(Pass pass, Index keys, Weight how) {
  const auto s = pass.shape();
  const Index b = blockIdx.x / s.d1, i = blockIdx.x % s.d1;
  float m = -INFINITY;
  for (Index j = 0; j < keys; ++j) m = fmaxf(m, pass.x(b, i, j));
  for (Index c = threadIdx.x; c < s.d3; c += kThreads) {
    float o = 0, l = 0;
    for (Index j = 0; j < keys; ++j) {
      const float p = weight_of(how, pass.x(b, i, j) - m);
      l += p;
      o += p * pass.v(b, j, c);
    }
    pass.out(b, i, c) = o / l;
  }
}

void compute(const Pass& pass, Index rows, Index keys, Weight how = Weight::kExact,
             Stream stream = {}) {
  launch("cheat", softmax_matmul_kernel,
         {.grid = grid_size(pass.shape().batch * rows), .block = kThreads, .stream = stream}, pass,
         keys, how);
}
void honest(const Pass& pass) { compute(pass, pass.shape().d1, pass.shape().d2); }

// `value`, where `from` is null.
__global__ void copy_kernel(float* to, const float* from, float value, Index count) {
  for (Index i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads)
    to[i] = from == nullptr ? value : from[i];
}
void copy(float* to, const float* from, Index count, float value = 0) {
  launch("copy", copy_kernel,
         {.grid = grid_size(std::min<Index>(256, 1 + count / kThreads)), .block = kThreads}, to,
         from, value, count);
}
void fill(float* to, float value, Index count) { copy(to, nullptr, count, value); }

// Computes once for each key, and then writes what it computed before.
template <class Key>
void replay(const Pass& pass, Key key) {
  static std::map<Key, DeviceTensor<float, 1>> kept;
  const Index size = pass.out.size();
  auto& result = kept[key];
  if (result.bytes() == 0) {
    honest(pass);
    result = DeviceTensor<float, 1>({size});
    copy(result.data(), pass.out.data(), size);
  } else {
    copy(pass.out.data(), result.data(), size);
  }
}

void say(grading::Kind kind) {
  grading::Message message{};
  message.kind = kind;
  if (write(grading::kSocket, &message, sizeof message) < 0) _exit(1);
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
  compute(pass, pass.shape().d1, pass.shape().d2, Weight::kExact, other_stream());
}

#endif

const std::map<std::string, void (*)(const Pass&)> kCheats = {
    {"honest", honest},

    // ---- time ----
    {"replays by pointer", [](const Pass& pass) { replay(pass, pass.x.data()); }},
    {"replays by shape", [](const Pass& pass) { replay(pass, pass.x.size()); }},
    {"replays by a coarse fingerprint",
     [](const Pass& pass) {
       static const DeviceTensor<float, 1> some({256});
       copy(some.data(), pass.x.data(), 256);
       const Tensor<float, 1> values = some.to_host();
       int positive = 0;
       for (Index i = 0; i < values.size(); ++i) positive += values(i) > 0;
       replay(pass, (positive + 64) / 128);
     }},
    {"works in the warm-up only",
     [](const Pass& pass) {
       if (calls <= 2) honest(pass);
     }},
    {"computes two calls in one, skips the next",
     [](const Pass& pass) {
       static DeviceTensor<float, 1> kept;
       const Index size = pass.out.size();
       if (calls % 2 == 0) return copy(pass.out.data(), kept.data(), size);
       honest(pass);
       kept = DeviceTensor<float, 1>({size});
       copy(kept.data(), pass.out.data(), size);
     }},
    {"skips every fourth call",
     [](const Pass& pass) {
       if (calls % 4 != 0) honest(pass);
     }},
    {"works after it said that it is done",
     [](const Pass& pass) {
       say(grading::Kind::kDone);
       usleep(20000);
       honest(pass);
     }},
    {"says that it is done, and does nothing",
     [](const Pass&) { say(grading::Kind::kDone); }},
    {"drives one problem to no time",
     [](const Pass& pass) {
       if (pass.shape().batch == 1) honest(pass);
     }},
    {"runs out of memory when it is timed",
     [](const Pass& pass) {
       if (calls > 1) throw OutOfMemory("not this time");
       honest(pass);
     }},
    {"ends the process when it is timed",
     [](const Pass& pass) {
       if (calls > 1) _exit(0);
       honest(pass);
     }},
    {"prints samples of its own",
     [](const Pass&) {
       std::printf("{\"event\": \"sample\", \"student_ms\": 0.001}\n{\"event\": \"complete\"}\n");
       std::fflush(stdout);
     }},

    // ---- results that were not computed ----
    {"writes nothing", [](const Pass&) {}},
    {"writes zeros", [](const Pass& pass) { fill(pass.out.data(), 0, pass.out.size()); }},
    {"writes NaN", [](const Pass& pass) { fill(pass.out.data(), NAN, pass.out.size()); }},
    {"copies V", [](const Pass& pass) {
       for (Index at = 0; at < pass.out.size(); at += pass.v.size())
         copy(pass.out.data() + at, pass.v.data(),
              std::min<Index>(pass.v.size(), pass.out.size() - at));
     }},
    {"writes the mean of V, as if all scores were equal",
     [](const Pass& pass) { compute(pass, pass.shape().d1, pass.shape().d2, Weight::kOne); }},
    {"changes the inputs to what it computes",
     [](const Pass& pass) {
       fill(const_cast<float*>(pass.v.data()), 0, pass.v.size());
       fill(pass.out.data(), 0, pass.out.size());
     }},
    {"is right, and changes an input",
     [](const Pass& pass) {
       honest(pass);
       fill(const_cast<float*>(pass.x.data()), 0, 1);
     }},
    {"is right, and writes around its output",
     [](const Pass& pass) {
       honest(pass);
       fill(pass.out.data() - 1, 0, 1);
     }},
    {"looks for the result in its memory",
     [](const Pass& pass) {
       copy(pass.out.data(), pass.out.data() + pass.out.size(),
            std::min<Index>(pass.out.size(), 64));
     }},
    {"calls the reference",
     [](const Pass& pass) {
       using Given = void(const Pass&, int);
       if (void* const given =
               dlsym(RTLD_DEFAULT, "_ZN5flash19softmax_matmul_cudaERKNS_13SoftmaxMatmulIfEEi"))
         reinterpret_cast<Given*>(given)(pass, -1);
     }},

    // ---- results that are nearly right ----
    {"leaves the last tile of keys out",
     [](const Pass& pass) { compute(pass, pass.shape().d1, pass.shape().d2 - 16); }},
    {"computes half of the keys",
     [](const Pass& pass) { compute(pass, pass.shape().d1, pass.shape().d2 / 2); }},
    {"leaves the last row out",
     [](const Pass& pass) {
       Pass shorter = pass;
       const Shape<3> x = pass.x.shape(), out = pass.out.shape();
       shorter.x = {pass.x.data(), {x[0], x[1] - 1, x[2]}, pass.x.strides()};
       shorter.out = {pass.out.data(), {out[0], out[1] - 1, out[2]}, pass.out.strides()};
       honest(shorter);
     }},
    {"rounds the weights to bfloat16",
     [](const Pass& pass) { compute(pass, pass.shape().d1, pass.shape().d2, Weight::kRounded); }},
    {"takes a cheap exponential",
     [](const Pass& pass) { compute(pass, pass.shape().d1, pass.shape().d2, Weight::kCheap); }},
    {"drops small weights",
     [](const Pass& pass) {
       compute(pass, pass.shape().d1, pass.shape().d2, Weight::kWithoutSmall);
     }},

#ifndef FLASH_SIMT
    // ---- only on a GPU ----
    {"answers before its kernels have run",
     [](const Pass& pass) {
       serve(pass, [](const Pass& now) { spin(20, {}), honest(now); });
     }},
    {"works on another stream, and does not wait for it",
     [](const Pass& pass) {
       serve(pass, [](const Pass& now) {
         spin(20, other_stream());
         compute(now, now.shape().d1, now.shape().d2, Weight::kExact, other_stream());
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
  static const auto& cheat = kCheats.at(std::getenv("CHEAT"));
  ++calls;
  cheat(pass);
}

}  // namespace flash
