// Implements decode_cases.hpp.
#include "decode/decode_cases.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "bonus_decode/given/problems.hpp"
#include "common/oracle.hpp"

namespace flash::decode_cases {

using harness::Verdict;
using enum harness::Data;
using enum Layout;
using enum DType;

DecodeCase DecodeCase::of_type(DType other) const {
  DecodeCase copy = *this;
  copy.name = (other == kFloat16 ? "half: " : "bfloat16: ") + name;
  copy.type = other;
  return copy;
}

DecodeCase DecodeCase::of_probe(const harness::Probe& probe) const {
  DecodeCase copy = *this;
  const auto& [batch, kv, rows, keys, d] = probe.shape;
  // Where a sequence has several parts, three.
  const bool in_parts = *std::max_element(lengths.begin(), lengths.end()) > 512;
  copy.lengths.assign(in_parts ? 1 : static_cast<std::size_t>(batch),
                      static_cast<std::int32_t>(keys + (in_parts ? 1024 : 0)));
  copy.kv_heads = in_parts ? 1 : kv;
  copy.queries = std::min(rows, std::max<Index>(queries, group > 8 ? 1 : 4));
  copy.data = probe.data, copy.nan_key = copy.table_pages = std::nullopt;
  copy.shares_pages = false;
  if (probe.data == kVeryNegative && scale) copy.scale = std::fabs(*scale);
  return copy;
}

std::vector<CasesOf> cases() {
  const std::vector<DecodeCase> one_part{
      {.name = "one key", .lengths = {1}},
      {.name = "one page of 16 keys", .lengths = {16}},
      {.name = "100 keys"},
      {.name = "512 keys", .lengths = {512}, .kv_heads = 1},
      {.name = "no keys", .lengths = {0}},
      {.name = "a table without pages", .lengths = {0, 0}, .table_pages = 0},
      {.name = "head_dim 128", .lengths = {70}, .head_dim = 128},
      {.name = "head_dim 256", .lengths = {70}, .head_dim = 256},
  };
  const std::vector<DecodeCase> pages{
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
      {.name = "a cache with k and v laid out differently",
       .lengths = {90, 33},
       .of_v = kInterleavedHeads},
  };
  const std::vector<DecodeCase> groups{
      {.name = "2 heads share a kv head", .lengths = {90}, .group = 2},
      {.name = "8 heads share a kv head", .lengths = {90}, .group = 8},
      {.name = "3 heads share a kv head", .lengths = {60}, .group = 3},
      {.name = "one kv head for 5 heads", .lengths = {70, 30}, .group = 5, .kv_heads = 1},
      {.name = "32 rows: 32 heads of one kv head", .lengths = {90}, .group = 32, .kv_heads = 1},
      {.name = "4 queries", .lengths = {90, 5}, .queries = 4},
      {.name = "8 queries", .lengths = {60, 8}, .group = 2, .kv_heads = 1, .queries = 8},
      {.name = "4 queries of 8 heads that share a kv head",
       .lengths = {70},
       .group = 8,
       .kv_heads = 1,
       .queries = 4},
      {.name = "more queries than keys", .lengths = {3, 0, 1}, .queries = 5},
      {.name = "4 queries at the edge of a part",
       .lengths = {513, 514},
       .kv_heads = 1,
       .queries = 4},
  };
  const std::vector<DecodeCase> many_parts{
      {.name = "513 keys", .lengths = {513}, .kv_heads = 1},
      {.name = "1000 keys", .lengths = {1000}, .group = 2, .kv_heads = 1},
      {.name = "lengths 0 1 15 16 17 1000 4097 in one batch",
       .lengths = {0, 1, 15, 16, 17, 1000, 4097},
       .group = 2,
       .kv_heads = 1},
      {.name = "300 and 700 keys in pages of 100",
       .lengths = {300, 700},
       .kv_heads = 1,
       .page_size = 100},
      {.name = "8 queries of 1500 keys", .lengths = {1500}, .kv_heads = 1, .queries = 8},
  };
  std::vector<DecodeCase> types{
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
      types.push_back(DecodeCase{.name = "head_dim " + std::to_string(head_dim),
                                 .lengths = {600, 17},
                                 .group = 4,
                                 .kv_heads = 1,
                                 .head_dim = head_dim}
                          .of_type(type));
  const std::vector<DecodeCase> special{
      {.name = "large scores", .lengths = {600, 40}, .data = kLargeScores},
      {.name = "rising scores: a new maximum in each part", .lengths = {600}, .data = kRising},
      {.name = "very negative scores", .lengths = {600, 40}, .data = kVeryNegative},
      {.name = "scores near -20000", .lengths = {600, 40}, .data = kVeryNegative, .scale = 2.5},
      {.name = "one key a query", .lengths = {600}, .data = kOneHot},
      {.name = "equal scores", .lengths = {600, 33}, .data = kEqual},
      {.name = "values that show which keys were counted", .lengths = {700}, .data = kSignature},
      {.name = "scores of -inf", .lengths = {700, 30}, .data = kMinusInfinity},
      {.name = "NaN in a value", .lengths = {600, 40}, .nan_key = 130},
      {.name = "NaN in q and k", .lengths = {40, 600}, .queries = 4, .data = kNaNInScores},
      {.name = "NaN in the last value that one of 4 queries sees",
       .lengths = {120},
       .queries = 4,
       .nan_key = 119},
  };
  return {{"one part", one_part},         {"pages", pages},
          {"groups and queries", groups}, {"many parts", many_parts},
          {"types and strides", types},   {"special values", special}};
}

std::vector<DecodeCase> long_cases() {
  const DecodeCase both{.name = "70000 and 1 to 9000 keys",
                        .lengths = {70000, 1, 255, 9000},
                        .group = 2,
                        .kv_heads = 1,
                        .page_size = 64};
  return {both.of_type(kFloat16), both.of_type(kBFloat16)};
}

template <class T>
DecodeInputs<T>::DecodeInputs(const DecodeCase& problem, std::uint64_t seed, double fill) {
  const auto batch = static_cast<Index>(problem.lengths.size());
  const Index size = problem.page_size, heads = problem.heads();
  const auto pages_of = [&](Index b) { return (problem.lengths[b] + size - 1) / size; };
  Index used = 0, most = 0;
  for (Index b = 0; b < batch; ++b) used += pages_of(b), most = std::max(most, pages_of(b));
  const Index table_pages = problem.table_pages.value_or(most + 1);

  // Pages in any order, and 3 that nobody has.
  std::vector<std::int32_t> order(static_cast<std::size_t>(used + 3));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed + 17);
  for (std::size_t n = order.size(); n > 1; --n) std::swap(order[n - 1], order[random.bits() % n]);

  // An entry of the table without a key is no page.
  const Shape<4> cache{used + 3, size, problem.kv_heads, problem.head_dim};
  k = Tensor<T, 4>(cache), v = Tensor<T, 4>(cache);
  const T free = static_cast<T>(is_poison(fill) ? NAN : fill);
  std::fill_n(k.data(), k.size(), free);
  std::fill_n(v.data(), v.size(), free);
  q = Tensor<T, 4>({batch, heads, problem.queries, problem.head_dim});
  block_table = Tensor<std::int32_t, 2>({batch, table_pages});
  lengths = Tensor<std::int32_t, 1>({batch});
  std::fill_n(block_table.data(), block_table.size(), kNoPage);
  std::size_t next = 0;
  for (Index b = 0; b < batch; ++b) {
    const Index length = lengths(b) = problem.lengths[b];
    const Index shared =
        b == 1 && problem.shares_pages ? std::min(pages_of(0), pages_of(1)) - 1 : 0;
    for (Index n = 0; n < pages_of(b); ++n)
      block_table(b, n) = n < shared ? block_table(0, n) : order[next++];
    const auto inputs = harness::make_inputs<T>(
        {1, heads, problem.queries, length, problem.head_dim}, problem.data, seed + 31 * b);
    std::copy_n(inputs.q.data(), inputs.q.size(), &q(b, 0, 0, 0));
    for (Index j = shared * size; j < length; ++j)
      for (Index h = 0; h < problem.kv_heads; ++h)
        for (Index c = 0; c < problem.head_dim; ++c) {
          const Index page = block_table(b, j / size);
          k(page, j % size, h, c) = inputs.k(0, h * problem.group, j, c);
          v(page, j % size, h, c) = inputs.v(0, h * problem.group, j, c);
        }
  }
  if (problem.nan_key) {
    const Index j = *problem.nan_key;
    v(block_table(0, j / size), j % size, 0, 5) = static_cast<T>(NAN);
  }
}

// The sequences from `first` on.
template <class T>
Decode<T> part_of(Decode<T> pass, Index first, Index count) {
  const auto cut = [=]<class U, int Rank>(TensorView<U, Rank>& all) {
    Shape<Rank> shape = all.shape();
    shape[0] = count;
    all = {all.data() + first * all.stride(0), shape, all.strides()};
  };
  cut(pass.q), cut(pass.block_table), cut(pass.lengths), cut(pass.out), cut(pass.lse);
  return pass;
}

// What a pass has to leave.
template <class T>
struct Wanted : AttentionOracle {
  AttentionShape shape;
  double bound, lse_bound;

