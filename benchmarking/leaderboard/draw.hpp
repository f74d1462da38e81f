// What a board draws, on a CPU and on a GPU: numbers that follow from a key and from nothing else
// that a runner sees, and the graded kinds of data among them.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>

#include "common/attention.hpp"

namespace flash::leaderboard {

// ChaCha with 8 rounds (Bernstein 2008): whoever knows some of its words cannot compute others.
struct Cipher {
  std::uint32_t key[8];

  static Cipher of_system() {
    std::random_device source;
    Cipher made;
    for (std::uint32_t& word : made.key) word = source();
    return made;
  }

  FLASH_HOST_DEVICE void block(std::uint64_t stream, std::uint64_t number,
                               std::uint32_t (&x)[16]) const {
    const auto high = [](std::uint64_t bits) { return static_cast<std::uint32_t>(bits >> 32); };
    const auto low = [](std::uint64_t bits) { return static_cast<std::uint32_t>(bits); };
    const std::uint32_t start[16] = {
        0x61707865, 0x3320646e, 0x79622d32,  0x6b206574,  // "expand 32-byte k"
        key[0],     key[1],     key[2],      key[3],       key[4],      key[5],
        key[6],     key[7],     low(number), high(number), low(stream), high(stream)};
    for (int w = 0; w < 16; ++w) x[w] = start[w];
    const auto mix = [&x](int a, int b, int d, int by) {
      x[a] += x[b];
      x[d] ^= x[a];
      x[d] = x[d] << by | x[d] >> (32 - by);
    };
    const auto quarter = [&mix](int a, int b, int c, int d) {
      mix(a, b, d, 16), mix(c, d, b, 12), mix(a, b, d, 8), mix(c, d, b, 7);
    };
    for (int n = 0; n < 4; ++n) {
      quarter(0, 4, 8, 12), quarter(1, 5, 9, 13), quarter(2, 6, 10, 14), quarter(3, 7, 11, 15);
      quarter(0, 5, 10, 15), quarter(1, 6, 11, 12), quarter(2, 7, 8, 13), quarter(3, 4, 9, 14);
    }
    for (int w = 0; w < 16; ++w) x[w] += start[w];
  }

  // In [0, bound): which of some things a board does.
  FLASH_HOST_DEVICE Index choice(std::uint64_t number, Index bound) const {
    constexpr std::uint64_t kStream = ~0ull;
    std::uint32_t x[16];
    block(kStream, number, x);
    return static_cast<Index>(x[0] % static_cast<std::uint64_t>(bound));
  }

