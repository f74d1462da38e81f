// Implements own_mistakes.hpp: which keys and columns are whose, place() says.
#include "part3/own_mistakes.hpp"

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
void own_maxima(Steps& steps) {
  steps.lanes = kLanes;
  steps.lane_of_key = [](Index key, Index block_keys) {
    return owner<kLanes>(key, block_keys / kLanes).first;
  };
  // In vectors of 4, whose lanes are the same in each 4 * kLanes columns.
  steps.lane_of_column = [](Index column) { return owner<kLanes>(column % (4 * kLanes), 4).first; };
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
  std::vector<harness::Change>& ways = harness::named("maximum of one lane", known).ways;
  ways.insert(ways.end(), {own_maxima<8>, own_maxima<16>});
  for (const Index rows : {2, 4})
    for (const bool at_once : {false, true})
      for (const harness::Change& way : harness::shared_maximum(rows, 4, at_once))
        harness::named("one maximum for several rows", known).ways.push_back(way);
}

}  // namespace flash::part3
