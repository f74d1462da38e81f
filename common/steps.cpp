#include "common/steps.hpp"

namespace flash {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// exp(x) of a type whose largest number is `largest`.
double exp_in(double x, double largest) {
  const double e = std::exp(x);
  return e > largest ? kInfinity : e < 1 / largest / 16777216 ? 0 : e;
}

void multiply(std::vector<double>& x, double factor) {
  for (double& value : x) value *= factor;
}

}  // namespace

Scores::OfPass& Scores::read_by(const Read& q, const Read& k, std::size_t rows) {
  for (const Known& known : known_)
    if (known.q == q && known.k == k) return *known.scores;
  known_.push_back({q, k, std::make_unique<OfPass>(rows)});
  return *known_.back().scores;
}

// ---- Both passes --------------------------------------------------------------------------------

Pass::Pass(const Given& given, Scores& scores, const Steps& steps, const Blocks& blocks)
    : given_(given),
      steps_(steps),
      blocks_(blocks),
      shape_(given.shape),
      scores_(scores.read_by(
          steps.read[kQ], steps.read[kK],
          static_cast<std::size_t>(given.shape.batch * given.shape.heads * given.shape.queries))) {
  if (!given.has_scores) scale_ = attention_scale(given.options, shape_.head_dim);
}

const double* Pass::operand(Operand which, Index b, Index h, Index i) const {
  const Read& read = steps_.read[which];
  const Tensor<double, 4>& tensor = *(read.from != nullptr ? read.from : given_.tensors[which]);
  return &tensor(read.batch(b), read.head(h, tensor.extent(1)), read.row(i), 0);
}

const std::vector<double>& Pass::scores(Index b, Index h, Index i) {
  std::vector<double>& row = scores_[(b * shape_.heads + h) * shape_.queries + i];
  if (row.empty() && shape_.keys > 0) {
    row.resize(shape_.keys);
    for (Index j = 0; j < shape_.keys; ++j)
      row[j] = given_.has_scores ? operand(kK, b, h, i)[j]
                                 : dot(operand(kQ, b, h, i), operand(kK, b, h, j), shape_.head_dim);
  }
  return row;
}

std::unique_ptr<Pass> pass_of(const Given& given, Scores& scores, const Steps& steps,
                              const Blocks& blocks) {
  if (given.tensors[kDOut] != nullptr)
    return std::make_unique<BackwardPass>(given, scores, steps, blocks);
  return std::make_unique<ForwardPass>(given, scores, steps, blocks);
}

// ---- The forward pass ---------------------------------------------------------------------------

StepRow ForwardPass::row(Output output, Index row) {
  if (steps_.whole_row) {
    const Index head = row / shape_.queries;
    std::vector<double> S = scores(head / shape_.heads, head % shape_.heads, row % shape_.queries);
    multiply(S, steps_.scale(scale_, shape_.head_dim));
    return steps_.whole_row(given_, S, output, row);
  }
  const Accumulator at = steps_.begin ? after_the_rows_before(row) : attended(row, nullptr);
  StepRow result{.reliable = at.reliable || at.overflown};
  const Index i = row % shape_.queries;
  const Pair own{shape_, blocks_, given_.options.causal, output, i, 0};
  const auto sum = [&](Index c) {
    return steps_.divisor
               ? steps_.divisor(own, c, [&](Index query) { return sum_of_row(row - i + query); })
               : sum_of_lanes(at, std::max<Index>(c, 0));
  };
  if (output == Output::kLse) {
    const auto [value, size] = steps_.lse(at.m[0], sum(-1), scale_);
    const double rounding = std::isfinite(value) ? 0x1p-22 * std::fabs(value) : 0;
    return {
        {value}, {1 + rounding / given_.lse_bound}, result.reliable && size != StepRow::kUnknown};
  }
  for (Index c = 0; c < columns(); ++c) {
    const auto [value, size] = steps_.divided({at.O[c], at.size[c]}, sum(c), at.has_keys);
    result.value.push_back(value), result.magnitude.push_back(size);
  }
  for (const Index c : at.unsure)
    if (!std::isnan(at.O[c])) result.magnitude[c] = StepRow::kUnknown;
  return result;
}

