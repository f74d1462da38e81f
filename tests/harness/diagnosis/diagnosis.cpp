// Implements diagnosis.hpp: which mistakes fit what was seen, which of these fit the probes too,
// and what is said of them.
#include "harness/diagnosis/diagnosis.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

#include "harness/diagnosis/mistakes.hpp"
#include "harness/diagnosis/small_problem.hpp"

namespace flash::harness {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr double kSlack = 8;  // times the bound: a mistake may add a few roundings
// Of one run of a task's cases: a mistake that is not found in the first of them that fail is not
// found later either, one that has its name needs no more searches, and the student waits.
constexpr int kExplained = 12, kNamed = 4, kPairSearches = 2;
constexpr int kRowsOfEach = 24;  // rows compared, of the wrong ones and of the right ones

// Every how-many-th of them, the first and the last among them.
std::vector<Index> spread(const std::vector<Index>& rows, std::size_t most) {
  if (rows.size() <= most) return rows;
  std::vector<Index> some;
  for (std::size_t n = 0; n < most; ++n) some.push_back(rows[n * (rows.size() - 1) / (most - 1)]);
  return some;
}

// A result, and which computations give it.
class Matching {
 public:
  Matching(Model& model, const std::vector<Blocks>& blocks, bool is_probe)
      : model_(model), blocks_(blocks), is_probe_(is_probe) {
    for (int output = 0; output < static_cast<int>(model.outputs.size()); ++output) {
      std::vector<Index> wrong, right;
      for (Index row = 0; row < model.outputs[output].rows; ++row)
        (is_right({output, row}) ? right : wrong).push_back(row);
      for (const Index row : spread(wrong, kRowsOfEach)) wrong_.push_back({output, row});
      for (const Index row : spread(right, kRowsOfEach)) right_.push_back({output, row});
    }
    for (const Place& at : wrong_)
      for (std::size_t c = 0; c < truth(at).value.size(); ++c)
        most_left_ += kLeft * squared_distance(at, c, truth(at));
  }

  bool is_wrong() const { return !wrong_.empty(); }

  // With which of the block sizes it fits, by their numbers.
  std::vector<std::size_t> fitting(const Computation& how, bool by_block, Index keys) {
    std::vector<std::size_t> sizes;
    for (std::size_t n = 0; n < blocks_.size(); ++n)
      if (!by_block && n > 0 ? !sizes.empty()
          // A problem smaller than a block says nothing: some shrink the block, and some do not.
          : by_block && is_probe_ && n == 0 && blocks_[0].keys > keys ? true
                                                                      : fits(how, blocks_[n]))
        sizes.push_back(n);
    return sizes;
  }

 private:
  struct Place {
    int output;
    Index row;
  };

  const Row& truth(const Place& at) {
    auto [found, is_new] = truths_.try_emplace({at.output, at.row});
    if (is_new) found->second = model_.row(Computation(), blocks_[0], at.output, at.row);
    return found->second;
  }

  double got(const Place& at, std::size_t c) const {
    const Model::Output& output = model_.outputs[at.output];
    return output.got[at.row * output.columns + static_cast<Index>(c)];
  }
  bool near(const Place& at, std::size_t c, const Row& want, double slack) const {
    const double value = want.value[c];
    if (want.magnitude[c] == Row::kUnknown) return true;
    if (std::isnan(value)) return std::isnan(got(at, c));
    if (std::isinf(value)) return got(at, c) == value;
    return std::fabs(got(at, c) - value) <=
           slack * model_.outputs[at.output].bound * want.magnitude[c] + 1e-37;
  }

  // Infinite where one of the two is not finite, 0 where both are not.
  double squared_distance(const Place& at, std::size_t c, const Row& to) const {
    const double value = got(at, c), want = to.value[c];
    if (std::isfinite(value) != std::isfinite(want)) return kInfinity;
    return std::isfinite(value) ? (value - want) * (value - want) : 0;
  }

  bool is_right(const Place& at) {
    const Row want = model_.row(Computation(), blocks_[0], at.output, at.row);
    for (std::size_t c = 0; c < want.value.size(); ++c)
      if (!near(at, c, want, 1)) return false;
    return true;
  }

  // What the output holds after the call.
  Row row_of(const Computation& how, const Blocks& blocks, const Place& at) {
    const Misplaced* const misplaced =
        how.misplaced < 0 ? nullptr : &model_.misplaced[static_cast<std::size_t>(how.misplaced)];
    if (misplaced != nullptr && misplaced->output == at.output)
      return misplaced_row(*misplaced, at);
    Row row = model_.row(how, blocks, at.output, at.row);
    const Old old =
        model_.unwritten(how, blocks, at.output, at.row) ? Old::kKept : how.old[at.output];
    if (old == Old::kReplaced) return row;
    for (std::size_t c = 0; c < row.value.size(); ++c) {
      row.value[c] = model_.fill + (old == Old::kAddedTo ? row.value[c] : 0);
      row.magnitude[c] += std::fabs(model_.fill);
    }
    return row;
  }

