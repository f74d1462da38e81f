#include "common/inputs.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

namespace flash {
namespace {

// 1 / 23!, 1 / 21!, ..., 1 / 1!
constexpr auto kSine = [] {
  std::array<double, 12> found{};
  double factorial = 1;
  for (int n = 1; n <= 23; n += 2, factorial *= n * (n - 1)) found[11 - n / 2] = 1 / factorial;
  return found;
}();

// cos(2 pi u), for u in [0, 1], by the series of sin. With std::cos normal() takes 2.5 times as
// long, and that was half of a judge's time.
double cosine_of_turn(double u) {
  const double x = 2 * std::numbers::pi * (std::abs(u - 0.5) - 0.25);  // sin(x) is it
  double sum = 0;
  for (const double each : kSine) sum = each - x * x * sum;
  return x * sum;
}

}  // namespace

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));  // 1 - uniform() is never 0
  return radius * cosine_of_turn(uniform());
}

std::string to_string(Pattern pattern) {
  switch (pattern) {
    case Pattern::kNormal: return "normal";
    case Pattern::kHalfNormal: return "half-normal";
    case Pattern::kLargeLogits: return "large logits";
    case Pattern::kRising: return "rising";
    case Pattern::kAllEqual: return "all equal";
    case Pattern::kOneHot: return "one-hot";
    case Pattern::kVeryNegative: return "very negative";
    case Pattern::kMasked: return "masked";
    case Pattern::kLowest: return "lowest";
    case Pattern::kFarApart: return "rows far apart";
    case Pattern::kNaN: return "NaN";
    case Pattern::kKeySignature: return "key signature";
  }
  return "unknown";
}

void fill(float* data, Index rows, Index columns, Pattern pattern, std::uint64_t seed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Random random(seed);
  for (Index i = 0; i < rows; ++i) {
    float* row = data + i * columns;
    const Index chosen = random.below(columns);
    for (Index j = 0; j < columns; ++j) {
      double value = 0;
      switch (pattern) {
        case Pattern::kNormal: value = random.normal(); break;
        case Pattern::kHalfNormal: value = 0.5 * random.normal(); break;
        case Pattern::kLargeLogits: value = 400 * random.uniform() - 200; break;
        case Pattern::kRising: value = (300.0 * j + random.uniform()) / columns - 150; break;
        case Pattern::kAllEqual: value = 0.75; break;
        case Pattern::kOneHot: value = j == chosen ? 80 : 0; break;
        case Pattern::kVeryNegative: value = random.normal() - 1000; break;
        case Pattern::kMasked:
          value = random.normal();
          if (i % 5 == 4 || j < columns / 3 || random.uniform() < 0.5) value = -kInfinity;
          break;
        case Pattern::kLowest: value = -1.2e9; break;
        case Pattern::kFarApart: value = random.normal() + (is_high(i) ? 150 : -150); break;
        case Pattern::kNaN:
          value = random.normal();
          if (i % 4 == 2 && j == chosen) value = std::numeric_limits<double>::quiet_NaN();
          break;
        case Pattern::kKeySignature:
          value = j == i % columns ? 1 + static_cast<double>(i % 13) / 13 : 0;
          break;
      }
      row[j] = static_cast<float>(value);
    }
  }
}

}  // namespace flash