double ForwardPass::sum_of_lanes(const Accumulator& at, Index column) const {
  if (!steps_.share_sum) return at.l[steps_.lane_of_column(column)];
  double l = 0;
  for (const double of_lane : at.l) l += of_lane;
  return l;
}

// 0 where a tile has a row and the problem has none.
double ForwardPass::sum_of_row(Index row) {
  const Index rows = shape_.batch * shape_.heads * shape_.queries;
  if (row < 0 || row >= rows) return 0;
  if (sums_.empty()) sums_.assign(rows, kUnknown);
  if (std::isnan(sums_[row])) sums_[row] = sum_of_lanes(attended(row, nullptr), 0);
  return sums_[row];
}

Trace ForwardPass::trace(Index row) {
  Trace trace;
  attended(row, nullptr, &trace);
  return trace;
}

Accumulator ForwardPass::after_the_rows_before(Index row) {
  const Index queries = shape_.queries, slot = row % queries % blocks_.queries;
  if (left_.empty()) left_.resize(shape_.batch * shape_.heads * queries);
  const Accumulator* left = nullptr;
  for (Index other = slot; other < row; ++other) {
    if (other % queries % blocks_.queries != slot) continue;
    if (left_[other] == nullptr)
      left_[other] = std::make_unique<Accumulator>(attended(other, left));
    left = left_[other].get();
  }
  return attended(row, left);
}

double& Online::known_in_block(std::vector<double>& known, Index query, Index j0) const {
  const AttentionShape& shape = pass.shape_;
  const Index keys = pass.blocks_.keys, blocks = (shape.keys + keys - 1) / keys;
  if (known.empty()) known.assign(shape.batch * shape.heads * shape.queries * blocks, kUnknown);
  return known[((b * shape.heads + h) * shape.queries + query) * blocks + j0 / keys];
}

double Online::largest_score(Index query, Index j0) const {
  double& largest = known_in_block(pass.largest_, query, j0);
  if (std::isnan(largest)) {
    largest = -kInfinity;
    const std::vector<double>& QK = pass.scores(b, h, query);
    const Index end = std::min(j0 + first.blocks.keys,
                               first.shape.visible_keys(query + first.mask_offset, first.causal));
    for (Index j = j0; j < end; ++j) largest = std::fmax(largest, pass.scale_ * QK[j]);
  }
  return largest;
}

template <class Next>
double Online::over_blocks(std::vector<double>& known, Index query, Index end, double none,
                           const Next& next) const {
  const Index keys = first.blocks.keys;
  Index j0 = (end + keys - 1) / keys * keys;
  while (j0 > 0 && std::isnan(known_in_block(known, query, j0 - keys))) j0 -= keys;
  double all = j0 > 0 ? known_in_block(known, query, j0 - keys) : none;
  for (; j0 < end; j0 += keys) known_in_block(known, query, j0) = all = next(all, j0);
  return all;
}

double Online::maximum_before(Index query, Index end) const {
  return over_blocks(pass.maxima_, query, end, -kInfinity, [&](double most, Index j0) {
    return std::fmax(most, largest_score(query, j0));
  });
}

double Online::sum_before(Index query, Index end) const {
  return over_blocks(pass.sums_to_blocks_, query, end, 0,
                     [&](double before, Index j0) { return before + sum_of(query, j0); });
}

double Online::alpha_of(Index query) const {
  if (query >= first.shape.queries) return 0;
  const double m_old = maximum_before(query, first.j),
               m_now = std::fmax(m_old, largest_score(query, first.j));
  return exp_in(m_old - pass.steps_.reference(m_now), pass.given_.largest);
}

double Online::weight_of(Index query, Index key) const {
  return weight_in_block(query, first.j, key);
}

double Online::weight_in_block(Index query, Index j0, Index key) const {
  const AttentionShape& shape = first.shape;
  const Index j = j0 + key;
  if (query >= shape.queries || j >= shape.visible_keys(query + first.mask_offset, first.causal))
    return 0;
  const double m_now = maximum_before(query, j0 + 1);
  return exp_in(pass.scale_ * pass.scores(b, h, query)[j] - pass.steps_.reference(m_now),
                pass.given_.largest);
}

