// Products of row-major matrices by cuBLAS, in full precision, for the passes that are given to
// compare with. cuBLAS' errors become this course's. For GPUs only: the emulator has no cuBLAS.
#pragma once

#include <cublas_v2.h>

#include <algorithm>
#include <climits>
#include <string>
#include <type_traits>

#include "common/cuda/check.hpp"
#include "common/half.hpp"
#include "common/stream.hpp"
#include "common/tensor.hpp"

namespace flash::cublas {

inline void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_ALLOC_FAILED)
    throw OutOfMemory(std::string(call) + ": cuBLAS found no memory");
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CudaError(std::string(call) + ": " + cublasGetStatusString(status));
}

// Making a handle takes tens of milliseconds, so each thread keeps one. Float is float32, never
// tf32.
inline cublasHandle_t handle(Stream stream) {
  struct Handle {
    cublasHandle_t value = nullptr;
    Handle() { check(cublasCreate(&value), "cublasCreate"); }
    ~Handle() { (void)cublasDestroy(value); }
  };
  thread_local Handle kept;
  check(cublasSetStream(kept.value, device::native(stream)), "cublasSetStream");
  check(cublasSetMathMode(kept.value, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");
  return kept.value;
}

template <class T>
constexpr cudaDataType kType = std::is_same_v<T, float>  ? CUDA_R_32F
                               : std::is_same_v<T, Half> ? CUDA_R_16F
                                                         : CUDA_R_16BF;

inline int checked_int(const char* name, Index value) {
  if (value > INT_MAX)
    throw Unsupported(std::string(name) + " is " + std::to_string(value) +
                      "; cuBLAS takes at most " + std::to_string(INT_MAX));
  return static_cast<int>(value);
}

// A batch of matrices: the last two axes of `view`, or with `transposed` the same in the other
// order.
template <class T>
struct Matrices {
  const char* name;
  TensorView<T, 3> view;
  bool transposed = false;

  Index rows() const { return view.extent(transposed ? 2 : 1); }
  Index columns() const { return view.extent(transposed ? 1 : 2); }

  // Throws Unsupported unless rows are contiguous and do not overlap: cuBLAS takes one leading
  // dimension.
  int leading_dimension() const {
    const Index stride = view.extent(1) > 1 ? view.stride(1) : view.extent(2);
    if ((view.extent(2) > 1 && view.stride(2) != 1) || stride < view.extent(2) || stride > INT_MAX)
      throw Unsupported(std::string(name) + " has strides " + to_string<3>(view.strides()) +
                        "; cuBLAS needs a contiguous last axis and rows that do not overlap");
    return std::max(static_cast<int>(stride), 1);
  }
};

// c = factor * a b for each of the batch, in row-major matrices, added up in float32.
template <class A, class C>
void product(const Matrices<const A>& a, const Matrices<const A>& b, const Matrices<C>& c,
             double factor, Stream stream) {
  if (c.view.size() == 0) return;
  // cuBLAS' matrices are column-major. For it our row-major C = A B is C^T = B^T A^T.
  const float alpha = static_cast<float>(factor), beta = 0;
  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  check(
      cublasGemmStridedBatchedEx(
          handle(stream), operation(b.transposed), operation(a.transposed),
          checked_int("columns", c.columns()), checked_int("rows", c.rows()),
          checked_int("terms", a.columns()), &alpha, b.view.data(), kType<A>, b.leading_dimension(),
          b.view.stride(0), a.view.data(), kType<A>, a.leading_dimension(), a.view.stride(0), &beta,
          c.view.data(), kType<C>, c.leading_dimension(), c.view.stride(0),
          checked_int("batch", c.view.extent(0)), CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_GEMM_DEFAULT),
      "cublasGemmStridedBatchedEx");
}

}  // namespace flash::cublas
