// nvcuda::wmma on the emulator: 16 x 16 x 16, 32 x 8 x 16 and 8 x 32 x 16 for half and bfloat16, 16
// x 16 x 8 for tf32. CUDA does not say which lane has which element; here they are shuffled, so
// that a kernel that relies on a layout fails.
#pragma once

#include <cstdint>
#include <type_traits>

#include "emulator/headers/device/tensor_core.hpp"

namespace nvcuda::wmma {

using flash::simt::Site;

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

// tf32 keeps 10 bits of a float's fraction, rounded to nearest, ties away from zero.
inline float __float_to_tf32(float value) {
  auto bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & ~0x1fffu;
  return __builtin_bit_cast(float, bits);
}

namespace simt_detail {  // not for kernels

template <class Use, int M, int N, int K, class T, class Layout>
class Fragment {
  static constexpr bool kIs16Bit = __is_same(T, __half) || __is_same(T, __nv_bfloat16);
  static constexpr bool kIsAccumulator = __is_same(Use, accumulator);
  static_assert((M == 16 && N == 16 && (K == 16 || K == 8)) || (M == 32 && N == 8 && K == 16) ||
                    (M == 8 && N == 32 && K == 16),
                "wmma shapes: 16 x 16 x 16, 32 x 8 x 16, 8 x 32 x 16; 16 x 16 x 8 for tf32");
  static_assert(kIsAccumulator ? __is_same(T, float) || (__is_same(T, __half) && K == 16)
                               : (kIs16Bit && K == 16) || (__is_same(T, precision::tf32) && K == 8),
                "the emulator's wmma has half and bfloat16 (K = 16), tf32 (K = 8), and float or "
                "half accumulators");
  static_assert(kIsAccumulator == std::is_void_v<Layout>,
                "matrix_a and matrix_b have a layout, an accumulator has none");

 public:
  using element_type = std::conditional_t<__is_same(T, precision::tf32), float, T>;
  static constexpr int kRows = __is_same(Use, matrix_b) ? K : M;
  static constexpr int kColumns = __is_same(Use, matrix_a) ? K : N;
  static constexpr int num_elements = kRows * kColumns / 32;

  element_type x[num_elements];

  // The number (row by row) of the element that is x[i] in `lane`: an odd factor makes a
  // permutation of a power of two.
  static constexpr int number(int lane, int i) {
    return (77 * (lane * num_elements + i) + 13) % (kRows * kColumns);
  }
};

// Only these are: by template arguments a kernel's own types get here, and their code would run
// unchecked.
template <class T>
struct Type {};
template <class T>
constexpr bool is_fragment(Type<T>) {
  return false;
}
template <class Use, int M, int N, int K, class T, class Layout>
constexpr bool is_fragment(Type<Fragment<Use, M, N, K, T, Layout>>) {
  return true;
}

}  // namespace simt_detail

// Another name for a class that a file cannot name: it may specialise none whose elements the
// emulator takes from all lanes.
template <class Use, int M, int N, int K, class T, class Layout = void>
using fragment = simt_detail::Fragment<Use, M, N, K, T, Layout>;

template <class Use, int M, int N, int K, class T, class Layout, class Value>
void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, Value value) {
  for (auto& element : f.x) element = value;
}

namespace simt_detail {  // not for kernels

// Pointers to matrices are multiples of 32 bytes, the distance between rows one of 16.
inline void check_matrix(const char* name, const void* pointer, unsigned ldm,
                         std::size_t element_bytes, Site site) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % 32 != 0)
    flash::simt::misaligned(name, site, pointer, 32);
  if (ldm * element_bytes % 16 != 0)
    flash::simt::misaligned(name, site, reinterpret_cast<const void*>(ldm * element_bytes), 16);
}

template <class Fragment>
__forceinline__ std::size_t offset(int lane, int i, unsigned ldm, bool by_rows) {
  const unsigned number = static_cast<unsigned>(Fragment::number(lane, i)),
                 row = number / Fragment::kColumns, column = number % Fragment::kColumns;
  return by_rows ? std::size_t{row} * ldm + column : std::size_t{column} * ldm + row;
}

template <class Fragment, class T>
__forceinline__ void load(Fragment& f, const T* pointer, unsigned ldm, bool by_rows, Site site) {
  static_assert(__is_same(T, typename Fragment::element_type), "the matrix has another type");
  check_matrix("load_matrix_sync", pointer, ldm, sizeof(T), site);
  const int lane = static_cast<int>(flash::simt::lane_number());
  for (int i = 0; i < Fragment::num_elements; ++i)
    f.x[i] = pointer[offset<Fragment>(lane, i, ldm, by_rows)];
  flash::simt::flash_simt_matrix_operation("load_matrix_sync", site, nullptr, nullptr);
}

