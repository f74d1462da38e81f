// Task 3.A: flash attention forward on the GPU, in float32 on the ordinary arithmetic units.
//
// A thread block owns a head, kBlockQ queries and kHeadDim columns of the output; all keys that some of its queries see stream
// past in blocks of kBlockK. Inside the block
//   a warp owns kRowsOfWarp rows of S, P and O: what one of its lanes writes to P_smem no other warp reads;
//   kLanes neighbouring lanes share kRows rows. Of each row a thread has kKeys scores, kColumns columns of O, m and l, all in
//   registers; shuffles over kLanes lanes find the row's maximum;
//   both products read a few vectors of shared memory and multiply each value of one by each of the other: 8 x 8 in the largest
//   tiles, 64 multiply-adds for 4 reads of 16 bytes. Q and K lie transposed, so that the rows of a column are neighbours;
//   common/cuda/tile.hpp copies tiles, and says which rows, keys and columns are whose.
// Everything is scaled by log2(e) at the start: S is in base 2, and exp(s) costs one exp2f.
#include <type_traits>

#include "common/checks.hpp"
#include "common/cuda/device.hpp"
#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/tile.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"

namespace flash {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr float kLn2 = 0.6931471805599453f;

constexpr int kRows = 8;  // rows of a thread

// A configuration, and what follows from it. Shared memory holds floats, whatever the tensors hold. Its rows are 4 or 8 longer
// than need be: then the 32 lanes of a copy of floats, and the lanes that write P, come to 32 different banks.
template <int HeadDim, int BlockQ, int BlockK, int Warps>
struct Config {
  static constexpr int kHeadDim = HeadDim, kBlockQ = BlockQ, kBlockK = BlockK, kWarps = Warps;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kRowsOfWarp = kBlockQ / kWarps;
  static constexpr int kGroups = kRowsOfWarp / kRows;  // of lanes, in a warp
  static constexpr int kLanes = kWarpSize / kGroups;
  static constexpr int kKeys = kBlockK / kLanes;
  static constexpr int kColumns = kHeadDim / kLanes;

  static constexpr int kQStride = kBlockQ + 4, kKStride = kBlockK + 4, kVStride = kHeadDim + 8, kPStride = kRowsOfWarp + 4;
  static constexpr int kQSize = kHeadDim * kQStride, kKSize = kHeadDim * kKStride, kVSize = kBlockK * kVStride;
  static constexpr int kPSize = kBlockK * kPStride;  // of a warp
  static constexpr std::size_t kSharedBytes = sizeof(float) * (kQSize + kKSize + kVSize + kWarps * kPSize);

  static constexpr FlashForwardConfig kName{kHeadDim, kBlockQ, kBlockK, kWarps};
  static_assert(kGroups * kLanes == kWarpSize && kKeys >= 1 && kColumns >= 1 && 8 % kWarps == 0);
};

// ---- Who and where ------------------------------------------------------------------------------------------------------

// A thread's place in its block, and what that makes its own.
template <class C>
struct Thread {
  int warp = threadIdx.x / kWarpSize, group = threadIdx.x % kWarpSize / C::kLanes, lane = threadIdx.x % C::kLanes;

  // Row r of this thread among the block's queries, its score n among a block's keys, its column n among the slice's columns.
  __device__ int row(int r) const { return warp * C::kRowsOfWarp + place<kRows, C::kGroups>(group, r); }
  __device__ int key(int n) const { return place<C::kKeys, C::kLanes>(lane, n); }
  __device__ int column(int n) const { return place<C::kColumns, C::kLanes>(lane, n); }
};

// Shared memory.
template <class C>
struct Tiles {
  float* const Q_smem;  // [kHeadDim][kQStride]: transposed
  float* const K_smem;  // [kHeadDim][kKStride]: transposed
  float* const V_smem;  // [kBlockK][kVStride]
  float* const P_smem;  // [kBlockK][kPStride]: transposed, this warp's own

