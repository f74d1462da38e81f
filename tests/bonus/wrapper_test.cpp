// The entries of the bonus in the registry of attention on a GPU: forward of part 3, backward of the bonus.
#include "bonus_backward/implementations.hpp"
#include "bonus_backward/ladder/implementations.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"
#include "part3/on_device.hpp"

using namespace flash;
using harness::Data;
using part3::check_attention;
using part3::OnDevice;

namespace {

const DeviceAttentionRegistry& registry() {
  static const DeviceAttentionRegistry made = [] {
    DeviceAttentionRegistry registry;
    register_bonus_attention(registry);
    register_bonus_ladder(registry);
    return registry;
  }();
  return made;
}

}  // namespace

TEST_CASE("every entry gives the oracle's gradients, for every type, with a mask and without") {
  if (harness::skipped_without_gpu()) return;
  for (const auto& entry : registry().entries())
    for (const bool causal : {false, true})
      for (const AttentionShape& shape :
           {AttentionShape{2, 3, 37, 70, 24}, AttentionShape{1, 2, 150, 33, 16}, AttentionShape{1, 1, 65, 140, 100},
            AttentionShape{1, 1, 1, 100, 8}, AttentionShape{1, 1, 20, 40, 200}, AttentionShape{1, 2, 5, 0, 8},
            AttentionShape{1, 1, 150, 290, 40}}) {
        check_attention<float>(registry(), entry.name, shape, causal);
        check_attention<Half>(registry(), entry.name, shape, causal);
        check_attention<BFloat16>(registry(), entry.name, shape, causal);
      }
}

TEST_CASE("the gradients survive large scores, and NaN reaches those that see it") {
  if (harness::skipped_without_gpu()) return;
  for (const auto& entry : registry().entries()) {
    check_attention<float>(registry(), entry.name, {1, 2, 64, 100, 64}, false, Data::kLargeScores);
    check_attention<float>(registry(), entry.name, {1, 1, 40, 100, 16}, false, Data::kVeryNegative);
    check_attention<float>(registry(), entry.name, {2, 2, 70, 70, 8}, true, Data::kNaN);
  }
}

TEST_CASE("a head that is too wide for the tiled backward pass gets the plain one") {
  if (harness::skipped_without_gpu()) return;
  check_attention<float>(registry(), "flash", {1, 1, 20, 30, 300}, true);
  const OnDevice<float> wide({1, 1, 3, 3, 257});
  const auto pass = wide.forward(registry(), "flash_1_one_pass");
  CHECK_THROWS_WITH(pass.backward(wide.d_out.view()),
                    "head_dim is 257; the tiled backward pass takes at most 256, and plain_attention_backward_cuda() any");
}
