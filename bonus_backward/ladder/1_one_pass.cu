// Rung 1: dK, dV and dQ in one pass over the pairs of queries and keys.
//
// A thread block owns a block of keys, as for dK and dV in the solution; from the dS that it has
// anyway it computes its share of dQ, and adds it to a sum in device memory by atomic additions.
//
// Since the solution: 5 products for each pair of a query and a key in place of 7, and half as many
// tiles to load. The price: d_q in float32 beside d_q, with head_dim rounded up to 64, 128 or 256,
// set to 0 before and scaled and rounded after; and sums whose order is not fixed, so that the last
// bits of d_q differ from run to run.
#include <type_traits>

#include "bonus_backward/flash_backward_cuda.hpp"
#include "bonus_backward/given/backward_launch.hpp"
#include "bonus_backward/given/backward_tile.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/registry.hpp"

namespace flash::one_pass {
namespace {

using namespace backward;

// Four neighbours at once: on Hopper one instruction, since CUDA 12.1, elsewhere four.
__device__ __forceinline__ void atomic_add(float* to, const float (&x)[4]) {
#if !defined(FLASH_SIMT) && __CUDA_ARCH__ >= 900 && \
    __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1201
  atomicAdd(reinterpret_cast<float4*>(to), make_float4(x[0], x[1], x[2], x[3]));
#else
  for (int n = 0; n < 4; ++n) atomicAdd(to + n, x[n]);
#endif
}

// The share of the block's keys in dQ: sum over all own rows of weight * K, for the streamed rows,
// from the weights of all warps. A thread has 4 columns of kDown rows. kMasked: only over the keys
// with sees(key, row), as in add_product().
template <bool kMasked, class C, class Sees, class Add>
__device__ __forceinline__ void share_of_dQ(const float* weights, const float* K_smem, Sees sees,
                                            Add add) {
  constexpr int kAcross = C::kHeadDim / 4, kStep = C::kThreads / kAcross,
                kDown = C::kStream / kStep, kTogether = kVector<C::kRows>;
  static_assert(kAcross * kStep == C::kThreads && kStep * kDown == C::kStream);
  const int column = threadIdx.x % kAcross * 4, first = threadIdx.x / kAcross;
  float dQ[kDown][4] = {};
  for (int warp = 0; warp < C::kWarps; ++warp) {
    FLASH_UNROLL
    for (int r = 0; r < C::kRows; r += kTogether) {
      FLASH_UNROLL_BY(1)
      for (int group = 0; group < C::kGroups; ++group) {
        Floats<kTogether> dS[kDown];  // of kTogether own rows
        FLASH_UNROLL
        for (int s = 0; s < kDown; ++s)
          dS[s] = *reinterpret_cast<const Floats<kTogether>*>(
              weights + warp * C::kWeightsSize + (first + s * kStep) * C::kWeightsStride +
              place<C::kRows, C::kGroups>(group, r));
        FLASH_UNROLL
        for (int i = 0; i < kTogether; ++i) {
          const int j = warp * C::kRowsOfWarp + (r + i) * C::kGroups + group;
          const auto K = *reinterpret_cast<const Floats<4>*>(K_smem + j * C::kStride + column);
          FLASH_UNROLL
          for (int s = 0; s < kDown; ++s)
            if (!kMasked || sees(j, first + s * kStep)) {
              FLASH_UNROLL
              for (int n = 0; n < 4; ++n) dQ[s][n] += dS[s].value[i] * K.value[n];
            }
        }
      }
    }
  }
  FLASH_UNROLL
  for (int s = 0; s < kDown; ++s) add(first + s * kStep, column, dQ[s]);
}

// S, P, dP and dS are transposed, as in the solution. K_smem is scaled, by scale log2(e), and so is
// d_q_sum (batch, heads, queries, kHeadDim).
template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    one_pass_kernel(AttentionBackward<T> pass, TensorView<const float, 3> delta, float* d_q_sum,
                    float scale) {
  const AttentionShape shape = pass.shape();
  const bool causal = pass.options.causal;
  const Index all_heads = shape.batch * shape.heads, queries = shape.queries, keys = shape.keys;
  const Index head = blockIdx.x % all_heads, b = head / shape.heads, h = head % shape.heads;
  const Index j0 = blockIdx.x / all_heads * C::kOwn;
  const Head<const T> q_head(pass.q, b, h), d_out_head(pass.d_out, b, h);

  float* const d_q_head = d_q_sum + head * queries * C::kHeadDim;

  FLASH_DYNAMIC_SHARED(float, shared);
  const Thread<C> thread;
  const Tiles<C> tiles(shared, thread.warp), tiles_of_first_warp(shared, 0);
  float *const K_smem = tiles.own[0], *const V_smem = tiles.own[1], *const Q_smem = tiles.stream[0],
               *const dO_smem = tiles.stream[1];
  Gradient<C> dK = {}, dV = {};

  const auto add_queries = [&](Index i0, auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    const int queries_left =
        queries - i0 < C::kStream ? static_cast<int>(queries - i0) : C::kStream;
    const int keys_left = keys - j0 < C::kOwn ? static_cast<int>(keys - j0) : C::kOwn;
    const int ahead = diagonal<C>(causal, i0, j0);
    const auto seen = [&](int j, int s) {
      return !kMasked || (j < keys_left && s < queries_left && j <= s + ahead);
    };
    const auto sees = [&](int r, int s) { return seen(thread.row(r), s); };
    __syncthreads();  // nobody reads the tiles of the queries, nor the weights of another warp,
                      // before any more
    load_rows<C::kStream, C>(Q_smem, q_head, i0);
    load_rows<C::kStream, C>(dO_smem, d_out_head, i0);
    for (int s = threadIdx.x; s < C::kStream; s += C::kThreads) {
      tiles.lse[s] = i0 + s < queries ? base_2(pass.lse(b, h, i0 + s)) : 0;
      tiles.delta[s] = i0 + s < queries ? delta(b, h, i0 + s) : 0;
    }
    __syncthreads();

    Scores<C> S = {};
    multiply<C>(S, K_smem, Q_smem, thread);
    FLASH_UNROLL
    for (int r = 0; r < C::kRows; ++r) {
      FLASH_UNROLL
      for (int n = 0; n < C::kScores; ++n) {
        const int s = thread.streamed(n);
        S[r][n] = sees(r, s) ? exp2f(S[r][n] - tiles.lse[s]) : 0;
      }
    }
    store_weights<C>(tiles.weights, S, thread);
    __syncwarp();
    add_product<kMasked, C>(dV, tiles.weights, dO_smem, thread, sees);

    Scores<C> P, dP = {};
    multiply<C>(dP, V_smem, dO_smem, thread);
    load_weights<C>(P, tiles.weights, thread);
    FLASH_UNROLL
    for (int r = 0; r < C::kRows; ++r) {
      FLASH_UNROLL
      for (int n = 0; n < C::kScores; ++n) {
        const int s = thread.streamed(n);
        dP[r][n] = sees(r, s) ? P[r][n] * (dP[r][n] - tiles.delta[s]) : 0;
      }
    }
    __syncwarp();
    store_weights<C>(tiles.weights, dP, thread);
    __syncthreads();  // dQ is of all warps' keys
    add_product<kMasked, C>(dK, tiles.weights, Q_smem, thread, sees);
    share_of_dQ<kMasked, C>(tiles_of_first_warp.weights, K_smem, seen,
                            [&](int s, int column, const float(&dQ)[4]) {
                              if (i0 + s < queries)
                                atomic_add(d_q_head + (i0 + s) * C::kHeadDim + column, dQ);
                            });
  };

  load_rows<C::kOwn, C>(K_smem, Head<const T>(pass.k, b, h), j0, scale * kLog2E);
  load_rows<C::kOwn, C>(V_smem, Head<const T>(pass.v, b, h), j0);
  for (Index i0 = causal ? j0 : 0; i0 < queries; i0 += C::kStream)
    if ((causal && i0 < j0 + C::kOwn - 1) || i0 + C::kStream > queries || j0 + C::kOwn > keys)
      add_queries(i0, std::true_type{});
    else
      add_queries(i0, std::false_type{});
  store<C>(dK, Head<T>(pass.d_k, b, h), j0, scale, thread);
  store<C>(dV, Head<T>(pass.d_v, b, h), j0, 1, thread);
}

// d_q = d_q_sum / log2(e).
constexpr int kFinishThreads = 256;
template <class T>
__global__ void finish_kernel(const float* d_q_sum, TensorView<T, 4> d_q, int width) {
  const Index heads = d_q.extent(1), queries = d_q.extent(2);
  const Index element = Index{blockIdx.x} * kFinishThreads + threadIdx.x, row = element / width,
              c = element % width;
  const Index b = row / queries / heads;
  if (b < d_q.extent(0) && c < d_q.extent(3))
    d_q(b, row / queries % heads, row % queries, c) =
        from_float<T>(d_q_sum[element] * (1 / kLog2E));
}

// One width less than in the solution: a rung is for the benchmark. Heads of 128 with more keys at
// a time: 5.5 ms in place of 8.4, the solution 8.0 (H200, float32, batch 8, 1 head, 4096 keys).
#ifdef FLASH_FEW_CONFIGURATIONS
using Configs = Table<Config<64, 64, 32, 2, 8>, Config<256, 16, 8, 2, 2>>;
#else
using Configs =
    Table<Config<64, 128, 32, 4, 8>, Config<64, 64, 32, 2, 8>, Config<128, 64, 32, 4, 8>,
          Config<128, 32, 16, 4, 4>, Config<256, 16, 8, 2, 2>>;
#endif

template <class T>
void backward(const FlashBackwardCudaFunctions<T>& solution, const AttentionBackward<T>& pass) {
  const AttentionShape shape = check_attention(pass);
  const float scale = static_cast<float>(attention_scale(pass.options, shape.head_dim));
  const Stream stream = pass.stream;
  with_config(Configs(), shape.head_dim, [&]<class C>(C) {
    const DeviceTensor<float, 3> delta(shape.of_rows(), stream);
    const DeviceTensor<float, 2> d_q_sum({shape.batch * shape.heads * shape.queries, C::kHeadDim},
                                         stream);
    device::fill_bytes(d_q_sum.data(), 0, d_q_sum.bytes(), stream);
    solution.flash_backward_delta_cuda(pass.out, pass.d_out, delta.view(), stream);
    if (shape.keys > 0)
      launch("one_pass", one_pass_kernel<T, C>,
             {.grid = grid_size(shape.batch * shape.heads * ((shape.keys + C::kOwn - 1) / C::kOwn)),
              .block = static_cast<unsigned>(C::kThreads),
              .shared_bytes = C::kSharedBytes,
              .stream = stream},
             pass, delta.view(), d_q_sum.data(), scale);
    launch("one_pass_finish", finish_kernel<T>,
           {.grid = grid_size((d_q_sum.view().size() + kFinishThreads - 1) / kFinishThreads),
            .block = kFinishThreads,
            .stream = stream},
           d_q_sum.data(), pass.d_q, C::kHeadDim);
  });
}

}  // namespace

FLASH_ENTER(registry, name) {
  const auto run = [task = registry.tasks.library<FlashBackwardCudaTask>()]<class T>(
                       const AttentionBackward<T>& pass) { backward(task->of<T>(), pass); };
  registry.backward.add(
      {.name = name,
       .device = DeviceKind::kGpu,
       .run = {.float32 = run, .float16 = run, .bfloat16 = run},
       .unsupported = [](const AttentionProblem& problem) { return why_not(problem.shape); }});
}

}  // namespace flash::one_pass
