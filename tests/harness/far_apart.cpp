// Implements far_apart.hpp.
#include "harness/far_apart.hpp"

#include <sys/mman.h>

#include "harness/attention_data.hpp"
#include "harness/gradient_verdicts.hpp"

namespace flash::harness {
namespace {

constexpr Index kFar = Index{1} << 31, kNear = Index{1} << 20, kRoom = Index{1} << 22;
constexpr std::size_t kBytes = 2 * sizeof(float) * (kFar + 2 * kRoom);
constexpr AttentionShape kShape{2, 1, 20, 23, 6};

}  // namespace

FarApart::FarApart(Index apart) : apart_(apart) {
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  memory_ = static_cast<float*>(memory);
  // In the middle, so that an offset that has become negative reads zeros, not what lies nowhere.
  next_ = memory_ + kFar + kRoom;
}

FarApart::~FarApart() {
  if (memory_ != nullptr) munmap(memory_, kBytes);
}

Verdict with_far_apart(const std::function<std::string(FarApart&)>& wrong_with) {
  FarApart memory(kFar);
  if (!memory) return {true, "not tried: no room for addresses"};
  const std::string wrong = wrong_with(memory);
  if (wrong.empty()) return {true, ""};
  return {false,
          "The two batches of each tensor lie 2147483648 elements apart, so offsets need 64 bits "
          "(Index).\n" +
              wrong,
          [wrong_with]() -> Diagnosis {
            FarApart near(kNear);
            if (!near || !wrong_with(near).empty()) return {};
            return {"offsets in 32 bits",
                    "The result is right where the batches lie 1048576 elements apart, and wrong "
                    "where it is 2147483648, which 32 bits do not hold: compute offsets in Index."};
          }};
}

Verdict forward_far_apart(std::uint64_t seed,
                          const std::function<void(const AttentionForward<float>&)>& run) {
  return with_far_apart([=](FarApart& memory) {
    const auto inputs = make_inputs<float>(kShape, Data::kNormal, seed);
    const auto out = memory.tensor<4>(kShape.of_queries());
    const auto lse = memory.tensor<3>(kShape.of_rows());
    run({memory.tensor(inputs.q), memory.tensor(inputs.k), memory.tensor(inputs.v), out, lse});
    const auto oracle = inputs.forward();
    const double bound = attention_bound(kShape, oracle.largest_score, unit_roundoff<float>());
    const std::string wrong = wrong_in<float>(
        out, oracle.out, attention_output_bound<float>(kShape, oracle.largest_score), "query", 0);
    return wrong.empty() ? wrong_lse<float>(lse, oracle.lse, bound, 0) : wrong;
  });
}

Verdict backward_far_apart(std::uint64_t seed,
                           const std::function<void(const AttentionBackward<float>&)>& run) {
  return with_far_apart([=](FarApart& memory) {
    const auto inputs = make_inputs<float>(kShape, Data::kNormal, seed);
    const auto d_out = normal<float>(kShape.of_queries(), seed + 1000);
    const auto forward = inputs.forward();
    const auto want = inputs.backward(d_out);
    const auto d_q = memory.tensor<4>(kShape.of_queries()),
               d_k = memory.tensor<4>(kShape.of_keys()), d_v = memory.tensor<4>(kShape.of_keys());
    run({memory.tensor(inputs.q), memory.tensor(inputs.k), memory.tensor(inputs.v),
         memory.tensor(converted<float>(forward.out.value)),
         memory.tensor(converted<float>(forward.lse)), memory.tensor(d_out), d_q, d_k, d_v});
    const double bound =
        attention_backward_bound(kShape, forward.largest_score, unit_roundoff<float>());
    return gradients_text(wrong_in<float>(d_q, want.d_q, bound, "query", 0),
                          wrong_in<float>(d_k, want.d_k, bound, "key", 0),
                          wrong_in<float>(d_v, want.d_v, bound, "key", 0));
  });
}

}  // namespace flash::harness
