// Gradients in float64, where rung 9 finds that its 16-bit numbers are less exact than float32: for
// a few keys of a head, or for a whole head. This does not have to be fast: it takes 9 products in
// place of 5, and no tensor cores.
//
// A block has 32 queries, 4 a warp, or 16 keys, 2 a warp. It takes 32 rows of the other side a
// step, one a lane. Of a gradient a lane has columns. A block of queries takes all keys twice:
// first for lse and delta, then for dQ. Blocks of keys come after all blocks of queries.
#pragma once

#include "bonus_backward/ladder/workspace.hpp"

namespace flash::gradients {

// Marks what has to be computed in float64; all begin as 0. any[0]: some head; any[1]: anything.
struct Exceptions {
  unsigned *any, *heads, *keys;  // heads: (heads); keys: (heads, tiles)

  static constexpr int kKeys = 16;  // of a tile

  FLASH_HOST_DEVICE static Index tiles(const AttentionShape& shape) {
    return (shape.keys + kKeys - 1) / kKeys;
  }
  static Index count(const AttentionShape& shape) {
    return 2 + shape.batch * shape.heads * (1 + tiles(shape));
  }
  __device__ __forceinline__ void add_head(int head) const {
    atomicOr(&any[0], 1u);
    atomicOr(&any[1], 1u);
    atomicOr(&heads[head], 1u);
  }
  __device__ __forceinline__ void add_key(int head, int key, const AttentionShape& shape) const {
    atomicOr(&any[1], 1u);
    atomicOr(&keys[head * tiles(shape) + key / kKeys], 1u);
  }
};

namespace float64 {

constexpr int kThreads = 256, kWarps = kThreads / kWarpSize, kStep = kWarpSize;

template <int kHeadDim, bool kOfKeys>
struct Shared {
  static constexpr int kRows = kOfKeys ? 2 : 4, kOwn = kWarps * kRows;
  static constexpr int kStride = kHeadDim + 2;                // a lane a row: no bank conflicts
  double own[2][kOwn][kStride], streamed[2][kStep][kStride];  // Q and dO, or K and V
  double weights[kWarps][kStep][2 * kRows];                   // dS and P of a warp's rows
};

// More precise than pass.lse and Workspace::delta; (heads, Workspace::rows) each.
struct RowNumbers {
  double *lse, *delta;
};

template <int kHeadDim, int kCount, int kStride>
__device__ __forceinline__ void load_rows(double (&to)[kCount][kStride],
                                          const TensorView<const float, 4>& from, Index b, Index h,
                                          Index row0) {
  for (int i = static_cast<int>(threadIdx.x); i < kCount * kHeadDim; i += kThreads) {
    const int row = i / kHeadDim, column = i % kHeadDim;
    const bool exists = row0 + row < from.extent(2) && column < from.extent(3);
    to[row][column] = exists ? double{from(b, h, row0 + row, column)} : 0;
  }
}

// dK and dV of all marked keys and heads, or dQ of all marked heads.
template <int kHeadDim, bool kOfKeys>
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(AttentionBackward<float> pass, Workspace work, RowNumbers exact,
                     Exceptions exceptions, float scale) {
  using Memory = Shared<kHeadDim, kOfKeys>;
  FLASH_DYNAMIC_SHARED(Memory, shared);
  constexpr int kRows = Memory::kRows, kOwn = Memory::kOwn, kColumns = kHeadDim / kWarpSize,
                kGradients = kOfKeys ? 2 : 1;
  let_next_kernel_begin();
  wait_for_kernel_before();
  if (exceptions.any[kOfKeys] == 0) return;
  const AttentionShape shape = pass.shape();
  const bool causal = pass.options.causal;
  const Index own_rows = kOfKeys ? shape.keys : shape.queries, tiles = (own_rows + kOwn - 1) / kOwn;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;

  for (Index tile = blockIdx.x; tile < work.heads * tiles; tile += gridDim.x) {
    const Index head = tile / tiles, row0 = tile % tiles * kOwn, b = head / shape.heads,
                h = head % shape.heads, my_row0 = row0 + warp * kRows;
    const bool all = exceptions.heads[head] != 0;
    static_assert(!kOfKeys || kOwn == Exceptions::kKeys);
    if (!all && (!kOfKeys || exceptions.keys[tile] == 0)) continue;
    __syncthreads();  // nobody reads the own rows before any more
    load_rows<kHeadDim>(shared->own[0], kOfKeys ? pass.k : pass.q, b, h, row0);
    load_rows<kHeadDim>(shared->own[1], kOfKeys ? pass.v : pass.d_out, b, h, row0);

    // use(S, dP, s0): the scores of the warp's rows with row s0 + lane of the other side, -inf
    // where nothing is seen.
    const auto stream = [&](auto use) {
      const Index begin = kOfKeys && causal ? row0 / kStep * kStep : 0,
                  last = row0 + kOwn < own_rows ? row0 + kOwn - 1 : own_rows - 1,
                  end = kOfKeys ? shape.queries : shape.visible_keys(last, causal);
      for (Index s0 = begin; s0 < end; s0 += kStep) {
        __syncthreads();  // nobody reads the step before any more
        load_rows<kHeadDim>(shared->streamed[0], kOfKeys ? pass.q : pass.k, b, h, s0);
        load_rows<kHeadDim>(shared->streamed[1], kOfKeys ? pass.d_out : pass.v, b, h, s0);
        __syncthreads();
        double S[kRows] = {}, dP[kRows] = {};
        for (int c = 0; c < kHeadDim; c += 2) {
          const auto two = [&](const auto& rows, int row) {
            return *reinterpret_cast<const double2*>(&rows[row][c]);
          };
          const double2 x = two(shared->streamed[0], lane), y = two(shared->streamed[1], lane);
          FLASH_UNROLL
          for (int r = 0; r < kRows; ++r) {
            const double2 u = two(shared->own[0], warp * kRows + r),
                          w = two(shared->own[1], warp * kRows + r);
            S[r] += u.x * x.x + u.y * x.y;
            dP[r] += w.x * y.x + w.y * y.y;
          }
        }
        FLASH_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const Index own = my_row0 + r, other = s0 + lane, key = kOfKeys ? own : other,
                      query = kOfKeys ? other : own;
          const bool sees = key < shape.keys && query < shape.queries && (!causal || key <= query);
          S[r] = sees ? S[r] * scale : -INFINITY;
        }
        use(S, dP, s0);
      }
    };

    double lse[kRows] = {}, delta[kRows] = {};  // of the own queries
    if constexpr (!kOfKeys) {
      double m[kRows], l[kRows] = {}, sum[kRows] = {}, largest_k = 0;  // sum: of exp(S - m) dP
      FLASH_UNROLL
      for (int r = 0; r < kRows; ++r) m[r] = -INFINITY;
      stream([&](const double(&S)[kRows], const double(&dP)[kRows], Index) {
        double k_squared = 0;
        for (int c = 0; c < kHeadDim; ++c)
          k_squared += shared->streamed[0][lane][c] * shared->streamed[0][lane][c];
        largest_k = fmax(largest_k, sqrt(k_squared));
        FLASH_UNROLL
        for (int r = 0; r < kRows; ++r) {
          if (S[r] == -INFINITY) continue;
          const double m_new = fmax(m[r], S[r]), before = exp(m[r] - m_new),
                       now = exp(S[r] - m_new);
          l[r] = l[r] * before + now;
          sum[r] = sum[r] * before + now * dP[r];
          m[r] = m_new;
        }
      });
      for (int distance = 1; distance < kWarpSize; distance *= 2) {
        largest_k = fmax(largest_k, __shfl_xor_sync(kAllLanes, largest_k, distance));
        FLASH_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const double m_new = fmax(m[r], __shfl_xor_sync(kAllLanes, m[r], distance)),
                       mine = m[r] == m_new ? 1 : exp(m[r] - m_new);
          l[r] *= mine;
          sum[r] *= mine;
          l[r] += __shfl_xor_sync(kAllLanes, l[r], distance);
          sum[r] += __shfl_xor_sync(kAllLanes, sum[r], distance);
          m[r] = m_new;
        }
      }
      // The lse of the pass may be of more keys than these. But what it may be off by as a float32,
      // with scores that a forward pass computed in float32, comes from here.
      FLASH_UNROLL
      for (int r = 0; r < kRows; ++r) {
        double q_squared = 0;
        for (int c = 0; c < kHeadDim; ++c) {
          const double q = shared->own[0][warp * kRows + r][c];
          q_squared += q * q;
        }
        const Index row = head * work.rows + my_row0 + r;
        const double given = work.lse[row], mine = m[r] + log(l[r]),
                     off = 0x1p-19 * fabs(scale) * sqrt(q_squared) * largest_k +
                           0x1p-21 * (1 + fabs(mine));
        const bool is_mine = l[r] > 0 && fabs(given - mine) <= off;
        lse[r] = is_mine ? mine : given;
        delta[r] = is_mine ? sum[r] / l[r] : work.delta[row];
        if (lane == 0 && my_row0 + r < own_rows) {
          exact.lse[row] = lse[r];
          exact.delta[row] = delta[r];
        }
      }
    }

