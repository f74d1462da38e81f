// Attention in float64, one row of an output at a time, in steps that can be replaced: what the
// formulas give when one of their steps is replaced by another, and how they come to it. When
// nothing is replaced, it gives what the oracle (oracle.hpp) computes in faster loops of its own.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "common/attention.hpp"

namespace flash {

// How many queries and keys are taken at a time.
struct Blocks {
  Index queries = 0, keys = 0;
};

// A sum, and how large its terms are together.
struct Sized {
  double value, size;
  Sized(double x) : Sized(x, std::fabs(x)) {}
  Sized(double x, double of_terms) : value(x), size(of_terms) {}
};
inline Sized operator+(Sized a, Sized b) { return {a.value + b.value, a.size + b.size}; }
inline Sized operator-(Sized a, Sized b) { return {a.value - b.value, a.size + b.size}; }
inline Sized operator*(Sized a, Sized b) { return {a.value * b.value, a.size * b.size}; }

inline Sized operator/(Sized a, double b) { return {a.value / b, a.size / std::fabs(b)}; }

// The sum of term(0), ..., term(n - 1), in eight sums side by side: in one, each addition would
// wait for the one before it.
template <class Term>
double sum_of(Index n, Term term) {
  constexpr Index kLanes = 8;
  double lanes[kLanes] = {};
  const Index whole = n - n % kLanes;
  for (Index c = 0; c < whole; c += kLanes)
    for (Index lane = 0; lane < kLanes; ++lane) lanes[lane] += term(c + lane);
  for (Index c = whole; c < n; ++c) lanes[c - whole] += term(c);
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}
inline double dot(const double* a, const double* b, Index n) {
  return sum_of(n, [&](Index c) { return a[c] * b[c]; });
}
inline double dot_of_sizes(const double* a, const double* b, Index n) {
  return sum_of(n, [&](Index c) { return std::fabs(a[c] * b[c]); });
}
inline Sized sized_dot(const double* a, const double* b, Index n) {
  return {dot(a, b, n), dot_of_sizes(a, b, n)};
}
// out += weight * x; and the sizes of these terms.
inline void add(double* out, double weight, const double* x, Index n) {
  for (Index c = 0; c < n; ++c) out[c] += weight * x[c];
}
inline void add_sizes(double* out, double weight, const double* x, Index n) {
  for (Index c = 0; c < n; ++c) out[c] += std::fabs(weight * x[c]);
}

enum class Output { kOut, kLse, kDQ, kDK, kDV };

// What a pass reads. A backward pass reads d_out for dV, for dP and for delta.
enum Operand { kQ, kK, kV, kOut, kLse, kDOut, kDOutForDP, kDOutForDelta, kOperands };

struct Given {
  AttentionShape shape;
  AttentionOptions options = {};
  std::array<const Tensor<double, 4>*, kOperands> tensors = {};  // lse: (batch, 1, heads, queries)
  bool has_scores = false;                              // softmax(X) V: k holds X, and q is empty
  double largest = std::numeric_limits<double>::max();  // number of the type that computes
  double lse_bound = 1;                                 // the largest error of an lse of 0
  Index mask_offset = 0;                                // query i sees the keys up to this + i
};

// How an operand is read.
struct Read {
  const Tensor<double, 4>* from = nullptr;  // nullptr: the operand itself
  Index (*batch)(Index b) = [](Index b) { return b; };
  Index (*head)(Index h, Index heads) = [](Index h, Index) { return h; };
  Index (*row)(Index i) = [](Index i) { return i; };
  bool operator==(const Read&) const = default;
};

// A query and a key that meet.
struct Pair {
  const AttentionShape& shape;
  const Blocks& blocks;
  bool causal;
  Output output;  // that is computed
  Index i, j;
  double S = 0;
  bool counted = false;  // whether it is visited and the query sees the key
  Index mask_offset = 0;

  bool is_visible() const { return !causal || j <= i + mask_offset; }
  Index first_key() const { return j / blocks.keys * blocks.keys; }  // of the block
  Index first_query() const { return i / blocks.queries * blocks.queries; }
  Index end_of_queries() const { return std::min(first_query() + blocks.queries, shape.queries); }
};

class ForwardPass;
class BackwardPass;

// The online softmax of a row, at a block of keys.
struct Online {
  ForwardPass& pass;
  Index b, h;
  const Pair& first;  // key of the block
  bool is_first;      // of the blocks that are computed
  double of_block;    // the largest score
  double m, l;
  double m_new = 0, alpha = 0, inverse = 0;  // alpha: exp(m - m_new); inverse: exp(m_new - m)
  double sum = 0;                            // of the block's weights
  double least = std::numeric_limits<double>::infinity();  // of the block's scores

  // Of another query of this head: its largest score in the block of keys that begins with j0, the
  // sum of its weights there, and in the blocks that begin before `end`, the factor alpha that it
  // has at this block, and the weight of the block's key number `key`.
  FLASH_EXPORT double largest_score(Index query, Index j0) const;
  FLASH_EXPORT double sum_of(Index query, Index j0) const;
  FLASH_EXPORT double sum_before(Index query, Index end) const;
  FLASH_EXPORT double alpha_of(Index query) const;
  FLASH_EXPORT double weight_of(Index query, Index key) const;

