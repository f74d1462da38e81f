// Implements decode_cases.hpp.
#include "decode/decode_cases.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "common/oracle.hpp"

namespace flash::decode_cases {

using harness::Verdict;
using enum harness::Data;
using enum harness::Layout;
using enum DType;

DecodeCase DecodeCase::of_type(DType other) const {
  DecodeCase copy = *this;
  copy.name = (other == kFloat16 ? "half: " : "bfloat16: ") + name;
  copy.type = other;
  return copy;
}

std::vector<DecodeCase> cases_of_one_part() {
  return {
      {.name = "one key", .lengths = {1}},
      {.name = "one page of 16 keys", .lengths = {16}},
      {.name = "100 keys"},
      {.name = "512 keys", .lengths = {512}, .heads = 1, .kv_heads = 1},
      {.name = "no keys", .lengths = {0}},
      {.name = "a table without pages", .lengths = {0, 0}, .table_pages = -1},
      {.name = "head_dim 128", .lengths = {70}, .head_dim = 128},
      {.name = "head_dim 256", .lengths = {70}, .head_dim = 256},
  };
}

std::vector<DecodeCase> cases_of_pages() {
  return {
      {.name = "three sequences of 40 keys", .lengths = {40, 40, 40}},
      {.name = "lengths about a page: 15 16 17", .lengths = {15, 16, 17}},
      {.name = "pages of 1", .lengths = {37}, .page_size = 1},
      {.name = "pages of 10", .lengths = {95, 20}, .page_size = 10},
      {.name = "pages of 64", .lengths = {200, 63}, .page_size = 64},
      {.name = "a page that is longer than the sequence", .lengths = {50}, .page_size = 300},
      {.name = "two sequences share pages", .lengths = {80, 75}, .shares_pages = true},
      {.name = "a table that is wider than any sequence", .lengths = {40, 10}, .table_pages = 90},
      {.name = "a cache of pages of heads of keys",
       .lengths = {90, 33},
       .cache = kInterleavedHeads},
  };
}

std::vector<DecodeCase> cases_of_groups() {
  return {
      {.name = "2 heads share a kv head", .lengths = {90}, .heads = 4, .kv_heads = 2},
      {.name = "8 heads share a kv head", .lengths = {90}, .heads = 16, .kv_heads = 2},
      {.name = "3 heads share a kv head", .lengths = {60}, .heads = 6, .kv_heads = 2},
      {.name = "one kv head for 5 heads", .lengths = {70, 30}, .heads = 5, .kv_heads = 1},
      {.name = "32 rows: 32 heads of one kv head", .lengths = {90}, .heads = 32, .kv_heads = 1},
      {.name = "4 queries", .lengths = {90, 5}, .queries = 4},
      {.name = "8 queries", .lengths = {60, 8}, .kv_heads = 1, .queries = 8},
      {.name = "4 queries of 8 heads that share a kv head",
       .lengths = {70},
       .heads = 8,
       .kv_heads = 1,
       .queries = 4},
      {.name = "more queries than keys", .lengths = {3, 0, 1}, .queries = 5},
      {.name = "4 queries at the edge of a part",
       .lengths = {513, 514},
       .heads = 1,
       .kv_heads = 1,
       .queries = 4},
  };
}

std::vector<DecodeCase> cases_of_many_parts() {
  return {
      {.name = "513 keys", .lengths = {513}, .heads = 1, .kv_heads = 1},
      {.name = "1000 keys", .lengths = {1000}, .heads = 2, .kv_heads = 1},
      {.name = "lengths 0 1 15 16 17 1000 4097 in one batch",
       .lengths = {0, 1, 15, 16, 17, 1000, 4097},
       .heads = 2,
       .kv_heads = 1},
      {.name = "300 and 700 keys in pages of 100",
       .lengths = {300, 700},
       .heads = 1,
       .kv_heads = 1,
       .page_size = 100},
      {.name = "8 queries of 1500 keys",
       .lengths = {1500},
       .heads = 1,
       .kv_heads = 1,
       .queries = 8},
  };
}

std::vector<DecodeCase> cases_of_types() {
  std::vector<DecodeCase> cases{
      {.name = "a scale of its own", .scale = -0.3},
      {.name = "a scale of 0", .scale = 0},
      {.name = "strides: spread out", .lengths = {60, 40}, .layout = kSpread},
      {.name = "strides: transposed", .lengths = {60, 40}, .queries = 3, .layout = kTransposed},
      {.name = "strides: interleaved heads",
       .lengths = {60, 40},
       .queries = 3,
       .layout = kInterleavedHeads},
      {.name = "q and out that are not aligned", .lengths = {60, 40}, .shift = 1},
  };
  for (const DType type : {kFloat16, kBFloat16})
    for (const Index head_dim : {64, 128, 256})
      cases.push_back(DecodeCase{.name = "head_dim " + std::to_string(head_dim),
                                 .lengths = {600, 17},
                                 .heads = 4,
                                 .kv_heads = 1,
                                 .head_dim = head_dim}
                          .of_type(type));
  return cases;
}

std::vector<DecodeCase> cases_of_special_values() {
  return {
      {.name = "large scores", .lengths = {600, 40}, .data = kLargeScores},
      {.name = "rising scores: a new maximum in each part", .lengths = {600}, .data = kRising},
      {.name = "very negative scores", .lengths = {600, 40}, .data = kVeryNegative},
      {.name = "one key a query", .lengths = {600}, .data = kOneHot},
      {.name = "equal scores", .lengths = {600, 33}, .data = kEqual},
      {.name = "values that show which keys were counted", .lengths = {700}, .data = kSignature},
      {.name = "scores of -inf", .lengths = {700, 30}, .data = kMinusInfinity},
      {.name = "NaN in a value", .lengths = {600, 40}, .nan_key = 130},
      {.name = "NaN in q and k", .lengths = {600, 40}, .data = kNaNInScores},
      {.name = "NaN in the last value that one of 4 queries sees",
       .lengths = {120},
       .queries = 4,
       .nan_key = 119},
  };
}

std::vector<DecodeCase> long_cases() {
  std::vector<DecodeCase> cases;
  for (const DType type : {kFloat16, kBFloat16})
    cases.push_back(DecodeCase{.name = "70000 and 1 to 9000 keys",
                               .lengths = {70000, 1, 255, 9000},
                               .kv_heads = 1,
                               .page_size = 64}
                        .of_type(type));
  return cases;
}

std::vector<DecodeCase> all_cases() {
  std::vector<DecodeCase> all;
  for (const auto& some : {cases_of_one_part(), cases_of_pages(), cases_of_groups(),
                           cases_of_many_parts(), cases_of_types(), cases_of_special_values()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

template <class T>
DecodeInputs<T>::DecodeInputs(const DecodeCase& problem, std::uint64_t seed) {
  const auto batch = static_cast<Index>(problem.lengths.size());
  const Index size = problem.page_size, group = problem.heads / problem.kv_heads;
  const auto pages_of = [&](Index b) { return (problem.lengths[b] + size - 1) / size; };
  Index used = 0, most = 0;
  for (Index b = 0; b < batch; ++b) used += pages_of(b), most = std::max(most, pages_of(b));
  const Index table_pages = problem.table_pages < 0   ? 0
                            : problem.table_pages > 0 ? problem.table_pages
                                                      : most + 1;

  // Pages in any order, and 3 that nobody has.
  std::vector<std::int32_t> order(static_cast<std::size_t>(used + 3));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed + 17);
  for (std::size_t n = order.size(); n > 1; --n) std::swap(order[n - 1], order[random.bits() % n]);

  // What is no key of a sequence is a NaN, and an entry of the table without a key is no page.
  const Shape<4> cache{used + 3, size, problem.kv_heads, problem.head_dim};
  k = Tensor<T, 4>(cache), v = Tensor<T, 4>(cache);
  std::fill_n(k.data(), k.size(), static_cast<T>(NAN));
  std::fill_n(v.data(), v.size(), static_cast<T>(NAN));
  q = Tensor<T, 4>({batch, problem.heads, problem.queries, problem.head_dim});
  block_table = Tensor<std::int32_t, 2>({batch, table_pages});
  lengths = Tensor<std::int32_t, 1>({batch});
  std::fill_n(block_table.data(), block_table.size(), -1000000);
  std::size_t next = 0;
  for (Index b = 0; b < batch; ++b) {
    const Index length = lengths(b) = problem.lengths[b];
    const Index shared =
        b == 1 && problem.shares_pages ? std::min(pages_of(0), pages_of(1)) - 1 : 0;
    for (Index n = 0; n < pages_of(b); ++n)
      block_table(b, n) = n < shared ? block_table(0, n) : order[next++];
    const auto inputs = harness::make_inputs<T>(
        {1, problem.heads, problem.queries, length, problem.head_dim}, problem.data, seed + 31 * b);
    std::copy_n(inputs.q.data(), inputs.q.size(), &q(b, 0, 0, 0));
    for (Index j = shared * size; j < length; ++j)
      for (Index h = 0; h < problem.kv_heads; ++h)
        for (Index c = 0; c < problem.head_dim; ++c) {
          const Index page = block_table(b, j / size);
          k(page, j % size, h, c) = inputs.k(0, h * group, j, c);
          v(page, j % size, h, c) = inputs.v(0, h * group, j, c);
        }
  }
  if (problem.nan_key) {
    const Index j = *problem.nan_key;
    v(block_table(0, j / size), j % size, 0, 5) = static_cast<T>(NAN);
  }
}

template <class T>
std::pair<AttentionOracle, AttentionShape> wanted(const DecodeCase& problem,
                                                  const DecodeInputs<T>& inputs) {
  const Index longest = *std::max_element(problem.lengths.begin(), problem.lengths.end());
  return {decode_oracle<T>({inputs.q.view(),
                            inputs.k.view(),
                            inputs.v.view(),
                            inputs.block_table.view(),
                            inputs.lengths.view(),
                            {},
                            {},
                            problem.scale}),
          {1, 1, problem.queries, longest, problem.head_dim}};
}

template <class T>
Verdict DecodeCall<T>::verdict(const std::function<void(DecodeCall&)>& run) {
  copy_back();
  if (const std::string damage = damage_of(out, lse, q, k, v); !damage.empty())
    return {false, damage};
  const auto [want, shape] = wanted(problem, inputs);
  std::string wrong = harness::wrong_in<T>(
      out.view(), want.out, attention_output_bound<T>(shape, want.largest_score), "query", 0);
  if (wrong.empty()) {
    wrong = harness::wrong_lse<float>(
        lse.view(), want.lse, attention_bound(shape, want.largest_score, unit_roundoff<float>()),
        0);
    if (!wrong.empty()) wrong = "lse is wrong; out is right here. " + wrong;
  }
  Verdict verdict = harness::verdict_on(wrong);
  if (!verdict.pass && run)
    verdict.diagnose = [seen = seen(), problem = problem, seed = seed_, run] {
      return diagnosis(seen, [&] {
        DecodeCall call(problem, seed + 1000);
        run(call);
        call.copy_back();
        return call.seen();
      });
    };
  return verdict;
}

template <class T>
SeenDecode DecodeCall<T>::seen() {
  const auto [want, shape] = wanted(problem, inputs);
  return {harness::in_float64(std::as_const(inputs.q).view()),
          harness::in_float64(std::as_const(inputs.k).view()),
          harness::in_float64(std::as_const(inputs.v).view()),
          harness::in_float64(out.view()),
          harness::in_float64(lse.view()),
          inputs.block_table,
          inputs.lengths,
          attention_scale({.scale = problem.scale}, problem.head_dim),
          attention_output_bound<T>(shape, want.largest_score),
          attention_bound(shape, want.largest_score, unit_roundoff<float>())};
}

#define FLASH_INSTANTIATE(T)       \
  template struct DecodeInputs<T>; \
  template struct DecodeCall<T>
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash::decode_cases
