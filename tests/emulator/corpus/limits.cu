// What emulator/README.md says of limits, a kernel each: mistakes that are not found, and right
// kernels that are refused.
#include <array>

#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

__device__ __managed__ int of_the_host;
__global__ void read_without_synchronizing(int* out) {
  if (threadIdx.x == 0) of_the_host = 7;
  out[threadIdx.x] = 7;
}

RIGHT(past_a_shared_array_by_a_pointer, ({1, 32}, IS(2), result(32)), int* out) {
  __shared__ int tile[32], next[32];
  int* const pointer = &tile[0] < &next[0] ? tile : next;
  pointer[threadIdx.x + 32] = 2;  // the other one
  out[threadIdx.x] = pointer[threadIdx.x + 32];
}

__launch_bounds__(32) RIGHT(more_threads_than_its_bounds, ({1, 64}, IS(i), result(64)), int* out) {
  out[threadIdx.x] = static_cast<int>(threadIdx.x);
}

__device__ int part_of[4];
__device__ unsigned tickets_of_blocks;
RIGHT(fence_of_a_block_between_blocks, ({4, 1}, IS(4), result(1)), int* out) {
  part_of[blockIdx.x] = 1;
  __threadfence_block();
  if (atomicInc(&tickets_of_blocks, gridDim.x - 1) != gridDim.x - 1) return;
  *out = part_of[0] + part_of[1] + part_of[2] + part_of[3];
}

#ifdef FLASH_SIMT  // nvcc computes something else here, and refuses the next ones
#ifdef __CUDACC__
constexpr int kCompiledBy = 2;
#else
constexpr int kCompiledBy = 1;
#endif
RIGHT(code_for_nvcc, ({1, 32}, IS(1), result(32)), int* out) { out[threadIdx.x] = kCompiledBy; }

// 80 KiB together.
__device__ float* other_tile() {
  __shared__ float tile[10240];
  return tile;
}
RIGHT(shared_memory_of_a_function, ({1, 32}, IS(2), result(32)), float* out) {
  __shared__ float tile[10240];
  tile[threadIdx.x] = other_tile()[threadIdx.x] = 1;
  out[threadIdx.x] = tile[threadIdx.x] + other_tile()[threadIdx.x];
}

using TwoFloats = std::array<float, 2>;
RIGHT(array_of_the_host, ({1, 32}, IS(2), result(32)), float* out) {
  const TwoFloats pair{1, 2};
  out[threadIdx.x] = pair[1];
}

thread_local int kept_by_the_file[32];
RIGHT(own_thread_local_variable, ({1, 32}, IS(31 - i), result(32)), int* out) {
  kept_by_the_file[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = kept_by_the_file[31 - threadIdx.x];
}
#endif

MISTAKE(kDeadlock, waits_for_a_later_block, ({2, 1}, zeros(1)), unsigned* flag) {
  if (blockIdx.x == 1) atomicExch(flag, 1);
  if (blockIdx.x == 0)
    while (atomicAdd(flag, 0) == 0) __nanosleep(100);
}

// A block of 28 threads: on a GPU the last four get what an inactive lane has.
RIGHT(shuffle_down_from_no_lane, ({1, 28}, IS(i < 24), result(28)), int* out) {
  const float value = __shfl_down_sync(0x0fffffff, 1.0f, 4);
  out[threadIdx.x] = value == value;
}

const Listed read_without_synchronizing_listed(
    Group::kRight, "read_without_synchronizing", __FILE__, std::nullopt, [] {
      of_the_host = 0;
      gives("read_without_synchronizing", read_without_synchronizing, {1, 32}, IS(7), result(32))();
      return of_the_host == 7;
    });

}  // namespace
}  // namespace flash::simt_corpus
