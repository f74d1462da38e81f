// How the runner calls the functions of part 2.
#include "grading/runner/runner.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::grading {
namespace {

AttentionOptions options(const Message& call) {
  AttentionOptions made{.causal = call.numbers[0] != 0};
  if (call.numbers[1] != 0) made.scale = call.numbers[2];
  return made;
}

template <class T>
void forward(const Message& call, void* memory, const char* name) {
  using Forward = void(const AttentionForward<T>&, const AttentionBlocks&);
  function<Forward>(name)({view<const T, 4>(call, memory, 0), view<const T, 4>(call, memory, 1),
                           view<const T, 4>(call, memory, 2), view<T, 4>(call, memory, 3),
                           view<LseType<T>, 3>(call, memory, 4), options(call)},
                          {call.integers[0], call.integers[1]});
}

template <class T>
void delta(const Message& call, void* memory, const char* name) {
  using Delta = void(TensorView<const T, 4>, TensorView<const T, 4>, TensorView<T, 3>);
  function<Delta>(name)(view<const T, 4>(call, memory, 0), view<const T, 4>(call, memory, 1),
                        view<T, 3>(call, memory, 2));
}

template <class T>
void backward(const Message& call, void* memory, const char* name) {
  using Backward = void(const AttentionBackward<T>&, Index);
  function<Backward>(name)(
      {view<const T, 4>(call, memory, 0), view<const T, 4>(call, memory, 1),
       view<const T, 4>(call, memory, 2), view<const T, 4>(call, memory, 3),
       view<const LseType<T>, 3>(call, memory, 4), view<const T, 4>(call, memory, 5),
       view<T, 4>(call, memory, 6), view<T, 4>(call, memory, 7), view<T, 4>(call, memory, 8),
       options(call)},
      call.integers[0]);
}

}  // namespace

void run(const Message& call, void* memory, Message&) {
  switch (call.function) {
    case kAttentionForward:
      return forward<float>(call, memory,
                            "_ZN5flash23flash_attention_forwardIfEEvRKNS_16AttentionForwardIT_EE"
                            "RKNS_15AttentionBlocksE");
    case kAttentionForwardDouble:
      return forward<double>(call, memory,
                             "_ZN5flash23flash_attention_forwardIdEEvRKNS_16AttentionForwardIT_EE"
                             "RKNS_15AttentionBlocksE");
    case kAttentionDelta:
      return delta<float>(
          call, memory,
          "_ZN5flash15attention_deltaIfEEvNS_10TensorViewIKT_Li4EEES4_NS1_IS2_Li3EEE");
    case kAttentionDeltaDouble:
      return delta<double>(
          call, memory,
          "_ZN5flash15attention_deltaIdEEvNS_10TensorViewIKT_Li4EEES4_NS1_IS2_Li3EEE");
    case kAttentionBackward:
      return backward<float>(
          call, memory, "_ZN5flash24flash_attention_backwardIfEEvRKNS_17AttentionBackwardIT_EEl");
    case kAttentionBackwardDouble:
      return backward<double>(
          call, memory, "_ZN5flash24flash_attention_backwardIdEEvRKNS_17AttentionBackwardIT_EEl");
    default: throw Error("part 2 has no such function");
  }
}

}  // namespace flash::grading