template <class D, class A, class B, class C>
struct Product {
  D* d;
  const A* a;
  const B* b;
  const C* c;
};

template <class D, class A, class B, class C, bool TF32>
FLASH_SIMT_UNCHECKED void multiply(void* const slots[32], std::uint32_t) {
  static_assert(simt_detail::is_fragment(Type<D>()) && simt_detail::is_fragment(Type<A>()) &&
                    simt_detail::is_fragment(Type<B>()) && simt_detail::is_fragment(Type<C>()),
                "mma_sync() takes fragments");
  constexpr int kM = D::kRows, kN = D::kColumns, kK = A::kColumns;
  float a[kM * kK], b[kK * kN], sum[kM * kN];
  const auto tf32 = [](float value) __attribute__((always_inline)) {
    if constexpr (!TF32) return value;
    return flash::simt::Tf32::value(__builtin_bit_cast(std::uint32_t, value), 0);
  };
  for (int lane = 0; lane < 32; ++lane) {
    const auto& part = *static_cast<const Product<D, A, B, C>*>(slots[lane]);
    for (int i = 0; i < A::num_elements; ++i)
      a[A::number(lane, i)] = tf32(static_cast<float>(part.a->x[i]));
    for (int i = 0; i < B::num_elements; ++i)
      b[B::number(lane, i)] = tf32(static_cast<float>(part.b->x[i]));
    for (int i = 0; i < C::num_elements; ++i)
      sum[C::number(lane, i)] = static_cast<float>(part.c->x[i]);
  }
  flash::simt::add_products(sum, a, b, kM, kN, kK);
  for (int lane = 0; lane < 32; ++lane) {
    const auto& part = *static_cast<const Product<D, A, B, C>*>(slots[lane]);
    for (int i = 0; i < D::num_elements; ++i)
      part.d->x[i] = static_cast<typename D::element_type>(sum[D::number(lane, i)]);
  }
}

}  // namespace simt_detail

template <class Use, int M, int N, int K, class T, class Layout, class Value>
__forceinline__ void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const Value* pointer,
                                      unsigned ldm, Site site = Site::here()) {
  static_assert(
      !std::is_void_v<Layout>,
      "an accumulator is loaded with a layout: load_matrix_sync(c, pointer, ldm, mem_row_major)");
  simt_detail::load(f, pointer, ldm, __is_same(Layout, row_major), site);
}
template <int M, int N, int K, class T, class Value>
__forceinline__ void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const Value* pointer,
                                      unsigned ldm, layout_t layout, Site site = Site::here()) {
  simt_detail::load(f, pointer, ldm, layout == mem_row_major, site);
}

template <int M, int N, int K, class T, class Value>
__forceinline__ void store_matrix_sync(Value* pointer, const fragment<accumulator, M, N, K, T>& f,
                                       unsigned ldm, layout_t layout, Site site = Site::here()) {
  using Fragment = fragment<accumulator, M, N, K, T>;
  simt_detail::check_matrix("store_matrix_sync", pointer, ldm, sizeof(Value), site);
  flash::simt::flash_simt_matrix_operation("store_matrix_sync", site, nullptr, nullptr);
  const int lane = static_cast<int>(flash::simt::lane_number());
  for (int i = 0; i < Fragment::num_elements; ++i)
    pointer[simt_detail::offset<Fragment>(lane, i, ldm, layout == mem_row_major)] = f.x[i];
}

// d = a b + c
template <int M, int N, int K, class AB, class D, class C, class LayoutA, class LayoutB>
void mma_sync(fragment<accumulator, M, N, K, D>& d,
              const fragment<matrix_a, M, N, K, AB, LayoutA>& a,
              const fragment<matrix_b, M, N, K, AB, LayoutB>& b,
              const fragment<accumulator, M, N, K, C>& c, Site site = Site::here()) {
  using FragmentD = fragment<accumulator, M, N, K, D>;
  using FragmentA = fragment<matrix_a, M, N, K, AB, LayoutA>;
  using FragmentB = fragment<matrix_b, M, N, K, AB, LayoutB>;
  using FragmentC = fragment<accumulator, M, N, K, C>;
  flash::simt::must_be_own("mma_sync", site, &d, sizeof d);
  flash::simt::must_be_own("mma_sync", site, &a, sizeof a);
  flash::simt::must_be_own("mma_sync", site, &b, sizeof b);
  flash::simt::must_be_own("mma_sync", site, &c, sizeof c);
  simt_detail::Product<FragmentD, FragmentA, FragmentB, FragmentC> slot{&d, &a, &b, &c};
  flash::simt::flash_simt_matrix_operation(
      "mma_sync", site, &slot,
      simt_detail::multiply<FragmentD, FragmentA, FragmentB, FragmentC,
                            __is_same(AB, precision::tf32)>);
}

}  // namespace nvcuda::wmma