  __device__ Tiles(float* shared, int warp)
      : Q_smem(shared), K_smem(Q_smem + C::kQSize), V_smem(K_smem + C::kKSize),
        P_smem(V_smem + C::kVSize + warp * C::kPSize) {}
};

// Query i sees the first visible(i) keys.
struct Mask {
  Index keys;
  bool causal;

  __device__ Index visible(Index i) const { return causal && i + 1 < keys ? i + 1 : keys; }
};

// What a thread keeps of its rows from the first key to the last.
template <class C>
struct Rows {
  float m[kRows];                    // the largest score so far
  float l[kRows] = {};               // this lane's part of the sum of exp2(S - m)
  float O[kRows][C::kColumns] = {};  // the sum of exp2(S - m) V

  __device__ Rows() {
    FLASH_UNROLL
    for (int r = 0; r < kRows; ++r) m[r] = -INFINITY;
  }
};

template <class C>
using Scores = float[kRows][C::kKeys];

// ---- The steps ----------------------------------------------------------------------------------------------------------

// Q_smem[c * kQStride + i] = scale * q(i0 + i, c0 + c), for the whole tile.
template <class C, class T>
__device__ __forceinline__ void load_Q(const Tiles<C>& tiles, const Head<const T>& q, Index i0, Index c0, float scale) {
  // TODO the kBlockQ x kHeadDim tile, by load_tile() (about 3 lines)
}

// S += Q K^T over the kHeadDim columns that are in shared memory.
template <class C>
__device__ __forceinline__ void add_QK(Scores<C>& S, const Tiles<C>& tiles, const Thread<C>& thread) {
  // TODO for each column read this thread's kRows values of Q_smem (its rows of the warp) and its kKeys of K_smem,
  //   and multiply each by each (about 9 lines)
}

// sees[r]: how many of the kBlockK keys from j0 on row r sees, from the first on. The scores of the others become -INFINITY.
template <class C>
__device__ __forceinline__ void mask_scores(Scores<C>& S, int (&sees)[kRows], const Mask& mask, Index i0, Index j0,
                                            const Thread<C>& thread) {
  // TODO row r is query i0 + thread.row(r); score n belongs to key thread.key(n) of the block; sees[r] is between 0
  //   and kBlockK (about 7 lines)
}

// Online softmax: m takes in the new scores, what was summed up so far shrinks by alpha, and S becomes P = exp2(S - m).
template <class C>
__device__ __forceinline__ void softmax_step(Scores<C>& S, Rows<C>& rows) {
  // TODO row by row: the new m, the same in all lanes of the row; alpha; P, and l and O take the step. A row of
  //   nothing but -inf must not give -inf - -inf (about 15 lines)
}

// P to shared memory, as the T that it meets V as. In the order n, lane: then the lanes of a row write to different banks.
template <class T, class C>
__device__ __forceinline__ void store_P(const Tiles<C>& tiles, const Scores<C>& S, const Thread<C>& thread) {
  FLASH_UNROLL
  for (int n = 0; n < C::kKeys; ++n) {
    float P[kRows];
    FLASH_UNROLL
    for (int r = 0; r < kRows; ++r) P[r] = to_float(from_float<T>(S[r][n]));
    write<C::kGroups>(tiles.P_smem + (n * C::kLanes + thread.lane) * C::kPStride, P, thread.group);
  }
}

// O += P V. kMasked: row r sees only the first sees[r] keys.
template <bool kMasked, class C>
__device__ __forceinline__ void add_PV(Rows<C>& rows, const int (&sees)[kRows], const Tiles<C>& tiles,
                                       const Thread<C>& thread) {
  // TODO for each key read this thread's kRows weights of P_smem and its kColumns columns of V_smem, and multiply
  //   each by each. A key that row r does not see must add nothing, not even 0 * NaN (about 13 lines)
}

// out = O / l, for the columns from c0 on, and from the first slice lse = m + log(l), in base e. A row with no visible key gets
// out = 0 and lse = -inf.
template <class C, class T>
__device__ __forceinline__ void store(const Rows<C>& rows, TensorView<T, 4> out, TensorView<float, 3> lse, Index b, Index h,
                                      Index i0, Index c0, const Thread<C>& thread) {
  // TODO a row's whole l is the sum over its lanes; one lane of a row writes lse. Only queries and columns that out
  //   has exist (about 13 lines)
}

// ---- The kernel ---------------------------------------------------------------------------------------------------------

// 8 warps at a time on a multiprocessor, in as many thread blocks: up to 255 registers a thread. With 128, for 16 warps, they
// spill.
template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 8 / C::kWarps)
    flash_forward_kernel(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
                         TensorView<float, 3> lse, float scale, bool causal, int query_blocks, int slices) {
  // This block's slice of the columns, queries and head. With a causal mask the last queries of all heads come first: they see
  // the most keys, and short blocks fill the end. Without one a head's blocks are neighbours, which find its K and V in the L2
  // cache.
  const Index heads = q.extent(1), all_heads = q.extent(0) * heads, tile = blockIdx.x / slices;
  const Index c0_out = blockIdx.x % slices * C::kHeadDim;
  const Index i0 = (causal ? query_blocks - 1 - tile / all_heads : tile % query_blocks) * C::kBlockQ;
  const Index head = causal ? tile % all_heads : tile / query_blocks, b = head / heads, h = head % heads;
  const Head<const T> q_head(q, b, h), k_head(k, b, h), v_head(v, b, h);

  const Mask mask{k.extent(2), causal};
  const Index last = (i0 + C::kBlockQ < q.extent(2) ? i0 + C::kBlockQ : q.extent(2)) - 1;
  const Index all_see = mask.visible(i0), some_see = mask.visible(last);

  FLASH_DYNAMIC_SHARED(float, shared);
  const Thread<C> thread;
  const Tiles<C> tiles(shared, thread.warp);
  Rows<C> rows;

  // The keys from j0 on. `masked`: not every query sees all of them.
  const auto attend = [&](Index j0, auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    __syncthreads();  // nobody reads the tiles of the keys before any more
    load_tile<C::kBlockK, C::kHeadDim, C::kThreads>(v_head, j0, c0_out, [&](int j, int c, float value) {
      tiles.V_smem[j * C::kVStride + c] = value;
    });
    float S[kRows][C::kKeys] = {};
    for (Index c0 = 0; c0 < q.extent(3); c0 += C::kHeadDim) {
      if (c0 > 0) __syncthreads();
      if (slices > 1) load_Q(tiles, q_head, i0, c0, scale);
      load_tile<C::kBlockK, C::kHeadDim, C::kThreads>(k_head, j0, c0, [&](int j, int c, float value) {
        tiles.K_smem[c * C::kKStride + j] = value;
      });
      __syncthreads();
      add_QK(S, tiles, thread);
    }
    int sees[kRows] = {};
    if constexpr (kMasked) mask_scores(S, sees, mask, i0, j0, thread);
    softmax_step(S, rows);
    store_P<T>(tiles, S, thread);
    __syncwarp();
    add_PV<kMasked>(rows, sees, tiles, thread);
  };

  if (slices == 1) load_Q(tiles, q_head, i0, 0, scale);
  Index j0 = 0;
  for (; j0 + C::kBlockK <= all_see; j0 += C::kBlockK) attend(j0, std::false_type{});
  for (; j0 < some_see; j0 += C::kBlockK) attend(j0, std::true_type{});
  store(rows, out, lse, b, h, i0, c0_out, thread);
}

