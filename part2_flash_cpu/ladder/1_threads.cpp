// Step 1 of the ladder: threads.
//
// What changed since the solution: who calls it, and with which blocks; the code that computes is the solution's. Heads are
// independent of each other, so each is a task of its own, and each core takes the next one when it is done with the last. No
// more cores have work than there are heads: one head alone keeps one busy. Blocks are of 64 queries and 64 keys, where the
// solution's default is 16.
//
// Measured, both changes together (4 heads of 4096 x 64, float32, 16 cores with AVX-512; outputs/reference/intel-xeon-16 has
// more): forward 1852 to 407 ms, backward 2855 to 838 ms; 13 to 48 GFLOP/s.
#include "part2_flash_cpu/flash_attention.hpp"
#include "part2_flash_cpu/ladder/parallel.hpp"
#include "part2_flash_cpu/ladder/rungs.hpp"

namespace flash::attention_1 {
namespace {

// The view of one head, with batch = heads = 1.
template <class T>
TensorView<T, 4> head_of(TensorView<T, 4> x, Index b, Index h) {
  return {x.data() + b * x.stride(0) + h * x.stride(1), {1, 1, x.extent(2), x.extent(3)}, x.strides()};
}
template <class T>
TensorView<T, 3> head_of(TensorView<T, 3> x, Index b, Index h) {
  return {x.data() + b * x.stride(0) + h * x.stride(1), {1, 1, x.extent(2)}, x.strides()};
}

}  // namespace

template <class T>
void forward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
             TensorView<T, 3> lse, TensorView<T, 4>, const AttentionOptions& options) {
  const AttentionShape shape = check_attention_forward(q, k, v, out, lse);
  parallel_for(shape.batch * shape.heads, [&](Index task) {
    const Index b = task / shape.heads, h = task % shape.heads;
    flash_attention_forward<T>(head_of(q, b, h), head_of(k, b, h), head_of(v, b, h), head_of(out, b, h), head_of(lse, b, h),
                               options, {64, 64});
  });
}

template <class T>
void backward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<const T, 4> out,
              TensorView<const T, 3> lse, TensorView<const T, 4>, TensorView<const T, 4> d_out, TensorView<T, 4> d_q,
              TensorView<T, 4> d_k, TensorView<T, 4> d_v, const AttentionOptions& options) {
  const AttentionShape shape = check_attention_backward(q, k, v, out, lse, d_out, d_q, d_k, d_v);
  parallel_for(shape.batch * shape.heads, [&](Index task) {
    const Index b = task / shape.heads, h = task % shape.heads;
    flash_attention_backward<T>(head_of(q, b, h), head_of(k, b, h), head_of(v, b, h), head_of(out, b, h), head_of(lse, b, h),
                                head_of(d_out, b, h), head_of(d_q, b, h), head_of(d_k, b, h), head_of(d_v, b, h), options, 64);
  });
}

const AttentionFunctions functions{{forward<float>, backward<float>}, {forward<double>, backward<double>}};

}  // namespace flash::attention_1
