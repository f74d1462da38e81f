// The functions of part 1 on a device, in the judge: each calls the student's in the runner.
#include "harness/judge/remote.hpp"
#include "part1_softmax_matmul/attention_1d.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#include "part1_softmax_matmul/ten_kernels.hpp"

namespace flash {

using grading::argument;

void fused_softmax_matmul_cuda(const SoftmaxMatmul<float>& pass,
                               const SoftmaxMatmulBlocks& blocks) {
  grading::device_call(
      grading::call_of(grading::kFusedSoftmaxMatmulCuda, pass, {blocks.block_1, blocks.block_2}));
}

void attention_1d_cuda(TensorView<const float, 1> q, TensorView<const float, 1> k,
                       TensorView<const float, 1> v, TensorView<float, 1> z, int queries_per_block,
                       int keys_per_tile, Stream stream) {
  grading::device_call(
      {.function = grading::kAttention1dCuda,
       .arguments = {argument("q", q), argument("k", k), argument("v", v), argument("z", z)},
       .integers = {queries_per_block, keys_per_tile},
       .stream = grading::stream_of(stream)});
}

void run_small_kernel(int number, TensorView<const float, 1> x, TensorView<float, 1> y) {
  grading::device_call({.function = grading::kSmallKernel,
                        .arguments = {argument("x", x), argument("y", y)},
                        .integers = {number}});
}

}  // namespace flash
