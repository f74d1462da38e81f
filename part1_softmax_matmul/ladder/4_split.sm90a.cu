// Rung 4: float32 on tensor cores, each number as two of 16 bits.
//
// New: the weights P and the values V are split into planes of fp16, high and low
// (common/cuda/split.hpp), and P V is three products of planes on wgmma: low * high, high * low and
// high * high. Each takes a fifteenth of the time of float32 multiply-adds, so all three take a
// fifth of it. V is split beforehand by a kernel of its own, since 16 blocks of rows read it; P in
// registers, where its exponentials are computed.
//
// What keeps float32's precision: a tensor core adds with 24 bits and cuts off the rest, always
// towards zero. A sum over thousands of keys drifts: 2e-5 at 4096. So the sums of 64 keys start
// from zero, and are added to O by the ordinary units, which round. V's scale, a power of two for
// 64 keys and 64 columns, comes in with the same multiply-add.
//
// A thread block stays, and takes one tile of the output after the other, 128 rows x 256 columns.
// TMA brings X to shared memory three steps ahead, and V two. Two warpgroups own 64 rows each; O
// alone takes 128 registers a thread. So a step multiplies 64 columns at a time, and in the
// meantime computes weights of the next step. Weights are relative to a maximum that stays as long
// as it will do, as in rung 3.
//
// The bottleneck: power. wgmma alone, without a softmax or a copy, takes 1.07 ms for 8192 keys;
// this kernel takes 1.25, at a clock of 1.5 GHz in place of 1.98, and the split of V 0.14. Measured
// on an H200 (16 x 2048 rows, 512 columns, together with the split): 1.39 ms for 8192 keys, 4.7
// times as fast as PyTorch's unfused functions; 1024 keys: 0.202 ms, 3.8 times; 256 keys: 0.072
// ms, 3.0 times. From 1024 keys on the error is 0.2 to 0.4 of PyTorch's (relative, Frobenius).
// Without TMA for X, by threads that copied, it was 1.5 times as slow. Warpgroups that take turns
// at the tensor cores, slabs of 128 columns, and two sums in flight were not faster.
#include <algorithm>

#include "common/cuda/async_copy.hpp"
#include "common/cuda/configurations.hpp"
#include "common/cuda/shared_address.hpp"
#include "common/cuda/tma.hpp"
#include "common/cuda/warpgroup.hpp"
#include "common/cuda/wgmma.hpp"
#include "common/registry.hpp"
#include "part1_softmax_matmul/ladder/split_softmax.hpp"

namespace flash::fused_split {
namespace {

constexpr int kXStages = 3;           // steps of X in shared memory
constexpr int kVStages = 2 * kSlabs;  // slabs of V in shared memory
constexpr int kThreads = 128 * (kGroups + 1);
// The threads that copy X: the first by TMA, or all.
constexpr int kCopiers = kKeys, kFirstCopier = 128 - kCopiers;
constexpr int kPlaneSize = kKeys * kSlab;
constexpr std::size_t kSharedBytes =
    kXStages * kXSize * sizeof(float) + kVStages * 2 * kPlaneSize * sizeof(Half) + 1024;
constexpr int kRegistersToCopy = 24, kRegistersToCompute = 240;

using SplitV = SplitTensor<kKeys, kSlab>;

struct Tile {
  int b, row0, column0;

