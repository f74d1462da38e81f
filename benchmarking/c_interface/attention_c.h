// The implementations of attention behind a C interface, and the float64 oracle beside them: what a program in another language
// needs to check and to time them. compare_torch.py is the one that does. Two libraries have this interface: flash_attention_c,
// the implementations on the CPU (part2_flash_cpu/implementations.hpp and the ladder), and the oracle; flash_attention_cuda_c,
// those on a GPU (part3_flash_cuda/implementations.hpp), which takes device memory and starts its passes on the default stream,
// without waiting for them.
//
// Every function returns FLASH_OK or says in flash_last_error() what is wrong. No exception leaves the library.
//
// Tensors are row-major without gaps, q, out, d_out and d_q (batch, heads, queries, head_dim), k, v, d_k and d_v
// (batch, heads, keys, head_dim), lse (batch, heads, queries), p (batch, heads, queries, keys), and have the element type
// `dtype`; lse on a GPU has float32 always. With `causal` other than 0, query i sees the keys j <= i. The scale is
// 1 / sqrt(head_dim). More: common/attention.hpp.
#pragma once

#include <stdint.h>

#include "benchmarking/c_interface/c_result.h"

#ifdef __cplusplus
extern "C" {
#endif

enum FlashDType { FLASH_FLOAT32 = 0, FLASH_FLOAT64 = 1, FLASH_FLOAT16 = 2, FLASH_BFLOAT16 = 3 };

struct FlashShape {
  int64_t batch, heads, queries, keys, head_dim;
};

// ---- which implementations there are ----------------------------------------------------------------------------------------

FLASH_C_EXPORT int flash_implementation_count(int* count);
// The name of implementation `index`, counted from 0, slowest first. It lives as long as the library.
FLASH_C_EXPORT int flash_implementation_name(int index, const char** name);
// Sets *has to 1 when it is there for `dtype`, else to 0.
FLASH_C_EXPORT int flash_implementation_has_dtype(const char* name, int dtype, int* has);
// Sets *saves_p to 1 when its backward pass takes all of P from the forward pass: p must then not be null, and lse has no
// meaning.
FLASH_C_EXPORT int flash_implementation_saves_p(const char* name, int* saves_p);

// ---- one pass of one of them ------------------------------------------------------------------------------------------------

// p may be null for an implementation that does not save P.
FLASH_C_EXPORT int flash_attention_forward(const char* name, int dtype, const struct FlashShape* shape, int causal,
                                           const void* q, const void* k, const void* v, void* out, void* lse, void* p);
FLASH_C_EXPORT int flash_attention_backward(const char* name, int dtype, const struct FlashShape* shape, int causal,
                                            const void* q, const void* k, const void* v, const void* out, const void* lse,
                                            const void* p, const void* d_out, void* d_q, void* d_k, void* d_v);

// ---- what is right (flash_attention_c)
// ---------------------------------------------------------------------------------------

// out, lse and the gradients in float64, whatever the dtype of the inputs. *largest_error is how far off an element of out may
// be, at most, by the rounding of a computation in `dtype`: the bound of common/oracle.hpp times the largest magnitude;
// largest_errors has that of d_q, d_k and d_v.
FLASH_C_EXPORT int flash_attention_oracle(int dtype, const struct FlashShape* shape, int causal, const void* q, const void* k,
                                          const void* v, double* out, double* lse, double* largest_error);
FLASH_C_EXPORT int flash_attention_backward_oracle(int dtype, const struct FlashShape* shape, int causal, const void* q,
                                                   const void* k, const void* v, const void* d_out, double* d_q, double* d_k,
                                                   double* d_v, double largest_errors[3]);

// ---- the ladder (flash_attention_c)
// ------------------------------------------------------------------------------------------

// How many threads its rungs use from now on. "standard" and "flash" always use one.
FLASH_C_EXPORT int flash_set_threads(int threads);
// "avx512", "avx2" or "baseline"; the text lives as long as the library.
FLASH_C_EXPORT int flash_isa(const char** isa);
// What the processor can do on those threads in that instruction set, measured now, for about 2 ms.
FLASH_C_EXPORT int flash_fma_peak_gflops(int dtype, double* gflops);

#ifdef __cplusplus
}
#endif
