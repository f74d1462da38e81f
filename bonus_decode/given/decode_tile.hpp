// Given: how a thread block of the decoding kernel is cut up, how it loads keys and values, and
// where the parts lie.
//
// A thread block has the keys of one part, of one sequence and one kv head, for all of the group's
// rows of q. It loads them a tile at a time. A lane has 8 columns, so head_dim / 8 neighbouring
// lanes (kLanes) have a key, and a warp has kKeysOfWarp keys at a time. A warp has 4 of the rows.
// Where there are more rows, the warps are divided into groups of rows; a row's keys are then
// shared by fewer warps. Each group of lanes has sums of its own, over the keys that it has seen.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "bonus_decode/given/problems.hpp"
#include "common/cuda/async_copy.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/warp.hpp"

namespace flash::decode {

// The parts of all rows: row (b * heads + h) * queries + i is query i of head h.
struct Parts {
  TensorView<float, 3> out;  // (rows, parts, head_dim)
  TensorView<float, 2> lse;  // (rows, parts)

  FLASH_HOST_DEVICE int per_sequence() const { return static_cast<int>(out.extent(1)); }
};

template <class T_, int kHeadDim_>
struct Config {
  using T = T_;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kWarps = 8, kThreads = kWarps * kWarpSize;
  static constexpr int kRows = 4, kColumns = 8;       // of a thread
  static constexpr int kLanes = kHeadDim / kColumns;  // of a key
  static constexpr int kKeysOfWarp = kWarpSize / kLanes;
  static constexpr int kTileBytes = 16384;  // of K, and as many of V
  static constexpr int kStages = 2;
  static constexpr int kKeys = kTileBytes / (kHeadDim * static_cast<int>(sizeof(T)));  // of a tile
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));  // elements of 16 bytes
  // The tiles: all that a thread block has on Turing. After the last tile the sums of all groups of
  // lanes take their place, and m and l, a float of each group of lanes for each row.
  static constexpr int kSums = kThreads * kRows;  // rows of q times groups of lanes, times kLanes
  static constexpr std::size_t kSharedBytes = kStages * 2 * kTileBytes;
  static_assert((kSums * kColumns + 2 * kSums / kLanes) * sizeof(float) <= kSharedBytes);
};

// The column of value n of a lane.
template <class C>
__device__ __forceinline__ int column_of(int lane, int n) {
  return n / C::kChunk * (C::kLanes * C::kChunk) + lane * C::kChunk + n % C::kChunk;
}

// Where a thread stands.
template <class C>
struct Thread {
  int lane = static_cast<int>(threadIdx.x) % C::kLanes;  // among the kLanes of its key
  int row_groups = 1;                                    // of 4 rows: 1, 2, 4 or 8
  int first_row, first_key;  // its first row of q, and its first key in a tile
  int keys_at_once;          // keys of a tile that all warps of the row have at a time

  __device__ explicit Thread(int rows) {
    while (row_groups * C::kRows < rows) row_groups *= 2;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    first_row = warp % row_groups * C::kRows;
    first_key =
        warp / row_groups * C::kKeysOfWarp + static_cast<int>(threadIdx.x) % kWarpSize / C::kLanes;
    keys_at_once = C::kWarps / row_groups * C::kKeysOfWarp;
  }
  __device__ int column(int n) const { return column_of<C>(lane, n); }
  // Where group `key` of lanes, 0 to keys_at_once - 1 (their first_key), keeps its sums of a row of
  // the thread block.
  __device__ int place(int key, int row) const { return key * row_groups * C::kRows + row; }
};

// A key's row in the cache and the value's, head_dim elements each.
template <class T>
struct KeyValue {
  const T* k;
  const T* v;
};

// Starts to copy the keys and values 0 to keys - 1 of a tile; the rows behind them become 0.
// find(j) says where key j lies; each thread asks for one key, of which it copies 4 chunks of 16
// bytes.
template <class C, class Find>
__device__ __forceinline__ void start_tile(typename C::T* K_smem, typename C::T* V_smem, int keys,
                                           Find find) {
  constexpr int kThreadsOfKey = C::kThreads / C::kKeys, kChunks = 4;
  static_assert(kThreadsOfKey * kChunks * C::kChunk == C::kHeadDim);
  const int j = static_cast<int>(threadIdx.x) / kThreadsOfKey;
  if (keys > 0) {
    const KeyValue<typename C::T> row = find(j < keys ? j : 0);
    FLASH_UNROLL
    for (int n = 0; n < kChunks; ++n) {
      // Neighbouring keys in another order: their rows may begin in the same bank.
      const int c =
          ((n + j) % kChunks * kThreadsOfKey + static_cast<int>(threadIdx.x) % kThreadsOfKey) *
          C::kChunk;
      cp_async_16(K_smem + j * C::kHeadDim + c, row.k + c, j < keys ? 16 : 0);
      cp_async_16(V_smem + j * C::kHeadDim + c, row.v + c, j < keys ? 16 : 0);
    }
  }
  cp_async_commit();
}

// Waits for the thread's own copies; those of other threads are there after a __syncthreads().
__device__ __forceinline__ void wait_for_tile() { cp_async_wait<0>(); }

// The thread's columns of a row of a tile.
template <class C>
__device__ __forceinline__ void load_columns(float (&x)[C::kColumns], const typename C::T* row_smem,
                                             const Thread<C>& thread) {
  FLASH_UNROLL
  for (int n = 0; n < C::kColumns; n += C::kChunk) {
    const uint4 chunk = *reinterpret_cast<const uint4*>(row_smem + thread.column(n));
    const auto* const elements = reinterpret_cast<const typename C::T*>(&chunk);
    FLASH_UNROLL
    for (int i = 0; i < C::kChunk; ++i) x[n + i] = to_float(elements[i]);
  }
}

// The sums o of a group of lanes are kHeadDim floats in shared memory, in an order without bank
// conflicts. store_sums() stores the thread's; column_of_sum(p) is the column of number p.
template <class C>
__device__ __forceinline__ void store_sums(float* sums, const float (&o)[C::kColumns],
                                           const Thread<C>& thread) {
  FLASH_UNROLL
  for (int n = 0; n < C::kColumns; n += 4)
    *reinterpret_cast<float4*>(sums + n * C::kLanes + thread.lane * 4) =
        float4{o[n], o[n + 1], o[n + 2], o[n + 3]};
}
template <class C>
__device__ __forceinline__ int column_of_sum(int p) {
  return column_of<C>(p % (4 * C::kLanes) / 4, p / (4 * C::kLanes) * 4 + p % 4);
}

// Throws Unsupported where the kernels do not take the problem.
template <class T>
void check_taken(const Decode<T>& pass) {
  check_supported(why_not(pass.shape()));
  for (const auto& [name, cache] : {std::pair{"k", &pass.k}, {"v", &pass.v}})
    if (!rows_in_chunks(*cache, 16 / static_cast<Index>(sizeof(T))))
      throw Unsupported(std::string(name) +
                        " has rows with gaps, or rows that begin at no multiple of 16 bytes");
}

// Calls use(Config<T, head_dim>()).
template <class T, class Use>
void with_config(Index head_dim, Use use) {
  if (head_dim == 64) use(Config<T, 64>());
  if (head_dim == 128) use(Config<T, 128>());
  if (head_dim == 256) use(Config<T, 256>());
}

}  // namespace flash::decode
