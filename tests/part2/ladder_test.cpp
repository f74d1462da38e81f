// Every rung of part 2's ladder, and the two that it starts from, on the graded problems, forward and backward; that the result
// does not depend on the number of threads; and the pool of threads.
#include "part2_flash_cpu/ladder/ladder.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/attention_registry.hpp"
#include "common/memory_meter.hpp"
#include "harness/catch.hpp"
#include "part2/attention_cases.hpp"
#include "part2_flash_cpu/implementations.hpp"
#include "part2_flash_cpu/ladder/parallel.hpp"

using namespace flash;
using harness::BasicPaddedTensor;
using part2::AttentionCase;
using part2::Data;

namespace {

AttentionRegistry everything() {
  AttentionRegistry registry;
  register_part2_attention(registry);
  register_attention_ladder(registry);
  return registry;
}

// Sizes around those of the rungs' tiles and blocks, which are larger than the graded problems'.
std::vector<AttentionCase> larger_cases() {
  return {
      {.name = "head_dim 72: vectors and a rest", .shape = {1, 2, 130, 150, 72}},
      {.name = "several blocks of keys and queries", .shape = {2, 3, 333, 401, 32}},
      {.name = "causal: several blocks", .shape = {1, 3, 421, 421, 64}, .causal = true},
      {.name = "causal: many more queries than keys", .shape = {1, 1, 500, 90, 16}, .causal = true},
      {.name = "causal: many more keys than queries", .shape = {1, 1, 90, 500, 16}, .causal = true},
      {.name = "one head of 1000", .shape = {1, 1, 1000, 1000, 16}, .causal = true},
      {.name = "double: several blocks", .shape = {1, 2, 300, 333, 40}, .causal = true, .float64 = true},
      {.name = "NaN behind the diagonal", .shape = {1, 2, 200, 200, 24}, .causal = true, .data = Data::kNaN},
  };
}

// A problem with the oracle's results, which take longer than all implementations together.
template <class T>
struct Solved {
  explicit Solved(const AttentionCase& of)
      : problem(of),
        inputs(part2::make_inputs<T>(of, 1)),
        upstream(normal<T>(of.shape.of_queries(), 1001)),
        forward(attention_oracle(std::as_const(inputs.q).view(), std::as_const(inputs.k).view(), std::as_const(inputs.v).view(),
                                 of.options())),
        backward(attention_backward_oracle(std::as_const(inputs.q).view(), std::as_const(inputs.k).view(),
                                           std::as_const(inputs.v).view(), std::as_const(upstream).view(), of.options())) {}

  AttentionCase problem;
  part2::AttentionInputs<T> inputs;
  Tensor<T, 4> upstream;
  AttentionOracle forward;
  AttentionOracleGradients backward;
};

// What is wrong with one implementation on one problem; "" when nothing is.
template <class T>
std::string wrong_with(const AttentionFunctions& functions, const Solved<T>& solved) {
  const AttentionCase& problem = solved.problem;
  const AttentionShape& shape = problem.shape;
  const auto& inputs = solved.inputs;
  const Tensor<T, 4>& upstream = solved.upstream;
  using Padded = BasicPaddedTensor<T, 4>;
  Padded q(inputs.q, problem.layout), k(inputs.k, problem.layout), v(inputs.v, problem.layout), d_out(upstream, problem.layout);
  Padded out(shape.of_queries(), problem.layout);
  BasicPaddedTensor<T, 3> lse(shape.of_rows(), harness::Layout::kRowMajor);
  Tensor<T, 4> p;
  if (functions.saves_p) p = Tensor<T, 4>({shape.batch, shape.heads, shape.queries, shape.keys});
  functions.passes<T>().forward(q.view(), k.view(), v.view(), out.view(), lse.view(), p.view(), problem.options());

  const AttentionOracle& oracle = solved.forward;
  const double bound = attention_bound(shape, oracle.largest_score, unit_roundoff<T>());
  if (const auto where = out.written_outside()) return "out: written outside, " + *where;
  if (const auto where = lse.written_outside()) return "lse: written outside, " + *where;
  if (const std::string wrong = part2::wrong_in<T>(out.view(), oracle.out, bound, "query", 0); !wrong.empty())
    return "out: " + wrong;
  if (!functions.saves_p)
    for (Index i = 0; i < oracle.lse.size(); ++i) {
      const auto [b, h, row] =
          std::tuple{i / (shape.heads * shape.queries), i / shape.queries % shape.heads, i % shape.queries};
      const double want = oracle.lse.data()[i], got = static_cast<double>(lse.view()(b, h, row));
      const bool right =
          std::isfinite(want) ? std::fabs(got - want) <= bound * (std::fabs(want) + oracle.largest_score + 1) : got == want;
      if (!right && !(std::isnan(want) && std::isnan(got)))
        return "lse of row " + std::to_string(i) + " is " + std::to_string(got) + ", expected " + std::to_string(want);
    }
  if (problem.data == Data::kMinusInfinity) return "";

  Padded d_q(shape.of_queries(), problem.layout), d_k(shape.of_keys(), problem.layout), d_v(shape.of_keys(), problem.layout);
  functions.passes<T>().backward(q.view(), k.view(), v.view(), out.view(), lse.view(), p.view(), d_out.view(), d_q.view(),
                                 d_k.view(), d_v.view(), problem.options());
  const AttentionOracleGradients& want = solved.backward;
  // out and lse are the rung's own, each a bound away from the oracle's.
  const double backward_bound = attention_backward_bound(shape, oracle.largest_score, unit_roundoff<T>()) + 2 * bound;
  for (const auto& [name, tensor, gradient, rows] :
       {std::tuple{"d_q", &d_q, &want.d_q, "query"}, {"d_k", &d_k, &want.d_k, "key"}, {"d_v", &d_v, &want.d_v, "key"}}) {
    if (const auto where = tensor->written_outside()) return std::string(name) + ": written outside, " + *where;
    if (const std::string wrong = part2::wrong_in<T>(tensor->view(), *gradient, backward_bound, rows, 0); !wrong.empty())
      return std::string(name) + ": " + wrong;
  }
  return "";
}

// Puts the number of threads back.
struct SameThreadsAfterwards {
  int before = ladder_threads();
  ~SameThreadsAfterwards() { set_ladder_threads(before); }
};

bool same_bits(const Tensor<float, 4>& a, const Tensor<float, 4>& b) {
  return std::equal(a.data(), a.data() + a.size(), b.data(),
                    [](float x, float y) { return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y); });
}

