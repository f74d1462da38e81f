// Part 1's softmax(X) V on a GPU behind a C interface, and its float64 oracle: what compare_torch.py needs to check and to time
// them. Two libraries have this interface: flash_softmax_matmul_cuda_c the functions, which take device memory and start on the
// default stream, without waiting; flash_softmax_matmul_c the oracle, which is for the host.
//
// Every function returns FLASH_OK or says in flash_last_error() what is wrong. No exception leaves the library.
//
// Tensors are float32, row-major without gaps: x (batch, d1, d2), v (batch, d2, d3), out (batch, d1, d3). More:
// part1_softmax_matmul/softmax_matmul.hpp.
#pragma once

#include <stdint.h>

#include "benchmarking/c_interface/c_result.h"

#ifdef __cplusplus
extern "C" {
#endif

struct FlashSoftmaxMatmulShape {
  int64_t batch, d1, d2, d3;
};

// ---- flash_softmax_matmul_cuda_c
// ---------------------------------------------------------------------------------------------

// The given, unfused function: a softmax kernel, then cuBLAS in full float32.
FLASH_C_EXPORT int flash_softmax_matmul(const struct FlashSoftmaxMatmulShape* shape, const float* x, const float* v,
                                        float* out);
// Task 1.A's, of the solution. Each block size is 16, 32 or 64.
FLASH_C_EXPORT int flash_fused_softmax_matmul(const struct FlashSoftmaxMatmulShape* shape, const float* x, const float* v,
                                              float* out, int64_t block_1, int64_t block_2);

// ---- flash_softmax_matmul_c
// --------------------------------------------------------------------------------------------------

// out in float64. *largest_error is how far off an element of out may be, at most, by the rounding of a computation in float32:
// the bound of common/oracle.hpp times the largest magnitude.
FLASH_C_EXPORT int flash_softmax_matmul_oracle(const struct FlashSoftmaxMatmulShape* shape, const float* x, const float* v,
                                               double* out, double* largest_error);

#ifdef __cplusplus
}
#endif
