// What functions of integers, bits and conversions return, bit by bit: of each one number, into
// which its results for 4096 operands go. They are an H200's, with nvcc 13.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

using U64 = unsigned long long;

__host__ __device__ inline U64 mixed(U64 x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// Edges of the types first, then numbers with few bits, ties of roundings, and any bits.
__device__ inline U64 operand(unsigned i, unsigned which) {
  const U64 any = mixed(i * 7ull + which + 1);
  const unsigned kind = static_cast<unsigned>(any >> 60) & 3, bit = static_cast<unsigned>(any) & 63;
  const U64 one = 1ull << bit;
  return kind == 0 ? (any & 1 << 20 ? one - (any >> 21 & 1) : ~one) : any;
}
__device__ inline float number(U64 bits) {
  const int kind = static_cast<int>(bits >> 58 & 3);
  const float near = static_cast<float>(static_cast<int>(bits & 0xffffff) - 0x800000);
  const float any = __uint_as_float(static_cast<unsigned>(bits));
  return kind == 0 ? near / 2 : kind == 1 ? near * 1024 : any != any ? NAN : any;
}
__device__ inline double wide_number(U64 bits) {
  const int kind = static_cast<int>(bits >> 58 & 3);
  return kind == 0   ? static_cast<double>(static_cast<long long>(bits << 9) >> 20) / 2
         : kind == 1 ? number(bits) * (1 + 0x1p-24 * static_cast<int>(bits >> 50 & 3))
                     : __longlong_as_double(static_cast<long long>(bits));
}

template <class T>
__device__ U64 bits_of(T x) {
  return static_cast<U64>(x);
}
__device__ U64 bits_of(float x) { return x != x ? 1ull << 40 : __float_as_uint(x); }  // any NaN
__device__ U64 bits_of(double x) {
  return x != x ? 1ull << 40 : static_cast<U64>(__double_as_longlong(x));
}
__device__ U64 bits_of(half x) { return __hisnan(x) ? 1ull << 40 : __half_as_ushort(x); }
__device__ U64 bits_of(__nv_bfloat16 x) {
  return __hisnan(x) ? 1ull << 40 : __bfloat16_as_ushort(x);
}
__device__ U64 bits_of(half2 x) { return bits_of(__low2half(x)) << 41 ^ bits_of(__high2half(x)); }

constexpr U64 kExpected[] = {
#define VALUE(number, ...) number##ull,
#include "emulator/corpus/values.inc"
#undef VALUE
};
constexpr Index kFunctions = sizeof kExpected / sizeof kExpected[0];

RIGHT(values, ({1, 64}, IS(kExpected[i]), result_from_zeros(kFunctions)), U64* sums) {
  U64 sum[kFunctions] = {};
  for (unsigned n = threadIdx.x; n < 4096; n += blockDim.x) {
    const U64 l = operand(n, 0), m = operand(n, 1), o = operand(n, 2);
    const unsigned a = static_cast<unsigned>(l), b = static_cast<unsigned>(m),
                   c = static_cast<unsigned>(o);
    const int i = static_cast<int>(a), j = static_cast<int>(b);
    const float x = number(l), y = number(m), z = number(o);
    const double d = wide_number(l);
    const auto low = [](U64 bits) { return static_cast<unsigned short>(bits >> 3); };
    const half f = __ushort_as_half(low(l)), g = __ushort_as_half(low(m)),
               h = __ushort_as_half(low(o));
    const __nv_bfloat16 t = __ushort_as_bfloat16(low(l)), u = __ushort_as_bfloat16(low(m));
    const half2 p = __halves2half2(f, g), q = __halves2half2(h, f);
    int function = 0;
#define VALUE(number, ...)                       \
  {                                              \
    const U64 bits = bits_of(__VA_ARGS__);       \
    sum[function] += mixed(bits ^ mixed(n + 1)); \
    ++function;                                  \
  }
#include "emulator/corpus/values.inc"
#undef VALUE
  }
  for (int function = 0; function < kFunctions; ++function)
    atomicAdd(sums + function, sum[function]);
}

}  // namespace
}  // namespace flash::simt_corpus