 private:
  double& known_in_block(std::vector<double>& known, Index query, Index j0) const;
  double weight_in_block(Index query, Index j0, Index key) const;
  double maximum_before(Index query, Index end) const;
  // Goes on from the last block that is known: from the first one each time it would be quadratic.
  template <class Next>
  double over_blocks(std::vector<double>& known, Index query, Index end, double none,
                     const Next& next) const;
};

struct Accumulator {
  std::vector<double> m, l;  // of each of Steps::lanes
  std::vector<double> O, size;
  std::vector<double> tile = {};  // the weights that a line of the tile holds
  std::vector<Index> unsure;      // columns where rounding decides whether there is a NaN
  bool reliable = true, overflown = false, has_keys = false;
};

// An element of P, in a backward pass.
struct Weight : Pair {
  BackwardPass& pass;
  Index b, h, row_of_delta;
  bool is_known;
  double lse, P;
  const double *Q, *K, *dO;

  FLASH_EXPORT const double* row_of(Operand which, Index row) const;
  FLASH_EXPORT Sized delta() const;
  FLASH_EXPORT Sized dP() const;
  FLASH_EXPORT Sized dS() const;
  FLASH_EXPORT double P_of(Index query) const;  // with the same key
  Index number() const;                         // of the pair, in row-major order
};

// A row of an output.
struct StepRow {
  static constexpr double kUnknown = -1;  // as a magnitude: any value may be in its place
  static constexpr double kAnyNaN = -2;   // the same of a NaN: it may be old contents, too
  std::vector<double> value = {}, magnitude = {};
  bool reliable = true;  // false where rounding decides, next to underflow or overflow
};

struct Written {
  Output output;
  Index row;
  const AttentionShape& shape;
  const Blocks& blocks;
  double fill;                                        // what was there before
  const std::function<const StepRow&(Index)>& right;  // any row of this output, as it has to be
};

template <class Function>
using Step = std::function<Function>;

// The steps, as they are right. Where one is empty nothing is done.
struct Steps {
  std::array<Read, kOperands> read = {};

  // S = scale * Q K^T, of the keys that are visited and seen.
  Step<double(double scale, Index head_dim)> scale = [](double asked, Index) { return asked; };
  Step<Index(Index keys, Index block_keys)> end = [](Index keys, Index) { return keys; };
  Step<bool(const Pair&)> visits = [](auto&) { return true; };
  Step<bool(const Pair&)> sees = [](auto& at) { return at.is_visible(); };
  // The score, from the right one and from what its place in the tile held before.
  Step<double(double S, double scale, double left)> begun = {};
  Step<double(const Pair&)> masked = [](auto&) { return -std::numeric_limits<double>::infinity(); };
  Step<Index(const Pair&)> row_of_K = [](auto& at) { return at.j; };
  // Whether anything is done for a block of keys. NaN is finite here, and the maximum drops it.
  Step<bool(const Pair& first, bool any_counts, bool any_is_finite, double maximum)> computes =
      [](auto&, bool, bool any_is_finite, double) { return any_is_finite; };

  // The online softmax.
  Index lanes = 1;  // that have a sum of their own: of which keys and columns
  bool share_maximum = false, share_sum = true;  // in the end the sum is that of all lanes
  Step<Index(Index key_of_block, Index block_keys)> lane_of_key = [](Index, Index) { return 0; };
  Step<Index(Index column)> lane_of_column = [](Index) { return 0; };
  double first_maximum = -std::numeric_limits<double>::infinity();
  // What a row begins with, and what the block of rows before left in its place.
  Step<void(Accumulator& begin, const Accumulator& left)> begin = {};
  Step<double(const Online&)> maximum = [](auto& at) { return std::fmax(at.m, at.of_block); };
  Step<double(const Online&)> stored_maximum = [](auto& at) { return at.m_new; };
  Step<double(double m)> reference = [](double m) { return std::isinf(m) && m < 0 ? 0 : m; };
  Step<double(double S, double m)> exponent = [](double S, double m) { return S - m; };  // of P
  Step<double(const Online&)> sum = [](auto& at) { return at.l * at.alpha + at.sum; };
  Step<double(const Online&)> before_PV = [](auto& at) { return at.alpha; };  // times O
  Step<double(const Online&)> after_PV = [](auto&) { return 1.0; };
  Step<void(Accumulator&)> after_block = {};
  Step<double(const Online&, Index column)> before_PV_of = {};  // in place of before_PV
  Step<double(const Online&, Index key)> weight = {};           // in place of P, in P V alone
  Step<bool(const Pair&, double P)> adds = [](auto& at, double P) { return at.counted || P != 0; };
  Step<Index(const Pair&)> row_of_V = [](auto& at) { return at.j; };
  bool adds_stale = false;  // O += P V of a whole tile, with what the block before left in it
  // O += P V, of one key, in another way.
  Step<void(double P, const double* V, double largest, Accumulator&)> PV = {};
  // What divides O, from the sums l of all queries; column -1: lse.
  Step<double(const Pair&, Index column, const std::function<double(Index query)>& l)> divisor = {};
  Step<Sized(Sized O, double l, bool has_keys)> divided = [](Sized O, double l, bool) {
    return l == 0 ? Sized(0) : O / l;
  };
  Step<Sized(double m, double l, double scale)> lse = [](double m, double l, double) {
    return Sized(m + std::log(l), 1);
  };
  // A row of the forward pass from its scores, by other steps than these.
  Step<StepRow(const Given&, const std::vector<double>& S, Output, Index row)> whole_row = {};

