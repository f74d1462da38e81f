// Implements host_ladder() of machine.hpp: compiled once with part 2's ladder, and once without.
#include "benchmarking/machine.hpp"
#include "benchmarking/program.hpp"

#ifdef FLASH_HAVE_PART2_LADDER
#include "part2_flash_cpu/ladder/ladder.hpp"
#include "part2_flash_cpu/ladder/parallel.hpp"
#else
#include <algorithm>
#include <thread>

#include "benchmarking/peak.hpp"
#endif

namespace flash {

HostLadder host_ladder() {
#ifdef FLASH_HAVE_PART2_LADDER
  return {.peak = format("multiply-adds in registers, %s, %d threads", ladder_isa().c_str(),
                         ladder_threads()),
          .peak_gflops = [](DType dtype) { return fma_peak_gflops(dtype, 2); },
          .release = release_kept_memory};
#else
  static const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return {.peak = format("multiply-adds in registers, vectors of %d bytes, %d threads",
                         native_vector_bytes(), threads),
          .peak_gflops = [](DType dtype) { return native_peak_gflops(dtype, threads, 2); }};
#endif
}

}  // namespace flash
