// Small kernels by which `./lab counts` compares what the emulator counts with what Nsight Compute
// counts on a GPU. Each access of the source is one instruction. A name says the bytes of a lane
// and which element lane l accesses.
#include <string>
#include <vector>

#include "common/cuda/device.hpp"
#include "common/cuda/launch.hpp"
#include "emulator/counts/mark.hpp"

namespace flash {
namespace {

constexpr int kElements = 1088;  // 34 for each lane

// Lane l accesses element l / divided % modulo * times + plus, if it is one of `lanes`.
struct Pattern {
  int times = 1, divided = 1, modulo = 32, plus = 0;
  unsigned lanes = ~0u;

  __device__ bool has(int lane) const { return (lanes >> lane & 1) != 0; }
  __device__ int element(int lane) const { return lane / divided % modulo * times + plus; }
};

// Each warp begins at an element of its own.
template <class T>
__global__ void through_global(const T* in, T* out, Pattern load, Pattern store) {
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 64;
  if (!load.has(lane)) return;
  const T value = in[first + load.element(lane)];
  if (store.has(lane)) out[first + store.element(lane)] = value;
}

template <class T>
__global__ void through_shared(const T* in, T* out, Pattern load, Pattern store) {
  __shared__ T tile[kElements];
  const int lane = threadIdx.x;
  if (store.has(lane)) tile[store.element(lane)] = in[lane];
  __syncthreads();
  if (load.has(lane)) out[lane] = tile[load.element(lane)];
}

__global__ void two_branches(const volatile float* in, volatile float* out) {
  const int lane = threadIdx.x;
  if (lane % 3 == 0) {
    out[lane] = in[lane];
  } else {
    out[2 * lane + 64] = in[lane + 256];
  }
}

__global__ void fewer_rounds(const volatile float* in, volatile float* out) {
  const int lane = threadIdx.x;
  for (int i = 0; i <= lane / 8; ++i) out[32 * i + lane] = in[32 * i + lane];
}

__global__ void mark_kernel(int* out) { *out = 0; }

struct Named {
  std::string name;
  Pattern load;
};

template <class T>
void run(const std::vector<Named>& patterns, unsigned threads, bool through_shared_memory) {
  const std::size_t bytes = kElements * sizeof(T);
  T* const in = static_cast<T*>(device::allocate(bytes));
  T* const out = static_cast<T*>(device::allocate(bytes));
  device::fill_bytes(in, 0, bytes);
  for (const auto& [name, load] : patterns) {
    // No two lanes write the same element.
    Pattern store = load;
    if (load.divided != 1 || load.modulo != 32) {
      store.divided = 1, store.modulo = 32, store.lanes = ~0u;
      if (!through_shared_memory) store.times = 1;
    }
    launch((through_shared_memory ? "shared " : "global ") + std::to_string(sizeof(T)) + ": " +
               name + (threads > 32 ? ", two warps" : ""),
           through_shared_memory ? through_shared<T> : through_global<T>,
           {.grid = 1, .block = threads}, static_cast<const T*>(in), out, load, store);
  }
  device::synchronize();
  device::free(in);
  device::free(out);
}

const std::vector<Named>& patterns() {
  static const std::vector<Named> all{
      {"l", {}},
      {"2 l", {.times = 2}},
      {"3 l", {.times = 3}},
      {"4 l", {.times = 4}},
      {"8 l", {.times = 8}},
      {"9 l", {.times = 9}},
      {"16 l", {.times = 16}},
      {"17 l", {.times = 17}},
      {"32 l", {.times = 32}},
      {"33 l", {.times = 33}},
      {"l + 1", {.plus = 1}},
      {"31 - l", {.times = -1, .plus = 31}},
      {"0", {.divided = 32}},
      {"l / 2", {.divided = 2}},
      {"l / 4", {.divided = 4}},
      {"l / 8", {.divided = 8}},
      {"l / 16", {.divided = 16}},
      {"l % 2", {.modulo = 2}},
      {"l % 4", {.modulo = 4}},
      {"l % 8", {.modulo = 8}},
      {"l % 16", {.modulo = 16}},
      {"32 (l % 2)", {.times = 32, .modulo = 2}},
      {"8 (l / 2)", {.times = 8, .divided = 2}},
      {"8 (l / 8)", {.times = 8, .divided = 8}},
      {"8 (l % 4)", {.times = 8, .modulo = 4}},
      {"l of even lanes", {.lanes = 0x55555555}},
      {"8 l of even lanes", {.times = 8, .lanes = 0x55555555}},
      {"l of lanes 0 to 15", {.lanes = 0xffff}},
      {"l of lanes 0 to 7 and 16 to 23", {.lanes = 0x00ff00ff}},
      {"l of every fourth lane", {.lanes = 0x11111111}},
      {"l of lanes 0 and 31", {.lanes = 0x80000001}},
      {"l of lane 5", {.lanes = 1u << 5}},
      {"l / 2 of lanes 0 to 19", {.divided = 2, .lanes = 0xfffff}},
  };
  return all;
}

void run_branches() {
  const std::size_t bytes = kElements * sizeof(float);
  const auto in = static_cast<float*>(device::allocate(bytes));
  const auto out = static_cast<float*>(device::allocate(bytes));
  device::fill_bytes(in, 0, bytes);
  const LaunchConfig warp{.grid = 1, .block = 32};
  launch("two branches", two_branches, warp, static_cast<const volatile float*>(in),
         static_cast<volatile float*>(out));
  launch("fewer rounds for some lanes", fewer_rounds, warp, static_cast<const volatile float*>(in),
         static_cast<volatile float*>(out));
  device::synchronize();
  device::free(in);
  device::free(out);
}

template <class T>
void run_width() {
  run<T>(patterns(), 32, false);
  run<T>(patterns(), 32, true);
  run<T>({{"l", {}}, {"l / 2", {.divided = 2}}, {"2 l", {.times = 2}}}, 64, false);
}

}  // namespace

void mark(const std::string& name) {
  int* const out = static_cast<int*>(device::allocate(sizeof(int)));
  launch(name, mark_kernel, {.grid = 1, .block = 1}, out);
  device::synchronize();
  device::free(out);
}

void run_counted_kernels() {
  run_width<float>();
  run_width<float2>();
  run_width<float4>();
  run_branches();
  run_width<short>();
}

}  // namespace flash
