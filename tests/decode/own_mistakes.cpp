// Implements own_mistakes.hpp.
#include "decode/own_mistakes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flash::decode_cases {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A row's steps, as they are right. Each mistake replaces one.
struct Steps {
  Index group = 1, kv_heads = 1;
  bool uses_table = true, has_own_table = true, has_own_length = true, has_rows_of_pages = true;
  std::function<Index(Index h)> key_head = [this](Index h) { return h / group; };
  std::function<Index(Index h)> value_head = key_head;
  // Query i of n sees `seen` keys more than length - n + i, or all.
  Index seen = 1;
  bool sees_all = false;
  double lse_factor = 1, scale = 1, usual_scale = 1;
  // The merge of parts: whether they are weighed, which count, and whether lse is their largest.
  bool weighs_parts = true, merges_lse = true, divides = true;
  double weights_factor = 1, log_factor = 1;
  std::function<bool(Index part, Index parts)> counts = [](Index, Index) { return true; };
};

struct Mistake {
  std::string name, text, kind;
  std::function<void(Steps&)> make;
};

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> all{
      {"parts not weighed", "the parts of a sequence are added without their weights", "parts",
       [](Steps& s) { s.weighs_parts = false; }},
      {"lse of the largest part",
       "lse is the largest lse of a part; log of the sum of the weights is missing", "parts",
       [](Steps& s) { s.merges_lse = false; }},
      {"first part only", "only the first part of a sequence counts", "parts",
       [](Steps& s) { s.counts = [](Index part, Index) { return part == 0; }; }},
      {"last part missing", "the last part of a sequence is left out", "parts",
       [](Steps& s) {
         s.counts = [](Index part, Index parts) { return part + 1 < parts || parts == 1; };
       }},
      {"not divided by the sum of the weights",
       "the parts are weighed, but not divided by the sum of the weights", "parts",
       [](Steps& s) { s.divides = false; }},
      {"first row of the page", "every key is taken from the first row of its page", "pages",
       [](Steps& s) { s.has_rows_of_pages = false; }},
      {"block table not used", "key j is looked for in page j / page_size, without the block table",
       "pages", [](Steps& s) { s.uses_table = false; }},
      {"table of the first sequence", "all sequences use the block table of the first one", "pages",
       [](Steps& s) { s.has_own_table = false; }},
      {"length of the first sequence", "all sequences have the length of the first one", "pages",
       [](Steps& s) { s.has_own_length = false; }},
      {"kv heads in turn", "head h reads kv head h % kv_heads instead of h / (heads / kv_heads)",
       "groups",
       [](Steps& s) { s.key_head = s.value_head = [n = s.kv_heads](Index h) { return h % n; }; }},
      {"first kv head for all", "all heads read the first kv head", "groups",
       [](Steps& s) { s.key_head = s.value_head = [](Index) { return 0; }; }},
      {"values of the first kv head", "all heads read the values of the first kv head", "groups",
       [](Steps& s) { s.value_head = [](Index) { return 0; }; }},
      {"all queries see all keys", "each query sees the keys behind it, too", "last-queries",
       [](Steps& s) { s.sees_all = true; }},
      {"own key missing", "a query does not see its own key, the last one", "last-queries",
       [](Steps& s) { s.seen = 0; }},
      {"scale of the options ignored",
       "the scale is 1 / sqrt(head_dim), and not the one that the call asks for", "scale",
       [](Steps& s) { s.scale = s.usual_scale; }},
      {"exp2 without log2(e)",
       "the weights are exp2(S - m), and S is in base e: multiply it by log2(e)", "base",
       [](Steps& s) { s.scale *= std::log(2.0); }},
      {"merge in base 2", "the weights of the parts are exp2(lse - m), and lse is in base e",
       "base", [](Steps& s) { s.weights_factor = std::log(2.0); }},
      {"log2 in the merged lse",
       "lse is m + log2(l): m is in base e, and so the logarithm has to be", "base",
       [](Steps& s) { s.log_factor = 1 / std::log(2.0); }},
      {"lse in base 2", "lse is in base 2", "parts",
       [](Steps& s) { s.lse_factor = 1 / std::log(2.0); }},
  };
  return all;
}

