// Checks single passes of the registry, on the CPU, against the oracle.
#pragma once

#include <string>
#include <utility>

#include "common/registry.hpp"
#include "harness/attention_case.hpp"

namespace flash::part2 {

using harness::AttentionCase;
using harness::wrong_in;

// "refused: " and why an entry does not take a pass; "" when it does.
template <class EntryOfPass, class Pass>
std::string refused(const EntryOfPass& entry, const Pass& pass) {
  const std::string why = entry.why_not(problem_of(pass));
  return why.empty() ? "" : "refused: " + why;
}

template <template <class> class Pass, class T>
void run(const Entry<Pass>& entry, const Pass<T>& pass, PassMemory& memory) {
  entry.run.template of<T>()(pass, memory);
  if (memory.deliver) std::exchange(memory.deliver, nullptr)();
}

// A problem with the oracle's results, which take longer than all passes together.
template <class T>
struct Solved {
  explicit Solved(const AttentionCase& of)
      : problem(of),
        inputs(harness::make_inputs<T>(of.shape, of.data, 1)),
        upstream(normal<T>(of.shape.of_queries(), 1001)),
        forward(inputs.forward(of.options())),
        backward(inputs.backward(upstream, of.options())) {}

  AttentionCase problem;
  harness::AttentionInputs<T> inputs;
  Tensor<T, 4> upstream;
  AttentionOracle forward;
  AttentionOracleGradients backward;
};

// A forward pass, and what is wrong with it: "" when nothing is.
template <class T>
struct Forward {
  harness::PaddedForward<T> tensors;
  PassMemory memory;
  std::string wrong;

  Forward(const Entry<AttentionForward>& entry, const Solved<T>& solved)
      : tensors(solved.inputs, solved.problem.layout, solved.problem.options()) {
    wrong = refused(entry, tensors.pass());
    if (!wrong.empty()) return;
    run(entry, tensors.pass(), memory);
    tensors.copy_back();
    const double bound =
        attention_output_bound<T>(solved.problem.shape, solved.forward.largest_score);
    wrong = tensors.damage();
    if (wrong.empty())
      wrong = wrong_in<T>(tensors.out.view(), solved.forward.out, bound, "query", 0);
    if (wrong.empty() && !entry.only_as_pair)
      wrong = harness::wrong_lse<LseType<T>>(tensors.lse.view(), solved.forward.lse, bound, 0);
  }
};

// What is wrong with a backward pass from what a forward pass left.
template <class T>
std::string wrong_with(const Entry<AttentionBackward>& entry, Forward<T>& from,
                       const Solved<T>& solved) {
  harness::PaddedBackward<T> tensors(solved.inputs, packed(from.tensors.out.view()),
                                     packed(from.tensors.lse.view()), solved.upstream,
                                     solved.problem.layout, solved.problem.options());
  if (const std::string why = refused(entry, tensors.pass()); !why.empty()) return why;
  run(entry, tensors.pass(), from.memory);
  tensors.copy_back();
  if (const std::string damage = tensors.damage(); !damage.empty()) return damage;
  // out and lse are the forward pass's own, each a bound away from the oracle's.
  const AttentionShape& shape = solved.problem.shape;
  const double largest = solved.forward.largest_score;
  const double bound =
      attention_gradient_bound<T>(shape, largest) + 2 * attention_output_bound<T>(shape, largest);
  const auto wrong = [&](harness::PassTensor<T, 4>& got, const WithMagnitude& expected,
                         const char* rows) {
    return wrong_in<T>(got.view(), expected, bound, rows, 0);
  };
  const AttentionOracleGradients& want = solved.backward;
  return harness::gradients_text(wrong(tensors.d_q, want.d_q, "query"),
                                 wrong(tensors.d_k, want.d_k, "key"),
                                 wrong(tensors.d_v, want.d_v, "key"));
}

}  // namespace flash::part2
