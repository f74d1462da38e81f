// Standard attention: products by cuBLAS, and between them one kernel that makes P of the scores, or dS of dP, a row at a time.
// See standard_attention.hpp.
#include "common/cuda/cublas.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/tile.hpp"
#include "part3_flash_cuda/standard_attention.hpp"

namespace flash {
namespace {

constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / kWarpSize;

// The sum, or the maximum, over the thread block of one value a thread; each thread gets it.
template <class Combine>
__device__ float of_block(float value, float* scratch, Combine combine) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  __syncthreads();  // scratch may still be read for the value before
  if (threadIdx.x % kWarpSize == 0) scratch[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  value = scratch[0];
  for (int warp = 1; warp < kRowWarps; ++warp) value = combine(value, scratch[warp]);
  return value;
}

// One thread block a row. s and p may be the same memory.
template <class T>
__global__ void softmax_kernel(TensorView<const float, 4> s, TensorView<T, 4> p, TensorView<float, 3> lse, bool causal) {
  __shared__ float scratch[kRowWarps];
  const auto sum_of = [](float a, float b) { return a + b; };
  const auto max_of = [](float a, float b) { return fmaxf(a, b); };
  const Index queries = s.extent(2), keys = s.extent(3), heads = s.extent(1);
  const Index i = blockIdx.x % queries, b = blockIdx.x / queries / heads, h = blockIdx.x / queries % heads;
  const Index visible = causal && i + 1 < keys ? i + 1 : keys;

  float m = -INFINITY;
  for (Index j = threadIdx.x; j < visible; j += kRowThreads) m = fmaxf(m, s(b, h, i, j));
  m = of_block(m, scratch, max_of);
  const float reference = m == -INFINITY ? 0 : m;
  float l = 0;
  for (Index j = threadIdx.x; j < visible; j += kRowThreads) l += expf(s(b, h, i, j) - reference);
  l = of_block(l, scratch, sum_of);

  const float inverse = l == 0 ? 0 : 1 / l;
  for (Index j = threadIdx.x; j < keys; j += kRowThreads)
    p(b, h, i, j) = from_float<T>(j < visible ? expf(s(b, h, i, j) - reference) * inverse : 0);
  if (threadIdx.x == 0) lse(b, h, i) = m + logf(l);
}

// One thread block a row: dS = P * (dP - delta), delta = the row's sum of P * dP. d_p and d_s may be the same memory.
template <class T>
__global__ void d_scores_kernel(TensorView<const T, 4> p, TensorView<const float, 4> d_p, TensorView<T, 4> d_s) {
  __shared__ float scratch[kRowWarps];
  const Index queries = p.extent(2), keys = p.extent(3), heads = p.extent(1);
  const Index i = blockIdx.x % queries, b = blockIdx.x / queries / heads, h = blockIdx.x / queries % heads;
  float delta = 0;
  for (Index j = threadIdx.x; j < keys; j += kRowThreads) delta += to_float(p(b, h, i, j)) * d_p(b, h, i, j);
  delta = of_block(delta, scratch, [](float a, float b) { return a + b; });
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
void product(const Operand<const A>& a, const Operand<const A>& b, const Operand<C>& c, double factor, Stream stream) {
  for (Index batch = 0; batch < c.view.extent(0); ++batch)
    cublas::product<A, C>(a.at(batch), b.at(batch), c.at(batch), factor, stream);
}

template <class T>
constexpr bool kInPlace = std::is_same_v<T, float>;  // float scores become P, and dP becomes dS, where they are

}  // namespace

template <class T>
void standard_attention_forward_cuda(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                     TensorView<T, 4> out, TensorView<float, 3> lse, TensorView<T, 4> p,
                                     const AttentionOptions& options, Stream stream) {
  const AttentionShape shape = check_attention_forward(q, k, v, out, lse);
  const Shape<4> pairs{shape.batch, shape.heads, shape.queries, shape.keys};
  check_view("p", p, pairs);
  const double scale = attention_scale(options, shape.head_dim);
  DeviceTensor<float, 4> scratch;
  TensorView<float, 4> s;
  if constexpr (kInPlace<T>) {
    s = p;
  } else {
    scratch = DeviceTensor<float, 4>(pairs, stream);
    s = scratch.view();
  }
  product<T, float>({"q", q}, {"k", k, true}, {"p", s}, scale, stream);
  launch("softmax", softmax_kernel<T>,
         {.grid = grid_size(shape.batch * shape.heads * shape.queries), .block = kRowThreads, .stream = stream},
         TensorView<const float, 4>(s), p, lse, options.causal);
  product<T, T>({"p", TensorView<const T, 4>(p)}, {"v", v}, {"out", out}, 1, stream);
}

template <class T>
void standard_attention_backward_cuda(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                      TensorView<const T, 4> p, TensorView<const T, 4> d_out, TensorView<T, 4> d_q,
                                      TensorView<T, 4> d_k, TensorView<T, 4> d_v, const AttentionOptions& options,
                                      Stream stream) {
  const AttentionShape shape = attention_shape(q.shape(), k.shape());
  const Shape<4> pairs{shape.batch, shape.heads, shape.queries, shape.keys};
  for (const auto& [name, view] : {std::pair{"q", q}, {"d_out", d_out}}) check_view(name, view, shape.of_queries());
  for (const auto& [name, view] : {std::pair{"k", k}, {"v", v}}) check_view(name, view, shape.of_keys());
  for (const auto& [name, view] : {std::pair{"d_k", d_k}, {"d_v", d_v}}) check_view(name, view, shape.of_keys());
  check_view("d_q", d_q, shape.of_queries());
  check_view("p", p, pairs);
  const double scale = attention_scale(options, shape.head_dim);

  product<T, T>({"p", p, true}, {"d_out", d_out}, {"d_v", d_v}, 1, stream);
  DeviceTensor<float, 4> d_p(pairs, stream);
  DeviceTensor<T, 4> scratch;
  TensorView<T, 4> d_s;
  if constexpr (kInPlace<T>) {
    d_s = d_p.view();
  } else {
    scratch = DeviceTensor<T, 4>(pairs, stream);
    d_s = scratch.view();
  }
  product<T, float>({"d_out", d_out}, {"v", v, true}, {"d_p", d_p.view()}, 1, stream);
  launch("d_scores", d_scores_kernel<T>,
         {.grid = grid_size(shape.batch * shape.heads * shape.queries), .block = kRowThreads, .stream = stream}, p,
         TensorView<const float, 4>(d_p.view()), d_s);
  const TensorView<const T, 4> dS = d_s;
  product<T, T>({"d_s", dS}, {"k", k}, {"d_q", d_q}, scale, stream);
  product<T, T>({"d_s", dS, true}, {"q", q}, {"d_k", d_k}, scale, stream);
}

#define FLASH_INSTANTIATE(T)                                                                                              \
  template void standard_attention_forward_cuda(TensorView<const T, 4>, TensorView<const T, 4>, TensorView<const T, 4>,   \
                                                TensorView<T, 4>, TensorView<float, 3>, TensorView<T, 4>,                 \
                                                const AttentionOptions&, Stream);                                         \
  template void standard_attention_backward_cuda(TensorView<const T, 4>, TensorView<const T, 4>, TensorView<const T, 4>,  \
                                                 TensorView<const T, 4>, TensorView<const T, 4>, TensorView<T, 4>,        \
                                                 TensorView<T, 4>, TensorView<T, 4>, const AttentionOptions&, Stream)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash
