// Seeded inputs, ordinary and adversarial. The same seed gives the same numbers on every machine,
// up to the last bit of a logarithm.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "common/tensor.hpp"

namespace flash {

// What a tensor holds. "Row" means the last axis, "column" an index into it; a score tensor has one
// column per key, a value tensor one row per key.
enum class Pattern {
  kNormal,       // N(0, 1)
  kHalfNormal,   // N(0, 0.5^2): the same with deviation 0.5
  kLargeLogits,  // uniform in [-200, 200]: exp of it overflows and underflows unless the maximum is
                 // subtracted
  kRising,  // every row rises by 300 from its first to its last column: each block of keys brings a
            // new maximum, and exp of a score less the first block's maximum overflows
  kAllEqual,      // 0.75 everywhere: every key weighs the same
  kOneHot,        // 0, but 80 in one column of each row: the result is one row of V
  kVeryNegative,  // N(-1000, 1): exp gives 0 for a whole row unless the maximum is subtracted
  kMasked,  // N(0, 1) with -inf: the first third of every row, half of the rest at random, and
            // every fifth row whole
  kLowest,  // -1.2e9 everywhere: less than what a running maximum may start at. Not lower: a fused
            // multiply-add that subtracts a rounded maximum is off by up to 2^-24 of it, and exp of
            // that has to stay finite
  kFarApart,  // N(0, 1), and each row 150 more or 150 less, so that for every power of 2 some rows
              // at that distance differ by 300
  kNaN,       // N(0, 1) with one NaN in every fourth row, from the third on
  kKeySignature,  // for V: row j holds 1 + (j mod 13) / 13 in column j mod columns, else 0: shows
                  // which keys were counted
};

FLASH_EXPORT std::string to_string(Pattern pattern);

// Which of two kinds row `i` of kFarApart is.
inline bool is_high(Index i) { return std::popcount(static_cast<std::uint64_t>(i)) % 2 == 1; }

// Fills a row-major block of rows x columns.
FLASH_EXPORT void fill(float* data, Index rows, Index columns, Pattern pattern, std::uint64_t seed);

// Tensors of the same shape, pattern and seed are equal; use different seeds for different
// operands.
template <int Rank>
Tensor<float, Rank> make_input(const Shape<Rank>& shape, Pattern pattern, std::uint64_t seed) {
  Tensor<float, Rank> tensor(shape);
  const Index columns = shape[Rank - 1];
  if (tensor.size() > 0) fill(tensor.data(), tensor.size() / columns, columns, pattern, seed);
  return tensor;
}

// SplitMix64 (Steele, Lea and Flood 2014): 64 random bits a call, any seed is good.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // In [0, 1), 53 bits.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

  // N(0, 1), by Box and Muller's method.
  FLASH_EXPORT double normal();

  // In [0, bound).
  Index below(Index bound) {
    return static_cast<Index>(bits() % static_cast<std::uint64_t>(bound));
  }

 private:
  std::uint64_t state_;
};

// Mean 0, for a tensor of any element type.
template <class T>
Tensor<T, 4> normal(const Shape<4>& shape, std::uint64_t seed, double deviation = 1) {
  Tensor<T, 4> x(shape);
  Random random(seed);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<T>(deviation * random.normal());
  return x;
}

}  // namespace flash
