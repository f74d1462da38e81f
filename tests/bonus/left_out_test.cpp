// Every barrier of the bonus' kernels is needed, and so are the atomic additions: without one of them the emulator's checks
// find a race.
#include "bonus/left_out.hpp"

#include "bonus_backward/flash_backward_cuda.hpp"
#include "bonus_backward/ladder/ladder.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/inputs.hpp"
#include "harness/catch.hpp"

using namespace flash;
using flash::harness::ContainsSubstring;

namespace {

// Two blocks of own rows and several of streamed ones.
constexpr AttentionShape kShape{1, 1, 150, 150, 16};

template <class Backward>
void run(Backward backward) {
  const DeviceTensor<float, 4> q(normal<float>(kShape.of_queries(), 1)), k(normal<float>(kShape.of_keys(), 2)),
      v(normal<float>(kShape.of_keys(), 3)), out(normal<float>(kShape.of_queries(), 4)),
      d_out(normal<float>(kShape.of_queries(), 5));
  const DeviceTensor<float, 3> lse(Tensor<float, 3>(kShape.of_rows()));
  const DeviceTensor<float, 4> d_q(kShape.of_queries()), d_k(kShape.of_keys()), d_v(kShape.of_keys());
  backward(q.view(), k.view(), v.view(), out.view(), lse.view(), d_out.view(), d_q.view(), d_k.view(), d_v.view(),
           AttentionOptions{}, Stream{});
  device::synchronize();
}

void two_passes() { run(flash_attention_backward_cuda<float>); }
void one_pass() { run(ladder_1_one_pass::flash_attention_backward_cuda<float>); }

}  // namespace

TEST_CASE("without one of its barriers a pass has a race") {
  CHECK_NOTHROW(two_passes());
  CHECK_NOTHROW(one_pass());
  REQUIRE(left_out::kBarriersOfSolution == 8);
  REQUIRE(left_out::kBarriers == 8 + 5);
  for (int barrier = 0; barrier < left_out::kBarriers; ++barrier) {
    CAPTURE(barrier);
    left_out::leave_out(barrier);
    CHECK_THROWS_WITH(barrier < left_out::kBarriersOfSolution ? two_passes() : one_pass(), ContainsSubstring("race"));
    left_out::leave_out(-1);
  }
}

TEST_CASE("with plain additions in the place of atomic ones one pass has a race") {
  left_out::make_additions_plain(true);
  CHECK_THROWS_WITH(one_pass(), ContainsSubstring("race"));
  left_out::make_additions_plain(false);
  CHECK_NOTHROW(one_pass());
}
