// Implements mistakes.hpp.
#include "harness/mistakes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "common/compare.hpp"
#include "common/half.hpp"
#include "harness/small_problem.hpp"

namespace flash::harness {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- Which mistakes there are -------------------------------------------------------------------

enum class Scale { kRight, kMissing, kTwice, kDefault, kInverse };
enum class Mask {
  kRight,
  kMissing,
  kStrict,
  kOneMore,
  kBottomRight,
  kInBlock,
  kUpsideDown,
  kWholeBlocks,
  kFirstOfBlock,
  kFinite,
  kNeedless,
  kNotDiagonal,  // of the backward pass, as the next one
  kNotFirstQuery
};
enum class Max { kRight, kNone, kFromZero, kFromFinite, kFrozen, kOfBlock, kOfRows };
enum class Rescale { kRight, kNone, kInverse, kAfter };
enum class Divide { kRight, kNone, kEveryStep, kLastBlock };
enum class Base { kE, kTwo, kTwoInWeights, kEOfTwo };
enum class Keys {
  kAll,
  kWholeBlocks,
  kNotLastBlock,
  kNotLastKey,
  kOnlyFirst,
  kPadded,
  kNotFirst,
  kAsManyAsQueries,
  kBlocksUpToQueries
};
enum class RowsWritten { kAll, kWholeBlocks, kNotLastOfBlock, kEveryOther };
enum class Values { kRight, kOfFirstBlock, kInOrderOfLanes };
enum class Leak { kNone, kMax, kSum, kAccumulator, kAll };
enum class Lse { kRight, kMax, kLogSum, kBase2, kLog2OfSum, kSum, kNegative, kScaled, kMinus };
enum class Old { kReplaced, kAddedTo, kKept };
enum class Delta { kRight, kMissing, kNegative, kFirstHalf, kLastColumn, kHead0 };
// What is done with -inf, with NaN, and with what has no weight.
enum class Special {
  kRight,
  kInfMinusInf,
  kNoNaNScores,
  kNoNaNValues,
  kNoZeroWeights,
  kMaskedValues,
  kMaskedValuesOfBlock,
  kEmptyRows
};
enum class Weights { kRight, kUnnormalised, kBase2, kNoP };
enum class Gather { kAll, kLast, kLastBlock };

// The computation, with whatever is wrong about it. Each group of members is one thing to get
// right: two mistakes at once are of two groups.
struct Computation {
  Scale scale = Scale::kRight;
  Mask mask = Mask::kRight;
  Max max = Max::kRight;
  Rescale rescale_o = Rescale::kRight, rescale_l = Rescale::kRight;
  Divide divide = Divide::kRight;
  Base base = Base::kE;
  double finite = 0;             // the start of Max::kFromFinite, or the score of Mask::kFinite
  Index rows_of_max = 0;         // that share one, of Max::kOfRows; 0: those of a block
  bool rows_at_once = false;     // each sees this block's scores of the rows behind it, too
  bool nan_without_sum = false;  // 0 / 0 where a row has no weights
  Special special = Special::kRight;
  Keys keys = Keys::kAll;
  bool unwritten = false;  // what belongs to the keys that are left out
  RowsWritten rows = RowsWritten::kAll;
  Values values = Values::kRight;
  Leak leak = Leak::kNone;
  Lse lse = Lse::kRight;
  // Whose head (or batch) is read of q, k, v and d_out: 0 for all where set.
  bool head_0[4] = {}, batch_0[4] = {};
  int by_other[4] = {-1, -1, -1, -1};  // q, k, v, d_out by the strides of another tensor
  Old old[3] = {};  // what each output held before: out and lse, or dQ, dK and dV
  // The backward pass.
  Scale scale_dq = Scale::kRight, scale_dk = Scale::kRight;
  bool scaled_dv = false, ds_for_dv = false, p_for_dk = false, k_for_dk = false, out_for_dp = false;
  bool no_last_query = false;
  bool dk_left = false, dv_left = false;  // sums that are not set to 0 for each block
  Delta delta = Delta::kRight;
  bool delta_of_right = false;  // from the right d_out, whatever is read for dP
  Weights weights = Weights::kRight;
  Gather gather_dq = Gather::kAll, gather_dk = Gather::kAll, gather_dv = Gather::kAll;
};

struct Mistake {
  std::string name;
  std::string text;
  int group;
  bool by_block;  // depends on the block of keys
  std::function<void(Computation&)> make;
};

// The groups of the mistakes.
enum Group {
  kScales,
  kMasks,
  kOnline,
  kDividing,
  kWhichKeys,
  kLseOnly,
  kIndexing,
  kGradient,
  kAdding,
  kAlone,  // these are not tried together with another one
  kOutputs
};

const char* const kNames[4] = {"q", "k", "v", "d_out"};

std::vector<Mistake> common_mistakes(const AttentionShape& shape, const AttentionOptions& options,
                                     bool has_scores, bool backward) {
  std::vector<Mistake> list;
  const auto add = [&](int group, bool by_block, std::string name, std::string text, auto make) {
    list.push_back({std::move(name), std::move(text), group, by_block, make});
  };
  if (!has_scores) {
    const auto scale = [&](Scale which, const char* name, const char* text) {
      add(kScales, false, name, text, [which](Computation& c) { c.scale = which; });
    };
    scale(Scale::kMissing, "scale missing", "the scores are not multiplied by the scale");
    scale(Scale::kTwice, "scale squared",
          "the scores are multiplied by the square of the scale, which is 1 / head_dim where no "
          "other "
          "scale is asked for: is it applied twice, or is a square root missing?");
    scale(Scale::kInverse, "divided by the scale", "the scores are divided by the scale");
    if (options.scale)
      scale(Scale::kDefault, "scale of the options ignored",
            "the scale is 1 / sqrt(head_dim), and not the one that the options ask for");
    const auto mask = [&](bool by_block, Mask which, const char* name, const char* text) {
      add(kMasks, by_block, name, text, [which](Computation& c) { c.mask = which; });
    };
    if (options.causal) {
      mask(false, Mask::kMissing, "causal mask missing", "no key is masked");
      mask(false, Mask::kStrict, "causal mask too strict",
           "query i does not see key i: the mask has < where it must have <=");
      mask(false, Mask::kOneMore, "causal mask one key too wide", "query i sees key i + 1");
      mask(false, Mask::kUpsideDown, "causal mask upside down",
           "query i sees the keys from i on instead of those up to i");
      if (shape.queries != shape.keys)
        mask(false, Mask::kBottomRight, "causal mask aligned to the last key",
             "the mask is aligned to the last query and the last key; it must be aligned to the "
             "first ones: query i sees the keys j <= i");
      mask(true, Mask::kInBlock, "causal mask counted within the block",
           "the mask compares places within the blocks; it must compare the query's and the key's "
           "own numbers");
      if (!backward) {
        mask(true, Mask::kFirstOfBlock, "causal mask of the block's first query",
             "each query sees only the keys that the first query of its block sees");
        mask(true, Mask::kWholeBlocks, "causal mask for whole blocks only",
             "a block of keys that the diagonal crosses is not masked: each query sees all keys "
             "that the last query of its block sees");
      } else {
        mask(true, Mask::kNotDiagonal, "blocks on the diagonal left out",
             "the blocks of keys that the diagonal crosses are left out: the loop over the queries "
             "begins behind the block's last key; it must begin at its first");
        mask(true, Mask::kNotFirstQuery, "first query of each block left out",
             "query j0, the first that sees key j0 of a block, is left out");
      }
    } else {
      mask(false, Mask::kNeedless, "causal mask although not asked for",
           "keys behind the query are masked, which options.causal does not ask for here");
    }
    for (int which = 0; which < (backward ? 4 : 3); ++which) {
      const std::string x = kNames[which];
      if (shape.heads > 1)
        add(kIndexing, false, "head 0 of " + x + " in every head",
            "every head reads head 0 of " + x, [which](Computation& c) { c.head_0[which] = true; });
      if (shape.batch > 1)
        add(kIndexing, false, "batch 0 of " + x + " in every batch",
            "every batch reads batch 0 of " + x,
            [which](Computation& c) { c.batch_0[which] = true; });
      if (which < 3) continue;  // a delta that was computed apart reads the right ones
      if (shape.heads > 1)
        add(kIndexing, false, "head 0 of d_out in every head", "every head reads head 0 of d_out",
            [](Computation& c) { c.head_0[3] = c.delta_of_right = true; });
      if (shape.batch > 1)
        add(kIndexing, false, "batch 0 of d_out in every batch",
            "every batch reads batch 0 of d_out",
            [](Computation& c) { c.batch_0[3] = c.delta_of_right = true; });
    }
    if (shape.heads > 1)
      add(kIndexing, false, "head 0 of k and v in every head", "every head reads head 0 of k and v",
          [](Computation& c) { c.head_0[1] = c.head_0[2] = true; });
    if (shape.batch > 1)
      add(kIndexing, false, "batch 0 of k and v in every batch",
          "every batch reads batch 0 of k and v",
          [](Computation& c) { c.batch_0[1] = c.batch_0[2] = true; });
  } else if (shape.batch > 1) {
    add(kIndexing, false, "batch 0 of v in every batch", "every batch reads batch 0 of v",
        [](Computation& c) { c.batch_0[2] = true; });
    add(kIndexing, false, "batch 0 of x in every batch", "every batch reads batch 0 of x",
        [](Computation& c) { c.batch_0[1] = true; });
  }
  const auto keys = [&](Keys which, bool by_block, const char* name, const char* text) {
    add(kWhichKeys, by_block, name, text, [which](Computation& c) { c.keys = which; });
    if (backward)
      add(kWhichKeys, by_block, name, text, [which](Computation& c) {
        c.keys = which;
        c.unwritten = true;
      });
  };
  keys(Keys::kWholeBlocks, true, "keys of the last, partial block left out",
       "the keys behind the last whole block are left out");
  keys(Keys::kNotLastBlock, true, "last block of keys left out",
       "the last block of keys is left out, full or not");
  keys(Keys::kNotFirst, true, "first block of keys left out",
       "the first block of keys is left out");
  keys(Keys::kNotLastKey, false, "last key left out", "the last key is left out");
  if (shape.queries < shape.keys)
    for (const Keys which : {Keys::kAsManyAsQueries, Keys::kBlocksUpToQueries})
      keys(which, which == Keys::kBlocksUpToQueries, "number of queries taken for that of keys",
           "only as many keys are counted as there are queries");
  keys(Keys::kOnlyFirst, true, "only the first block of keys counted",
       "only the first block of keys is counted");
  return list;
}

// Outputs that are added to, or not written at all, which only a probe can tell apart.
void add_old_contents(std::vector<Mistake>& list, const std::vector<std::string>& names) {
  for (unsigned set = 1; set < 1u << names.size(); ++set) {
    std::string which;
    for (std::size_t n = 0; n < names.size(); ++n)
      if (set >> n & 1) which += (which.empty() ? "" : " and ") + names[n];
    const auto make = [set](Old old) {
      return [set, old](Computation& c) {
        for (unsigned n = 0; n < 3; ++n)
          if (set >> n & 1) c.old[n] = old;
      };
    };
    list.push_back({which + " added to old contents",
                    "the result is added to what " + which +
                        " held before the call, which can be anything: set it to 0 first, or write "
                        "the result instead of adding it",
                    kOutputs, false, make(Old::kAddedTo)});
    list.push_back({which + " not written", "nothing is written to " + which, kOutputs, false,
                    make(Old::kKept)});
  }
}

// Tensors that are read with the strides of others.
void add_strides(std::vector<Mistake>& list, const std::vector<const SeenTensor*>& tensors,
                 bool has_scores) {
  for (std::size_t which = 0; which < tensors.size(); ++which)
    for (std::size_t n = 0; tensors[which] != nullptr && n < tensors[which]->by_others.size();
         ++n) {
      const std::string x = has_scores && which == 1 ? "x" : kNames[which],
                        &other = tensors[which]->by_others[n].other;
      list.push_back({x + " read with the strides of " + other,
                      x + " is read with the strides of " + other, kIndexing, false,
                      [which, n](Computation& c) { c.by_other[which] = static_cast<int>(n); }});
    }
}

std::vector<Mistake> mistakes_of(const SeenForward& seen) {
  const bool has_scores = seen.scores.size() > 0;
  auto list = common_mistakes(seen.shape, seen.options, has_scores, false);
  const auto add = [&](int group, bool by_block, const char* name, const char* text, auto make) {
    list.push_back({name, text, group, by_block, make});
  };
  add(kWhichKeys, true, "padded keys counted",
      "keys past the last one are counted, with a score of 0",
      [](Computation& c) { c.keys = Keys::kPadded; });
  add(kWhichKeys, true, "values of the first block in every block",
      "the values of the first block of keys are used for every block",
      [](Computation& c) { c.values = Values::kOfFirstBlock; });
  if (!has_scores && seen.block_keys == 0)  // part 3's kernel alone has such a tile
    add(kWhichKeys, true, "values in the order of P_smem",
        "V is read in the order of the rows of P_smem, which is not that of the keys: row "
        "n * kLanes + lane of P_smem has the weights of key place<kKeys, kLanes>(lane, n)",
        [](Computation& c) { c.values = Values::kInOrderOfLanes; });
  add(kOnline, true, "accumulator not rescaled",
      "what was added up so far (the accumulator of P V) is not multiplied by alpha when the "
      "maximum grows",
      [](Computation& c) { c.rescale_o = Rescale::kNone; });
  add(kOnline, true, "sum not rescaled",
      "the sum l is not multiplied by alpha when the maximum grows",
      [](Computation& c) { c.rescale_l = Rescale::kNone; });
  add(kOnline, true, "neither sum nor accumulator rescaled",
      "neither the sum l nor the accumulator is multiplied by alpha when the maximum grows",
      [](Computation& c) { c.rescale_o = c.rescale_l = Rescale::kNone; });
  add(kOnline, true, "alpha inverted",
      "alpha is exp(m_new - m); it must be exp(m - m_new), which is at most 1",
      [](Computation& c) { c.rescale_o = c.rescale_l = Rescale::kInverse; });
  add(kOnline, true, "alpha of the accumulator inverted",
      "the accumulator is multiplied by exp(m_new - m); it must be exp(m - m_new)",
      [](Computation& c) { c.rescale_o = Rescale::kInverse; });
  add(kOnline, true, "alpha of the sum inverted",
      "the sum l is multiplied by exp(m_new - m); it must be exp(m - m_new)",
      [](Computation& c) { c.rescale_l = Rescale::kInverse; });
  add(kOnline, true, "accumulator rescaled too late",
      "the accumulator is multiplied by alpha after P V of the block is added; it must be before",
      [](Computation& c) { c.rescale_o = Rescale::kAfter; });
  add(kOnline, true, "sum rescaled too late",
      "the sum l is multiplied by alpha after the block's weights are added; it must be before",
      [](Computation& c) { c.rescale_l = Rescale::kAfter; });
  add(kOnline, false, "maximum not subtracted", "the maximum is not subtracted from the scores",
      [](Computation& c) { c.max = Max::kNone; });
  add(kOnline, false, "maximum starts at 0",
      "the running maximum starts at 0; it must start at -inf",
      [](Computation& c) { c.max = Max::kFromZero; });
  for (const double start : {-1e4, -1e9})
    for (const bool nan : {false, true})
      add(kAlone, false, "maximum starts at a finite number",
          "the running maximum starts at a number like -1e4 or -1e9, which scores may be far "
          "below; "
          "it must start at -inf",
          [start, nan](Computation& c) {
            c.max = Max::kFromFinite;
            c.finite = start;
            c.nan_without_sum = nan;
          });
  if (!has_scores && seen.options.causal)
    for (const double score : {-1e4, -1e6, -1e9})
      add(kAlone, false, "mask with a finite number",
          "masked keys have a score like -1e9 instead of -inf: where all others are smaller, they "
          "count",
          [score](Computation& c) {
            c.mask = Mask::kFinite;
            c.finite = score;
          });
  for (const Index rows : {0, 2, 4, 8, 16})
    for (const bool at_once : {false, true})
      for (const bool nan : {false, true})
        add(kAlone, true, "one maximum for several rows",
            "rows share one maximum; each row needs its own, since exp(S - m) becomes 0 where m is "
            "far above the row's scores",
            [rows, at_once, nan](Computation& c) {
              c.max = Max::kOfRows;
              c.rows_of_max = rows;
              c.rows_at_once = at_once;
              c.nan_without_sum = nan;
            });
  for (const Base base : {Base::kTwo, Base::kTwoInWeights})
    add(kOnline, true, "exp2 without log2(e)",
        "the weights are exp2(S - m), and S is in base e: multiply it by log2(e)",
        [base](Computation& c) { c.base = base; });
  add(kOnline, false, "exp of scores in base 2",
      "the weights are exp(S - m), and S was multiplied by log2(e): use exp2",
      [](Computation& c) { c.base = Base::kEOfTwo; });
  add(kAlone, true, "-inf minus -inf",
      "where a row has seen only -inf, m is -inf, and exp(-inf - -inf) is NaN: subtract 0 there",
      [](Computation& c) { c.special = Special::kInfMinusInf; });
  add(kAlone, false, "0 divided by 0",
      "a row without weights has the sum 0, and 0 / 0 is NaN: its result is 0",
      [](Computation& c) { c.nan_without_sum = true; });
  add(kAlone, false, "NaN scores left out",
      "a score that is NaN is left out, as if its weight were 0; it has to make its row NaN",
      [](Computation& c) { c.special = Special::kNoNaNScores; });
  add(kAlone, false, "NaN values left out",
      "a value that is NaN is left out; it has to reach the rows that see it",
      [](Computation& c) { c.special = Special::kNoNaNValues; });
  add(kAlone, false, "keys of weight 0 left out",
      "a key whose weight is 0 is left out; 0 * NaN is NaN, so that its value still counts",
      [](Computation& c) { c.special = Special::kNoZeroWeights; });
  if (!has_scores && seen.options.causal)
    for (const Special which : {Special::kMaskedValues, Special::kMaskedValuesOfBlock})
      add(kAlone, true, "values of masked keys counted",
          "masked keys have the weight 0, but their values are still multiplied by it, and 0 * NaN "
          "is NaN: leave these keys out of the sum",
          [which](Computation& c) { c.special = which; });
  for (const auto& [which, name, text] :
       {std::tuple{RowsWritten::kWholeBlocks, "rows of the last, partial block not written",
                   "the rows behind the last whole block are not written"},
        {RowsWritten::kNotLastOfBlock, "last row of each block not written",
         "the last row of each block is not written"},
        {RowsWritten::kEveryOther, "every other row not written",
         "every other row of a block is not written"}})
    add(kOutputs, true, name, text, [which = which](Computation& c) { c.rows = which; });
  add(kOnline, true, "maximum of the first block kept",
      "the maximum of the first block is kept; it must grow with each block",
      [](Computation& c) { c.max = Max::kFrozen; });
  add(kOnline, true, "maximum of the block only",
      "the maximum is that of the block alone; it must take in the one before",
      [](Computation& c) { c.max = Max::kOfBlock; });
  add(kDividing, false, "not divided by the sum", "the result is not divided by the sum l",
      [](Computation& c) { c.divide = Divide::kNone; });
  add(kDividing, true, "divided by the sum in every step",
      "the accumulator is divided by the sum l after each block; it must be once, at the end",
      [](Computation& c) { c.divide = Divide::kEveryStep; });
  add(kDividing, true, "sum of the last block only",
      "the sum l is that of the last block; it must be that of all blocks",
      [](Computation& c) { c.divide = Divide::kLastBlock; });
  for (const auto& [which, name, text] :
       {std::tuple{Leak::kSum, "sum not reset", "the sum l"},
        {Leak::kMax, "maximum not reset", "the running maximum m"},
        {Leak::kAccumulator, "accumulator not reset", "the accumulator"},
        {Leak::kAll, "nothing reset", "m, l and the accumulator"}})
    add(kAlone, true, name,
        (std::string(text) + " still " + (which == Leak::kAll ? "have" : "has") +
         " what the block of rows before it left: it has to start anew for each block")
            .c_str(),
        [which = which](Computation& c) { c.leak = which; });
  add_old_contents(list, seen.lse.size() > 0 ? std::vector<std::string>{"out", "lse"}
                                             : std::vector<std::string>{"out"});
  if (seen.lse.size() > 0)
    for (const auto& [which, name, text] :
         {std::tuple{Lse::kMax, "lse without log(l)",
                     "lse is the maximum m alone; it must be m + log(l)"},
          {Lse::kLogSum, "lse without the maximum", "lse is log(l) alone; it must be m + log(l)"},
          {Lse::kBase2, "lse in base 2", "lse is in base 2: multiply it by ln 2"},
          {Lse::kLog2OfSum, "log2 in lse", "lse is m + log2(l); it must be m + log(l)"},
          {Lse::kSum, "lse without a logarithm", "lse is m + l; it must be m + log(l)"},
          {Lse::kNegative, "lse with the wrong sign", "lse is -(m + log(l))"},
          {Lse::kScaled, "lse scaled again", "lse is multiplied by the scale once more"},
          {Lse::kMinus, "lse subtracts log(l)", "lse is m - log(l); it must be m + log(l)"}})
      add(kLseOnly, false, name, text, [which = which](Computation& c) { c.lse = which; });
  add_strides(list,
              has_scores ? std::vector<const SeenTensor*>{nullptr, &seen.k, &seen.v}
                         : std::vector<const SeenTensor*>{&seen.q, &seen.k, &seen.v},
              has_scores);
  return list;
}

std::vector<Mistake> mistakes_of(const SeenBackward& seen) {
  auto list = common_mistakes(seen.shape, seen.options, false, true);
  const auto add = [&](int group, const char* name, const char* text, auto make,
                       bool by_block = false) {
    list.push_back({name, text, group, by_block, make});
  };
  add(kGradient, "delta missing", "delta is missing: dS = P * (dP - delta)",
      [](Computation& c) { c.delta = Delta::kMissing; });
  add(kGradient, "delta added", "delta is added; it must be subtracted: dS = P * (dP - delta)",
      [](Computation& c) { c.delta = Delta::kNegative; });
  add(kGradient, "P missing in dS", "dS is dP - delta without P: dS = P * (dP - delta)",
      [](Computation& c) { c.weights = Weights::kNoP; });
  add(kGradient, "P without lse", "P is exp(S); it must be exp(S - lse)",
      [](Computation& c) { c.weights = Weights::kUnnormalised; });
  add(kGradient, "P in base 2 with lse in base e",
      "P is exp2(S - lse), and S and lse are in base e",
      [](Computation& c) { c.weights = Weights::kBase2; });
  add(kGradient, "dP from out", "dP is computed from out; it must be from d_out: dP = dO V^T",
      [](Computation& c) { c.out_for_dp = true; });
  add(kGradient, "dV from dS", "dV is computed from dS; it must be from P: dV = P^T dO",
      [](Computation& c) { c.ds_for_dv = true; });
  add(kGradient, "dK from P", "dK is computed from P; it must be from dS: dK = scale * dS^T Q",
      [](Computation& c) { c.p_for_dk = true; });
  add(kGradient, "dK from K", "dK is computed from K; it must be from Q: dK = scale * dS^T Q",
      [](Computation& c) { c.k_for_dk = true; });
  for (const auto& [which, name, text] :
       {std::tuple{Delta::kFirstHalf, "delta of half the columns",
                   "delta sums up the first half of the columns only"},
        {Delta::kLastColumn, "delta overwritten",
         "each column overwrites delta; it must add to it"},
        {Delta::kHead0, "delta with head 0 of out", "delta is computed with head 0 of out"}})
    if (which != Delta::kHead0 || seen.shape.heads > 1)
      add(kGradient, name, text, [which = which](Computation& c) { c.delta = which; });
  add(kWhichKeys, "last query left out", "the last query is left out",
      [](Computation& c) { c.no_last_query = true; });
  add(kAlone, "NaN scores left out",
      "a score that is NaN is left out, as if its weight were 0; it has to reach the gradients",
      [](Computation& c) { c.special = Special::kNoNaNScores; });
  add(kAlone, "rows without weights counted",
      "a row whose lse is -inf weighs no key, but exp(S - -inf) is inf: leave it out",
      [](Computation& c) { c.special = Special::kEmptyRows; });
  for (const auto& [name, dk, dv] : {std::tuple{"dK not reset", true, false},
                                     {"dV not reset", false, true},
                                     {"dK and dV not reset", true, true}})
    add(
        kAlone, name,
        "the sums of a block of keys begin with what the block before it left: set them to 0 for "
        "each block",
        [dk = dk, dv = dv](Computation& c) {
          c.dk_left = dk;
          c.dv_left = dv;
        },
        true);
  add(kAdding, "dV scaled", "dV is multiplied by the scale, which belongs to dQ and dK only",
      [](Computation& c) { c.scaled_dv = true; });
  add(kAdding, "dQ without the scale", "dQ is not multiplied by the scale: dQ = scale * dS K",
      [](Computation& c) { c.scale_dq = Scale::kMissing; });
  add(kAdding, "dK without the scale", "dK is not multiplied by the scale: dK = scale * dS^T Q",
      [](Computation& c) { c.scale_dk = Scale::kMissing; });
  add(kAdding, "dQ and dK without the scale",
      "dQ and dK are not multiplied by the scale: dQ = scale * dS K, dK = scale * dS^T Q",
      [](Computation& c) { c.scale_dq = c.scale_dk = Scale::kMissing; });
  add(kAdding, "dQ scaled twice", "dQ is multiplied by the scale twice",
      [](Computation& c) { c.scale_dq = Scale::kTwice; });
  add(kAdding, "dK scaled twice", "dK is multiplied by the scale twice",
      [](Computation& c) { c.scale_dk = Scale::kTwice; });
  add(kAdding, "dQ and dK scaled twice", "dQ and dK are multiplied by the scale twice",
      [](Computation& c) { c.scale_dq = c.scale_dk = Scale::kTwice; });
  add(kAdding, "dV overwritten", "each query overwrites dV; it must add to it",
      [](Computation& c) { c.gather_dv = Gather::kLast; });
  add(kAdding, "dK overwritten", "each query overwrites dK; it must add to it",
      [](Computation& c) { c.gather_dk = Gather::kLast; });
  add(kAdding, "dK and dV overwritten", "each query overwrites dK and dV; it must add to them",
      [](Computation& c) { c.gather_dk = c.gather_dv = Gather::kLast; });
  add(
      kAdding, "dQ overwritten by each block",
      "each block of keys overwrites dQ; it must add to it",
      [](Computation& c) { c.gather_dq = Gather::kLastBlock; }, true);
  add(kAdding, "dQ overwritten by each key", "each key overwrites dQ; it must add to it",
      [](Computation& c) { c.gather_dq = Gather::kLast; });
  std::vector<std::string> asked;
  for (const auto& [name, gradient] :
       {std::pair{"dQ", &seen.d_q}, {"dK", &seen.d_k}, {"dV", &seen.d_v}})
    if (gradient->size() > 0) asked.push_back(name);
  add_old_contents(list, asked);
  add_strides(list, {&seen.q, &seen.k, &seen.v, &seen.d_out}, false);
  return list;
}

// ---- What a computation gives -------------------------------------------------------------------

// A row of an output, and how large the terms are that it is the sum of.
struct Row {
  std::vector<double> value, magnitude;
  bool reliable = true;  // false where rounding decides, next to underflow or overflow
};

double scaled(Scale how, double scale, double head_dim) {
  switch (how) {
    case Scale::kRight: return scale;
    case Scale::kMissing: return 1;
    case Scale::kTwice: return scale * scale;
    case Scale::kInverse: return 1 / scale;
    case Scale::kDefault: return 1 / std::sqrt(head_dim);
  }
  return scale;
}

// exp(x) of a type whose largest number is `largest`.
double exp_in(double x, double largest) {
  const double e = std::exp(x);
  return e > largest ? kInfinity : e < 1 / largest / 16777216 ? 0 : e;
}

bool sees(const Computation& how, const AttentionShape& shape, bool causal, Index i, Index j,
          Index block_q, Index block_k) {
  switch (how.mask) {
    case Mask::kRight: return !causal || j <= i;
    case Mask::kMissing: return true;
    case Mask::kStrict: return j < i;
    case Mask::kOneMore: return j <= i + 1;
    case Mask::kBottomRight: return j <= i + shape.keys - shape.queries;
    case Mask::kInBlock: return j % block_k <= i % block_q;
    case Mask::kUpsideDown: return j >= i;
    case Mask::kWholeBlocks:
      return j <= std::min(i / block_q * block_q + block_q, shape.queries) - 1;
    case Mask::kFirstOfBlock: return j <= i / block_q * block_q;
    case Mask::kNeedless:
    case Mask::kFinite: return j <= i;
    case Mask::kNotDiagonal:
      return j <= i && i >= std::min((j / block_k + 1) * block_k, shape.keys);
    case Mask::kNotFirstQuery: return j <= i && i != j / block_k * block_k;
  }
  return true;
}

bool counted(Keys which, const AttentionShape& shape, Index j, Index block) {
  const Index keys = shape.keys;
  switch (which) {
    case Keys::kAll:
    case Keys::kPadded: return true;
    case Keys::kWholeBlocks: return j < keys / block * block;
    case Keys::kNotLastBlock: return j < (keys - 1) / block * block;
    case Keys::kNotLastKey: return j < keys - 1;
    case Keys::kOnlyFirst: return j < block;
    case Keys::kNotFirst: return j >= block;
    case Keys::kAsManyAsQueries: return j < shape.queries;
    case Keys::kBlocksUpToQueries: return j / block * block < shape.queries;
  }
  return true;
}

// The row of part 3's P_smem that has the weights of key j of the block, where 8 lanes share the
// keys: given/forward_tile.hpp.
Index row_of_P(Index j, Index block) {
  constexpr Index kLanes = 8;
  const Index vector = std::clamp<Index>(block / kLanes, 1, 4);
  return (j / (kLanes * vector) * vector + j % vector) * kLanes + j / vector % kLanes;
}

struct Blocks {
  Index queries, keys;
  auto operator<=>(const Blocks&) const = default;
};

// Reads a seen tensor as a computation does.
class Reader {
 public:
  Reader(const SeenTensor& tensor, int which) : tensor_(tensor), which_(which) {}
  bool leaves_memory(const Computation& how) const {
    const int other = how.by_other[which_];
    return other >= 0 && tensor_.by_others[static_cast<std::size_t>(other)].values.size() == 0;
  }
  const double* row(const Computation& how, Index b, Index h, Index i) const {
    const int other = how.by_other[which_];
    const Tensor<double, 4>& values =
        other < 0 ? tensor_.values : tensor_.by_others[static_cast<std::size_t>(other)].values;
    return &values(how.batch_0[which_] ? 0 : b, how.head_0[which_] ? 0 : h, i, 0);
  }

