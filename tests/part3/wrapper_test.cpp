// The wrapper around the forward pass: what it gives, what it keeps for the backward pass, and the gradients that the backward
// pass of the registry makes of that.
#include <algorithm>

#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"
#include "part3/on_device.hpp"
#include "part3_flash_cuda/implementations.hpp"

using namespace flash;
using harness::Data;
using part3::check_attention;
using part3::OnDevice;
using part3::to_host;

namespace {

// Made once: the entries have to live as long as what comes of them.
const DeviceAttentionRegistry& registry() {
  static const DeviceAttentionRegistry made = [] {
    DeviceAttentionRegistry registry;
    register_part3_attention(registry);
    return registry;
  }();
  return made;
}

}  // namespace

TEST_CASE("out, lse and the gradients are the oracle's, for every type, with a mask and without") {
  if (harness::skipped_without_gpu()) return;
  for (const bool causal : {false, true})
    for (const AttentionShape& shape :
         {AttentionShape{1, 1, 64, 64, 64}, AttentionShape{2, 3, 37, 70, 24}, AttentionShape{1, 2, 130, 33, 16},
          AttentionShape{1, 1, 1, 100, 8}, AttentionShape{1, 1, 65, 65, 128}, AttentionShape{1, 2, 5, 0, 8}}) {
      check_attention<float>(registry(), "flash", shape, causal);
      check_attention<Half>(registry(), "flash", shape, causal);
      check_attention<BFloat16>(registry(), "flash", shape, causal);
    }
}

TEST_CASE("the gradients survive large scores, and NaN reaches those that see it") {
  if (harness::skipped_without_gpu()) return;
  check_attention<float>(registry(), "flash", {1, 2, 64, 100, 64}, false, Data::kLargeScores);
  check_attention<float>(registry(), "flash", {1, 1, 40, 100, 16}, false, Data::kVeryNegative);
  check_attention<float>(registry(), "flash", {2, 2, 70, 70, 8}, true, Data::kNaN);
}

TEST_CASE("strided tensors give the gradients of dense ones") {
  if (harness::skipped_without_gpu()) return;
  const AttentionShape shape{1, 2, 70, 70, 16};
  const OnDevice<float> dense(shape);
  const auto want = dense.forward(registry(), "flash").backward(dense.d_out.view());
  // (batch, sequence, heads, head_dim) in memory.
  const auto interleaved = [&](const Tensor<float, 4>& x) {
    Tensor<float, 4> y({1, 70, 2, 16});
    for (Index h = 0; h < 2; ++h)
      for (Index i = 0; i < 70; ++i)
        for (Index c = 0; c < 16; ++c) y(0, i, h, c) = x(0, h, i, c);
    return DeviceTensor<float, 4>(y);
  };
  const auto view = [&](const DeviceTensor<float, 4>& x) {
    return TensorView<const float, 4>(x.data(), {1, 2, 70, 16}, {70 * 2 * 16, 16, 2 * 16, 1});
  };
  const auto q = interleaved(dense.host.q), k = interleaved(dense.host.k), v = interleaved(dense.host.v),
             d_out = interleaved(dense.host_d_out);
  const auto got = DeviceAttention<float>(registry(), "flash", view(q), view(k), view(v)).backward(view(d_out));
  for (const auto& [a, b] : {std::pair{&got.d_q, &want.d_q}, {&got.d_k, &want.d_k}, {&got.d_v, &want.d_v}}) {
    const Tensor<float, 4> x = to_host(*a), y = to_host(*b);
    CHECK(std::equal(x.data(), x.data() + x.size(), y.data()));
  }
}

TEST_CASE("what is saved for the backward pass is q, k, v, out and lse, and nothing else is kept") {
  if (harness::skipped_without_gpu()) return;
  const AttentionShape shape{2, 3, 200, 300, 40};
  const OnDevice<Half> on_device(shape);
  device::synchronize();
  const std::size_t before = device::memory_in_use();
  const DeviceAttention<Half> pass = on_device.forward(registry(), "flash");
  const std::size_t q_bytes = 2 * 2 * 3 * 200 * 40, k_bytes = 2 * 2 * 3 * 300 * 40, lse_bytes = 4 * 2 * 3 * 200;
  CHECK(pass.saved() == std::vector<std::pair<std::string, std::size_t>>{
                            {"q", q_bytes}, {"k", k_bytes}, {"v", k_bytes}, {"out", q_bytes}, {"lse", lse_bytes}});
  CHECK(device::memory_in_use() - before == q_bytes + lse_bytes);
}

TEST_CASE("the plain backward pass runs out of memory as a result, and leaves nothing behind") {
  if (harness::skipped_without_gpu()) return;
  const AttentionShape shape{1, 1, 512, 512, 16};
  const OnDevice<float> on_device(shape);
  const DeviceAttention<float> pass = on_device.forward(registry(), "flash");
  device::synchronize();
  const std::size_t before = device::memory_in_use();
  device::set_memory_limit(before + (std::size_t{1} << 20));
  CHECK_THROWS_AS(pass.backward(on_device.d_out.view()), OutOfMemory);
  device::set_memory_limit(std::nullopt);
  CHECK(device::memory_in_use() == before);
}

TEST_CASE("an implementation that is not there is named") {
  const DeviceTensor<float, 4> none;
  const TensorView<const float, 4> q(nullptr, {1, 1, 1, 1});
  CHECK_THROWS_WITH(DeviceAttention<float>(registry(), "flush", q, q, q), "implementation is 'flush'; it must be one of: flash");
}