void check_every_implementation(const std::vector<AttentionCase>& problems) {
  const AttentionRegistry registry = everything();
  INFO("instruction set: " << ladder_isa());
  const auto check_all = [&](const auto& solved) {
    for (const auto& entry : registry.entries()) {
      // Standard attention's own test says what it does with -inf.
      if (entry.run->saves_p && solved.problem.data == Data::kMinusInfinity) continue;
      CAPTURE(entry.name, solved.problem.name);
      CHECK(wrong_with(*entry.run, solved) == "");
    }
  };
  for (const AttentionCase& problem : problems)
    if (problem.float64) {
      check_all(Solved<double>(problem));
    } else {
      check_all(Solved<float>(problem));
    }
}

}  // namespace

// Two tests, for ctest to run side by side.
TEST_CASE("every implementation passes the graded problems, forward and backward") {
  check_every_implementation(part2::attention_cases());
}

TEST_CASE("every implementation passes larger problems, forward and backward") { check_every_implementation(larger_cases()); }

TEST_CASE("the ladder gives the same bits for any number of threads") {
  AttentionRegistry registry;
  register_attention_ladder(registry);
  const SameThreadsAfterwards restore;
  const AttentionShape shape{.batch = 1, .heads = 3, .queries = 301, .keys = 280, .head_dim = 40};
  const auto q = normal<float>(shape.of_queries(), 1), k = normal<float>(shape.of_keys(), 2),
             v = normal<float>(shape.of_keys(), 3);
  const auto d_out = normal<float>(shape.of_queries(), 4);
  for (const auto& entry : registry.entries())
    for (const bool causal : {false, true}) {
      CAPTURE(entry.name, causal);
      set_ladder_threads(1);
      const auto one = attention<float>(registry, entry.name, q.view(), k.view(), v.view(), {.causal = causal});
      const auto one_back = one.backward(d_out.view());
      for (const int threads : {2, 3, 5}) {
        set_ladder_threads(threads);
        const auto many = attention<float>(registry, entry.name, q.view(), k.view(), v.view(), {.causal = causal});
        const auto many_back = many.backward(d_out.view());
        CHECK(same_bits(one.out(), many.out()));
        CHECK(same_bits(one_back.d_q, many_back.d_q));
        CHECK(same_bits(one_back.d_k, many_back.d_k));
        CHECK(same_bits(one_back.d_v, many_back.d_v));
      }
    }
}

