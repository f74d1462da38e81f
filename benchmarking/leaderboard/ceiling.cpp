// Implements ceiling.hpp.
#include "benchmarking/leaderboard/ceiling.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "benchmarking/peak.hpp"

namespace flash::leaderboard {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

double peak_gflops() { return native_peak_gflops(DType::kFloat32, 1, 1); }

double read_bandwidth() {
  static std::vector<std::uint64_t> memory(std::size_t{8} << 20, 1);  // 64 MiB
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t sum = std::accumulate(memory.begin(), memory.end(), std::uint64_t{0});
  asm volatile("" : : "r"(sum));
  return 1e-9 * static_cast<double>(memory.size() * sizeof(sum)) / seconds_since(begin);
}

}  // namespace flash::leaderboard
