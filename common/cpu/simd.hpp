// Vectors by the compilers' extensions (g++, clang), without intrinsics, as wide as those of the
// processor that this file is compiled for. Operators and `condition ? a : b` work lane by lane.
//
// FLASH_ISA is the name of the instruction set, and of a namespace: a file N_name.isa.cpp is
// compiled once for each (cmake/FlashRegistry.cmake). Its kernels may use no inline function of the
// standard library: the linker keeps one copy of each, and could keep the copy that needs AVX-512.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __FAST_MATH__
#error \
    "compile without -ffast-math: it removes the rounding in exp2() and the arithmetic with infinities"
#endif

#define FLASH_INLINE [[gnu::always_inline]] inline
#define FLASH_UNROLL _Pragma("GCC unroll 32")

namespace flash::FLASH_ISA {

using Index = std::ptrdiff_t;

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64, kRegisters = 32;
#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr int kVectorBytes = 32, kRegisters = 16;
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16, kRegisters = 32;
#else
inline constexpr int kVectorBytes = 16, kRegisters = 16;
#endif

template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
struct VectorTypes;
template <>
struct VectorTypes<float> {
  using Bits = std::int32_t;
  typedef float Vector __attribute__((vector_size(kVectorBytes)));
  typedef float Unaligned __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
  typedef std::int32_t BitsVector __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorTypes<double> {
  using Bits = std::int64_t;
  typedef double Vector __attribute__((vector_size(kVectorBytes)));
  typedef double Unaligned __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
  typedef std::int64_t BitsVector __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorTypes<T>::Vector;
template <class T>
using BitsVector = typename VectorTypes<T>::BitsVector;

template <class T>
FLASH_INLINE Vector<T> load(const T* from) {
  return *reinterpret_cast<const typename VectorTypes<T>::Unaligned*>(from);
}
template <class T>
FLASH_INLINE void store(T* to, Vector<T> x) {
  *reinterpret_cast<typename VectorTypes<T>::Unaligned*>(to) = x;
}
template <class T>
FLASH_INLINE Vector<T> broadcast(T x) {
  return x - Vector<T>{};
}

// 0, 1, 2, ... in the lanes.
template <class T>
FLASH_INLINE BitsVector<T> lane_numbers() {
  BitsVector<T> numbers{};
  FLASH_UNROLL
  for (int lane = 0; lane < kLanes<T>; ++lane) numbers[lane] = lane;
  return numbers;
}

// The larger; b where either is NaN.
template <class V>
FLASH_INLINE V max(V a, V b) {
  return a > b ? a : b;
}

}  // namespace flash::FLASH_ISA
