// The list of part 2's rungs.
#include "part2_flash_cpu/ladder/ladder.hpp"

#include "part2_flash_cpu/ladder/rungs.hpp"

namespace flash {

void register_attention_ladder(AttentionRegistry& registry) {
  const auto enter = [&](const char* name, const AttentionFunctions& functions) {
    registry.add({.name = name,
                  .device = DeviceKind::kCpu,
                  .dtypes = {DType::kFloat32, DType::kFloat64},
                  .constraints = "",
                  .run = &functions});
  };
  enter("1_threads", attention_1::functions);
  enter("2_vectorised", attention_2::functions);
  enter("3_register_blocked", attention_3::functions);
  enter("4_balanced", attention_4::functions);
}

}  // namespace flash
