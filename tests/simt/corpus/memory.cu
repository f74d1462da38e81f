// Reads of what nobody wrote, accesses out of bounds, misaligned, to host memory; faults.
#include "common/cuda/launch.hpp"
#include "simt/corpus/corpus.hpp"

namespace flash::simt_corpus {
namespace {

using simt::FindingKind;

// ---- never written -----------------------------------------------------------------------------------------------------------

__global__ void shared_sum_starts_anywhere(float* out) {
  __shared__ float sum[32];
  sum[threadIdx.x] += 1;  // BUG shared_sum_starts_anywhere
  out[threadIdx.x] = sum[threadIdx.x];
}

// The tail of the tile is not filled, and read.
__global__ void tail_of_the_tile(const float* x, float* out, int count) {
  FLASH_DYNAMIC_SHARED(float, tile);
  if (static_cast<int>(threadIdx.x) < count) tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float sum = 0;
  for (unsigned j = 0; j < blockDim.x; ++j) sum += tile[j];  // BUG tail_of_the_tile
  out[threadIdx.x] = sum;
}

// Shared memory does not keep its values from block to block.
__global__ void left_by_the_last_block(float* out) {
  __shared__ float kept;
  if (threadIdx.x == 0 && blockIdx.x == 0) kept = 1;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = kept;  // BUG left_by_the_last_block
}

__global__ void accumulates_in_new_memory(float* sum) {
  sum[threadIdx.x] += 1;  // BUG accumulates_in_new_memory
}

__global__ void atomic_on_new_memory(float* sum) {
  atomicAdd(sum + threadIdx.x, 1.0f);  // BUG atomic_on_new_memory
}

// ---- out of bounds -----------------------------------------------------------------------------------------------------------

__global__ void one_past_the_end(float* data, int count) {
  for (int i = threadIdx.x; i <= count; i += blockDim.x) data[i] = 1;  // BUG one_past_the_end
}

__global__ void before_the_start(const float* x, float* out) {
  out[threadIdx.x] = x[static_cast<int>(threadIdx.x) - 1];  // BUG before_the_start
}

__global__ void past_dynamic_shared(float* out) {
  FLASH_DYNAMIC_SHARED(float, tile);
  tile[2 * threadIdx.x] = 1;  // BUG past_dynamic_shared
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

// One row past the end of an array, and another array lies there.
__global__ void past_static_shared(float* out) {
  __shared__ float tile[32], other[32];
  other[threadIdx.x] = 1;
  tile[threadIdx.x + 1] = 2;  // BUG past_static_shared
  __syncthreads();
  out[threadIdx.x] = other[threadIdx.x] + tile[threadIdx.x];
}

// A vector load whose last elements do not exist.
__global__ void vector_tail(const float* x, float* out) {
  const float4 v = reinterpret_cast<const float4*>(x)[threadIdx.x];  // BUG vector_tail
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}

// Memory that was freed before the launch.
__global__ void uses_freed_memory(float* data) {
  data[threadIdx.x] = 1;  // BUG uses_freed_memory
}

// What lies around a tensor, inside of the same allocation.
__global__ void forbidden_padding(const float* x, float* out) {
  out[threadIdx.x] = x[threadIdx.x];  // BUG forbidden_padding
}

// ---- misaligned, elsewhere ---------------------------------------------------------------------------------------------------

__global__ void misaligned_float4(const float* x, float* out) {
  const float4 v = *reinterpret_cast<const float4*>(x + 1 + 4 * threadIdx.x);  // BUG misaligned_float4
  out[threadIdx.x] = v.x;
}

__global__ void misaligned_shared_float2(float* out) {
  __shared__ __align__(16) float tile[64];
  tile[threadIdx.x] = 1;
  tile[threadIdx.x + 32] = 1;
  __syncwarp();
  const float2 pair = *reinterpret_cast<const float2*>(tile + threadIdx.x);  // BUG misaligned_shared_float2
  out[threadIdx.x] = pair.x + pair.y;
}

__global__ void follows_a_host_pointer(const float* x, float* out) {
  out[threadIdx.x] = x[threadIdx.x];  // BUG follows_a_host_pointer
}

__global__ void follows_null(const float* x, float* out) {
  out[threadIdx.x] = x[threadIdx.x];  // BUG follows_null
}

// A pointer to one thread's local variable, used by another thread.
__global__ void shares_a_local_variable(float* out) {
  __shared__ float* pointer;
  float local[2] = {1, static_cast<float>(threadIdx.x)};
  if (threadIdx.x == 0) pointer = local;
  __syncthreads();
  out[threadIdx.x] = pointer[threadIdx.x % 2];  // BUG shares_a_local_variable
  __syncthreads();
}

__global__ void divides_by_zero(int* out, int zero) {
  out[threadIdx.x] = 100 / zero;  // BUG divides_by_zero
}

}  // namespace

std::vector<Specimen> memory() {
  const auto with_out = [](const char* name, FindingKind mistake, void (*kernel)(float*), bool is_new, unsigned blocks = 1) {
    return Specimen{name, mistake, [=] {
                      const auto out = is_new ? unwritten(32 * blocks) : zeros(32 * blocks);
                      launch(name, kernel, {.grid = blocks, .block = 32, .shared_bytes = 128}, out.data());
                      return true;
                    }};
  };
  const auto with_x = [](const char* name, FindingKind mistake, void (*kernel)(const float*, float*), Index count) {
    return Specimen{name, mistake, [=] {
                      const auto x = counting(count), out = zeros(32);
                      launch(name, kernel, {.grid = 1, .block = 32}, x.data(), out.data());
                      return true;
                    }};
  };
  return {
      with_out("shared_sum_starts_anywhere", FindingKind::kUninitialized, shared_sum_starts_anywhere, false),
      {"tail_of_the_tile", FindingKind::kUninitialized,
       [] {
         const auto x = counting(20), out = zeros(32);
         launch("tail_of_the_tile", tail_of_the_tile, {.grid = 1, .block = 32, .shared_bytes = 128}, x.data(), out.data(), 20);
         return true;
       }},
      with_out("left_by_the_last_block", FindingKind::kUninitialized, left_by_the_last_block, false, 2),
      with_out("accumulates_in_new_memory", FindingKind::kUninitialized, accumulates_in_new_memory, true),
      with_out("atomic_on_new_memory", FindingKind::kUninitialized, atomic_on_new_memory, true),
      {"one_past_the_end", FindingKind::kOutOfBounds,
       [] {
         const auto data = zeros(100);
         launch("one_past_the_end", one_past_the_end, {.grid = 1, .block = 32}, data.data(), 100);
         return true;
       }},
      with_x("before_the_start", FindingKind::kOutOfBounds, before_the_start, 32),
      with_out("past_dynamic_shared", FindingKind::kOutOfBounds, past_dynamic_shared, false),
      with_out("past_static_shared", FindingKind::kOutOfBounds, past_static_shared, false),
      with_x("vector_tail", FindingKind::kOutOfBounds, vector_tail, 126),
      {"uses_freed_memory", FindingKind::kOutOfBounds,
       [] {
         float* freed = nullptr;
         {
           const auto data = zeros(32);
           freed = data.data();
         }
         launch("uses_freed_memory", uses_freed_memory, {.grid = 1, .block = 32}, freed);
         return true;
       }},
      {"forbidden_padding", FindingKind::kOutOfBounds,
       [] {
         const auto x = counting(32), out = zeros(32);
         device::forbid(x.data() + 30, 8);
         launch("forbidden_padding", forbidden_padding, {.grid = 1, .block = 32}, x.data(), out.data());
         return true;
       }},
      with_x("misaligned_float4", FindingKind::kMisaligned, misaligned_float4, 256),
      with_out("misaligned_shared_float2", FindingKind::kMisaligned, misaligned_shared_float2, false),
      {"follows_a_host_pointer", FindingKind::kHostMemory,
       [] {
         const Tensor<float, 1> x({32});
         const auto out = zeros(32);
         launch("follows_a_host_pointer", follows_a_host_pointer, {.grid = 1, .block = 32}, x.data(), out.data());
         return true;
       }},
      {"follows_null", FindingKind::kFault,
       [] {
         const auto out = zeros(32);
         launch("follows_null", follows_null, {.grid = 1, .block = 32}, nullptr, out.data());
         return true;
       }},
      with_out("shares_a_local_variable", FindingKind::kOutOfBounds, shares_a_local_variable, false),
      {"divides_by_zero", FindingKind::kFault,
       [] {
         const auto out = integer_zeros(32);
         launch("divides_by_zero", divides_by_zero, {.grid = 1, .block = 32}, out.data(), 0);
         return true;
       }},
  };
}

}  // namespace flash::simt_corpus
