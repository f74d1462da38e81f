// Implements split.hpp.
#include "harness/diagnosis/split.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <regex>
#include <utility>

namespace flash::harness {
namespace {

// exp(x) as a float.
double exp_in_float(double x) { return x < -104 ? 0 : x > 88.7 ? INFINITY : std::exp(x); }

// The sums of an online softmax, of which o is not divided yet.
struct Sums {
  double m = -INFINITY, l = 0;
  std::vector<double> o, size;
};

// How sums are merged, as it is right.
struct Merge {
  std::function<double(double m, double largest)> weight = [](double m, double largest) {
    return exp_in_float(m - largest);
  };
  std::function<double(double m, double l)> lse = [](double m, double l) {
    return m + std::log(l);
  };
  std::function<Index(Index count)> counted = [](Index count) { return count; };  // the first ones
  bool weighs_l = true, divides = true, counts_nan = true;
  bool largest_of_all = false;  // also of those that do not count

  Sums of(const std::vector<Sums>& all, Index columns) const {
    const Index count = static_cast<Index>(all.size()), counts = std::min(counted(count), count);
    Sums merged{-INFINITY, 0, std::vector<double>(columns), std::vector<double>(columns)};
    for (Index n = 0; n < (largest_of_all ? count : counts); ++n)
      merged.m = std::fmax(merged.m, all[n].m);
    for (Index n = 0; n < counts; ++n) {
      const auto& [m, l, o, size] = all[n];
      if (!counts_nan && m == -INFINITY) continue;
      const double w = m == -INFINITY ? 0 : weight(m, merged.m);
      merged.l += (weighs_l ? w : 1) * l;
      for (Index c = 0; c < columns; ++c) merged.o[c] += w * o[c], merged.size[c] += w * size[c];
    }
    const double by = merged.l == 0 || !divides ? 1 : merged.l;
    for (Index c = 0; c < columns; ++c) merged.o[c] /= by, merged.size[c] /= by;
    return {lse(merged.m, merged.l), 1, merged.o, merged.size};
  }
};

// The steps of a row, as they are right.
struct Split : SplitSizes {
  Index apart = keys_each;    // from where a part begins to the next
  double of_l = 1, of_o = 1;  // powers of alpha: right, 0 not rescaled, -1 inverted
  bool late_l = false, late_o = false, stores_m = true, keeps_m = true;
  bool asks_at_alpha = true, asks_at_weight = true;  // for -inf
  double base = 1;                                   // of the weights, in those of alpha
  Index mixed = 1;                                   // keys whose scores are added up
  Index lanes = 1;                                   // of a score
  Merge of_groups = {}, of_parts = {};

