// Implements diagnosis.hpp: which mistakes fit what was seen, which of these fit the probes too,
// and what is said of them.
#include "harness/diagnosis/diagnosis.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <type_traits>
#include <vector>

#include "harness/diagnosis/mistakes.hpp"
#include "harness/diagnosis/small_problem.hpp"

namespace flash::harness {
namespace {

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

std::string joined(const std::vector<std::string>& parts, const std::string& between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

// A result, and which computations give it.
class Matching {
 public:
  template <class Seen>
  Matching(const Seen& seen, const std::vector<Blocks>& blocks, bool is_probe)
      : given_(seen.given()),
        found_(seen.found()),
        fill_(seen.fill),
        blocks_(blocks),
        is_probe_(is_probe),
        truth_(pass_of(given_, scores_, right_steps_, blocks_[0])) {
    for (std::size_t output = 0; output < found_.size(); ++output) {
      std::vector<Index> wrong, right;
      for (Index row = 0; row < found_[output].rows; ++row)
        (is_right({output, row}) ? right : wrong).push_back(row);
      for (const Index row : spread(wrong, kRowsOfEach)) wrong_.push_back({output, row});
      for (const Index row : spread(right, kRowsOfEach)) right_.push_back({output, row});
    }
    is_marginal_ = is_probe;
    for (const Place& at : wrong_)
      for (std::size_t c = 0; c < truth(at).value.size(); ++c) {
        most_left_ += kLeft * squared_distance(at, c, truth(at));
        is_marginal_ = is_marginal_ && near(at, c, truth(at), kSlack);
      }
  }

  bool is_wrong() const { return !wrong_.empty(); }

  // Whether what is wrong is 0, as where a function is not written yet.
  bool is_wrong_as_0() const {
    return std::all_of(wrong_.begin(), wrong_.end(), [&](const Place& at) {
      for (Index c = 0; c < found_[at.output].columns; ++c)
        if (got(at, static_cast<std::size_t>(c)) != 0) return false;
      return true;
    });
  }

  // Whether the first output that is wrong is NaN wherever it is wrong.
  bool is_wrong_as_nan() const {
    return std::all_of(wrong_.begin(), wrong_.end(), [&](const Place& at) {
      for (Index c = 0; c < found_[at.output].columns && at.output == wrong_[0].output; ++c)
        if (!std::isnan(got(at, static_cast<std::size_t>(c)))) return false;
      return true;
    });
  }

  // Whether no NaN comes from memory that nobody wrote: arithmetic gives one without a payload, or
  // on a GPU a positive one, and an emulated kernel's memory has negative ones with all bits set.
  bool has_new_nan_only() const {
    constexpr std::uint64_t kPayload = 0x0007'ffff'ffff'ffff, kOnGpu = 0x7fff'ffff'e000'0000;
    for (const Found& of : found_)
      for (Index n = 0; n < of.rows * of.columns; ++n)
        if (const auto bits = std::bit_cast<std::uint64_t>(of.got[n]);
            std::isnan(of.got[n]) && (bits & kPayload) != 0 && bits != kOnGpu)
          return false;
    return true;
  }

  // Whether all that is wrong is NaN out of memory that nobody wrote: in emulated memory all bits
  // of a float are set.
  bool is_wrong_as_unwritten() {
    constexpr std::uint64_t kUnwritten = 0xffff'ffff'e000'0000;
    const auto is_unwritten = [&](const Place& at) {
      bool any = false;
      const StepRow& want = truth(at);
      for (std::size_t c = 0; c < want.value.size(); ++c) {
        const bool is_it = std::bit_cast<std::uint64_t>(got(at, c)) == kUnwritten;
        if (!is_it && !near(at, c, want, kSlack)) return false;
        any |= is_it;
      }
      return any;
    };
    return is_wrong() && std::all_of(wrong_.begin(), wrong_.end(), is_unwritten);
  }

  // Whether all numbers have a few digits: one key too few or too many would be a larger mistake.
  // Bounds of easy scores, and of 32 bits or more, are far below that; of 16 bits some roundings
  // are.
  bool has_some_digits() {
    return is_rounded(
        [](const Found& of) { return of.bound > kSomeDigits / 64 ? 16 * of.bound : kSomeDigits; });
  }

  // "out to 3 digits, lse to 7 digits"
  std::string digits() {
    std::vector<double> worst(found_.size(), 0x1p-53);
    for (const std::vector<Place>* places : {&wrong_, &right_})
      for (const Place& at : *places) {
        const StepRow& want = truth(at);
        for (std::size_t c = 0; c < want.value.size(); ++c)
          if (want.magnitude[c] > 0 && std::isfinite(want.value[c]))
            worst[at.output] = std::fmax(worst[at.output],
                                         std::fabs(got(at, c) - want.value[c]) / want.magnitude[c]);
      }
    std::vector<std::string> parts;
    for (std::size_t n = 0; n < found_.size(); ++n)
      parts.push_back(std::string(found_[n].name) + " to " +
                      std::to_string(std::lround(-std::log10(worst[n]))) + " digits");
    return joined(parts, ", ");
  }

  // With which of the block sizes it fits, by their numbers.
  std::vector<std::size_t> fitting(const Steps& steps, bool by_block) {
    std::vector<std::size_t> sizes;
    for (std::size_t n = 0; n < blocks_.size(); ++n)
      if (!by_block && n > 0 ? !sizes.empty()
          // A problem smaller than a block says nothing: some shrink the block, and some do not.
          : by_block && is_probe_ && n == 0 && blocks_[0].keys > given_.shape.keys
              ? true
              : fits(steps, blocks_[n]))
        sizes.push_back(n);
    return sizes;
  }

 private:
  struct Place {
    std::size_t output;
    Index row;
  };

  const StepRow& truth(const Place& at) {
    auto [found, is_new] = truths_.try_emplace({at.output, at.row});
    if (is_new) found->second = truth_->row(found_[at.output].output, at.row);
    return found->second;
  }

  double got(const Place& at, std::size_t c) const {
    const Found& found = found_[at.output];
    return found.got[at.row * found.columns + static_cast<Index>(c)];
  }
  bool near(const Place& at, std::size_t c, const StepRow& want, double slack) const {
    return is_near(got(at, c), want, c, slack * found_[at.output].bound);
  }

  // Infinite where one of the two is not finite, 0 where both are not.
  double squared_distance(const Place& at, std::size_t c, const StepRow& to) const {
    const double value = got(at, c), want = to.value[c];
    if (std::isfinite(value) != std::isfinite(want)) return HUGE_VAL;
    return std::isfinite(value) ? (value - want) * (value - want) : 0;
  }

  bool is_right(const Place& at) {
    const StepRow& want = truth(at);
    for (std::size_t c = 0; c < want.value.size(); ++c)
      if (!near(at, c, want, 1)) return false;
    return true;
  }

  // What the output holds after the call.
  StepRow row_of(Pass& pass, const Steps& steps, const Blocks& blocks, const Place& at) {
    const Output output = found_[at.output].output;
    StepRow row = pass.row(output, at.row);
    if (!steps.write) return row;
    const std::function<const StepRow&(Index)> right = [&](Index other) -> const StepRow& {
      return truth({at.output, other});
    };
    steps.write({output, at.row, given_.shape, blocks, fill_, right}, row);
    return row;
  }

  bool fits(const Steps& steps, const Blocks& blocks) {
    if (steps.leaves_memory) return is_probe_;
    if (steps.is_float) return is_as_exact_as_float();
    const auto pass = pass_of(given_, scores_, steps, blocks);
    std::size_t compared = 0;
    double left = 0, before = 0;  // squares of the distances to it and to what is right
    for (const std::vector<Place>* places : {&wrong_, &right_})
      for (const Place& at : *places) {
        const StepRow row = row_of(*pass, steps, blocks, at);
        if (!row.reliable) continue;
        compared += places == &wrong_;
        const StepRow& right = truth(at);
        for (std::size_t c = 0; c < row.value.size(); ++c) {
          if (!near(at, c, row, kSlack)) return false;
          if (places == &right_ || row.magnitude[c] == StepRow::kUnknown) continue;
          left += squared_distance(at, c, row);
          before += squared_distance(at, c, right);
        }
        if (left > most_left_ && !is_marginal_) return false;
      }
    // As wrong as the mistake makes it, and not just a little less exact than asked for.
    if (!is_wrong() || is_marginal_) return true;
    return left <= kLeft * before && (is_probe_ || 2 * compared >= wrong_.size());
  }

  bool is_as_exact_as_float() {
    return is_rounded([](const Found& of) { return 0x1p29 * of.bound; });
  }

  // Wrong by no more than `bound(output)` of the magnitude, and as often too large as too small in
  // size: a number that is missing or too much is not rounding.
  template <class Bound>
  bool is_rounded(Bound bound) {
    double larger = 0, smaller = 0;
    for (const std::vector<Place>* places : {&wrong_, &right_})
      for (const Place& at : *places) {
        const StepRow& want = truth(at);
        for (std::size_t c = 0; c < want.value.size(); ++c) {
          if (!is_near(got(at, c), want, c, bound(found_[at.output]))) return false;
          (std::fabs(got(at, c)) > std::fabs(want.value[c]) ? larger : smaller) +=
              places == &wrong_;
        }
      }
    return !is_wrong() || std::min(larger, smaller) > 0.1 * (larger + smaller);
  }

  static constexpr double kLeft = 1e-2;          // of the squared distance to what is right
  static constexpr double kSomeDigits = 0x1p-7;  // of the magnitude

  const Given given_;
  const std::vector<Found> found_;
  const double fill_;
  const std::vector<Blocks>& blocks_;
  double most_left_ = 0;  // of that of all wrong rows
  bool is_probe_;         // then rows that cannot be compared are no reason against a mistake
  bool is_marginal_;      // a probe on which a few roundings could be all that is wrong
  std::vector<Place> wrong_, right_;
  Scores scores_;
  const Steps right_steps_;
  std::unique_ptr<Pass> truth_;
  std::map<std::pair<std::size_t, Index>, StepRow> truths_;
};

// The block sizes to try: what the call was told first. Others have the same number everywhere.
template <class Seen>
std::vector<Blocks> block_sizes_of(const Seen& seen) {
  constexpr bool kForward = std::is_same_v<Seen, SeenForward>;
  const Index keys = seen.block_keys;
  Index queries = 0;
  if constexpr (kForward) queries = seen.block_queries;
  std::vector<Blocks> sizes{{queries > 0 ? queries : 16, keys > 0 ? keys : 16}};
  if (keys == 0)  // of part 3 and of the bonus
    sizes.insert(sizes.end(), {{128, 64}, {128, 32}, {64, 32}});
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
        blocks(block_sizes_of(seen)),
        matching(seen, blocks, is_probe) {}
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;

  Seen seen;
  std::vector<Mistake> known;
  std::vector<Blocks> blocks;
  Matching matching;
};

// Other problems: blocks that are whole and ragged ones, and scores that are easy and hard. Behind
// the first kProbesForAll those that are tried only where several mistakes fit all of these.
constexpr std::size_t kProbesForAll = 7;
constexpr std::array<std::size_t, 3> kEasyProbes{0, 1, 5};
std::vector<Probe> probes_for(const AttentionShape& failed, Index block_q, Index block_k,
                              bool forward) {
  constexpr Index kMost = 128;  // problems of larger blocks take seconds
  block_q = std::min(block_q, kMost), block_k = std::min(block_k, kMost);
  const Index heads = 2, d = std::min<Index>(failed.head_dim, 16);
  const AttentionShape ragged{2, heads, block_q + 5, 2 * block_k + 5, d},
      whole{1, heads, 2 * block_q, 2 * block_k, d};
  std::vector<Probe> probes{{ragged, Data::kNormal, 3},
                            {whole, Data::kNormal, 3},
                            {ragged, Data::kLargeScores, 3},
                            {ragged, Data::kVeryNegative, 3},
                            {whole, Data::kRising, 3},
                            {{2, heads, 9, 11, std::min<Index>(d, 4)}, Data::kNormal, 3},
                            {{1, 1, 2 * block_k + 5, block_q + 5, d}, Data::kNormal, 3},
                            {ragged, Data::kNaN, 3},
                            {ragged, Data::kFarApart, 3}};
  // Keys that are whole blocks of any size, which nobody pads, and keys that are not.
  const AttentionShape unpadded{1, heads, block_q, 256, d};
  if (forward)
    probes.insert(probes.end(), {{unpadded, Data::kLowest, 3},
                                 {ragged, Data::kLowest, 3},
                                 {ragged, Data::kNaNInScores, 3}});
  return probes;
}

// What solves only two shapes is tried on these, and --explain cannot make them smaller.
template <class Seen>
const AttentionShape* also_solved(const Seen& seen) {
  if constexpr (std::is_same_v<Seen, SeenForward>)
    if (seen.also_solved) return &*seen.also_solved;
  return nullptr;
}
std::vector<Probe> probes_for(const AttentionShape& failed, const AttentionShape& also_solved) {
  return {{failed, Data::kNormal, 3},      {also_solved, Data::kNormal, 3},
          {failed, Data::kLargeScores, 3}, {also_solved, Data::kRising, 3},
          {failed, Data::kFarApart, 3},    {failed, Data::kSmallIntegers, 3}};
}

// One mistake, or two at once, by their names: which there are depends on the problem.
struct Suspect {
  std::vector<std::string> names;
  std::vector<std::size_t> blocks;  // the numbers of the block sizes with which it fits
};

// The block sizes with which these mistakes, of those that are known for the problem, give what was
// seen. A mistake that is not known there makes no difference there.
template <class Seen>
std::vector<std::size_t> fitting(Match<Seen>& match, const std::vector<std::string>& names) {
  std::vector<Steps> ways(1);
  bool by_block = false;
  for (const std::string& name : names) {
    std::vector<Steps> more;
    for (const Mistake& mistake : match.known) {
      if (mistake.name != name) continue;
      by_block |= mistake.by_block;
      for (const Steps& way : ways)
        for (const Change& change : mistake.ways) change(more.emplace_back(way));
    }
    if (!more.empty()) ways = std::move(more);
  }
  std::set<std::size_t> all;
  for (const Steps& way : ways)
    for (const std::size_t size : match.matching.fitting(way, by_block)) all.insert(size);
  return {all.begin(), all.end()};
}

template <class Seen>
using Again = std::function<Seen(const Probe&)>;
template <class Seen>
bool is_right(const Again<Seen>& again, const Probe& probe) {
  return !Match<Seen>(again(probe), true).matching.is_wrong();
}

// Where as much as 15 bits can count is right, and more is not.
template <class Seen>
Diagnosis of_large_indices(const Seen& seen, const Again<Seen>& again) {
  constexpr Index kCounted = 32767, kMost = 30000;
  const auto& [batch, heads, queries, keys, d] = seen.shape;
  const AttentionShape less{std::min(batch, kMost), std::min(heads, kMost),
                            std::min(queries, kMost), std::min(keys, kMost), d};
  const Index most = std::max({batch, heads, queries, keys});
  if (most <= kCounted || !is_right(again, {less, Data::kNormal})) return {};
  if (is_right(again, {seen.shape, Data::kNormal})) return {};  // a race, which not every run shows
  return {"index too small",
          std::to_string(kMost) + " are right, and " + std::to_string(most) +
              (most == batch     ? " batches are"
               : most == heads   ? " heads are"
               : most == queries ? " queries or rows are"
                                 : " keys are") +
              " not: some index or array does not reach that far. A short ends at 32767, an "
              "unsigned short at 65535.",
          "offsets"};
}

// What small problems do not have, or tensors that share no memory.
template <class Seen>
Diagnosis of_this_case_alone(const Seen& seen, const Again<Seen>& again) {
  if (const Diagnosis large = of_large_indices(seen, again); !large.name.empty()) return large;
  const Probe same{seen.shape, Data::kNormal};
  if (Probe apart = same;
      apart.shares_none = true, is_right(again, apart) && !is_right(again, same) &&
                                    is_right(again, apart))  // nothing is kept between calls
    return {"stride of 0",
            "With memory of its own for each head or batch the same problem is right. Here one "
            "tensor serves all of them: a stride is 0, which the contract allows.",
            "strides"};
  return {};
}

template <class Seen>
Diagnosis diagnosis(const Seen& seen, const std::function<Seen(const Probe&)>& again) {
  static int left_to_explain = kExplained, left_to_name = kNamed, left_of_pairs = kPairSearches;
  if (left_to_name == 0) return {};
  if (size_of(seen.shape) > kMostSize) return of_large_indices(seen, again);
  if (left_to_explain-- <= 0) return {};
  Match<Seen> match(seen);
  const AttentionShape* const also = also_solved(seen);
  if (!match.matching.is_wrong() || (also != nullptr && match.matching.is_wrong_as_0())) return {};
  std::map<std::string, const Mistake*> by_name;
  for (const Mistake& mistake : match.known) by_name[mistake.name] = &mistake;

  std::vector<Suspect> suspects;
  const auto suspect = [&](const std::vector<std::string>& names) {
    const auto sizes = fitting(match, names);
    if (!sizes.empty()) suspects.push_back({names, sizes});
  };
  for (const auto& [name, mistake] : by_name)
    if (!mistake->makes_nan || match.matching.has_new_nan_only()) suspect({name});
  const std::vector<Probe> probes =
      also != nullptr ? probes_for(seen.shape, *also)
                      : probes_for(seen.shape, match.blocks[0].queries, match.blocks[0].keys,
                                   std::is_same_v<Seen, SeenForward>);
  if (match.matching.is_wrong_as_unwritten() &&
      std::none_of(kEasyProbes.begin(), kEasyProbes.end(), [&](std::size_t easy) {
        Match<Seen> small(again(probes[easy]), true);
        return small.matching.is_wrong() && !small.matching.is_wrong_as_unwritten();
      })) {
    --left_to_name;
    return {
        "memory that nobody wrote",
        "The NaN come from shared or device memory that is read although no thread wrote there: "
        "a part of a tile is not loaded, or a part of a result is not stored.",
        "unwritten"};
  }
  if (suspects.empty() && match.matching.has_some_digits()) {
    // It shows in small problems, too: what is wrong in large ones only counts some keys twice.
    bool shows = false;
    for (const std::size_t easy : kEasyProbes) {
      Match<Seen> small(again(probes[easy]), true);
      if (!small.matching.has_some_digits()) return {};
      shows |= small.matching.is_wrong();
    }
    if (!shows && !Match<Seen>(again(probes[2]), true).matching.is_wrong())
      return of_this_case_alone(seen, again);
    --left_to_name;
    return {"loss of precision",
            "The numbers are nearly right (" + match.matching.digits() +
                "), as where something is computed in too few digits: in a type of 16 bits, in "
                "float instead of double, with a constant of few digits, with a fast function such "
                "as __expf, or as a sum of large terms that cancel.",
            "precision"};
  }
  // Two at once, of different kinds, of which neither fits alone. Many pairs give nothing but NaN.
  if (suspects.empty() && size_of(seen.shape) <= kMostSizeForPairs &&
      !match.matching.is_wrong_as_nan() && left_of_pairs-- > 0)
    for (const auto& [one, first] : by_name)
      for (const auto& [two, second] : by_name)
        if (one < two && first->group != second->group && first->group != Group::kAlone &&
            second->group != Group::kAlone)
          suspect({one, two});

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
  // Of blocks that nobody told, and that are larger than a probe, a probe has to have two.
  std::erase_if(suspects, [&](const Suspect& one) {
    const auto [queries, keys] = match.blocks[one.blocks[0]];
    const AttentionShape shape{1, 1, queries + 5, 2 * keys + 5, probes[0].shape.head_dim};
    if (also != nullptr || seen.block_keys > 0 || suspects.size() > 3 ||
        (queries <= 16 && keys <= 16))
      return false;
    Match<Seen> other(again({shape, Data::kNormal, 3}), true);
    return fitting(other, one.names).empty();
  });
  if (suspects.empty()) return of_this_case_alone(seen, again);
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
                texts[0] + (texts[0].ends_with("?") ? "" : "."),
            by_name[suspects[0].names[0]]->kind};
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
  Verdict verdict{wrong.empty(), wrong, [=] { return diagnosis(seen, again); }};
  verdict.explain = [=] {
    return with_small_numbers(again, also_solved(seen) ? &seen.shape : nullptr);
  };
  return verdict;
}
template Verdict explained(const std::string&, const SeenForward&,
                           const std::function<SeenForward(const Probe&)>&);
template Verdict explained(const std::string&, const SeenBackward&,
                           const std::function<SeenBackward(const Probe&)>&);

}  // namespace flash::harness