 private:
  const SeenTensor& tensor_;
  int which_;
};

double dot(const double* a, const double* b, Index n) {
  double sum = 0;
  for (Index c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}

// The forward pass, a row at a time. Output 0 is out, 1 is lse.
class ForwardModel {
 public:
  explicit ForwardModel(const SeenForward& seen)
      : seen_(seen), q_(seen.q, 0), k_(seen.k, 1), v_(seen.v, 2) {
    outputs = {"out", "lse"};
    if (seen.lse.size() == 0) outputs.pop_back();
    if (seen.scores.size() == 0) scale_ = attention_scale(seen.options, seen.shape.head_dim);
  }

  std::vector<std::string> outputs;

  Index rows(int) const { return seen_.shape.batch * seen_.shape.heads * seen_.shape.queries; }
  Index columns(int output) const { return output == 0 ? seen_.v.values.extent(3) : 1; }
  double got(int output, Index row, Index c) const {
    return output == 0 ? seen_.out.data()[row * columns(0) + c] : seen_.lse.data()[row];
  }
  double fill() const { return seen_.fill; }
  Index keys() const { return seen_.shape.keys; }
  bool leaves_memory(const Computation& how) const {
    return q_.leaves_memory(how) || k_.leaves_memory(how) || v_.leaves_memory(how);
  }
  double bound(int output) const { return output == 0 ? seen_.precision.bound : seen_.lse_bound; }

  Row row(const Computation& how, const Blocks& blocks, int output, Index row) {
    State state = finished(how, blocks, row);
    const double l = how.divide == Divide::kLastBlock ? state.l_block : state.l;
    if (output == 1) return lse_row(how, state);
    // A row that has no keys either is another mistake's.
    const bool gives_nan = how.nan_without_sum && (how.max == Max::kRight || state.has_keys);
    Row result{state.o, state.size, state.reliable || state.overflown};
    if (how.divide != Divide::kNone && how.divide != Divide::kEveryStep)
      for (Index c = 0; c < columns(0); ++c) {
        result.value[c] = l == 0 && !gives_nan ? 0 : result.value[c] / l;
        result.magnitude[c] = l == 0 ? 0 : result.magnitude[c] / std::fabs(l);
      }
    return result;
  }

 private:
  struct State {
    double m = -kInfinity, l = 0, l_block = 0;
    std::vector<double> o, size;
    std::vector<bool> unsure;  // whether a NaN was added
    bool fresh = true, reliable = true, overflown = false, has_keys = false;
  };

  Row lse_row(const Computation& how, const State& state) const {
    const double l = how.divide == Divide::kLastBlock ? state.l_block : state.l;
    const double log_l = std::log(l), m = state.m, right = m + log_l;
    const double value = how.lse == Lse::kMax         ? m
                         : how.lse == Lse::kLogSum    ? log_l
                         : how.lse == Lse::kBase2     ? right / std::log(2.0)
                         : how.lse == Lse::kLog2OfSum ? m + std::log2(l)
                         : how.lse == Lse::kSum       ? m + l
                         : how.lse == Lse::kNegative  ? -right
                         : how.lse == Lse::kScaled    ? right * scale_
                         : how.lse == Lse::kMinus     ? m - log_l
                                                      : right;
    // What log(0) becomes is not what these mistakes are about.
    const bool reliable =
        (state.reliable || state.overflown) && (how.lse == Lse::kRight || state.l != 0);
    return {{value},
            {1 + (std::isfinite(value) ? 0x1p-22 * std::fabs(value) / seen_.lse_bound : 0)},
            reliable};
  }

  const std::vector<double>& scores(const Computation& how, Index b, Index h, Index i) {
    const std::array<Index, 9> key{b,
                                   h,
                                   i,
                                   how.by_other[0],
                                   how.by_other[1],
                                   how.head_0[0] + 2 * how.head_0[1],
                                   how.batch_0[0] + 2 * how.batch_0[1],
                                   0,
                                   0};
    auto [found, is_new] = scores_.try_emplace(key);
    if (is_new) {
      found->second.resize(static_cast<std::size_t>(seen_.shape.keys));
      for (Index j = 0; j < seen_.shape.keys; ++j)
        found->second[j] =
            seen_.scores.size() > 0
                ? (how.by_other[1] >= 0 ? seen_.k.by_others[how.by_other[1]].values(b, 0, i, j)
                                        : seen_.scores(how.batch_0[1] ? 0 : b, 0, i, j))
                : dot(q_.row(how, b, h, i), k_.row(how, b, h, j), seen_.shape.head_dim);
    }
    return found->second;
  }

  // The largest score that the rows which share a maximum with row i have in a block of keys; of
  // those behind it in the block before, where they come later.
  double most_of_rows(const Computation& how, const Blocks& blocks, Index b, Index h, Index i,
                      Index j0, double factor) {
    const Index block = i / blocks.queries * blocks.queries,
                rows = how.rows_of_max == 0 ? blocks.queries : how.rows_of_max,
                first = block + (i - block) / rows * rows,
                last = std::min({first + rows, block + blocks.queries, seen_.shape.queries});
    double most = -kInfinity;
    for (Index row = first; row < last; ++row) {
      const Index begin = row <= i || how.rows_at_once ? j0 : j0 - blocks.keys;
      for (Index j = begin; j < std::min(begin + blocks.keys, seen_.shape.keys) && j >= 0; ++j)
        if (sees(how, seen_.shape, seen_.options.causal, row, j, blocks.queries, blocks.keys))
          most = std::fmax(most, factor * scores(how, b, h, row)[static_cast<std::size_t>(j)]);
    }
    return most;
  }

  // After the last key of the row. With what the rows before it in its place left, where they do.
  State finished(const Computation& how, const Blocks& blocks, Index row) {
    const Index queries = seen_.shape.queries, i = row % queries;
    State state;
    if (how.leak == Leak::kNone) return attended(how, blocks, row, {});
    // The blocks of rows in front of this one that have its place in them, in their order.
    const Index slot = i % blocks.queries;
    for (Index other = slot; other < row; ++other)
      if (other % queries % blocks.queries == slot &&
          other / queries * queries + other % queries < row) {
        const auto known = left_.find({blocks.queries, other});
        if (known != left_.end())
          state = known->second;
        else
          left_[{blocks.queries, other}] = state = attended(how, blocks, other, state);
      }
    return attended(how, blocks, row, state);
  }

 public:
  void forget() { left_.clear(); }
  bool unwritten(const Computation& how, const Blocks& blocks, int, Index row) const {
    const Index queries = seen_.shape.queries, i = row % queries, of_block = i % blocks.queries;
    switch (how.rows) {
      case RowsWritten::kAll: return false;
      case RowsWritten::kWholeBlocks: return i >= queries / blocks.queries * blocks.queries;
      case RowsWritten::kNotLastOfBlock: return of_block == blocks.queries - 1 || i == queries - 1;
      case RowsWritten::kEveryOther: return of_block % 2 == 1;
    }
    return false;
  }

 private:
  State attended(const Computation& how, const Blocks& blocks, Index row, const State& before) {
    const AttentionShape& shape = seen_.shape;
    const Index columns = this->columns(0), i = row % shape.queries,
                h = row / shape.queries % shape.heads, b = row / shape.queries / shape.heads;
    const double largest = seen_.precision.largest;
    const bool all = how.leak == Leak::kAll && !before.fresh;
    State state;
    state.fresh = false;
    state.o.assign(columns, 0);
    state.size.assign(columns, 0);
    state.unsure.assign(columns, false);
    if (!before.fresh) {
      if (all || how.leak == Leak::kMax) state.m = before.m;
      if (all || how.leak == Leak::kSum) state.l = before.l;
      if (all || how.leak == Leak::kAccumulator) state.o = before.o, state.size = before.size;
    }
    if (how.max == Max::kFromZero) state.m = 0;
    if (how.max == Max::kFromFinite) state.m = how.finite;
    const auto& S = scores(how, b, h, i);
    double factor = seen_.scores.size() > 0
                        ? 1
                        : scaled(how.scale, scale_, static_cast<double>(shape.head_dim));
    if (how.base == Base::kTwo) factor *= std::log(2.0);
    if (how.base == Base::kEOfTwo) factor /= std::log(2.0);
    const double in_weights = how.base == Base::kTwoInWeights ? std::log(2.0) : 1;
    const Index padded = (shape.keys + blocks.keys - 1) / blocks.keys * blocks.keys;
    const Index end = how.keys == Keys::kPadded ? padded : shape.keys;
    std::vector<double> weight(static_cast<std::size_t>(blocks.keys));
    bool first = true;
    for (Index j0 = 0; j0 < end; j0 += blocks.keys) {
      const Index count = std::min(blocks.keys, end - j0);
      const auto is_counted = [&](Index j) {
        return counted(how.keys, shape, j0 + j, blocks.keys) &&
               sees(how, shape, seen_.options.causal, i, j0 + j, blocks.queries, blocks.keys);
      };
      const auto score = [&](Index j) {
        if (j0 + j >= shape.keys) return 0.0;
        if (!is_counted(j)) return how.mask == Mask::kFinite ? how.finite : -kInfinity;
        const double s = factor * S[static_cast<std::size_t>(j0 + j)];
        return how.special == Special::kNoNaNScores && std::isnan(s) ? -kInfinity : s;
      };
      double of_block = -kInfinity;
      bool any = false;
      for (Index j = 0; j < count; ++j) {
        const double s = weight[j] = score(j);
        any |= s != -kInfinity || (how.special == Special::kInfMinusInf && is_counted(j));
        of_block = std::fmax(of_block, s);
      }
      const Index last_row = std::min((i / blocks.queries + 1) * blocks.queries, shape.queries) - 1;
      const bool reads_masked = how.special == Special::kMaskedValues ||
                                (how.special == Special::kMaskedValuesOfBlock && j0 <= last_row);
      state.has_keys |= any;
      if (!any && !reads_masked) continue;  // nothing of this block is counted
      double m_new = std::fmax(state.m, of_block);
      if (how.max == Max::kOfRows)
        m_new = std::fmax(m_new, most_of_rows(how, blocks, b, h, i, j0, factor));
      if (how.max == Max::kNone) m_new = 0;
      if (how.max == Max::kFrozen && !first) m_new = state.m;
      if (how.max == Max::kOfBlock) m_new = of_block;
      const double reference =
          m_new == -kInfinity && how.special != Special::kInfMinusInf ? 0 : m_new;
      const double alpha = how.max == Max::kNone ? 1 : exp_in(state.m - reference, largest);
      // Where nothing was added up yet 0 stays 0. (Without that all is NaN, which has many causes.)
      const double inverse = std::isfinite(state.m) ? exp_in(reference - state.m, largest) : 0;
      const auto before_of = [&](Rescale rescale) {
        return rescale == Rescale::kRight ? alpha : rescale == Rescale::kInverse ? inverse : 1.0;
      };
      double sum = 0;
      for (Index j = 0; j < count; ++j)
        sum += weight[j] = exp_in(in_weights * (weight[j] - reference), largest);
      // 0 * inf, in the first block with alpha inverted, is NaN; what has no sum yet is 0 there.
      state.l = state.l * before_of(how.rescale_l) + sum;
      if (how.rescale_l == Rescale::kAfter) state.l *= alpha;
      state.l_block = sum;
      const double shrink = before_of(how.rescale_o);
      for (Index c = 0; c < columns; ++c) state.o[c] *= shrink, state.size[c] *= shrink;
      for (Index j = 0; j < count && j0 + j < shape.keys; ++j) {
        if (weight[j] == 0 && how.special == Special::kNoZeroWeights) continue;
        if (weight[j] == 0 && !reads_masked) {  // of a key that is not seen, whatever its value
          const double s = score(j);
          if (s == -kInfinity && factor * S[static_cast<std::size_t>(j0 + j)] != -kInfinity)
            continue;
          if (how.mask == Mask::kFinite && !is_counted(j)) continue;  // a mistake of its own
        }
        const Index of = how.values == Values::kOfFirstBlock     ? j
                         : how.values == Values::kInOrderOfLanes ? j0 + row_of_P(j, blocks.keys)
                                                                 : j0 + j;
        if (of >= shape.keys) continue;  // the tile has zeros there
        const double* const V = v_.row(how, b, h, of);
        for (Index c = 0; c < columns; ++c) {
          if (how.special == Special::kNoNaNValues && std::isnan(V[c])) continue;
          if (how.special == Special::kNoZeroWeights && std::isnan(V[c]) &&
              weight[j] < 64 / largest) {  // whether that is 0 is a matter of rounding
            state.unsure[c] = true;
            continue;
          }
          state.o[c] += weight[j] * V[c];
          state.size[c] += std::fabs(weight[j] * V[c]);
        }
      }
      if (how.rescale_o == Rescale::kAfter)
        for (Index c = 0; c < columns; ++c) state.o[c] *= alpha, state.size[c] *= alpha;
      if (how.divide == Divide::kEveryStep)
        for (Index c = 0; c < columns; ++c) state.o[c] /= state.l, state.size[c] /= state.l;
      const bool of_last_block = how.divide == Divide::kLastBlock;
      const double tiny = 1e6 / seen_.precision.largest, huge = 1e-6 * seen_.precision.largest;
      for (const double size : {sum, state.l})
        state.reliable &= !(size > 0 && size < tiny && (size > 1e-12 * state.l || of_last_block)) &&
                          !(size > huge && size < kInfinity);
      state.overflown |= std::isinf(sum) || std::isinf(state.l);  // however close it was before
      state.m = m_new;
      first = false;
    }
    for (Index c = 0; c < columns; ++c)
      state.reliable &= !state.unsure[c] || std::isnan(state.o[c]);
    return state;
  }

  const SeenForward& seen_;
  Reader q_, k_, v_;
  double scale_ = 1;
  std::map<std::array<Index, 9>, std::vector<double>> scores_;
  std::map<std::pair<Index, Index>, State> left_;
};

// The backward pass, a row of a gradient at a time. Outputs: dQ, dK and dV, those that were asked.
class BackwardModel {
 public:
  explicit BackwardModel(const SeenBackward& seen)
      : seen_(seen),
        q_(seen.q, 0),
        k_(seen.k, 1),
        v_(seen.v, 2),
        d_out_(seen.d_out, 3),
        scale_(attention_scale(seen.options, seen.shape.head_dim)) {
    for (const auto& [name, gradient] :
         {std::pair{"dQ", &seen.d_q}, {"dK", &seen.d_k}, {"dV", &seen.d_v}})
      if (gradient->size() > 0) {
        outputs.push_back(name);
        gradients_.push_back(gradient);
      }
  }

  std::vector<std::string> outputs;

  Index rows(int output) const {
    const Tensor<double, 4>& gradient = *gradients_[output];
    return gradient.extent(0) * gradient.extent(1) * gradient.extent(2);
  }
  Index columns(int) const { return seen_.shape.head_dim; }
  double got(int output, Index row, Index c) const {
    return gradients_[output]->data()[row * columns(output) + c];
  }
  double fill() const { return seen_.fill; }
  Index keys() const { return seen_.shape.keys; }
  bool leaves_memory(const Computation& how) const {
    return q_.leaves_memory(how) || k_.leaves_memory(how) || v_.leaves_memory(how) ||
           d_out_.leaves_memory(how);
  }
  double bound(int) const { return seen_.precision.bound; }
  void forget() {}
  bool unwritten(const Computation& how, const Blocks& blocks, int output, Index row) const {
    return how.unwritten && outputs[output] != "dQ" &&
           !counted(how.keys, seen_.shape, row % seen_.shape.keys, blocks.keys);
  }

  Row row(const Computation& how, const Blocks& blocks, int output, Index row) {
    Row result = own_row(how, blocks, output, row);
    const bool left = outputs[output] == "dK"   ? how.dk_left
                      : outputs[output] == "dV" ? how.dv_left
                                                : false;
    // What the rows before it in its place left.
    const Index keys = seen_.shape.keys, slot = row % keys % blocks.keys;
    for (Index before = 0; left && before < row; ++before) {
      if (before % keys % blocks.keys != slot) continue;
      const Row other = own_row(how, blocks, output, before);
      for (std::size_t c = 0; c < result.value.size(); ++c) {
        result.value[c] += other.value[c];
        result.magnitude[c] += other.magnitude[c];
      }
    }
    return result;
  }

 private:
  Row own_row(const Computation& how, const Blocks& blocks, int output, Index row) {
    const AttentionShape& shape = seen_.shape;
    const bool of_query = outputs[output] == "dQ", is_dv = outputs[output] == "dV";
    const Index count = of_query ? shape.queries : shape.keys, own = row % count,
                h = row / count % shape.heads, b = row / count / shape.heads;
    const Index d = shape.head_dim, others = of_query ? shape.keys : shape.queries;
    Row result{std::vector<double>(d, 0), std::vector<double>(d, 0)};
    const Gather gather = of_query ? how.gather_dq : is_dv ? how.gather_dv : how.gather_dk;
    const Index last_block = blocks.keys * ((shape.keys - 1) / blocks.keys);
    for (Index other = 0; other < others; ++other) {
      const Index i = of_query ? own : other, j = of_query ? other : own;
      if (seen_.lse(b, h, i) == -kInfinity && how.special != Special::kEmptyRows) continue;
      if (!sees(how, shape, seen_.options.causal, i, j, blocks.queries, blocks.keys) ||
          !counted(how.keys, shape, j, blocks.keys) ||
          (how.no_last_query && i == shape.queries - 1))
        continue;
      if (gather == Gather::kLastBlock && j < last_block_of(how, i, blocks, last_block)) continue;
      const double S = scaled(how.scale, scale_, static_cast<double>(d)) *
                       dot(q_.row(how, b, h, i), k_.row(how, b, h, j), d);
      const double argument = how.weights == Weights::kUnnormalised ? S : S - seen_.lse(b, h, i);
      const bool left_out = how.special == Special::kNoNaNScores && std::isnan(S);
      const double P =
          left_out ? 0
                   : exp_in(how.weights == Weights::kBase2 ? argument * std::log(2.0) : argument,
                            seen_.precision.largest);
      result.reliable &= P < 1e-8 * seen_.precision.largest ||
                         how.special == Special::kEmptyRows;  // products overflow earlier
      double factor = P, size = P;
      if (!is_dv || how.ds_for_dv) {
        const double* const dO =
            how.out_for_dp ? &seen_.out.values(b, h, i, 0) : d_out_.row(how, b, h, i);
        const double* const V = v_.row(how, b, h, j);
        double dP = 0, dP_size = 0;
        for (Index c = 0; c < d; ++c) dP += dO[c] * V[c], dP_size += std::fabs(dO[c] * V[c]);
        const auto [delta, delta_size] = delta_of(b, h, i, how);
        const double used = how.delta == Delta::kMissing    ? 0
                            : how.delta == Delta::kNegative ? -delta
                                                            : delta;
        const double weight = how.weights == Weights::kNoP ? 1 : P;
        factor = weight * (dP - used);
        size = weight * (dP_size + (used == 0 ? 0 : delta_size));
      }
      if (!of_query && !is_dv && how.p_for_dk) factor = size = P;
      const double times = is_dv      ? (how.scaled_dv ? scale_ : 1)
                           : of_query ? scaled(how.scale_dq, scale_, 1)
                                      : scaled(how.scale_dk, scale_, 1);
      const double* const with = of_query || (how.k_for_dk && !is_dv) ? k_.row(how, b, h, j)
                                 : is_dv                              ? d_out_.row(how, b, h, i)
                                                                      : q_.row(how, b, h, i);
      if (gather == Gather::kLast) std::fill(result.value.begin(), result.value.end(), 0);
      for (Index c = 0; c < d; ++c) {
        result.value[c] += times * factor * with[c];
        result.magnitude[c] += std::fabs(times * size * with[c]);
      }
    }
    return result;
  }

  // The first key of the last block that query i takes part in.
  Index last_block_of(const Computation& how, Index i, const Blocks& blocks, Index last) const {
    if (how.mask == Mask::kRight && seen_.options.causal)
      return std::min(last, i / blocks.keys * blocks.keys);
    return last;
  }

  std::pair<double, double> delta_of(Index b, Index h, Index i, const Computation& how) const {
    const double* const out = &seen_.out.values(b, how.delta == Delta::kHead0 ? 0 : h, i, 0);
    const double* const dO = d_out_.row(how.delta_of_right ? Computation() : how, b, h, i);
    const Index d = seen_.shape.head_dim, first = how.delta == Delta::kLastColumn ? d - 1 : 0,
                last = how.delta == Delta::kFirstHalf ? (d + 1) / 2 : d;
    double delta = 0, size = 0;
    for (Index c = first; c < last; ++c) delta += out[c] * dO[c], size += std::fabs(out[c] * dO[c]);
    return {delta, size};
  }

  const SeenBackward& seen_;
  Reader q_, k_, v_, d_out_;
  double scale_;
  std::vector<const Tensor<double, 4>*> gradients_;
};

// ---- Matching -----------------------------------------------------------------------------------

constexpr double kSlack = 8;  // times the bound: a mistake may add a few roundings
// Of one run of a task's cases: a mistake that is not found in the first of them that fail is not
// found later either, and the student waits.
constexpr int kExplained = 12, kPairSearches = 3;
constexpr int kRowsOfEach = 24;  // rows compared, of the wrong ones and of the right ones

// Every how-many-th of them, the first and the last among them.
std::vector<Index> spread(const std::vector<Index>& rows, std::size_t most) {
  if (rows.size() <= most) return rows;
  std::vector<Index> some;
  for (std::size_t n = 0; n < most; ++n) some.push_back(rows[n * (rows.size() - 1) / (most - 1)]);
  return some;
}

template <class Model>
class Matching {
 public:
  Matching(Model& model, const std::vector<Blocks>& blocks) : model_(model), blocks_(blocks) {
    for (int output = 0; output < static_cast<int>(model.outputs.size()); ++output) {
      std::vector<Index> wrong, right;
      for (Index row = 0; row < model.rows(output); ++row)
        (is_right(output, row) ? right : wrong).push_back(row);
      for (const Index row : spread(wrong, kRowsOfEach)) wrong_.push_back({output, row});
      for (const Index row : spread(right, kRowsOfEach)) right_.push_back({output, row});
    }
  }

  bool is_probe = false;  // then rows that cannot be compared are no reason against a mistake

  bool is_wrong() const { return !wrong_.empty(); }

  // With which of the block sizes it fits, by their numbers.
  std::vector<std::size_t> fitting(const Computation& how, bool by_block) {
    std::vector<std::size_t> sizes;
    for (std::size_t n = 0; n < blocks_.size(); ++n)
      if (!by_block && n > 0 ? !sizes.empty()
          // A problem smaller than a block says nothing: some shrink the block, and some do not.
          : by_block && is_probe && n == 0 && blocks_[0].keys > model_.keys()
              ? true
              : fits(how, blocks_[n]))
        sizes.push_back(n);
    return sizes;
  }

 private:
  struct Place {
    int output;
    Index row;
  };
  struct Truth {
    Row row;
  };

  const Row& truth(const Place& at) {
    auto [found, is_new] = truths_.try_emplace({at.output, at.row});
    if (is_new) found->second = model_.row(Computation(), blocks_[0], at.output, at.row);
    return found->second;
  }

  bool is_right(int output, Index row) {
    const Row want = model_.row(Computation(), blocks_[0], output, row);
    for (Index c = 0; c < model_.columns(output); ++c)
      if (!near(model_.got(output, row, c), want.value[c], model_.bound(output) * want.magnitude[c],
                1))
        return false;
    return true;
  }

  static bool near(double got, double want, double error, double slack) {
    if (std::isnan(want)) return std::isnan(got);
    if (std::isinf(want)) return got == want;
    return std::fabs(got - want) <= slack * error + 1e-37;
  }

  // What the output holds after the call.
  Row row_of(const Computation& how, const Blocks& blocks, const Place& at) {
    Row row = model_.row(how, blocks, at.output, at.row);
    const Old old =
        model_.unwritten(how, blocks, at.output, at.row) ? Old::kKept : how.old[at.output];
    if (old == Old::kReplaced) return row;
    for (std::size_t c = 0; c < row.value.size(); ++c) {
      row.value[c] = model_.fill() + (old == Old::kAddedTo ? row.value[c] : 0);
      row.magnitude[c] += std::fabs(model_.fill());
    }
    return row;
  }

  bool fits(const Computation& how, const Blocks& blocks) {
    if (model_.leaves_memory(how)) return is_probe;  // what it would read is not known
    model_.forget();
    std::size_t compared = 0;
    double left = 0, before = 0;  // squares of the distances to it and to what is right
    for (const std::vector<Place>* places : {&wrong_, &right_})
      for (const Place& at : *places) {
        const Row row = row_of(how, blocks, at);
        if (!row.reliable) continue;
        compared += places == &wrong_;
        const Row& right = truth(at);
        for (Index c = 0; c < model_.columns(at.output); ++c) {
          const double got = model_.got(at.output, at.row, c);
          if (!near(got, row.value[c], model_.bound(at.output) * row.magnitude[c], kSlack))
            return false;
          if (places == &right_) continue;
          if (!std::isfinite(got) || !std::isfinite(right.value[c])) {
            if (std::isfinite(got) != std::isfinite(right.value[c])) before = kInfinity;
            continue;
          }
          left += (got - row.value[c]) * (got - row.value[c]);
          before += (got - right.value[c]) * (got - right.value[c]);
        }
      }
    // As wrong as the mistake makes it, and not just a little less exact than asked for.
    if (!is_wrong()) return true;
    return left <= 1e-2 * before && (is_probe || 2 * compared >= wrong_.size());
  }

  Model& model_;
  const std::vector<Blocks>& blocks_;
  std::vector<Place> wrong_, right_;
  std::map<std::pair<int, Index>, Row> truths_;
};

std::string joined(const std::vector<std::string>& parts, const std::string& between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

// The block sizes to try: what the call was told first.
std::vector<Blocks> block_sizes(Index queries, Index keys) {
  std::vector<Blocks> sizes{{queries > 0 ? queries : 16, keys > 0 ? keys : 16}};
  for (const Index block : {8, 16, 32, 64, 128})
    for (const Blocks& blocks : {Blocks{block, block}, Blocks{sizes[0].queries, block}})
      if (std::find(sizes.begin(), sizes.end(), blocks) == sizes.end()) sizes.push_back(blocks);
  return sizes;
}

// Problems so large that the search would take long; small cases fail as well.
bool too_large(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.queries * shape.keys * shape.head_dim > Index{1} << 26;
}

std::vector<Blocks> block_sizes_of(const SeenForward& seen) {
  std::vector<Blocks> sizes = block_sizes(seen.block_queries, seen.block_keys);
  if (seen.key_by_key) sizes.push_back({sizes[0].queries, 1});
  return sizes;
}
std::vector<Blocks> block_sizes_of(const SeenBackward& seen) {
  return block_sizes(0, seen.block_keys);
}

// A result, and which mistakes give it.
template <class Seen, class Model>
struct Match {
  explicit Match(const Seen& of)
      : seen(of), model(seen), blocks(block_sizes_of(seen)), matching(model, blocks) {}
  Seen seen;
  Model model;
  std::vector<Blocks> blocks;
  Matching<Model> matching;
};

// Other problems: blocks that are whole and ragged ones, and scores that are easy and hard.
std::vector<Probe> probes_for(const AttentionShape& failed, Index block_q, Index block_k) {
  constexpr Index kMost = 128;  // problems of larger blocks take seconds
  block_q = std::min(block_q, kMost), block_k = std::min(block_k, kMost);
  const Index heads = 2, d = std::min<Index>(failed.head_dim, 16);
  const AttentionShape ragged{2, heads, block_q + 5, 2 * block_k + 5, d},
      whole{1, heads, 2 * block_q, 2 * block_k, d};
  return {{ragged, Data::kNormal, 3},
          {whole, Data::kNormal, 3},
          {ragged, Data::kLargeScores, 3},
          {ragged, Data::kVeryNegative, 3},
          {whole, Data::kRising, 3},
          {{2, heads, 9, 11, std::min<Index>(d, 4)}, Data::kNormal, 3},
          {{1, 1, 2 * block_k + 5, block_q + 5, d}, Data::kNormal, 3}};
}

// One mistake, or two at once, by their names: which there are depends on the problem.
struct Suspect {
  std::vector<std::string> names;
  std::vector<std::size_t> blocks;  // the numbers of the block sizes with which it fits
};

// The block sizes with which these mistakes, of those that are known for the problem, give what was
// seen. A mistake that is not known there makes no difference there.
template <class Seen, class Model>
std::vector<std::size_t> fitting(Match<Seen, Model>& match, const std::vector<Mistake>& known,
                                 const std::vector<std::string>& names) {
  std::vector<Computation> ways(1);
  bool by_block = false;
  for (const std::string& name : names) {
    std::vector<Computation> more;
    for (const Mistake& mistake : known)
      for (std::size_t n = 0; mistake.name == name && n < ways.size(); ++n) {
        mistake.make(more.emplace_back(ways[n]));
        by_block |= mistake.by_block;
      }
    if (!more.empty()) ways = more;
  }
  for (const Computation& way : ways)
    if (const auto sizes = match.matching.fitting(way, by_block); !sizes.empty()) return sizes;
  return {};
}

template <class Seen, class Model>
Diagnosis diagnosis(const Seen& seen, const std::function<Seen(const Probe&)>& again) {
  static int left_to_explain = kExplained;
  if (too_large(seen.shape) || left_to_explain-- <= 0) return {};
  Match<Seen, Model> match(seen);
  if (!match.matching.is_wrong()) return {};
  const std::vector<Mistake> mistakes = mistakes_of(seen);
  std::map<std::string, const Mistake*> by_name;
  for (const Mistake& mistake : mistakes) by_name[mistake.name] = &mistake;

  std::vector<Suspect> suspects;
  const auto suspect = [&](const std::vector<std::string>& names) {
    const auto sizes = fitting(match, mistakes, names);
    if (!sizes.empty()) suspects.push_back({names, sizes});
  };
  for (const auto& [name, mistake] : by_name) suspect({name});
  static int left = kPairSearches;
  if (suspects.empty() &&
      left-- > 0)  // two at once, of different kinds, of which neither fits alone
    for (const auto& [one, first] : by_name)
      for (const auto& [two, second] : by_name)
        if (one < two && first->group != second->group && first->group != kAlone &&
            second->group != kAlone)
          suspect({one, two});

  if (suspects.empty()) return {};
  for (const Probe& probe : probes_for(seen.shape, match.blocks[0].queries, match.blocks[0].keys)) {
    Match<Seen, Model> other(again(probe));
    other.matching.is_probe = true;
    const std::vector<Mistake> known = mistakes_of(other.seen);
    std::erase_if(suspects, [&](Suspect& one) {
      const auto sizes = fitting(other, known, one.names);
      // Where the call was told a block size, it has to be the same one everywhere.
      if (seen.block_keys > 0)
        std::erase_if(one.blocks, [&](std::size_t size) {
          return std::find(sizes.begin(), sizes.end(), size) == sizes.end();
        });
      return sizes.empty() || one.blocks.empty();
    });
    if (suspects.empty()) return {};
  }
  std::vector<std::string> texts;
  for (const Suspect& one : suspects) {
    std::vector<std::string> parts;
    for (const std::string& name : one.names) parts.push_back(by_name[name]->text);
    texts.push_back(joined(parts, "; and "));
  }
  if (suspects.size() == 1)
    return {joined(suspects[0].names, " + "),
            (suspects[0].names.size() == 1 ? "The result is what this mistake gives: "
                                           : "The result is what two mistakes give together: ") +
                texts[0] + "."};
  if (suspects.size() > 3 || suspects[0].names.size() > 1) return {};
  return {"",
          "The result is what one of these mistakes gives, which the problems tried cannot tell "
          "apart: " +
              joined(texts, "; or ") + "."};
}

}  // namespace

template <>
Verdict explained(const std::string& wrong, const SeenForward& seen,
                  const std::function<SeenForward(const Probe&)>& again) {
  return {wrong.empty(), wrong, [=] { return diagnosis<SeenForward, ForwardModel>(seen, again); },
          [=] { return with_small_numbers(again); }};
}

template <>
Verdict explained(const std::string& wrong, const SeenBackward& seen,
                  const std::function<SeenBackward(const Probe&)>& again) {
  return {wrong.empty(), wrong, [=] { return diagnosis<SeenBackward, BackwardModel>(seen, again); },
          [=] { return with_small_numbers(again); }};
}

Tensor<double, 4> with_heads(const Tensor<double, 3>& x) {
  Tensor<double, 4> y({x.extent(0), 1, x.extent(1), x.extent(2)});
  std::copy_n(x.data(), x.size(), y.data());
  return y;
}

template <class T, int Rank>
Tensor<double, Rank> in_float64(TensorView<const T, Rank> x) {
  const auto elements = packed(x);
  Tensor<double, Rank> y(elements.shape());
  for (Index i = 0; i < y.size(); ++i) y.data()[i] = static_cast<double>(elements.data()[i]);
  return y;
}

#define FLASH_INSTANTIATE(T)                                     \
  template Tensor<double, 3> in_float64(TensorView<const T, 3>); \
  template Tensor<double, 4> in_float64(TensorView<const T, 4>)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(double);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash::harness