  // The backward pass, where P is exp(exponent(S, lse)).
  // Of a pair's P and dP, which hold those of earlier pairs; -1: they hold nothing.
  Step<Index(const Pair&)> place = {};
  bool keeps_dP = false;  // dP is added to what its place holds
  Step<Index(const Pair&)> row_of_lse = {}, row_of_delta = {};  // in place of the query's
  Step<bool(double lse)> has_weights = [](double x) { return !(std::isinf(x) && x < 0); };
  Step<Sized(const double* out, const double* dO, Index head_dim)> delta = sized_dot;
  Step<Sized(Sized P, Sized dP, Sized delta)> dS = [](Sized P, Sized dP, Sized D) {
    return P * (dP - D);
  };
  // A gradient is the sum of factor * times * the row `with`.
  Step<Sized(const Weight&)> factor = [](auto& at) {
    return at.output == Output::kDV ? Sized(at.P) : at.dS();
  };
  Step<double(Output, double scale)> times = [](Output of, double asked) {
    return of == Output::kDV ? 1 : asked;
  };
  Step<const double*(const Weight&)> with = [](auto& at) {
    return at.output == Output::kDQ ? at.K : at.output == Output::kDK ? at.Q : at.dO;
  };
  Step<bool(const Weight&, Index last_key)> replaces = {};  // what was added up so far
  Step<bool(Output)> keeps = {};                            // what the block of keys before left
  bool keeps_in_head = false;                               // if it is of the same head

  // The outputs.
  Step<void(const Written&, StepRow&)> write = {};
  bool leaves_memory = false;  // what is read is not known
  bool is_float = false;       // right, and as exact as float
};

// How a row of out came about.
struct Trace {
  std::vector<double> S, P;  // of the keys before the first that is masked
  struct Block {
    double alpha, m, l;
    std::vector<double> O;  // not divided yet
  };
  std::vector<Block> blocks;
};

// Q K^T, row by row, for each way to read them: whatever else differs between passes.
class Scores {
 public:
  using OfPass = std::vector<std::vector<double>>;
  FLASH_EXPORT OfPass& read_by(const Read& q, const Read& k, std::size_t rows);

 private:
  struct Known {
    Read q, k;
    std::unique_ptr<OfPass> scores;
  };
  std::vector<Known> known_;
};

// A pass that goes by these steps. It keeps references to all that it is made of.
class FLASH_EXPORT Pass {
 public:
  Pass(const Given& given, Scores& scores, const Steps& steps, const Blocks& blocks);
  virtual ~Pass() = default;
  virtual StepRow row(Output output, Index row) = 0;

 protected:
  const double* operand(Operand which, Index b, Index h, Index i) const;
  const std::vector<double>& scores(Index b, Index h, Index i);
  Index columns() const { return given_.tensors[kV]->extent(3); }

  const Given& given_;
  const Steps& steps_;
  const Blocks blocks_;
  const AttentionShape& shape_;
  double scale_ = 1;

 private:
  Scores::OfPass& scores_;
};

class FLASH_EXPORT ForwardPass : public Pass {
 public:
  using Pass::Pass;
  StepRow row(Output output, Index row) override;
  Trace trace(Index row);

 private:
  friend struct Online;
  Accumulator attended(Index row, const Accumulator* left, Trace* trace = nullptr);
  Accumulator after_the_rows_before(Index row);

  double sum_of_lanes(const Accumulator& at, Index column) const;
  double sum_of_row(Index row);

  // Of each query and block of keys; NaN: not known yet.
  std::vector<double> largest_, sums_of_blocks_;
  std::vector<double> maxima_, sums_to_blocks_;  // of that block and all before it
  std::vector<double> sums_;                     // l of each query; NaN: not known yet
  std::vector<std::unique_ptr<Accumulator>> left_;
};

class FLASH_EXPORT BackwardPass : public Pass {
 public:
  using Pass::Pass;
  StepRow row(Output output, Index row) override;
  Weight weight(Output output, Index b, Index h, Index i, Index j);

 private:
  friend struct Weight;
  StepRow own_row(Output output, Index row);

  void find_left();

  std::vector<Sized> deltas_;  // of each query; NaN: not known yet
  // What the place of each pair's P and dP held before; empty: not known yet.
  std::vector<double> left_P_;
  std::vector<Sized> left_dP_;
};

FLASH_EXPORT std::unique_ptr<Pass> pass_of(const Given& given, Scores& scores, const Steps& steps,
                                           const Blocks& blocks);

}  // namespace flash