  // Of an output whose elements are right, and lie where others belong.
  Row misplaced_row(const Misplaced& misplaced, const Place& at) {
    const Index columns = model_.outputs[at.output].columns;
    Row row{std::vector<double>(columns, model_.fill), std::vector<double>(columns, 1)};
    for (Index c = 0; c < columns; ++c) {
      const Index source = misplaced.source[at.row * columns + c];
      row.reliable &= source != Misplaced::kSeveral;
      if (source < 0) continue;
      const Row& of = truth({at.output, source / columns});
      row.value[c] = of.value[source % columns], row.magnitude[c] = of.magnitude[source % columns];
    }
    return row;
  }

  bool fits(const Computation& how, const Blocks& blocks) {
    if (model_.leaves_memory(how)) return is_probe_;  // what it would read is not known
    if (how.float_in_double) return is_as_exact_as_float();
    model_.forget();
    std::size_t compared = 0;
    double left = 0, before = 0;  // squares of the distances to it and to what is right
    for (const std::vector<Place>* places : {&wrong_, &right_})
      for (const Place& at : *places) {
        const Row row = row_of(how, blocks, at);
        if (!row.reliable) continue;
        compared += places == &wrong_;
        const Row& right = truth(at);
        for (std::size_t c = 0; c < row.value.size(); ++c) {
          if (!near(at, c, row, kSlack)) return false;
          if (places == &right_ || row.magnitude[c] == Row::kUnknown) continue;
          left += squared_distance(at, c, row);
          before += squared_distance(at, c, right);
        }
        if (left > most_left_) return false;
      }
    // As wrong as the mistake makes it, and not just a little less exact than asked for.
    if (!is_wrong()) return true;
    return left <= kLeft * before && (is_probe_ || 2 * compared >= wrong_.size());
  }

  // Wrong by no more than float's rounding is, and as often too large as too small in size: a
  // number that is missing or too much is not rounding.
  bool is_as_exact_as_float() {
    double larger = 0, smaller = 0;
    for (const std::vector<Place>* places : {&wrong_, &right_})
      for (const Place& at : *places) {
        const Row& want = truth(at);
        for (std::size_t c = 0; c < want.value.size(); ++c) {
          if (!near(at, c, want, 0x1p29)) return false;
          (std::fabs(got(at, c)) > std::fabs(want.value[c]) ? larger : smaller) +=
              places == &wrong_;
        }
      }
    return !is_wrong() || std::min(larger, smaller) > 0.2 * (larger + smaller);
  }

  static constexpr double kLeft = 1e-2;  // of the squared distance to what is right

  Model& model_;
  const std::vector<Blocks>& blocks_;
  double most_left_ = 0;  // of that of all wrong rows
  bool is_probe_;         // then rows that cannot be compared are no reason against a mistake
  std::vector<Place> wrong_, right_;
  std::map<std::pair<int, Index>, Row> truths_;
};

std::string joined(const std::vector<std::string>& parts, const std::string& between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

// The block sizes to try: what the call was told first. Others have the same number everywhere.
template <class Seen>
std::vector<Blocks> block_sizes_of(const Seen& seen) {
  constexpr bool kForward = std::is_same_v<Seen, SeenForward>;
  const Index keys = seen.block_keys;
  Index queries = 0;
  if constexpr (kForward) queries = seen.block_queries;
  std::vector<Blocks> sizes{{queries > 0 ? queries : 16, keys > 0 ? keys : 16}};
  if (keys == 0) sizes.insert(sizes.end(), {{128, 64}, {128, 32}});  // of part 3 and of the bonus
  for (const Index block : {8, 16, 32, 64, 128})
    sizes.insert(sizes.end(), {{block, block}, {sizes[0].queries, block}});
  if constexpr (kForward)
    if (seen.key_by_key) sizes.push_back({sizes[0].queries, 1});
  return sizes;
}

// How long a search takes is in proportion to it. Small cases fail as well as large ones.
Index size_of(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.queries * shape.keys * shape.head_dim;
}
constexpr Index kMostSize = Index{1} << 21, kMostSizeForPairs = Index{1} << 14;

// What was seen, ready to be matched.
template <class Seen>
struct Match {
  explicit Match(const Seen& of, bool is_probe = false)
      : seen(of),
        known(mistakes_of(seen)),
        model(model_of(seen)),
        blocks(block_sizes_of(seen)),
        matching(*model, blocks, is_probe) {}

  Seen seen;
  std::vector<Mistake> known;
  std::unique_ptr<Model> model;
  std::vector<Blocks> blocks;
  Matching matching;
};

// Other problems: blocks that are whole and ragged ones, and scores that are easy and hard. Behind
// the first kProbesForAll those that are tried only where several mistakes fit all of these.
constexpr std::size_t kProbesForAll = 7;
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
          {{1, 1, 2 * block_k + 5, block_q + 5, d}, Data::kNormal, 3},
          {ragged, Data::kNaN, 3},
          {ragged, Data::kFarApart, 3}};
}