  explicit Wanted(const Decode<T>& pass) : AttentionOracle(decode_oracle(pass)) {
    const auto& [batch, heads, kv_heads, queries, head_dim, pages, size, width] = pass.shape();
    const auto* const lengths = pass.lengths.data();
    shape = {batch, heads, queries, *std::max_element(lengths, lengths + batch), head_dim};
    bound = attention_output_bound<T>(shape, largest_score);
    lse_bound = attention_bound(shape, largest_score, unit_roundoff<float>());
  }
};

template <class T>
std::string DecodeCall<T>::wrong(const Decode<T>& pass, Index b) {
  const Decode<T> one = part_of(pass, b, 1);
  const Wanted<T> want(one);
  return harness::wrong_forward<T, float>(one.out, one.lse, want, want.bound, want.lse_bound,
                                          "query", 0);
}

template <class T>
Verdict DecodeCall<T>::verdict(const std::function<void(DecodeCall&)>& run) {
  copy_back();
  if (const std::string damage = damage_of(out, lse, q, k, v); !damage.empty())
    return {false, damage};
  const auto& keys = problem.lengths;
  const Index batch = static_cast<Index>(keys.size());
  for (Index b = 0; b < batch; ++b) {
    std::string text = wrong(on_host(), b);
    if (text.empty()) continue;
    if (batch > 1)
      text = "Sequence " + std::to_string(b) + " of " + std::to_string(batch) + ", of " +
             std::to_string(keys[b]) + " keys: " + text;
    if (!run) return {false, text};
    // Together, where one shape is that of all.
    const bool alike = std::count(keys.begin(), keys.end(), keys[0]) == batch;
    DecodeCase like = problem;
    if (!alike) like.lengths = {keys[b]};
    return harness::explained<harness::SeenForward>(
        text, alike ? seen(0, batch) : seen(b, 1),
        [like, seed = seed_, run](const harness::Probe& probe) {
          DecodeCall call(like.of_probe(probe), seed, probe.fill);
          run(call);
          call.copy_back();
          return call.seen(0, call.out.view().extent(0));
        });
  }
  return {true, ""};
}

template <class T>
harness::SeenForward DecodeCall<T>::seen(Index first, Index count) {
  const Decode<T> pass = part_of(on_host(), first, count);
  const Wanted<T> want(pass);
  Decode<T> usual = pass;  // whose scale a mistake may take
  usual.scale.reset();
  const Wanted<T> of_usual(usual);
  const bool all = count == out.view().extent(0);
  harness::SeenForward seen{
      .shape = want.shape,
      .options = {.scale = problem.scale},
      .q = all ? q.seen(out) : harness::SeenTensor{harness::in_float64(pass.q)},
      .out = harness::in_float64(TensorView<const T, 4>(pass.out)),
      .lse = harness::in_float64(TensorView<const float, 3>(pass.lse)),
      .precision = harness::precision_of<float>(std::fmax(want.bound, of_usual.bound)),
      .lse_bound = std::fmax(want.lse_bound, of_usual.lse_bound),
      .block_keys = 16384 / Index{sizeof(T)} / want.shape.head_dim,  // of a tile
      .fill = fill_};
  if (all) out.add_misplaced(seen.misplaced, Output::kOut, q);
  if (all) lse.add_misplaced(seen.misplaced, Output::kLse);
  add_keys(seen, {harness::in_float64(k.view()), harness::in_float64(v.view()), inputs.block_table,
                  inputs.lengths, first, 16 / Index{sizeof(T)},
                  decode::keys_of_part(static_cast<int>(want.shape.keys),
                                       static_cast<int>(problem.page_size)),
                  is_poison(fill_)});
  return seen;
}

#define FLASH_INSTANTIATE(T)       \
  template struct DecodeInputs<T>; \
  template struct DecodeCall<T>
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash::decode_cases
