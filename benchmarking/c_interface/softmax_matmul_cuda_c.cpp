// Implements the functions of softmax_matmul_c.h on a GPU: flash_softmax_matmul_cuda_c.
#include "benchmarking/c_interface/c_interface.hpp"
#include "benchmarking/c_interface/softmax_matmul_c.h"
#include "part1_softmax_matmul/softmax_matmul.hpp"

using namespace flash;

int flash_softmax_matmul(const FlashSoftmaxMatmulShape* shape, const float* x, const float* v, float* out) {
  return guarded([&] {
    const FlashSoftmaxMatmulShape of = not_null("shape", shape);
    softmax_matmul_cuda(view_of<const float, 3>("x", x, {of.batch, of.d1, of.d2}),
                        view_of<const float, 3>("v", v, {of.batch, of.d2, of.d3}),
                        view_of<float, 3>("out", out, {of.batch, of.d1, of.d3}));
  });
}

int flash_fused_softmax_matmul(const FlashSoftmaxMatmulShape* shape, const float* x, const float* v, float* out,
                               int64_t block_1, int64_t block_2) {
  return guarded([&] {
    const FlashSoftmaxMatmulShape of = not_null("shape", shape);
    fused_softmax_matmul_cuda(view_of<const float, 3>("x", x, {of.batch, of.d1, of.d2}),
                              view_of<const float, 3>("v", v, {of.batch, of.d2, of.d3}),
                              view_of<float, 3>("out", out, {of.batch, of.d1, of.d3}), block_1, block_2);
  });
}
