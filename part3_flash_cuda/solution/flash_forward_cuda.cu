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

// ---- The kernel ---------------------------------------------------------------------------------------------------------

// 8 warps at a time on a multiprocessor, in as many thread blocks: up to 255 registers a thread. With 128, for 16 warps, they
// spill.
template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 8 / C::kWarps)
    flash_forward_kernel(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
                         TensorView<float, 3> lse, float scale, bool causal, int query_blocks, int slices) {
  const Index queries = q.extent(2), keys = k.extent(2), head_dim = q.extent(3), heads = q.extent(1);
  const int warp = threadIdx.x / kWarpSize, group = threadIdx.x % kWarpSize / C::kLanes, lane = threadIdx.x % C::kLanes;

  FLASH_DYNAMIC_SHARED(float, shared);
  float* const Q_smem = shared;                                 // [kHeadDim][kQStride]: transposed
  float* const K_smem = Q_smem + C::kQSize;                     // [kHeadDim][kKStride]: transposed
  float* const V_smem = K_smem + C::kKSize;                     // [kBlockK][kVStride]
  float* const P_smem = V_smem + C::kVSize + warp * C::kPSize;  // [kBlockK][kPStride]: transposed, this warp's own

  // Where this block stands. Later queries first: with a causal mask they see more keys, and the short blocks fill the end.
  const Index slice = blockIdx.x % slices * C::kHeadDim;  // its first column of O
  const Index i0 = (query_blocks - 1 - blockIdx.x / slices % query_blocks) * C::kBlockQ;
  const Index b = blockIdx.x / slices / query_blocks / heads, h = blockIdx.x / slices / query_blocks % heads;
  const Head<const T> q_head(q, b, h), k_head(k, b, h), v_head(v, b, h);

  // Row r of this thread is query i0 + row_of(r), which sees the first visible(query) keys.
  const auto row_of = [&](int r) { return warp * C::kRowsOfWarp + place<kRows, C::kGroups>(group, r); };
  const auto visible = [&](Index query) { return causal && query + 1 < keys ? query + 1 : keys; };
  const Index some_see = visible((i0 + C::kBlockQ < queries ? i0 + C::kBlockQ : queries) - 1), all_see = visible(i0);

  float m[kRows], l[kRows] = {};     // of each row: the largest score so far; this lane's part of the sum of exp2(S - m)
  float O[kRows][C::kColumns] = {};  // sum of exp2(S - m) V
  FLASH_UNROLL
  for (int r = 0; r < kRows; ++r) m[r] = -INFINITY;

  const auto load_Q = [&](Index c0) {
    // BEGIN SOLUTION Q_smem[c * kQStride + i] = scale * q_head(i0 + i, c0 + c), by load_tile(), for the kBlockQ x kHeadDim tile
    //   (about 3 lines)
    load_tile<C::kBlockQ, C::kHeadDim, C::kThreads>(q_head, i0, c0, [&](int i, int c, float value) {
      Q_smem[c * C::kQStride + i] = scale * value;
    });
    // END SOLUTION
  };

  // The keys from j0 on. `masked`: not every query sees all of them.
  const auto attend = [&](Index j0, auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    __syncthreads();  // nobody reads the tiles of the keys before any more
    load_tile<C::kBlockK, C::kHeadDim, C::kThreads>(v_head, j0, slice, [&](int j, int c, float value) {
      V_smem[j * C::kVStride + c] = value;
    });

    float S[kRows][C::kKeys] = {};
    for (Index c0 = 0; c0 < head_dim; c0 += C::kHeadDim) {
      if (c0 > 0) __syncthreads();
      if (slices > 1) load_Q(c0);
      load_tile<C::kBlockK, C::kHeadDim, C::kThreads>(k_head, j0, c0, [&](int j, int c, float value) {
        K_smem[c * C::kKStride + j] = value;
      });
      __syncthreads();

      // BEGIN SOLUTION S += Q K^T: for each of the kHeadDim columns read this thread's kRows values of Q_smem (its rows of the
      //   warp) and its kKeys of K_smem, and multiply each by each (about 9 lines)
      FLASH_UNROLL_BY(4)
      for (int c = 0; c < C::kHeadDim; ++c) {
        float Q[kRows], K[C::kKeys];
        read<C::kGroups>(Q, Q_smem + c * C::kQStride + warp * C::kRowsOfWarp, group);
        read<C::kLanes>(K, K_smem + c * C::kKStride, lane);
        FLASH_UNROLL
        for (int r = 0; r < kRows; ++r)
          FLASH_UNROLL
          for (int n = 0; n < C::kKeys; ++n) S[r][n] += Q[r] * K[n];
      }
      // END SOLUTION
    }

    int sees[kRows];  // of each row: how many of these kBlockK keys, from the first on
    if constexpr (kMasked) {
      // BEGIN SOLUTION the mask: sees[r], between 0 and kBlockK, and -INFINITY for the scores of all other keys; n of this lane
      //   is key place<kKeys, kLanes>(lane, n) of the block (about 6 lines)
      FLASH_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Index seen = visible(i0 + row_of(r)) - j0;
        sees[r] = seen < 0 ? 0 : seen < C::kBlockK ? static_cast<int>(seen) : C::kBlockK;
        FLASH_UNROLL
        for (int n = 0; n < C::kKeys; ++n)
          if (place<C::kKeys, C::kLanes>(lane, n) >= sees[r]) S[r][n] = -INFINITY;
      }
      // END SOLUTION
    }

    // BEGIN SOLUTION online softmax, row by row: the new m, the same in all lanes of the row; alpha, by which what was summed
    //   up so far shrinks; S becomes P = exp2(S - m), and l and O take the step. A row of nothing but -inf must not give -inf -
    //   -inf (about 15 lines)
    FLASH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float m_new = m[r];
      FLASH_UNROLL
      for (int n = 0; n < C::kKeys; ++n) m_new = fmaxf(m_new, S[r][n]);
      m_new = row_max<C::kLanes>(m_new);
      const float reference = m_new == -INFINITY ? 0 : m_new;
      const float alpha = exp2f(m[r] - reference);
      m[r] = m_new;
      l[r] *= alpha;
      FLASH_UNROLL
      for (int n = 0; n < C::kKeys; ++n) l[r] += S[r][n] = exp2f(S[r][n] - reference);
      FLASH_UNROLL
      for (int n = 0; n < C::kColumns; ++n) O[r][n] *= alpha;
    }
    // END SOLUTION

    // P goes to shared memory in the order n, lane: then the lanes of a row write to different banks. It meets V as a T.
    FLASH_UNROLL
    for (int n = 0; n < C::kKeys; ++n) {
      float P[kRows];
      FLASH_UNROLL
      for (int r = 0; r < kRows; ++r) P[r] = to_float(from_float<T>(S[r][n]));
      write<C::kGroups>(P_smem + (n * C::kLanes + lane) * C::kPStride, P, group);
    }
    __syncwarp();

    // BEGIN SOLUTION O += P V: for each key read this thread's kRows weights of P_smem and its kColumns columns of V_smem, and
    //   multiply each by each. A key that row r does not see must add nothing, not even 0 * NaN (about 13 lines)
    for (int n = 0; n < C::kKeys; ++n)
      FLASH_UNROLL_BY(4)
      for (int owner = 0; owner < C::kLanes; ++owner) {
        const int j = place<C::kKeys, C::kLanes>(owner, n);
        float P[kRows], V[C::kColumns];
        read<C::kGroups>(P, P_smem + (n * C::kLanes + owner) * C::kPStride, group);
        read<C::kLanes>(V, V_smem + j * C::kVStride, lane);
        FLASH_UNROLL
        for (int r = 0; r < kRows; ++r)
          if (!kMasked || j < sees[r])
            FLASH_UNROLL
            for (int column = 0; column < C::kColumns; ++column) O[r][column] += P[r] * V[column];
      }
    // END SOLUTION
  };

  if (slices == 1) load_Q(0);
  Index j0 = 0;
  for (; j0 + C::kBlockK <= all_see; j0 += C::kBlockK) attend(j0, std::false_type{});
  for (; j0 < some_see; j0 += C::kBlockK) attend(j0, std::true_type{});

  // BEGIN SOLUTION store: a row's whole l is the sum over its lanes; out = O / l, and 0 where no key was visible; lse = m +
  //   log(l), from one lane of the first slice, in base e. Only queries below `queries` and columns below head_dim exist (about
  //   14 lines)
  FLASH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const Index i = i0 + row_of(r);
    const float sum = row_sum<C::kLanes>(l[r]);
    const float inverse = sum == 0 ? 0 : 1 / sum;
    if (i >= queries) continue;
    FLASH_UNROLL
    for (int n = 0; n < C::kColumns; ++n) {
      const Index c = slice + place<C::kColumns, C::kLanes>(lane, n);
      if (c < head_dim) out(b, h, i, c) = from_float<T>(O[r][n] * inverse);
    }
    if (lane == 0 && slice == 0) lse(b, h, i) = (m[r] + log2f(sum)) * kLn2;
  }
  // END SOLUTION
}

template <class T, class C>
void launch_forward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
                    TensorView<float, 3> lse, double scale, bool causal, Stream stream) {
  // BEGIN SOLUTION the launch: one thread block for each (head, block of queries, slice of kHeadDim columns), with kSharedBytes
  //   of shared memory; the kernel's scale is in base 2. grid_size() checks the number of blocks (about 9 lines)
  // STUB throw NotYetImplemented("part3.flash_forward_cuda");
  const Index query_blocks = (q.extent(2) + C::kBlockQ - 1) / C::kBlockQ;
  const Index slices = (q.extent(3) + C::kHeadDim - 1) / C::kHeadDim;
  launch("flash_forward", flash_forward_kernel<T, C>,
         {.grid = grid_size(q.extent(0) * q.extent(1) * query_blocks * slices),
          .block = static_cast<unsigned>(C::kThreads),
          .shared_bytes = C::kSharedBytes,
          .stream = stream},
         q, k, v, out, lse, static_cast<float>(scale * kLog2E), causal, static_cast<int>(query_blocks),
         static_cast<int>(slices));
  // END SOLUTION
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