// Whether the mistake gives what was seen. A result of nothing but NaN says nothing.
bool explains(const SeenDecode& seen, const Mistake* mistake) {
  const auto& shape = seen.q.shape();
  const Index batch = shape[0], heads = shape[1], queries = shape[2], d = shape[3];
  const Index size = seen.k.extent(1), pages = seen.k.extent(0);
  Steps steps;
  steps.kv_heads = seen.k.extent(2), steps.group = heads / steps.kv_heads;
  steps.scale = seen.scale;
  steps.usual_scale = 1 / std::sqrt(static_cast<double>(d));
  if (mistake != nullptr) mistake->make(steps);
  bool has_number = false;
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < queries; ++i) {
        const Index length = seen.lengths(steps.has_own_length ? b : 0);
        const Index known =
            steps.sees_all ? length : std::max<Index>(0, length - queries + i + steps.seen);
        const Index keys_each = (std::max<Index>(512, (length + 31) / 32) + size - 1) / size * size;
        const Index parts = (length + keys_each - 1) / keys_each;
        // lse, out and the sizes of its terms, of each part.
        std::vector<double> lse(parts, -kInfinity);
        std::vector<std::vector<double>> outs(parts, std::vector<double>(d)), sizes = outs;
        for (Index part = 0; part < parts; ++part) {
          std::vector<double> scores;
          std::vector<Index> page_of, row_of;
          for (Index j = part * keys_each; j < std::min((part + 1) * keys_each, known); ++j) {
            const Index entry = j / size;
            if (entry >= seen.block_table.extent(1)) return false;
            const Index page =
                steps.uses_table ? seen.block_table(steps.has_own_table ? b : 0, entry) : entry;
            if (page < 0 || page >= pages) return false;  // would be found as a stray access
            page_of.push_back(page), row_of.push_back(steps.has_rows_of_pages ? j % size : 0);
            double score = 0;
            for (Index c = 0; c < d; ++c)
              score += seen.q(b, h, i, c) * seen.k(page, row_of.back(), steps.key_head(h), c);
            scores.push_back(score * steps.scale);
          }
          double m = -kInfinity, l = 0;
          bool has_nan = false;
          for (const double score : scores)
            m = std::fmax(m, score), has_nan = has_nan || std::isnan(score);
          if (m == -kInfinity && !has_nan) continue;
          for (const double score : scores) l += std::exp(score - m);
          lse[part] = m + std::log(l);
          for (std::size_t n = 0; n < scores.size(); ++n)
            for (Index c = 0; c < d; ++c) {
              const double term = std::exp(scores[n] - lse[part]) *
                                  seen.v(page_of[n], row_of[n], steps.value_head(h), c);
              outs[part][c] += term, sizes[part][c] += std::fabs(term);
            }
        }
        double m = -kInfinity, l = 0;
        std::vector<double> out(d), size_of(d);
        for (Index part = 0; part < parts; ++part)
          if (steps.counts(part, parts)) m = std::fmax(m, lse[part]);
        for (Index part = 0; part < parts; ++part) {
          if (!steps.counts(part, parts) || lse[part] == -kInfinity) continue;
          const double weight =
              steps.weighs_parts ? std::exp((lse[part] - m) * steps.weights_factor) : 1;
          l += weight;
          for (Index c = 0; c < d; ++c)
            out[c] += weight * outs[part][c], size_of[c] += weight * sizes[part][c];
        }
        const double divisor = l == 0 || !steps.divides ? 1 : l;
        const double merged =
            (steps.merges_lse ? m + std::log(l) * steps.log_factor : m) * steps.lse_factor;
        const auto is_near = [](double got, double value, double most) {
          return std::isnan(value) ? std::isnan(got)
                                   : got == value || std::fabs(got - value) <= most;
        };
        if (!is_near(seen.lse(b, h, i), merged, 2 * seen.lse_bound + 0x1p-22 * std::fabs(merged)))
          return false;
        for (Index c = 0; c < d; ++c)
          if (!is_near(seen.out(b, h, i, c), out[c] / divisor,
                       2 * seen.bound * size_of[c] / divisor + 1e-30))
            return false;
        has_number = has_number || std::isfinite(merged);
      }
  return has_number;
}

}  // namespace

harness::Diagnosis diagnosis(const SeenDecode& seen, const std::function<SeenDecode()>& again) {
  const Mistake* found = nullptr;
  for (const Mistake& mistake : mistakes())
    if (explains(seen, &mistake)) {
      if (found != nullptr) return {};
      found = &mistake;
    }
  if (found == nullptr) return {};
  const SeenDecode other = again();
  if (!explains(other, found) || explains(other, nullptr)) return {};
  return {found->name, "The result is what comes out if " + found->text + ".", found->kind};
}

}  // namespace flash::decode_cases
