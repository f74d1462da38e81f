// half and bfloat16 of the emulator: what their functions return is the exact result, rounded once
// by common/half.hpp, or the host's function within a unit in the last place.
#include "common/half.hpp"

#include <cmath>
#include <random>
#include <type_traits>

#include "harness/catch.hpp"

// last: __noinline__ is a macro from here on
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/launch.hpp"

namespace {

using flash::DeviceTensor;
using flash::Tensor;

template <class Number>
constexpr bool kIsHalf = std::is_same_v<Number, __half>;
template <class Number>
using PairOf = std::conditional_t<kIsHalf<Number>, __half2, __nv_bfloat162>;

template <class Number>
Number number(unsigned bits) {
  return Number::from_bits(static_cast<std::uint16_t>(bits));
}

// Whether `got` is `want` rounded, or at most so many units in the last place away; any NaN is NaN.
template <class Number>
bool is_near(Number got, double want, int units = 0) {
  using Rounded = std::conditional_t<kIsHalf<Number>, flash::Half, flash::BFloat16>;
  if (std::isnan(want)) return __hisnan(got);
  return std::abs(got.bits() - Rounded(want).bits) <= units;
}

}  // namespace

TEMPLATE_TEST_CASE("functions of one number, and of pairs", "", __half, __nv_bfloat16) {
  using Pair = PairOf<TestType>;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto a = number<TestType>(bits);
    const double x = static_cast<double>(static_cast<float>(a));
    const Pair pair(TestType(1), a);
    const auto check = [&](TestType got, Pair got_of_pair, double want, int units) {
      if (is_near(got, want, units) &&
          (got_of_pair.y == got || (__hisnan(got) && __hisnan(got_of_pair.y))))
        return;
      CAPTURE(bits, x, static_cast<float>(got), static_cast<float>(got_of_pair.y), want);
      FAIL("wrong");
    };
#define EACH(name, want, units) check(h##name(a), h2##name(pair), want, units)
    EACH(sqrt, std::sqrt(x), 0);
    EACH(rsqrt, 1 / std::sqrt(x), 1);
    EACH(rcp, 1 / x, 1);
    EACH(exp, std::exp(x), 1);
    EACH(exp2, std::exp2(x), 1);
    EACH(log, std::log(x), 1);
    EACH(log2, std::log2(x), 1);
#undef EACH
    check(-a, -pair, -x, 0);
    check(__hneg(a), __hneg2(pair), -x, 0);
    check(__habs(a), __habs2(pair), std::fabs(x), 0);
    REQUIRE(__hisnan(a) == std::isnan(x));
  }
}

TEMPLATE_TEST_CASE("functions of two numbers, and of two pairs", "", __half, __nv_bfloat16) {
  using Pair = PairOf<TestType>;
  std::mt19937 random(7);
  for (int k = 0; k < 100'000; ++k) {
    const unsigned bits = random() & 0xffff, exponents = kIsHalf<TestType> ? 0x1fff : 0x3ff;
    // Every second time two numbers of a like size, so that both count in a sum.
    const auto a = number<TestType>(bits),
               b = number<TestType>(k % 2 == 0 ? random()
                                               : bits ^ (random() & (0x8000 | exponents))),
               c = number<TestType>(random());
    const double x = static_cast<double>(static_cast<float>(a)),
                 y = static_cast<double>(static_cast<float>(b)),
                 z = static_cast<double>(static_cast<float>(c));
    const Pair first(a, TestType(3)), second(b, TestType(2));
    CAPTURE(bits, x, y, z);
    bool right = true;
    const auto check = [&](TestType got, TestType by_name, Pair of_pairs, double want) {
      right = right && is_near(got, want) && is_near(by_name, want) && is_near(of_pairs.x, want);
    };
    check(a + b, __hadd(a, b), __hadd2(first, second), x + y);
    check(a - b, __hsub(a, b), first - second, x - y);
    check(a * b, __hmul(a, b), __hmul2(first, second), x * y);
    check(a / b, __hdiv(a, b), __h2div(first, second), x / y);
    check(__hmax(a, b), __hmax(b, a), __hmax2(first, second), std::fmax(x, y));
    check(__hmin(a, b), __hmin(b, a), __hmin2(first, second), std::fmin(x, y));
    TestType sum = a;
    sum += b;
    const double sum_in_double = x * y + z;  // if not exact, it rounds a second time
    if (sum_in_double - x * y == z && sum_in_double - z == x * y)
      check(__hfma(a, b, c), __hfma(b, a, c), __hfma2(first, second, Pair(c, c)), sum_in_double);
    check(sum, sum, first + second, x + y);
    right = right && (a == b) == (x == y) && __heq(a, b) == (x == y) && (a != b) == (x != y) &&
            __hlt(a, b) == (x < y) && (a <= b) == (x <= y) && __hgt(a, b) == (x > y) &&
            (a >= b) == (x >= y);
    REQUIRE(right);
  }
  CHECK((__hadd2(Pair(1, 2), Pair(3, 4)) == Pair(4, 6)));
  CHECK_FALSE((Pair(1, 2) == Pair(1, 3)));
}

TEST_CASE("names and constants stand for what they say") {
  const std::pair<float, float> values[] = {
      {CUDART_MAX_NORMAL_FP16, 65504},
      {CUDART_INF_FP16, INFINITY},
      {CUDART_MAX_NORMAL_BF16, 0x1.fep127f},
      {CUDART_INF_BF16, INFINITY},
      {static_cast<__half>(nv_bfloat16(1e6f)), INFINITY},
      {static_cast<nv_bfloat16>(__half(0x1.ffcp0f)), 2},
      {__half22float2(__floats2half2_rn(1, 2)).y, 2},
      {__high2bfloat16(__bfloat162bfloat162(5)), 5},
  };
  for (const auto& [got, want] : values) CHECK(got == want);
  CHECK(__float2int_rz(1e20f) == std::numeric_limits<int>::max());
  CHECK(__float2int_rd(NAN) == 0);
}

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
