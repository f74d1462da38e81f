// Step 9 of the ladder: a block stays, and takes one tile of the work after the other.
//
// New: as many blocks as the GPU has multiprocessors, and each draws its next tile from a counter
// in device memory. So the copying thread loads the next tile's Q, K and V while the others still
// finish this one. O leaves by TMA as well: each warp puts its rows into the memory of the tile's
// Q, which nobody reads any more. There are two such buffers, so that the next Q need not wait for
// that; heads of 256 have room for one only.
//
// With a causal mask tiles differ in length, and the counter gives the next one to whoever is free.
// With fixed tiles for each block it was 16 % slower (4096 keys: 548 TFLOP/s instead of 652). Long
// tiles come first, among as many heads as find room for K and V in the L2 cache. The keys are
// taken from the last to the first, so that only a tile's first steps are masked.
//
// Short sequences of heads of 64 get four warpgroups and steps of 64 keys: 1024 queries are 4 tiles
// of 256, but 5 1/3 of 192. With a causal mask, warpgroups there skip the steps of which they see
// nothing. Elsewhere this costs more than it saves: ptxas then no longer knows that all lanes of a
// warp take the same number of steps, and computes addresses in every lane anew.
//
// The bottleneck: between two tiles the tensor cores wait, for the last rows of one and the first
// softmax of the next. That takes as long as one more step, with a mask as two; a tile of 1024 keys
// has 8 steps, or with a mask 4.5 on average.
// Measured on an H200 (bfloat16, 16 heads of 128, 4096 keys): 652 TFLOP/s, 1.08 times cuDNN's 603
// in the same run; 16384 keys: 680, 1.09 times; 1024 keys and a mask: 416, 0.97 times. Heads of 64:
// 1.10 to 1.34 times from 4096 keys on, 1.17 and 0.99 times at 1024.
#include <algorithm>

#include "part3_flash_cuda/ladder/warpgroups.hpp"

