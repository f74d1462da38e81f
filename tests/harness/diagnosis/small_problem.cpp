#include "harness/diagnosis/small_problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "common/steps.hpp"

namespace flash::harness {
namespace {

constexpr double kSmallSlack = 2;  // times the bound, which is that of the whole problem
constexpr int kMostRuns = 500;     // of the code under test, in the search
constexpr Index kFewQueries = 4, kFewKeys = 6;  // what one can follow
constexpr Index kMostRows = 10;                 // of a table
constexpr Index kMostColumns = 2;
constexpr Blocks kBlocks{16, 16};  // what is right does not depend on them

using Line = std::vector<std::string>;

// ---- Text ---------------------------------------------------------------------------------------

std::string number(double x, int digits = 4) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, x == 0 ? 0.0 : x);
  return std::isnan(x) ? "nan" : text;
}

// The first columns, and the one that is looked at.
std::string vector_of(const double* x, Index n, Index looked_at = 0) {
  std::string text;
  for (Index c = 0; c < std::min(n, kMostColumns); ++c) text += (c ? " " : "") + number(x[c]);
  if (n <= kMostColumns) return text;
  return text + (looked_at < kMostColumns ? " ..." : " .. " + number(x[looked_at]) + " ..");
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

// A line each for the first and the last ones, and of the others for those that weigh most, or NaN.
std::string table_of_rows(const Line& heading, Index count, const std::function<Line(Index)>& line,
                          const std::function<double(Index)>& weight) {
  std::vector<Index> rows;
  for (Index n = 0; n < count; ++n) rows.push_back(n);
  const auto size = [&](Index n) {
    const double of = std::fabs(weight(n));
    return n < 2 || n >= count - 2 || std::isnan(of) ? std::numeric_limits<double>::infinity() : of;
  };
  std::stable_sort(rows.begin(), rows.end(), [&](Index a, Index b) { return size(a) > size(b); });
  rows.resize(std::min(count, kMostRows));
  std::sort(rows.begin(), rows.end());
  std::vector<Line> lines{heading};
  for (std::size_t n = 0; n < rows.size(); ++n) {
    if (rows[n] != (n == 0 ? 0 : rows[n - 1] + 1)) lines.push_back({"..."});
    lines.push_back(line(rows[n]));
  }
  return table(lines);
}

// A line of a result. The first difference is marked, and shown with as many digits as it takes.
Line line_of(const std::string& name, double expected, double found, bool is_first) {
  int digits = 4;
  while (is_first && digits < 17 && number(expected, digits) == number(found, digits)) ++digits;
  return {name, number(expected, digits), number(found, digits),
          is_first ? "<-- the first difference" : ""};
}

// `expected` beside `found`.
std::string beside(const std::string& name, const std::vector<double>& expected,
                   const double* found, Index first, const Line& more = {}) {
  std::vector<Line> lines{{"", "expected", "found"}};
  const Index count = static_cast<Index>(expected.size());
  for (Index c = 0; c < count; ++c) {
    if (c >= kMostColumns && c != first) continue;
    lines.push_back(
        line_of(name + "(" + std::to_string(c) + ")", expected[c], found[c], c == first));
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

// The computation as it has to be, with its trace.
template <class Pass, class Seen>
struct Right {
  explicit Right(const Seen& seen, Blocks blocks = kBlocks)
      : given(seen.given()), pass(given, scores, steps, blocks) {
    given.largest = std::numeric_limits<double>::max();  // exact: no weight is rounded to 0
  }
  Right(const Right&) = delete;
  Right& operator=(const Right&) = delete;

  Given given;
  Scores scores;
  const Steps steps;
  Pass pass;
};
using RightForward = Right<ForwardPass, SeenForward>;
using RightBackward = Right<BackwardPass, SeenBackward>;

// Where the result differs first.
struct Place {
  Found found;
  Index row, column;
  std::vector<double> want;  // the row
};

// Of the gradients dV comes first, then dK, then dQ: each needs what the one before it needs, and
// more.
template <class Seen>
std::optional<Place> first_difference(const Seen& seen) {
  constexpr bool kForward = std::is_same_v<Seen, SeenForward>;
  std::conditional_t<kForward, RightForward, RightBackward> right(seen);
  std::vector<Found> order = seen.found();
  if (!kForward) std::reverse(order.begin(), order.end());
  for (const Found& found : order)
    for (Index row = 0; row < found.rows; ++row) {
      const StepRow want = right.pass.row(found.output, row);
      for (Index c = 0; c < found.columns; ++c)
        if (!is_near(found.got[row * found.columns + c], want, c, kSmallSlack * found.bound))
          return Place{found, row, c, want.value};
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

std::string why_so_many(const AttentionShape& shape, bool is_step = false) {
  if (is_step) return "\nThe sizes are the step's own: others may need functions of later steps.";
  if (shape.queries <= kFewQueries && shape.keys <= kFewKeys) return "";
  return "\nNo problem of at most " + std::to_string(kFewQueries) + " queries and " +
         std::to_string(kFewKeys) + " keys was wrong: it may take more than one block.";
}

std::string shown(const SeenForward& seen, const Place& at) {
  const AttentionShape& shape = seen.shape;
  const Index i = at.row % shape.queries, h = at.row / shape.queries % shape.heads,
              b = at.row / shape.queries / shape.heads;
  const bool has_scores = seen.has_scores;
  const Index columns = seen.v.values.extent(3), d = shape.head_dim;
  const bool is_lse = at.found.output == Output::kLse;
  const Index column = is_lse ? 0 : at.column;
  const Blocks whole{1, std::max<Index>(shape.keys, 1)};
  const Trace want = RightForward(seen, whole).pass.trace(at.row);
  const Index visible = static_cast<Index>(want.S.size());
  std::string text = problem_of(shape, has_scores);
  if (!has_scores) text += options_of(shape, seen.options);
  const bool blocked =
      seen.block_queries > 0 && seen.block_keys > 0 && seen.block_keys < shape.keys;
  if (blocked || (seen.block_queries > 0 && seen.block_queries < shape.queries))
    text += ", blocks of " + std::to_string(seen.block_queries) +
            (has_scores ? " rows" : " queries") +
            (seen.block_keys > 0 ? " and " + std::to_string(seen.block_keys) + " keys" : "");
  text += why_so_many(shape, seen.also_solved.has_value());
  text += "\nThe steps for " + head_of(shape, b, h) + (has_scores ? "row " : "query ") +
          std::to_string(i) + ":\n";
  if (!has_scores) text += "  Q = [" + vector_of(&seen.q.values(b, h, i, 0), d) + "]\n";
  const Line heading = has_scores
                           ? Line{"key j", "X(j)", "V(j)", "P = exp(X - m)"}
                           : Line{"key j", "K(j)", "V(j)", "S = scale Q K", "P = exp(S - m)"};
  text += table_of_rows(
      heading, shape.keys,
      [&](Index j) {
        Line line{std::to_string(j)};
        if (!has_scores) line.push_back(vector_of(&seen.k.values(b, h, j, 0), d));
        if (has_scores) line.push_back(number(want.S[j]));
        line.push_back(vector_of(&seen.v.values(b, h, j, 0), columns, column));
        if (!has_scores) line.push_back(j < visible ? number(want.S[j]) : "masked");
        line.push_back(j < visible ? number(want.P[j]) : "0");
        return line;
      },
      [&](Index j) { return (j < visible ? want.P[j] : 0) + 0 * seen.v.values(b, h, j, column); });
  if (blocked) {
    const Trace steps = RightForward(seen, {1, seen.block_keys}).pass.trace(at.row);
    text += "Block by block (O is not divided yet):\n";
    const Index blocks = static_cast<Index>(steps.blocks.size());
    text += table_of_rows(
        {"keys", "alpha", "m", "l", "O"}, blocks,
        [&](Index n) {
          const auto& [alpha, m, l, O] = steps.blocks[n];
          const Index end = std::min(shape.keys, (n + 1) * seen.block_keys);
          return Line{std::to_string(n * seen.block_keys) + ".." + std::to_string(end - 1),
                      number(alpha), number(m), number(l), vector_of(O.data(), columns, column)};
        },
        [&](Index n) { return steps.blocks[n].l; });
  } else if (!want.blocks.empty()) {
    text +=
        "  m = " + number(want.blocks[0].m) + ", l = sum of P = " + number(want.blocks[0].l) + "\n";
  }
  RightForward right(seen);
  if (seen.out.size() == 0)
    return text + "The result:\n" +
           table({{"", "expected", "found"},
                  line_of("lse = m + log l", at.want[0], seen.lse(b, h, i), true)});
  const double* const found = &seen.out(b, h, i, 0);
  if (seen.lse.size() == 0)
    return text + "The result O = P V / l:\n" + beside("O", at.want, found, at.column);
  return text + "The result O = P V / l:\n" +
         beside("O", right.pass.row(Output::kOut, at.row).value, found, is_lse ? -1 : at.column,
                line_of("lse = m + log l", right.pass.row(Output::kLse, at.row).value[0],
                        seen.lse(b, h, i), is_lse));
}

std::string shown(const SeenBackward& seen, const Place& at) {
  const AttentionShape& shape = seen.shape;
  const std::string name = at.found.name;
  const bool of_query = name == "dQ", is_dk = name == "dK", is_dv = name == "dV";
  RightBackward right(seen);
  const Index rows = of_query ? shape.queries : shape.keys, row = at.row % rows,
              h = at.row / rows % shape.heads, b = at.row / rows / shape.heads;
  const Index d = shape.head_dim, c = at.column;
  const auto weight = [&](Index i, Index j) {
    return right.pass.weight(at.found.output, b, h, i, j);
  };
  std::string text = problem_of(shape, false) + options_of(shape, seen.options);
  if (seen.block_keys > 0 && seen.block_keys < shape.keys)
    text += ", blocks of " + std::to_string(seen.block_keys) + " keys";
  text += why_so_many(shape);
  text += "\nThe steps for " + name + ", " + head_of(shape, b, h) + (of_query ? "query " : "key ") +
          std::to_string(row) + ":\n";
  if (of_query)
    text += "  Q = [" + vector_of(&seen.q.values(b, h, row, 0), d) + "], dO = [" +
            vector_of(&seen.d_out.values(b, h, row, 0), d) +
            "], lse = " + number(weight(row, 0).lse) +
            ", delta = " + number(weight(row, 0).delta().value) + "\n";
  else
    text += "  K = [" + vector_of(&seen.k.values(b, h, row, 0), d) + "], V = [" +
            vector_of(&seen.v.values(b, h, row, 0), d) + "]\n";
  Line heading = of_query ? Line{"key j", "K(j)", "V(j)", "S", "P"}
                          : Line{"query i", "Q(i)", "dO(i)", "S", "lse(i)", "P"};
  if (!is_dv) heading.push_back("dP");
  if (is_dk) heading.push_back("delta(i)");
  if (!is_dv) heading.push_back("dS");
  text += table_of_rows(
      heading, of_query ? shape.keys : shape.queries,
      [&](Index other) {
        const Index i = of_query ? row : other, j = of_query ? other : row;
        const Weight w = weight(i, j);
        Line line{
            std::to_string(other),
            vector_of(of_query ? &seen.k.values(b, h, j, 0) : &seen.q.values(b, h, i, 0), d, c),
            vector_of(of_query ? &seen.v.values(b, h, j, 0) : &seen.d_out.values(b, h, i, 0), d, c),
            w.is_visible() ? number(w.S) : "masked"};
        if (!of_query) line.push_back(number(w.lse));
        line.push_back(number(w.P));
        if (!is_dv) line.push_back(number(w.dP().value));
        if (is_dk) line.push_back(number(w.delta().value));
        if (!is_dv) line.push_back(number(w.P == 0 ? 0 : w.dS().value));
        return line;
      },
      [&](Index other) {
        const Weight w = of_query ? weight(row, other) : weight(other, row);
        return is_dv ? w.P : w.P == 0 ? 0 : w.dS().value;
      });
  const char* const formula = is_dv   ? "The result dV = sum of P dO:\n"
                              : is_dk ? "The result dK = scale * sum of dS Q:\n"
                                      : "The result dQ = scale * sum of dS K:\n";
  return text + formula + beside(name, at.want, at.found.got + at.row * d, at.column);
}

// ---- The search ---------------------------------------------------------------------------------

// Problems to start from: the easier numbers and the smaller blocks first.
std::vector<Probe> starts(bool forward) {
  using enum Data;
  std::vector<Data> kinds{kSmallIntegers, kNormal,   kRising, kLargeScores,
                          kVeryNegative,  kFarApart, kNaN,    kNaNInScores};
  if (forward) kinds.insert(kinds.end(), {kMinusInfinity, kLowest});
  std::vector<Probe> probes;
  // All kinds of numbers in small problems first.
  for (const auto& [shape, block] : {std::pair{AttentionShape{2, 2, kFewQueries, kFewKeys, 4}, 2},
                                     {AttentionShape{2, 2, kFewQueries, 5, 4}, 3},
                                     {AttentionShape{2, 2, kFewQueries, kFewKeys, 4}, 0},
                                     {AttentionShape{1, 2, 6, 9, 4}, 4},
                                     {AttentionShape{1, 2, 37, 85, 8}, 0},
                                     {AttentionShape{1, 1, 70, 150, 16}, 0},
                                     {AttentionShape{1, 1, 150, 270, 16}, 0}})
    for (const Data data : kinds)
      probes.push_back({.shape = shape, .data = data, .block = Index{block}});
  return probes;
}

}  // namespace

template <class Seen>
std::string with_small_numbers(const std::function<Seen(const Probe&)>& again,
                               const AttentionShape* only) {
  int runs = 0;
  const auto fails = [&](const Probe& probe) {
    try {
      return ++runs <= kMostRuns && first_difference(again(probe)).has_value();
    } catch (const std::exception&) {  // it does not take this problem
      return false;
    }
  };
  for (Probe probe : starts(std::is_same_v<Seen, SeenForward>)) {
    if (only) probe = {.shape = *only, .data = probe.data};
    if (!fails(probe)) continue;
    for (bool smaller = only == nullptr; smaller;) {
      smaller = false;
      AttentionShape& shape = probe.shape;
      for (Index* const size :
           {&shape.batch, &shape.heads, &shape.keys, &shape.queries, &shape.head_dim}) {
        const Index was = *size;
        std::vector<Index> sizes{1, 2, 3, 4, 5, 6, was / 2, was * 3 / 4, was * 7 / 8, was - 1};
        for (const Index tried : sizes) {
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

template std::string with_small_numbers(const std::function<SeenForward(const Probe&)>&,
                                        const AttentionShape*);
template std::string with_small_numbers(const std::function<SeenBackward(const Probe&)>&,
                                        const AttentionShape*);

}  // namespace flash::harness
