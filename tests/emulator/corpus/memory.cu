// Reads of what nobody wrote, accesses out of bounds, misaligned, to host memory; faults.
#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

using enum simt::FindingKind;

// ---- never written ------------------------------------------------------------------------------

__global__ void shared_sum_starts_anywhere(float* out) {
  __shared__ float sum[32];
  sum[threadIdx.x] += 1;  // BUG
  out[threadIdx.x] = sum[threadIdx.x];
}

// The tail of the tile is not filled, and read.
__global__ void tail_of_the_tile(const float* x, float* out, int count) {
  FLASH_DYNAMIC_SHARED(float, tile);
  if (static_cast<int>(threadIdx.x) < count) tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float sum = 0;
  for (unsigned j = 0; j < blockDim.x; ++j) sum += tile[j];  // BUG
  out[threadIdx.x] = sum;
}

// Shared memory does not keep its values from block to block.
__global__ void left_by_the_last_block(float* out) {
  __shared__ float kept;
  if (threadIdx.x == 0 && blockIdx.x == 0) kept = 1;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = kept;  // BUG
}

__global__ void accumulates_in_new_memory(float* sum) {
  sum[threadIdx.x] += 1;  // BUG
}

__global__ void atomic_on_new_memory(float* sum) {
  atomicAdd(sum + threadIdx.x, 1.0f);  // BUG
}

// ---- out of bounds ------------------------------------------------------------------------------

__global__ void one_past_the_end(float* data, int count) {
  for (int i = threadIdx.x; i <= count; i += blockDim.x) data[i] = 1;  // BUG
}

__global__ void before_the_start(const float* x, float* out) {
  out[threadIdx.x] = x[static_cast<int>(threadIdx.x) - 1];  // BUG
}

__global__ void past_dynamic_shared(float* out) {
  FLASH_DYNAMIC_SHARED(float, tile);
  tile[2 * threadIdx.x] = 1;  // BUG
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

// One row past the end of an array, and another array lies there.
__global__ void past_static_shared(float* out) {
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
__global__ void past_the_last_member(float* out) {
  Row row{2, {1, 2, 3, 4}};
  out[threadIdx.x] = row.scale * row.x[threadIdx.x % 5];  // BUG
}

// A vector load whose last elements do not exist.
__global__ void vector_tail(const float* x, float* out) {
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

// ---- misaligned, elsewhere ----------------------------------------------------------------------

__global__ void misaligned_float4(const float* x, float* out) {
  const float4 v = *reinterpret_cast<const float4*>(x + 1 + 4 * threadIdx.x);  // BUG
  out[threadIdx.x] = v.x;
}

__global__ void misaligned_atomic(int* out) {
  atomicAdd(reinterpret_cast<int*>(reinterpret_cast<char*>(out) + 2), 1);  // BUG
}

__global__ void follows_a_host_pointer(const float* x, float* out) {
  out[threadIdx.x] = x[threadIdx.x];  // BUG
}

__global__ void follows_null(const float* x, float* out) {
  out[threadIdx.x] = x[threadIdx.x];  // BUG
}

// A pointer to one thread's local variable, used by another thread.
__global__ void shares_a_local_variable(float* out) {
  __shared__ float* pointer;
  float local[2] = {1, static_cast<float>(threadIdx.x)};
  if (threadIdx.x == 0) pointer = local;
  __syncthreads();
  out[threadIdx.x] = pointer[threadIdx.x % 2];  // BUG
  __syncthreads();
}

__global__ void divides_by_zero(int* out, int zero) {
  out[threadIdx.x] = 100 / zero;  // BUG
}

}  // namespace

std::vector<Specimen> memory() {
  return {
      mistake(kUninitialized, KERNEL(shared_sum_starts_anywhere), {1, 32}, zeros(32)),
      mistake(kUninitialized, KERNEL(tail_of_the_tile), {1, 32, 128}, counting(20), zeros(32), 20),
      mistake(kUninitialized, KERNEL(left_by_the_last_block), {2, 32}, zeros(64)),
      mistake(kUninitialized, KERNEL(accumulates_in_new_memory), {1, 32}, unwritten(32)),
      mistake(kUninitialized, KERNEL(atomic_on_new_memory), {1, 32}, unwritten(32)),
      mistake(kOutOfBounds, KERNEL(one_past_the_end), {1, 32}, zeros(100), 100),
      mistake(kOutOfBounds, KERNEL(before_the_start), {1, 32}, counting(32), zeros(32)),
      mistake(kOutOfBounds, KERNEL(past_dynamic_shared), {1, 32, 128}, zeros(32)),
      mistake(kOutOfBounds, KERNEL(past_static_shared), {1, 32}, zeros(32)),
      mistake(kOutOfBounds, KERNEL(past_the_last_member), {1, 32}, zeros(32)),
      mistake(kOutOfBounds, KERNEL(vector_tail), {1, 32}, counting(126), zeros(32)),
      {"uses_freed_memory", kOutOfBounds,
       [] {
         float* const freed = DeviceTensor<float, 1>({32}).data();
         launch("uses_freed_memory", uses_freed_memory, {1, 32}, freed);
         return true;
       }},
      {"forbidden_padding", kOutOfBounds,
       [] {
         const auto x = on_device<float>(counting(32)), out = on_device<float>(zeros(32));
         device::forbid(x.data() + 30, 8);
         launch("forbidden_padding", forbidden_padding, {1, 32}, x.data(), out.data());
         return true;
       }},
      {"writes_an_input", kInput,
       [] {
         const auto x = on_device<float>(counting(32)), out = on_device<float>(zeros(32));
         simt::name_memory(x.data(), "x", true);
         launch("writes_an_input", writes_an_input, {1, 32}, x.data(), out.data());
         return true;
       }},
      mistake(kMisaligned, KERNEL(misaligned_float4), {1, 32}, counting(256), zeros(32)),
      mistake(kMisaligned, KERNEL(misaligned_atomic), {1, 32}, zeros(32)),
      {"follows_a_host_pointer", kHostMemory,
       [] {
         const Tensor<float, 1> x({32});
         launch("follows_a_host_pointer", follows_a_host_pointer, {1, 32}, x.data(),
                on_device<float>(zeros(32)).data());
         return true;
       }},
      mistake(kFault, KERNEL(follows_null), {1, 32}, nullptr, zeros(32)),
      mistake(kOutOfBounds, KERNEL(shares_a_local_variable), {1, 32}, zeros(32)),
      mistake(kFault, KERNEL(divides_by_zero), {1, 32}, zeros(32), 0),
  };
}

}  // namespace flash::simt_corpus
