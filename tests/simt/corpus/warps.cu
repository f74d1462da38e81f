// Warp operations whose lanes do not agree.
#include "common/cuda/launch.hpp"
#include "simt/corpus/corpus.hpp"

namespace flash::simt_corpus {
namespace {

using simt::FindingKind;

// Only half of the lanes that the mask names take part.
__global__ void half_of_the_mask(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);  // BUG half_of_the_mask
  __syncthreads();
}

// A lane that its own mask does not name.
__global__ void not_in_own_mask(float* out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0);  // BUG not_in_own_mask
}

// A block of 48 threads: the second warp has no lane 16 to read from.
__global__ void partial_warp(float* out) {
  float sum = 1;
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);  // BUG partial_warp
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = sum;
}

// A lane returns; the others read from it.
__global__ void reads_from_the_dead(float* out) {
  if (threadIdx.x == 5) return;
  out[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 5);  // BUG reads_from_the_dead
}

// The vote is in a branch that not all lanes take.
__global__ void vote_in_a_branch(int* out) {
  if (threadIdx.x % 2 == 0)
    out[threadIdx.x] = __any_sync(0xffffffffu, threadIdx.x > 3);  // BUG vote_in_a_branch
  __syncwarp();
}

// Lanes disagree about who takes part.
__global__ void two_masks(float* out) {
  const unsigned mask = threadIdx.x < 16 ? 0xffffffffu : 0xffff0000u;
  out[threadIdx.x] = __shfl_sync(mask, 1.0f, 20);  // BUG two_masks
}

}  // namespace

std::vector<Specimen> warps() {
  const auto with_out = [](const char* name, void (*kernel)(float*), unsigned threads) {
    return Specimen{name, FindingKind::kWarpMismatch, [=] {
                      const auto out = zeros(threads);
                      launch(name, kernel, {.grid = 1, .block = threads}, out.data());
                      return true;
                    }};
  };
  return {
      with_out("half_of_the_mask", half_of_the_mask, 32),
      with_out("not_in_own_mask", not_in_own_mask, 32),
      with_out("partial_warp", partial_warp, 48),
      with_out("reads_from_the_dead", reads_from_the_dead, 32),
      {"vote_in_a_branch", FindingKind::kWarpMismatch,
       [] {
         const auto out = integer_zeros(32);
         launch("vote_in_a_branch", vote_in_a_branch, {.grid = 1, .block = 32}, out.data());
         return true;
       }},
      with_out("two_masks", two_masks, 32),
  };
}

}  // namespace flash::simt_corpus
