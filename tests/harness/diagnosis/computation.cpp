// Implements computation.hpp.
#include "harness/diagnosis/computation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace flash::harness {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
    case Mask::kWholeTiles:
      return j / block_k * block_k < std::min(i / block_q * block_q + block_q, shape.queries);
    case Mask::kWholeBlocksOfKeys: return j / block_k * block_k <= i;
    case Mask::kWholeTilesOfKeys:  // block_q keys are a block, and block_k queries
      return i / block_k * block_k + block_k > shape.queries ? j <= i : j / block_q * block_q <= i;
    case Mask::kFirstOfBlock: return j <= i / block_q * block_q;
    case Mask::kNeedless:
    case Mask::kFinite:
    case Mask::kFiniteInTiles: return j <= i && j < shape.keys;
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

// Which lane has number n, where each in turn has the next `each`.
Index lane_of(Index n, Index each, Index lanes) { return n / each % lanes; }

// The row of part 3's P_smem that has the weights of key j of the block, where 8 lanes share the
// keys: given/forward_tile.hpp.
Index row_of_P(Index j, Index block) {
  constexpr Index kLanes = 8;
  const Index vector = std::clamp<Index>(block / kLanes, 1, 4);
  return (j / (kLanes * vector) * vector + j % vector) * kLanes + lane_of(j, vector, kLanes);
}

// Reads a seen tensor as a computation does.
class Reader {
 public:
  Reader(const SeenTensor& tensor, int which) : tensor_(tensor), which_(which) {}
  bool leaves_memory(const Computation& how) const {
    return how.by_other[which_] >= 0 && values(how).size() == 0;
  }
  const Tensor<double, 4>& values(const Computation& how) const {
    const int other = how.by_other[which_];
    return other < 0 ? tensor_.values : tensor_.by_others[static_cast<std::size_t>(other)].values;
  }
  const double* row(const Computation& how, Index b, Index h, Index i) const {
    return &values(how)(how.batch_0[which_] ? 0 : b, head(how, h), i, 0);
  }

 private:
  Index head(const Computation& how, Index h) const {
    const Index heads = tensor_.values.extent(1);
    switch (how.head[which_]) {
      case Head::kOwn: return h;
      case Head::kFirst: return 0;
      case Head::kReversed: return heads - 1 - h;
      case Head::kNext: return (h + 1) % heads;
      case Head::kBefore: return (h + heads - 1) % heads;
    }
    return h;
  }

  const SeenTensor& tensor_;
  int which_;
};

