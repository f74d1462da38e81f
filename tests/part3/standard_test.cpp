// Standard attention on the GPU beside the oracle.
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"
#include "part3/on_device.hpp"
#include "part3_flash_cuda/implementations.hpp"

using namespace flash;
using harness::ContainsSubstring;
using harness::Data;
using part3::check_attention;

TEST_CASE("standard attention is the oracle's, forward and backward, for every type") {
  if (harness::skipped_without_gpu()) return;
  DeviceAttentionRegistry registry;
  register_standard_attention_cuda(registry);
  for (const bool causal : {false, true})
    for (const AttentionShape& shape : {AttentionShape{1, 1, 64, 64, 64}, AttentionShape{2, 3, 37, 70, 24},
                                        AttentionShape{1, 2, 130, 33, 16}, AttentionShape{1, 1, 1, 100, 8}}) {
      check_attention<float>(registry, "standard", shape, causal);
      check_attention<Half>(registry, "standard", shape, causal);
      check_attention<BFloat16>(registry, "standard", shape, causal);
    }
  check_attention<float>(registry, "standard", {1, 2, 64, 100, 64}, false, Data::kLargeScores);
  check_attention<float>(registry, "standard", {1, 1, 40, 100, 16}, false, Data::kVeryNegative);
}

TEST_CASE("standard attention refuses strides that cuBLAS cannot take") {
  if (harness::skipped_without_gpu()) return;
  const DeviceTensor<float, 4> x(Tensor<float, 4>({1, 1, 8, 8})), out({1, 1, 8, 8}), p({1, 1, 8, 8});
  const DeviceTensor<float, 3> lse({1, 1, 8});
  const TensorView<const float, 4> right(x.view()), turned(x.data(), {1, 1, 8, 8}, {64, 64, 1, 8});
  CHECK_THROWS_WITH(standard_attention_forward_cuda<float>(turned, right, right, out.view(), lse.view(), p.view()),
                    ContainsSubstring("q has strides (64, 1, 8); cuBLAS needs a contiguous last axis"));
}
