// nvcuda::wmma on the emulator: products of small integers, which are exact in every type.
#include "harness/catch.hpp"

// last: __noinline__ is a macro from here on
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/launch.hpp"

using namespace flash;
namespace wmma = nvcuda::wmma;

namespace {

// d = a b + c; c is added element by element, wherever the fragments have it.
template <class Element, class Value, int M, int N, int K, class OfA, class OfB>
__global__ void product(const Value* a, const Value* b, const float* c, float* d) {
  wmma::fragment<wmma::matrix_a, M, N, K, Element, OfA> A;
  wmma::fragment<wmma::matrix_b, M, N, K, Element, OfB> B;
  wmma::fragment<wmma::accumulator, M, N, K, float> C, D;
  wmma::load_matrix_sync(A, a, std::is_same_v<OfA, wmma::row_major> ? K : M);
  wmma::load_matrix_sync(B, b, std::is_same_v<OfB, wmma::row_major> ? N : K);
  wmma::load_matrix_sync(C, c, N, wmma::mem_row_major);
  wmma::fill_fragment(D, 0.0f);
  wmma::mma_sync(D, A, B, D);
  for (int i = 0; i < D.num_elements; ++i) D.x[i] += C.x[i];
  wmma::store_matrix_sync(d, D, N, wmma::mem_row_major);
}

template <class Element, class Value, int M, int N, int K, class OfA, class OfB>
void check() {
  const auto element = [](int i, int j) { return static_cast<float>((7 * i + 3 * j) % 11 - 5); };
  Tensor<Value, 1> a({M * K}), b({K * N});
  Tensor<float, 1> c({M * N}), want({M * N});
  for (int k = 0; k < K; ++k) {
    for (int i = 0; i < M; ++i)
      a(std::is_same_v<OfA, wmma::row_major> ? i * K + k : k * M + i) = Value(element(i, k));
    for (int j = 0; j < N; ++j)
      b(std::is_same_v<OfB, wmma::row_major> ? k * N + j : j * K + k) = Value(element(k, j));
  }
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      want(i * N + j) = c(i * N + j) = element(j, i);
      for (int k = 0; k < K; ++k) want(i * N + j) += element(i, k) * element(k, j);
    }
  const DeviceTensor<Value, 1> on_device_a(a), on_device_b(b);
  const DeviceTensor<float, 1> on_device_c(c), d({M * N});
  launch("product", product<Element, Value, M, N, K, OfA, OfB>, {.grid = 1, .block = 32},
         on_device_a.data(), on_device_b.data(), on_device_c.data(), d.data());
  const Tensor<float, 1> got = d.to_host();
  for (int n = 0; n < M * N; ++n) CHECK(got(n) == want(n));
}

}  // namespace

TEST_CASE("wmma multiplies in every shape, layout and type") {
  using Rows = wmma::row_major;
  using Columns = wmma::col_major;
  check<half, half, 16, 16, 16, Rows, Rows>();
  check<half, half, 16, 16, 16, Columns, Rows>();
  check<half, half, 32, 8, 16, Rows, Columns>();
  check<half, half, 8, 32, 16, Rows, Rows>();
  check<__nv_bfloat16, __nv_bfloat16, 16, 16, 16, Rows, Columns>();
  check<wmma::precision::tf32, float, 16, 16, 8, Rows, Columns>();
}
