// Implements mistakes.hpp. To add a mistake, add a line to mistakes_of(), what it changes to
// Computation (computation.hpp) and computation.cpp, and a hint for its name to hints.toml.
#include "harness/diagnosis/mistakes.hpp"

#include <limits>
#include <string>
#include <tuple>
#include <utility>

namespace flash::harness {
namespace {

constexpr double kLn2 = 0.6931471805599453;

// The groups of the mistakes.
enum Group {
  kScales = kAlone + 1,
  kMasks,
  kOnline,
  kDividing,
  kWhichKeys,
  kLseOnly,
  kIndexing,
  kGradient,
  kAdding,
  kOutputs
};

// For members that are arrays.
template <class Change>
Computation changed(Change change) {
  Computation how;
  change(how);
  return how;
}

const char* const kNames[5] = {"q", "k", "v", "d_out", "lse"};

std::vector<Mistake> common_mistakes(const AttentionShape& shape, const AttentionOptions& options,
                                     bool has_scores, bool backward) {
  std::vector<Mistake> list;
  const auto add = [&](int group, bool by_block, std::string name, std::string text,
                       const Computation& how) {
    list.push_back({std::move(name), std::move(text), group, by_block, how});
  };
  if (!has_scores) {
    const auto scale = [&](Scale which, const char* name, const char* text) {
      add(kScales, false, name, text, {.scale = which});
    };
    scale(Scale::kMissing, "scale missing", "the scores are not multiplied by the scale");
    scale(Scale::kTwice, "scale squared",
          "the scores are multiplied by the square of the scale, which is 1 / head_dim where no "
          "other scale is asked for: is it applied twice, or is a square root missing?");
    scale(Scale::kInverse, "divided by the scale", "the scores are divided by the scale");
    if (options.scale)
      scale(Scale::kDefault, "scale of the options ignored",
            "the scale is 1 / sqrt(head_dim), and not the one that the options ask for");
    const auto mask = [&](bool by_block, Mask which, const char* name, const char* text) {
      add(kMasks, by_block, name, text, {.mask = which});
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
        mask(true, Mask::kWholeTiles, "causal mask for whole blocks only",
             "a block of keys that the diagonal crosses is not masked: each query sees all keys of "
             "the blocks that the last query of its block sees");
      } else {
        for (const auto& [gradients, x] : {std::pair{Of::kDQ, "dQ"}, {Of::kDKAndDV, "dK and dV"}})
          for (const Mask which : {Mask::kMissing, Mask::kWholeBlocks, Mask::kWholeTiles,
                                   Mask::kWholeBlocksOfKeys, Mask::kWholeTilesOfKeys})
            add(kAlone, which != Mask::kMissing, std::string("causal mask missing in ") + x,
                std::string("keys that a query does not see add to ") + x,
                {.mask = which, .masked = gradients});
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
    // Of one tensor, or of k and v. A delta that was computed apart has the right d_out.
    const auto read = [&](const std::string& x, const std::vector<int>& which) {
      for (const bool delta_of_right : {false, true}) {
        if (delta_of_right && which[0] != 3) continue;
        const auto heads = [&](Head head, std::string name, std::string text) {
          if (shape.heads > 1)
            add(kIndexing, false, std::move(name), std::move(text), changed([&](Computation& c) {
                  for (const int n : which) c.head[n] = head;
                  c.delta_of_right = delta_of_right;
                }));
        };
        heads(Head::kFirst, "head 0 of " + x + " in every head", "every head reads head 0 of " + x);
        for (const Head head : {Head::kReversed, Head::kNext, Head::kBefore})
          heads(head, "another head of " + x,
                "each head reads another head of " + x + " than its own");
        if (shape.batch > 1)
          add(kIndexing, false, "batch 0 of " + x + " in every batch",
              "every batch reads batch 0 of " + x, changed([&](Computation& c) {
                for (const int n : which) c.batch_0[n] = true;
                c.delta_of_right = delta_of_right;
              }));
      }
    };
    for (int which = 0; which < (backward ? 4 : 3); ++which) read(kNames[which], {which});
    read("k and v", {1, 2});
  } else if (shape.batch > 1) {
    for (const auto& [x, which] : {std::pair{std::string("v"), 2}, {"x", 1}})
      add(kIndexing, false, "batch 0 of " + x + " in every batch",
          "every batch reads batch 0 of " + x,
          changed([which = which](Computation& c) { c.batch_0[which] = true; }));
  }
  const auto keys = [&](Keys which, bool by_block, const char* name, const char* text) {
    add(kWhichKeys, by_block, name, text, {.keys = which});
    if (backward) add(kWhichKeys, by_block, name, text, {.keys = which, .unwritten = true});
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

void add_float_inside_double(std::vector<Mistake>& list, const Precision& precision) {
  if (precision.largest > std::numeric_limits<float>::max())
    list.push_back({"float inside double",
                    "something is computed in float, and the tensors are double: look for float, a "
                    "number that ends in f, or a function like expf()",
                    kAlone,
                    false,
                    {.float_in_double = true}});
}

// Outputs that are added to, or not written at all, which only a probe can tell apart.
void add_old_contents(std::vector<Mistake>& list, const std::vector<std::string>& names) {
  for (unsigned set = 1; set < 1u << names.size(); ++set) {
    std::string which;
    for (std::size_t n = 0; n < names.size(); ++n)
      if (set >> n & 1) which += (which.empty() ? "" : " and ") + names[n];
    const auto all = [set](Old old) {
      return changed([&](Computation& c) {
        for (unsigned n = 0; n < 3; ++n)
          if (set >> n & 1) c.old[n] = old;
      });
    };
    list.push_back({which + " added to old contents",
                    "the result is added to what " + which +
                        " held before the call, which can be anything: set it to 0 first, or write "
                        "the result instead of adding it",
                    kOutputs, false, all(Old::kAddedTo)});
    list.push_back({which + " not written", "nothing is written to " + which, kOutputs, false,
                    all(Old::kKept)});
  }
}

// Tensors that are read, or outputs that are written, with the strides of others.
void add_strides(std::vector<Mistake>& list, const std::vector<const SeenTensor*>& read,
                 const std::vector<Misplaced>& written, bool has_scores) {
  const auto add = [&](int group, const std::string& x, const std::string& done,
                       const std::string& other, const Computation& how) {
    list.push_back({other.empty() ? x + " taken for contiguous"
                                  : x + " " + done + " with the strides of " + other,
                    other.empty()
                        ? x + " is " + done + " as if its elements lay next to each other: use " +
                              x + ".stride(), or index it as " + x + "(...)"
                        : x + " is " + done + " with the strides of " + other,
                    group, false, how});
  };
  for (std::size_t which = 0; which < read.size(); ++which)
    for (std::size_t n = 0; read[which] != nullptr && n < read[which]->by_others.size(); ++n)
      for (const bool delta_of_right : {false, true})
        if (!delta_of_right || which == 3)
          add(kIndexing, has_scores && which == 1 ? "x" : kNames[which], "read",
              read[which]->by_others[n].other, changed([&](Computation& c) {
                c.by_other[which] = static_cast<int>(n);
                c.delta_of_right = delta_of_right;
              }));
  for (std::size_t n = 0; n < written.size(); ++n)
    add(kAlone, written[n].name, "written", written[n].other, {.misplaced = static_cast<int>(n)});
}

}  // namespace

std::vector<Mistake> mistakes_of(const SeenForward& seen) {
  const bool has_scores = seen.has_scores;
  auto list = common_mistakes(seen.shape, seen.options, has_scores, false);
  const auto add = [&](int group, bool by_block, const char* name, const char* text,
                       const Computation& how) {
    list.push_back({name, text, group, by_block, how});
  };
  add(kWhichKeys, true, "padded keys counted",
      "keys past the last one are counted, with a score of 0", {.keys = Keys::kPadded});
  add(kWhichKeys, true, "values of the first block in every block",
      "the values of the first block of keys are used for every block",
      {.values = Values::kOfFirstBlock});
  if (!has_scores && seen.block_keys == 0)  // part 3's kernel alone has such a tile
    add(kWhichKeys, true, "values in the order of P_smem",
        "V is read in the order of the rows of P_smem, which is not that of the keys: row "
        "n * kLanes + lane of P_smem has the weights of key place<kKeys, kLanes>(lane, n)",
        {.values = Values::kInOrderOfLanes});
  add(kOnline, true, "accumulator not rescaled",
      "what was added up so far (the accumulator of P V) is not multiplied by alpha when the "
      "maximum grows",
      {.rescale_o = Rescale::kNone});
  add(kOnline, true, "sum not rescaled",
      "the sum l is not multiplied by alpha when the maximum grows", {.rescale_l = Rescale::kNone});
  add(kOnline, true, "neither sum nor accumulator rescaled",
      "neither the sum l nor the accumulator is multiplied by alpha when the maximum grows",
      {.rescale_o = Rescale::kNone, .rescale_l = Rescale::kNone});
  add(kOnline, true, "alpha inverted",
      "alpha is exp(m_new - m); it must be exp(m - m_new), which is at most 1",
      {.rescale_o = Rescale::kInverse, .rescale_l = Rescale::kInverse});
  add(kOnline, true, "alpha of the accumulator inverted",
      "the accumulator is multiplied by exp(m_new - m); it must be exp(m - m_new)",
      {.rescale_o = Rescale::kInverse});
  add(kOnline, true, "alpha of the sum inverted",
      "the sum l is multiplied by exp(m_new - m); it must be exp(m - m_new)",
      {.rescale_l = Rescale::kInverse});
  add(kOnline, true, "accumulator rescaled too late",
      "the accumulator is multiplied by alpha after P V of the block is added; it must be before",
      {.rescale_o = Rescale::kAfter});
  add(kOnline, true, "sum rescaled too late",
      "the sum l is multiplied by alpha after the block's weights are added; it must be before",
      {.rescale_l = Rescale::kAfter});
  add(kOnline, false, "maximum not subtracted", "the maximum is not subtracted from the scores",
      {.max = Max::kNone});
  for (const bool nan : {false, true})
    add(kOnline, false, "maximum starts at 0",
        "the running maximum starts at 0; it must start at -inf",
        {.max = Max::kFromZero, .nan_without_sum = nan});
  // The number may be one in base 2.
  for (const double start : {-1e3, -1e3 * kLn2, -1e4, -1e4 * kLn2, -1e9})
    for (const bool nan : {false, true})
      add(kAlone, false, "maximum starts at a finite number",
          "the running maximum starts at a number like -1e4 or -1e9, which scores may be far "
          "below; it must start at -inf",
          {.max = Max::kFromFinite, .finite = start, .nan_without_sum = nan});
  if (!has_scores && seen.options.causal)
    for (const double score : {-1e4, -1e6, -1e9})
      for (const double base : {1.0, kLn2})
        for (const Mask mask : {Mask::kFinite, Mask::kFiniteInTiles})
          add(kAlone, mask == Mask::kFiniteInTiles, "mask with a finite number",
              "masked keys have a score like -1e9 instead of -inf: where all others are smaller, "
              "they count",
              {.mask = mask, .finite = score * base});
  // The last two: lanes of part 3's kernel whose rows are 4 apart.
  for (const auto& [rows, apart] :
       {std::pair{0, 1}, {2, 1}, {4, 1}, {8, 1}, {16, 1}, {2, 4}, {4, 4}})
    for (const bool at_once : {false, true})
      for (const bool nan : {false, true})
        add(kAlone, true, "one maximum for several rows",
            "rows share one maximum; each row needs its own, since exp(S - m) becomes 0 where m is "
            "far above the row's scores",
            {.max = Max::kOfRows,
             .rows_of_max = rows,
             .between_rows = apart,
             .rows_at_once = at_once,
             .nan_without_sum = nan});
  for (const Base base : {Base::kTwo, Base::kTwoInWeights})
    add(kOnline, true, "exp2 without log2(e)",
        "the weights are exp2(S - m), and S is in base e: multiply it by log2(e)", {.base = base});
  add(kOnline, false, "exp of scores in base 2",
      "the weights are exp(S - m), and S was multiplied by log2(e): use exp2",
      {.base = Base::kEOfTwo});
  add(kAlone, true, "-inf minus -inf",
      "where a row has seen only -inf, m is -inf, and exp(-inf - -inf) is NaN: subtract 0 there",
      {.special = Special::kInfMinusInf});
  add(kAlone, false, "0 divided by 0",
      "a row without weights has the sum 0, and 0 / 0 is NaN: its result is 0",
      {.nan_without_sum = true});
  add(kAlone, false, "NaN scores left out",
      "a score that is NaN is left out, as if its weight were 0; it has to make its row NaN",
      {.special = Special::kNoNaNScores});
  add(kAlone, false, "NaN values left out",
      "a value that is NaN is left out; it has to reach the rows that see it",
      {.special = Special::kNoNaNValues});
  add(kAlone, false, "keys of weight 0 left out",
      "a key whose weight is 0 is left out; 0 * NaN is NaN, so that its value still counts",
      {.special = Special::kNoZeroWeights});
  if (!has_scores && seen.options.causal)
    for (const Special which : {Special::kMaskedValues, Special::kMaskedValuesOfBlock})
      add(kAlone, true, "values of masked keys counted",
          "masked keys have the weight 0, but their values are still multiplied by it, and 0 * NaN "
          "is NaN: leave these keys out of the sum",
          {.special = which});
  for (const auto& [which, name, text] :
       {std::tuple{RowsWritten::kWholeBlocks, "rows of the last, partial block not written",
                   "the rows behind the last whole block are not written"},
        {RowsWritten::kNotLastOfBlock, "last row of each block not written",
         "the last row of each block is not written"},
        {RowsWritten::kEveryOther, "every other row not written",
         "every other row of a block is not written"}})
    add(kOutputs, true, name, text, {.rows = which});
  add(kOnline, true, "maximum of the first block kept",
      "the maximum of the first block is kept; it must grow with each block",
      {.max = Max::kFrozen});
  // Of part 1's kernel, where lane 0 brings the alpha for all columns, and of part 3's.
  for (const Lanes& lanes :
       has_scores ? std::vector<Lanes>{{4, 1, 0}} : std::vector<Lanes>{{8, 4, 4}, {16, 4, 4}})
    add(kAlone, true, "maximum of one lane",
        "each lane has the maximum of its own keys only; the lanes of a row need the same one, "
        "which warp_max() finds",
        {.max = Max::kOfLane, .lanes = lanes});
  add(kOnline, true, "maximum of the block only",
      "the maximum is that of the block alone; it must take in the one before",
      {.max = Max::kOfBlock});
  add(kDividing, false, "not divided by the sum", "the result is not divided by the sum l",
      {.divide = Divide::kNone});
  add(kDividing, true, "divided by the sum in every step",
      "the accumulator is divided by the sum l after each block; it must be once, at the end",
      {.divide = Divide::kEveryStep});
  add(kDividing, true, "sum of the last block only",
      "the sum l is that of the last block; it must be that of all blocks",
      {.divide = Divide::kLastBlock});
  for (const auto& [which, name, text] :
       {std::tuple{Leak::kSum, "sum not reset", "the sum l"},
        {Leak::kMax, "maximum not reset", "the running maximum m"},
        {Leak::kAccumulator, "accumulator not reset", "the accumulator"},
        {Leak::kAll, "nothing reset", "m, l and the accumulator"}})
    add(kAlone, true, name,
        (std::string(text) + " still " + (which == Leak::kAll ? "have" : "has") +
         " what the block of rows before it left: it has to start anew for each block")
            .c_str(),
        {.leak = which});
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
      add(kLseOnly, false, name, text, {.lse = which});
  add_float_inside_double(list, seen.precision);
  add_strides(list, {has_scores ? nullptr : &seen.q, &seen.k, &seen.v}, seen.misplaced, has_scores);
  return list;
}

std::vector<Mistake> mistakes_of(const SeenBackward& seen) {
  auto list = common_mistakes(seen.shape, seen.options, false, true);
  const auto add = [&](int group, const char* name, const char* text, const Computation& how,
                       bool by_block = false) {
    list.push_back({name, text, group, by_block, how});
  };
  add(kGradient, "delta missing", "delta is missing: dS = P * (dP - delta)",
      {.delta = Delta::kMissing});
  add(kGradient, "delta added", "delta is added; it must be subtracted: dS = P * (dP - delta)",
      {.delta = Delta::kNegative});
  add(kGradient, "P missing in dS", "dS is dP - delta without P: dS = P * (dP - delta)",
      {.weights = Weights::kNoP});
  add(kGradient, "P without lse", "P is exp(S); it must be exp(S - lse)",
      {.weights = Weights::kUnnormalised});
  add(kGradient, "P in base 2 with lse in base e",
      "P is exp2(S - lse), and S and lse are in base e", {.weights = Weights::kBase2});
  add(kGradient, "dP from out", "dP is computed from out; it must be from d_out: dP = dO V^T",
      {.out_for_dp = true});
  add(kGradient, "dV from dS", "dV is computed from dS; it must be from P: dV = P^T dO",
      {.ds_for_dv = true});
  add(kGradient, "dK from P", "dK is computed from P; it must be from dS: dK = scale * dS^T Q",
      {.p_for_dk = true});
  add(kGradient, "dK from K", "dK is computed from K; it must be from Q: dK = scale * dS^T Q",
      {.k_for_dk = true});
  for (const auto& [which, name, text] :
       {std::tuple{Delta::kFirstHalf, "delta of half the columns",
                   "delta sums up the first half of the columns only"},
        {Delta::kOfLane, "delta of one lane",
         "delta is the sum over one lane's columns only; warp_sum() adds up those of all lanes"},
        {Delta::kLastColumn, "delta overwritten",
         "each column overwrites delta; it must add to it"},
        {Delta::kHead0, "delta with head 0 of out", "delta is computed with head 0 of out"}})
    if (which != Delta::kHead0 || seen.shape.heads > 1)
      add(kGradient, name, text, {.delta = which});
  add(kWhichKeys, "last query left out", "the last query is left out", {.no_last_query = true});
  add(kAlone, "NaN scores left out",
      "a score that is NaN is left out, as if its weight were 0; it has to reach the gradients",
      {.special = Special::kNoNaNScores});
  if (seen.options.causal)
    for (const Special which : {Special::kMaskedValues, Special::kMaskedValuesOfBlock})
      add(kAlone, "masked keys counted with weight 0",
          "masked keys have P = 0 and are still multiplied by it, and 0 * NaN is NaN: leave them "
          "out",
          {.special = which}, true);
  add(kAlone, "rows without weights counted",
      "a row whose lse is -inf weighs no key, but exp(S - -inf) is inf: leave it out",
      {.special = Special::kEmptyRows});
  for (const auto& [name, dk, dv] : {std::tuple{"dK not reset", true, false},
                                     {"dV not reset", false, true},
                                     {"dK and dV not reset", true, true}})
    add(kAlone, name,
        "the sums of a block of keys begin with what the block before it left: set them to 0 for "
        "each block",
        {.dk_left = dk, .dv_left = dv}, true);
  add(kAdding, "dV scaled", "dV is multiplied by the scale, which belongs to dQ and dK only",
      {.scaled_dv = true});
  add(kAdding, "dQ without the scale", "dQ is not multiplied by the scale: dQ = scale * dS K",
      {.scale_dq = Scale::kMissing});
  add(kAdding, "dK without the scale", "dK is not multiplied by the scale: dK = scale * dS^T Q",
      {.scale_dk = Scale::kMissing});
  add(kAdding, "dQ and dK without the scale",
      "dQ and dK are not multiplied by the scale: dQ = scale * dS K, dK = scale * dS^T Q",
      {.scale_dq = Scale::kMissing, .scale_dk = Scale::kMissing});
  add(kAdding, "dQ scaled twice", "dQ is multiplied by the scale twice",
      {.scale_dq = Scale::kTwice});
  add(kAdding, "dK scaled twice", "dK is multiplied by the scale twice",
      {.scale_dk = Scale::kTwice});
  add(kAdding, "dQ and dK scaled twice", "dQ and dK are multiplied by the scale twice",
      {.scale_dq = Scale::kTwice, .scale_dk = Scale::kTwice});
  add(kAdding, "dV overwritten", "each query overwrites dV; it must add to it",
      {.gather_dv = Gather::kLast});
  add(kAdding, "dK overwritten", "each query overwrites dK; it must add to it",
      {.gather_dk = Gather::kLast});
  add(kAdding, "dK and dV overwritten", "each query overwrites dK and dV; it must add to them",
      {.gather_dk = Gather::kLast, .gather_dv = Gather::kLast});
  add(kAdding, "dQ overwritten by each block",
      "each block of keys overwrites dQ; it must add to it", {.gather_dq = Gather::kLastBlock},
      true);
  add(kAdding, "dQ overwritten by each key", "each key overwrites dQ; it must add to it",
      {.gather_dq = Gather::kLast});
  std::vector<std::string> asked;
  for (const auto& [name, gradient] :
       {std::pair{"dQ", &seen.d_q}, {"dK", &seen.d_k}, {"dV", &seen.d_v}})
    if (gradient->size() > 0) asked.push_back(name);
  add_old_contents(list, asked);
  add_float_inside_double(list, seen.precision);
  std::vector<Misplaced> written;
  for (const auto& [output, gradient] : {std::pair{0, &seen.d_q}, {1, &seen.d_k}, {2, &seen.d_v}})
    for (const Misplaced& one : seen.misplaced)
      if (one.output == output && gradient->size() > 0) written.push_back(one);
  add_strides(list, {&seen.q, &seen.k, &seen.v, &seen.d_out, &seen.lse}, written, false);
  return list;
}
}  // namespace flash::harness
