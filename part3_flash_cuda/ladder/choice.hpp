// Which of the three files of rung 9 computes a problem, and with which tiles. flash_best asks
// here, and so do these rungs when they are called by name. The first row that fits a problem says
// what was fastest for it in bfloat16, on an H200, and where it is 9_short_causal with at most 256
// keys on an H100; if no row fits, it is 9_persistent.
#pragma once

#include "common/cuda/configurations.hpp"
#include "common/cuda/device.hpp"
#include "common/registry.hpp"

namespace flash::choice {

enum class Kernel { kPersistent, kShortCausal, kWholeHead };

// Tiles of 64 * groups queries and block_k keys. If block_k is 0, the rung chooses them itself.
struct Choice {
  Kernel kernel;
  int groups = 0, block_k = 0;
};

struct Row {
  Index head_dim, keys;  // at most
  Index rounds;          // at most so many blocks of 64 queries for each multiprocessor
  Choice full, causal;
};

inline Choice choose(const AttentionShape& shape, bool causal) {
  using enum Kernel;
  constexpr Index kAny = Index{1} << 40;
  constexpr Row kRows[] = {
      {64, 64, kAny, {kWholeHead, 1, 64}, {kWholeHead, 1, 64}},
      {64, 128, 4, {kWholeHead, 1, 128}, {kWholeHead, 1, 128}},
      {64, 128, kAny, {kWholeHead, 2, 128}, {kWholeHead, 2, 64}},
      {64, 256, 1, {kWholeHead, 1, 128}, {kWholeHead, 1, 128}},
      {64, 256, 2, {kWholeHead, 2, 64}, {kWholeHead, 2, 64}},
      {64, 256, 5, {kWholeHead, 2, 64}, {kShortCausal}},
      {64, 256, kAny, {kPersistent, 4, 64}, {kShortCausal}},
      {64, 336, 1, {kWholeHead, 1, 112}, {kWholeHead, 1, 112}},
      {64, 512, 1, {kWholeHead, 1, 128}, {kWholeHead, 1, 128}},
      {64, 512, 2, {kWholeHead, 2, 64}, {kWholeHead, 2, 64}},
      {64, 384, kAny, {kPersistent, 3, 128}, {kPersistent, 3, 128}},
      {64, 2048, kAny, {kPersistent, 4, 64}, {kShortCausal}},
      {128, 64, kAny, {kWholeHead, 1, 64}, {kWholeHead, 1, 64}},
      {128, 128, kAny, {kWholeHead, 1, 128}, {kWholeHead, 1, 128}},
      {128, 256, 1, {kWholeHead, 1, 128}, {kWholeHead, 1, 128}},
      {128, 256, 2, {kPersistent, 2, 64}, {kPersistent, 2, 64}},
      {128, 192, kAny, {kPersistent, 3, 64}, {kPersistent, 3, 64}},
      {128, 256, 12, {kPersistent, 2, 64}, {kPersistent, 2, 64}},
      {128, 256, kAny, {kPersistent, 2, 128}, {kPersistent, 2, 128}},
      {128, 336, 1, {kWholeHead, 1, 112}, {kWholeHead, 1, 112}},
      {128, 384, 1, {kWholeHead, 1, 128}, {kWholeHead, 1, 128}},
      {128, 384, 2, {kPersistent, 2, 128}, {kPersistent, 2, 128}},
      {128, 384, 3, {kPersistent, 3, 64}, {kPersistent, 3, 64}},
      {128, 384, kAny, {kPersistent, 3, 64}, {kPersistent, 2, 128}},
  };
  const Index blocks = shape.batch * shape.heads * ((shape.queries + 63) / 64);
  for (const Row& row : kRows)
    if (shape.head_dim <= row.head_dim && shape.keys <= row.keys &&
        (row.rounds == kAny || blocks <= row.rounds * device::multiprocessors()))
      return causal ? row.causal : row.full;
  return {kPersistent};
}

// For an entry's best_for.
inline auto is_best(Kernel kernel) {
  return [kernel](const AttentionProblem& problem) {
    return choose(problem.shape, problem.options.causal).kernel == kernel;
  };
}

// Calls start(C()) for the first configuration that has the chosen tiles and fits. Where there is
// none, or another kernel was chosen: the first that fits. Returns whether there is one.
template <class Table, class Fits, class Start>
bool use_chosen(Table table, const Choice& chosen, Kernel kernel, Fits fits, Start start) {
  const auto is_chosen = [&]<class C>(C config) {
    return chosen.kernel == kernel && chosen.groups == C::kGroups && chosen.block_k == C::kBlockK &&
           fits(config);
  };
  return use_first(table, is_chosen, start) || use_first(table, fits, start);
}

}  // namespace flash::choice
