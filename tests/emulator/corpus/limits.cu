// What emulator/README.md says of limits, a kernel each: mistakes that are not found, and right
// kernels that are refused.
#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

using enum simt::FindingKind;

// ---- not found ----------------------------------------------------------------------------------

__device__ __managed__ int of_the_host;
__global__ void read_without_synchronizing(int* out) {
  if (threadIdx.x == 0) of_the_host = 7;
  out[threadIdx.x] = 7;
}

__global__ void past_a_shared_array_by_a_pointer(int* out) {
  __shared__ int tile[32], next[32];
  int* const pointer = &tile[0] < &next[0] ? tile : next;
  pointer[threadIdx.x + 32] = 2;  // the other one
  out[threadIdx.x] = pointer[threadIdx.x + 32];
}

// 80 KiB together: ptxas refuses them.
__device__ float* other_tile() {
  __shared__ float tile[10240];
  return tile;
}
__global__ void shared_memory_of_a_function(float* out) {
  __shared__ float tile[10240];
  tile[threadIdx.x] = other_tile()[threadIdx.x] = 1;
  out[threadIdx.x] = tile[threadIdx.x] + other_tile()[threadIdx.x];
}

__global__ void __launch_bounds__(32) more_threads_than_its_bounds(int* out) {
  out[threadIdx.x] = static_cast<int>(threadIdx.x);
}

__device__ int part_of[4];
__device__ unsigned tickets_of_blocks;
__global__ void fence_of_a_block_between_blocks(int* out) {
  part_of[blockIdx.x] = 1;
  __threadfence_block();
  if (atomicInc(&tickets_of_blocks, gridDim.x - 1) != gridDim.x - 1) return;
  *out = part_of[0] + part_of[1] + part_of[2] + part_of[3];
}

#ifdef FLASH_SIMT  // nvcc refuses it in a kernel
thread_local int kept_by_the_file[32];
__global__ void own_thread_local_variable(int* out) {
  kept_by_the_file[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = kept_by_the_file[31 - threadIdx.x];
}
#endif

// ---- refused, or other results than a GPU's -----------------------------------------------------

__global__ void waits_for_a_later_block(unsigned* flag) {
  if (blockIdx.x == 1) atomicExch(flag, 1);
  if (blockIdx.x == 0)
    while (atomicAdd(flag, 0) == 0) __nanosleep(100);
}

// A block of 28 threads: on a GPU the last four get what an inactive lane has.
__global__ void shuffle_down_from_no_lane(int* out) {
  const float value = __shfl_down_sync(0x0fffffff, 1.0f, 4);
  out[threadIdx.x] = value == value;
}

}  // namespace

std::vector<Specimen> limits() {
  return {
      {"read_without_synchronizing",
       {},
       [] {
         of_the_host = 0;
         right(KERNEL(read_without_synchronizing), {1, 32}, IS(7), result(32)).run();
         return of_the_host == 7;
       }},
      right(KERNEL(past_a_shared_array_by_a_pointer), {1, 32}, IS(2), result(32)),
      right(KERNEL(shared_memory_of_a_function), {1, 32}, IS(2), result(32)),
      right(KERNEL(more_threads_than_its_bounds), {1, 64}, IS(i), result(64)),
      right(KERNEL(fence_of_a_block_between_blocks), {4, 1}, IS(4), result(1)),
#ifdef FLASH_SIMT
      right(KERNEL(own_thread_local_variable), {1, 32}, IS(31 - i), result(32)),
#endif
      right(KERNEL(shuffle_down_from_no_lane), {1, 28}, IS(i < 24), result(28)),
  };
}

std::vector<Specimen> refused() {
  return {mistake(kDeadlock, KERNEL(waits_for_a_later_block), {2, 1}, zeros(1))};
}

}  // namespace flash::simt_corpus