double Online::sum_of(Index query, Index j0) const {
  double& known = known_in_block(pass.sums_of_blocks_, query, j0);
  if (std::isnan(known)) {
    known = 0;
    for (Index key = 0; key < first.blocks.keys; ++key) known += weight_in_block(query, j0, key);
  }
  return known;
}

Accumulator ForwardPass::attended(Index row, const Accumulator* left, Trace* trace) {
  const Index columns = this->columns(), lanes = steps_.lanes, i = row % shape_.queries,
              h = row / shape_.queries % shape_.heads, b = row / shape_.queries / shape_.heads;
  const double largest = given_.largest, tiny = 1e6 / largest, huge = 1e-6 * largest,
               scale = steps_.scale(scale_, shape_.head_dim);
  Accumulator all;
  all.m.assign(lanes, steps_.first_maximum), all.l.assign(lanes, 0);
  all.O.assign(columns, 0), all.size.assign(columns, 0);
  all.tile.assign(blocks_.keys, 0);
  if (left != nullptr) steps_.begin(all, *left);

  const std::vector<double>& QK = scores(b, h, i);
  const Index end = steps_.end(shape_.keys, blocks_.keys);
  Pair at{shape_, blocks_, given_.options.causal, Output::kOut, i, 0};
  at.mask_offset = given_.mask_offset;
  std::vector<double> S(blocks_.keys), P(blocks_.keys), reference(lanes);
  std::vector<char> counted(blocks_.keys);
  std::vector<Online> of_lane;
  bool is_first = true;
  for (Index j0 = 0; j0 < end; j0 += blocks_.keys) {
    const Index count = std::min(blocks_.keys, end - j0);
    at.j = j0;
    const Pair first = at;
    of_lane.clear();
    for (Index lane = 0; lane < lanes; ++lane)
      of_lane.push_back({*this, b, h, first, is_first, -kInfinity, all.m[lane], all.l[lane]});
    const auto lane_of = [&](Index j) {
      return lanes == 1 ? 0 : steps_.lane_of_key(j, blocks_.keys);
    };
    bool any_counts = false, any_is_finite = false;
    for (Index j = 0; j < count; ++j) {
      at.j = j0 + j;
      const bool exists = at.j < shape_.keys;
      const Index row_of_K = steps_.row_of_K(at);
      all.reliable &= row_of_K >= 0;  // of no tile before
      at.S = row_of_K >= 0 && row_of_K < shape_.keys ? scale * QK[row_of_K] : 0;
      if (steps_.begun) at.S = steps_.begun(at.S, scale, all.tile[j]);
      counted[j] = at.counted = exists && steps_.visits(at) && steps_.sees(at);
      S[j] = at.counted ? at.S : steps_.masked(at);
      any_counts |= at.counted, any_is_finite |= S[j] != -kInfinity;
      Online& online = of_lane[lane_of(j)];
      online.of_block = std::fmax(online.of_block, S[j]);
      if (at.counted) online.least = std::fmin(online.least, S[j]);
    }
    all.has_keys |= any_is_finite;
    if (steps_.share_maximum)
      for (Online& online : of_lane)
        for (const Online& other : of_lane)
          online.of_block = std::fmax(online.of_block, other.of_block);
    const bool is_computed = steps_.computes(first, any_counts, any_is_finite,
                                             std::fmax(of_lane[0].m, of_lane[0].of_block));
    if (is_computed) {
      for (Index lane = 0; lane < lanes; ++lane) {
        Online& online = of_lane[lane];
        online.m_new = steps_.maximum(online);
        reference[lane] = steps_.reference(online.m_new);
        online.alpha = exp_in(online.m - reference[lane], largest);
        // Where nothing was added up yet 0 stays 0. (Or all is NaN, which has many causes.)
        online.inverse = std::isfinite(online.m) ? exp_in(reference[lane] - online.m, largest) : 0;
      }
      for (Index j = 0; j < count; ++j) {
        const Index lane = lane_of(j);
        of_lane[lane].sum += P[j] = exp_in(steps_.exponent(S[j], reference[lane]), largest);
      }
      for (Online& online : of_lane) {
        const double l = steps_.sum(online), sum = online.sum;
        online.l = all.l[&online - of_lane.data()] = l;
        for (const double size : {sum, l})
          all.reliable &=
              !(size > 0 && size < tiny && size > 1e-12 * l) && !(size > huge && size < kInfinity);
        all.overflown |= std::isinf(sum) || std::isinf(l);  // however close it was before
      }
      const auto multiply_O = [&](const Step<double(const Online&)>& step) {
        const double factor = step(of_lane[0]);
        if (lanes == 1) return multiply(all.O, factor), multiply(all.size, factor);
        for (Index c = 0; c < columns; ++c) {
          const double own = step(of_lane[steps_.lane_of_column(c)]);
          all.O[c] *= own, all.size[c] *= own;
        }
      };
      if (!steps_.before_PV_of) multiply_O(steps_.before_PV);
      for (Index c = 0; steps_.before_PV_of && c < columns; ++c) {
        const double own = steps_.before_PV_of(of_lane[0], c);
        all.O[c] *= own, all.size[c] *= own;
      }
      for (Index j = 0; j < count; ++j) {
        at.j = j0 + j, at.counted = counted[j];
        if (!steps_.adds(at, P[j])) continue;
        const Index row_of_V = steps_.row_of_V(at);
        if (row_of_V < 0 || row_of_V >= shape_.keys) continue;  // a tile has zeros there
        const double weight = steps_.weight ? steps_.weight(of_lane[0], j) : P[j];
        const double* const V = operand(kV, b, h, row_of_V);
        if (steps_.PV)
          steps_.PV(weight, V, largest, all);
        else
          add(all.O.data(), weight, V, columns), add_sizes(all.size.data(), weight, V, columns);
      }
      for (Index j = count; steps_.adds_stale && j0 > 0 && j < blocks_.keys; ++j) {
        const double* const V = operand(kV, b, h, j0 + j - blocks_.keys);
        add(all.O.data(), all.tile[j], V, columns);
        add_sizes(all.size.data(), all.tile[j], V, columns);
      }
      multiply_O(steps_.after_PV);
      if (steps_.after_block) steps_.after_block(all);
      for (Index lane = 0; lane < lanes; ++lane) all.m[lane] = steps_.stored_maximum(of_lane[lane]);
      is_first = false;
    }
    for (Index j = 0; j < count; ++j)
      if (counted[j]) all.tile[j] = is_computed ? P[j] : 0;
    if (trace == nullptr) continue;
    for (Index j = 0; j < count && counted[j]; ++j)
      trace->S.push_back(S[j]), trace->P.push_back(is_computed ? P[j] : 0);
    trace->blocks.push_back({is_computed ? of_lane[0].alpha : 1, all.m[0], all.l[0], all.O});
  }
  return all;
}

