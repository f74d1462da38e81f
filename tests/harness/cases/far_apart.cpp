#include "harness/cases/far_apart.hpp"

#include <sys/mman.h>

#include "common/error.hpp"
#include "harness/cases/attention_case.hpp"

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

Verdict with_far_apart(const std::function<std::string(FarApart&)>& wrong_with, std::size_t bytes) {
  FarApart memory(kFar * static_cast<Index>(bytes) / static_cast<Index>(sizeof(float)));
  if (!memory) return {true, "not tried: no room for addresses"};
  std::string wrong;
  try {
    wrong = wrong_with(memory);
  } catch (const KernelError& error) {  // it crashed between the batches
    wrong = error.what();
  }
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
                    "where it is 2147483648, which 32 bits do not hold: compute offsets in Index.",
                    "offsets"};
          }};
}

template <class T>
Verdict forward_far_apart(
    std::uint64_t seed,
    const std::type_identity_t<std::function<void(const AttentionForward<T>&)>>& run) {
  const auto wrong_with = [=](FarApart& memory) {
    const auto inputs = make_inputs<T>(kShape, Data::kNormal, seed);
    const auto out = memory.tensor<T, 4>(kShape.of_queries());
    const auto lse = memory.tensor<LseType<T>, 3>(kShape.of_rows());
    run({memory.tensor(inputs.q), memory.tensor(inputs.k), memory.tensor(inputs.v), out, lse});
    const auto& [q, k, v] = inputs;
    return wrong_outputs<T>({.shape = kShape, .type = dtype_of<T>()}, q.view(), k.view(), v.view(),
                            out, lse);
  };
  return with_far_apart(wrong_with, sizeof(T));
}
template Verdict forward_far_apart<float>(
    std::uint64_t, const std::function<void(const AttentionForward<float>&)>&);
template Verdict forward_far_apart<Half>(std::uint64_t,
                                         const std::function<void(const AttentionForward<Half>&)>&);

Verdict backward_far_apart(std::uint64_t seed,
                           const std::function<void(const AttentionBackward<float>&)>& run) {
  return with_far_apart([=](FarApart& memory) {
    const BackwardInputs<float> inputs({.shape = kShape}, seed);
    const auto& [q, k, v] = inputs.qkv;
    const auto d_q = memory.tensor<float, 4>(kShape.of_queries()),
               d_k = memory.tensor<float, 4>(kShape.of_keys()),
               d_v = memory.tensor<float, 4>(kShape.of_keys());
    run({memory.tensor(q), memory.tensor(k), memory.tensor(v), memory.tensor(inputs.out),
         memory.tensor(inputs.lse), memory.tensor(inputs.d_out), d_q, d_k, d_v});
    return wrong_gradients<float>({.shape = kShape},
                                  {q.view(), k.view(), v.view(), {}, {}, inputs.d_out.view()}, d_q,
                                  d_k, d_v);
  });
}

}  // namespace flash::harness