namespace flash::persistent {
namespace {

using namespace hopper;

// Tiles as in step 8, and kQBuffers of Q. With kSkips, warpgroups skip what they do not see.
template <int HeadDim, int BlockK, int Groups, int Stages, int QBuffers, bool Skips = false>
struct Config : hopper::Config<HeadDim, BlockK, Groups, Stages, 1> {
  using Base = hopper::Config<HeadDim, BlockK, Groups, Stages, 1>;
  static constexpr int kQBuffers = QBuffers;
  static constexpr bool kSkips = Skips;
  static constexpr std::size_t kSharedBytes =
      Base::kSharedBytes + 2 * (QBuffers - 1) * Base::kQSize;
};

// The tiles of a pass. `next` counts those that were drawn after each block's first.
struct Tiles {
  unsigned count;
  int section;
  unsigned* next;
};

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    persistent_kernel(const __grid_constant__ TensorMap q_map,
                      const __grid_constant__ TensorMap k_map,
                      const __grid_constant__ TensorMap v_map,
                      const __grid_constant__ TensorMap out_map, Arguments<T> a, Tiles tiles) {
  constexpr int kNone = -1;
  __shared__ Barrier Q_full[C::kQBuffers], Q_empty[C::kQBuffers], K_full[C::kStages],
      V_full[C::kStages], K_empty[C::kStages], V_empty[C::kStages];
  __shared__ int tile_of[C::kQBuffers];
  FLASH_DYNAMIC_SHARED(T, shared);
  T* const first_tile = align_to_1024(shared);
  const auto Q_smem = [&](unsigned buffer) { return first_tile + buffer * C::kQSize; };
  const auto K_smem = [&](unsigned stage) { return Q_smem(C::kQBuffers) + stage * 2 * C::kKSize; };
  const auto V_smem = [&](unsigned stage) { return K_smem(stage) + C::kKSize; };

  if (threadIdx.x == 0) {
    for (int buffer = 0; buffer < C::kQBuffers; ++buffer) {
      init(Q_full[buffer], 1);
      init(Q_empty[buffer], 4 * C::kGroups);
    }
    for (int stage = 0; stage < C::kStages; ++stage) {
      init(K_full[stage], 1);
      init(V_full[stage], 1);
      init(K_empty[stage], C::kGroups);
      init(V_empty[stage], C::kGroups);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const auto work_of = [&](int tile) {
    return Work(a.shape, a.causal, C::kBlockQ, tile, tiles.section);
  };
  const auto steps_of = [](int keys) { return (keys + C::kBlockK - 1) / C::kBlockK; };
  unsigned s = 0;  // counts the steps of all tiles

  if (threadIdx.x < 128) {
    give_registers<C::kRegistersToCopy>();
    if (threadIdx.x != 0) return;
    unsigned tile = blockIdx.x;
    for (unsigned i = 0;; ++i) {
      const unsigned buffer = i % C::kQBuffers, empty = i / C::kQBuffers % 2 ^ 1;
      if (tile >= tiles.count) {
        wait(Q_empty[buffer], empty);
        tile_of[buffer] = kNone;
        arrive(Q_full[buffer]);
        return;
      }
      const Work work = work_of(static_cast<int>(tile));
      const int last = steps_of(work.some_see) - 1;
      const auto load_Q = [&] {
        wait(Q_empty[buffer], empty);
        tile_of[buffer] = static_cast<int>(tile);
        load_tile<C, C::kBlockQ>(Q_smem(buffer), q_map, Q_full[buffer], work.i0, work);
      };
      if (last < 0) load_Q();
      for (int n = last; n >= 0; --n, ++s) {
        const unsigned stage = s % C::kStages, parity = s / C::kStages % 2;
        wait(K_empty[stage], parity ^ 1);
        load_tile<C, C::kBlockK>(K_smem(stage), k_map, K_full[stage], n * C::kBlockK, work);
        if (n == last) load_Q();
        wait(V_empty[stage], parity ^ 1);
        load_tile<C, C::kBlockK>(V_smem(stage), v_map, V_full[stage], n * C::kBlockK, work);
      }
      tile = gridDim.x + atomicAdd(tiles.next, 1u);
    }
  }

  take_registers<C::kRegistersToCompute>();
  const unsigned thread = threadIdx.x - 128;
  const bool tells = thread % 128 == 0;
  const int group = __shfl_sync(kAllLanes, static_cast<int>(thread / 128), 0);
  const Lane<C> me(thread);
  const Turns<C> turns(static_cast<int>(thread));
  const auto full = [&](Barrier(&barriers)[C::kStages], unsigned step) {
    wait(barriers[step % C::kStages], step / C::kStages % 2);
  };
  const auto release = [&](Barrier(&barriers)[C::kStages], unsigned step) {
    if (tells) arrive(barriers[step % C::kStages]);
  };

  // The memory of tile i's Q is free when TMA has read O there.
  const auto give_back = [&](unsigned i) {
    if (me.lane == 0) {
      tma_wait_read<0>();
      arrive(Q_empty[i % C::kQBuffers]);
    }
  };

  for (unsigned i = 0;; ++i) {
    const unsigned buffer = i % C::kQBuffers;
    wait(Q_full[buffer], i / C::kQBuffers % 2);
    // From one lane: ptxas then knows that what follows is the same in all of them.
    const int tile = __shfl_sync(kAllLanes, tile_of[buffer], 0);
    if (tile == kNone) break;
    const Work work = work_of(tile);
    const int first_row = work.i0 + 64 * group;
    const int all_see = static_cast<int>(a.shape.visible_keys(first_row, a.causal));
    const MatrixDescriptor Q = rows_of(Q_smem(buffer) + group * 64 * 64);
    Rows<C> rows;
    Scores<C> S;
    Weights<C> P;
    const auto QK = [&] { start_QK<C, T>(S, Q, rows_of(K_smem(s % C::kStages))); };
    const auto PV = [&](unsigned step) {
      start_PV<C, T>(rows, P, columns_of<C>(V_smem(step % C::kStages)));
    };
    const auto softmax = [&](int n, bool first) {
      if ((n + 1) * C::kBlockK > all_see)
        mask_scores<C>(S, work.keys, a.causal, work.i0, n * C::kBlockK, me);
      if (!first && softmax_with_old_maximum<C, T>(P, S, rows, a.scale)) return;
      softmax_step<C>(S, rows, a.scale);
      pack_weights<C, T>(P, S);
    };

    // From the last keys to the first: with a causal mask only the first steps are masked.
    int n = steps_of(work.some_see) - 1;
    bool sees = n >= 0;
    if constexpr (C::kSkips) {
      const int queries = static_cast<int>(a.shape.queries);
      const int end = first_row + 64 < queries ? first_row + 64 : queries;
      const int mine =
          end > first_row ? steps_of(static_cast<int>(a.shape.visible_keys(end - 1, a.causal))) : 0;
      for (; n >= mine; --n, ++s) {
        full(K_full, s);
        full(V_full, s);
        turns.begin();
        turns.end();
        release(K_empty, s);
        release(V_empty, s);
      }
      if (mine == 0 && sees) {
        turns.begin();
        turns.end();
        sees = false;
      }
    }
    if (sees) {
      full(K_full, s);
      turns.begin();
      QK();
      turns.end();
      wgmma_wait<0>();
      release(K_empty, s);
      if (C::kQBuffers > 1 && i > 0) give_back(i - 1);
      softmax(n, true);
      for (++s, --n; n >= 0; ++s, --n) {
        full(K_full, s);
        turns.begin();
        QK();
        full(V_full, s - 1);
        PV(s - 1);
        turns.end();
        wgmma_wait<0>();
        release(K_empty, s);
        release(V_empty, s - 1);
        softmax(n, false);
      }
      full(V_full, s - 1);
      turns.begin();
      PV(s - 1);
      turns.end();
      wgmma_wait<0>();
      release(V_empty, s - 1);
    } else if (C::kQBuffers > 1 && i > 0) {
      give_back(i - 1);
    }

    const float inverse[2] = {end_row<C>(0, 0, rows, a.lse, work, a.scale, me),
                              end_row<C>(0, 1, rows, a.lse, work, a.scale, me)};
    FLASH_UNROLL
    for (int c = 0; c < C::kHeadDim / 8; c += 2) {
      std::uint32_t four[4];
      FLASH_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float(&two)[4] = rows.O[0][c + j / 2];
        four[j] = pack<T>(two[j % 2 * 2] * inverse[j % 2], two[j % 2 * 2 + 1] * inverse[j % 2]);
      }
      stmatrix(chunk_of<C::kBlockQ>(Q_smem(buffer), me.first_row + me.lane % 16, c + me.lane / 16),
               four);
    }
    fence_proxy_async();
    __syncwarp();
    if (me.lane == 0) {
      FLASH_UNROLL
      for (int slab = 0; slab < C::kHeadDim / 64; ++slab)
        tma_store(out_map, Q_smem(buffer) + (slab * C::kBlockQ + me.first_row) * 64, 64 * slab,
                  work.i0 + me.first_row, work.h, work.b);
      tma_commit();
    }
    if (C::kQBuffers == 1) give_back(i);
  }
  turns.close();
  if (me.lane == 0) tma_wait<0>();
}

using Long = Table<Config<64, 128, 3, 2, 2>, Config<128, 128, 2, 2, 2>, Config<256, 80, 2, 2, 1>>;
using Short = Table<Config<64, 64, 4, 4, 2>>;
using ShortCausal = Table<Config<64, 64, 4, 4, 2, true>>;

template <class T>
void forward(const AttentionForward<T>& pass, PassMemory& memory) {
  const AttentionShape shape = check_attention(pass);
  check_supported(why_not(problem_of(pass)));
  const auto fits = [&]<class C>(C config) {
    return shape.head_dim <= C::kHeadDim && has_room(config);
  };
  const auto start = [&]<class C>(C) {
    const Index heads = shape.batch * shape.heads,
                count = heads * ((shape.queries + C::kBlockQ - 1) / C::kBlockQ);
    constexpr Index kInCache = 32 << 20;  // of an H200's 50 MB
    const Index section =
        std::clamp<Index>(kInCache / (4 * shape.keys * shape.head_dim + 1), 1, heads);
    const auto next = static_cast<unsigned*>(memory.workspace);
    device::fill_bytes(next, 0, sizeof *next, pass.stream);
    launch("persistent", persistent_kernel<T, C>,
           {.grid = grid_size(std::min<Index>(count, device::multiprocessors())),
            .block = static_cast<unsigned>(C::kThreads),
            .shared_bytes = C::kSharedBytes,
            .stream = pass.stream},
           tensor_map(pass.q, C::kBlockQ), tensor_map(pass.k, C::kBlockK),
           tensor_map(pass.v, C::kBlockK), tensor_map(pass.out, 16),
           Arguments<T>{pass.out, pass.lse, shape,
                        static_cast<float>(attention_scale(pass.options, shape.head_dim) * kLog2E),
                        pass.options.causal},
           Tiles{grid_size(count).x, static_cast<int>(section), next});
  };
  const bool is_short = shape.keys <= 2048;
  const bool done = is_short && (pass.options.causal ? use_first(ShortCausal(), fits, start)
                                                     : use_first(Short(), fits, start));
  if (!done && !use_first(Long(), fits, start)) throw_no_room(shape.head_dim);
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.forward.add({.name = name,
                        .device = DeviceKind::kGpu,
                        .run = {.float16 = forward<Half>, .bfloat16 = forward<BFloat16>},
                        .unsupported = why_not,
                        .workspace_bytes = [](const AttentionProblem&) { return sizeof(unsigned); },
                        .finite_inputs = true});
}

}  // namespace flash::persistent
