// How the runner calls the functions of part 2.
#include "harness/runner/runner.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::grading {
namespace {

// `function` is the one for float.
template <class T>
void run_for(unsigned function, const Message& call, const OnHost& on) {
  if (function == kAttentionForward)
    functions_of<FlashForwardTask>().of<T>().flash_attention_forward(
        forward_pass<T>(call, on), {call.integers[0], call.integers[1]});
  else if (function == kAttentionDelta)
    functions_of<FlashBackwardTask>().of<T>().attention_delta(
        on.view<const T, 4>(0), on.view<const T, 4>(1), on.view<LseType<T>, 3>(2));
  else if (function == kAttentionBackward)
    functions_of<FlashBackwardTask>().of<T>().flash_attention_backward(backward_pass<T>(call, on),
                                                                       call.integers[0]);
}

}  // namespace

bool run_part2(const Message& call, void* memory, Message&) {
  if (call.function < kAttentionForward || call.function >= kMeasureAttention) return false;
  const OnHost on{call, memory};
  // Behind each function for float are those for the other types, in the order of DType.
  const unsigned type = (call.function - kAttentionForward) % 4, function = call.function - type;
  if (type == 0) run_for<float>(function, call, on);
  if (type == 1) run_for<double>(function, call, on);
  if (type == 2) run_for<Half>(function, call, on);
  if (type == 3) run_for<BFloat16>(function, call, on);
  return true;
}

}  // namespace flash::grading
