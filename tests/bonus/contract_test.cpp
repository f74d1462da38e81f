// What the functions of the bonus' contract refuse, and how they say it; how much memory they take; the blocks of small GPUs.
#include <algorithm>
#include <limits>

#include "bonus_backward/flash_backward_cuda.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/inputs.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"

using namespace flash;
using flash::harness::ContainsSubstring;

namespace {

struct Arguments {
  DeviceTensor<float, 4> q, k, v, out, d_out, d_q, d_k, d_v;
  DeviceTensor<float, 3> lse, delta;

  explicit Arguments(const AttentionShape& shape)
      : q(normal<float>(shape.of_queries(), 1)),
        k(normal<float>(shape.of_keys(), 2)),
        v(normal<float>(shape.of_keys(), 3)),
        out(normal<float>(shape.of_queries(), 4)),
        d_out(normal<float>(shape.of_queries(), 5)),
        d_q(shape.of_queries()),
        d_k(shape.of_keys()),
        d_v(shape.of_keys()),
        lse(Tensor<float, 3>(shape.of_rows())),
        delta(Tensor<float, 3>(shape.of_rows())) {}

  void run(const AttentionOptions& options = {}) const {
    flash_attention_backward_cuda<float>(q.view(), k.view(), v.view(), out.view(), lse.view(), d_out.view(), d_q.view(),
                                         d_k.view(), d_v.view(), options);
  }
};

std::vector<float> gradients(const Arguments& arguments) {
  device::synchronize();
  std::vector<float> all;
  for (const DeviceTensor<float, 4>* tensor : {&arguments.d_q, &arguments.d_k, &arguments.d_v}) {
    const Tensor<float, 4> host = tensor->to_host();
    all.insert(all.end(), host.data(), host.data() + host.size());
  }
  return all;
}

}  // namespace

TEST_CASE("shapes that do not fit are named") {
  if (harness::skipped_without_gpu()) return;
  const Arguments right({1, 2, 3, 5, 4}), other({1, 2, 5, 3, 4});
  CHECK_NOTHROW(right.run());
  device::synchronize();
  const auto dk_dv = [&](auto lse, auto delta, auto d_k) {
    flash_backward_dk_dv_cuda<float>(right.q.view(), right.k.view(), right.v.view(), lse, right.d_out.view(), delta, d_k,
                                     right.d_v.view());
  };
  CHECK_THROWS_WITH(dk_dv(other.lse.view(), right.delta.view(), right.d_k.view()),
                    "lse has shape (1, 2, 5); it must be (1, 2, 3)");
  CHECK_THROWS_WITH(dk_dv(right.lse.view(), other.delta.view(), right.d_k.view()),
                    "delta has shape (1, 2, 5); it must be (1, 2, 3)");
  CHECK_THROWS_WITH(dk_dv(right.lse.view(), right.delta.view(), right.d_q.view()),
                    "d_k has shape (1, 2, 3, 4); it must be (1, 2, 5, 4)");
  CHECK_THROWS_WITH(flash_backward_dq_cuda<float>(right.q.view(), right.k.view(), right.q.view(), right.lse.view(),
                                                  right.d_out.view(), right.delta.view(), right.d_q.view()),
                    "v has shape (1, 2, 3, 4); it must be (1, 2, 5, 4)");
  CHECK_THROWS_WITH(flash_backward_delta_cuda<float>(right.out.view(), other.out.view(), right.delta.view()),
                    "d_out has shape (1, 2, 5, 4); it must be (1, 2, 3, 4)");
  CHECK_THROWS_WITH(
      flash_backward_delta_cuda<float>(TensorView<float, 4>(nullptr, {1, 2, 3, 4}), right.d_out.view(), right.delta.view()),
      "out is a null view; it must point to 24 elements");
  CHECK_THROWS_WITH(
      flash_backward_delta_cuda<float>(TensorView<float, 4>(nullptr, {1, 2, 0, 4}), right.d_out.view(), right.delta.view()),
      "out has shape (1, 2, 0, 4); queries must be at least 1 in (batch, heads, queries, head_dim)");
}

TEST_CASE("a scale that is no number and a head that is too wide are refused") {
  if (harness::skipped_without_gpu()) return;
  CHECK_THROWS_WITH(Arguments({1, 1, 3, 5, 4}).run({.scale = std::numeric_limits<double>::infinity()}),
                    "scale is inf; it must be a finite number");
  const Arguments wide({1, 1, 1, 1, 257});
  CHECK_THROWS_AS(wide.run(), Unsupported);
  CHECK_THROWS_WITH(wide.run(),
                    "head_dim is 257; the tiled backward pass takes at most 256, and plain_attention_backward_cuda() any");
  CHECK_THROWS_WITH(flash_backward_blocks<float>(0), "head_dim is 0; it must be at least 1");
  CHECK_THROWS_AS(flash_backward_blocks<Half>(257), Unsupported);
  // Rows that all lie at one place take no memory.
  constexpr Index kLong = Index{1} << 31;
  const Arguments one({1, 1, 1, 1, 1});
  const auto repeated = [](const DeviceTensor<float, 4>& x) {
    return TensorView<const float, 4>(x.data(), {1, 1, kLong, 1}, {0, 0, 0, 1});
  };
  CHECK_THROWS_WITH(flash_backward_dq_cuda<float>(one.q.view(), repeated(one.k), repeated(one.v), one.lse.view(),
                                                  one.d_out.view(), one.delta.view(), one.d_q.view()),
                    "keys is 2147483648; the tiled backward pass takes at most 2147483647");
}

TEST_CASE("delta is all the memory that a call takes") {
  if (harness::skipped_without_gpu()) return;
  const Arguments arguments({2, 3, 50, 70, 8});
  device::synchronize();
  const std::size_t before = device::memory_in_use();
  device::reset_peak_memory();
  arguments.run();
  device::synchronize();
  CHECK(device::peak_memory() - before == sizeof(float) * 2 * 3 * 50);
  CHECK(device::memory_in_use() == before);
}

TEST_CASE("with the shared memory of a small GPU the blocks are smaller, and the gradients the same") {
  if (harness::skipped_without_gpu()) return;
  for (const Index head_dim : {32, 64, 128, 256}) {
    const Arguments arguments({1, 1, 150, 140, head_dim});
    arguments.run({.causal = true});
    const std::vector<float> want = gradients(arguments);
    device::set_shared_memory_limit(std::size_t{64} << 10);
    CHECK_NOTHROW(arguments.run({.causal = true}));
    const FlashBackwardBlocks blocks = flash_backward_blocks<float>(head_dim);
    device::set_shared_memory_limit(std::nullopt);
    CAPTURE(head_dim, blocks.own, blocks.streamed);
    CHECK((head_dim == 32 || blocks.own < flash_backward_blocks<float>(head_dim).own));
    // Other blocks add in another order: a few units in the last place of sums of up to 150 terms, some of them large.
    double largest = 0, error = 0;
    const std::vector<float> got = gradients(arguments);
    for (std::size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
      error = std::max(error, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    }
    CHECK(error <= 1e-5 * largest);
  }
  device::set_shared_memory_limit(std::size_t{16} << 10);
  CHECK_THROWS_WITH(
      flash_backward_blocks<float>(64),
      "no configuration for a head_dim of 64 has room in the 16384 bytes of shared memory that a block may have on "
      "this GPU");
  device::set_shared_memory_limit(std::nullopt);
}
