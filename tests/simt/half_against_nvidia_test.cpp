// The emulator's half and bfloat16 give NVIDIA's bits: every 16-bit value, floats around every rounding boundary, many pairs.
#include <bit>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "harness/catch.hpp"
#include "simt/half_bits.hpp"

namespace {

using namespace half_bits;

struct Format {
  std::string name;
  Table nvidia, emulated;
  unsigned digits;
};

const Format& half_format() {
  static const Format format{"half", nvidia::half(), emulated::half(), 10};
  return format;
}
const Format& bfloat16_format() {
  static const Format format{"bfloat16", nvidia::bfloat16(), emulated::bfloat16(), 7};
  return format;
}

float value_of(const Table& table, Bits bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(table.unary[0].apply(bits))); }

// One function of both tables over many arguments.
class Comparison {
 public:
  template <class Function>
  Comparison(const Format& format, const Named<Function>& nvidia, const Named<Function>& emulated) {
    REQUIRE(std::string(nvidia.name) == emulated.name);
    what_ = format.name + ", " + nvidia.name;
  }
  template <class... Arguments>
  void add(std::uint64_t nvidia, std::uint64_t emulated, Arguments... arguments) {
    ++count_;
    if (nvidia == emulated) return;
    if (wrong_++ > 0) return;
    first_ = "the first:";
    ((first_ += " " + Catch::StringMaker<Arguments>::convert(arguments)), ...);
    first_ += ": NVIDIA " + std::to_string(nvidia) + ", emulator " + std::to_string(emulated);
  }
  ~Comparison() {
    INFO(what_ << ": " << wrong_ << " of " << count_ << " differ; " << first_);
    CHECK(wrong_ == 0);
  }

 private:
  std::string what_, first_;
  std::uint64_t count_ = 0, wrong_ = 0;
};

// For each value: itself, the midpoint to the next, and the neighbours of both; and all exponents with digits here and there.
std::vector<float> boundaries(const Table& table) {
  std::vector<float> floats;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float x = value_of(table, static_cast<Bits>(bits));
    const float next = value_of(table, static_cast<Bits>(bits + 1));
    const float middle = x / 2 + next / 2;
    for (const float f : {x, middle}) {
      const auto pattern = std::bit_cast<std::uint32_t>(f);
      for (const std::uint32_t near : {pattern - 1, pattern, pattern + 1}) floats.push_back(std::bit_cast<float>(near));
    }
  }
  std::mt19937 random(5);
  for (int k = 0; k < 200'000; ++k) floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  return floats;
}

// Mostly numbers of a like size, so that both count in a sum; and all sorts.
std::vector<std::pair<Bits, Bits>> random_pairs(const Format& format, int count) {
  std::vector<std::pair<Bits, Bits>> pairs;
  std::mt19937 random(7);
  const unsigned digits = format.digits;
  for (int k = 0; k < count; ++k) {
    const auto a = static_cast<Bits>(random());
    auto b = static_cast<Bits>(random());
    if (k % 2 == 0) b = static_cast<Bits>(((a & 0x7fffu) + (b % (8u << digits)) - (4u << digits)) ^ (b & 0x8000u));
    pairs.emplace_back(a, b);
  }
  // and each of the special ones with each
  const auto infinity = static_cast<Bits>(0x7fff >> digits << digits), normal = static_cast<Bits>(1u << digits);
  const auto one = static_cast<Bits>(infinity / 2 / normal * normal);
  std::vector<Bits> special;
  for (const int bits : {0, 1, 2, normal - 1, normal + 0, one + 0, one + 1, infinity - 1, infinity + 0, infinity + 1, 0x7fff})
    special.push_back(static_cast<Bits>(bits));
  for (const Bits a : special)
    for (const Bits b : special)
      for (const unsigned signs : {0u, 1u, 2u, 3u})
        pairs.emplace_back(static_cast<Bits>(a | (signs & 1) << 15), static_cast<Bits>(b | (signs & 2) << 14));
  return pairs;
}

// NVIDIA documents +0 > -0 for these functions, and bfloat16's on the host give the first argument for zeros of either sign.
bool is_undecided(const Format& format, const std::string& function, std::uint32_t a, std::uint32_t b) {
  return format.name == "bfloat16" && function.ends_with("_nan") && ((a | b) & 0x7fff) == 0 && a != b;
}

}  // namespace

