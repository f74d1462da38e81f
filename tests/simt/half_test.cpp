// half and bfloat16 of the emulator. The functions of half_functions.inc return what a computation
// in wider numbers gives, and NVIDIA's bits where the toolkit is (FLASH_NVIDIA_HALF): for every
// 16-bit value, floats around every rounding boundary, and many pairs.
#include <algorithm>
#include <bit>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>

#include "harness/catch.hpp"
#include "simt/half_bits.hpp"

// last: __noinline__ is a macro from here on
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/launch.hpp"

#ifndef FLASH_NVIDIA_HALF
half_bits::Table half_bits::nvidia::half() { return {}; }
half_bits::Table half_bits::nvidia::bfloat16() { return {}; }
#endif

namespace {

using namespace half_bits;
using flash::DeviceTensor;
using flash::Tensor;

#ifdef __SIZEOF_FLOAT128__
using Widest = __float128;
#else
using Widest = long double;  // the same 113 bits on other processors
#endif

struct Format {
  std::string name;
  int digits, least_exponent, infinity;
  Table emulated, nvidia;
};

const Format kHalf{"half", 10, -14, 0x7c00, emulated::half(), nvidia::half()};
const Format kBfloat16{"bfloat16", 7, -126, 0x7f80, emulated::bfloat16(), nvidia::bfloat16()};

template <class Number>
using PairOf = std::conditional_t<std::is_same_v<Number, __half>, __half2, __nv_bfloat162>;

template <class Number>
const Format& format_of() {
  return std::is_same_v<Number, __half> ? kHalf : kBfloat16;
}

// ---- the reference ------------------------------------------------------------------------------

// The value of 16 bits: digits times a power of two.
double value(const Format& f, Bits bits) {
  const int exponent = (bits & 0x7fff) >> f.digits, digits = bits & ((1 << f.digits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if ((bits & 0x7fff) > f.infinity) return std::numeric_limits<double>::quiet_NaN();
  if ((bits & 0x7fff) == f.infinity) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(digits, f.least_exponent - f.digits);
  return sign * std::ldexp((1 << f.digits) + digits, f.least_exponent - f.digits + exponent - 1);
}

// `x` rounded to 16 bits: scaled, so that rounding to an integer is what remains to be done.
template <class Wide>
Bits rounded(const Format& f, Wide x, bool negative, Mode mode) {
  const int sign = negative ? 0x8000 : 0;
  const bool away = mode == Mode::kNearest || mode == (negative ? Mode::kDown : Mode::kUp);
  const auto beyond = static_cast<Bits>(sign | (away ? f.infinity : f.infinity - 1));
  if (x != x) return 0x7fff;
  if (x < 0) x = -x;
  if (x > std::numeric_limits<double>::max()) return static_cast<Bits>(sign | f.infinity);
  int exponent =
      x == 0 ? f.least_exponent : std::max(std::ilogb(static_cast<double>(x)), f.least_exponent);
  if (exponent > f.least_exponent && x < std::ldexp(1.0, exponent))
    --exponent;                                           // the conversion to double rounded up
  exponent = std::min(exponent, f.infinity >> f.digits);  // far above all numbers
  const Wide scaled = x * std::ldexp(1.0, f.digits - exponent);
  if (scaled > 0x7fff) return beyond;
  auto whole = static_cast<int>(scaled);
  const Wide rest = scaled - whole;
  if (mode == Mode::kNearest)
    whole += rest > 0.5 || (rest == 0.5 && whole % 2 == 1);
  else if (away)
    whole += rest > 0;
  const int bits = ((exponent - f.least_exponent) << f.digits) + whole;
  return bits >= f.infinity ? beyond : static_cast<Bits>(sign | bits);
}
Bits rounded(const Format& f, Long x, Mode mode = Mode::kNearest) {
  return rounded(f, x, std::signbit(x), mode);
}

// a b + c: a term that is too small to be added exactly is replaced by a larger one that rounds the
// same.
Bits rounded_fma(const Format& f, double a, double b, double c) {
  const double product = a * b;  // exact
  double smaller = std::abs(product) < std::abs(c) ? product : c;
  const double larger = std::abs(product) < std::abs(c) ? c : product;
  if (std::isfinite(larger) && smaller != 0 && std::abs(smaller) < std::abs(larger) * 0x1p-60)
    smaller = std::copysign(larger * 0x1p-60, smaller);
  const Widest sum = Widest{larger} + Widest{smaller};
  return rounded(f, sum, sum < 0 || (sum == 0 && std::signbit(product + c)), Mode::kNearest);
}

// ---- arguments ----------------------------------------------------------------------------------

// Adds `x` and its neighbours to `all`, as numbers whose bits are an integer of type Pattern.
template <class Pattern, class Number>
void add_near(std::vector<std::tuple<Number>>& all, Number x) {
  const auto pattern = std::bit_cast<Pattern>(x);
  for (const Pattern near : {pattern - 1, pattern, pattern + 1})
    all.emplace_back(std::bit_cast<Number>(near));
}

std::vector<std::tuple<Bits>> all_bits() {
  std::vector<std::tuple<Bits>> all;
  for (unsigned bits = 0; bits < 0x10000; ++bits) all.emplace_back(static_cast<Bits>(bits));
  return all;
}

// For each value: itself, the midpoint to the next, and the neighbours of both; and any floats.
std::vector<std::tuple<float>> floats(const Format& f) {
  std::vector<std::tuple<float>> all;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const double x = value(f, static_cast<Bits>(bits)),
                 next = value(f, static_cast<Bits>(bits + 1));
    for (const double boundary : {x, x / 2 + next / 2})
      add_near<std::uint32_t>(all, static_cast<float>(boundary));
  }
  std::mt19937 random(5);
  for (int k = 0; k < 20'000; ++k)
    all.emplace_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  return all;
}

std::vector<std::tuple<double>> doubles(const Format& f) {
  std::vector<std::tuple<double>> all;
  std::mt19937_64 random(9);
  const auto near_boundaries = floats(f);
  for (std::size_t k = 0; k < near_boundaries.size(); k += 5) {
    add_near<std::uint64_t>(all, double{std::get<0>(near_boundaries[k])});
    all.emplace_back(std::bit_cast<double>(random()));
  }
  return all;
}

std::vector<std::tuple<long long>> integers() {
  std::vector<std::tuple<long long>> all;
  for (long long x = -70'000; x <= 70'000; x += x > -2'100 && x < 2'100 ? 1 : 13)
    all.emplace_back(x);
  std::mt19937_64 random(11);
  for (int k = 0; k < 15'000; ++k) {  // some bits, then a midpoint, then a bit that breaks the tie
    const std::uint64_t x = (random() >> random() % 64) & ~std::uint64_t{0} << random() % 64;
    add_near<std::uint64_t>(all, static_cast<long long>(x));
  }
  return all;
}

// Every second time two numbers of a like size, so that both count in a sum; and each special one
// with each.
std::vector<std::tuple<Bits, Bits>> pairs(const Format& f, int count) {
  std::vector<std::tuple<Bits, Bits>> all;
  std::mt19937 random(7);
  const unsigned exponents = 8u << f.digits;
  for (int k = 0; k < count; ++k) {
    const auto a = static_cast<Bits>(random()), b = static_cast<Bits>(random());
    all.emplace_back(a, k % 2 == 0
                            ? b
                            : static_cast<Bits>(((a & 0x7fffu) + b % exponents - exponents / 2) ^
                                                (b & 0x8000u)));
  }
  const int normal = 1 << f.digits, one = (1 - f.least_exponent) << f.digits;
  const int special[] = {
      0,     1, 2, normal - 1, normal, one, one + 1, f.infinity - 1, f.infinity, f.infinity + 1,
      0x7fff};
  for (const int a : special)
    for (const int b : special)
      for (const int signs : {0, 1, 2, 3})
        all.emplace_back(static_cast<Bits>(a | (signs & 1) << 15),
                         static_cast<Bits>(b | (signs & 2) << 14));
  return all;
}

std::vector<std::tuple<std::uint32_t, std::uint32_t>> pairs_of_pairs(const Format& f, int count) {
  std::vector<std::tuple<std::uint32_t, std::uint32_t>> all;
  const auto halves = pairs(f, count);
  for (std::size_t k = 0; k < halves.size(); ++k) {
    const auto [a, b] = halves[k];
    const auto [c, d] = halves[(k + 1) % halves.size()];
    all.emplace_back(a | std::uint32_t{c} << 16, b | std::uint32_t{d} << 16);
  }
  return all;
}

// ---- comparing ----------------------------------------------------------------------------------

// A CHECK() for each of millions of values would take minutes.
class Count {
 public:
  explicit Count(std::string what) : what_(std::move(what)) {}
  template <class... Arguments>
  void same(std::uint64_t got, std::uint64_t want, Arguments... arguments) {
    ++count_;
    if (got == want || wrong_++ > 0) return;
    ((first_ += " " + Catch::StringMaker<Arguments>::convert(arguments)), ...);
    first_ += " gives " + std::to_string(got) + ", not " + std::to_string(want);
  }
  ~Count() {
    INFO(what_ << ": " << wrong_ << " of " << count_ << " are wrong, the first:" << first_);
    CHECK(wrong_ == 0);
    CHECK(count_ > 0);
  }

 private:
  std::string what_, first_;
  std::uint64_t count_ = 0, wrong_ = 0;
};

// NVIDIA documents +0 > -0 for these functions; its bfloat16's on the host return the first
// argument for zeros of either sign.
bool nvidia_differs(const Format& f, const std::string& function, std::uint32_t a,
                    std::uint32_t b) {
  const auto zeros = [&](int shift) {
    return ((a | b) >> shift & 0x7fff) == 0 && ((a ^ b) >> shift & 0x8000) != 0;
  };
  return f.name == "bfloat16" && function.find("_nan") != function.npos && (zeros(0) || zeros(16));
}
bool nvidia_differs(const Format&, const std::string&, auto) { return false; }

// Each function of a list on all arguments: want(the list's entry, arguments...) is what it has to
// return.
template <class List, class Arguments, class Want>
void check(const Format& f, List Table::*list, const Arguments& arguments, Want want) {
  const List &emulated = f.emulated.*list, &nvidia = f.nvidia.*list;
#ifdef FLASH_NVIDIA_HALF
  REQUIRE(emulated.size() == nvidia.size());
#endif
  for (std::size_t k = 0; k < emulated.size(); ++k) {
    Count by_definition(f.name + ", " + emulated[k].name);
    std::optional<Count> as_nvidia;
    if (k < nvidia.size()) as_nvidia.emplace(f.name + ", as NVIDIA's " + emulated[k].name);
    for (const auto& each : arguments)
      std::apply(
          [&](auto... x) {
            const std::uint64_t got = emulated[k].apply(x...);
            by_definition.same(got, want(emulated[k], x...), x...);
            if (as_nvidia && !nvidia_differs(f, emulated[k].name, x...))
              as_nvidia->same(got, nvidia[k].apply(x...), x...);
          },
          each);
  }
}

Bits bits_of(auto x) { return std::bit_cast<Bits>(x); }
template <class Number>
Number number(Bits bits) {
  return std::bit_cast<Number>(bits);
}

}  // namespace

TEST_CASE("half and bfloat16 are converted with one rounding, in the named direction") {
  for (const Format& f : {kHalf, kBfloat16}) {
    const auto want = [&f](const auto& function, auto x) {
      return rounded(f, Long{x}, function.want);
    };
    check(f, &Table::from_float, floats(f), want);
    check(f, &Table::from_double, doubles(f), want);
    check(f, &Table::from_integer, integers(), [&f](const auto& function, long long x) {
      return rounded(f, function.want.to_argument(x), function.want.mode);
    });
    check(f, &Table::to_others, all_bits(),
          [&f](const auto& function, Bits x) { return function.want(x, value(f, x)); });
  }
}

TEST_CASE("operations are exact and rounded once, and comparisons are those of the values") {
  for (const Format& f : {kHalf, kBfloat16}) {
    check(f, &Table::unary, all_bits(),
          [&f](const auto& function, Bits x) { return rounded(f, function.want(value(f, x))); });
    check(f, &Table::binary, pairs(f, 30'000), [&f](const auto& function, Bits x, Bits y) {
      return rounded(f, function.want(value(f, x), value(f, y)));
    });
    check(f, &Table::comparisons, pairs(f, 20'000), [&f](const auto& function, Bits x, Bits y) {
      return function.want(value(f, x), value(f, y));
    });
  }
}

TEST_CASE("functions of pairs do to both halves what the others do to one") {
  for (const Format& f : {kHalf, kBfloat16})
    check(f, &Table::pairs, pairs_of_pairs(f, 30'000),
          [](const auto& function, auto x, auto y) { return function.want(x, y); });
}

// ---- what NVIDIA has for GPUs only --------------------------------------------------------------

TEMPLATE_TEST_CASE("half and bfloat16 may lie in shared memory and in a shuffle", "", __half,
                   __nv_bfloat16, __half2, __nv_bfloat162) {
  STATIC_REQUIRE(sizeof(TestType) == alignof(TestType));
  STATIC_REQUIRE(sizeof(TestType) == (std::is_convertible_v<TestType, float> ? 2 : 4));
  STATIC_REQUIRE(std::is_trivially_default_constructible_v<TestType>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<TestType>);
}

TEST_CASE("names and constants stand for what they say") {
  const std::pair<float, float> values[] = {
      {CUDART_MAX_NORMAL_FP16, 65504},
      {CUDART_INF_FP16, INFINITY},
      {CUDART_MIN_DENORM_FP16, 0x1p-24f},
      {CUDART_ONE_FP16, 1},
      {CUDART_MAX_NORMAL_BF16, 0x1.fep127f},
      {CUDART_INF_BF16, INFINITY},
      {CUDART_MIN_DENORM_BF16, 0x1p-133f},
      {CUDART_ONE_BF16, 1},
      {static_cast<__half>(nv_bfloat16(1e6f)), INFINITY},
      {static_cast<nv_bfloat16>(__half(0x1.ffcp0f)), 2},
      {__int2bfloat16_rz(257), 256},
      {__int2bfloat16_ru(257), 258},
      {__int2bfloat16_rd(-257), -258},
      {__half2int_rn(2.5f), 2},
      {__half2int_rd(-2.5f), -3},
      {__half2int_ru(2.25f), 3},
      {__bfloat162int_rn(-3.5f), -4},
  };
  for (const auto& [got, want] : values) CHECK(got == want);
  CHECK(__hisnan(CUDART_NAN_FP16));
  CHECK(__hisnan(CUDART_NAN_BF16));
}

TEMPLATE_TEST_CASE("a fused multiply-add is rounded once", "", __half, __nv_bfloat16) {
  const Format& f = format_of<TestType>();
  Count count(f.name);
  const auto check_one = [&](Bits x, Bits y, Bits z) {
    const Bits want = rounded_fma(f, value(f, x), value(f, y), value(f, z));
    count.same(bits_of(__hfma(number<TestType>(x), number<TestType>(y), number<TestType>(z))), want,
               x, y, z);
  };
  std::mt19937 random(4);
  for (const auto& [x, y] : pairs(f, 60'000)) {
    const Bits product = bits_of(number<TestType>(x) * number<TestType>(y));
    check_one(x, y, static_cast<Bits>(random()));
    check_one(x, y, product ^ 0x8000);  // cancels all but the product's error
    check_one(x, y, static_cast<Bits>(product ^ (random() & 0x8fff)));  // of a like size
  }
  // A product halfway between two numbers, and an addend that is too small for anything but to
  // break the tie.
  const TestType a(1 + std::ldexp(1.0, -(f.digits + 1) / 2)),
      b(1 + std::ldexp(1.0, -(f.digits + 1) + (f.digits + 1) / 2));
  const TestType tiny = number<TestType>(1);
  for (const TestType c :
       {tiny, -tiny, TestType(0), TestType(std::ldexp(1.0, -14)), TestType(-std::ldexp(1.0, -14))})
    check_one(bits_of(a), bits_of(b), bits_of(c));

  using Pair = PairOf<TestType>;
  CHECK((__hfma2(Pair(1.5f, -2.f), Pair(4.f, 3.f), Pair(1.f, 1.f)) == Pair(7.f, -5.f)));
}

TEMPLATE_TEST_CASE("functions are within a unit in the last place, and roots are rounded right", "",
                   __half, __nv_bfloat16) {
  const Format& f = format_of<TestType>();
  Count exact("hsqrt, hrsqrt, hrcp, whole numbers"), near("functions"),
      of_pairs("functions of pairs");
  using Pair = PairOf<TestType>;
  for (unsigned k = 0; k < 0x10000; ++k) {
    const auto bits = static_cast<Bits>(k);
    const auto a = number<TestType>(bits);
    const double x = value(f, bits);
    const Pair pair(a, TestType(1));
    const auto check_one = [&](TestType got, Pair got_of_pair, double want, int most_wrong) {
      const int difference = bits_of(got) - rounded(f, want);
      (most_wrong == 0 ? exact : near)
          .same(std::abs(difference) <= most_wrong, true, k, static_cast<float>(got), want);
      of_pairs.same(bits_of(got_of_pair.x), bits_of(got), k);
    };
#define EACH(name, want, most_wrong) check_one(h##name(a), h2##name(pair), want, most_wrong)
    EACH(sqrt, std::sqrt(x), 0);
    EACH(rsqrt, 1 / std::sqrt(x), 0);
    EACH(rcp, 1 / x, 0);
    EACH(ceil, std::ceil(x), 0);
    EACH(floor, std::floor(x), 0);
    EACH(trunc, std::trunc(x), 0);
    EACH(rint, std::nearbyint(x), 0);
    EACH(exp, std::exp(x), 1);
    EACH(exp2, std::exp2(x), 1);
    EACH(exp10, std::pow(10.0, x), 1);
    EACH(log, std::log(x), 1);
    EACH(log2, std::log2(x), 1);
    EACH(log10, std::log10(x), 1);
    EACH(sin, std::sin(x), 1);
    EACH(cos, std::cos(x), 1);
    EACH(tanh, std::tanh(x), 1);
#undef EACH
  }
}

// ---- in a kernel --------------------------------------------------------------------------------

namespace {

// Each thread adds to one sum of all blocks, and a warp's values cross over by a shuffle and by
// shared memory.
template <class Number, class Pair>
__global__ void meet(Number* sum, Pair* pair_sum, Pair* shuffled, Number* reversed) {
  __shared__ Number stored[32];
  const int lane = static_cast<int>(threadIdx.x);
  stored[lane] = lane;
  atomicAdd(sum, Number(1));
  atomicAdd(pair_sum, Pair(1, 2));
  shuffled[lane] = __shfl_xor_sync(0xffffffffu, Pair(lane, -lane), 1);
  __syncthreads();
  reversed[lane] = __ldg(&stored[31 - lane]);
}

}  // namespace

TEMPLATE_TEST_CASE("half and bfloat16 add atomically, shuffle, and lie in shared memory", "",
                   __half, __nv_bfloat16) {
  using Pair = PairOf<TestType>;
  constexpr unsigned blocks = 4;
  const DeviceTensor<TestType, 1> sum(Tensor<TestType, 1>({1})), reversed({32});
  const DeviceTensor<Pair, 1> pair_sum(Tensor<Pair, 1>({1})), shuffled({32});
  flash::launch("meet", meet<TestType, Pair>, {blocks, 32}, sum.data(), pair_sum.data(),
                shuffled.data(), reversed.data());
  CHECK(static_cast<float>(sum.to_host()(0)) == 32 * blocks);
  CHECK((pair_sum.to_host()(0) == Pair(32 * blocks, 64 * blocks)));
  for (int lane = 0; lane < 32; ++lane) {
    CHECK((shuffled.to_host()(lane) == Pair(lane ^ 1, -(lane ^ 1))));
    CHECK(static_cast<int>(reversed.to_host()(lane)) == 31 - lane);
  }
}
