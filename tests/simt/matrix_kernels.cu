// Implements matrix_kernels.hpp.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/tensor_core.hpp"
#include "simt/matrix_kernels.hpp"

namespace flash::matrix_kernels {
namespace {

namespace wmma = nvcuda::wmma;

// ---- wmma ---------------------------------------------------------------------------------------

template <class Element, class Value, int M, int N, int K, class LayoutA, class LayoutB>
__global__ void wmma_kernel(const Value* a, const Value* b, const float* c, float* d) {
  constexpr bool kRowsOfA = std::is_same_v<LayoutA, wmma::row_major>,
                 kRowsOfB = std::is_same_v<LayoutB, wmma::row_major>;
  wmma::fragment<wmma::matrix_a, M, N, K, Element, LayoutA> A;
  wmma::fragment<wmma::matrix_b, M, N, K, Element, LayoutB> B;
  wmma::fragment<wmma::accumulator, M, N, K, float> C, D;
  wmma::load_matrix_sync(A, a, kRowsOfA ? K : M);
  wmma::load_matrix_sync(B, b, kRowsOfB ? N : K);
  wmma::load_matrix_sync(C, c, N, wmma::mem_row_major);
  wmma::fill_fragment(D, 0.0f);
  wmma::mma_sync(D, A, B, D);
  for (int i = 0; i < D.num_elements; ++i)
    D.x[i] += C.x[i];  // the same element in both, wherever it lies
  wmma::store_matrix_sync(d, D, N, wmma::mem_row_major);
}

// ---- ldmatrix and mma.sync ----------------------------------------------------------------------

__device__ void load_accumulator(float (&d)[4], const float* c) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 4; ++i) d[i] = c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
}
__device__ void store_accumulator(float* out, const float (&d)[4]) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 4; ++i) out[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = d[i];
}

// a (16, 16) row by row; b (16, 8) row by row, which ldmatrix transposes.
template <class Value>
__global__ void mma_kernel(const Value* a, const Value* b, const float* c, float* d) {
  __shared__ __align__(16) Value A_smem[16 * 16];
  __shared__ __align__(16) Value B_smem[16 * 8];
  for (int i = threadIdx.x; i < 256; i += 32) A_smem[i] = a[i];
  for (int i = threadIdx.x; i < 128; i += 32) B_smem[i] = b[i];
  __syncwarp();
  const int lane = threadIdx.x;
  std::uint32_t A[4], B[2];
  ldmatrix<4>(A, &A_smem[(lane % 16) * 16 + lane / 16 * 8]);
  ldmatrix<2, true>(B, &B_smem[(lane % 16) * 8]);
  float D[4];
  load_accumulator(D, c);
  if constexpr (std::is_same_v<Value, __half>)
    mma_m16n8k16_half(D, A, B);
  else
    mma_m16n8k16_bfloat16(D, A, B);
  store_accumulator(d, D);
}

// The same without ldmatrix: each lane gathers its own elements. a (16, 8), b (8, 8).
__global__ void mma_tf32_kernel(const float* a, const float* b, const float* c, float* d) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  std::uint32_t A[4], B[2];
  for (int i = 0; i < 4; ++i) A[i] = __float_as_uint(a[(g + 8 * (i % 2)) * 8 + t + 4 * (i / 2)]);
  for (int i = 0; i < 2; ++i) B[i] = __float_as_uint(b[(t + 4 * i) * 8 + g]);
  float D[4];
  load_accumulator(D, c);
  mma_m16n8k8_tf32(D, A, B);
  store_accumulator(d, D);
}

// ---- how they are run ---------------------------------------------------------------------------

template <class Value>
DeviceTensor<Value, 1> on_device(const Tensor<float, 2>& host, bool by_rows) {
  Tensor<Value, 1> values({host.size()});
  const Index rows = host.extent(0), columns = host.extent(1);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      values(by_rows ? i * columns + j : j * rows + i) = Value(host(i, j));
  return DeviceTensor<Value, 1>(values);
}

template <class Value>
Way way(const std::string& name, int m, int n, int k,
        void (*kernel)(const Value*, const Value*, const float*, float*), bool a_by_rows = true,
        bool b_by_rows = true) {
  const int fraction_bits = std::is_same_v<Value, __nv_bfloat16> ? 7 : 10;
  return {name, m, n, k, fraction_bits, [=](const auto& a, const auto& b, const auto& c) {
            const auto device_a = on_device<Value>(a, a_by_rows),
                       device_b = on_device<Value>(b, b_by_rows);
            const DeviceTensor<float, 2> device_c(c), device_d({m, n});
            launch(name, kernel, {.grid = 1, .block = 32}, device_a.data(), device_b.data(),
                   device_c.data(), device_d.data());
            return device_d.to_host();
          }};
}

template <class Element, class Value, int M, int N, int K, class LayoutA, class LayoutB>
Way wmma_way(const std::string& name) {
  return way<Value>("wmma " + name, M, N, K, wmma_kernel<Element, Value, M, N, K, LayoutA, LayoutB>,
                    std::is_same_v<LayoutA, wmma::row_major>,
                    std::is_same_v<LayoutB, wmma::row_major>);
}

}  // namespace

std::vector<Way> ways() {
  using rows = wmma::row_major;
  using columns = wmma::col_major;
  using tf32 = wmma::precision::tf32;
  using bfloat16 = __nv_bfloat16;
  return {
      wmma_way<half, half, 16, 16, 16, rows, rows>("half, rows and rows"),
      wmma_way<half, half, 16, 16, 16, rows, columns>("half, rows and columns"),
      wmma_way<half, half, 16, 16, 16, columns, rows>("half, columns and rows"),
      wmma_way<half, half, 32, 8, 16, rows, rows>("half, 32 x 8"),
      wmma_way<half, half, 8, 32, 16, rows, rows>("half, 8 x 32"),
      wmma_way<bfloat16, bfloat16, 16, 16, 16, rows, columns>("bfloat16"),
      wmma_way<tf32, float, 16, 16, 8, rows, columns>("tf32"),
      way<half>("mma.sync half", 16, 8, 16, mma_kernel<half>),
      way<bfloat16>("mma.sync bfloat16", 16, 8, 16, mma_kernel<bfloat16>),
      way<float>("mma.sync tf32", 16, 8, 8, mma_tf32_kernel),
  };
}

}  // namespace flash::matrix_kernels
