// The check of the benchmarks and of a CPU's boards: what is right passes, and one wrong element is
// seen in every tensor and in every head.
#include "benchmarking/attention_inputs.hpp"

#include <string>

#include "benchmarking/softmax_matmul_inputs.hpp"
#include "common/compare.hpp"
#include "common/oracle.hpp"
#include "harness/cases/attention_data.hpp"
#include "harness/catch.hpp"

using namespace flash;
using harness::converted;

namespace {

// The results of a problem, by the oracle's own calls on all of it.
template <class T>
struct Results {
  explicit Results(const AttentionInputs<T>& x) {
    const AttentionOptions& options = x.problem.options;
    out = converted<T>(attention_oracle(x.q.view(), x.k.view(), x.v.view(), options).out.value);
    const auto d =
        attention_backward_oracle(x.q.view(), x.k.view(), x.v.view(), x.d_out.view(), options);
    d_q = converted<T>(d.d_q.value);
    d_k = converted<T>(d.d_k.value);
    d_v = converted<T>(d.d_v.value);
  }

  Verdict verdict(const AttentionInputs<T>& x) const {
    Verdict verdict = x.check_forward(out.view());
    verdict.add(x.check_backward(d_q.view(), d_k.view(), d_v.view()));
    return verdict;
  }
  std::string wrong_in(const AttentionInputs<T>& x) const { return verdict(x).wrong; }

  Tensor<T, 4> out, d_q, d_k, d_v;
};

template <class T>
void passes_and_sees(const AttentionProblem& sizes) {
  AttentionInputs<T> problem(sizes, 7);
  problem.prepare_check();
  Results<T> results(problem);
  const Verdict right = results.verdict(problem);
  CHECK(right.wrong == "");
  CHECK(right.scaled_error <= 32 * unit_roundoff<T>());
  CHECK(right.frobenius_error <= 32 * unit_roundoff<T>());
  for (const auto& [name, tensor] : {std::pair{"out", &results.out},
                                     {"d_q", &results.d_q},
                                     {"d_k", &results.d_k},
                                     {"d_v", &results.d_v}})
    for (const Index place : {Index{0}, tensor->size() / 2, tensor->size() - 1}) {
      T& element = tensor->data()[place];
      const T was = element;
      CAPTURE(name, place);
      for (const T wrong : {static_cast<T>(was + T{0.01}), poison<T>()}) {
        element = wrong;
        CHECK(results.wrong_in(problem).find(std::string(name) + " of batch ") == 0);
        CHECK(results.wrong_in(problem).find('\n') == std::string::npos);
        CHECK_FALSE(results.verdict(problem).scaled_error < 1e-4);
      }
      element = was;
    }
}

}  // namespace

TEST_CASE("attention's check passes the oracle's results and sees one wrong element") {
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    passes_and_sees<float>({.shape = {2, 2, 67, 67, 8}, .options = {.causal = causal}});
    passes_and_sees<double>({.shape = {1, 2, 129, 129, 3}, .options = {.causal = causal}});
  }
}

TEST_CASE("a long attention is checked in its last heads, and for NaN in all") {
  AttentionInputs<float> problem({.shape = {1, 2, 1025, 1025, 1}}, 7);
  problem.prepare_check();
  Results<float> results(problem);
  REQUIRE(results.wrong_in(problem) == "");
  const float right = results.out(0, 0, 3, 0);
  results.out(0, 0, 3, 0) += 0.01F;
  CHECK(results.wrong_in(problem) == "");
  results.out(0, 0, 3, 0) = poison();
  CHECK(results.wrong_in(problem).find("head 0: query 3, column 0 is unchanged (never written)") ==
        16);
  results.out(0, 0, 3, 0) = right;
  results.d_k(0, 1, 3, 0) += 0.01F;
  CHECK(results.wrong_in(problem).find("d_k of batch 0, head 1: ") == 0);
}

TEST_CASE("a board's check compares all heads, and lse") {
  AttentionInputs<float> problem({.shape = {1, 2, 1025, 1025, 1}}, 7);
  problem.prepare_check(true);
  Results<float> results(problem);
  CHECK(results.wrong_in(problem) == "");
  results.out(0, 0, 3, 0) += 0.01F;
  CHECK(results.wrong_in(problem).find("out of batch 0, head 0: ") == 0);

  Tensor<float, 3> lse({1, 2, 1025});
  for (Index i = 0; i < lse.size(); ++i)
    lse.data()[i] = static_cast<float>(problem.oracle()[i / 1025].lse.value.data()[i % 1025]);
  CHECK(problem.check_lse(lse.view()).wrong == "");
  for (const float wrong : {lse(0, 1, 1024) + 1e-4F, poison<float>()}) {
    lse(0, 1, 1024) = wrong;
    CHECK(problem.check_lse(lse.view()).wrong.find("lse of batch 0, head 1: ") == 0);
  }
}

TEST_CASE("softmax(X) V is checked in some rows, and for a board in all") {
  SoftmaxMatmulInputs problem({2, 200, 70, 5}, 7);
  const auto right =
      converted<float>(softmax_matmul_oracle<float>(problem.x.view(), problem.v.view()));
  for (const bool of_all_rows : {false, true}) {
    problem.prepare_check(of_all_rows);
    CHECK(problem.check(right.view()).wrong == "");
    auto out = right;
    out(1, 199, 4) = poison<float>();
    CHECK(problem.check(out.view()).wrong != "");
  }
  for (const Index row : {1, 65, 198}) {
    auto out = right;
    out(0, row, 0) += 1e-4F;
    CHECK(problem.check(out.view()).wrong.find("1 of ") != std::string::npos);
  }
}
