// Rung 10: heads of 257 to 1024 columns.
//
// New: P and dS go to memory, in 16 bits, and a second kernel makes the gradients from them by
// ordinary products of matrices. From 257 columns on, dK and dV of 64 keys are more than the
// registers of two warpgroups, so the tiles of the rungs before would have to be cut by columns,
// and each cut would compute S and dP again.
//
//   weights     S = Q K^T, dP = dO V^T, P = exp2(S - lse), dS = P * (dP - delta): tiles of 128
//               queries and 128 keys, one for each block
//   gradients   dQ = dS K, dK = dS^T Q, dV = P^T dO: tiles of 128 rows and 256 columns
//
// The memory stays linear in the sequence: P and dS are those of at most 1024 queries at a time,
// and of as many heads as leave room for them in the L2 cache. With more queries dK and dV are
// added up in float32, from one chunk of queries to the next. Every sum has one block that adds it
// up, so the same inputs give the same bits.
//
// P and dS lie row by row, as dQ reads them. dK and dV need them transposed: ldmatrix does it on
// the way to the registers, from where wgmma takes its left factor.
//
// Measured on an H200, the three kernels together: one head of 1024, batch 4, 1024 tokens, half:
// 0.098 ms, with a mask 0.080; `pytorch_math` takes 0.79 and 0.78, `pytorch_efficient` 2.9 and 2.7.
// 8 heads of 512, 4096 tokens, bfloat16: 436 TFLOP/s, with a mask 328, 7.6 and 11.4 times as many
// as `pytorch_math`. The bottleneck is the L2 cache: in each step weights_kernel reads 64 KB and
// then computes for 1024 clocks.
#include "bonus_backward/ladder/hopper.hpp"
#include "common/cuda/pipeline.hpp"
#include "part3_flash_cuda/ladder/wide.hpp"

namespace flash::wide_backward {
namespace {

using namespace gradients;

constexpr int kThreads = 384, kRegistersToCopy = 24, kRegistersToCompute = 240;
constexpr int kBlock = 128;    // rows of a block's tile
constexpr int kStep = 64;      // of the dimension that a product sums over
constexpr Index kRows = 1024;  // queries at a time, at most

// P is stored 2^kShift times as large, for half's small numbers to keep their digits.
template <class T>
constexpr float kShift = std::is_same_v<T, Half> ? 15 : 0;

// What is worked at together: `rows` queries from `first_row` on of `heads` heads from `first_head`
// on. P and dS are theirs: (heads, rows, keys), in 16 bits.
struct Chunk {
  int first_head, heads, first_row, rows;
  bool is_first, is_last;  // of these heads' chunks
};

struct Arguments {
  AttentionShape shape;
  Workspace work;
  float* sums;  // of dK and dV, before the last chunk
  float scale, scale_in_base_2;
  bool causal;
};

__device__ __forceinline__ int blocks_of(int rows) { return (rows + kBlock - 1) / kBlock; }

// Both kernels: a ring of stages that TMA fills, and two warpgroups, each of 64 rows of the tile.
template <class Stage, int kStages>
struct Ring {
  Stage* stages;
  Pipeline<kStages>& pipeline;