template <class T, class C>
void launch_forward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
                    TensorView<float, 3> lse, double scale, bool causal, Stream stream) {
  // TODO the launch: one thread block for each (head, block of queries, slice of kHeadDim columns), with kSharedBytes
  //   of shared memory; the kernel's scale is in base 2. grid_size() checks the number of blocks (about 9 lines)
  throw NotYetImplemented("part3.flash_forward_cuda");
}

// ---- The configurations -------------------------------------------------------------------------------------------------
//
// For each width of a head the fastest on an H200 first, the one with the least shared memory last; in KiB of it: 71 27,
// 104 69 44, 174 79 58, 226 149. Turing has 64 for a block, an A100 163, Hopper 227. Each takes the compiler some 5 seconds a
// type: for the types of 16 bits there are fewer.

template <class... C>
struct Table {};

template <class T>
struct CompiledFor {
  using Configs = Table<Config<32, 64, 32, 2>, Config<64, 128, 64, 4>, Config<64, 64, 32, 2>, Config<128, 64, 32, 4>,
                        Config<256, 64, 32, 8>>;
};
template <>
struct CompiledFor<float> {
  using Configs = Table<Config<32, 128, 64, 4>, Config<32, 64, 32, 2>, Config<64, 128, 64, 4>, Config<64, 128, 32, 4>,
                        Config<64, 64, 32, 2>, Config<128, 128, 64, 8>, Config<128, 64, 32, 4>, Config<128, 32, 32, 2>,
                        Config<256, 64, 64, 8>, Config<256, 64, 32, 8>>;
};
template <class T>
using Compiled = typename CompiledFor<T>::Configs;
constexpr Index kWidths[] = {256, 128, 64, 32};

