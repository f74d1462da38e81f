// What the functions of the bonus' contract refuse, and how they say it; how much memory they take;
// the blocks of small GPUs.
#include <algorithm>
#include <limits>

#include "bonus_backward/flash_backward_cuda.hpp"
#include "common/all_passes.hpp"
#include "harness/cases/attention_case.hpp"
#include "harness/cases/device_checks.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"

using namespace flash;

namespace {

template <class T = float>
const FlashBackwardCudaFunctions<T>& task() {
  return all_passes().tasks.library<FlashBackwardCudaTask>()->of<T>();
}

struct Call : harness::BackwardCall<float> {
  explicit Call(const AttentionShape& shape) : harness::BackwardCall<float>({.shape = shape}, 1) {}

  void run(const AttentionOptions& options = {}) const {
    AttentionBackward<float> pass = tensors.pass();
    pass.options = options;
    task().flash_attention_backward_cuda(pass);
  }
  std::vector<float> gradients() {
    tensors.copy_back();
    std::vector<float> all;
    for (auto* const tensor : {&tensors.d_q, &tensors.d_k, &tensors.d_v}) {
      const Tensor<float, 4> values = packed(tensor->view());
      all.insert(all.end(), values.data(), values.data() + values.size());
    }
    return all;
  }
};

}  // namespace

TEST_CASE("shapes that do not fit are named") {
  if (harness::skipped_without_gpu()) return;
  const Call right({1, 2, 3, 5, 4}), other({1, 2, 5, 3, 4});
  CHECK_NOTHROW(right.run());
  device::synchronize();
  const auto &x = right.tensors, &y = other.tensors;
  const auto delta = right.delta.in_call();
  const auto dk_dv_with = [&](auto change) {
    AttentionBackward<float> pass = x.pass();
    change(pass);
    task().flash_backward_dk_dv_cuda(pass, delta);
  };
  CHECK_THROWS_WITH(dk_dv_with([&](auto& pass) { pass.lse = y.lse.in_call(); }),
                    "lse has shape (1, 2, 5); it must be (1, 2, 3)");
  CHECK_THROWS_WITH(task().flash_backward_dk_dv_cuda(x.pass(), other.delta.in_call()),
                    "delta has shape (1, 2, 5); it must be (1, 2, 3)");
  CHECK_THROWS_WITH(dk_dv_with([&](auto& pass) { pass.d_k = x.d_q.in_call(); }),
                    "d_k has shape (1, 2, 3, 4); it must be (1, 2, 5, 4)");
  CHECK_NOTHROW(dk_dv_with([](auto& pass) { pass.out = {}, pass.d_q = {}; }));
  AttentionBackward<float> wrong = x.pass();
  wrong.out = {}, wrong.d_k = {}, wrong.d_v = {};
  CHECK_NOTHROW(task().flash_backward_dq_cuda(wrong, delta));
  wrong.v = x.q.in_call();
  CHECK_THROWS_WITH(task().flash_backward_dq_cuda(wrong, delta),
                    "v has shape (1, 2, 3, 4); it must be (1, 2, 5, 4)");
  const auto delta_of = [&](const TensorView<float, 4>& out, const TensorView<float, 4>& d_out) {
    task().flash_backward_delta_cuda(out, d_out, delta, {});
  };
  CHECK_THROWS_WITH(delta_of(x.out.in_call(), y.out.in_call()),
                    "d_out has shape (1, 2, 5, 4); it must be (1, 2, 3, 4)");
  CHECK_THROWS_WITH(delta_of({nullptr, {1, 2, 3, 4}}, x.d_out.in_call()),
                    "out is a null view; it must point to 24 elements");
  CHECK_THROWS_WITH(delta_of({nullptr, {1, 2, 0, 4}}, x.d_out.in_call()),
                    "out has shape (1, 2, 0, 4); queries must be at least 1 in (batch, heads, "
                    "queries, head_dim)");
}

TEST_CASE("a scale that is no number and a head that is too wide are refused") {
  if (harness::skipped_without_gpu()) return;
  CHECK_THROWS_WITH(Call({1, 1, 3, 5, 4}).run({.scale = std::numeric_limits<double>::infinity()}),
                    "scale is inf; it must be a number from -1e38 to 1e38");
  const Call wide({1, 1, 1, 1, 257});
  CHECK_THROWS_AS(wide.run(), Unsupported);
  CHECK_THROWS_WITH(wide.run(), "head_dim is 257; it must be at most 256");
  CHECK_THROWS_WITH(task().flash_backward_blocks(0), "head_dim is 0; it must be at least 1");
  CHECK_THROWS_AS(task<Half>().flash_backward_blocks(257), Unsupported);
  // Rows that all lie at one place take no memory.
  constexpr Index kLong = Index{1} << 31;
  const Call one({1, 1, 1, 1, 1});
  AttentionBackward<float> endless = one.tensors.pass();
  for (auto* x : {&endless.k, &endless.v}) *x = {x->data(), {1, 1, kLong, 1}, {0, 0, 0, 1}};
  CHECK_THROWS_WITH(task().flash_backward_dq_cuda(endless, one.delta.in_call()),
                    "keys is 2147483648; it must be at most 2147483647");
}

TEST_CASE("delta is all the memory that a call takes") {
  if (harness::skipped_without_gpu()) return;
  const Call call({2, 3, 50, 70, 8});
  const std::size_t before = device::memory_in_use();
  CHECK(harness::extra_device_bytes([&] { call.run(); }) == sizeof(float) * 2 * 3 * 50);
  CHECK(device::memory_in_use() == before);
}

TEST_CASE(
    "with the shared memory of a small GPU the blocks are smaller, and the gradients the same") {
  if (harness::skipped_without_gpu()) return;
  for (const Index head_dim : {32, 64, 128, 256}) {
    Call call({1, 1, 150, 140, head_dim});
    call.run({.causal = true});
    const std::vector<float> want = call.gradients();
    device::set_shared_memory_limit(std::size_t{64} << 10);
    CHECK_NOTHROW(call.run({.causal = true}));
    const FlashBackwardBlocks blocks = task().flash_backward_blocks(head_dim);
    device::set_shared_memory_limit(std::nullopt);
    CAPTURE(head_dim, blocks.own, blocks.streamed);
    // On the emulator, and for heads of 32, the blocks that have room anywhere are all there is.
    const bool one_size = head_dim == 32 || device::is_emulated();
    CHECK((one_size || blocks.own < task().flash_backward_blocks(head_dim).own));
    // Other blocks add in another order: a few units in the last place of sums of up to 150 terms,
    // some of them large.
    double largest = 0, error = 0;
    const std::vector<float> got = call.gradients();
    for (std::size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
      error =
          std::max(error, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    }
    CHECK(error <= 1e-5 * largest);
  }
  device::set_shared_memory_limit(std::size_t{16} << 10);
  CHECK_THROWS_WITH(task().flash_backward_blocks(64),
                    "no configuration for a head_dim of 64 has room in the 16384 bytes of shared "
                    "memory that a block may have on this GPU");
  device::set_shared_memory_limit(std::nullopt);
}
