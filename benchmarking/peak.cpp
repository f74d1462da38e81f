// Implements peak.hpp.
#include "benchmarking/peak.hpp"

#include <chrono>
#include <thread>
#include <vector>

namespace flash {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

// Returns the rate of this thread.
template <class T>
double multiply_add_for(double seconds) {
  using Clock = std::chrono::steady_clock;
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
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
    flops += 2.0 * kSteps * kChains * (kVectorBytes / sizeof(T));
    passed = std::chrono::duration<double>(Clock::now() - begin).count();
  } while (passed < seconds);
  for (Vector& one : sum) asm volatile("" : : "m"(one));
  return flops / passed;
}

}  // namespace

int native_vector_bytes() { return kVectorBytes; }

double native_peak_gflops(DType dtype, int threads, double milliseconds) {
  const auto run = dtype == DType::kFloat64 ? multiply_add_for<double> : multiply_add_for<float>;
  std::vector<double> rates(static_cast<std::size_t>(threads));
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < rates.size(); ++i)
    others.emplace_back([&, i] { rates[i] = run(1e-3 * milliseconds); });
  rates[0] = run(1e-3 * milliseconds);
  for (std::thread& other : others) other.join();
  double all = 0;
  for (const double rate : rates) all += rate;
  return 1e-9 * all;
}

}  // namespace flash
