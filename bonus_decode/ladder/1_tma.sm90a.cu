// Rung 1: TMA copies whole pages, tensor cores multiply, and the last thread block merges.
//
// New: a warp of its own does nothing but start copies. It reads the block table one page ahead,
// and TMA copies the kv head's rows of the page, 64 keys at a time, to one of several stages. So
// the next 64 to 96 KiB are always on their way, and no other thread computes an address. Each of
// four warps takes 16 of the 64 keys and multiplies them by all rows of the group on tensor cores,
// by mma.sync, whose 16 rows are enough for 16 rows of q. There is no barrier between these warps
// until the part ends. The parts are larger, at least 1024 keys, so that less is written and read
// again. The last thread block of a kv head to finish merges its parts: a second launch takes
// longer, and for one sequence of 16384 keys that decides.
//
// A page is read to its end. There a NaN may stand, which a weight of 0 does not remove: the warp
// that has the last key writes zeros over the values behind it.
#include <algorithm>
#include <cmath>

#include "bonus_decode/given/decode_tile.hpp"
#include "bonus_decode/given/problems.hpp"
#include "common/cuda/pipeline.hpp"
#include "common/cuda/tensor_core.hpp"
#include "common/cuda/tma.hpp"
#include "common/cuda/warpgroup.hpp"
#include "common/registry.hpp"

namespace flash::decode_tma {
namespace {

constexpr int kMostParts = 16, kFewestKeys = 1024;
constexpr int kKeys = 64, kWarps = 4, kKeysOfWarp = kKeys / kWarps;
constexpr int kThreads = (kWarps + 1) * kWarpSize;
constexpr int kMostRows = 16;

FLASH_HOST_DEVICE inline int keys_of_part(int length) {
  const int share = (length + kMostParts - 1) / kMostParts;
  const int keys = share > kFewestKeys ? share : kFewestKeys;
  return (keys + kKeys - 1) / kKeys * kKeys;
}

template <class T_, int kHeadDim_>
struct Config {
  using T = T_;
  static constexpr int kHeadDim = kHeadDim_, kSlabs = kHeadDim / 64;  // of 64 columns, 128 bytes
  static constexpr int kStages = kHeadDim == 64 ? 4 : kHeadDim == 128 ? 3 : 2;
  static constexpr int kBlocks = kHeadDim == 256 ? 1 : 2;  // of a multiprocessor
  static constexpr int kTileBytes = kKeys * kHeadDim * 2;  // of K, and as many of V
  static constexpr int kQBytes = kMostRows * kHeadDim * 2;
  // What the warps leave takes the place of the stages.
  static constexpr int kSumBytes = kWarps * kMostRows * (kHeadDim + 2) * 4;
  static constexpr std::size_t kSharedBytes =
      1024 + kQBytes + std::max(2 * kStages * kTileBytes, kSumBytes);
};

// Chunk c, 16 bytes, of row `row` of a tile of slabs of kRows rows.
template <int kRows = kKeys>
__device__ __forceinline__ unsigned char* chunk(unsigned char* tile, int row, int c) {
  return tile + c / 8 * (kRows * kBoxBytes) + row * kBoxBytes + (c % 8 ^ row % 8) * 16;
}

template <class T>
__device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  const std::uint32_t b[2] = {b0, b1};
  if constexpr (std::is_same_v<T, Half>)
    mma_m16n8k16_half(d, a, b);
  else
    mma_m16n8k16_bfloat16(d, a, b);
}

template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  return from_float<T>(low).bits | static_cast<std::uint32_t>(from_float<T>(high).bits) << 16;
}

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

struct Workspace {
  TensorView<float, 3> out;  // (rows, parts, head_dim)
  TensorView<float, 2> lse;  // (rows, parts), in base 2
  unsigned* finished;        // (batch, kv_heads): how many parts are
};

template <class T, class C>
__global__ void __launch_bounds__(kThreads, C::kBlocks)
    tma_kernel(const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
               Decode<T> pass, float scale, Workspace parts) {
  constexpr int D = C::kHeadDim;
  const DecodeShape shape = pass.shape();
  const int kv_heads = static_cast<int>(shape.kv_heads), x = static_cast<int>(blockIdx.x);
  const int most_parts = static_cast<int>(parts.lse.extent(1));
  const int kv_head = x % kv_heads, s = x / kv_heads % most_parts, b = x / kv_heads / most_parts;
  const int length = pass.lengths(b), keys_each = keys_of_part(length);
  const int count = max(1, (length + keys_each - 1) / keys_each);  // of parts; one may be empty
  if (s >= count) return;
  const int begin = s * keys_each, end = min(begin + keys_each, length);
  const int steps = (end - begin + kKeys - 1) / kKeys;
  const int rows = static_cast<int>(shape.rows()), queries = static_cast<int>(shape.queries);
  const Index first_row = (b * shape.heads + kv_head * shape.group()) * queries;

  __shared__ Pipeline<C::kStages> pipeline;
  __shared__ bool is_last;
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  unsigned char* const Q_smem = align_to_1024(shared);
  unsigned char* const stages = Q_smem + C::kQBytes;  // each has K and V
  const auto K_smem = [&](int step) { return stages + step % C::kStages * (2 * C::kTileBytes); };
  if (threadIdx.x == 0) {
    pipeline.init(kWarps);
    fence_barrier_init();
  }
  for (int n = threadIdx.x; n < kMostRows * D; n += kThreads) {
    const int row = n / D, c = n % D;
    const Index h = kv_head * shape.group() + row / queries;
    reinterpret_cast<T*>(chunk<kMostRows>(Q_smem, row, c / 8))[c % 8] =
        row < rows ? pass.q(b, h, row % queries, c) : T{};
  }
  __syncthreads();

  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, g = lane / 4, t = lane % 4;
  float* const O_smem = reinterpret_cast<float*>(stages);  // [warp][row][D]
  float* const m_smem = O_smem + kWarps * kMostRows * D;   // [warp][row]
  float* const l_smem = m_smem + kWarps * kMostRows;
  if (warp == kWarps) {
    if (lane == 0) {
      const int page_size = static_cast<int>(shape.page_size);
      const int box_rows = min(page_size, kKeys);
      for (int step = 0; step < steps; ++step) {
        pipeline.wait_empty(step);
        arrive_expecting(pipeline.full(step), 2 * C::kTileBytes);
        for (int row = 0; row < kKeys; row += box_rows) {
          // Behind the length there may be no page: the first one of the tile stands for it.
          const int first = begin + step * kKeys, j = first + row < end ? first + row : first;
          const int page = pass.block_table(b, j / page_size);
          for (int slab = 0; slab < C::kSlabs; ++slab) {
            unsigned char* const to = K_smem(step) + slab * (kKeys * kBoxBytes) + row * kBoxBytes;
            tma_load_once(to, k_map, pipeline.full(step), slab * 64, j % page_size, kv_head, page);
            tma_load_once(to + C::kTileBytes, v_map, pipeline.full(step), slab * 64, j % page_size,
                          kv_head, page);
          }
        }
      }
    }
  } else {
    const auto sees = [&](int row) {
      return row < rows ? min(length - queries + row % queries + 1, end) : 0;
    };
    const int visible[2] = {sees(g), sees(g + 8)};
    const int key0 = warp * kKeysOfWarp;
    float m[2] = {-INFINITY, -INFINITY}, l[2] = {};  // of the rows g and g + 8
    float O[D / 8][4] = {};

    for (int step = 0; step < steps; ++step) {
      const int j0 = begin + step * kKeys + key0;  // the warp's first key
      unsigned char *const K = K_smem(step), *const V = K + C::kTileBytes;
      pipeline.wait_full(step);
      float S[2][4] = {};
      FLASH_UNROLL
      for (int n = 0; n < D / 16; ++n) {
        std::uint32_t q[4], k[4];  // of k keys 0 to 7, then 8 to 15, two chunks of columns each
        ldmatrix(q, chunk<kMostRows>(Q_smem, lane % 16, 2 * n + lane / 16));
        ldmatrix(k, chunk(K, key0 + lane / 16 * 8 + lane % 8, 2 * n + lane / 8 % 2));
        multiply<T>(S[0], q, k[0], k[1]);
        multiply<T>(S[1], q, k[2], k[3]);
      }
      float largest[2] = {-INFINITY, -INFINITY};
      FLASH_UNROLL
      for (int n = 0; n < 2; ++n) {
        FLASH_UNROLL
        for (int i = 0; i < 4; ++i) {
          S[n][i] = j0 + n * 8 + 2 * t + i % 2 < visible[i / 2] ? S[n][i] * scale : -INFINITY;
          largest[i / 2] = fmaxf(largest[i / 2], S[n][i]);
        }
      }
      FLASH_UNROLL
      for (int half = 0; half < 2; ++half) largest[half] = quad_max(largest[half]);
      if (__any_sync(kAllLanes, largest[0] > m[0] || largest[1] > m[1])) {
        FLASH_UNROLL
        for (int half = 0; half < 2; ++half) {
          const float m_new = fmaxf(m[half], largest[half]);
          const float alpha = m_new == m[half] ? 1 : exp2f(m[half] - m_new);
          m[half] = m_new;
          l[half] *= alpha;
          FLASH_UNROLL
          for (int n = 0; n < D / 8; ++n) O[n][2 * half] *= alpha, O[n][2 * half + 1] *= alpha;
        }
      }
      FLASH_UNROLL
      for (int n = 0; n < 2; ++n) {
        FLASH_UNROLL
        for (int i = 0; i < 4; ++i) {
          S[n][i] = S[n][i] == -INFINITY ? 0 : exp2f(S[n][i] - m[i / 2]);
          l[i / 2] += S[n][i];
        }
      }
      const std::uint32_t P[4] = {pack<T>(S[0][0], S[0][1]), pack<T>(S[0][2], S[0][3]),
                                  pack<T>(S[1][0], S[1][1]), pack<T>(S[1][2], S[1][3])};
      if (j0 + kKeysOfWarp > end) {
        for (int n = lane; n < kKeysOfWarp * D / 8; n += kWarpSize)
          if (const int row = n / (D / 8); j0 + row >= end)
            *reinterpret_cast<uint4*>(chunk(V, key0 + row, n % (D / 8))) = uint4{0, 0, 0, 0};
        __syncwarp();
      }
      FLASH_UNROLL
      for (int n = 0; n < D / 16; ++n) {
        std::uint32_t v[4];  // keys 0 to 7 and 8 to 15 of one chunk of columns, then of the next
        ldmatrix<true>(v, chunk(V, key0 + lane / 8 % 2 * 8 + lane % 8, 2 * n + lane / 16));
        multiply<T>(O[2 * n], P, v[0], v[1]);
        multiply<T>(O[2 * n + 1], P, v[2], v[3]);
      }
      __syncwarp();
      if (lane == 0) pipeline.release(step);
    }
    // In place of the stages, when all four warps have read them.
    sync_named(1, kWarps * kWarpSize);
    FLASH_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = warp * kMostRows + g + half * 8;
      const float sum = quad_sum(l[half]);
      FLASH_UNROLL
      for (int n = 0; n < D / 8; ++n)
        *reinterpret_cast<float2*>(&O_smem[row * D + n * 8 + 2 * t]) =
            float2{O[n][2 * half], O[n][2 * half + 1]};
      if (t == 0) m_smem[row] = m[half], l_smem[row] = sum;
    }
  }

  __syncthreads();

  // The part: the four warps' sums, merged.
  const auto store = [&](int row, int c, float value, float lse) {
    const Index h = kv_head * shape.group() + row / queries;
    pass.out(b, h, row % queries, c) = from_float<T>(value);
    if (c == 0) pass.lse(b, h, row % queries) = lse * kLn2;
  };
  for (int n = threadIdx.x; n < rows * D; n += kThreads) {
    const int row = n / D, c = n % D;
    float largest = -INFINITY, sum = 0, weighed = 0;
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, m_smem[w * kMostRows + row]);
    for (int w = 0; w < kWarps; ++w) {
      const int at = w * kMostRows + row;
      const float weight = m_smem[at] == -INFINITY ? 0 : exp2f(m_smem[at] - largest);
      sum += weight * l_smem[at];
      weighed += weight * O_smem[at * D + c];
    }
    const float value = sum == 0 ? 0 : weighed / sum, lse = largest + log2f(sum);
    if (count == 1) {
      store(row, c, value, lse);
      continue;
    }
    parts.out(first_row + row, s, c) = value;
    if (c == 0) parts.lse(first_row + row, s) = lse;
  }
  if (count == 1) return;

  // The last thread block of the kv head merges all parts, in their order.
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last =
        atomicAdd(&parts.finished[b * kv_heads + kv_head], 1u) == static_cast<unsigned>(count - 1);
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  for (int n = threadIdx.x; n < rows * D; n += kThreads) {
    const int row = n / D, c = n % D;
    float lse[kMostParts], values[kMostParts], largest = -INFINITY, sum = 0, weighed = 0;
    FLASH_UNROLL
    for (int p = 0; p < kMostParts; ++p) {
      lse[p] = p < count ? __ldcg(&parts.lse(first_row + row, p)) : -INFINITY;
      values[p] = p < count ? __ldcg(&parts.out(first_row + row, p, c)) : 0;
      largest = fmaxf(largest, lse[p]);
    }
    FLASH_UNROLL
    for (int p = 0; p < kMostParts; ++p) {
      const float weight = lse[p] == -INFINITY ? 0 : exp2f(lse[p] - largest);
      sum += weight;
      weighed += weight * values[p];
    }
    store(row, c, sum == 0 ? 0 : weighed / sum, largest + log2f(sum));
  }
}

