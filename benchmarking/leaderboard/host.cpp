// The boards of a CPU: what problem.hpp leaves to the device.
#include "benchmarking/leaderboard/host.hpp"

#include "benchmarking/leaderboard/ceiling.hpp"
#include "common/error.hpp"

namespace flash::leaderboard {

std::unique_ptr<Problem> make_problem(const Asked& asked, const Shape<4>& sizes, bool causal) {
  if (asked.dtype != "float32")
    throw ArgumentError("dtype is " + asked.dtype + "; on a CPU it must be float32");
  return asked.kind == "attention" ? attention_on_host(sizes, causal)
                                   : softmax_matmul_on_host(sizes);
}

std::unique_ptr<grading::CallMemory> memory_of_calls() { return grading::memory_of_host(); }

Rates rates_now() { return {.peak_gflops = peak_gflops(), .bandwidth_gbs = read_bandwidth()}; }

Device device_now() { return {}; }  // ./lab looks at the processor itself

}  // namespace flash::leaderboard
