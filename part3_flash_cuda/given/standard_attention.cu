// Standard attention: products by cuBLAS, and between them one kernel that makes P of the scores,
// or dS of dP, a row at a time. See standard_attention.hpp.
#include "common/cuda/cublas.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/warp.hpp"
#include "part3_flash_cuda/standard_attention.hpp"

namespace flash {
namespace {

constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / kWarpSize;  // floats that a sum over the block needs

// One thread block a row. s and p may be the same memory.
template <class T>
__global__ void softmax_kernel(AttentionForward<T> pass, TensorView<const float, 4> s,
                               TensorView<T, 4> p) {
  __shared__ float scratch[kRowWarps];
  const AttentionShape shape = pass.shape();
  const Index row = blockIdx.x / shape.queries, i = blockIdx.x % shape.queries;
  const Index b = row / shape.heads, h = row % shape.heads;
  const Index visible = shape.visible_keys(i, pass.options.causal);

  float m = -INFINITY;
  for (Index j = threadIdx.x; j < visible; j += kRowThreads) m = fmaxf(m, s(b, h, i, j));
  m = block_max<kRowThreads>(m, scratch);
  const float reference = m == -INFINITY ? 0 : m;
  float l = 0;
  for (Index j = threadIdx.x; j < visible; j += kRowThreads) l += expf(s(b, h, i, j) - reference);
  l = block_sum<kRowThreads>(l, scratch);

  const float inverse = l == 0 ? 0 : 1 / l;
  for (Index j = threadIdx.x; j < shape.keys; j += kRowThreads)
    p(b, h, i, j) = from_float<T>(j < visible ? expf(s(b, h, i, j) - reference) * inverse : 0);
  if (threadIdx.x == 0) pass.lse(b, h, i) = m + logf(l);
}

// One thread block a row: dS = P * (dP - delta), delta = the row's sum of P * dP. d_p and d_s may
// be the same memory.
template <class T>
__global__ void d_scores_kernel(TensorView<const T, 4> p, TensorView<const float, 4> d_p,
                                TensorView<T, 4> d_s) {
  __shared__ float scratch[kRowWarps];
  const Index queries = p.extent(2), keys = p.extent(3), heads = p.extent(1);
  const Index i = blockIdx.x % queries, b = blockIdx.x / queries / heads,
              h = blockIdx.x / queries % heads;
  float delta = 0;
  for (Index j = threadIdx.x; j < keys; j += kRowThreads)
    delta += to_float(p(b, h, i, j)) * d_p(b, h, i, j);
  delta = block_sum<kRowThreads>(delta, scratch);
  for (Index j = threadIdx.x; j < keys; j += kRowThreads)
    d_s(b, h, i, j) = from_float<T>(to_float(p(b, h, i, j)) * (d_p(b, h, i, j) - delta));
}

// The heads of one batch, which is what one call of cuBLAS takes.
template <class T>
TensorView<T, 3> heads_of(TensorView<T, 4> x, Index b) {
  T* const data = x.size() > 0 ? &x(b, 0, 0, 0) : x.data();
  return {data, {x.extent(1), x.extent(2), x.extent(3)}, {x.stride(1), x.stride(2), x.stride(3)}};
}

template <class T>
struct Operand {
  const char* name;
  TensorView<T, 4> view;
  bool transposed = false;

  cublas::Matrices<T> at(Index b) const { return {name, heads_of(view, b), transposed}; }
};

template <class A, class C>
void product(const Operand<const A>& a, const Operand<const A>& b, const Operand<C>& c,
             double factor, Stream stream) {
  for (Index batch = 0; batch < c.view.extent(0); ++batch)
    cublas::product<A, C>(a.at(batch), b.at(batch), c.at(batch), factor, stream);
}

template <class T>
constexpr bool kInPlace =
    std::is_same_v<T, float>;  // float scores become P, and dP becomes dS, where they are

}  // namespace

template <class T>
void standard_attention_forward_cuda(const AttentionForward<T>& pass, TensorView<T, 4> p) {
  const AttentionShape shape = check_attention(pass);
  const Shape<4> pairs{shape.batch, shape.heads, shape.queries, shape.keys};
  check_view("p", p, pairs);
  const double scale = attention_scale(pass.options, shape.head_dim);
  DeviceTensor<float, 4> scratch;
  TensorView<float, 4> s;
  if constexpr (kInPlace<T>) {
    s = p;
  } else {
    scratch = DeviceTensor<float, 4>(pairs, pass.stream);
    s = scratch.view();
  }
  product<T, float>({"q", pass.q}, {"k", pass.k, true}, {"p", s}, scale, pass.stream);
  launch("softmax", softmax_kernel<T>,
         {.grid = grid_size(shape.batch * shape.heads * shape.queries),
          .block = kRowThreads,
          .stream = pass.stream},
         pass, TensorView<const float, 4>(s), p);
  product<T, T>({"p", TensorView<const T, 4>(p)}, {"v", pass.v}, {"out", pass.out}, 1, pass.stream);
}

template <class T>
void standard_attention_backward_cuda(const AttentionBackward<T>& pass, TensorView<const T, 4> p) {
  const AttentionShape shape = check_attention(pass);
  const Shape<4> pairs{shape.batch, shape.heads, shape.queries, shape.keys};
  check_view("p", p, pairs);
  const double scale = attention_scale(pass.options, shape.head_dim);
  const Stream stream = pass.stream;

  product<T, T>({"p", p, true}, {"d_out", pass.d_out}, {"d_v", pass.d_v}, 1, stream);
  DeviceTensor<float, 4> d_p(pairs, stream);
  DeviceTensor<T, 4> scratch;
  TensorView<T, 4> d_s;
  if constexpr (kInPlace<T>) {
    d_s = d_p.view();
  } else {
    scratch = DeviceTensor<T, 4>(pairs, stream);
    d_s = scratch.view();
  }
  product<T, float>({"d_out", pass.d_out}, {"v", pass.v, true}, {"d_p", d_p.view()}, 1, stream);
  launch("d_scores", d_scores_kernel<T>,
         {.grid = grid_size(shape.batch * shape.heads * shape.queries),
          .block = kRowThreads,
          .stream = stream},
         p, TensorView<const float, 4>(d_p.view()), d_s);
  const TensorView<const T, 4> dS = d_s;
  product<T, T>({"d_s", dS}, {"k", pass.k}, {"d_q", pass.d_q}, scale, stream);
  product<T, T>({"d_s", dS, true}, {"q", pass.q}, {"d_k", pass.d_k}, scale, stream);
}

template void standard_attention_forward_cuda(const AttentionForward<float>&, TensorView<float, 4>);
template void standard_attention_forward_cuda(const AttentionForward<Half>&, TensorView<Half, 4>);
template void standard_attention_forward_cuda(const AttentionForward<BFloat16>&,
                                              TensorView<BFloat16, 4>);
template void standard_attention_backward_cuda(const AttentionBackward<float>&,
                                               TensorView<const float, 4>);
template void standard_attention_backward_cuda(const AttentionBackward<Half>&,
                                               TensorView<const Half, 4>);
template void standard_attention_backward_cuda(const AttentionBackward<BFloat16>&,
                                               TensorView<const BFloat16, 4>);

}  // namespace flash
