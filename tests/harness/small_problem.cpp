// Implements small_problem.hpp.
#include "harness/small_problem.hpp"

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

namespace flash::harness {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlack = 2;     // times the bound, which is that of the whole problem
constexpr int kMostRuns = 400;   // of the code under test, in the search
constexpr Index kMostRows = 16;  // of a table, without those in its middle
constexpr Index kMostColumns = 2;

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
                   const std::vector<double>& found, Index first, const Line& more = {}) {
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

bool near(double got, double want, double error) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::fabs(got - want) <= kSlack * error + 1e-37;
}

double dot(const double* a, const double* b, Index n, double* size = nullptr) {
  double sum = 0;
  for (Index c = 0; c < n; ++c) {
    sum += a[c] * b[c];
    if (size) *size += std::fabs(a[c] * b[c]);
  }
  return sum;
}

// Where the result differs first. Output 0 is out and 1 is lse; or 0 is dV, 1 is dK and 2 is dQ:
// each needs what the one before it needs, and more.
struct Place {
  int output;
  Index b, h, row, column;
};

// softmax(S) V of one row, from the keys before `end`.
struct AttendedRow {
  Index visible;  // keys
  std::vector<double> S, P, O, size;
  double m = -kInfinity, l = 0, lse = -kInfinity;
};

AttendedRow attended(const SeenForward& seen, Index b, Index h, Index i, Index end, bool divided) {
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
  row.O.assign(columns, 0), row.size.assign(columns, 0);
  for (Index j = 0; j < row.visible; ++j) {
    const double P = row.S[j] == -kInfinity ? 0 : std::exp(row.S[j] - row.m);
    row.P.push_back(P);
    row.l += P;
    if (P == 0 && row.S[j] == -kInfinity && row.m == -kInfinity) continue;
    for (Index c = 0; c < columns; ++c) {
      row.O[c] += P * seen.v.values(b, h, j, c);
      row.size[c] += std::fabs(P * seen.v.values(b, h, j, c));
    }
  }
  for (Index c = 0; divided && row.l != 0 && c < columns; ++c)
    row.O[c] /= row.l, row.size[c] /= row.l;
  row.lse = row.m + std::log(row.l);
  return row;
}

std::optional<Place> first_difference(const SeenForward& seen) {
  const AttentionShape& shape = seen.shape;
  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h)
      for (Index i = 0; i < shape.queries; ++i) {
        const AttendedRow want = attended(seen, b, h, i, shape.keys, true);
        for (Index c = 0; c < static_cast<Index>(want.O.size()); ++c)
          if (!near(seen.out(b, h, i, c), want.O[c], seen.precision.bound * want.size[c]))
            return Place{0, b, h, i, c};
        if (seen.lse.size() > 0 &&
            !near(seen.lse(b, h, i), want.lse, seen.lse_bound + 0x1p-22 * std::fabs(want.lse)))
          return Place{1, b, h, i, 0};
      }
  return std::nullopt;
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

const Tensor<double, 4>& gradient(const SeenBackward& seen, int output) {
  return output == 0 ? seen.d_v : output == 1 ? seen.d_k : seen.d_q;
}

// A row of dV, dK or dQ, and the size of its terms.
std::array<std::vector<double>, 2> gradient_row(const SeenBackward& seen, int output, Index b,
                                                Index h, Index row) {
  const AttentionShape& shape = seen.shape;
  const Index d = shape.head_dim;
  const double scale = output == 0 ? 1 : attention_scale(seen.options, d);
  std::array<std::vector<double>, 2> sums{std::vector<double>(d, 0), std::vector<double>(d, 0)};
  for (Index other = 0; other < (output == 2 ? shape.keys : shape.queries); ++other) {
    const Index i = output == 2 ? row : other, j = output == 2 ? other : row;
    const Weight w = weight(seen, b, h, i, j);
    if (w.P == 0) continue;
    double size = 0;
    dot(&seen.d_out.values(b, h, i, 0), &seen.v.values(b, h, j, 0), d, &size);
    dot(&seen.d_out.values(b, h, i, 0), &seen.out.values(b, h, i, 0), d, &size);
    const double* const with = output == 0   ? &seen.d_out.values(b, h, i, 0)
                               : output == 1 ? &seen.q.values(b, h, i, 0)
                                             : &seen.k.values(b, h, j, 0);
    for (Index c = 0; c < d; ++c) {
      sums[0][c] += scale * (output == 0 ? w.P : w.dS) * with[c];
      sums[1][c] += std::fabs(scale * w.P * (output == 0 ? 1 : size) * with[c]);
    }
  }
  return sums;
}