// ---- The backward pass --------------------------------------------------------------------------

Weight BackwardPass::weight(Output output, Index b, Index h, Index i, Index j) {
  const Pair pair{shape_, blocks_, given_.options.causal, output, i, j};
  bool is_known = true;
  const auto row = [&](const Step<Index(const Pair&)>& other) {
    const Index of = other ? other(pair) : i;
    is_known &= of < shape_.queries;  // else of memory behind the tensor
    return std::min(of, shape_.queries - 1);
  };
  const Index of_delta = row(steps_.row_of_delta), of_lse = row(steps_.row_of_lse);
  Weight at{pair,
            *this,
            b,
            h,
            of_delta,
            is_known,
            operand(kLse, b, 0, h)[of_lse],
            0,
            operand(kQ, b, h, i),
            operand(kK, b, h, j),
            operand(kDOut, b, h, i)};
  const double scale = steps_.scale(scale_, shape_.head_dim);
  at.S = scale * scores(b, h, i)[j];
  if (steps_.place) {
    if (left_P_.empty()) find_left();
    if (steps_.begun) at.S = steps_.begun(at.S, scale, left_P_[at.number()]);
  }
  at.counted = steps_.has_weights(at.lse) && steps_.visits(at) && steps_.sees(at);
  if (at.counted) at.P = exp_in(steps_.exponent(at.S, at.lse), given_.largest);
  return at;
}

