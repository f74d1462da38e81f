// Implements small_problem.hpp.
#include "harness/diagnosis/small_problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "harness/diagnosis/computation.hpp"

namespace flash::harness {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlack = 2;     // times the bound, which is that of the whole problem
constexpr int kMostRuns = 400;   // of the code under test, in the search
constexpr Index kMostRows = 16;  // of a table, without those in its middle
constexpr Index kMostColumns = 2;
constexpr Blocks kBlocks{16, 16};  // what is right does not depend on them

using Line = std::vector<std::string>;

// ---- Text ---------------------------------------------------------------------------------------

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", x == 0 ? 0.0 : x);
  return std::isnan(x) ? "nan" : text;
}

std::string vector_of(const double* x, Index n) {
  std::string text;
  for (Index c = 0; c < std::min(n, kMostColumns); ++c) text += (c ? " " : "") + number(x[c]);
  return n > kMostColumns ? text + " ..." : text;
}

// Aligned to the right.
std::string table(const std::vector<Line>& lines) {
  std::vector<std::size_t> width;
  for (const Line& line : lines)
    for (std::size_t n = 0; n < line.size(); ++n) {
      if (n == width.size()) width.push_back(0);
      width[n] = std::max(width[n], line[n].size());
    }
  std::string text;
  for (const Line& line : lines) {
    std::string row = " ";
    for (std::size_t n = 0; n < line.size(); ++n)
      row += "  " + std::string(width[n] - line[n].size(), ' ') + line[n];
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

// Without those in the middle where there are many: a line each for the first and the last ones.
std::string table_of_rows(const Line& heading, Index count,
                          const std::function<Line(Index)>& line) {
  std::vector<Line> lines{heading};
  for (Index n = 0; n < count; ++n) {
    if (count > kMostRows && n == kMostRows / 2) {
      lines.push_back({"..."});
      n = count - kMostRows / 2;
    }
    lines.push_back(line(n));
  }
  return table(lines);
}

// `expected` beside `found`, and the first difference marked.
std::string beside(const std::string& name, const std::vector<double>& expected,
                   const double* found, Index first, const Line& more = {}) {
  std::vector<Line> lines{{"", "expected", "found"}};
  const Index count = static_cast<Index>(expected.size());
  for (Index c = 0; c < count; ++c) {
    if (c >= kMostColumns && c != first) continue;
    lines.push_back({name + "(" + std::to_string(c) + ")", number(expected[c]), number(found[c]),
                     c == first ? "<-- the first difference" : ""});
  }
  if (!more.empty()) lines.push_back(more);
  return table(lines);
}

std::string head_of(const AttentionShape& shape, Index b, Index h) {
  std::string text;
  if (shape.batch > 1) text += "batch " + std::to_string(b) + ", ";
  if (shape.heads > 1) text += "head " + std::to_string(h) + ", ";
  return text;
}

// ---- What is right ------------------------------------------------------------------------------

double dot(const double* a, const double* b, Index n) {
  double sum = 0;
  for (Index c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}

// Where the result differs first: the number of the model's output and of its row.
struct Place {
  std::size_t output;
  Index row, column;
  std::vector<double> want;  // the row
};

// Outputs `order`, one after the other.
std::optional<Place> first_difference(Model& model, const std::vector<std::size_t>& order) {
  for (const std::size_t output : order) {
    const auto& [got, rows, columns, bound] = model.outputs[output];
    for (Index row = 0; row < rows; ++row) {
      const Row want = model.row(Computation(), kBlocks, static_cast<int>(output), row);
      for (Index c = 0; c < columns; ++c) {
        const double value = want.value[c], found = got[row * columns + c];
        const bool near = std::isnan(value)   ? std::isnan(found)
                          : std::isinf(value) ? found == value
                                              : std::fabs(found - value) <=
                                                    kSlack * bound * want.magnitude[c] + 1e-37;
        if (!near) return Place{output, row, c, want.value};
      }
    }
  }
  return std::nullopt;
}
std::optional<Place> first_difference(const SeenForward& seen) {
  const auto model = model_of(seen);
  return first_difference(
      *model, seen.lse.size() > 0 ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{0});
}

// The gradients that were asked for, as the model has them.
std::vector<std::pair<std::string, const Tensor<double, 4>*>> asked(const SeenBackward& seen) {
  std::vector<std::pair<std::string, const Tensor<double, 4>*>> gradients{
      {"dQ", &seen.d_q}, {"dK", &seen.d_k}, {"dV", &seen.d_v}};
  std::erase_if(gradients, [](const auto& gradient) { return gradient.second->size() == 0; });
  return gradients;
}

// dV, then dK, then dQ: each needs what the one before it needs, and more.
std::optional<Place> first_difference(const SeenBackward& seen) {
  std::vector<std::size_t> order;
  for (std::size_t n = asked(seen).size(); n > 0; --n) order.push_back(n - 1);
  return first_difference(*model_of(seen), order);
}

// Of one row, from the keys before `end`: O is not divided by l yet.
struct AttendedRow {
  Index visible;  // keys
  std::vector<double> S, P, O;
  double m = -kInfinity, l = 0;
};

AttendedRow attended(const SeenForward& seen, Index b, Index h, Index i, Index end) {
  const AttentionShape& shape = seen.shape;
  const bool has_scores = seen.has_scores;
  const Index columns = seen.v.values.extent(3), d = shape.head_dim;
  AttendedRow row{.visible = std::min(end, shape.visible_keys(i, seen.options.causal))};
  for (Index j = 0; j < row.visible; ++j) {
    row.S.push_back(has_scores
                        ? seen.k.values(b, h, i, j)
                        : attention_scale(seen.options, d) *
                              dot(&seen.q.values(b, h, i, 0), &seen.k.values(b, h, j, 0), d));
    row.m = std::fmax(row.m, row.S.back());
  }
  row.O.assign(columns, 0);
  for (Index j = 0; j < row.visible; ++j) {
    const double P = row.S[j] == -kInfinity ? 0 : std::exp(row.S[j] - row.m);
    row.P.push_back(P);
    row.l += P;
    if (P == 0 && row.S[j] == -kInfinity && row.m == -kInfinity) continue;
    for (Index c = 0; c < columns; ++c) row.O[c] += P * seen.v.values(b, h, j, c);
  }
  return row;
}

// One weight of the backward pass.
struct Weight {
  bool seen;
  double S, P, dP, dS;
};

double delta_of(const SeenBackward& seen, Index b, Index h, Index i) {
  return dot(&seen.out.values(b, h, i, 0), &seen.d_out.values(b, h, i, 0), seen.shape.head_dim);
}

Weight weight(const SeenBackward& seen, Index b, Index h, Index i, Index j) {
  const Index d = seen.shape.head_dim;
  Weight w{.seen = j < seen.shape.visible_keys(i, seen.options.causal)};
  w.S = attention_scale(seen.options, d) *
        dot(&seen.q.values(b, h, i, 0), &seen.k.values(b, h, j, 0), d);
  const double lse = seen.lse_of(b, h, i);
  w.P = !w.seen || lse == -kInfinity ? 0 : std::exp(w.S - lse);
  w.dP = dot(&seen.d_out.values(b, h, i, 0), &seen.v.values(b, h, j, 0), d);
  w.dS = w.P == 0 ? 0 : w.P * (w.dP - delta_of(seen, b, h, i));
  return w;
}

// ---- What is shown ------------------------------------------------------------------------------

std::string problem_of(const AttentionShape& shape, bool has_scores) {
  std::string text = "batch " + std::to_string(shape.batch);
  if (!has_scores) text += ", heads " + std::to_string(shape.heads);
  text += (has_scores ? ", d1 " : ", queries ") + std::to_string(shape.queries);
  text += (has_scores ? ", d2 " : ", keys ") + std::to_string(shape.keys);
  return text + (has_scores ? ", d3 " : ", head_dim ") + std::to_string(shape.head_dim);
}

std::string options_of(const AttentionShape& shape, const AttentionOptions& options) {
  return ", scale " + number(attention_scale(options, shape.head_dim)) +
         (options.causal ? ", causal" : "");
}

std::string shown(const SeenForward& seen, const Place& at) {
  const AttentionShape& shape = seen.shape;
  const Index i = at.row % shape.queries, h = at.row / shape.queries % shape.heads,
              b = at.row / shape.queries / shape.heads;
  const bool has_scores = seen.has_scores;
  const Index columns = seen.v.values.extent(3), d = shape.head_dim;
  const AttendedRow want = attended(seen, b, h, i, shape.keys);
  std::string text = problem_of(shape, has_scores);
  if (!has_scores) text += options_of(shape, seen.options);
  const bool blocked = seen.block_keys > 0 && seen.block_keys < shape.keys;
  if (blocked) text += ", blocks of " + std::to_string(seen.block_keys) + " keys";
  text += "\nThe steps for " + head_of(shape, b, h) + (has_scores ? "row " : "query ") +
          std::to_string(i) + ":\n";
  if (!has_scores) text += "  Q = [" + vector_of(&seen.q.values(b, h, i, 0), d) + "]\n";
  const Line heading = has_scores
                           ? Line{"key j", "X(j)", "V(j)", "P = exp(X - m)"}
                           : Line{"key j", "K(j)", "V(j)", "S = scale Q K", "P = exp(S - m)"};
  text += table_of_rows(heading, shape.keys, [&](Index j) {
    Line line{std::to_string(j)};
    if (!has_scores) line.push_back(vector_of(&seen.k.values(b, h, j, 0), d));
    if (has_scores) line.push_back(number(want.S[j]));
    line.push_back(vector_of(&seen.v.values(b, h, j, 0), columns));
    if (!has_scores) line.push_back(j < want.visible ? number(want.S[j]) : "masked");
    line.push_back(j < want.visible ? number(want.P[j]) : "0");
    return line;
  });
  if (blocked) {
    double before = -kInfinity;
    const Index blocks = (shape.keys + seen.block_keys - 1) / seen.block_keys;
    text += "Block by block (O is not divided yet):\n";
    text += table_of_rows({"keys", "alpha", "m", "l", "O"}, blocks, [&](Index n) {
      const Index end = std::min(shape.keys, (n + 1) * seen.block_keys);
      if (n > 0) before = attended(seen, b, h, i, n * seen.block_keys).m;
      const AttendedRow now = attended(seen, b, h, i, end);
      const std::string alpha =
          now.m == -kInfinity ? "1" : number(std::exp(before - now.m));  // 0 before the first key
      return Line{std::to_string(n * seen.block_keys) + ".." + std::to_string(end - 1), alpha,
                  number(now.m), number(now.l), vector_of(now.O.data(), columns)};
    });
  } else {
    text += "  m = " + number(want.m) + ", l = sum of P = " + number(want.l) + "\n";
  }
  const double* const found = &seen.out(b, h, i, 0);
  if (seen.lse.size() == 0)
    return text + "The result O = P V / l:\n" + beside("O", at.want, found, at.column);
  const auto model = model_of(seen);
  const auto right = [&](int output) {
    return model->row(Computation(), kBlocks, output, at.row).value;
  };
  return text + "The result O = P V / l:\n" +
         beside("O", right(0), found, at.output == 0 ? at.column : -1,
                {"lse = m + log l", number(right(1)[0]), number(seen.lse(b, h, i)),
                 at.output == 1 ? "<-- the first difference" : ""});
}

std::string shown(const SeenBackward& seen, const Place& at) {
  const AttentionShape& shape = seen.shape;
  const std::string name = asked(seen)[at.output].first;
  const bool of_query = name == "dQ", is_dk = name == "dK", is_dv = name == "dV";
  const Index rows = of_query ? shape.queries : shape.keys, row = at.row % rows,
              h = at.row / rows % shape.heads, b = at.row / rows / shape.heads;
  const Index d = shape.head_dim;
  std::string text = problem_of(shape, false) + options_of(shape, seen.options);
  text += "\nThe steps for " + name + ", " + head_of(shape, b, h) + (of_query ? "query " : "key ") +
          std::to_string(row) + ":\n";
  if (of_query)
    text += "  Q = [" + vector_of(&seen.q.values(b, h, row, 0), d) + "], dO = [" +
            vector_of(&seen.d_out.values(b, h, row, 0), d) +
            "], lse = " + number(seen.lse_of(b, h, row)) +
            ", delta = " + number(delta_of(seen, b, h, row)) + "\n";
  else
    text += "  K = [" + vector_of(&seen.k.values(b, h, row, 0), d) + "], V = [" +
            vector_of(&seen.v.values(b, h, row, 0), d) + "]\n";
  Line heading = of_query ? Line{"key j", "K(j)", "V(j)", "S", "P"}
                          : Line{"query i", "Q(i)", "dO(i)", "S", "lse(i)", "P"};
  if (!is_dv) heading.push_back("dP");
  if (is_dk) heading.push_back("delta(i)");
  if (!is_dv) heading.push_back("dS");
  text += table_of_rows(heading, of_query ? shape.keys : shape.queries, [&](Index other) {
    const Index i = of_query ? row : other, j = of_query ? other : row;
    const Weight w = weight(seen, b, h, i, j);
    Line line{std::to_string(other),
              vector_of(of_query ? &seen.k.values(b, h, j, 0) : &seen.q.values(b, h, i, 0), d),
              vector_of(of_query ? &seen.v.values(b, h, j, 0) : &seen.d_out.values(b, h, i, 0), d),
              w.seen ? number(w.S) : "masked"};
    if (!of_query) line.push_back(number(seen.lse_of(b, h, i)));
    line.push_back(number(w.P));
    if (!is_dv) line.push_back(number(w.dP));
    if (is_dk) line.push_back(number(delta_of(seen, b, h, i)));
    if (!is_dv) line.push_back(number(w.dS));
    return line;
  });
  const char* const formula = is_dv   ? "The result dV = sum of P dO:\n"
                              : is_dk ? "The result dK = scale * sum of dS Q:\n"
                                      : "The result dQ = scale * sum of dS K:\n";
  return text + formula +
         beside(name, at.want, &(*asked(seen)[at.output].second)(b, h, row, 0), at.column);
}

// ---- The search ---------------------------------------------------------------------------------

// Problems to start from: the easier numbers and the smaller blocks first.
std::vector<Probe> starts(bool forward) {
  using enum Data;
  std::vector<Data> kinds{kSmallIntegers, kNormal, kRising, kLargeScores, kVeryNegative, kFarApart};
  if (forward) kinds.insert(kinds.end(), {kMinusInfinity, kLowest, kNaN, kNaNInScores});
  std::vector<Probe> probes;
  for (const Data data : kinds)
    for (const auto& [shape, block] : {std::pair{AttentionShape{2, 2, 5, 5, 4}, Index{2}},
                                       {AttentionShape{2, 2, 5, 5, 4}, 0},
                                       {AttentionShape{1, 2, 37, 85, 8}, 0},
                                       {AttentionShape{1, 1, 70, 150, 16}, 0}})
      probes.push_back({.shape = shape, .data = data, .block = block});
  return probes;
}

}  // namespace

template <class Seen>
std::string with_small_numbers(const std::function<Seen(const Probe&)>& again) {
  int runs = 0;
  const auto fails = [&](const Probe& probe) {
    try {
      return ++runs <= kMostRuns && first_difference(again(probe)).has_value();
    } catch (const std::exception&) {  // it does not take this problem
      return false;
    }
  };
  for (Probe probe : starts(std::is_same_v<Seen, SeenForward>)) {
    if (!fails(probe)) continue;
    for (bool smaller = true; smaller;) {
      smaller = false;
      AttentionShape& shape = probe.shape;
      for (Index* const size :
           {&shape.batch, &shape.heads, &shape.keys, &shape.queries, &shape.head_dim}) {
        const Index was = *size;
        for (const Index tried : {Index{1}, Index{2}, Index{3}, was / 2, was - 1}) {
          if (tried < 1 || tried >= was) continue;
          *size = tried;
          if (fails(probe)) {
            smaller = true;
            break;
          }
          *size = was;
        }
      }
    }
    const Seen seen = again(probe);
    const auto place = first_difference(seen);
    return place ? shown(seen, *place) : "";
  }
  return "";
}

template std::string with_small_numbers(const std::function<SeenForward(const Probe&)>&);
template std::string with_small_numbers(const std::function<SeenBackward(const Probe&)>&);

}  // namespace flash::harness
