// Implements own_mistakes.hpp: which keys and columns are whose, place() says.
#include "part3/own_mistakes.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/cuda/place.hpp"

namespace flash::part3 {
namespace {

// The lane that has the value at `at`, and the value's number there. A lane has `values` of them.
template <int kLanes, int N = 1>
std::pair<Index, Index> owner(Index at, Index values) {
  if constexpr (N < 16)
    if (values > N) return owner<kLanes, 2 * N>(at, values);
  for (int lane = 0; lane < kLanes; ++lane)
    for (int n = 0; n < N; ++n)
      if (place<N, kLanes>(lane, n) == at) return {lane, n};
  return {0, 0};
}

template <int kLanes>
void lanes(Steps& steps) {
  steps.lanes = kLanes;
  steps.lane_of_key = [](Index key, Index block_keys) {
    return owner<kLanes>(key, block_keys / kLanes).first;
  };
  // In vectors of 4, whose lanes are the same in each 4 * kLanes columns.
  steps.lane_of_column = [](Index column) { return owner<kLanes>(column % (4 * kLanes), 4).first; };
}

template <int kLanes>
void own_sums(Steps& steps) {
  lanes<kLanes>(steps);
  steps.share_maximum = true, steps.share_sum = false;
}

template <int kLanes>
void sums_of(Steps& steps) {
  steps.sum = [](auto& at) { return at.l * at.alpha + kLanes * at.sum; };
}

// A thread's first or last row has the same group of lanes as the query.
template <int kGroups, bool kFirst>
Index row_of_thread(Index query) {
  constexpr Index kRows = 8, kRowsOfWarp = kRows * kGroups;
  const Index in_warp = query % kRowsOfWarp;
  return query - in_warp +
         place<kRows, kGroups>(static_cast<int>(owner<kGroups>(in_warp, kRows).first),
                               kFirst ? 0 : kRows - 1);
}
template <Index (*row)(Index query)>
void other_alpha(Steps& steps) {
  steps.before_PV_of = [](auto& at, Index) { return at.alpha_of(row(at.first.i)); };
}
template <Index (*row)(Index query)>
void other_sum(Steps& steps) {
  steps.divisor = [](auto& at, Index, auto& l) { return l(row(at.i)); };
}
template <Index (*row)(Index query)>
void other_weights(Steps& steps) {
  steps.weight = [](auto& at, Index key) { return at.weight_of(row(at.first.i), key); };
}

// Of this row and of the thread's rows before it together.
template <int kGroups, class Of>
double with_rows_before(Index query, Of of) {
  double all = 0;
  for (Index row = row_of_thread<kGroups, true>(query); row <= query; ++row)
    if (row_of_thread<kGroups, true>(row) == row_of_thread<kGroups, true>(query)) all += of(row);
  return all;
}

// Each row's sum in a block of keys begins with those of the thread's rows before it.
template <int kGroups>
void sums_of_rows_before(Steps& steps) {
  steps.sum = [](auto& at) {
    return at.l * at.alpha + with_rows_before<kGroups>(
                                 at.first.i, [&](Index row) { return at.sum_of(row, at.first.j); });
  };
  steps.computes = [](auto& at, bool, bool any_is_finite, double) {
    return any_is_finite || at.first_key() < at.end_of_queries();
  };
}

template <int kGroups>
void divided_by_rows_before(Steps& steps) {
  steps.divisor = [](auto& at, Index, auto& l) { return with_rows_before<kGroups>(at.i, l); };
}
template <int kGroups>
void products_of_rows_before(Steps& steps) {
  steps.weight = [](auto& at, Index key) {
    return with_rows_before<kGroups>(at.first.i, [&](Index row) { return at.weight_of(row, key); });
  };
}

// Query i in the place that it has in the first warp of its block.
template <Index kBlockQ, Index kRowsOfWarp>
void rows_of_first_warp(Steps& steps) {
  steps.read[Operand::kQ].row = [](Index i) { return i / kBlockQ * kBlockQ + i % kRowsOfWarp; };
}

// The score of a key counts if the place that it has in P_smem is seen; add_PV asks for the key.
template <int kLanes>
void mask_in_order_of_P(Steps& steps) {
  const auto in_place = [](const Pair& at) {
    const auto [lane, n] = owner<kLanes>(at.j - at.first_key(), at.blocks.keys / kLanes);
    const Index place = at.first_key() + n * kLanes + lane;
    return place < at.shape.keys && (!at.causal || place <= at.i);
  };
  steps.end = [](Index keys, Index block) { return (keys + block - 1) / block * block; };
  steps.sees = [in_place](auto& at) { return at.j < at.shape.keys && in_place(at); };
  steps.masked = [in_place](auto& at) {
    return at.j >= at.shape.keys && in_place(at) ? 0 : -INFINITY;
  };
  steps.adds = [](auto& at, double) {
    return at.j < at.shape.keys && (!at.causal || at.j <= at.i);
  };
}

// The first key of a block that a row does not see, where some other row of the block sees one.
bool is_one_too_many(const Pair& at) {
  const Index sees = at.causal ? std::min(at.i + 1, at.shape.keys) : at.shape.keys;
  return at.j == std::max(sees, at.first_key()) &&
         (!at.causal || at.first_key() < at.end_of_queries());
}

}  // namespace

void own_mistakes(std::vector<harness::Mistake>& known) {
  known.push_back(
      {"values in the order of P_smem",
       "V is read in the order of the rows of P_smem, which is not that of the keys: row "
       "n * kLanes + lane of P_smem has the weights of key place<kKeys, kLanes>(lane, n)",
       "P_smem",
       harness::Group::kKeys,
       true,
       {harness::replace(&Steps::row_of_V, [](auto& at) {
         constexpr Index kLanes = 8;
         const auto [lane, n] = owner<kLanes>(at.j - at.first_key(), at.blocks.keys / kLanes);
         return at.first_key() + n * kLanes + lane;
       })}});
  known.push_back(
      {"rows of the first warp",
       "each warp computes its scores from the rows of the thread block's first warp: its own "
       "rows begin at Q_smem + thread.warp * kRowsOfWarp",
       "Q_smem",
       harness::Group::kIndexing,
       false,
       {rows_of_first_warp<128, 32>, rows_of_first_warp<64, 32>, rows_of_first_warp<64, 16>,
        rows_of_first_warp<64, 8>}});
  known.push_back({"one key too many in the scores",
                   "the first key that a row does not see keeps its score, and counts in l: "
                   "sees[r] is how many keys it sees, so key number sees[r] is masked, too",
                   "mask",
                   harness::Group::kAlone,
                   true,
                   {[](Steps& steps) {
                     steps.end = [](Index keys, Index block) {
                       return (keys + block - 1) / block * block;
                     };
                     steps.masked = [](auto& at) { return is_one_too_many(at) ? at.S : -INFINITY; };
                     steps.adds = [](auto& at, double) { return at.counted; };
                   }}});
  known.push_back(
      {"one key too few",
       "the last key that a row sees is masked: sees[r] is how many keys it sees of the "
       "block, and the keys with smaller numbers than that count",
       "mask",
       harness::Group::kAlone,
       true,
       {harness::replace(&Steps::sees, [](auto& at) {
         const auto visible = [&](Index i) { return at.shape.visible_keys(i, at.causal); };
         return at.j < visible(at.i) - 1 ||  // tiles that all queries see: no mask
                at.first_key() + at.blocks.keys <= visible(at.first_query());
       })}});
  known.push_back(
      {"mask in the order of P_smem",
       "a score's key is taken for the row of P_smem that it goes to, n * kLanes + lane; "
       "score n of a thread belongs to key thread.key(n) of the block",
       "mask",
       harness::Group::kAlone,
       true,
       {mask_in_order_of_P<8>, mask_in_order_of_P<16>}});
  known.push_back({"sums of the rows before added",
                   "the result is divided by the sum l of its row and of the thread's rows before "
                   "it: the sum over the lanes has to start at 0 for each row",
                   "reset",
                   harness::Group::kAlone,
                   false,
                   {divided_by_rows_before<4>, divided_by_rows_before<2>}});
  known.push_back({"products of the rows before added",
                   "each row of O gets P V of the thread's rows before it, too: a sum has to start "
                   "at 0 for each row",
                   "reset",
                   harness::Group::kAlone,
                   true,
                   {products_of_rows_before<4>, products_of_rows_before<2>}});
  const auto more = [&](const char* name, const std::vector<harness::Change>& changes) {
    auto& ways = harness::named(name, known).ways;
    ways.insert(ways.end(), changes.begin(), changes.end());
  };
  more("maximum of one lane", {lanes<8>, lanes<16>});
  more("sum of one lane", {own_sums<8>, own_sums<16>});
  more("sum of the lanes added twice", {sums_of<8>, sums_of<16>});
  more("alpha of another row",
       {other_alpha<row_of_thread<4, true>>, other_alpha<row_of_thread<4, false>>,
        other_alpha<row_of_thread<2, true>>, other_alpha<row_of_thread<2, false>>});
  more("weights of another row",
       {other_weights<row_of_thread<4, true>>, other_weights<row_of_thread<2, true>>});
  more("sum of a block not reset", {sums_of_rows_before<4>, sums_of_rows_before<2>});
  more("sum of another row",
       {other_sum<row_of_thread<4, true>>, other_sum<row_of_thread<4, false>>,
        other_sum<row_of_thread<2, true>>, other_sum<row_of_thread<2, false>>});
  for (const Index rows : {2, 4})
    for (const bool at_once : {false, true})
      more("one maximum for several rows", harness::shared_maximum(rows, 4, at_once));
}

}  // namespace flash::part3