const double* Weight::row_of(Operand which, Index row) const {
  return pass.operand(which, b, h, row);
}
Sized Weight::delta() const {
  const AttentionShape& of = pass.shape_;
  if (pass.deltas_.empty()) pass.deltas_.assign(of.batch * of.heads * of.queries, {kUnknown, -1});
  Sized& known = pass.deltas_[(b * of.heads + h) * of.queries + row_of_delta];
  if (known.size == -1)
    known = pass.steps_.delta(pass.operand(kOut, b, h, row_of_delta),
                              pass.operand(kDOutForDelta, b, h, row_of_delta), of.head_dim);
  return known;
}
Sized Weight::dP() const {
  const Sized own =
      sized_dot(pass.operand(kDOutForDP, b, h, i), pass.operand(kV, b, h, j), shape.head_dim);
  return pass.steps_.keeps_dP ? own + pass.left_dP_[number()] : own;
}
Index Weight::number() const {
  return ((b * shape.heads + h) * shape.queries + i) * shape.keys + j;
}
double Weight::P_of(Index query) const {
  return query < shape.queries ? pass.weight(output, b, h, query, j).P : 0;
}
Sized Weight::dS() const { return pass.steps_.dS(P, dP(), delta()); }

// In the order of a loop over blocks of keys, and in it over the queries.
void BackwardPass::find_left() {
  const auto& [batch, heads, queries, keys, head_dim] = shape_;
  left_P_.resize(batch * heads * queries * keys), left_dP_.resize(left_P_.size(), 0);
  std::vector<double> P(queries * keys);
  std::vector<Sized> dP(P.size(), 0);
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index j0 = 0; j0 < keys; j0 += blocks_.keys)
        for (Index i = 0; i < queries; ++i)
          for (Index j = j0; j < std::min(j0 + blocks_.keys, keys); ++j) {
            const Index n = ((b * heads + h) * queries + i) * keys + j;
            const Index place =
                steps_.place({shape_, blocks_, given_.options.causal, Output::kDV, i, j});
            left_P_[n] = P[place], left_dP_[n] = dP[place];
            const Weight at = weight(Output::kDV, b, h, i, j);
            if (at.counted) P[place] = at.P, dP[place] = at.dP();
          }
}

StepRow BackwardPass::own_row(Output output, Index row) {
  const bool of_query = output == Output::kDQ;
  const Index count = of_query ? shape_.queries : shape_.keys, own = row % count,
              h = row / count % shape_.heads, b = row / count / shape_.heads, d = shape_.head_dim,
              others = of_query ? shape_.keys : shape_.queries;
  const double times = steps_.times(output, scale_);
  StepRow result{std::vector<double>(d, 0), std::vector<double>(d, 0)};
  Index last_key = -1;
  for (Index other = 0; other < others; ++other) {
    const Weight at =
        of_query ? weight(output, b, h, own, other) : weight(output, b, h, other, own);
    if (!steps_.adds(at, at.P) || !steps_.has_weights(at.lse)) continue;
    result.reliable &= at.is_known;
    // Products overflow earlier.
    result.reliable &= !(at.P >= 1e-8 * given_.largest) || std::isinf(at.lse);
    if (steps_.replaces && steps_.replaces(at, last_key)) result.value.assign(d, 0);
    last_key = at.j;
    const Sized factor = steps_.factor(at) * times;
    const double* const with = steps_.with(at);
    add(result.value.data(), factor.value, with, d);
    add_sizes(result.magnitude.data(), factor.size, with, d);
  }
  return result;
}

StepRow BackwardPass::row(Output output, Index row) {
  StepRow result = own_row(output, row);
  if (!steps_.keeps || !steps_.keeps(output)) return result;
  const Index keys = shape_.keys, slot = row % keys % blocks_.keys;
  for (Index before = steps_.keeps_in_head ? row - row % keys : 0; before < row; ++before) {
    if (before % keys % blocks_.keys != slot) continue;
    const StepRow left = own_row(output, before);
    for (std::size_t c = 0; c < result.value.size(); ++c)
      result.value[c] += left.value[c], result.magnitude[c] += left.magnitude[c];
  }
  return result;
}

}  // namespace flash
