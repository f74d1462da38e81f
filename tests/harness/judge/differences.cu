#include <algorithm>
#include <cstdint>

#include "common/cuda/launch.hpp"
#include "harness/judge/differences.hpp"

namespace flash::grading {
namespace {

template <class Word>
__global__ void differences_kernel(const Word* a, const Word* b, Index count, int* found) {
  const Index threads = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads)
    if (a[i] != b[i]) atomicExch(found, 1);
}

template <class Word>
void compare(const void* a, const void* b, std::size_t bytes, int* found) {
  const auto count = static_cast<Index>(bytes / sizeof(Word));
  launch("differences", differences_kernel<Word>,
         {.grid = grid_size(std::clamp<Index>((count + 255) / 256, 1, 2048)), .block = 256},
         static_cast<const Word*>(a), static_cast<const Word*>(b), count, found);
}

}  // namespace

bool differ(const std::vector<Pieces>& pairs) {
  DeviceTensor<int, 1> found({1});
  device::fill_bytes(found.data(), 0, found.bytes());
  for (const auto& [a, b, bytes] : pairs) {
    const bool in_words =
        (reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) | bytes) %
            sizeof(std::uint64_t) ==
        0;
    if (bytes == 0) continue;
    if (in_words)
      compare<std::uint64_t>(a, b, bytes, found.data());
    else
      compare<unsigned char>(a, b, bytes, found.data());
  }
  return found.to_host()(0) != 0;
}

}  // namespace flash::grading
