// The backward pass without tiling: five products of matrices in device memory, and one kernel
// between them that makes P of S and dS of dP, a row at a time. See plain_backward.hpp.
#include <type_traits>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/tile.hpp"
#include "part3_flash_cuda/plain_backward.hpp"

namespace flash {
namespace {

// ---- A product of matrices ----------------------------------------------------------------------

constexpr int kTileRows = 128, kTileColumns = 64;  // of C, for a thread block
constexpr int kDepth = 16;                         // terms of the sum that it holds at a time
constexpr int kShare = 8;                          // rows, and columns, of a thread
constexpr int kGroups = kTileRows / kShare, kLanes = kTileColumns / kShare;
constexpr int kThreads = kGroups * kLanes;

// Which terms row i sums up. With a causal mask the others are not only 0: a NaN that row i does
// not see must not meet it.
enum class Terms { kAll, kUpToRow, kFromRow };

// tile[c][i] = x(i0 + i, c0 + c) for kSize rows, and 0 outside of x: read along the axis that is
// dense in memory.
template <int kSize, class T>
__device__ __forceinline__ void load_transposed(float* tile, const Head<const T>& x, Index i0,
                                                Index c0) {
  constexpr int kStride =
      kSize + 4;  // 16 bytes more than need be: the stores then come to several banks
  if (x.row_stride == 1)
    load_tile<kDepth, kSize, kThreads>(
        x.transposed(), c0, i0, [&](int c, int i, float value) { tile[c * kStride + i] = value; });
  else
    load_tile<kSize, kDepth, kThreads>(
        x, i0, c0, [&](int i, int c, float value) { tile[c * kStride + i] = value; });
}

// C(i, j) = factor * sum over c of A(i, c) B(j, c), for each batch and head.
template <class A, class B, class C, Terms kTerms>
__global__ void __launch_bounds__(kThreads, 2)
    product_kernel(TensorView<const A, 4> a, TensorView<const B, 4> b, TensorView<C, 4> c,
                   float factor, int down, int across) {
  __shared__ __align__(16) float A_smem[kDepth * (kTileRows + 4)];
  __shared__ __align__(16) float B_smem[kDepth * (kTileColumns + 4)];
  const Index heads = c.extent(1), tile = blockIdx.x % (down * across),
              head = blockIdx.x / (down * across);
  const Index i0 = tile / across * kTileRows, j0 = tile % across * kTileColumns;
  const Head<const A> a_head(a, head / heads, head % heads);
  const Head<const B> b_head(b, head / heads, head % heads);
  const int group = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;

  float sum[kShare][kShare] = {};
  const auto add_up = [&](Index c0, auto some) {
    __syncthreads();
    load_transposed<kTileRows>(A_smem, a_head, i0, c0);
    load_transposed<kTileColumns>(B_smem, b_head, j0, c0);
    __syncthreads();
    FLASH_UNROLL_BY(4)
    for (int term = 0; term < kDepth; ++term) {
      float a_values[kShare], b_values[kShare];
      read<kGroups>(a_values, A_smem + term * (kTileRows + 4), group);
      read<kLanes>(b_values, B_smem + term * (kTileColumns + 4), lane);
      FLASH_UNROLL
      for (int r = 0; r < kShare; ++r) {
        const Index row = i0 + place<kShare, kGroups>(group, r);
        if (decltype(some)::value &&
            (kTerms == Terms::kUpToRow ? c0 + term > row : c0 + term < row))
          continue;
        FLASH_UNROLL
        for (int n = 0; n < kShare; ++n) sum[r][n] += a_values[r] * b_values[n];
      }
    }
  };
  for (Index c0 = 0; c0 < a_head.columns; c0 += kDepth) {
    const bool none = kTerms == Terms::kUpToRow ? c0 >= i0 + kTileRows
                                                : kTerms == Terms::kFromRow && c0 + kDepth <= i0;
    const bool all = kTerms == Terms::kAll ||
                     (kTerms == Terms::kUpToRow ? c0 + kDepth - 1 <= i0 : c0 >= i0 + kTileRows - 1);
    if (none) continue;
    if constexpr (kTerms == Terms::kAll) {
      add_up(c0, std::false_type{});
    } else if (all) {
      add_up(c0, std::false_type{});
    } else {
      add_up(c0, std::true_type{});
    }
  }

  FLASH_UNROLL
  for (int r = 0; r < kShare; ++r) {
    FLASH_UNROLL
    for (int n = 0; n < kShare; ++n) {
      const Index i = i0 + place<kShare, kGroups>(group, r),
                  j = j0 + place<kShare, kLanes>(lane, n);
      if (i < c.extent(2) && j < c.extent(3))
        c(head / heads, head % heads, i, j) = from_float<C>(factor * sum[r][n]);
    }
  }
}

// c = factor * a b^T, in the last two axes.
template <Terms kTerms, class A, class B, class C>
void product(const char* name, TensorView<const A, 4> a, TensorView<const B, 4> b,
             TensorView<C, 4> c, double factor, Stream stream) {
  const Index down = (c.extent(2) + kTileRows - 1) / kTileRows,
              across = (c.extent(3) + kTileColumns - 1) / kTileColumns;
  if (c.size() == 0) return;
  launch(name, product_kernel<A, B, C, kTerms>,
         {.grid = grid_size(c.extent(0) * c.extent(1) * down * across),
          .block = kThreads,
          .stream = stream},
         a, b, c, static_cast<float>(factor), static_cast<int>(down), static_cast<int>(across));
}

// The same tensor with its last two axes in the other order.
template <class T>
TensorView<const T, 4> transposed(TensorView<const T, 4> x) {
  return {x.data(),
          {x.extent(0), x.extent(1), x.extent(3), x.extent(2)},
          {x.stride(0), x.stride(1), x.stride(3), x.stride(2)}};
}

// ---- P and dS -----------------------------------------------------------------------------------

constexpr int kRowThreads = 256;

// One thread block a row: S becomes P = exp(S - lse), and dP becomes dS = P * (dP - delta); both 0
// where the query sees no key.
template <class T>
__global__ void weights_kernel(AttentionBackward<T> pass, TensorView<float, 4> s,
                               TensorView<float, 4> d_p) {
  const AttentionShape shape = pass.shape();
  const Index row = blockIdx.x / shape.queries, i = blockIdx.x % shape.queries;
  const Index b = row / shape.heads, h = row % shape.heads;
  float delta = 0;  // each warp for itself
  for (Index c = threadIdx.x % kWarpSize; c < shape.head_dim; c += kWarpSize)
    delta += to_float(pass.out(b, h, i, c)) * to_float(pass.d_out(b, h, i, c));
  delta = warp_sum(delta);

  const float row_lse = pass.lse(b, h, i);
  const Index visible = row_lse == -INFINITY ? 0 : shape.visible_keys(i, pass.options.causal);
  for (Index j = threadIdx.x; j < shape.keys; j += kRowThreads) {
    const float p = j < visible ? expf(s(b, h, i, j) - row_lse) : 0;
    s(b, h, i, j) = p;
    d_p(b, h, i, j) = j < visible ? p * (d_p(b, h, i, j) - delta) : 0;
  }
}

}  // namespace

template <class T>
void plain_attention_backward_cuda(const AttentionBackward<T>& pass) {
  const AttentionShape shape = check_attention(pass);
  const double scale = attention_scale(pass.options, shape.head_dim);
  const Stream stream = pass.stream;
  const Shape<4> pairs{shape.batch, shape.heads, shape.queries, shape.keys};
  const DeviceTensor<float, 4> p(pairs, stream), d_s(pairs, stream);  // S, then P; dP, then dS
  const TensorView<const float, 4> P(p.view()), dS(d_s.view());

  product<Terms::kAll>("scores", pass.q, pass.k, p.view(), scale, stream);
  product<Terms::kAll>("d_p", pass.d_out, pass.v, d_s.view(), 1, stream);
  if (P.size() > 0)
    launch("weights", weights_kernel<T>,
           {.grid = grid_size(shape.batch * shape.heads * shape.queries),
            .block = kRowThreads,
            .stream = stream},
           pass, p.view(), d_s.view());
  if (pass.options.causal) {
    product<Terms::kFromRow>("d_v", transposed(P), transposed(pass.d_out), pass.d_v, 1, stream);
    product<Terms::kFromRow>("d_k", transposed(dS), transposed(pass.q), pass.d_k, scale, stream);
    product<Terms::kUpToRow>("d_q", dS, transposed(pass.k), pass.d_q, scale, stream);
  } else {
    product<Terms::kAll>("d_v", transposed(P), transposed(pass.d_out), pass.d_v, 1, stream);
    product<Terms::kAll>("d_k", transposed(dS), transposed(pass.q), pass.d_k, scale, stream);
    product<Terms::kAll>("d_q", dS, transposed(pass.k), pass.d_q, scale, stream);
  }
}

template void plain_attention_backward_cuda(const AttentionBackward<float>&);
template void plain_attention_backward_cuda(const AttentionBackward<Half>&);
template void plain_attention_backward_cuda(const AttentionBackward<BFloat16>&);

}  // namespace flash