  // put(place, number of N(0, 1)) for eight of `count` places; all numbers below blocks(count)
  // together put a number in each.
  static FLASH_HOST_DEVICE Index blocks(Index count) { return (count + 7) / 8; }
  template <class Put>
  FLASH_HOST_DEVICE void normal(std::uint64_t stream, Index number, Index count, Put put) const {
    std::uint32_t x[16];
    block(stream, static_cast<std::uint64_t>(number), x);
    for (int n = 0; n < 8; ++n) {
      const Index place = number + n * blocks(count);
      if (place >= count) return;
      const float u = static_cast<float>((x[2 * n] >> 8) + 1) * 0x1p-24f;  // above 0, at most 1
      const float angle = static_cast<float>(x[2 * n + 1] >> 8) * 0x1p-24f * 6.2831853f;
      put(place, sqrtf(-2 * logf(u)) * cosf(angle));
    }
  }
};

// Kinds of data with which a result is right only by the contract's rules for the maximum, for -inf
// and for NaN. In none is a weight a denormal number, which some processors compute slowly.
enum class Graded {
  kPlain,
  kFarApart,      // from row to row
  kVeryNegative,  // exp of all scores is 0
  kStep,          // late keys bring a new maximum
  kSpike,         // one key does, and who looks at some keys alone does not know which
  kNoWeights,     // backward: some rows have an lse of -inf
  kNaN,           // in some rows
  kMasked,        // -inf for a third of the keys, and for half of the rest
  kNothing,       // -inf for all keys
};

// Of a part (8 rows of X, or a head) one of the first `kinds` kinds: in each part, or in a quarter.
inline constexpr Index kRowsOfAKind = 8;
inline constexpr Index kFiniteKinds = 4, kKindsOfGradients = 5, kWithNaN = 6, kAllKinds = 8;
FLASH_HOST_DEVICE inline Graded kind_of(const Cipher& cipher, Index part, Index kinds, bool each) {
  const Index n = cipher.choice(static_cast<std::uint64_t>(part), each ? kinds : 4 * kinds);
  return n < kinds ? static_cast<Graded>(n + 1) : Graded::kPlain;
}

// The key of kSpike, of a row of scores or of a head.
FLASH_HOST_DEVICE inline Index spike_of(const Cipher& cipher, Index part, Index keys) {
  return cipher.choice((1ull << 40) + static_cast<std::uint64_t>(part), keys);
}

// Whether a row is one of two kinds, so that for every power of 2 some rows at that distance
// differ.
FLASH_HOST_DEVICE inline bool is_odd(Index row) {
  bool odd = false;
  for (; row > 0; row &= row - 1) odd = !odd;
  return odd;
}

// What the scores of a row are multiplied by, or its row of q: of 8 rows 7 are sharp, so that few
// keys have most of the weight. Where many keys have about the same weight, errors cancel, and
// those of products with fewer bits stay inside of the bound: test_leaderboard.py has such a cheat.
// With 4 in place of 2 a right program was wrong in 38 of 2097152 elements on an H200. It adds 4096
// keys up one after the other, and a sum of floats loses weights below 2^-24 of it. The rows are
// drawn one by one, since a kernel may choose its products for each tile of rows: of 16 rows one is
// sharp but in 2^-48 of the draws.
FLASH_HOST_DEVICE inline float sharpness(const Cipher& cipher, Index row) {
  return cipher.choice(~static_cast<std::uint64_t>(row), 8) == 0 ? 1 : 2;
}

// Rows of kNoWeights: out is 0, lse is -inf, and the contract wants a d_q of 0 and no share of d_k
// and d_v. d_out is 0 there, so that the formulas want the same; exp(s - lse) times it is NaN.
FLASH_HOST_DEVICE inline bool has_no_weights(Index row) { return row % 3 == 1; }

// A score of row i and key j where N(0, 1) has x.
FLASH_HOST_DEVICE inline float graded_score(Graded kind, float x, Index i, Index j, Index keys,
                                            Index spike) {
  switch (kind) {
    case Graded::kPlain:
    case Graded::kNoWeights: return x;
    case Graded::kFarApart: return is_odd(i) ? x + 150 : x - 150;
    case Graded::kVeryNegative: return x - 1000;
    case Graded::kStep: return 2 * j < keys ? x : x + 150;
    case Graded::kSpike: return j == spike ? x + 150 : x;
    case Graded::kNaN: return i % 4 == 2 && j == 37 * i % keys ? NAN : x;
    case Graded::kMasked: return 3 * j < keys || x < 0 ? -INFINITY : x;
    case Graded::kNothing: return -INFINITY;
  }
  return x;
}

// The first columns of q and k make the scores of a head such ones, where N(0, 1) has x. For kSpike
// q stays as it is, and so tells nothing.
FLASH_HOST_DEVICE inline float graded_query(Graded kind, float x, Index i, Index head_dim) {
  if (kind == Graded::kPlain || kind == Graded::kNoWeights || kind == Graded::kNaN ||
      kind == Graded::kSpike)
    return kind == Graded::kNaN && i % 4 == 2 ? NAN : x;
  const float root = sqrtf(static_cast<float>(head_dim));
  return kind == Graded::kFarApart && is_odd(i) ? -root : root;
}
FLASH_HOST_DEVICE inline float graded_key(Graded kind, float x, Index j, Index keys, Index spike) {
  switch (kind) {
    case Graded::kPlain:
    case Graded::kNoWeights:
    case Graded::kNaN: return x;
    case Graded::kFarApart: return 150;
    case Graded::kVeryNegative: return -200;
    case Graded::kStep: return 2 * j < keys ? -75 : 75;
    case Graded::kSpike: return j == spike ? 200 : x;
    case Graded::kMasked: return 3 * j < keys || x < 0 ? -INFINITY : x;
    case Graded::kNothing: return -INFINITY;
  }
  return x;
}

}  // namespace flash::leaderboard
