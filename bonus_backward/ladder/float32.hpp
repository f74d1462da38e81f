// What rung 9 computes before its main kernel: the planes of Q, dO, K and V, bounds for dS, and
// marks of the heads that float64.hpp computes.
#pragma once

#include "bonus_backward/ladder/float64.hpp"
#include "part3_flash_cuda/ladder/planes.hpp"

namespace flash::gradients {

// The planes of a side's two tensors, for tiles of as many rows as a kernel takes together.
struct Side {
  Half *first, *second;                 // Q and dO, or K and V: (heads, planes, rows, head_dim)
  float *first_factor, *second_factor;  // (heads, tiles): what a number of the planes is worth
  int tiles;                            // of a head
};

struct Memory {
  Workspace work;  // lse not in base 2
  Side queries, keys;
  float2* row_bounds;  // (heads, tiles of queries): the largest |dO_i| and |delta_i|
  float* v_norms;      // (heads, tiles of keys): the largest |V_j|
  Exceptions exceptions;
  float64::RowNumbers exact;
};

// Shares out the workspace; without memory it counts bytes.
template <class C>
std::size_t share_out(Memory& memory, void* workspace, const AttentionShape& shape) {
  planes::Workspace space{static_cast<char*>(workspace)};
  memory.work.heads = shape.batch * shape.heads;
  memory.work.rows = (shape.queries + C::kBlockQ - 1) / C::kBlockQ * C::kBlockQ;
  const Index heads = memory.work.heads, rows = heads * memory.work.rows;
  const auto take = [&](Side& side, Index of_side, int rows_of_tile) {
    side.tiles = static_cast<int>((of_side + rows_of_tile - 1) / rows_of_tile);
    const Index size = C::kPlanes * heads * of_side * shape.head_dim;
    side.first = space.take<Half>(size);
    side.second = space.take<Half>(size);
    side.first_factor = space.take<float>(heads * side.tiles);
    side.second_factor = space.take<float>(heads * side.tiles);
  };
  take(memory.queries, shape.queries, C::kBlockQ);
  take(memory.keys, shape.keys, C::kBlockK);
  Exceptions& exceptions = memory.exceptions;
  exceptions.any = space.take<unsigned>(exceptions.count(shape));
  exceptions.heads = exceptions.any + 2;
  exceptions.keys = exceptions.heads + heads;
  memory.work.lse = space.take<float>(rows);
  memory.work.delta = space.take<float>(rows);
  memory.work.sums = space.take<float>(rows * C::kHeadDim);
  memory.row_bounds = space.take<float2>(heads * memory.queries.tiles);
  memory.v_norms = space.take<float>(heads * memory.keys.tiles);
  memory.exact = {space.take<double>(rows), space.take<double>(rows)};
  return space.used;
}

// blockIdx.y is 0 to 3 for Q, dO, K and V; a block has a tile.
template <class C>
__global__ void __launch_bounds__(kSplitThreads)
    split_kernel(AttentionBackward<float> pass, Memory memory) {
  let_next_kernel_begin();
  __shared__ float scratch[kSplitThreads / kWarpSize];
  const AttentionShape shape = pass.shape();
  const bool is_query = blockIdx.y < 2, is_first = blockIdx.y % 2 == 0;
  const Side& side = is_query ? memory.queries : memory.keys;
  const int heads = static_cast<int>(shape.batch * shape.heads),
            most = static_cast<int>(gridDim.x) / heads, head = static_cast<int>(blockIdx.x) / most,
            tile = static_cast<int>(blockIdx.x) % most;
  if (tile >= side.tiles) return;
  const auto split_rows = [&]<int kRows>(std::integral_constant<int, kRows>) {
    using Tile = planes::LoadedTile<C, kRows>;
    constexpr int kLanes = Tile::kLanes;
    const Index b = head / shape.heads, h = head % shape.heads;
    const Tile rows(is_query ? (is_first ? pass.q : pass.d_out) : (is_first ? pass.k : pass.v), b,
                    h, tile);
    const float power = rows.power(scratch);
    const int thread = static_cast<int>(threadIdx.x), at = head * side.tiles + tile;
    if (thread == 0) (is_first ? side.first_factor : side.second_factor)[at] = factor_of(power);

    if (!is_first) {  // dO or V
      float norm = 0, most_delta = 0;
      FLASH_UNROLL
      for (int n = 0; n < Tile::kFours; ++n) {
        const float4& y = rows.four[n];
        // Scaled, so that squares do not overflow.
        const float4 z = {y.x * power, y.y * power, y.z * power, y.w * power};
        norm = fmaxf(norm, warp_sum<kLanes>(z.x * z.x + z.y * z.y + z.z * z.z + z.w * z.w));
        if (!is_query) continue;
        const int row = rows.row(n);
        const float4 out = planes::load_four(pass.out, b, h, row, rows.column);
        const float delta = warp_sum<kLanes>(y.x * out.x + y.y * out.y + y.z * out.z + y.w * out.w);
        most_delta = fmaxf(most_delta, fabsf(delta));
        const Index place = head * memory.work.rows + row;
        if (rows.column == 0) {
          const float lse = row < rows.rows ? pass.lse(b, h, row) : -INFINITY;
          memory.work.lse[place] = lse == -INFINITY ? INFINITY : lse;
          memory.work.delta[place] = delta;
        }
        *reinterpret_cast<float4*>(memory.work.sums + place * C::kHeadDim + rows.column) = float4{};
      }
      norm = sqrtf(block_max<kSplitThreads>(norm, scratch)) * factor_of(power);
      if (is_query) {
        most_delta = block_max<kSplitThreads>(most_delta, scratch);
        if (thread == 0) memory.row_bounds[at] = {norm, most_delta};
      } else if (thread == 0) {
        memory.v_norms[at] = norm;
      }
    }
    if (rows.loses_digits(power, scratch) && thread == 0) memory.exceptions.add_head(head);
    rows.store(
        (is_first ? side.first : side.second) + Index{head} * C::kPlanes * rows.rows * rows.columns,
        power);
  };
  if (is_query)
    split_rows(std::integral_constant<int, C::kBlockQ>());
  else
    split_rows(std::integral_constant<int, C::kBlockK>());
}

}  // namespace flash::gradients