template <class T, class... C>
void dispatch(Table<C...>, const FlashForwardConfig& config, TensorView<const T, 4> q, TensorView<const T, 4> k,
              TensorView<const T, 4> v, TensorView<T, 4> out, TensorView<float, 3> lse, double scale, bool causal,
              Stream stream) {
  const bool found =
      ((config == C::kName && (launch_forward<T, C>(q, k, v, out, lse, scale, causal, stream), true)) || ...);
  if (found) return;
  std::string compiled;
  ((compiled += (compiled.empty() ? "" : "; ") + to_string(C::kName)), ...);
  throw Unsupported("config is " + to_string(config) + "; compiled are " + compiled);
}

// Those of one width that have room.
template <class... C>
std::vector<FlashForwardConfig> with_room(Table<C...>, Index width) {
  const std::size_t room = device::shared_memory_per_block();
  std::vector<FlashForwardConfig> configs;
  ((C::kHeadDim == width && C::kSharedBytes <= room ? configs.push_back(C::kName) : void()), ...);
  return configs;
}

void check_head_dim(Index head_dim) {
  check_at_least("head_dim", head_dim, 1);
  if (head_dim > kFlashMaxHeadDim)
    throw Unsupported("head_dim is " + std::to_string(head_dim) + "; the kernel takes at most " +
                      std::to_string(kFlashMaxHeadDim));
}

}  // namespace

template <class T>
std::vector<FlashForwardConfig> flash_attention_forward_configs(Index head_dim) {
  check_head_dim(head_dim);
  for (const Index width : kWidths) {
    const bool too_wide = width / 2 >= head_dim && width > 32;  // half of it holds a head as well
    if (too_wide) continue;
    if (auto configs = with_room(Compiled<T>(), width); !configs.empty()) return configs;
  }
  throw Unsupported("no configuration has room in the " + std::to_string(device::shared_memory_per_block()) +
                    " bytes of shared memory that a block may have on this GPU");
}

template <class T>
void flash_attention_forward_cuda(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                  TensorView<T, 4> out, TensorView<float, 3> lse, const AttentionOptions& options,
                                  const std::optional<FlashForwardConfig>& config, Stream stream) {
  const AttentionShape shape = check_attention_forward(q, k, v, out, lse);
  const double scale = attention_scale(options, shape.head_dim);
  check_head_dim(shape.head_dim);
  const FlashForwardConfig chosen = config ? *config : flash_attention_forward_configs<T>(shape.head_dim).front();
  dispatch<T>(Compiled<T>(), chosen, q, k, v, out, lse, scale, options.causal, stream);
}

#define FLASH_INSTANTIATE(T)                                                                                                \
  template std::vector<FlashForwardConfig> flash_attention_forward_configs<T>(Index);                                       \
  template void flash_attention_forward_cuda(TensorView<const T, 4>, TensorView<const T, 4>, TensorView<const T, 4>,        \
                                             TensorView<T, 4>, TensorView<float, 3>, const AttentionOptions&,               \
                                             const std::optional<FlashForwardConfig>&, Stream)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash
