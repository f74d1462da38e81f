// Reads of what nobody wrote, accesses out of bounds, misaligned, to host memory; faults.
#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

MISTAKE(kUninitialized, shared_sum_starts_anywhere, ({1, 32}, zeros(32)), float* out) {
  __shared__ float sum[32];
  sum[threadIdx.x] += 1;  // BUG
  out[threadIdx.x] = sum[threadIdx.x];
}

// The tail of the tile is not filled, and read.
MISTAKE(kUninitialized, tail_of_the_tile, ({1, 32, 128}, counting(20), zeros(32), 20),
        const float* x, float* out, int count) {
  FLASH_DYNAMIC_SHARED(float, tile);
  if (static_cast<int>(threadIdx.x) < count) tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float sum = 0;
  for (unsigned j = 0; j < blockDim.x; ++j) sum += tile[j];  // BUG
  out[threadIdx.x] = sum;
}

// Shared memory does not keep its values from block to block.
MISTAKE(kUninitialized, left_by_the_last_block, ({2, 32}, zeros(64)), float* out) {
  __shared__ float kept;
  if (threadIdx.x == 0 && blockIdx.x == 0) kept = 1;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = kept;  // BUG
}

MISTAKE(kUninitialized, accumulates_in_new_memory, ({1, 32}, unwritten(32)), float* sum) {
  sum[threadIdx.x] += 1;  // BUG
}

MISTAKE(kOutOfBounds, one_past_the_end, ({1, 32}, zeros(100), 100), float* data, int count) {
  for (int i = threadIdx.x; i <= count; i += blockDim.x) data[i] = 1;  // BUG
}

MISTAKE(kOutOfBounds, before_the_start, ({1, 32}, counting(32), zeros(32)), const float* x,
        float* out) {
  out[threadIdx.x] = x[static_cast<int>(threadIdx.x) - 1];  // BUG
}

MISTAKE(kOutOfBounds, past_dynamic_shared, ({1, 32, 128}, zeros(32)), float* out) {
  FLASH_DYNAMIC_SHARED(float, tile);
  tile[2 * threadIdx.x] = 1;  // BUG
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

// One row past the end of an array, and another array lies there.
MISTAKE(kOutOfBounds, past_static_shared, ({1, 32}, zeros(32)), float* out) {
  __shared__ float tile[32], other[32];
  other[threadIdx.x] = 1;
  tile[threadIdx.x + 1] = 2;  // BUG
  __syncthreads();
  out[threadIdx.x] = other[threadIdx.x] + tile[threadIdx.x];
}

// Past an array that is the last member of its structure.
struct Row {
  float scale;
  float x[4];
};
MISTAKE(kOutOfBounds, past_the_last_member, ({1, 32}, zeros(32)), float* out) {
  Row row{2, {1, 2, 3, 4}};
  out[threadIdx.x] = row.scale * row.x[threadIdx.x % 5];  // BUG
}

// A vector load whose last elements do not exist.
MISTAKE(kOutOfBounds, vector_tail, ({1, 32}, counting(126), zeros(32)), const float* x,
        float* out) {
  const float4 v = reinterpret_cast<const float4*>(x)[threadIdx.x];  // BUG
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}

// Memory that was freed before the launch.
__global__ void uses_freed_memory(float* data) {
  data[threadIdx.x] = 1;  // BUG
}

__global__ void writes_an_input(const float* x, float* out) {
  const_cast<float*>(x)[threadIdx.x] = 1;  // BUG
  out[threadIdx.x] = x[threadIdx.x];
}

// What lies around a tensor, inside of the same allocation.
__global__ void forbidden_padding(const float* x, float* out) {
  out[threadIdx.x] = x[threadIdx.x];  // BUG
}

MISTAKE(kMisaligned, misaligned_float4, ({1, 32}, counting(256), zeros(32)), const float* x,
        float* out) {
  const float4 v = *reinterpret_cast<const float4*>(x + 1 + 4 * threadIdx.x);  // BUG
  out[threadIdx.x] = v.x;
}

MISTAKE(kMisaligned, misaligned_atomic, ({1, 32}, zeros(32)), int* out) {
  atomicAdd(reinterpret_cast<int*>(reinterpret_cast<char*>(out) + 2), 1);  // BUG
}

__global__ void follows_a_host_pointer(const float* x, float* out) {
  out[threadIdx.x] = x[threadIdx.x];  // BUG
}

MISTAKE(kFault, follows_null, ({1, 32}, nullptr, zeros(32)), const float* x, float* out) {
  out[threadIdx.x] = x[threadIdx.x];  // BUG
}

// A pointer to one thread's local variable, used by another thread.
MISTAKE(kOutOfBounds, shares_a_local_variable, ({1, 32}, zeros(32)), float* out) {
  __shared__ float* pointer;
  float local[2] = {1, static_cast<float>(threadIdx.x)};
  if (threadIdx.x == 0) pointer = local;
  __syncthreads();
  out[threadIdx.x] = pointer[threadIdx.x % 2];  // BUG
  __syncthreads();
}

MISTAKE(kFault, divides_by_zero, ({1, 32}, zeros(32), 0), int* out, int zero) {
  out[threadIdx.x] = 100 / zero;  // BUG
}

const Listed uses_freed_memory_listed(
    Group::kMistake, "uses_freed_memory", __FILE__, simt::FindingKind::kOutOfBounds, [] {
      float* const freed = DeviceTensor<float, 1>({32}).data();
      launch("uses_freed_memory", uses_freed_memory, {1, 32}, freed);
      return true;
    });

const Listed writes_an_input_listed(
    Group::kMistake, "writes_an_input", __FILE__, simt::FindingKind::kInput, [] {
      const auto x = on_device<float>(counting(32)), out = on_device<float>(zeros(32));
      simt::name_memory(x.data(), "x", true);
      launch("writes_an_input", writes_an_input, {1, 32}, x.data(), out.data());
      return true;
    });

const Listed forbidden_padding_listed(
    Group::kMistake, "forbidden_padding", __FILE__, simt::FindingKind::kOutOfBounds, [] {
      const auto x = on_device<float>(counting(32)), out = on_device<float>(zeros(32));
      device::forbid(x.data() + 30, 8);
      launch("forbidden_padding", forbidden_padding, {1, 32}, x.data(), out.data());
      return true;
    });

const Listed follows_a_host_pointer_listed(Group::kMistake, "follows_a_host_pointer", __FILE__,
                                           simt::FindingKind::kHostMemory, [] {
                                             const Tensor<float, 1> x({32});
                                             launch("follows_a_host_pointer",
                                                    follows_a_host_pointer, {1, 32}, x.data(),
                                                    on_device<float>(zeros(32)).data());
                                             return true;
                                           });

}  // namespace
}  // namespace flash::simt_corpus