  StepRow row(const Given& given, std::vector<double> S, Output output, Index row) const {
    const auto& [batch, heads, queries, keys, d] = given.shape;
    const Index i = row % queries, h = row / queries % heads, b = row / queries / heads;
    const Index visible = std::clamp<Index>(i + given.mask_offset + 1, 0, keys);
    const Tensor<double, 4>&q = *given.tensors[kQ], &k = *given.tensors[kK],
                         &v = *given.tensors[kV];
    const auto power = [](double alpha, double n) {
      return n == 0 ? 1 : n > 0 ? alpha : alpha == 0 ? 0 : 1 / alpha;
    };
    const std::vector<double> zeros(d);
    std::vector<Sums> parts;
    for (Index first = 0; first < keys; first += keys_each) {
      const Index begin = first / keys_each * apart, end = std::min(begin + keys_each, keys);
      std::vector<Sums> sums(groups, {-INFINITY, 0, zeros, zeros});
      for (Index lane = lanes; lane-- > 0;) {  // the first one's m and l are those of its group
        const auto is_own = [&](Index c) { return c / chunk % lanes == lane; };
        for (Index j = begin; lanes > 1 && j < end; ++j) {
          S[j] = 0;
          for (Index c = 0; c < d; ++c) S[j] += is_own(c) ? q(b, h, i, c) * k(b, h, j, c) : 0;
          S[j] *= attention_scale(given.options, d);
        }
        for (Index g = 0; g < groups; ++g) {
          Sums& at = sums[g];
          at.m = -INFINITY, at.l = 0;
          for (Index j = begin + g; j < begin + (end - begin + tile - 1) / tile * tile;
               j += groups) {
            const bool sees = j < visible && j < end;
            double score = sees ? S[j] : -INFINITY;
            for (Index n = 0, j0 = j - (j - begin) % mixed; mixed > 1 && n < mixed; ++n)
              if (score != -INFINITY && j0 + n < end && j0 + n != j) score += S[j0 + n];
            const double m_new = keeps_m ? std::fmax(at.m, score) : score;
            const double alpha = asks_at_alpha && at.m == m_new ? 1 : exp_in_float(at.m - m_new);
            const bool is_nothing = asks_at_weight ? score == -INFINITY : j >= visible;
            const double weight = is_nothing ? 0 : exp_in_float((score - m_new) / base);
            if (stores_m) at.m = m_new;
            const auto add = [&](double& sum, double term, double n, bool late) {
              sum = late ? (sum + term) * power(alpha, n) : sum * power(alpha, n) + term;
            };
            add(at.l, weight, of_l, late_l);
            for (Index c = 0; c < d; ++c) {
              if (!is_own(c)) continue;
              const double term = sees ? weight * v(b, h, j, c) : 0;
              add(at.o[c], term, of_o, late_o);
              add(at.size[c], std::fabs(term), of_o, late_o);
            }
          }
        }
      }
      parts.push_back(of_groups.of(sums, d));
    }
    const Sums all = of_parts.of(parts, d);
    if (output == Output::kOut) return {all.o, all.size};
    const double rounding = std::isfinite(all.m) ? 0x1p-22 * std::fabs(all.m) : 0;
    return {{all.m}, {1 + rounding / given.lse_bound}};
  }
};

}  // namespace

void add_split_mistakes(std::vector<Mistake>& known, const SplitSizes& sizes) {
  const Split right{sizes};
  const Index of_warp = sizes.of_warp;
  using Wrong = std::function<void(Split&)>;
  const auto way = [right](const Wrong& wrong) {
    Split split = right;
    wrong(split);
    return replace(&Steps::whole_row,
                   [split](const Given& given, const std::vector<double>& S, Output output,
                           Index row) { return split.row(given, S, output, row); });
  };
  for (const auto& [name, wrong] : std::vector<std::pair<const char*, Wrong>>{
           {"accumulator not rescaled", [](Split& at) { at.of_o = 0; }},
           {"sum not rescaled", [](Split& at) { at.of_l = 0; }},
           {"neither sum nor accumulator rescaled", [](Split& at) { at.of_l = at.of_o = 0; }},
           {"alpha inverted", [](Split& at) { at.of_l = at.of_o = -1; }},
           {"alpha of the accumulator inverted", [](Split& at) { at.of_o = -1; }},
           {"alpha of the sum inverted", [](Split& at) { at.of_l = -1; }},
           {"accumulator rescaled too late", [](Split& at) { at.late_o = true; }},
           {"sum rescaled too late", [](Split& at) { at.late_l = true; }},
           {"alpha in another base", [](Split& at) { at.base = std::numbers::ln2; }},
           {"maximum not stored", [](Split& at) { at.stores_m = false; }},
           {"-inf minus -inf", [](Split& at) { at.asks_at_weight = false; }},
           {"-inf minus -inf", [](Split& at) { at.asks_at_alpha = false; }},
           {"not divided by the sum", [](Split& at) { at.of_groups.divides = false; }}})
    named(name, known).ways.push_back(way(wrong));
  named("-inf minus -inf", known).makes_nan = true;
  for (const double small : {1e-5, 1e-6, 1e-7})  // beside the sum of the parts' weights
    named("small number added to the sum", known)
        .ways.push_back(replace(&Steps::divided, [small](Sized O, double l, bool) {
          return l == 0 ? Sized(0) : O / (l * (1 + small));
        }));

  // What is left out may count for the maximum.
  const auto add = [&](const char* kind, const char* name, const char* text, const Wrong& wrong) {
    const auto of_all = [wrong](Split& at) {
      wrong(at);
      at.of_groups.largest_of_all = at.of_parts.largest_of_all = true;
    };
    known.push_back({name, text, kind, Group::kAlone, false, {way(wrong), way(of_all)}});
  };
  add("maximum", "maximum of one key only",
      "the maximum is the score of the key alone; it must take in the one before",
      [](Split& at) { at.keeps_m = false; });
  known.back().makes_nan = true;
  add("lanes", "scores of one lane",
      "each lane takes the sum over its own columns for the score: warp_sum() adds up those of all "
      "lanes of the key",
      [=](Split& at) { at.lanes = 32 / of_warp; });
  if (of_warp > 1)
    add("lanes", "scores of a warp's keys added up",
        "a score is the sum over all lanes of the warp, which have several keys: "
        "warp_sum<kLanes>() adds up those of one key",
        [=](Split& at) { at.mixed = of_warp; });
  add("nan", "groups of lanes with NaN left out",
      "a group of lanes that saw only NaN is left out: its m is -inf, too; ask whether its l is 0",
      [](Split& at) { at.of_groups.counts_nan = false; });
  const auto one = [](double, double) { return 1.0; };
  const auto first = [](Index) { return 1; };
  add("lanes", "groups of lanes not weighed",
      "the sums of the groups of lanes are added without their weights",
      [=](Split& at) { at.of_groups.weight = one; });
  add("lanes", "sums l of the groups of lanes not weighed",
      "o of a group of lanes is multiplied by its weight, but l is not",
      [](Split& at) { at.of_groups.weighs_l = false; });
  add("lanes", "largest m of the groups not subtracted",
      "a group of lanes weighs exp2(m); subtract the largest m of the groups",
      [](Split& at) { at.of_groups.weight = [](double m, double) { return exp_in_float(m); }; });
  add("lanes", "first group of lanes only", "only the first group of lanes counts",
      [=](Split& at) { at.of_groups.counted = first; });
  add("lanes", "groups of the first warp only",
      "only the groups of lanes of the first warp count: there are keys_at_once groups",
      [=](Split& at) { at.of_groups.counted = [=](Index) { return of_warp; }; });
  add("parts", "parts not weighed", "the parts of a sequence are added without their weights",
      [=](Split& at) { at.of_parts.weight = one; });
  add("parts", "lse of the largest part",
      "lse is the largest lse of a part; log of the sum of the weights is missing",
      [](Split& at) { at.of_parts.lse = [](double m, double) { return m; }; });
  add("parts", "first part only", "only the first part of a sequence counts",
      [=](Split& at) { at.of_parts.counted = first; });
  add("parts", "last part missing", "the last part of a sequence is left out", [](Split& at) {
    at.of_parts.counted = [](Index count) { return std::max<Index>(count - 1, 1); };
  });
  add("parts", "not divided by the sum of the weights",
      "the parts are weighed, but not divided by the sum of the weights",
      [](Split& at) { at.of_parts.divides = false; });
  add("base", "merge in base 2", "the weights of the parts are exp2(lse - m), and lse is in base e",
      [](Split& at) {
        at.of_parts.weight = [](double m, double largest) {
          return exp_in_float((m - largest) * std::numbers::ln2);
        };
      });
  add("base", "log2 in the merged lse",
      "lse is m + log2(l): m is in base e, and so the logarithm has to be", [](Split& at) {
        at.of_parts.lse = [](double m, double l) { return m + std::log(l) / std::numbers::ln2; };
      });
  add("parts", "parts that overlap",
      "part s begins at key 512 s; it must begin at s * keys_of_part()",
      [](Split& at) { at.apart = 512; });
}

void add_merge_mistakes(std::vector<Mistake>& known, const std::shared_ptr<Tensor<double, 4>>& held,
                        double fill) {
  // The same as the last key, and as what is said of empty parts.
  std::erase_if(known, [](auto& one) {
    return one.name == "last block of keys left out" || one.name == "-inf minus -inf";
  });
  const Change all_at_once = [](Steps& steps) {  // no maximum grows
    steps.sum = [](auto& at) { return at.l + at.sum; };
    steps.before_PV = [](auto&) { return 1.0; };
    steps.computes = [](auto&, bool, bool, double) { return true; };
    steps.exponent = [](double x, double m) { return x == -INFINITY ? x : x - m; };
  };
  const auto add = [&](const char* name, const char* text, const Change& way) {
    known.push_back({name, text, "parts", Group::kAlone, false, {way}});
  };
  add("parts not weighed", "the parts are added without their weights", [=](Steps& steps) {
    all_at_once(steps);
    steps.exponent = [](double x, double) { return x == -INFINITY ? x : 0; };
  });
  add("divided by the number of parts",
      "the result is divided by the number of parts; it must be by the sum of their weights",
      replace(&Steps::divided, [count = static_cast<double>(held->extent(2))](
                                   Sized O, double, bool) { return O / count; }));
  add("empty parts multiplied by 0",
      "an empty part is not left out: its weight is 0, or exp(-inf - -inf), and 0 * NaN is NaN",
      [held](Steps& steps) {
        steps.read[kV].from = held.get();
        steps.reference = [](double m) { return m; };
        steps.computes = [](auto&, bool, bool, double) { return true; };
      });
  named("maximum of the first block kept", known).ways.push_back([=](Steps& steps) {
    all_at_once(steps);
    steps.maximum = [](auto& at) { return at.first.j == 0 ? at.of_block : at.m; };
    steps.reference = [](double m) { return m; };
  });
  named("sum not reset", known).ways.push_back([=](Steps& steps) {
    all_at_once(steps);
    steps.begin = [](Accumulator& at, const Accumulator& left) { at.l = left.l; };
  });
  named("out added to old contents", known)  // and then divided
      .ways.push_back(replace(&Steps::divided, [fill](Sized O, double l, bool) {
        if (std::isnan(fill)) return Sized(fill, StepRow::kAnyNaN);
        return l == 0 ? Sized(fill) : (O + Sized(fill)) / l;
      }));
}

std::string in_words_of_parts(std::string text) {
  for (const auto& [words, instead] :
       {std::pair{"batch (\\d+), d1 1, d2 (\\d+), d3", "rows $1, parts $2, head_dim"},
        {"batch (\\d+), row 0", "row $1"},
        {"\\bbatches\\b", "rows"},
        {"\\bbatch\\b", "row"},
        {"block of keys|\\b(key|block)", "part"},
        {"\\bx\\b", "part_lse"},
        {"\\bv\\b", "part_out"},
        {"\\bX\\b", "lse"},
        {"\\bV\\b", "out"}})
    text = std::regex_replace(text, std::regex(words), instead);
  return text;
}

}  // namespace flash::harness
