// How the runner calls the functions of part 2.
#include "harness/runner/runner.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::grading {
namespace {

// `function` is the one for float; `type` is how a name says T.
template <class T>
void run_for(const char* type, unsigned function, const Message& call, const OnHost& on) {
  using Tensor4 = TensorView<const T, 4>;
  if (function == kAttentionForward)
    function_for<void(const AttentionForward<T>&, const AttentionBlocks&)>(
        type, "23flash_attention_forward", "RKNS_16AttentionForwardIT_EERKNS_15AttentionBlocksE")(
        forward_pass<T>(call, on), {call.integers[0], call.integers[1]});
  else if (function == kAttentionDelta)
    function_for<void(Tensor4, Tensor4, TensorView<T, 3>)>(
        type, "15attention_delta", "NS_10TensorViewIKT_Li4EEES4_NS1_IS2_Li3EEE")(
        on.view<const T, 4>(0), on.view<const T, 4>(1), on.view<T, 3>(2));
  else if (function == kAttentionBackward)
    function_for<void(const AttentionBackward<T>&, Index)>(type, "24flash_attention_backward",
                                                           "RKNS_17AttentionBackwardIT_EEl")(
        backward_pass<T>(call, on), call.integers[0]);
  else
    throw Error("part 2 has no such function");
}

}  // namespace

void run(const Message& call, void* memory, Message&) {
  const OnHost on{call, memory};
  // Behind each function for float is the one for double.
  if ((call.function - kAttentionForward) % 2 == 0)
    run_for<float>("f", call.function, call, on);
  else
    run_for<double>("d", call.function - 1, call, on);
}

}  // namespace flash::grading