std::string why_not(const DecodeProblem& problem) {
  const DecodeShape& shape = problem.shape;
  if (device::count() > 0 && device::compute_capability() != 90)
    return "the GPU has compute capability " + std::to_string(device::compute_capability()) +
           "; it must be 90 (Hopper)";
  if (shape.page_size < 16 || (shape.page_size & (shape.page_size - 1)) != 0)
    return "page_size is " + std::to_string(shape.page_size) +
           "; it must be a power of two of at least 16";
  std::string why = why_above("heads / kv_heads * queries", shape.rows(), kMostRows);
  if (why.empty()) why = decode::why_not(shape);
  return why.empty() ? why_not_in_chunks(problem, 16) : why;
}

template <class T>
void run(const Decode<T>& pass) {
  const DecodeShape shape = check_decode(pass);
  check_supported(why_not(problem_of(pass)));
  const float scale =
      static_cast<float>(attention_scale({.scale = pass.scale}, shape.head_dim) * kLog2E);
  const Index rows = shape.batch * shape.heads * shape.queries;
  const Index parts = std::clamp<Index>(
      (shape.table_pages * shape.page_size + kFewestKeys - 1) / kFewestKeys, 1, kMostParts);
  const DeviceTensor<float, 3> out({rows, parts, shape.head_dim}, pass.stream);
  const DeviceTensor<float, 2> lse({rows, parts}, pass.stream);
  const DeviceTensor<unsigned, 1> finished({shape.batch * shape.kv_heads}, pass.stream);
  if (parts > 1) device::fill_bytes(finished.data(), 0, finished.bytes(), pass.stream);
  const auto map = [&](const TensorView<const T, 4>& cache) {  // (page, kv head, key, column)
    return tensor_map(
        TensorView<const T, 4>(
            cache.data(), {shape.pages, shape.kv_heads, shape.page_size, shape.head_dim},
            {cache.stride(0), cache.stride(2), cache.stride(1), cache.stride(3)}),
        static_cast<int>(std::min<Index>(shape.page_size, kKeys)));
  };
  decode::with_config<T>(shape.head_dim, [&]<class Given>(Given) {
    using C = Config<T, Given::kHeadDim>;
    launch("decode_tma", tma_kernel<T, C>,
           {.grid = grid_size(shape.batch * parts * shape.kv_heads),
            .block = kThreads,
            .shared_bytes = C::kSharedBytes,
            .stream = pass.stream},
           map(pass.k), map(pass.v), pass, scale,
           Workspace{out.view(), lse.view(), finished.data()});
  });
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.decode.add({.name = name,
                       .device = DeviceKind::kGpu,
                       .run = {.float16 = run<Half>, .bfloat16 = run<BFloat16>},
                       .unsupported = why_not,
                       .finite_inputs = true});
}

}  // namespace flash::decode_tma