  __device__ __forceinline__ Tile(unsigned tile, unsigned down, unsigned across) {
    down = unknown(down);
    across = unknown(across);
    b = static_cast<int>(tile / across / down);
    row0 = static_cast<int>(tile / across % down) * kRows;
    column0 = static_cast<int>(tile % across) * kSlab * kSlabs;
  }
};

struct Arguments {
  TensorView<const float, 3> x;
  TensorView<float, 3> out;
  const float* factors;
  unsigned tiles, down, across;  // tiles of the output: in all, of a batch index
  int slabs, last_factor;        // slabs of V's planes; number of the last factor
  bool x_by_tma, out_in_fours;
};

// Where TMA cannot: copies keys key0 to key0 + 63 of a tile's rows; zeros where there are none.
__device__ __forceinline__ void start_copy(float* X, const TensorView<const float, 3>& x,
                                           const Tile& tile, int key0, unsigned copier) {
  FLASH_UNROLL_BY(1)
  for (int row = 0; row < kRows; ++row) {
    const unsigned key = unknown(copier);
    float* const to = X + place_of_four(row, key / 4) + key % 4;
    if (key0 + key < x.extent(2) && tile.row0 + row < x.extent(1))
      cp_async<4>(to, &x(tile.b, tile.row0 + row, key0 + key));
    else
      *to = 0;
  }
}

// Starts sum = P V for a slab: three products, the small ones first.
__device__ __forceinline__ void start_product(float (&sum)[32], const Weights& P,
                                              MatrixDescriptor V) {
  const auto at = [&](int plane, int k) { return V + (plane * kPlaneSize * 2 + k * 2048); };
  wgmma_fence();
  FLASH_UNROLL
  for (int k = 0; k < kKeys / 16; ++k) wgmma<kSlab, Half, true>(sum, P.low[k], at(0, k), k > 0);
  FLASH_UNROLL
  for (int k = 0; k < kKeys / 16; ++k) wgmma<kSlab, Half, true>(sum, P.high[k], at(1, k), true);
  FLASH_UNROLL
  for (int k = 0; k < kKeys / 16; ++k) wgmma<kSlab, Half, true>(sum, P.high[k], at(0, k), true);
  wgmma_commit();
}

__device__ __forceinline__ void store(const Rows& rows, const Arguments& a, const Tile& tile,
                                      unsigned first) {
  first = unknown(first);
  const int row = static_cast<int>(row_of(first)), t = static_cast<int>(quad_of(first));
  FLASH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const float l = warp_sum<4>(rows.l[half]), inverse = l == 0 ? 0 : kMost / l;
    const int i = tile.row0 + row + 8 * half;
    const bool inside = i < a.out.extent(1);
    float* const to = inside ? &a.out(tile.b, i, 0) : nullptr;
    FLASH_UNROLL
    for (int c = 0; c < kSlabs; ++c) FLASH_UNROLL
    for (int n = 0; n < 8; n += 2) {
      // Neighbouring threads exchange two columns, so that each has four in a row.
      const float* const here = &rows.O[c][4 * n + 2 * half];
      const bool odd = t % 2 != 0;
      const float give[2] = {odd ? here[0] : here[4], odd ? here[1] : here[5]},
                  keep[2] = {odd ? here[4] : here[0], odd ? here[5] : here[1]},
                  got[2] = {__shfl_xor_sync(kAllLanes, give[0], 1),
                            __shfl_xor_sync(kAllLanes, give[1], 1)};
      const float four[4] = {(odd ? got[0] : keep[0]) * inverse, (odd ? got[1] : keep[1]) * inverse,
                             (odd ? keep[0] : got[0]) * inverse,
                             (odd ? keep[1] : got[1]) * inverse};
      const int column = tile.column0 + c * kSlab + 8 * (n + t % 2) + t / 2 * 4;
      if (!inside) continue;
      if (a.out_in_fours) {
        if (column < a.out.extent(2))
          *reinterpret_cast<float4*>(to + column) = {four[0], four[1], four[2], four[3]};
      } else {
        FLASH_UNROLL
        for (int j = 0; j < 4; ++j)
          if (column + j < a.out.extent(2)) to[(column + j) * a.out.stride(2)] = four[j];
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    fused_split_kernel(const __grid_constant__ TensorMap x_map,
                       const __grid_constant__ TensorMap v_map,
                       const __grid_constant__ Arguments a) {
  __shared__ Barrier X_full[kXStages], X_empty[kXStages], V_full[kVStages], V_empty[kVStages];
  FLASH_DYNAMIC_SHARED(Half, shared);
  Half* const V_smem = align_to_1024(shared);
  float* const X_smem = reinterpret_cast<float*>(V_smem + kVStages * 2 * kPlaneSize);
  const int d2 = static_cast<int>(a.x.extent(2)), steps = (d2 + kKeys - 1) / kKeys;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kXStages; ++stage) {
      init(X_full[stage], a.x_by_tma ? 1 : kCopiers);
      init(X_empty[stage], a.x_by_tma ? 4 * kGroups : 128 * kGroups);
    }
    for (int stage = 0; stage < kVStages; ++stage) {
      init(V_full[stage], 1);
      init(V_empty[stage], kGroups);
    }
    fence_barrier_init();
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    give_registers<kRegistersToCopy>();
    // Calls act(tile, key0, s) for each step of the block's tiles; s counts them all.
    const auto each_step = [&](auto act) {
      unsigned s = 0;
      for (unsigned i = blockIdx.x; i < a.tiles; i += unknown(gridDim.x)) {
        const Tile tile(i, a.down, a.across);
        for (int key0 = 0; key0 < d2; key0 += kKeys, ++s) act(tile, key0, s);
      }
    };
    const int copier = static_cast<int>(threadIdx.x) - kFirstCopier;
    if (threadIdx.x == 0) {
      wait_for_kernel_before();
      each_step([&](const Tile& tile, int key0, unsigned s) {
        FLASH_UNROLL_BY(1)
        for (int c = 0; c < kSlabs; ++c) {
          const unsigned stage = s % 2 * kSlabs + c;
          wait(V_empty[stage], s / 2 % 2 ^ 1);
          arrive_expecting(V_full[stage], 2 * kPlaneSize * 2);
          for (int plane = 0; plane < 2; ++plane)
            tma_load(V_smem + (2 * stage + plane) * kPlaneSize, v_map, V_full[stage],
                     tile.column0 + c * kSlab, key0, tile.b, plane);
        }
      });
    } else if (copier == 0 && a.x_by_tma) {  // X is older than the split of V: no wait for it
      each_step([&](const Tile& tile, int key0, unsigned s) {
        const unsigned stage = s % kXStages;
        wait(X_empty[stage], s / kXStages % 2 ^ 1);
        arrive_expecting(X_full[stage], kXSize * 4);
        for (int slab = 0; slab < 2; ++slab)
          tma_load(X_smem + stage * kXSize + slab * kXSize / 2, x_map, X_full[stage],
                   key0 + 32 * slab, tile.row0, 0, tile.b);
      });
    } else if (copier >= 0 && !a.x_by_tma) {
      each_step([&](const Tile& tile, int key0, unsigned s) {
        const unsigned stage = s % kXStages;
        wait(X_empty[stage], s / kXStages % 2 ^ 1);
        start_copy(X_smem + stage * kXSize, a.x, tile, key0, static_cast<unsigned>(copier));
        cp_async_commit();
        cp_async_wait<0>();
        arrive(X_full[stage]);
      });
    }
    return;
  }

  take_registers<kRegistersToCompute>();
  wait_for_kernel_before();
  const unsigned thread = threadIdx.x - 128, lane = thread % kWarpSize;
  const unsigned first = place_of_four(thread / kWarpSize * 16 + lane / 4, lane % 4 * 2);
  const MatrixDescriptor V0 = matrix_descriptor(V_smem, kPlaneSize * 2, 1024);
  unsigned s = 0;  // counts steps
  for (unsigned i = blockIdx.x; i < a.tiles; i += unknown(gridDim.x)) {
    const Tile tile(i, a.down, a.across);
    int next_factor = tile.b * steps * a.slabs + tile.column0 / kSlab;
    Rows rows;
    Scores scores{};
    Weights P;
    const auto X_of = [&](unsigned step) { return X_smem + step % kXStages * kXSize; };
    const auto take = [&](unsigned step) {
      rows.l[0] += scores.sum[0];
      rows.l[1] += scores.sum[1];
      P.set(scores);
      __syncwarp();
      // Lane 0 for its warp. Where threads copy, each arrives for itself, since racecheck does not
      // see that __syncwarp() orders the others' reads before lane 0's arrival.
      if (lane == 0 || !a.x_by_tma) arrive(X_empty[step % kXStages]);
    };
    if (steps > 0) {
      wait(X_full[s % kXStages], s / kXStages % 2);
      weigh_anew(scores, rows, X_of(s), first, d2);
      take(s);
    }
    for (int left = d2; left > 0; left -= kKeys, ++s, next_factor += a.slabs) {
      const bool more = left > kKeys;
      const float* const X = X_of(s + 1);
      FLASH_UNROLL
      for (int c = 0; c < kSlabs; ++c) {
        const unsigned stage = s % 2 * kSlabs + c;
        const float factor = a.factors[min(next_factor + c, a.last_factor)] / kMost;
        wait(V_full[stage], s / 2 % 2);
        float sum[32];
        start_product(sum, P, V0 + static_cast<int>(stage * 2 * kPlaneSize * 2));
        if (c > 0 && more) {
          if (c == 1) wait(X_full[(s + 1) % kXStages], (s + 1) / kXStages % 2);
          scores.load(X, first, c - 1);
          scores.weigh(c - 1, rows.reference);
        }
        wgmma_wait<0>();
        if (thread % 128 == 0) arrive(V_empty[stage]);
        FLASH_UNROLL
        for (int j = 0; j < 32; ++j) rows.O[c][j] = fmaf(sum[j], factor, rows.O[c][j]);
      }
      if (!more) continue;
      scores.load(X, first, kSlabs - 1);
      scores.weigh(kSlabs - 1, rows.reference);
      if (left < 2 * kKeys || !scores.fit()) weigh_anew(scores, rows, X, first, left - kKeys);
      take(s + 1);
    }
    store(rows, a, tile, first);
  }
}

Shape<4> shape_of_v(const SoftmaxMatmulShape& shape) {
  return {shape.batch, 1, shape.d2, shape.d3};
}

void fused_split(const SoftmaxMatmul<float>& pass, PassMemory& memory) {
  const SoftmaxMatmulShape shape = check_softmax_matmul(pass);
  const auto [batch, d1, d2, d3] = shape;
  const SplitV planes(memory.workspace, shape_of_v(shape));
  const auto& v = pass.v;
  split_tensor<RowsOfWeights>(
      TensorView<const float, 4>(v.data(), shape_of_v(shape),
                                 {v.stride(0), 0, v.stride(1), v.stride(2)}),
      planes, pass.stream);
  const Index down = (d1 + kRows - 1) / kRows,
              across = (d3 + kSlab * kSlabs - 1) / (kSlab * kSlabs), tiles = batch * down * across;
  const auto& x = pass.x;
  const bool x_by_tma = rows_in_chunks(x, 4);
  const TensorMap v_map = tensor_map(planes.view(), kKeys);
  const TensorMap x_map =
      x_by_tma ? tensor_map(TensorView<const float, 4>(x.data(), {batch, 1, d1, d2},
                                                       {x.stride(0), 0, x.stride(1), x.stride(2)}),
                            kRows)
               : v_map;
  const Arguments arguments{.x = pass.x,
                            .out = pass.out,
                            .factors = planes.factors(),
                            .tiles = grid_size(tiles).x,
                            .down = static_cast<unsigned>(down),
                            .across = static_cast<unsigned>(across),
                            .slabs = static_cast<int>(planes.columns / kSlab),
                            .last_factor = static_cast<int>(planes.tiles()) - 1,
                            .x_by_tma = x_by_tma,
                            .out_in_fours = d3 % 4 == 0 && rows_in_chunks(pass.out, 4)};
  launch("fused_split", fused_split_kernel,
         {.grid = grid_size(std::min<Index>(tiles, device::multiprocessors())),
          .block = kThreads,
          .shared_bytes = kSharedBytes,
          .stream = pass.stream,
          .begins_early = true},
         x_map, v_map, arguments);
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.softmax_matmul.add(
      {.name = name,
       .device = DeviceKind::kGpu,
       .run = {.float32 = fused_split},
       .unsupported = [](const SoftmaxMatmulProblem&) { return why_not_hopper(); },
       .workspace_bytes =
           [](const SoftmaxMatmulProblem& problem) {
             return SplitV(nullptr, shape_of_v(problem.shape)).bytes();
           }});
}

}  // namespace flash::fused_split