// One mistake, or two at once, by their names: which there are depends on the problem.
struct Suspect {
  std::vector<std::string> names;
  std::vector<std::size_t> blocks;  // the numbers of the block sizes with which it fits
};

// A computation with a second mistake, which is of another group: what it changes of a right one,
// byte by byte, so that a new member needs nothing here.
Computation both(const Computation& one, const Computation& second) {
  using Bytes = std::array<unsigned char, sizeof(Computation)>;
  const auto right = std::bit_cast<Bytes>(Computation()), change = std::bit_cast<Bytes>(second);
  auto bytes = std::bit_cast<Bytes>(one);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    if (change[n] != right[n]) bytes[n] = change[n];
  return std::bit_cast<Computation>(bytes);
}

// The block sizes with which these mistakes, of those that are known for the problem, give what was
// seen. A mistake that is not known there makes no difference there.
template <class Seen>
std::vector<std::size_t> fitting(Match<Seen>& match, const std::vector<std::string>& names) {
  std::vector<Computation> ways(1);
  bool by_block = false;
  for (const std::string& name : names) {
    std::vector<Computation> more;
    for (const Mistake& mistake : match.known)
      for (std::size_t n = 0; mistake.name == name && n < ways.size(); ++n) {
        more.push_back(both(ways[n], mistake.how));
        by_block |= mistake.by_block;
      }
    if (!more.empty()) ways = more;
  }
  for (const Computation& way : ways)
    if (auto sizes = match.matching.fitting(way, by_block, match.seen.shape.keys); !sizes.empty())
      return sizes;
  return {};
}

template <class Seen>
Diagnosis diagnosis(const Seen& seen, const std::function<Seen(const Probe&)>& again) {
  static int left_to_explain = kExplained, left_to_name = kNamed, left_of_pairs = kPairSearches;
  if (size_of(seen.shape) > kMostSize || left_to_name == 0 || left_to_explain-- <= 0) return {};
  Match<Seen> match(seen);
  if (!match.matching.is_wrong()) return {};
  std::map<std::string, const Mistake*> by_name;
  for (const Mistake& mistake : match.known) by_name[mistake.name] = &mistake;

  std::vector<Suspect> suspects;
  const auto suspect = [&](const std::vector<std::string>& names) {
    const auto sizes = fitting(match, names);
    if (!sizes.empty()) suspects.push_back({names, sizes});
  };
  for (const auto& [name, mistake] : by_name) suspect({name});
  // Two at once, of different kinds, of which neither fits alone.
  if (suspects.empty() && size_of(seen.shape) <= kMostSizeForPairs && left_of_pairs-- > 0)
    for (const auto& [one, first] : by_name)
      for (const auto& [two, second] : by_name)
        if (one < two && first->group != second->group && first->group != kAlone &&
            second->group != kAlone)
          suspect({one, two});

  const std::vector<Probe> probes =
      probes_for(seen.shape, match.blocks[0].queries, match.blocks[0].keys);
  for (std::size_t n = 0; n < probes.size() && !suspects.empty(); ++n) {
    if (n >= kProbesForAll && suspects.size() == 1) break;
    Match<Seen> other(again(probes[n]), true);
    std::erase_if(suspects, [&](Suspect& one) {
      const auto sizes = fitting(other, one.names);
      // Where the call was told a block size, it has to be the same one everywhere.
      if (seen.block_keys > 0)
        std::erase_if(one.blocks, [&](std::size_t size) {
          return std::find(sizes.begin(), sizes.end(), size) == sizes.end();
        });
      return sizes.empty() || one.blocks.empty();
    });
  }
  if (suspects.empty()) return {};
  std::vector<std::string> texts;
  for (const Suspect& one : suspects) {
    std::vector<std::string> parts;
    for (const std::string& name : one.names) parts.push_back(by_name[name]->text);
    texts.push_back(joined(parts, "; and "));
  }
  if (suspects.size() == 1) {
    --left_to_name;
    return {joined(suspects[0].names, " + "),
            (suspects[0].names.size() == 1 ? "The result is what this mistake gives: "
                                           : "The result is what two mistakes give together: ") +
                texts[0] + "."};
  }
  if (suspects.size() > 3 || suspects[0].names.size() > 1) return {};
  return {"",
          "The result is what one of these mistakes gives, which the problems tried cannot tell "
          "apart: " +
              joined(texts, "; or ") + "."};
}

}  // namespace

template <class Seen>
Verdict explained(const std::string& wrong, const Seen& seen,
                  const std::function<Seen(const Probe&)>& again) {
  return {wrong.empty(), wrong, [=] { return diagnosis(seen, again); },
          [=] { return with_small_numbers(again); }};
}
template Verdict explained(const std::string&, const SeenForward&,
                           const std::function<SeenForward(const Probe&)>&);
template Verdict explained(const std::string&, const SeenBackward&,
                           const std::function<SeenBackward(const Probe&)>&);

}  // namespace flash::harness