TEST_CASE("tasks run once each, and what one throws arrives") {
  const SameThreadsAfterwards restore;
  for (const int threads : {1, 2, 4}) {
    set_ladder_threads(threads);
    std::vector<int> runs(1000);
    parallel_for(1000, [&](Index task) { ++runs[static_cast<std::size_t>(task)]; });
    CHECK(runs == std::vector<int>(1000, 1));
    CHECK_THROWS_WITH(parallel_for(100,
                                   [](Index task) {
                                     if (task == 7) throw Error("seven");
                                   }),
                      "seven");
    CHECK_NOTHROW(parallel_for(0, [](Index) { throw Error("nobody calls this"); }));
  }
  CHECK_THROWS_WITH(set_ladder_threads(0), "threads is 0; it must be 1 to 1024");
}

TEST_CASE("what is saved between the passes is exactly q, k, v, out and lse") {
  const SameThreadsAfterwards restore;
  set_ladder_threads(1);  // with more, a thread that gets its first task late makes memory of its own late
  const AttentionRegistry registry = everything();
  const AttentionShape shape{.batch = 2, .heads = 3, .queries = 40, .keys = 50, .head_dim = 24};
  const auto q = normal<float>(shape.of_queries(), 1), k = normal<float>(shape.of_keys(), 2),
             v = normal<float>(shape.of_keys(), 3);
  const auto d_out = normal<float>(shape.of_queries(), 4);
  const std::size_t queries = 2 * 3 * 40 * 24 * 4, keys = 2 * 3 * 50 * 24 * 4, rows = 2 * 3 * 40 * 4, p = 2 * 3 * 40 * 50 * 4;
  using Saved = std::vector<std::pair<std::string, std::size_t>>;
  for (const auto& entry : registry.entries()) {
    CAPTURE(entry.name);
    {
      (void)attention<float>(registry, entry.name, q.view(), k.view(), v.view());
    }  // what is kept from call to call is there now
    const std::size_t in_use = host_memory::in_use();
    const auto pass = attention<float>(registry, entry.name, q.view(), k.view(), v.view());
    const std::size_t held = host_memory::in_use() - in_use;
    const bool standard = entry.name == "standard";
    CHECK(pass.saved() == (standard ? Saved{{"q", queries}, {"k", keys}, {"v", keys}, {"p", p}}
                                    : Saved{{"q", queries}, {"k", keys}, {"v", keys}, {"out", queries}, {"lse", rows}}));
    // Nothing else is held: out and lse, and standard attention's P; up to 4 KiB are the allocator's.
    CHECK(held >= queries + rows + (standard ? p : 0));
    CHECK(held <= queries + rows + (standard ? p : 0) + 4096);

    // The backward pass reads nothing but that: another pass in between changes nothing.
    const auto first = pass.backward(d_out.view());
    const auto other = attention<float>(registry, entry.name, q.view(), v.view(), k.view());
    (void)other.backward(d_out.view());
    const auto again = pass.backward(d_out.view());
    CHECK(same_bits(first.d_q, again.d_q));
    CHECK(same_bits(first.d_k, again.d_k));
    CHECK(same_bits(first.d_v, again.d_v));
  }
  std::string names;
  for (const auto& entry : registry.entries()) names += (names.empty() ? "" : ", ") + entry.name;
  CHECK(names.find("standard, flash, 1_threads, 2_vectorised") == 0);
  CHECK_THROWS_WITH(attention<float>(registry, "flush", q.view(), k.view(), v.view()),
                    "implementation is 'flush'; it must be one of: " + names);
}

TEST_CASE("the ladder's memory grows no faster than the sequence") {
  const AttentionRegistry registry = everything();
  const auto extra = [&](const std::string& name, Index sequence) {
    const AttentionShape shape{.batch = 1, .heads = 1, .queries = sequence, .keys = sequence, .head_dim = 16};
    const auto q = normal<float>(shape.of_queries(), 1), d_out = normal<float>(shape.of_queries(), 2);
    return host_memory::extra_bytes_of([&] {
      const auto pass = attention<float>(registry, name, q.view(), q.view(), q.view());
      (void)pass.backward(d_out.view());
    });
  };
  const SameThreadsAfterwards restore;
  set_ladder_threads(2);  // each thread has memory of its own
  for (const auto& entry : registry.entries()) {
    if (entry.name == "standard") continue;
    CAPTURE(entry.name);
    (void)extra(entry.name, 64);
    // P alone would grow by 6 KiB a row. The results take 260 bytes a row, 16 shares of d_q 1 KiB, and larger blocks their
    // part.
    CHECK(extra(entry.name, 1024) <= extra(entry.name, 512) + 512 * 2048);
  }
}

TEST_CASE("the peak of multiply-adds is a number") {
  CHECK(fma_peak_gflops(DType::kFloat32, 0.2) > 0);
  CHECK(fma_peak_gflops(DType::kFloat64, 0.2) > 0);
  CHECK_THROWS_AS(fma_peak_gflops(DType::kFloat16), ArgumentError);
}
