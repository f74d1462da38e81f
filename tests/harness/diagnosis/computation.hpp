// The oracle's formulas with mistakes built in: what attention gives where something is wrong about
// it, in float64, a row of an output at a time.
#pragma once

#include <memory>
#include <vector>

#include "harness/diagnosis/seen.hpp"

namespace flash::harness {

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
  kWholeTiles,  // up to the end of the last block of keys, too
  kFirstOfBlock,
  kFinite,         // a score in place of -inf
  kFiniteInTiles,  // in the blocks that are computed: also past the last key
  kNeedless,
  // Of the backward pass.
  kNotDiagonal,
  kNotFirstQuery,
  kWholeBlocksOfKeys,  // all keys of a block that the query sees one of
  kWholeTilesOfKeys    // but for the queries of the last, partial block
};
enum class Max { kRight, kNone, kFromZero, kFromFinite, kFrozen, kOfBlock, kOfRows, kOfLane };
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
enum class Delta { kRight, kMissing, kNegative, kFirstHalf, kLastColumn, kOfLane, kHead0 };
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
enum class Head { kOwn, kFirst, kReversed, kNext, kBefore };  // which is read
enum class Of { kAll, kDQ, kDKAndDV };                        // gradients

// How the lanes of a warp that share a row share its keys and columns: lane 0 has the first `keys`
// keys, lane 1 the next ones, and so on, round and round. Of the columns too, or lane 0 has them
// all.
struct Lanes {
  Index count, keys, columns;
};

// The computation, with whatever is wrong about it. Each group of members is one thing to get
// right: two mistakes at once are of two groups.
struct Computation {
  Scale scale = Scale::kRight;
  Mask mask = Mask::kRight;
  Of masked = Of::kAll;  // whose mask is wrong
  Max max = Max::kRight;
  Rescale rescale_o = Rescale::kRight, rescale_l = Rescale::kRight;
  Divide divide = Divide::kRight;
  Base base = Base::kE;
  double finite = 0;             // the start of Max::kFromFinite, or the score of a Mask::kFinite
  Lanes lanes = {};              // of Max::kOfLane
  Index rows_of_max = 0;         // that share one, of Max::kOfRows; 0: those of a block
  Index between_rows = 1;        // that share one: how far apart they are
  bool rows_at_once = false;     // each sees this block's scores of the rows behind it, too
  bool nan_without_sum = false;  // 0 / 0 where a row has no weights
  Special special = Special::kRight;
  bool float_in_double = false;  // what is right, as exact as float
  Keys keys = Keys::kAll;
  bool unwritten = false;  // what belongs to the keys that are left out
  RowsWritten rows = RowsWritten::kAll;
  Values values = Values::kRight;
  Leak leak = Leak::kNone;
  Lse lse = Lse::kRight;
  // How q, k, v, d_out and lse are read.
  Head head[5] = {};
  bool batch_0[5] = {};
  int by_other[5] = {-1, -1, -1, -1, -1};  // which of the tensor's by_others
  Old old[3] = {};     // what each output held before: out and lse, or dQ, dK and dV
  int misplaced = -1;  // which of what was seen
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

// A row of an output, and how large the terms are that it is the sum of.
struct Row {
  static constexpr double kUnknown = -1;  // as a magnitude: any value may be in its place
  std::vector<double> value, magnitude;
  bool reliable = true;  // false where rounding decides, next to underflow or overflow
};

// What a call was seen to give, and what computations would have given in its place.
class Model {
 public:
  struct Output {
    const double* got;
    Index rows, columns;
    double bound;
  };

  virtual ~Model() = default;
  virtual Row row(const Computation& how, const Blocks& blocks, int output, Index row) = 0;
  virtual bool leaves_memory(const Computation& how) const = 0;
  virtual bool unwritten(const Computation& how, const Blocks& blocks, int output,
                         Index row) const = 0;
  virtual void forget() {}  // before row() is asked for another computation, or with other blocks

  std::vector<Output> outputs;
  std::vector<Misplaced> misplaced;
  double fill = kPoisoned;  // what the outputs held before the call
};

// They keep a reference to what was seen.
std::unique_ptr<Model> model_of(const SeenForward& seen);
std::unique_ptr<Model> model_of(const SeenBackward& seen);

}  // namespace flash::harness