    double D[kGradients][kRows][kColumns] = {};
    stream([&](const double(&S)[kRows], const double(&dP)[kRows], Index s0) {
      auto& weights = shared->weights[warp];
      double lse_here = 0, delta_here = 0;
      if (kOfKeys) {
        const Index row = head * work.rows + s0 + lane;
        lse_here = all && s0 + lane < shape.queries ? exact.lse[row] : work.lse[row];
        delta_here = all && s0 + lane < shape.queries ? exact.delta[row] : work.delta[row];
      }
      FLASH_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const double P = exp(S[r] - (kOfKeys ? lse_here : lse[r]));
        weights[lane][r] = P * (dP[r] - (kOfKeys ? delta_here : delta[r]));
        weights[lane][kRows + r] = P;
      }
      __syncwarp();
      for (int s = 0; s < kStep; ++s) {
        FLASH_UNROLL
        for (int g = 0; g < kGradients; ++g) {
          FLASH_UNROLL
          for (int k = 0; k < kColumns; ++k) {
            const double x = shared->streamed[g][s][lane + k * kWarpSize];
            FLASH_UNROLL
            for (int r = 0; r < kRows; ++r) D[g][r][k] += weights[s][g * kRows + r] * x;
          }
        }
      }
      // The barrier of the next step lies between these reads and the next writes.
    });
    const auto store = [&](const TensorView<float, 4>& to, const double(&X)[kRows][kColumns],
                           double factor) {
      FLASH_UNROLL
      for (int r = 0; r < kRows; ++r) {
        FLASH_UNROLL
        for (int k = 0; k < kColumns; ++k) {
          const int column = lane + k * kWarpSize;
          if (my_row0 + r < own_rows && column < to.extent(3))
            to(b, h, my_row0 + r, column) = static_cast<float>(X[r][k] * factor);
        }
      }
    };
    store(kOfKeys ? pass.d_k : pass.d_q, D[0], scale);
    if constexpr (kOfKeys) store(pass.d_v, D[1], 1);
  }
}

// Enqueues one of the two kernels.
template <int kHeadDim, bool kOfKeys>
void start(const AttentionBackward<float>& pass, const Workspace& work, const RowNumbers& exact,
           const Exceptions& exceptions, float scale) {
  launch("float64", gradients_kernel<kHeadDim, kOfKeys>,
         {.grid = grid_size(device::multiprocessors()),
          .block = kThreads,
          .shared_bytes = sizeof(Shared<kHeadDim, kOfKeys>),
          .stream = pass.stream,
          .begins_early = true},
         pass, work, exact, exceptions, scale);
}

}  // namespace float64
}  // namespace flash::gradients