  __device__ __forceinline__ Ring(char* shared, Pipeline<kStages>& barriers)
      : stages(reinterpret_cast<Stage*>(shared)), pipeline(barriers) {
    if (threadIdx.x == 0) {
      pipeline.init(8);  // warps
      fence_barrier_init();
    }
    __syncthreads();
  }
  __device__ __forceinline__ Stage& at(int n) const { return stages[pipeline.stage(n)]; }
  __device__ __forceinline__ void give_back(int n, unsigned lane) const {
    tell(pipeline.empty_barriers[pipeline.stage(n)], lane);
  }
};
template <class Stage, int kStages>
constexpr std::size_t kSharedBytes = kStages * sizeof(Stage) + 1024;  // to begin at 1024 bytes

// ---- P and dS -----------------------------------------------------------------------------------

// Tiles of 128 queries and 128 keys: S = Q K^T and dP = dO V^T, in steps of 64 columns.
struct WeightMaps {
  TensorMap q, k, v, d_out, p, d_s;
};
constexpr int kWeightStages = 3;
template <class T>
struct WeightStage {
  T Q[kBlock * 64], K[kBlock * 64], dO[kBlock * 64], V[kBlock * 64];
};

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    weights_kernel(const __grid_constant__ WeightMaps maps, Arguments a, Chunk chunk) {
  const int keys = static_cast<int>(a.shape.keys), blocks_of_keys = blocks_of(keys),
            block = static_cast<int>(blockIdx.x), j0 = block % blocks_of_keys * kBlock,
            rest = block / blocks_of_keys, i0 = rest % blocks_of(chunk.rows) * kBlock,
            head_here = rest / blocks_of(chunk.rows), head = chunk.first_head + head_here,
            first_query = chunk.first_row + i0;
  if (a.causal && j0 > first_query + kBlock - 1) return;  // nobody reads this tile
  const int b = head / static_cast<int>(a.shape.heads), h = head % static_cast<int>(a.shape.heads),
            steps = static_cast<int>((a.shape.head_dim + kStep - 1) / kStep);

  __shared__ Pipeline<kWeightStages> pipeline;
  FLASH_DYNAMIC_SHARED(char, shared);
  const Ring<WeightStage<T>, kWeightStages> ring(align_to_1024(shared), pipeline);

  if (threadIdx.x < 128) {
    give_registers<kRegistersToCopy>();
    if (threadIdx.x != 0) return;
    for (int n = 0; n < steps; ++n) {
      pipeline.wait_empty(n);
      Barrier& full = pipeline.full(n);
      WeightStage<T>& stage = ring.at(n);
      arrive_expecting(full, sizeof stage);
      tma_load(stage.Q, maps.q, full, n * kStep, first_query, h, b);
      tma_load(stage.K, maps.k, full, n * kStep, j0, h, b);
      tma_load(stage.dO, maps.d_out, full, n * kStep, first_query, h, b);
      tma_load(stage.V, maps.v, full, n * kStep, j0, h, b);
    }
    return;
  }

  take_registers<kRegistersToCompute>();
  const unsigned lane = threadIdx.x % 32;
  const int warp = static_cast<int>(threadIdx.x / 32) - 4,
            group = __shfl_sync(kAllLanes, warp / 4, 0);
  float S[kBlock / 2], dP[kBlock / 2];
  for (int n = 0; n < steps; ++n) {
    pipeline.wait_full(n);
    WeightStage<T>& stage = ring.at(n);
    const MatrixDescriptor Q = by_rows(stage.Q + group * 64 * 64), K = by_rows(stage.K),
                           dO = by_rows(stage.dO + group * 64 * 64), V = by_rows(stage.V);
    wgmma_fence();
    FLASH_UNROLL
    for (int k = 0; k < 4; ++k) wgmma<kBlock, T>(S, Q + 32 * k, K + 32 * k, n > 0 || k > 0);
    FLASH_UNROLL
    for (int k = 0; k < 4; ++k) wgmma<kBlock, T>(dP, dO + 32 * k, V + 32 * k, n > 0 || k > 0);
    wgmma_commit();
    if (n > 0) {
      wgmma_wait<1>();
      ring.give_back(n - 1, lane);
    }
  }
  wgmma_wait<0>();

  FLASH_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int i = first_query + 16 * warp + static_cast<int>(lane / 4) + 8 * r;
    const float lse = a.work.lse[head * a.work.rows + i],
                delta = a.work.delta[head * a.work.rows + i];
    const int sees =
        static_cast<int>(a.shape.visible_keys(i, a.causal)) - j0 - static_cast<int>(lane % 4) * 2;
    FLASH_UNROLL
    for (int n = 0; n < kBlock / 8; ++n) {
      FLASH_UNROLL
      for (int c = 0; c < 2; ++c) {
        float &s = S[4 * n + 2 * r + c], &d = dP[4 * n + 2 * r + c];
        const float P = 8 * n + c < sees ? exp2_approximate(fmaf(s, a.scale_in_base_2, -lse)) : 0;
        s = P * exp2f(kShift<T>);
        d = P * (d - delta);
      }
    }
  }
  sync_named(1, 256);  // both groups have read the last tiles
  const int first_row = 16 * warp;
  send_tile<kBlock, kBlock>(maps.p, ring.stages[0].Q, S, 1, first_row, lane, i0, j0, head_here, 0);
  send_tile<kBlock, kBlock>(maps.d_s, ring.stages[0].dO, dP, 1, first_row, lane, i0, j0, head_here,
                            0);
  if (lane == 0) tma_wait_read<0>();
}

// ---- The gradients ------------------------------------------------------------------------------

// Tiles of 128 rows and 256 columns: dQ = scale * dS K, dK += scale * dS^T Q, dV += P^T dO, in
// steps of 64 keys or queries.
struct GradientMaps {
  TensorMap d_s_rows, d_s, p, k, q, d_out, d_q, d_k, d_v;
};
constexpr int kColumns = 256, kGradientStages = 4;
template <class T>
struct GradientStage {
  T A[kBlock * kStep], B[kStep * kColumns];
};

enum class Gradient { kQ, kK, kV };

// What a block has to do. Those with the longest sums come first.
struct Job {
  Gradient gradient;
  int head_here, row0, column0, first_step, steps;
  Index tile;  // of the sums

