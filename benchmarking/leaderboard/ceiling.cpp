// Implements ceiling.hpp.
#include "benchmarking/leaderboard/ceiling.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace flash::leaderboard {
namespace {

#if defined(__AVX512F__)
constexpr std::size_t kVector = 64;
#elif defined(__AVX__)
constexpr std::size_t kVector = 32;
#else
constexpr std::size_t kVector = 16;
#endif
typedef float Vector __attribute__((vector_size(kVector)));

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

double peak_gflops() {
  // 12 chains hide a latency of 4 to 6 cycles on two units, and fit 16 registers.
  constexpr int kChains = 12, kSteps = 400000;
  Vector sum[kChains] = {}, factor = Vector{} + 0.999f, term = Vector{} + 0.001f;
  asm volatile("" : "+m"(factor), "+m"(term));  // numbers that the compiler does not know
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < kSteps; ++step)
#pragma GCC unroll 12
    for (int chain = 0; chain < kChains; ++chain) sum[chain] = sum[chain] * factor + term;
  const double seconds = seconds_since(begin);
  for (Vector& one : sum) asm volatile("" : : "m"(one));
  return 2e-9 * kSteps * kChains * (kVector / sizeof(float)) / seconds;
}

double read_bandwidth() {
  static std::vector<std::uint64_t> memory(std::size_t{8} << 20, 1);  // 64 MiB
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t sum = std::accumulate(memory.begin(), memory.end(), std::uint64_t{0});
  asm volatile("" : : "r"(sum));
  return 1e-9 * static_cast<double>(memory.size() * sizeof(sum)) / seconds_since(begin);
}

}  // namespace flash::leaderboard
