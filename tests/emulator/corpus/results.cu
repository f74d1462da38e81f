// Kernels whose results are open: variables that nobody set, shifts by too many bits, conversions
// of numbers that the type does not have; and assertions.
#pragma GCC diagnostic ignored "-Wuninitialized"
#undef NDEBUG  // as in a task's file
#include <cassert>

#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

BY_LUCK(sum_without_a_start, ({1, 32}, IS(6), counting(4), result(32)), const float* x,
        float* out) {
  float sum;
  for (int i = 0; i < 4; ++i) sum += x[i];
  out[threadIdx.x] = sum;
}

struct State {
  float m, l;
};
BY_LUCK(half_of_a_structure, ({1, 32}, IS(i), counting(32), result(32)), const float* x,
        float* out) {
  State state;
  state.m = x[threadIdx.x];
  out[threadIdx.x] = state.m + state.l;
}

__device__ void add(const float* x, float (&sums)[4]) {
  for (int i = 0; i < 4; ++i) sums[i] += x[i];
}
BY_LUCK(accumulators_of_a_function, ({1, 32}, IS(i % 4), counting(4), result(32)), const float* x,
        float* out) {
  float sums[4];
  add(x, sums);
  out[threadIdx.x] = sums[threadIdx.x % 4];
}

RIGHT(all_variables_set, ({1, 32}, IS(6), counting(4), result(32)), const float* x, float* out) {
  float sums[4] = {}, sum = 0;
  State state{};
  add(x, sums);
  for (const float each : sums) sum += each;
  out[threadIdx.x] = sum + state.m + state.l;
}

MISTAKE(kUndefined, shift_by_32, ({1, 32}, counting(32), zeros(32)), const int* bits,
        unsigned* out) {
  out[threadIdx.x] = 1u << (bits[threadIdx.x] + 1);  // BUG
}

MISTAKE(kUndefined, shift_by_a_negative_number, ({1, 32}, counting(32), zeros(32)), const int* bits,
        int* out) {
  out[threadIdx.x] = 1 << (bits[threadIdx.x] - 1);  // BUG
}

MISTAKE(kUndefined, shift_of_64_bits, ({1, 32}, counting(32), zeros(32)), const int* bits,
        unsigned long long* out) {
  out[threadIdx.x] = 1ull << (2 * bits[threadIdx.x] + 2);  // BUG
}

RIGHT(shifts, ({1, 32}, IS(0x80000000LL + 0x80000000LL), counting(32), result(32)), const int* bits,
      unsigned long long* out) {
  const int n = bits[threadIdx.x];
  out[threadIdx.x] = (1ull << n << 31) / (1u << n) + ((0x80000000u >> n) << n);
}

MISTAKE(kUndefined, nan_to_int, ({1, 32}, counting(32), zeros(32)), const float* x, int* out) {
  out[threadIdx.x] = static_cast<int>(x[0] / x[0]);  // BUG
}

MISTAKE(kUndefined, large_to_int, ({1, 32}, counting(32), zeros(32)), const float* x, int* out) {
  out[threadIdx.x] = x[threadIdx.x] * 1e9f;  // BUG
}

MISTAKE(kUndefined, negative_to_unsigned, ({1, 32}, counting(32), zeros(32)), const float* x,
        unsigned* out) {
  out[threadIdx.x] = static_cast<unsigned>(x[threadIdx.x] - 1);  // BUG
}

MISTAKE(kUndefined, double_to_char, ({1, 32}, counting(32), zeros(32)), const float* x,
        signed char* out) {
  out[threadIdx.x] = static_cast<signed char>(10.0 * x[threadIdx.x]);  // BUG
}

RIGHT(conversions, ({1, 32}, IS(i), counting(32), result(32)), const float* x, int* out) {
  const float number = x[threadIdx.x];
  const float nan = number * INFINITY - number * INFINITY;
  out[threadIdx.x] = static_cast<int>(number * 6e7f) / 60000000 +
                     static_cast<int>(static_cast<unsigned>(-0.75f - 0 * number)) +
                     __float2int_rz(nan) + (__float2int_rz(1e20f + number) == 2147483647 ? 0 : 100);
}

MISTAKE(kAssertion, assertion, ({1, 32}, counting(32), zeros(32)), const float* x, float* out) {
  assert(x[threadIdx.x] < 31);  // BUG
  out[threadIdx.x] = x[threadIdx.x];
}

MISTAKE(kAssertion, trap, ({1, 32}, counting(32), zeros(32)), const float* x, float* out) {
  if (x[threadIdx.x] >= 31) __trap();  // BUG
  out[threadIdx.x] = x[threadIdx.x];
}

RIGHT(assertion_that_holds, ({1, 32}, IS(i), counting(32), result(32)), const float* x,
      float* out) {
  assert(x[threadIdx.x] < 32 && "there are 32 numbers");
  out[threadIdx.x] = x[threadIdx.x];
}

}  // namespace
}  // namespace flash::simt_corpus