TEST_CASE("half and bfloat16 are converted as NVIDIA converts them, from any float") {
  for (const Format& format : {half_format(), bfloat16_format()}) {
    const std::vector<float> floats = boundaries(format.nvidia);
    for (std::size_t f = 0; f < format.nvidia.from_float.size(); ++f) {
      const auto &nvidia = format.nvidia.from_float[f], &emulated = format.emulated.from_float[f];
      Comparison comparison(format, nvidia, emulated);
      for (const float x : floats) comparison.add(nvidia.apply(x), emulated.apply(x), x);
    }
    std::mt19937_64 random(9);
    for (std::size_t f = 0; f < format.nvidia.from_double.size(); ++f) {
      const auto &nvidia = format.nvidia.from_double[f], &emulated = format.emulated.from_double[f];
      Comparison comparison(format, nvidia, emulated);
      for (const float x : floats) {
        const auto pattern = std::bit_cast<std::uint64_t>(static_cast<double>(x));
        for (const std::uint64_t bits : {pattern - 1, pattern, pattern + 1, random()}) {
          const double wide = std::bit_cast<double>(bits);
          comparison.add(nvidia.apply(wide), emulated.apply(wide), wide);
        }
      }
    }
  }
}

TEST_CASE("half and bfloat16 are converted as NVIDIA converts them, from any integer") {
  std::mt19937_64 random(11);
  std::vector<long long> integers;
  for (long long x = -70'000; x <= 70'000; ++x) integers.push_back(x);
  for (int bit = 0; bit < 64; ++bit)  // n bits, then a midpoint, then a bit that breaks the tie
    for (int k = 0; k < 2'000; ++k) {
      const int shift = static_cast<int>(random() % 64);
      const std::uint64_t x = (random() >> bit) & ~std::uint64_t{0} << shift;
      for (const std::uint64_t near : {x - 1, x, x + 1}) integers.push_back(static_cast<long long>(near));
    }
  for (const Format& format : {half_format(), bfloat16_format()})
    for (std::size_t f = 0; f < format.nvidia.from_integer.size(); ++f) {
      const auto &nvidia = format.nvidia.from_integer[f], &emulated = format.emulated.from_integer[f];
      Comparison comparison(format, nvidia, emulated);
      for (const long long x : integers) comparison.add(nvidia.apply(x), emulated.apply(x), x);
    }
}

TEST_CASE("a function of one half or bfloat16 is NVIDIA's, for each of the 65536") {
  for (const Format& format : {half_format(), bfloat16_format()})
    for (std::size_t f = 0; f < format.nvidia.unary.size(); ++f) {
      const auto &nvidia = format.nvidia.unary[f], &emulated = format.emulated.unary[f];
      Comparison comparison(format, nvidia, emulated);
      for (unsigned bits = 0; bits < 0x10000; ++bits)
        comparison.add(nvidia.apply(static_cast<Bits>(bits)), emulated.apply(static_cast<Bits>(bits)), bits);
    }
}

TEST_CASE("a function of two halves or bfloat16 is NVIDIA's") {
  for (const Format& format : {half_format(), bfloat16_format()}) {
    const auto arguments = random_pairs(format, 200'000);
    for (std::size_t f = 0; f < format.nvidia.binary.size(); ++f) {
      const auto &nvidia = format.nvidia.binary[f], &emulated = format.emulated.binary[f];
      Comparison comparison(format, nvidia, emulated);
      for (const auto& [a, b] : arguments)
        if (!is_undecided(format, nvidia.name, a, b)) comparison.add(nvidia.apply(a, b), emulated.apply(a, b), a, b);
    }
  }
}

TEST_CASE("a function of half2 or bfloat162 is NVIDIA's, in the order of the halves as well") {
  for (const Format& format : {half_format(), bfloat16_format()}) {
    const auto arguments = random_pairs(format, 100'000);
    for (std::size_t f = 0; f < format.nvidia.pairs.size(); ++f) {
      const auto &nvidia = format.nvidia.pairs[f], &emulated = format.emulated.pairs[f];
      Comparison comparison(format, nvidia, emulated);
      for (std::size_t k = 0; k < arguments.size(); ++k) {
        const auto& [a, b] = arguments[k];
        const auto& [c, d] = arguments[(k + 1) % arguments.size()];
        if (is_undecided(format, nvidia.name, a, b) || is_undecided(format, nvidia.name, c, d)) continue;
        const std::uint32_t first = a | std::uint32_t{c} << 16, second = b | std::uint32_t{d} << 16;
        comparison.add(nvidia.apply(first, second), emulated.apply(first, second), first, second);
      }
    }
  }
}
