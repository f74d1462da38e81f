// Implements attention_ladder.hpp: compiled once with the ladder, and once without.
#include "benchmarking/attention_ladder.hpp"

#ifdef FLASH_HAVE_PART2_LADDER

#include "benchmarking/screen.hpp"
#include "part2_flash_cpu/ladder/ladder.hpp"
#include "part2_flash_cpu/ladder/parallel.hpp"

namespace flash {

void register_ladder(AttentionRegistry& registry) { register_attention_ladder(registry); }

std::string ceiling_name() {
  return format("multiply-adds in registers, %s, %d threads", ladder_isa().c_str(), ladder_threads());
}

double ceiling_gflops(DType dtype) { return fma_peak_gflops(dtype, 2); }

void release_ladder_memory() { release_kept_memory(); }

}  // namespace flash

#else

namespace flash {

void register_ladder(AttentionRegistry&) {}
std::string ceiling_name() { return ""; }
double ceiling_gflops(DType) { return 0; }
void release_ladder_memory() {}

}  // namespace flash

#endif
