// The boards of a CPU: what problem.hpp leaves to the device, but for its problems.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "benchmarking/leaderboard/problem.hpp"
#include "benchmarking/peak.hpp"

namespace flash::leaderboard {
namespace {

// Bytes a second that are read from memory, in GB/s.
double read_bandwidth() {
  static std::vector<std::uint64_t> memory(std::size_t{8} << 20, 1);  // 64 MiB
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t sum = std::accumulate(memory.begin(), memory.end(), std::uint64_t{0});
  asm volatile("" : : "r"(sum));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return 1e-9 * static_cast<double>(memory.size() * sizeof(sum)) / seconds.count();
}

}  // namespace

std::unique_ptr<grading::CallMemory> memory_of_calls() { return grading::memory_of_host(); }

// Of one core. Its peak: independent fused multiply-adds on registers, in the widest vectors that a
// student's file is compiled for.
Rates rates_now() {
  return {.peak_gflops = native_peak_gflops(DType::kFloat32, 1, 1),
          .bandwidth_gbs = read_bandwidth()};
}

}  // namespace flash::leaderboard
