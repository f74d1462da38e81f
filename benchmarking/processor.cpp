#include "benchmarking/processor.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <future>
#include <numeric>
#include <string>
#include <vector>

namespace flash {
namespace {

// Returns the rate of this thread.
template <class T, int kBytes>
[[gnu::always_inline]] inline double multiply_add_for(double seconds) {
  using Clock = std::chrono::steady_clock;
  typedef T Vector __attribute__((vector_size(kBytes)));
  // 12 chains hide a latency of 4 to 6 cycles on two units, and fit 16 registers.
  constexpr int kChains = 12, kSteps = 4000;
  Vector sum[kChains] = {}, factor = Vector{} + T(0.999), term = Vector{} + T(0.001);
  asm volatile("" : "+m"(factor), "+m"(term));  // numbers that the compiler does not know
  double flops = 0, passed = 0;
  const auto begin = Clock::now();
  do {
    for (int step = 0; step < kSteps; ++step)
#pragma GCC unroll 12
      for (int chain = 0; chain < kChains; ++chain) sum[chain] = sum[chain] * factor + term;
    flops += 2.0 * kSteps * kChains * (kBytes / sizeof(T));
    passed = std::chrono::duration<double>(Clock::now() - begin).count();
  } while (passed < seconds);
  for (Vector& one : sum) asm volatile("" : : "m"(one));
  return flops / passed;
}

#ifdef __x86_64__
template <class T>
[[gnu::target("avx512f")]] double in_64_bytes(double seconds) {
  return multiply_add_for<T, 64>(seconds);
}
template <class T>
[[gnu::target("avx2,fma")]] double in_32_bytes(double seconds) {
  return multiply_add_for<T, 32>(seconds);
}
#endif

template <class T>
double rate_of_thread(double seconds) {
#ifdef __x86_64__
  if (native_vector_bytes() == 64) return in_64_bytes<T>(seconds);
  if (native_vector_bytes() == 32) return in_32_bytes<T>(seconds);
#endif
  return multiply_add_for<T, 16>(seconds);
}

}  // namespace

int native_vector_bytes() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return 64;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 32;
#endif
  return 16;
}

double native_peak_gflops(DType dtype, int threads, double milliseconds) {
  const auto run = dtype == DType::kFloat64 ? rate_of_thread<double> : rate_of_thread<float>;
  std::vector<std::future<double>> rates;
  for (int i = 0; i < threads; ++i)  // the first in this thread, when it is asked for
    rates.push_back(
        std::async(i == 0 ? std::launch::deferred : std::launch::async, run, 1e-3 * milliseconds));
  double all = 0;
  for (auto& rate : rates) all += rate.get();
  return 1e-9 * all;
}

double read_bandwidth_gbs() {
  static std::vector<std::uint64_t> memory(std::size_t{8} << 20, 1);  // 64 MiB
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t sum = std::accumulate(memory.begin(), memory.end(), std::uint64_t{0});
  asm volatile("" : : "r"(sum));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return 1e-9 * static_cast<double>(memory.size() * sizeof(sum)) / seconds.count();
}

OtherPrograms::Seconds OtherPrograms::now() {
  Seconds seconds;
  const double second = 1 / static_cast<double>(sysconf(_SC_CLK_TCK));
  std::ifstream stat("/proc/stat");
  std::string word;
  double ticks = 0;
  // user nice system idle iowait irq softirq steal; what follows is contained in the first two.
  if (stat >> word && word == "cpu")
    for (int column = 0; column < 8 && stat >> ticks; ++column) {
      seconds.all += ticks * second;
      if (column != 3 && column != 4) seconds.busy += ticks * second;
    }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  for (const timeval& time : {usage.ru_utime, usage.ru_stime})
    seconds.own += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  return seconds;
}

std::optional<double> OtherPrograms::share() const {
  const Seconds end = now();
  if (!(end.all > start_.all)) return std::nullopt;
  const double others = (end.busy - start_.busy) - (end.own - start_.own);
  return std::max(0.0, others / (end.all - start_.all));
}

}  // namespace flash
