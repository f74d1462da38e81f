// Implements host_ladder() of machine.hpp: compiled once with part 2's ladder, and once without.
#include "benchmarking/machine.hpp"

#ifdef FLASH_HAVE_PART2_LADDER
#include "benchmarking/program.hpp"
#include "part2_flash_cpu/ladder/ladder.hpp"
#include "part2_flash_cpu/ladder/parallel.hpp"
#endif

namespace flash {

HostLadder host_ladder() {
#ifdef FLASH_HAVE_PART2_LADDER
  return {.peak = format("multiply-adds in registers, %s, %d threads", ladder_isa().c_str(),
                         ladder_threads()),
          .peak_gflops = [](DType dtype) { return fma_peak_gflops(dtype, 2); },
          .release = release_kept_memory};
#else
  return {};
#endif
}

}  // namespace flash