double dot(const double* a, const double* b, Index n) {
  double sum = 0;
  for (Index c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}

// The forward pass. Output 0 is out, 1 is lse.
class ForwardModel : public Model {
 public:
  explicit ForwardModel(const SeenForward& seen)
      : seen_(seen), q_(seen.q, 0), k_(seen.k, 1), v_(seen.v, 2) {
    const auto& [batch, heads, queries, keys, head_dim] = seen.shape;
    const Index rows = batch * heads * queries;
    fill = seen.fill, misplaced = seen.misplaced;
    outputs = {{seen.out.data(), rows, columns(), seen.precision.bound}};
    if (seen.lse.size() > 0) outputs.push_back({seen.lse.data(), rows, 1, seen.lse_bound});
    if (!seen.has_scores) scale_ = attention_scale(seen.options, head_dim);
  }

  bool leaves_memory(const Computation& how) const override {
    return q_.leaves_memory(how) || k_.leaves_memory(how) || v_.leaves_memory(how);
  }
  void forget() override { left_.clear(); }
  bool unwritten(const Computation& how, const Blocks& blocks, int, Index row) const override {
    const Index queries = seen_.shape.queries, i = row % queries, of_block = i % blocks.queries;
    switch (how.rows) {
      case RowsWritten::kAll: return false;
      case RowsWritten::kWholeBlocks: return i >= queries / blocks.queries * blocks.queries;
      case RowsWritten::kNotLastOfBlock: return of_block == blocks.queries - 1 || i == queries - 1;
      case RowsWritten::kEveryOther: return of_block % 2 == 1;
    }
    return false;
  }

  Row row(const Computation& how, const Blocks& blocks, int output, Index row) override {
    State state = finished(how, blocks, row);
    const double l = how.divide == Divide::kLastBlock ? state.l_block : state.l;
    if (output == 1) return lse_row(how, state);
    // A row that has no keys either is another mistake's.
    const bool gives_nan = how.nan_without_sum && (how.max == Max::kRight || state.has_keys);
    Row result{state.o, state.size, state.reliable || state.overflown};
    if (how.divide != Divide::kNone && how.divide != Divide::kEveryStep)
      for (Index c = 0; c < columns(); ++c) {
        result.value[c] = l == 0 && !gives_nan ? 0 : result.value[c] / l;
        if (result.magnitude[c] != Row::kUnknown)
          result.magnitude[c] = l == 0 ? 0 : result.magnitude[c] / std::fabs(l);
      }
    return result;
  }

 private:
  Index columns() const { return seen_.v.values.extent(3); }

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
    const std::array<Index, 7> key{
        b,
        h,
        i,
        how.by_other[0],
        how.by_other[1],
        static_cast<Index>(how.head[0]) * 8 + static_cast<Index>(how.head[1]),
        how.batch_0[0] + 2 * how.batch_0[1]};
    auto [found, is_new] = scores_.try_emplace(key);
    if (is_new) {
      found->second.resize(static_cast<std::size_t>(seen_.shape.keys));
      for (Index j = 0; j < seen_.shape.keys; ++j)
        found->second[j] = seen_.has_scores ? k_.row(how, b, h, i)[j]
                                            : dot(q_.row(how, b, h, i), k_.row(how, b, h, j),
                                                  seen_.shape.head_dim);
    }
    return found->second;
  }

  // The largest score that the rows which share a maximum with row i have in a block of keys; of
  // those behind it in the block before, where they come later.
  double most_of_rows(const Computation& how, const Blocks& blocks, Index b, Index h, Index i,
                      Index j0, double factor) {
    const Index block = i / blocks.queries * blocks.queries,
                rows = how.rows_of_max == 0 ? blocks.queries : how.rows_of_max,
                apart = how.between_rows, of_block = i - block,
                first = block + of_block / (rows * apart) * rows * apart + of_block % apart,
                last = std::min(first + rows * apart, block + blocks.queries);
    double most = -kInfinity;
    for (Index row = first; row < last; row += apart) {
      if (row >= seen_.shape.queries) {  // lanes have their scores, which are 0
        if (apart > 1) most = std::fmax(most, 0.0);
        break;
      }
      const Index begin = row <= i || how.rows_at_once ? j0 : j0 - blocks.keys;
      if (begin < 0) continue;
      const auto [found, is_new] = most_of_block_.try_emplace(
          std::array<Index, 5>{b, h, row, begin, blocks.keys}, -kInfinity);
      if (is_new) {
        const Index visible = seen_.shape.visible_keys(row, seen_.options.causal);
        const auto& S = scores(how, b, h, row);
        for (Index j = begin; j < std::min(begin + blocks.keys, visible); ++j)
          found->second = std::fmax(found->second, factor * S[static_cast<std::size_t>(j)]);
      }
      most = std::fmax(most, found->second);
    }
    return most;
  }

  // After the last key of the row. With what the rows before it in its place left, where they do.
  State finished(const Computation& how, const Blocks& blocks, Index row) {
    const Index queries = seen_.shape.queries, i = row % queries;
    State state;
    if (how.max == Max::kOfLane) return attended_by_lanes(how, blocks, row);
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

  // With a maximum for each lane, of its own keys, where the lanes of a row should share one.
  State attended_by_lanes(const Computation& how, const Blocks& blocks, Index row) {
    const AttentionShape& shape = seen_.shape;
    const Index columns = this->columns(), i = row % shape.queries,
                h = row / shape.queries % shape.heads, b = row / shape.queries / shape.heads;
    const Index visible = shape.visible_keys(i, seen_.options.causal), lanes = how.lanes.count,
                each = std::min(how.lanes.keys, std::max<Index>(blocks.keys / lanes, 1));
    const double largest = seen_.precision.largest;
    const auto& S = scores(how, b, h, i);
    State state;
    state.o.assign(columns, 0), state.size.assign(columns, 0);
    std::vector<double> m(lanes, -kInfinity), l(lanes, 0), alpha(lanes);
    for (Index j0 = 0; j0 < visible; j0 += blocks.keys) {
      const Index end = std::min(j0 + blocks.keys, visible);
      std::vector<double> m_new = m;
      for (Index j = j0; j < end; ++j) {
        double& most = m_new[lane_of(j - j0, each, lanes)];
        most = std::fmax(most, scale_ * S[j]);
      }
      const auto weight = [&](Index lane, double score) {
        return exp_in(score - (m_new[lane] == -kInfinity ? 0 : m_new[lane]), largest);
      };
      for (Index lane = 0; lane < lanes; ++lane) l[lane] *= alpha[lane] = weight(lane, m[lane]);
      for (Index c = 0; c < columns; ++c) {
        const double shrink =
            alpha[how.lanes.columns > 0 ? lane_of(c, how.lanes.columns, lanes) : 0];
        state.o[c] *= shrink, state.size[c] *= shrink;
      }
      for (Index j = j0; j < end; ++j) {
        const Index lane = lane_of(j - j0, each, lanes);
        const double P = weight(lane, scale_ * S[j]);
        const double* const V = v_.row(how, b, h, j);
        l[lane] += P;
        for (Index c = 0; c < columns; ++c)
          state.o[c] += P * V[c], state.size[c] += std::fabs(P * V[c]);
      }
      m = m_new;
    }
    for (const double sum : l) state.l += sum;
    state.m = m[0];
    return state;
  }

  State attended(const Computation& how, const Blocks& blocks, Index row, const State& before) {
    const AttentionShape& shape = seen_.shape;
    const Index columns = this->columns(), i = row % shape.queries,
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
    double factor =
        seen_.has_scores ? 1 : scaled(how.scale, scale_, static_cast<double>(shape.head_dim));
    if (how.base == Base::kTwo) factor *= std::log(2.0);
    if (how.base == Base::kEOfTwo) factor /= std::log(2.0);
    const double in_weights = how.base == Base::kTwoInWeights ? std::log(2.0) : 1;
    const Index padded = (shape.keys + blocks.keys - 1) / blocks.keys * blocks.keys;
    const bool in_tiles = how.mask == Mask::kFiniteInTiles;
    const Index end = how.keys == Keys::kPadded || in_tiles ? padded : shape.keys;
    const Index last_row = std::min((i / blocks.queries + 1) * blocks.queries, shape.queries) - 1;
    std::vector<double> weight(static_cast<std::size_t>(blocks.keys));
    bool first = true;
    for (Index j0 = 0; j0 < end; j0 += blocks.keys) {
      const Index count = std::min(blocks.keys, end - j0);
      const auto is_counted = [&](Index j) {
        return counted(how.keys, shape, j0 + j, blocks.keys) &&
               sees(how, shape, seen_.options.causal, i, j0 + j, blocks.queries, blocks.keys);
      };
      const bool finite = how.mask == Mask::kFinite || (in_tiles && j0 <= last_row);
      const auto score = [&](Index j) {
        if (j0 + j >= shape.keys && how.keys == Keys::kPadded) return 0.0;
        if (!is_counted(j)) return finite ? how.finite : -kInfinity;
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
        if (in_tiles && !is_counted(j)) continue;
        if (weight[j] == 0 && !reads_masked) {  // of a key that is not seen, whatever its value
          const double s = score(j);
          if (s == -kInfinity && factor * S[static_cast<std::size_t>(j0 + j)] != -kInfinity)
            continue;
          if (finite && !is_counted(j)) continue;  // a mistake of its own
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
      if (state.unsure[c] && !std::isnan(state.o[c])) state.size[c] = Row::kUnknown;
    return state;
  }

  const SeenForward& seen_;
  Reader q_, k_, v_;
  double scale_ = 1;
  std::map<std::array<Index, 7>, std::vector<double>> scores_;
  std::map<std::array<Index, 5>, double> most_of_block_;  // of a row's scores
  std::map<std::pair<Index, Index>, State> left_;
};

// The backward pass. Outputs: dQ, dK and dV, those that were asked.
class BackwardModel : public Model {
 public:
  explicit BackwardModel(const SeenBackward& seen)
      : seen_(seen),
        q_(seen.q, 0),
        k_(seen.k, 1),
        v_(seen.v, 2),
        d_out_(seen.d_out, 3),
        lse_(seen.lse, 4),
        scale_(attention_scale(seen.options, seen.shape.head_dim)) {
    fill = seen.fill;
    for (const auto& [name, gradient] :
         {std::pair{kDQ, &seen.d_q}, {kDK, &seen.d_k}, {kDV, &seen.d_v}})
      if (gradient->size() > 0) {
        const Index columns = gradient->extent(3);
        for (const Misplaced& one : seen.misplaced)
          if (one.output == name) {
            misplaced.push_back(one);
            misplaced.back().output = static_cast<int>(outputs.size());
          }
        outputs.push_back(
            {gradient->data(), gradient->size() / columns, columns, seen.precision.bound});
        names_.push_back(name);
      }
  }

  bool leaves_memory(const Computation& how) const override {
    return q_.leaves_memory(how) || k_.leaves_memory(how) || v_.leaves_memory(how) ||
           d_out_.leaves_memory(how) || lse_.leaves_memory(how);
  }
  bool unwritten(const Computation& how, const Blocks& blocks, int output,
                 Index row) const override {
    return how.unwritten && names_[output] != kDQ &&
           !counted(how.keys, seen_.shape, row % seen_.shape.keys, blocks.keys);
  }

  Row row(const Computation& how, const Blocks& blocks, int output, Index row) override {
    Row result = own_row(how, blocks, output, row);
    const bool left = names_[output] == kDK ? how.dk_left : names_[output] == kDV && how.dv_left;
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
  enum Gradient { kDQ, kDK, kDV };

  Row own_row(const Computation& how, const Blocks& blocks, int output, Index row) {
    const AttentionShape& shape = seen_.shape;
    const bool of_query = names_[output] == kDQ, is_dv = names_[output] == kDV;
    const Index count = of_query ? shape.queries : shape.keys, own = row % count,
                h = row / count % shape.heads, b = row / count / shape.heads;
    const Index d = shape.head_dim, others = of_query ? shape.keys : shape.queries;
    Row result{std::vector<double>(d, 0), std::vector<double>(d, 0)};
    const Gather gather = of_query ? how.gather_dq : is_dv ? how.gather_dv : how.gather_dk;
    const Index last_block = blocks.keys * ((shape.keys - 1) / blocks.keys);
    for (Index other = 0; other < others; ++other) {
      const Index i = of_query ? own : other, j = of_query ? other : own;
      const double lse = lse_.values(how)(b, 0, h, i);
      if (lse == -kInfinity && how.special != Special::kEmptyRows) continue;
      const bool mask_is_right = how.masked != Of::kAll && (how.masked == Of::kDQ) != of_query;
      const bool visible =
          mask_is_right ? j < shape.visible_keys(i, seen_.options.causal)
                        : sees(how, shape, seen_.options.causal, i, j, blocks.queries, blocks.keys);
      const bool reads_masked =
          how.special == Special::kMaskedValues ||
          (how.special == Special::kMaskedValuesOfBlock && j / blocks.keys * blocks.keys <= i);
      if ((!visible && !reads_masked) || !counted(how.keys, shape, j, blocks.keys) ||
          (how.no_last_query && i == shape.queries - 1))
        continue;
      if (gather == Gather::kLastBlock && j < last_block_of(how, i, blocks, last_block)) continue;
      const double S = scaled(how.scale, scale_, static_cast<double>(d)) *
                       dot(q_.row(how, b, h, i), k_.row(how, b, h, j), d);
      const double argument = how.weights == Weights::kUnnormalised ? S : S - lse;
      const bool left_out = how.special == Special::kNoNaNScores && std::isnan(S);
      const double P =
          left_out || !visible
              ? 0
              : exp_in(how.weights == Weights::kBase2 ? argument * std::log(2.0) : argument,
                       seen_.precision.largest);
      result.reliable &= !(P >= 1e-8 * seen_.precision.largest) ||
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
                last = how.delta == Delta::kFirstHalf ? (d + 1) / 2 : d,
                step = how.delta == Delta::kOfLane ? 32 : 1;
    double delta = 0, size = 0;
    for (Index c = first; c < last; c += step)
      delta += out[c] * dO[c], size += std::fabs(out[c] * dO[c]);
    return {delta, size};
  }

  const SeenBackward& seen_;
  Reader q_, k_, v_, d_out_, lse_;
  double scale_;
  std::vector<Gradient> names_;  // of the outputs
};
}  // namespace

std::unique_ptr<Model> model_of(const SeenForward& seen) {
  return std::make_unique<ForwardModel>(seen);
}
std::unique_ptr<Model> model_of(const SeenBackward& seen) {
  return std::make_unique<BackwardModel>(seen);
}

}  // namespace flash::harness