  __device__ __forceinline__ Job(const Arguments& a, const Chunk& chunk, int number) {
    const int parts = static_cast<int>((a.shape.head_dim + kColumns - 1) / kColumns),
              keys = static_cast<int>(a.shape.keys), across = parts * chunk.heads,
              of_dQ = blocks_of(chunk.rows) * across;
    const bool is_dQ = number < of_dQ;
    if (!is_dQ) number -= of_dQ;
    const int part = number % parts;
    column0 = part * kColumns;
    head_here = number / parts % chunk.heads;
    if (is_dQ) {
      gradient = Gradient::kQ;
      row0 = (blocks_of(chunk.rows) - 1 - number / across) * kBlock;
      const int end = row0 + kBlock < chunk.rows ? row0 + kBlock : chunk.rows;
      const int sees = static_cast<int>(a.shape.visible_keys(chunk.first_row + end - 1, a.causal));
      first_step = 0;
      steps = (sees + kStep - 1) / kStep;
    } else {
      gradient = number / across % 2 == 0 ? Gradient::kK : Gradient::kV;
      const int block = number / across / 2;
      row0 = block * kBlock;
      const int first = a.causal && row0 > chunk.first_row ? row0 - chunk.first_row : 0;
      first_step = first / kStep;
      steps = first < chunk.rows ? (chunk.rows + kStep - 1) / kStep - first_step : 0;
    }
    const int blocks = blocks_of(keys);
    tile = ((Index{gradient == Gradient::kV} * chunk.heads + head_here) * blocks + row0 / kBlock) *
               parts +
           part;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    gradients_kernel(const __grid_constant__ GradientMaps maps, Arguments a, Chunk chunk) {
  const Job job(a, chunk, static_cast<int>(blockIdx.x));
  const int head = chunk.first_head + job.head_here, b = head / static_cast<int>(a.shape.heads),
            h = head % static_cast<int>(a.shape.heads);
  const bool is_dQ = job.gradient == Gradient::kQ, is_dK = job.gradient == Gradient::kK;
  __shared__ Pipeline<kGradientStages> pipeline;
  FLASH_DYNAMIC_SHARED(char, shared);
  const Ring<GradientStage<T>, kGradientStages> ring(align_to_1024(shared), pipeline);

  if (threadIdx.x < 128) {
    give_registers<kRegistersToCopy>();
    if (threadIdx.x != 0) return;
    const TensorMap &A = is_dK ? maps.d_s : maps.p, &B = is_dQ   ? maps.k
                                                         : is_dK ? maps.q
                                                                 : maps.d_out;
    const int first_row = is_dQ ? 0 : chunk.first_row;
    for (int n = 0; n < job.steps; ++n) {
      pipeline.wait_empty(n);
      Barrier& full = pipeline.full(n);
      GradientStage<T>& stage = ring.at(n);
      const int begin = (job.first_step + n) * kStep;
      arrive_expecting(full, sizeof stage);
      if (is_dQ) {
        tma_load(stage.A, maps.d_s_rows, full, begin, job.row0, job.head_here, 0);
      } else {
        tma_load(stage.A, A, full, job.row0, begin, job.head_here, 0);
        tma_load(stage.A + 64 * 64, A, full, job.row0 + 64, begin, job.head_here, 0);
      }
      FLASH_UNROLL
      for (int slab = 0; slab < kColumns / 64; ++slab)
        tma_load(stage.B + slab * kStep * 64, B, full, job.column0 + 64 * slab, first_row + begin,
                 h, b);
    }
    return;
  }

  take_registers<kRegistersToCompute>();
  const unsigned thread = threadIdx.x - 128, lane = thread % 32;
  const int warp = static_cast<int>(thread / 32), group = __shfl_sync(kAllLanes, warp / 4, 0);
  float D[kColumns / 2];
  FLASH_UNROLL
  for (float& x : D) x = 0;

  if (is_dQ) {
    for (int n = 0; n < job.steps; ++n) {
      pipeline.wait_full(n);
      GradientStage<T>& stage = ring.at(n);
      const MatrixDescriptor A = by_rows(stage.A + group * 64 * 64), B = by_columns<kStep>(stage.B);
      wgmma_fence();
      FLASH_UNROLL
      for (int k = 0; k < kStep / 16; ++k)
        wgmma<kColumns, T, true>(D, A + 32 * k, B + 2048 * k, true);
      wgmma_commit();
      if (n > 0) {
        wgmma_wait<1>();
        ring.give_back(n - 1, lane);
      }
    }
  } else {
    for (int n = 0; n < job.steps; ++n) {
      pipeline.wait_full(n);
      GradientStage<T>& stage = ring.at(n);
      // The rows of A are the columns of the tile.
      Packed<kStep> A;
      FLASH_UNROLL
      for (int k = 0; k < kStep / 16; ++k)
        ldmatrix<true>(A[k], chunk_of<kStep>(stage.A + group * 64 * 64,
                                             16 * k + static_cast<int>(lane / 16 * 8 + lane % 8),
                                             warp % 4 * 2 + static_cast<int>(lane / 8 % 2)));
      start_gradient<kStep, kColumns, T>(D, A, by_columns<kStep>(stage.B));
      wgmma_wait<0>();
      ring.give_back(n, lane);
    }
  }
  wgmma_wait<0>();

  if (!is_dQ) {
    float4* const sums =
        reinterpret_cast<float4*>(a.sums) + job.tile * kBlock * kColumns / 4 + thread;
    if (!chunk.is_first) {
      FLASH_UNROLL
      for (int i = 0; i < kColumns / 8; ++i) {
        const float4 x = sums[i * 256];
        D[4 * i] += x.x;
        D[4 * i + 1] += x.y;
        D[4 * i + 2] += x.z;
        D[4 * i + 3] += x.w;
      }
    }
    if (!chunk.is_last) {
      FLASH_UNROLL
      for (int i = 0; i < kColumns / 8; ++i)
        sums[i * 256] = make_float4(D[4 * i], D[4 * i + 1], D[4 * i + 2], D[4 * i + 3]);
      return;
    }
  }
  sync_named(1, 256);  // both groups have read the last tiles
  const TensorMap& D_map = is_dQ ? maps.d_q : is_dK ? maps.d_k : maps.d_v;
  const float factor = is_dQ || is_dK ? a.scale : exp2f(-kShift<T>);
  send_tile<kBlock, kColumns>(D_map, reinterpret_cast<T*>(ring.stages), D, factor, 16 * warp, lane,
                              (is_dQ ? chunk.first_row : 0) + job.row0, job.column0, h, b);
  if (lane == 0) tma_wait_read<0>();
}

// ---- Around the kernels -------------------------------------------------------------------------

// The memory beside the tensors: lse and delta of all rows; P, dS and the sums of the heads that
// are worked at together.
struct Plan {
  Index heads, rows, row_length;  // of P
  std::size_t lse_bytes, p_bytes, sums_bytes;

  explicit Plan(const AttentionShape& shape) {
    constexpr Index kTogether = 32 << 20;  // bytes of P and dS; the L2 cache of an H100 has 50 MB
    const auto align = [](Index bytes) {
      return static_cast<std::size_t>((bytes + 255) / 256 * 256);
    };
    rows = std::min(shape.queries, kRows);
    row_length = std::max<Index>((shape.keys + 7) / 8 * 8, 8);
    heads = std::clamp<Index>(kTogether / (4 * rows * row_length), 1, shape.batch * shape.heads);
    lse_bytes = align(static_cast<Index>(gradients::workspace_bytes(shape, 0)));
    p_bytes = align(2 * heads * rows * row_length);
    const Index blocks = (shape.keys + kBlock - 1) / kBlock,
                parts = (shape.head_dim + kColumns - 1) / kColumns;
    sums_bytes = rows == shape.queries
                     ? 0
                     : static_cast<std::size_t>(2 * 4 * heads * blocks * parts * kBlock * kColumns);
  }
  std::size_t bytes() const { return lse_bytes + 2 * p_bytes + sums_bytes; }
};

template <class T>
void backward(const AttentionBackward<T>& pass, PassMemory& memory) {
  const AttentionShape shape = check_attention(pass);
  const Plan plan(shape);
  char* const begin = static_cast<char*>(memory.workspace);
  T *const p = reinterpret_cast<T*>(begin + plan.lse_bytes), *const d_s = reinterpret_cast<T*>(
                                                                 begin + plan.lse_bytes +
                                                                 plan.p_bytes);
  const Arguments a{shape,
                    workspace_at(begin, shape),
                    reinterpret_cast<float*>(begin + plan.lse_bytes + 2 * plan.p_bytes),
                    static_cast<float>(attention_scale(pass.options, shape.head_dim)),
                    scale_in_base_2(pass.options, shape.head_dim),
                    pass.options.causal};
  prepare<256, false, true>(pass, a.work);

  const Index all = shape.batch * shape.heads;
  for (Index head = 0; head < all; head += plan.heads)
    for (Index row = 0; row < shape.queries; row += plan.rows) {
      const Index heads = std::min(plan.heads, all - head),
                  rows = std::min(plan.rows, shape.queries - row);
      const Chunk chunk{static_cast<int>(head),
                        static_cast<int>(heads),
                        static_cast<int>(row),
                        static_cast<int>(rows),
                        row == 0,
                        row + rows == shape.queries};
      const auto map_of = [&](T* x, int box_rows) {
        return tensor_map(TensorView<T, 4>(x, {1, heads, rows, shape.keys},
                                           {0, rows * plan.row_length, plan.row_length, 1}),
                          box_rows);
      };
      const Index blocks_of_rows = (rows + kBlock - 1) / kBlock,
                  blocks_of_keys = (shape.keys + kBlock - 1) / kBlock,
                  parts = (shape.head_dim + kColumns - 1) / kColumns;
      if (shape.keys > 0)
        launch("weights", weights_kernel<T>,
               {.grid = grid_size(heads * blocks_of_rows * blocks_of_keys),
                .block = kThreads,
                .shared_bytes = kSharedBytes<WeightStage<T>, kWeightStages>,
                .stream = pass.stream},
               WeightMaps{tensor_map(pass.q, kBlock), tensor_map(pass.k, kBlock),
                          tensor_map(pass.v, kBlock), tensor_map(pass.d_out, kBlock), map_of(p, 16),
                          map_of(d_s, 16)},
               a, chunk);
      launch("gradients", gradients_kernel<T>,
             {.grid = grid_size(heads * parts * (blocks_of_rows + 2 * blocks_of_keys)),
              .block = kThreads,
              .shared_bytes = kSharedBytes<GradientStage<T>, kGradientStages>,
              .stream = pass.stream},
             GradientMaps{map_of(d_s, kBlock), map_of(d_s, kStep), map_of(p, kStep),
                          tensor_map(pass.k, kStep), tensor_map(pass.q, kStep),
                          tensor_map(pass.d_out, kStep), tensor_map(pass.d_q, 16),
                          tensor_map(pass.d_k, 16), tensor_map(pass.d_v, 16)},
             a, chunk);
    }
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.backward.add(
      {.name = name,
       .device = DeviceKind::kGpu,
       .run = {.float16 = backward<Half>, .bfloat16 = backward<BFloat16>},
       .unsupported =
           [](const AttentionProblem& problem) {
             return wide::why_not(problem, why_not_on_hopper);
           },
       .workspace_bytes =
           [](const AttentionProblem& problem) { return Plan(problem.shape).bytes(); },
       .finite_inputs = true});
}

}  // namespace flash::wide_backward