std::optional<Place> first_difference(const SeenBackward& seen) {
  for (int output = 0; output < 3; ++output) {
    const Tensor<double, 4>& got = gradient(seen, output);
    if (got.size() == 0) continue;  // not asked for
    for (Index b = 0; b < got.extent(0); ++b)
      for (Index h = 0; h < got.extent(1); ++h)
        for (Index row = 0; row < got.extent(2); ++row) {
          const auto [want, size] = gradient_row(seen, output, b, h, row);
          for (Index c = 0; c < got.extent(3); ++c)
            if (!near(got(b, h, row, c), want[c], seen.precision.bound * size[c]))
              return Place{output, b, h, row, c};
        }
  }
  return std::nullopt;
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
  const int output = at.output;  // no binding: clang before 16 captures none
  const Index b = at.b, h = at.h, i = at.row, column = at.column;
  const bool has_scores = seen.has_scores;
  const Index columns = seen.v.values.extent(3), d = shape.head_dim;
  const AttendedRow want = attended(seen, b, h, i, shape.keys, true);
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
      if (n > 0) before = attended(seen, b, h, i, n * seen.block_keys, false).m;
      const AttendedRow now = attended(seen, b, h, i, end, false);
      const std::string alpha =
          now.m == -kInfinity ? "1" : number(std::exp(before - now.m));  // 0 before the first key
      return Line{std::to_string(n * seen.block_keys) + ".." + std::to_string(end - 1), alpha,
                  number(now.m), number(now.l), vector_of(now.O.data(), columns)};
    });
  } else {
    text += "  m = " + number(want.m) + ", l = sum of P = " + number(want.l) + "\n";
  }
  std::vector<double> found(columns);
  for (Index c = 0; c < columns; ++c) found[c] = seen.out(b, h, i, c);
  Line lse;
  if (seen.lse.size() > 0)
    lse = {"lse = m + log l", number(want.lse), number(seen.lse(b, h, i)),
           output == 1 ? "<-- the first difference" : ""};
  return text + "The result O = P V / l:\n" +
         beside("O", want.O, found, output == 0 ? column : -1, lse);
}

std::string shown(const SeenBackward& seen, const Place& at) {
  const AttentionShape& shape = seen.shape;
  const int output = at.output;  // no binding: clang before 16 captures none
  const Index b = at.b, h = at.h, row = at.row, column = at.column;
  const Index d = shape.head_dim;
  const bool of_query = output == 2;
  const std::string name = output == 0 ? "dV" : output == 1 ? "dK" : "dQ";
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
  if (output > 0) heading.push_back("dP");
  if (output == 1) heading.push_back("delta(i)");
  if (output > 0) heading.push_back("dS");
  text += table_of_rows(heading, of_query ? shape.keys : shape.queries, [&](Index other) {
    const Index i = of_query ? row : other, j = of_query ? other : row;
    const Weight w = weight(seen, b, h, i, j);
    Line line{std::to_string(other),
              vector_of(of_query ? &seen.k.values(b, h, j, 0) : &seen.q.values(b, h, i, 0), d),
              vector_of(of_query ? &seen.v.values(b, h, j, 0) : &seen.d_out.values(b, h, i, 0), d),
              w.seen ? number(w.S) : "masked"};
    if (!of_query) line.push_back(number(seen.lse_of(b, h, i)));
    line.push_back(number(w.P));
    if (output > 0) line.push_back(number(w.dP));
    if (output == 1) line.push_back(number(delta_of(seen, b, h, i)));
    if (output > 0) line.push_back(number(w.dS));
    return line;
  });
  std::vector<double> found(d);
  for (Index c = 0; c < d; ++c) found[c] = gradient(seen, output)(b, h, row, c);
  const char* const formula = output == 0   ? "The result dV = sum of P dO:\n"
                              : output == 1 ? "The result dK = scale * sum of dS Q:\n"
                                            : "The result dQ = scale * sum of dS K:\n";
  return text + formula + beside(name, gradient_row(seen, output, b, h, row)[0], found, column);
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
