// The records of mistakes.hpp.
#include "harness/diagnosis/mistakes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>

#include "common/half.hpp"

namespace flash::harness {
namespace {

using enum Group;
using Output::kDK, Output::kDQ, Output::kDV;

constexpr double kLn2 = 0.6931471805599453;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr bool kByBlock = true;
constexpr auto kAlways = [](const auto&...) { return true; };

using Sees = Step<bool(const Pair&)>;

// Writes records down, those of one kind and group after each other.
class List {
 public:
  List& of(const char* kind, Group group, bool by_block = false) {
    kind_ = kind, group_ = group, by_block_ = by_block;
    return *this;
  }
  void add(const std::string& name, const std::string& text, const std::vector<Change>& ways) {
    known.push_back({name, text, kind_, group_, by_block_, ways});
  }
  template <class Function, class... By>
  void add(const std::string& name, const std::string& text, Step<Function> Steps::*step,
           By... by) {
    add(name, text, {replace(step, by)...});
  }

  std::vector<Mistake> known;

 private:
  const char* kind_ = "";
  Group group_ = kAlone;
  bool by_block_ = false;
};

Change both(Change one, Change two) {
  return [=](Steps& steps) { one(steps), two(steps); };
}

// Whether the last query of the block sees a key of this block.
bool is_in_seen_block(const Pair& at) { return at.first_key() < at.end_of_queries(); }
// Such blocks are computed, also where the query itself sees none.
Change computes_seen_blocks() {
  return replace(&Steps::computes,
                 [](auto& at, bool, bool any, double) { return any || is_in_seen_block(at); });
}
Index to_whole_blocks(Index keys, Index block) { return (keys + block - 1) / block * block; }

// ---- What both passes have ----------------------------------------------------------------------

void add_scales(List& list, const AttentionOptions& options, Index head_dim, bool backward) {
  if (options.scale == 1) return;  // makes no difference
  list.of("scale", kScale);
  list.add(
      "scale missing", "the scores are not multiplied by the scale", &Steps::scale,
      [](double, Index) { return 1; }, [](double, Index) { return kLn2; });  // in base e, in base 2
  list.add("scale squared",
           "the scores are multiplied by the square of the scale, which is 1 / head_dim where no "
           "other scale is asked for: is it applied twice, or is a square root missing?",
           &Steps::scale, [](double scale, Index) { return scale * scale; });
  list.add("divided by the scale", "the scores are divided by the scale", &Steps::scale,
           [](double scale, Index) { return 1 / scale; });
  if (!options.scale) return;
  const auto instead = [&](const char* name, const char* text, double other) {
    const Change in_S = replace(&Steps::scale, [=](double, Index) { return other; });
    std::vector<Change> ways{in_S};
    if (backward) {
      const Change in_dS =
          replace(&Steps::times, [=](Output of, double) { return of == kDV ? 1 : other; });
      ways.insert(ways.end(), {in_dS, both(in_S, in_dS)});
    }
    list.add(name, text, ways);
  };
  instead("scale of the options ignored",
          "the scale is 1 / sqrt(head_dim), and not the one that the options ask for",
          1 / std::sqrt(static_cast<double>(head_dim)));
  if (*options.scale < 0)
    instead("scale without its sign", "the scale is used without its sign", -*options.scale);
}

// A tensor with its first column in place of each.
std::shared_ptr<Tensor<double, 4>> first_column(const Tensor<double, 4>& x) {
  auto y = std::make_shared<Tensor<double, 4>>(x.shape());
  const Index columns = x.extent(3);
  for (Index n = 0; n < x.size(); ++n) y->data()[n] = x.data()[n / columns * columns];
  return y;
}
// With its first rows again and again.
std::shared_ptr<Tensor<double, 4>> first_rows(const Tensor<double, 4>& x, Index count) {
  auto y = std::make_shared<Tensor<double, 4>>(x.shape());
  const Index columns = x.extent(3), rows = x.extent(2);
  for (Index n = 0; n < x.size(); ++n) {
    const Index row = n / columns % rows;
    y->data()[n] = x.data()[n - (row - row % count) * columns];
  }
  return y;
}
Change reading_from(Operand operand, const std::shared_ptr<Tensor<double, 4>>& x) {
  return [=](Steps& steps) { steps.read[operand].from = x.get(); };
}
void add_forgotten(List& list, const std::string& index, const std::string& x,
                   const std::string& read, const std::string& right,
                   const std::vector<Change>& ways) {
  list.add("index " + index + " of " + x + " forgotten",
           read + " is read in place of " + right + ": an index or an offset is left out", ways);
}

// In a loop over the queries that only dK and dV have.
Sees of_keys_only(const Sees& wrong) {
  return [wrong](auto& at) { return at.output == kDQ ? at.is_visible() : wrong(at); };
}

void add_masks(List& list, const AttentionShape& shape, bool causal, bool backward) {
  list.of("mask", kMask);
  const auto add = [&](const char* name, const char* text, auto... by) {
    list.add(name, text, &Steps::sees, by...);
  };
  if (!causal)
    return add("causal mask although not asked for",
               "keys behind the query are masked, which options.causal does not ask for here",
               [](auto& at) { return at.j <= at.i; });
  add("causal mask missing", "no key is masked", kAlways);
  add("causal mask too strict", "query i does not see key i: the mask has < where it must have <=",
      [](auto& at) { return at.j < at.i; });
  add("causal mask one key too wide", "query i sees key i + 1",
      [](auto& at) { return at.j <= at.i + 1; });
  add("causal mask upside down", "query i sees the keys from i on instead of those up to i",
      [](auto& at) { return at.j >= at.i; });
  if (shape.queries != shape.keys)
    add("causal mask aligned to the last key",
        "the mask is aligned to the last query and the last key; it must be aligned to the first "
        "ones: query i sees the keys j <= i",
        [](auto& at) { return at.j <= at.i + at.shape.keys - at.shape.queries; });
  list.of("mask", kMask, kByBlock);
  add(
      "causal mask counted within the block",
      "the mask compares places within the blocks; it must compare the query's and the key's own "
      "numbers",
      [](auto& at) { return at.j % at.blocks.keys <= at.i % at.blocks.queries; },
      [=](auto& at) {
        if (backward)  // in a loop over the queries from the block's first key on
          return at.i >= at.first_key() && at.j % at.blocks.keys <= at.i % at.blocks.keys;
        // Blocks that all queries see are not masked.
        return at.first_key() < at.end_of_queries() &&
               (at.first_key() + at.blocks.keys <= at.first_query() + 1 ||
                at.j % at.blocks.keys <= at.i % at.blocks.queries);
      });
  const Sees whole_blocks = [](auto&at) { return at.j < at.end_of_queries(); },
             whole_tiles = [](auto&at) { return at.first_key() < at.end_of_queries(); };
  const auto in_its_block = [](auto& at) { return at.j % at.blocks.keys <= at.i; };
  const char *const
      without_j0 = "causal mask without the block's first key",
      *const text_without_j0 =
          "the mask compares the query's number with the key's place in its block: add j0, "
          "the block's first key, or subtract it from the number of keys that the query sees";
  if (backward) {
    add(
        without_j0, text_without_j0,
        [=](auto& at) { return at.i >= at.first_key() && in_its_block(at); }, in_its_block);
  } else {
    add(
        "causal mask without the block's first query",
        "the mask compares the key's number with the query's place in its block: add i0, the "
        "block's first query. Or it takes j0, the block's first key, into account twice",
        [](auto& at) { return at.j <= at.i % at.blocks.queries; },
        [](auto& at) {  // blocks that all queries see are not masked
          return at.first_key() + at.blocks.keys <= at.first_query() + 1 ||
                 at.j <= at.i % at.blocks.queries;
        });
    add(
        without_j0, text_without_j0, [=](auto& at) { return whole_blocks(at) && in_its_block(at); },
        [=](auto& at) { return whole_tiles(at) && in_its_block(at); }, in_its_block);
    // Or keys past the last one count, with a score of 0.
    list.known.back().ways.push_back([=](Steps& steps) {
      steps.end = to_whole_blocks;
      steps.sees = [=](auto& at) { return whole_tiles(at) && in_its_block(at); };
      steps.masked = [=](auto& at) {
        return at.j >= at.shape.keys && whole_tiles(at) && in_its_block(at) ? 0 : -kInfinity;
      };
    });
    add("causal mask of the block's first query",
        "each query sees only the keys that the first query of its block sees",
        [](auto& at) { return at.j <= at.first_query(); });
    add("block of keys taken for that of queries",
        "the keys that some query of a block sees end with query i0 + block_k - 1: the block has "
        "block_q queries",
        [](auto& at) { return at.j <= std::min(at.i, at.first_query() + at.blocks.keys - 1); });
    return add("causal mask for whole blocks only",
               "a block of keys that the diagonal crosses is not masked: each query sees all keys "
               "of the blocks that the last query of its block sees",
               whole_blocks, whole_tiles);
  }
  list.of("loop-over-queries", kMask, kByBlock);
  const Sees behind_the_block = [](auto& at) {
    return at.j <= at.i && at.i >= std::min(at.first_key() + at.blocks.keys, at.shape.keys);
  };
  add("blocks on the diagonal left out",
      "the blocks of keys that the diagonal crosses are left out: the loop over the queries begins "
      "behind the block's last key; it must begin at its first",
      behind_the_block, of_keys_only([](auto& at) {
        return at.j <= at.i && at.i >= at.first_key() + at.blocks.keys;
      }));
  add("first query of each block left out",
      "query j0, the first that sees key j0 of a block, is left out",
      [](auto& at) { return at.j <= at.i && at.i != at.first_key(); });
  list.of("mask", kAlone, kByBlock);
  for (const bool of_query : {true, false}) {
    const auto there = [of_query](const Sees& wrong) {
      return replace(&Steps::sees, [=](auto& at) {
        return (at.output == kDQ) == of_query ? wrong(at) : at.is_visible();
      });
    };
    const std::string x = of_query ? "dQ" : "dK and dV";
    list.add("causal mask missing in " + x, "keys that a query does not see add to " + x,
             {there(kAlways), there(whole_blocks), there(whole_tiles),
              there([](auto& at) { return at.first_key() <= at.i; }),
              // block_queries keys are a block, and block_keys queries; the last one is partial.
              there([](auto& at) {
                const auto& [queries, keys] = at.blocks;
                return at.i / keys * keys + keys > at.shape.queries
                           ? at.j <= at.i
                           : at.j / queries * queries <= at.i;
              })});
  }
}

constexpr const char* kScoresNotSetTo0 =
    "the sums of Q K^T begin with what their places held before, the weights P of the block or the "
    "query before: set them to 0 first";
// Multiplied by the scale or not.
std::vector<Change> scores_begun() {
  return {
      replace(&Steps::begun, [](double S, double scale, double left) { return S + scale * left; }),
      replace(&Steps::begun, [](double S, double, double left) { return S + left; })};
}

// Operands that are read in another way. A delta that was computed apart has the right d_out.
std::vector<Change> reading(std::vector<Operand> operands, const std::function<void(Read&)>& how) {
  const auto change = [&] {
    return [=](Steps& steps) {
      for (const Operand operand : operands) how(steps.read[operand]);
    };
  };
  if (operands[0] != kDOut) return {change()};
  operands.push_back(kDOutForDP);
  const Change but_for_delta = change();
  operands.push_back(kDOutForDelta);
  return {change(), but_for_delta};
}

void add_heads_and_batches(List& list, Index batch, Index heads, const std::string& x,
                           const std::vector<Operand>& operands) {
  list.of("batch-and-head", kIndexing);
  const auto head = [&](Index (*of)(Index h, Index heads)) {
    return reading(operands, [of](Read& read) { read.head = of; });
  };
  if (heads > 1) {
    list.add("head 0 of " + x + " in every head", "every head reads head 0 of " + x,
             head([](Index, Index) -> Index { return 0; }));
    std::vector<Change> ways = head([](Index h, Index all) { return all - 1 - h; });
    for (const auto& more : {head([](Index h, Index all) { return (h + 1) % all; }),
                             head([](Index h, Index all) { return (h + all - 1) % all; })})
      ways.insert(ways.end(), more.begin(), more.end());
    list.add("another head of " + x, "each head reads another head of " + x + " than its own",
             ways);
  }
  if (batch > 1)
    list.add("batch 0 of " + x + " in every batch", "every batch reads batch 0 of " + x,
             reading(operands, [](Read& read) { read.batch = [](Index) -> Index { return 0; }; }));
}

// Rows keep what they held before where `is_left` says so.
Change not_written(const std::function<bool(const Written&)>& is_left) {
  return [=](Steps& steps) {
    steps.write = [is_left, own = steps.write](const Written& at, StepRow& row) {
      if (own) own(at, row);
      if (!is_left(at)) return;
      row.value.assign(row.value.size(), at.fill);
      for (double& magnitude : row.magnitude)
        if (!std::isnan(at.fill)) magnitude += std::fabs(at.fill);
    };
  };
}

void add_keys(List& list, const AttentionShape& shape, bool backward) {
  const auto add = [&](const char* name, const char* text, const std::vector<Sees>& ways) {
    list.add(name, text, {});
    for (const Sees& visits : ways) {
      std::vector<Change>& changes = list.known.back().ways;
      changes.push_back(replace(&Steps::visits, visits));
      if (!backward) continue;  // or the gradients of the others are not written either
      changes.push_back(both(
          changes.back(), not_written([=](const Written& at) {
            const Index key = at.row % at.shape.keys;
            return at.output != kDQ && !visits({at.shape, at.blocks, false, at.output, 0, key});
          })));
    }
  };
  list.of("keys", kKeys);
  add("last key left out", "the last key is left out",
      {[](auto& at) { return at.j < at.shape.keys - 1; }});
  list.of("keys", kKeys, kByBlock);
  add("keys of the last, partial block left out",
      "the keys behind the last whole block are left out",
      {[](auto& at) { return at.j < at.shape.keys / at.blocks.keys * at.blocks.keys; }});
  add("last block of keys left out", "the last block of keys is left out, full or not",
      {[](auto& at) { return at.j < (at.shape.keys - 1) / at.blocks.keys * at.blocks.keys; }});
  add("first block of keys left out", "the first block of keys is left out",
      {[](auto& at) { return at.j >= at.blocks.keys; }});
  if (shape.queries < shape.keys)
    add("number of queries taken for that of keys",
        "only as many keys are counted as there are queries",
        {[](auto& at) { return at.j < at.shape.queries; },
         [](auto& at) { return at.first_key() < at.shape.queries; }});
  add("only the first block of keys counted", "only the first block of keys is counted",
      {[](auto& at) { return at.j < at.blocks.keys; }});
}

// A row that lies behind the first block holds what it held before; the others have what the last
// block wrote there.
void to_first_block(const Written& at, StepRow& row) {
  const bool of_keys = at.output == kDK || at.output == kDV;
  const Index rows = of_keys ? at.shape.keys : at.shape.queries, i = at.row % rows,
              block = of_keys ? at.blocks.keys : at.blocks.queries;
  const Index first = at.row - i + i % block, last = first + (rows - 1 - i % block) / block * block;
  // Where the first and the last of them have to be equal, nobody can tell which one is written.
  if (last != first && at.right(last).value == at.right(first).value)
    row.reliable = false;
  else if (i < block)
    row = at.right(last);
  else
    row.value.assign(row.value.size(), at.fill);
}

// Outputs that are added to, not written at all, or written elsewhere; only a probe can tell some
// of these apart.
void add_old_contents(List& list, const std::vector<Found>& outputs) {
  list.of("outputs", kOutput);
  for (unsigned set = 1; set < 1u << outputs.size(); ++set) {
    std::string x;
    std::vector<Output> which;
    for (std::size_t n = 0; n < outputs.size(); ++n)
      if (set >> n & 1) {
        x += (x.empty() ? "" : " and ") + std::string(outputs[n].name);
        which.push_back(outputs[n].output);
      }
    const auto is_one = [which](const Written& at) {
      return std::find(which.begin(), which.end(), at.output) != which.end();
    };
    list.add(x + " added to old contents",
             "the result is added to what " + x +
                 " held before the call, which can be anything: set it to 0 first, or write the "
                 "result instead of adding it",
             &Steps::write, [is_one](const Written& at, StepRow& row) {
               for (std::size_t c = 0; is_one(at) && c < row.value.size(); ++c)
                 row.value[c] += at.fill,
                     row.magnitude[c] = std::isnan(at.fill) ? StepRow::kAnyNaN
                                                            : row.magnitude[c] + std::fabs(at.fill);
             });
    list.add(x + " not written", "nothing is written to " + x, {not_written(is_one)});
    // Rows that are equal in all blocks say nothing here, so that with it any other mistake fits.
    list.of("outputs", kAlone, kByBlock)
        .add(x + " written to the rows of the first block",
             "each block writes " + x + " to the rows of the first one: add the block's first row",
             &Steps::write, [is_one](const Written& at, StepRow& row) {
               if (is_one(at)) to_first_block(at, row);
             });
    list.of("outputs", kOutput);
  }
}

// A row whose elements are right, and lie where others belong.
StepRow moved(const Misplaced& misplaced, const Written& at, Index columns) {
  StepRow row{std::vector<double>(columns, at.fill), std::vector<double>(columns, 1)};
  for (Index c = 0; c < columns; ++c) {
    const Index source = misplaced.source[at.row * columns + c];
    row.reliable &= source != Misplaced::kSeveral;
    if (source < 0) continue;
    const StepRow& of = at.right(source / columns);
    row.value[c] = of.value[source % columns], row.magnitude[c] = of.magnitude[source % columns];
  }
  return row;
}

void add_strides(List& list,
                 const std::vector<std::tuple<std::string, Operand, const SeenTensor*>>& read,
                 const std::vector<Misplaced>& written) {
  const auto add = [&](Group group, const std::string& x, const std::string& done,
                       const std::string& other, const std::vector<Change>& ways) {
    const std::string how = done + " with the strides of " + other;
    if (!other.empty()) return list.of("strides", group).add(x + " " + how, x + " is " + how, ways);
    list.of("contiguous", group)
        .add(x + " taken for contiguous",
             x + " is " + done + " as if its elements lay next to each other: use " + x +
                 ".stride(), or index it as " + x + "(...)",
             ways);
  };
  for (const auto& [x, operand, tensor] : read)
    for (const SeenTensor::ByOther& by : tensor->by_others) {
      std::vector<Change> ways =
          reading({operand}, [values = &by.values](Read& how) { how.from = values; });
      if (by.values.size() == 0) ways = {[](Steps& steps) { steps.leaves_memory = true; }};
      add(kIndexing, x, "read", by.other, ways);
    }
  for (const Misplaced& one : written)
    add(kAlone, one.name, "written", one.other,
        {replace(&Steps::write, [&one](const Written& at, StepRow& row) {
          if (at.output == one.output) row = moved(one, at, static_cast<Index>(row.value.size()));
        })});
}

void add_float_inside_double(List& list, const Precision& precision) {
  if (precision.largest > std::numeric_limits<float>::max())
    list.of("float-in-double", kAlone)
        .add("float inside double",
             "something is computed in float, and the tensors are double: look for float, a number "
             "that ends in f, or a function like expf()",
             {[](Steps& steps) { steps.is_float = true; }});
}

// ---- The forward pass ---------------------------------------------------------------------------

// Also 0 / 0 where a row has no weights: of one that has keys.
std::vector<Change> with_or_without_nan(const Change& change) {
  return {change, both(change, replace(&Steps::divided, [](Sized O, double l, bool has_keys) {
                         return l == 0 && !has_keys ? Sized(0) : O / l;
                       }))};
}

void add_online_softmax(List& list, bool causal) {
  const auto one = [](auto&) { return 1.0; };
  const auto alpha = [](auto& at) { return at.alpha; };
  const auto inverse = [](auto& at) { return at.inverse; };
  const auto not_a_number = [](auto&) { return std::nan(""); };
  const Change O_kept = replace(&Steps::before_PV, one),
               O_inverted = replace(&Steps::before_PV, inverse),
               l_kept = replace(&Steps::sum, [](auto&at) { return at.l + at.sum; }),
               l_inverted =
                   replace(&Steps::sum, [](auto&at) { return at.l * at.inverse + at.sum; });
  // Where m is -inf, exp(m_new - m) is inf, and inf * 0 is NaN; O alone may have it.
  list.of("rescaling", kAlone)
      .add("NaN from the first block on",
           "each row that sees a key is NaN, whatever its numbers are, so that the first block of "
           "keys makes it. There m is -inf: exp(m_new - m) and exp(S - m) are inf, and inf * 0 is "
           "NaN. Is alpha exp(m - m_new), which is 0 there, are the weights exp(S - m_new), and "
           "does m start at -inf?" +
               std::string(causal ? " Or does a mask multiply -inf by 0?" : ""),
           {both(replace(&Steps::before_PV, not_a_number), replace(&Steps::sum, not_a_number)),
            replace(&Steps::before_PV, not_a_number)});
  list.known.back().makes_nan = true;
  list.of("rescaling", kOnline, kByBlock);
  list.add("accumulator not rescaled",
           "what was added up so far (the accumulator of P V) is not multiplied by alpha when the "
           "maximum grows",
           {O_kept});
  list.add("sum not rescaled", "the sum l is not multiplied by alpha when the maximum grows",
           {l_kept});
  list.add("neither sum nor accumulator rescaled",
           "neither the sum l nor the accumulator is multiplied by alpha when the maximum grows",
           {both(O_kept, l_kept)});
  list.add("alpha inverted",
           "alpha is exp(m_new - m); it must be exp(m - m_new), which is at most 1",
           {both(O_inverted, l_inverted)});
  list.add("alpha of the accumulator inverted",
           "the accumulator is multiplied by exp(m_new - m); it must be exp(m - m_new)",
           {O_inverted});
  list.add("alpha of the sum inverted",
           "the sum l is multiplied by exp(m_new - m); it must be exp(m - m_new)", {l_inverted});
  list.add("accumulator rescaled too late",
           "the accumulator is multiplied by alpha after P V of the block is added; it must be "
           "before",
           {both(O_kept, replace(&Steps::after_PV, alpha))});
  const auto first_row = [](const Pair& at) { return at.first_query(); };
  const auto last_row = [](const Pair& at) { return at.end_of_queries() - 1; };
  list.add(
      "alpha of another row", "the accumulator is multiplied by the alpha of another row",
      &Steps::before_PV_of, [=](auto& at, Index) { return at.alpha_of(first_row(at.first)); },
      [=](auto& at, Index) { return at.alpha_of(last_row(at.first)); });
  std::vector<Change> other_bases;
  for (const double factor : {1 / kLn2, kLn2})
    other_bases.push_back(
        both(replace(&Steps::before_PV, [=](auto& at) { return std::pow(at.alpha, factor); }),
             replace(&Steps::sum,
                     [=](auto& at) { return at.l * std::pow(at.alpha, factor) + at.sum; })));
  list.of("base", kOnline, kByBlock)
      .add("alpha in another base",
           "alpha is not in the base of the weights: one of them is exp, and the other exp2",
           other_bases);
  list.of("rescaling", kOnline, kByBlock);
  list.add(
      "sum rescaled too late",
      "the sum l is multiplied by alpha after the block's weights are added; it must be before",
      &Steps::sum, [](auto& at) { return (at.l + at.sum) * at.alpha; });

  list.of("maximum", kOnline);
  list.add("maximum not subtracted", "the maximum is not subtracted from the scores",
           &Steps::maximum, [](auto&) { return 0; });
  list.add("maximum starts at 0", "the running maximum starts at 0; it must start at -inf",
           with_or_without_nan([](Steps& steps) { steps.first_maximum = 0; }));
  list.of("maximum", kOnline, kByBlock);
  list.add("maximum of the first block kept",
           "the maximum of the first block is kept; it must grow with each block", &Steps::maximum,
           [](auto& at) { return at.is_first ? std::fmax(at.m, at.of_block) : at.m; });
  list.known.back().ways.push_back(replace(  // stored, while each block has its own
      &Steps::stored_maximum, [](auto& at) { return at.m == -kInfinity ? at.m_new : at.m; }));
  list.add("maximum not stored",
           "the new maximum is not stored, so that m is -inf for each block, and alpha is 0: what "
           "was added up before is lost",
           &Steps::stored_maximum, [](auto& at) { return at.m; });
  list.add("maximum of the block only",
           "the maximum is that of the block alone; it must take in the one before",
           {replace(&Steps::maximum, [](auto& at) { return at.of_block; }),
            both(replace(&Steps::maximum, [](auto& at) { return at.of_block; }),
                 computes_seen_blocks())});

  const auto times_scale = [](double factor) {
    return [factor](Steps& steps) {
      steps.scale = [factor, own = steps.scale](double scale, Index head_dim) {
        return factor * own(scale, head_dim);
      };
    };
  };
  list.of("base", kOnline, kByBlock)
      .add("exp2 without log2(e)",
           "the weights are exp2(S - m), and S is in base e: multiply it by log2(e)",
           {times_scale(kLn2),
            replace(&Steps::exponent, [](double S, double m) { return kLn2 * (S - m); })});
  const Change larger_exponent =
      replace(&Steps::exponent, [](double S, double m) { return (S - m) / kLn2; });
  list.add("exp of scores in base 2",
           "the weights are exp(S - m), and S was multiplied by log2(e): use exp2. Or S was "
           "multiplied by log2(e) twice",
           {times_scale(1 / kLn2), larger_exponent, both(larger_exponent, other_bases[0])});

  const Change undivided = replace(&Steps::divided, [](Sized O, double, bool) { return O; });
  list.of("division", kDivision)
      .add("not divided by the sum", "the result is not divided by the sum l", {undivided});
  list.add("divided by the sum twice", "the result is divided by the sum l twice", &Steps::divided,
           [](Sized O, double l, bool) { return l == 0 ? Sized(0) : O / l / l; });
  std::vector<Change> padded;
  for (const double more : {1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12})
    for (const bool is_float : {false, true}) {
      const auto sum = [=](double l) {
        return is_float ? static_cast<float>(l) + static_cast<float>(more) : l + more;
      };
      const Change in_out =
          replace(&Steps::divided, [=](Sized O, double l, bool) { return O / sum(l); });
      padded.push_back(in_out);
      padded.push_back(both(in_out, replace(&Steps::lse, [=](double m, double l, double) {
                              return Sized(m + std::log(sum(l)), l == 0 ? StepRow::kUnknown : 1);
                            })));
    }
  list.of("empty-row", kAlone)
      .add("small number added to the sum",
           "precision is lost in the division: a number like 1e-6 is added to the sum l, which "
           "makes all numbers a little too small; ask l == 0 instead",
           padded);
  list.of("division", kDivision, kByBlock);
  list.add(
      "sum of another row", "the result is divided by the sum l of another row",
      // Of lse too, or of out alone, whose columns are numbered from 0.
      &Steps::divisor, [=](auto& at, Index, auto& l) { return l(first_row(at)); },
      [=](auto& at, Index, auto& l) { return l(last_row(at)); },
      [=](auto& at, Index column, auto& l) { return l(column < 0 ? at.i : first_row(at)); },
      [=](auto& at, Index column, auto& l) { return l(column < 0 ? at.i : last_row(at)); });
  list.add("divided by the sum in every step",
           "the accumulator is divided by the sum l after each block; it must be once, at the end",
           {both(undivided, [](Steps& steps) {
             steps.after_PV = [own = steps.after_PV](auto& at) { return own(at) / at.l; };
           })});
  list.add("sum of the last block only",
           "the sum l is that of the last block; it must be that of all blocks", &Steps::sum,
           [](auto& at) { return at.sum; });
}

void add_what_is_not_finite(List& list, bool can_mask) {
  // The numbers may be in base 2.
  std::vector<Change> starts, masks, paddings, shared;
  for (const double start : {-1e3, -1e3 * kLn2, -1e4, -1e4 * kLn2, -1e9})
    for (const Change& way :
         with_or_without_nan([start](Steps& steps) { steps.first_maximum = start; }))
      starts.push_back(way);
  for (const double score : {-1e3, -1e3 * kLn2, -1e4, -1e4 * kLn2, -1e9, -1e9 * kLn2})
    paddings.push_back([score](Steps& steps) {
      steps.end = to_whole_blocks;
      steps.masked = [score](auto& at) { return at.j >= at.shape.keys ? score : -kInfinity; };
    });
  list.of("finite-mask", kAlone, kByBlock)
      .add("padding with a finite number",
           "keys past the last one have a score like -1e9 instead of -inf: where all others are "
           "smaller, they count",
           paddings);
  list.of("maximum", kAlone)
      .add("maximum starts at a finite number",
           "the running maximum starts at a number like -1e4 or -1e9, which scores may be far "
           "below; it must start at -inf",
           starts);
  for (const double score : {-1e4, -1e4 * kLn2, -1e6, -1e6 * kLn2, -1e9, -1e9 * kLn2}) {
    masks.push_back(replace(&Steps::masked, [score](auto&) { return score; }));
    masks.push_back([score](Steps& steps) {  // in whole tiles: past the last key, too
      steps.end = to_whole_blocks;
      steps.masked = [score](auto& at) { return is_in_seen_block(at) ? score : -kInfinity; };
      steps.adds = [](auto& at, double) { return at.counted; };
    });
  }
  if (can_mask)
    list.of("finite-mask", kAlone, kByBlock)
        .add("mask with a finite number",
             "masked keys have a score like -1e9 instead of -inf: where all others are smaller, "
             "they count",
             masks);
  list.of("precision", kAlone, kByBlock)
      .add("accumulator in half",
           "the accumulator is kept in half, which has 3 digits and ends at 65504: keep sums in "
           "float",
           &Steps::after_block, [](Accumulator& at) {
             for (double& O : at.O) O = static_cast<float>(Half(static_cast<float>(O)));
           });
  for (const Index rows : {0, 2, 4, 8, 16})
    for (const bool at_once : {false, true})
      for (const Change& way : shared_maximum(rows, 1, at_once)) shared.push_back(way);
  list.of("shared-maximum", kAlone, kByBlock)
      .add("one maximum for several rows",
           "rows share one maximum; each row needs its own, since exp(S - m) becomes 0 where m is "
           "far above the row's scores",
           shared);
  list.of("lanes", kAlone, kByBlock)
      .add("maximum of one lane",
           "each lane has the maximum of its own keys only; the lanes of a row need the same one, "
           "which warp_max() finds",
           {});  // which lane has what the task knows
  list.add("sum of one lane",
           "the sum l is that of one lane's keys; the row's is the sum over its lanes, which "
           "warp_sum() gives",
           {});
  list.add("sum of the lanes added twice",
           "the sum l is as many times too large as lanes share a row: each of them has the whole "
           "sum already when warp_sum() adds their sums once more",
           {});
  list.of("empty-row", kAlone, kByBlock)
      .add("-inf minus -inf",
           "where a row has seen only -inf, m is -inf, and exp(-inf - -inf) is NaN: subtract 0 "
           "there",
           {both(replace(&Steps::reference, [](double m) { return m; }),
                 replace(&Steps::computes, [](auto&, bool any, bool, double) { return any; }))});
  list.of("empty-row", kAlone)
      .add("0 divided by 0",
           "a row without weights has the sum 0, and 0 / 0 is NaN: its result is 0",
           &Steps::divided, [](Sized O, double l, bool) { return O / l; });
  list.of("nan", kAlone);
  list.add("NaN scores left out",
           "a score that is NaN is left out, as if its weight were 0; it has to make its row NaN",
           &Steps::visits, [](auto& at) { return !std::isnan(at.S); });
  list.add("NaN sum taken for 0",
           "a row whose sum l is NaN gets 0: l > 0 is false for NaN; ask l == 0", &Steps::divided,
           [](Sized O, double l, bool) { return l > 0 ? O / l : Sized(0); });
  list.add("rows of NaN taken for rows without keys",
           "a row whose scores are all NaN gets 0: a maximum drops NaN, so that m is -inf there; "
           "whether a row sees a key is known from l == 0",
           &Steps::computes,
           [](auto&, bool, bool, double maximum) { return maximum != -kInfinity; });
  list.add("NaN values left out",
           "a value that is NaN is left out; it has to reach the rows that see it", &Steps::PV,
           [](double P, const double* V, double, Accumulator& at) {
             for (std::size_t c = 0; c < at.O.size(); ++c)
               if (!std::isnan(V[c])) at.O[c] += P * V[c], at.size[c] += std::fabs(P * V[c]);
           });
  list.add("keys of weight 0 left out",
           "a key whose weight is 0 is left out; 0 * NaN is NaN, so that its value still counts",
           &Steps::PV, [](double P, const double* V, double largest, Accumulator& at) {
             for (std::size_t c = 0; P != 0 && c < at.O.size(); ++c)
               if (std::isnan(V[c]) && P < 64 / largest)  // whether P is 0 is a matter of rounding
                 at.unsure.push_back(static_cast<Index>(c));
               else
                 at.O[c] += P * V[c], at.size[c] += std::fabs(P * V[c]);
           });
  if (can_mask)
    list.of("nan", kAlone, kByBlock)
        .add("values of masked keys counted",
             "masked keys have the weight 0, but their values are still multiplied by it, and 0 * "
             "NaN is NaN: leave these keys out of the sum",
             {both(replace(&Steps::computes, kAlways), replace(&Steps::adds, kAlways)),
              both(computes_seen_blocks(), replace(&Steps::adds, [](auto& at, double P) {
                     return at.counted || P != 0 || is_in_seen_block(at);
                   }))});
}

void add_blocks(List& list) {
  list.of("keys", kKeys, kByBlock);
  list.add("padded keys counted", "keys past the last one are counted, with a score of 0",
           {[](Steps& steps) {
             steps.end = to_whole_blocks;
             steps.masked = [own = steps.masked](auto& at) {
               return at.j >= at.shape.keys ? 0 : own(at);
             };
           }});
  list.add("keys of the block before counted again",
           "keys past the last one are counted, with what the block before left in their places: "
           "go up to the last key only, or load what weighs nothing",
           {[](Steps& steps) {
             const auto of_tile = [](auto& at) {
               return at.j < at.shape.keys ? at.j : at.j - at.blocks.keys;
             };
             steps.end = [](Index keys, Index block) {  // the first block has none before it
               return keys > block ? to_whole_blocks(keys, block) : keys;
             };
             steps.row_of_K = steps.row_of_V = of_tile;
             steps.masked = [](auto& at) { return at.j < at.shape.keys ? -kInfinity : at.S; };
           }});
  list.known.back().ways.push_back([stale = list.known.back().ways[0]](Steps& steps) {
    stale(steps);  // up to a multiple of 4
    steps.masked = [](auto& at) {
      const Index keys = at.shape.keys - at.first_key();
      return at.j < at.shape.keys || at.j - at.first_key() >= to_whole_blocks(keys, 4) ? -kInfinity
                                                                                       : at.S;
    };
  });
  list.known.back().ways.push_back([stale = list.known.back().ways[0]](Steps& steps) {
    stale(steps);  // in l alone
    steps.row_of_V = [](auto& at) { return at.j; };
  });
  list.known.back().ways.push_back([](Steps& steps) { steps.adds_stale = true; });  // in P V alone
  list.add(
      "last key counted again",
      "keys past the last one are counted, and each of them is the last one once more: an index "
      "that is kept below the number of keys needs a score of -inf as well",
      {[](Steps& steps) {
        steps.end = to_whole_blocks;
        steps.row_of_K =
            steps.row_of_V = [](auto& at) { return std::min(at.j, at.shape.keys - 1); };
        steps.masked = [](auto& at) { return at.j < at.shape.keys ? -kInfinity : at.S; };
      }});
  const auto of_first_block = [](auto& at) { return at.j % at.blocks.keys; };
  list.add("values of the first block in every block",
           "the values of the first block of keys are used for every block", &Steps::row_of_V,
           of_first_block);
  list.add("scores of the first block in every block",
           "the scores with the first block of keys are used for every block", &Steps::row_of_K,
           of_first_block);

  list.of("rows", kOnline, kByBlock)
      .add(
          "weights of another row", "the values are multiplied by the weights P of another row",
          &Steps::weight,
          [](auto& at, Index key) { return at.weight_of(at.first.first_query(), key); },
          [](auto& at, Index key) { return at.weight_of(at.first.end_of_queries() - 1, key); });

  list.of("outputs", kOutput, kByBlock);
  const auto rows = [&](const char* name, const char* text, bool (*is_left)(Index, Index, Index)) {
    list.add(name, text, {not_written([=](const Written& at) {
               const Index queries = at.shape.queries;
               return is_left(at.row % queries, queries, at.blocks.queries);
             })});
  };
  rows("rows of the last, partial block not written",
       "the rows behind the last whole block are not written",
       [](Index i, Index queries, Index block) { return i >= queries / block * block; });
  rows("rows of the second half not written",
       "the rows of the second half are not written: with half as many threads as rows in each "
       "block, the blocks reach only so far",
       [](Index i, Index queries, Index block) {
         return i >= (queries + block - 1) / block * ((block + 1) / 2);
       });
  list.add("rows without keys not written",
           "the rows that see no key, or only scores of -inf, are not written: they get 0, and lse "
           "-inf",
           {not_written([](const Written& at) {
             const std::vector<double>& right = at.right(at.row).value;
             return std::all_of(right.begin(), right.end(),
                                [](double value) { return value == 0 || value == -kInfinity; });
           })});
  rows("last row of each block not written", "the last row of each block is not written",
       [](Index i, Index queries, Index block) {
         return i % block == block - 1 || i == queries - 1;
       });
  rows("every other row not written", "every other row of a block is not written",
       [](Index i, Index, Index block) { return i % block % 2 == 1; });

  list.of("reset", kAlone, kByBlock);
  const Change tile_kept =
      replace(&Steps::begin, [](Accumulator& at, const Accumulator& left) { at.tile = left.tile; });
  std::vector<Change> begun;
  for (const Change& way : scores_begun()) {
    begun.push_back(way);
    begun.push_back(both(way, tile_kept));
  }
  list.add("scores not set to 0", kScoresNotSetTo0, begun);
  std::vector<Change> kept;
  for (const auto& [of_blocks, of_rows] : {std::pair{true, false}, {false, true}, {true, true}})
    kept.push_back(both(replace(&Steps::sum,
                                [of_blocks = of_blocks, of_rows = of_rows](auto& at) {
                                  const Pair& own = at.first;
                                  const Index end = of_rows ? own.end_of_queries() : own.i + 1;
                                  double left = 0;
                                  for (Index row = of_rows ? own.first_query() : own.i; row < end;
                                       ++row) {
                                    if (of_blocks) left += at.sum_before(row, own.j);
                                    if (row < own.i) left += at.sum_of(row, own.j);
                                  }
                                  return at.l * at.alpha + left + at.sum;
                                }),
                        computes_seen_blocks()));
  list.add(
      "sum of a block not reset",
      "the sum of a block's weights still has what the block or the row before it left: it has "
      "to start at 0 for each row of each block",
      kept);
  for (const auto& [name, what, m, l, O] :
       {std::tuple{"sum", "the sum l still has", false, true, false},
        {"maximum", "the running maximum m still has", true, false, false},
        {"accumulator", "the accumulator still has", false, false, true},
        {"nothing", "m, l and the accumulator still have", true, true, true}})
    list.add(std::string(name) + (O && l ? " reset" : " not reset"),
             std::string(what) +
                 " what the block of rows before it left: it has to start anew for "
                 "each block",
             &Steps::begin, [m = m, l = l, O = O](Accumulator& at, const Accumulator& left) {
               if (m) at.m = left.m;
               if (l) at.l = left.l;
               if (O) at.O = left.O, at.size = left.size;
             });
}

void add_forgotten_indices(List& list, const SeenForward& seen) {
  const auto first_key = [](auto& at) { return at.first_key(); };
  const auto add = [&](const char* index, const char* x, const char* read, const char* right,
                       const std::vector<Change>& ways) {
    add_forgotten(list.of("forgotten-index", kIndexing, kByBlock), index, x, read, right, ways);
  };
  const auto column = [](Operand operand, const SeenTensor& x) {
    return reading_from(operand, first_column(x.values));
  };
  const Change first_of_K = replace(&Steps::row_of_K, first_key),
               first_weight = replace(&Steps::weight,
                                      [](auto&at, Index) { return at.weight_of(at.first.i, 0); });
  if (seen.has_scores) {
    list.of("forgotten-index", kIndexing, kByBlock)
        .add(
            "scores of a row equal",
            "X(i, 0) or X(i, j0) is read in place of X(i, j0 + j), or no score at all: the keys of "
            "a row, or of a block, have the same weight",
            std::vector<Change>{column(kK, seen.k), first_of_K,
                                both(replace(&Steps::sum,  // after the maximum of all
                                             [](auto& at) {
                                               const Pair& own = at.first;
                                               const Index keys = std::min(own.blocks.keys,
                                                                           own.shape.keys - own.j);
                                               return at.l * at.alpha + static_cast<double>(keys) *
                                                                            at.weight_of(own.i, 0);
                                             }),
                                     first_weight)});
  } else {
    add("c", "Q", "Q(i, 0)", "Q(i, c)", {column(kQ, seen.q)});
    std::vector<Change> rows;
    for (const Index count : {Index{1}, std::max<Index>(seen.block_queries, 1)})
      rows.push_back(reading_from(kQ, first_rows(seen.q.values, count)));
    add("i", "Q", "a query of the first block", "query i", rows);
    add("c", "K", "K(j, 0)", "K(j, c)", {column(kK, seen.k)});
    add("j", "K", "K(j0, c)", "K(j0 + j, c)", {first_of_K});
  }
  add("c", "V", "V(j, 0)", "V(j, c)", {column(kV, seen.v)});
  add("j", "V", "V(j0, c)", "V(j0 + j, c)", {replace(&Steps::row_of_V, first_key)});
  add("j", "P", "P(i, j0)", "P(i, j0 + j)", {first_weight});
}

// With a mask, and with a scale that is negative.
void add_unusual_maxima(List& list, const SeenForward& seen) {
  if (seen.options.causal)
    list.of("maximum", kAlone, kByBlock)
        .add("maximum of masked keys",
             "the maximum takes in keys that the query does not see, with what the block before "
             "left in their places: where all scores are very low, all weights become 0",
             {both(replace(&Steps::maximum,
                           [](auto& at) {
                             const Pair& own = at.first;
                             const Index end = std::min({own.first_key() + own.blocks.keys,
                                                         own.end_of_queries(), own.shape.keys});
                             return std::fmax(
                                 at.m, std::fmax(at.of_block, end > own.i + 1 ? 0.0 : -kInfinity));
                           }),
                   computes_seen_blocks())});
  if (seen.options.scale.value_or(1) < 0)
    list.of("maximum", kAlone, kByBlock)
        .add("maximum before the scale",
             "the maximum is that of Q K^T, and the scale is applied later: with a negative one it "
             "is the smallest score, and exp(S - m) overflows",
             &Steps::maximum,
             [](auto& at) { return at.m == -kInfinity ? at.least : std::fmin(at.m, at.least); });
}

void add_lse(List& list) {
  list.of("lse", kLse);
  const auto add = [&](const char* name, const char* text,
                       double (*lse)(double m, double log_l, double scale)) {
    list.add(name, text, &Steps::lse, [lse](double m, double l, double scale) {
      // What log(0) becomes is another mistake's.
      return Sized(lse(m, std::log(l), scale), l == 0 ? StepRow::kUnknown : 1);
    });
  };
  add("lse without log(l)", "lse is the maximum m alone; it must be m + log(l)",
      [](double m, double, double) { return m; });
  add("lse without the maximum", "lse is log(l) alone; it must be m + log(l)",
      [](double, double log_l, double) { return log_l; });
  add("lse in base 2", "lse is in base 2: multiply it by ln 2",
      [](double m, double log_l, double) { return (m + log_l) / kLn2; });
  add("log2 in lse", "lse is m + log2(l); it must be m + log(l)",
      [](double m, double log_l, double) { return m + log_l / kLn2; });
  add("log(l) times ln 2 in lse",
      "lse is (m + log(l)) * ln 2: l needs log2 there, because m is in base 2",
      [](double m, double log_l, double) { return m + log_l * kLn2; });
  add("lse without a logarithm", "lse is m + l; it must be m + log(l)",
      [](double m, double log_l, double) { return m + std::exp(log_l); });
  add("lse with the wrong sign", "lse is -(m + log(l))",
      [](double m, double log_l, double) { return -(m + log_l); });
  add("lse scaled again", "lse is multiplied by the scale once more",
      [](double m, double log_l, double scale) { return (m + log_l) * scale; });
  list.of("nan", kAlone)
      .add("NaN lost in lse", "lse is -inf where l is NaN: l > 0 is false for NaN; ask l == 0",
           &Steps::lse, [](double m, double l, double) {
             return Sized(l > 0 ? m + std::log(l) : -kInfinity, 1);
           });
  list.of("lse", kLse);
  add("lse subtracts log(l)", "lse is m - log(l); it must be m + log(l)",
      [](double m, double log_l, double) { return m - log_l; });
}

// ---- The backward pass --------------------------------------------------------------------------

// What a gradient is the sum of: of these tensors the row that belongs to the pair.
const double* own_row(const Weight& at, Operand of) {
  return of == kQ ? at.Q : of == kK ? at.K : of == kDOut ? at.dO : at.row_of(kV, at.j);
}
const double* right_row(const Weight& at) {
  return at.output == kDQ ? at.K : at.output == kDK ? at.Q : at.dO;
}
Sized right_factor(const Weight& at) { return at.output == kDV ? Sized(at.P) : at.dS(); }

void add_gradients(List& list, const SeenBackward& seen) {
  list.of("gradients", kGradient);
  list.add("delta missing", "delta is missing: dS = P * (dP - delta)", &Steps::dS,
           [](Sized P, Sized dP, Sized) { return P * dP; });
  list.add("delta added", "delta is added; it must be subtracted: dS = P * (dP - delta)",
           &Steps::dS, [](Sized P, Sized dP, Sized delta) { return P * (dP + delta); });
  list.add("P missing in dS", "dS is dP - delta without P: dS = P * (dP - delta)", &Steps::dS,
           [](Sized, Sized dP, Sized delta) { return dP - delta; });
  list.add("P missing at delta", "dS is P * dP - delta: dS = P * (dP - delta)", &Steps::dS,
           [](Sized P, Sized dP, Sized delta) { return P * dP - delta; });
  list.add("P missing at dP", "dS is dP - P * delta: dS = P * (dP - delta)", &Steps::dS,
           [](Sized P, Sized dP, Sized delta) { return dP - P * delta; });
  list.add("dS with the wrong sign", "dS is P * (delta - dP): dS = P * (dP - delta)", &Steps::dS,
           [](Sized P, Sized dP, Sized delta) { return P * (delta - dP); });
  list.add("dP from out", "dP is computed from out; it must be from d_out: dP = dO V^T",
           {[out = &seen.out.values](Steps& steps) { steps.read[kDOutForDP] = {.from = out}; }});
  list.add("dV from dS", "dV is computed from dS; it must be from P: dV = P^T dO", &Steps::factor,
           [](auto& at) { return at.dS(); });
  list.add("dK from P", "dK is computed from P; it must be from dS: dK = scale * dS^T Q",
           &Steps::factor, [](auto& at) { return at.output == kDQ ? at.dS() : Sized(at.P); });
  for (const auto& [of, x, right] : {std::tuple{kDQ, "dQ", "K: dQ = scale * dS K"},
                                     {kDK, "dK", "Q: dK = scale * dS^T Q"},
                                     {kDV, "dV", "d_out: dV = P^T dO"}})
    for (const auto& [from, operand] :
         {std::pair{"K", kK}, {"Q", kQ}, {"V", kV}, {"d_out", kDOut}}) {
      if (std::string(right).starts_with(from)) continue;
      list.add(std::string(x) + " from " + from,
               std::string(x) + " is computed from " + from + "; it must be from " + right,
               &Steps::with, [of = of, operand = operand](auto& at) {
                 return at.output == of ? own_row(at, operand) : right_row(at);
               });
    }
  list.of("forgotten-index", kGradient);
  for (const auto& [x, row, operand, tensor, gradient] :
       {std::tuple{"Q", "i", kQ, &seen.q.values, kDK},
        {"K", "j", kK, &seen.k.values, kDQ},
        {"V", "j", kV, &seen.v.values, Output::kOut},
        {"d_out", "i", kDOut, &seen.d_out.values, kDV}}) {
    const auto column = first_column(*tensor);
    const auto with = [of = gradient, operand = operand](auto from) {
      return replace(&Steps::with, [=](auto& at) {
        return at.output == of ? &(*from)(at.b, at.h, operand == kK ? at.j : at.i, 0)
                               : right_row(at);
      });
    };
    const Change in_gradient = with(column),
                 in_product = both(reading_from(operand == kDOut ? kDOutForDP : operand, column),
                                   with(tensor));
    std::vector<Change> ways{in_product};
    if (gradient != Output::kOut) ways = {in_product, in_gradient, both(in_product, in_gradient)};
    const std::string name = x, at = name + "(" + row + ", ";
    add_forgotten(list, "c", name, at + "0)", at + "c)", ways);
  }
  add_forgotten(list, "c", "delta", "column 0 of out or of d_out", "column c",
                {replace(&Steps::delta,
                         [](auto* out, auto* dO, Index d) {
                           return sized_dot(out, std::vector(d, dO[0]).data(), d);
                         }),
                 replace(&Steps::delta, [](auto* out, auto* dO, Index d) {
                   return sized_dot(std::vector(d, out[0]).data(), dO, d);
                 })});
  list.of("forgotten-index", kGradient, kByBlock);
  std::vector<Change> first_weights;  // in the bonus' pass for dK: of the lane's first query
  for (const Index lanes : {8, 16})
    first_weights.push_back(replace(&Steps::factor, [lanes](auto& at) {
      const Index streamed = at.blocks.keys, place = at.i % streamed % lanes;
      return at.output == kDK
                 ? Sized(at.P_of(at.i - at.i % streamed + place)) * (at.dP() - at.delta())
                 : right_factor(at);
    }));
  add_forgotten(list, "i", "P", "P of the thread's first query", "P(i, j)", first_weights);
  list.of("reset", kAlone, kByBlock);
  const Change of_row = replace(&Steps::place, [](auto&at) { return at.j % at.blocks.keys; }),
               of_head =
                   replace(&Steps::place, [](auto&at) { return at.i * at.shape.keys + at.j; }),
               dP_kept = [](Steps&steps) { steps.keeps_dP = true; };
  std::vector<Change> begun, all_begun;
  for (const Change& place : {of_row, of_head})
    for (const Change& way : scores_begun()) {
      begun.push_back(both(place, way));
      all_begun.push_back(both(begun.back(), dP_kept));
    }
  list.add("scores not set to 0", kScoresNotSetTo0, begun);
  list.add("dP not set to 0",
           "the sums of dO V^T begin with what their places held before, the dP of the query "
           "before or the weights P: set them to 0 first",
           {both(of_row, dP_kept), both(of_head, dP_kept), replace(&Steps::factor, [](auto& at) {
              return at.output == kDK ? Sized(at.P) * (Sized(at.P) + at.dP() - at.delta())
                                      : right_factor(at);
            })});
  list.add("scores and dP not set to 0",
           "the sums of Q K^T and of dO V^T begin with what their places held before: set them to "
           "0 first",
           all_begun);
  list.of("batch-and-head", kGradient, kByBlock);
  const auto from_another_row = [&list](const char* name, const char* text, auto of, auto operand) {
    const auto with = [=](auto row) {
      return
          [=](auto& at) { return at.output == of ? at.row_of(operand, row(at)) : right_row(at); };
    };
    list.add(name, text, &Steps::with,
             with([](auto& at) { return std::min(at.j, at.shape.queries - 1); }),
             with([](auto& at) { return at.i % at.blocks.queries; }),
             with([](auto& at) { return at.i % at.blocks.keys; }));
  };
  from_another_row(
      "dV from another row of d_out",
      "dV takes the row of d_out from another place: P(i, j) belongs to row i of d_out", kDV,
      kDOut);
  from_another_row("dK from another row of Q",
                   "dK takes the row of Q from another place: dS(i, j) belongs to row i of Q", kDK,
                   kQ);
  list.of("rows", kGradient, kByBlock);
  for (const auto& [x, step, text] :
       {std::tuple{"delta", &Steps::row_of_delta, "dS(i, j) = P(i, j) * (dP(i, j) - delta(i))"},
        {"lse", &Steps::row_of_lse, "P(i, j) = exp(S(i, j) - lse(i))"}}) {
    list.add(
        std::string(x) + " of another row",
        std::string(x) + " is that of another row than the query's: " + text, step,
        [](auto& at) { return at.j; }, [](auto& at) { return at.j % at.blocks.keys; },
        [](auto& at) { return at.i % at.blocks.queries; },
        [](auto& at) { return at.first_query(); },
        // In the bonus: the key's place among the streamed queries, the number of a thread's score,
        // and a thread's first row.
        [](auto& at) { return at.i - at.i % at.blocks.keys + at.j % at.blocks.keys; },
        [](auto& at) { return at.i - at.i % at.blocks.keys + at.i % at.blocks.keys / 8; },
        [](auto& at) { return at.i - at.i % 32 + at.i % 4; },
        [](auto& at) { return at.i - at.i % 8 + at.i % 4; });
  }
  list.of("loop-over-queries", kAlone, kByBlock)
      .add("queries past the last one counted",
           "queries past the last one add to dK and dV: they are loaded as 0, but 0 times a number "
           "that is not finite is NaN",
           &Steps::write, [&seen](const Written& at, StepRow& row) {
             const auto& [own, streamed] = at.blocks;
             const Index tail = at.shape.queries / streamed * streamed,
                         j0 = at.row % at.shape.keys / own * own;
             if (at.output == kDQ || tail == at.shape.queries ||
                 (seen.options.causal && tail < j0 + own - 1))
               return;
             const auto is_finite = [&](const SeenTensor& x) {
               const double* const begin = x.values.data() + at.row * at.shape.head_dim;
               return std::all_of(begin, begin + at.shape.head_dim,
                                  [](double value) { return std::isfinite(value); });
             };
             if (!is_finite(seen.k) || (at.output == kDK && !is_finite(seen.v)))
               row = {std::vector(row.value.size(), std::nan("")),
                      std::vector(row.value.size(), 1.0)};
           });
  list.of("gradients", kGradient);
  list.add("delta of half the columns", "delta sums up the first half of the columns only",
           &Steps::delta,
           [](auto* out, auto* dO, Index d) { return sized_dot(out, dO, (d + 1) / 2); });
  list.add("delta overwritten", "each column overwrites delta; it must add to it", &Steps::delta,
           [](auto* out, auto* dO, Index d) { return Sized(out[d - 1] * dO[d - 1]); });
  if (seen.shape.heads > 1)
    list.add("delta with head 0 of out", "delta is computed with head 0 of out", {[](Steps& steps) {
               steps.read[Operand::kOut].head = [](Index, Index) -> Index { return 0; };
             }});
  const auto of_lanes = [](Index lanes) {
    return [lanes](auto* out, auto* dO, Index d) {
      Sized sum(0);
      for (Index c = 0; c < d; ++c)
        if (c % 32 < lanes) sum = sum + Sized(out[c] * dO[c]);
      return sum;
    };
  };
  list.of("lanes", kGradient)
      .add("delta of one lane",
           "delta is the sum over the columns of one lane, or of a part of the lanes; warp_sum() "
           "adds up those of all lanes",
           &Steps::delta, of_lanes(1), of_lanes(2), of_lanes(4), of_lanes(8), of_lanes(16));
  list.add("delta of the lanes added up twice",
           "delta is 32 times too large: each lane has the whole sum already when warp_sum() adds "
           "up those of all lanes",
           &Steps::delta,
           [](auto* out, auto* dO, Index d) { return Sized(32) * sized_dot(out, dO, d); });
  list.of("P-from-lse", kGradient);
  list.add("P without lse", "P is exp(S); it must be exp(S - lse)", &Steps::exponent,
           [](double S, double) { return S; });
  list.add("P in base 2 with lse in base e", "P is exp2(S - lse), and S and lse are in base e",
           &Steps::exponent, [](double S, double lse) { return kLn2 * (S - lse); });
  list.add("lse in base e, scores in base 2",
           "P is exp2(S - lse), where S is in base 2 and lse in base e: multiply lse by log2(e)",
           &Steps::exponent, [](double S, double lse) { return S - kLn2 * lse; });
  list.add("scores in base e, lse in base 2",
           "P is exp2(S - lse), where lse is in base 2 and S in base e: multiply S by log2(e)",
           &Steps::exponent, [](double S, double lse) { return kLn2 * S - lse; });
  list.add("exp of scores and lse in base 2",
           "P is exp(S - lse), and S and lse are in base 2: use exp2", &Steps::exponent,
           [](double S, double lse) { return (S - lse) / kLn2; });
  list.of("loop-over-queries", kKeys)
      .add("last query left out", "the last query is left out", &Steps::visits,
           [](auto& at) { return at.i != at.shape.queries - 1; });
  const Sees whole_blocks = [](auto& at) {
    return at.i < at.shape.queries / at.blocks.keys * at.blocks.keys;
  };
  list.of("loop-over-queries", kKeys, kByBlock)
      .add("queries of the last, partial block left out",
           "the queries behind the last whole block are left out", &Steps::visits, whole_blocks,
           of_keys_only(whole_blocks));
  list.of("nan", kAlone)
      .add(
          "NaN scores left out",
          "a score that is NaN is left out, as if its weight were 0; it has to reach the gradients",
          &Steps::exponent,
          [](double S, double lse) { return std::isnan(S) ? -kInfinity : S - lse; });
  list.add("rows of NaN taken for rows without weights",
           "a row whose lse is NaN is left out: lse > -inf is false for NaN; ask lse == -inf",
           {replace(&Steps::has_weights, [](double lse) { return lse > -kInfinity; }),
            replace(&Steps::factor, [](auto& at) {  // where dS is NaN all the same
              return at.output == kDV && std::isnan(at.lse) ? Sized(0) : right_factor(at);
            })});
  if (seen.options.causal) {
    // In a kernel, which multiplies the other row by 0.
    const auto by_0 = [](bool (*meets)(const Pair&)) {
      return both(
          replace(&Steps::adds, [meets](auto& at, double) { return at.counted || meets(at); }),
          replace(&Steps::factor,
                  [](auto& at) { return at.counted ? right_factor(at) : Sized(0); }));
    };
    list.of("nan", kAlone, kByBlock)
        .add("masked keys counted with weight 0",
             "masked keys have P = 0 and are still multiplied by it, and 0 * NaN is NaN: leave "
             "them out",
             {replace(&Steps::adds, kAlways),
              replace(&Steps::adds,
                      [](auto& at, double) { return at.counted || at.first_key() <= at.i; }),
              by_0([](auto& at) { return at.output == kDK && at.first_key() <= at.i; }),
              by_0([](auto& at) { return at.output == kDQ && is_in_seen_block(at); })});
  }
  list.of("empty-row", kAlone)
      .add("rows without weights counted",
           "a row whose lse is -inf weighs no key, but exp(S - -inf) is inf: leave it out",
           &Steps::has_weights, kAlways);
}

// Of both of two gradients only where both were asked for.
void add_sums(List& list, const SeenBackward& seen) {
  const bool has_dQ = seen.d_q.size() > 0, has_dK = seen.d_k.size() > 0,
             has_dV = seen.d_v.size() > 0;
  for (const auto& [x, dK, dV] :
       {std::tuple{"dK", true, false}, {"dV", false, true}, {"dK and dV", true, true}}) {
    if ((dK && !has_dK) || (dV && !has_dV)) continue;
    const auto is_one = [dK = dK, dV = dV](Output of) {
      return (of == kDK && dK) || (of == kDV && dV);
    };
    list.of("gradient-sums", kAlone, kByBlock)
        .add(
            std::string(x) + " not reset",
            "the sums of a block of keys begin with what the block before it left: set them to 0 "
            "for each block",
            {replace(&Steps::keeps, is_one), both(replace(&Steps::keeps, is_one), [](Steps& steps) {
               steps.keeps_in_head = true;
             })});
    if (!dK)
      list.of("gradient-sums", kAlone)
          .add("dV is 0",
               "dV is 0 everywhere: nothing is added to it, or weights P that are all 0, as where "
               "the sums S do not begin with 0",
               &Steps::factor, [](auto& at) { return at.output == kDV ? Sized(0) : at.dS(); });
    list.of("gradient-sums", kSum)
        .add(std::string(x) + " overwritten",
             std::string("each query overwrites ") + x + "; it must add to " +
                 (dK && dV ? "them" : "it"),
             &Steps::replaces, [is_one](auto& at, Index) { return is_one(at.output); });
  }
  list.add("dQ overwritten by each key", "each key overwrites dQ; it must add to it",
           &Steps::replaces, [](auto& at, Index) { return at.output == kDQ; });
  list.of("gradient-sums", kSum, kByBlock)
      .add("dQ overwritten by each block", "each block of keys overwrites dQ; it must add to it",
           &Steps::replaces,
           [](auto& at, Index last_key) { return at.output == kDQ && last_key < at.first_key(); });

  list.of("gradient-scale", kSum);
  list.add("dV scaled", "dV is multiplied by the scale, which belongs to dQ and dK only",
           &Steps::times, [](Output, double scale) { return scale; });
  const std::string dQ_is = "dQ = scale * dS K", dK_is = "dK = scale * dS^T Q";
  for (const auto& [name, formula, dQ, dK] : {std::tuple{"dQ", dQ_is, true, false},
                                              {"dK", dK_is, false, true},
                                              {"dQ and dK", dQ_is + ", " + dK_is, true, true}}) {
    if ((dQ && !has_dQ) || (dK && !has_dK)) continue;
    const auto times = [dQ = dQ, dK = dK](double (*by)(double)) {
      return [=](Output of, double scale) {
        return of == kDV ? 1 : (of == kDQ ? dQ : dK) ? by(scale) : scale;
      };
    };
    const std::string x = name, are = x + (dQ && dK ? " are" : " is");
    list.add(x + " without the scale", are + " not multiplied by the scale: " + formula,
             &Steps::times, times([](double) { return 1.0; }));
    list.add(x + " scaled twice", are + " multiplied by the scale twice", &Steps::times,
             times([](double scale) { return scale * scale; }));
  }
}

}  // namespace

std::vector<Change> shared_maximum(Index count, Index apart, bool at_once) {
  return with_or_without_nan(replace(&Steps::maximum, [=](const Online& at) {
    const Pair& own = at.first;
    const Index block = own.first_query(), in_block = own.i - block,
                rows = count == 0 ? own.blocks.queries : count,
                first = block + in_block / (rows * apart) * rows * apart + in_block % apart,
                last = std::min(first + rows * apart, block + own.blocks.queries);
    double most = std::fmax(at.m, at.of_block);
    for (Index row = first; row < last; row += apart) {
      if (row >= own.shape.queries) {  // lanes have their scores, which are 0
        if (apart > 1) most = std::fmax(most, 0.0);
        break;
      }
      const Index j0 = row <= own.i || at_once ? own.j : own.j - own.blocks.keys;
      if (j0 >= 0) most = std::fmax(most, at.largest_score(row, j0));
    }
    return most;
  }));
}

Mistake& named(const std::string& name, std::vector<Mistake>& known) {
  return *std::find_if(known.begin(), known.end(),
                       [&](const Mistake& mistake) { return mistake.name == name; });
}

std::vector<Mistake> mistakes_of(const SeenForward& seen) {
  List list;
  const auto reads = [&](const char* x, const std::vector<Operand>& operands) {
    add_heads_and_batches(list, seen.shape.batch, seen.shape.heads, x, operands);
  };
  reads("v", {kV});
  reads(seen.has_scores ? "x" : "k", {kK});
  if (!seen.has_scores) {
    reads("q", {kQ});
    reads("k and v", {kK, kV});
    add_scales(list, seen.options, seen.shape.head_dim, false);
    add_masks(list, seen.shape, seen.options.causal, false);
  }
  add_keys(list, seen.shape, false);
  add_forgotten_indices(list, seen);
  add_unusual_maxima(list, seen);
  add_online_softmax(list, !seen.has_scores && seen.options.causal);
  add_what_is_not_finite(list, !seen.has_scores && seen.options.causal);
  add_blocks(list);
  add_old_contents(list, seen.found());
  if (seen.lse.size() > 0) add_lse(list);
  add_float_inside_double(list, seen.precision);
  add_strides(list,
              {{"q", kQ, &seen.q}, {seen.has_scores ? "x" : "k", kK, &seen.k}, {"v", kV, &seen.v}},
              seen.misplaced);
  if (seen.own_mistakes != nullptr) seen.own_mistakes(list.known);
  return list.known;
}

std::vector<Mistake> mistakes_of(const SeenBackward& seen) {
  List list;
  add_scales(list, seen.options, seen.shape.head_dim, true);
  add_masks(list, seen.shape, seen.options.causal, true);
  for (const auto& [x, operands] : {std::pair{"q", std::vector{kQ}},
                                    {"k", {kK}},
                                    {"v", {kV}},
                                    {"d_out", {kDOut}},
                                    {"k and v", {kK, kV}}})
    add_heads_and_batches(list, seen.shape.batch, seen.shape.heads, x, operands);
  add_keys(list, seen.shape, true);
  add_gradients(list, seen);
  add_sums(list, seen);
  add_old_contents(list, seen.found());
  add_float_inside_double(list, seen.precision);
  add_strides(list,
              {{"q", kQ, &seen.q},
               {"k", kK, &seen.k},
               {"v", kV, &seen.v},
               {"d_out", kDOut, &seen.d_out},
               {"lse", Operand::kLse, &seen.lse}},
              seen.misplaced);
  return list.known;
}

}  // namespace flash::harness
