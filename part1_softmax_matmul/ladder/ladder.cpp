// The list of part 1's rungs.
#include "part1_softmax_matmul/ladder/ladder.hpp"

namespace flash {

namespace fused_cpu_1 {
FusedCpu fused_softmax_matmul;
}

void register_fused_cpu_ladder(Registry<FusedCpu>& registry) {
  registry.add({.name = "1_register_tile",
                .device = DeviceKind::kCpu,
                .dtypes = {DType::kFloat32},
                .constraints = "",
                .run = fused_cpu_1::fused_softmax_matmul});
}

}  // namespace flash
