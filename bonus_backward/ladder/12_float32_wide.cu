// Rung 12: float32 with heads of 257 to 512 columns.
//
// In the solution's kernels a few threads have a row of a gradient in their registers. So they end
// at 256 columns.
//
// New: a block has 16 rows, of Q for dQ or of K for dK and dV, and the whole block shares their
// columns: a thread has 2 columns of all 16 rows. The rows of the other side come 16 at a time
// through shared memory, and each thread computes S and dP of one pair of rows. Both kinds of
// blocks run the same code. Delta of a query is computed where its row is loaded.
//
// It is one launch without a workspace; the order of all sums is fixed. The limit is, by
// count, shared memory. With 512 columns S and dP of a step take 6144 wavefronts, and the additions
// to the gradients about 2000 clocks of FFMA. Measured on an H100, batch 4, 8 heads of 512, 64
// keys, with a mask: 0.134 ms, standard attention 0.171 ms, PyTorch's memory-efficient kernel 0.141
// ms. With more keys it is slower: 256 keys take 1.66 ms and standard attention 0.36, 1024
// keys 25.4 and 2.95 ms. It is there for its memory, which grows with the sequence and not with its
// square.
#include <limits>

#include "bonus_backward/flash_backward_cuda.hpp"
#include "common/checks.hpp"
#include "common/cuda/warp.hpp"
#include "common/registry.hpp"

namespace flash::float32_wide {
namespace {

constexpr int kRows = 16, kThreads = kRows * kRows, kLeast = 257, kMost = 512,
              kOfThread = kMost / kThreads;  // columns

// A stride of 4 more than a multiple of 32: neighbouring rows lie in different banks.
FLASH_HOST_DEVICE constexpr int stride_of(Index head_dim) {
  return static_cast<int>((head_dim + 31) / 32 * 32 + 4);
}

constexpr std::size_t shared_bytes(Index head_dim) {
  return sizeof(float) * (4 * kRows * static_cast<std::size_t>(stride_of(head_dim)) +
                          2 * kRows * kRows + 2 * kRows);
}

// 16 rows of one head: in shared memory row r begins at x + r * stride, and is filled up by zeros.
// What does not exist is loaded from the first row or column and thrown away: with a branch around
// each load, one would wait for the other.
__device__ __forceinline__ void load(float* x, int stride, const TensorView<const float, 4>& from,
                                     Index b, Index h, Index row0) {
  const float* const data = from.data() + b * from.stride(0) + h * from.stride(1);
  const int columns = static_cast<int>(from.extent(3));
  FLASH_UNROLL
  for (int r = threadIdx.x / kWarpSize; r < kRows; r += kThreads / kWarpSize) {
    const bool row_exists = row0 + r < from.extent(2);
    const float* const row = data + (row_exists ? row0 + r : 0) * from.stride(2);
    FLASH_UNROLL_BY(8)
    for (int c = threadIdx.x % kWarpSize; c < stride - 4; c += kWarpSize) {
      const float number = row[(c < columns ? c : 0) * from.stride(3)];
      x[r * stride + c] = row_exists && c < columns ? number : 0;
    }
  }
}

// delta[r] = sum over the columns of d_out * out, for 16 rows whose d_out is in shared memory. Each
// warp has the rows that it loaded itself.
__device__ __forceinline__ void load_delta(float* delta, const float* d_out, int stride,
                                           const TensorView<const float, 4>& out, Index b, Index h,
                                           Index row0) {
  const float* const data = out.data() + b * out.stride(0) + h * out.stride(1);
  const int lane = threadIdx.x % kWarpSize, columns = static_cast<int>(out.extent(3));
  FLASH_UNROLL
  for (int r = threadIdx.x / kWarpSize; r < kRows; r += kThreads / kWarpSize) {
    const float* const row = data + (row0 + r < out.extent(2) ? row0 + r : 0) * out.stride(2);
    float sum = 0;
    FLASH_UNROLL_BY(8)
    for (int c = lane; c < stride - 4; c += kWarpSize)
      sum += d_out[r * stride + c] * row[(c < columns ? c : 0) * out.stride(3)];
    sum = warp_sum(sum);
    if (lane == 0) delta[r] = sum;
  }
}

// Gradients of the rows of Q, or of K, from own0 on.
template <bool kKeys>
__device__ __forceinline__ void add_up(const AttentionBackward<float>& x, float scale, bool causal,
                                       Index b, Index h, Index own0, float* smem) {
  const AttentionShape shape = x.shape();
  const int stride = stride_of(shape.head_dim);
  float *const X1 = smem, *const X2 = X1 + kRows * stride, *const Y1 = X2 + kRows * stride,
               *const Y2 = Y1 + kRows * stride, *const P_smem = Y2 + kRows * stride,
               *const dS_smem = P_smem + kRows * kRows, *const delta = dS_smem + kRows * kRows,
               *const lse = delta + kRows;
  const auto load_queries = [&](float* q, float* d_out, Index row0) {
    load(q, stride, x.q, b, h, row0);
    load(d_out, stride, x.d_out, b, h, row0);
    load_delta(delta, d_out, stride, x.out, b, h, row0);
    if (threadIdx.x < kRows)
      lse[threadIdx.x] =
          row0 + threadIdx.x < shape.queries ? x.lse(b, h, row0 + threadIdx.x) : -INFINITY;
  };
  const auto load_keys = [&](float* k, float* v, Index row0) {
    load(k, stride, x.k, b, h, row0);
    load(v, stride, x.v, b, h, row0);
  };
  if constexpr (kKeys)
    load_keys(X1, X2, own0);
  else
    load_queries(X1, X2, own0);

  const int own = threadIdx.x / kRows, other = threadIdx.x % kRows;
  const Index first = kKeys && causal ? own0 : 0,
              last = kKeys ? shape.queries : shape.visible_keys(own0 + kRows - 1, causal);
  float of_dS[kRows][kOfThread] = {}, of_P[kRows][kOfThread] = {};
  for (Index n0 = first; n0 < last; n0 += kRows) {
    __syncthreads();  // nobody reads the rows before any more
    if constexpr (kKeys)
      load_queries(Y1, Y2, n0);
    else
      load_keys(Y1, Y2, n0);
    __syncthreads();

    float S = 0, dP = 0;
    FLASH_UNROLL_BY(4)
    for (int c = 0; c < stride - 4; c += 4) {
      const auto x1 = *reinterpret_cast<const float4*>(X1 + own * stride + c),
                 y1 = *reinterpret_cast<const float4*>(Y1 + other * stride + c),
                 x2 = *reinterpret_cast<const float4*>(X2 + own * stride + c),
                 y2 = *reinterpret_cast<const float4*>(Y2 + other * stride + c);
      S += x1.x * y1.x;
      S += x1.y * y1.y;
      S += x1.z * y1.z;
      S += x1.w * y1.w;
      dP += x2.x * y2.x;
      dP += x2.y * y2.y;
      dP += x2.z * y2.z;
      dP += x2.w * y2.w;
    }
    const int query = kKeys ? other : own;
    const Index i = kKeys ? n0 + other : own0 + own, j = kKeys ? own0 + own : n0 + other;
    float P = 0, dS = 0;
    if (i < shape.queries && j < shape.visible_keys(i, causal) && lse[query] != -INFINITY) {
      P = exp2f((S * scale - lse[query]) * kLog2E);
      dS = P * (dP - delta[query]);
    }
    P_smem[other * kRows + own] = P;
    dS_smem[other * kRows + own] = dS;
    __syncthreads();

    FLASH_UNROLL_BY(2)
    for (int n = 0; n < kRows; ++n) {
      float y1[kOfThread], y2[kOfThread];
      FLASH_UNROLL
      for (int m = 0; m < kOfThread; ++m) {
        const int c = static_cast<int>(threadIdx.x) + m * kThreads;
        const bool exists = c < stride - 4;
        y1[m] = exists ? Y1[n * stride + c] : 0;
        y2[m] = kKeys && exists ? Y2[n * stride + c] : 0;
      }
      FLASH_UNROLL
      for (int r = 0; r < kRows; ++r) {
        FLASH_UNROLL
        for (int m = 0; m < kOfThread; ++m) {
          of_dS[r][m] += dS_smem[n * kRows + r] * y1[m];
          if constexpr (kKeys) of_P[r][m] += P_smem[n * kRows + r] * y2[m];
        }
      }
    }
  }

  const auto& d_own = kKeys ? x.d_k : x.d_q;
  FLASH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    FLASH_UNROLL
    for (int m = 0; m < kOfThread; ++m) {
      const Index row = own0 + r, c = static_cast<Index>(threadIdx.x) + m * kThreads;
      if (row >= d_own.extent(2) || c >= shape.head_dim) continue;
      d_own(b, h, row, c) = of_dS[r][m] * scale;
      if constexpr (kKeys) x.d_v(b, h, row, c) = of_P[r][m];
    }
  }
}

constexpr Index blocks_of(Index rows) { return (rows + kRows - 1) / kRows; }

// The first blocks of a head compute dQ, the others dK and dV.
__global__ void __launch_bounds__(kThreads, 1)
    float32_wide_kernel(AttentionBackward<float> x, float scale, bool causal,
                        Index blocks_of_queries, Index blocks_of_head) {
  FLASH_DYNAMIC_SHARED(float, smem);
  const Index head = static_cast<Index>(blockIdx.x) / blocks_of_head,
              block = static_cast<Index>(blockIdx.x) % blocks_of_head;
  const Index b = head / x.q.extent(1), h = head % x.q.extent(1);
  if (block < blocks_of_queries)
    add_up<false>(x, scale, causal, b, h, block * kRows, smem);
  else
    add_up<true>(x, scale, causal, b, h, (block - blocks_of_queries) * kRows, smem);
}

void backward(const AttentionBackward<float>& pass) {
  const AttentionShape shape = check_attention(pass);
  const Index of_queries = blocks_of(shape.queries), of_head = of_queries + blocks_of(shape.keys);
  launch("float32_wide", float32_wide_kernel,
         {.grid = grid_size(shape.batch * shape.heads * of_head),
          .block = kThreads,
          .shared_bytes = shared_bytes(shape.head_dim),
          .stream = pass.stream},
         pass, static_cast<float>(attention_scale(pass.options, shape.head_dim)),
         pass.options.causal, of_queries, of_head);
}

std::string why_not(const AttentionProblem& problem) {
  const Index head_dim = problem.shape.head_dim;
  if (head_dim < kLeast)
    return "head_dim is " + std::to_string(head_dim) + "; it must be above 256";
  if (std::string why = why_above("head_dim", head_dim, kMost); !why.empty()) return why;
  return why_above("keys", problem.shape.keys, std::numeric_limits<int>::max());
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.backward.add({.name = name,
                         .device = DeviceKind::kGpu,
                         .run = {.float32 = backward},
                         .unsupported = why_not});
}

}  // namespace flash::float32_wide
