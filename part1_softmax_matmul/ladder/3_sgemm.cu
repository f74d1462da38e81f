// Rung 3: on the GPU, the tile of a fast matrix product, with the softmax where X is loaded.
//
// The readable kernel (solution/fused_cuda.cu) is slower than two functions that store all of
// softmax(X). Storing costs 2 GiB of traffic at 8192 keys, half a millisecond. The readable kernel
// loses more than two milliseconds, for two reasons. It reads V again for every 64 rows, 10 GiB
// altogether with X, and computes nothing while a block waits for them. And a thread has 8 x 8
// accumulators, so that 64 multiply-adds need 4 reads of shared memory, and the maximum, alpha and
// the rescaling of O come with every 64 keys.
//
// What changed: a thread has 8 x 16 accumulators, and 128 multiply-adds need 6 reads. A block has
// 128 rows x 256 columns, which halves V's traffic. The next step's V is copied by cp.async, and
// its weights are computed, while this step's numbers are multiplied; one barrier a step is left. m
// is the maximum of the keys when it was set, and stays until a score exceeds it by 8 in base 2: so
// O is hardly ever rescaled, and the step's barrier also says whether it has to be.
//
// The bottleneck: the float32 units. 2048 of a step's about 2400 instructions are multiply-adds.
// Measured on an H200 (16 x 2048 rows, 512 columns): 6.0 ms for 8192 keys (45.6 TFLOP/s), where the
// readable kernel takes 8.8, and our unfused functions and PyTorch's 6.6. Tiles of 128 x 128, with
// 8 x 8 accumulators and two blocks a multiprocessor: 7.4 ms.
#include "common/cuda/async_copy.hpp"
#include "common/cuda/device.hpp"
#include "common/cuda/warp.hpp"
#include "common/registry.hpp"

namespace flash::fused_3 {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 128, kColumns = 256;  // of a block's tile of the output
constexpr int kKeys = 16;                   // of a step
// A thread's accumulators, in pieces of 4 x 4: a warp has 64 x 64, its lanes are 8 x 4.
constexpr int kMyRows = 8, kMyColumns = 16;
constexpr int kWarpsAcross = kColumns / 64;
constexpr int kSteps = 2;  // tiles of P and V in shared memory
constexpr int kPSize = kKeys * kRows, kVSize = kKeys * kColumns;
constexpr std::size_t kSharedBytes = kSteps * (kPSize + kVSize + kRows) * sizeof(float);

constexpr float kMostRise = 8;  // in base 2

// In the softmax four lanes share a row, with 4 neighbouring keys each; a thread has this many
// rows, 8 apart.
constexpr int kSoftmaxRows = kRows * kKeys / 4 / kThreads;
static_assert(kKeys == 16 && kSoftmaxRows == 2);

struct Arguments {
  TensorView<const float, 3> x, v;
  TensorView<float, 3> out;
  int down, across;  // tiles of the output of a batch index
};

// P is stored key by key, so that a thread reads 4 rows at once. A quad of lanes writes 4 keys each
// of a row, a warp 8 rows: rows move by 8 from one four of keys to the next, to other banks.
__device__ __forceinline__ int place_in_P(int key, int row) {
  return key * kRows + (row ^ key / 4 * 8);
}

// A thread's scores of one step after the other, from key 4 * quad on; -inf where there are none.
template <bool kInFours>
struct ScoresOfX {
  const float* from[kSoftmaxRows];
  bool inside[kSoftmaxRows];
  int left;  // keys of the row from here on
  Index stride;

  __device__ __forceinline__ ScoresOfX(const TensorView<const float, 3>& x, Index b, int row,
                                       int key)
      : left(static_cast<int>(x.extent(2)) - key), stride(x.stride(2)) {
    FLASH_UNROLL
    for (int r = 0; r < kSoftmaxRows; ++r) {
      from[r] = x.data() + b * x.stride(0) + (row + 8 * r) * x.stride(1) + key * stride;
      inside[r] = row + 8 * r < x.extent(1);
    }
  }
  __device__ __forceinline__ void load(float4 (&scores)[kSoftmaxRows]) {
    FLASH_UNROLL
    for (int r = 0; r < kSoftmaxRows; ++r) {
      if constexpr (kInFours) {
        scores[r] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
        if (inside[r] && left > 0) scores[r] = *reinterpret_cast<const float4*>(from[r]);
      } else {
        const auto score = [&](int i) {
          return inside[r] && i < left ? from[r][i * stride] : -INFINITY;
        };
        scores[r] = {score(0), score(1), score(2), score(3)};
      }
      from[r] += kInFours ? kKeys : kKeys * stride;
    }
    left -= kKeys;
  }
};

// A thread's part of V's tiles, 4 columns of every kAtOnce-th key; 0 where there are none.
template <bool kInFours>
struct ValuesOfV {
  static constexpr int kAtOnce = kThreads / (kColumns / 4);
  const float* from;
  int here, left;  // columns of the 4; keys from the thread's first one on
  Index key_stride, stride;

  __device__ __forceinline__ ValuesOfV(const TensorView<const float, 3>& v, Index b, int column0)
      : key_stride(v.stride(1)), stride(v.stride(2)) {
    const int key = static_cast<int>(threadIdx.x) / (kColumns / 4),
              column = column0 + static_cast<int>(threadIdx.x) % (kColumns / 4) * 4;
    from = v.data() + b * v.stride(0) + key * key_stride + column * stride;
    here = static_cast<int>(v.extent(2)) - column;
    left = static_cast<int>(v.extent(1)) - key;
  }
  // The next tile, as a group of cp.async.
  __device__ __forceinline__ void start(float* V_smem) {
    float* const to = V_smem + threadIdx.x * 4;
    FLASH_UNROLL_BY(2)  // by 4 spills on a GPU without cp.async
    for (int key = 0; key < kKeys; key += kAtOnce) {
      const float* const four = from + key * key_stride;
      if constexpr (kInFours) {
        const bool inside = key < left && here > 0;
        cp_async_16(to + key * kColumns, inside ? four : from, inside ? 16 : 0);
      } else {
        for (int i = 0; i < 4; ++i)
          if (key < left && i < here)
            cp_async<4>(to + key * kColumns + i, four + i * stride);
          else
            to[key * kColumns + i] = 0;
      }
    }
    cp_async_commit();
    from += kKeys * key_stride;
    left -= kKeys;
  }
};

// The weights of a step to P_smem, and alpha of its rows. Returns whether one is not 1.
struct Softmax {
  float m[kSoftmaxRows] = {-INFINITY, -INFINITY}, l[kSoftmaxRows] = {};

  __device__ __forceinline__ bool step(float4 (&x)[kSoftmaxRows], float* P_smem, float* alpha_smem,
                                       int row, int quad) {
    bool risen = false;
    FLASH_UNROLL
    for (int r = 0; r < kSoftmaxRows; ++r) {
      const float largest = warp_max<4>(fmaxf(fmaxf(x[r].x, x[r].y), fmaxf(x[r].z, x[r].w)));
      float alpha = 1;
      if (largest * kLog2E > m[r] + kMostRise) {
        alpha = exp2f(m[r] - largest * kLog2E);
        m[r] = largest * kLog2E;
        l[r] *= alpha;
        risen = true;
      }
      if (quad == 0) alpha_smem[row + 8 * r] = alpha;
      const float reference = m[r] == -INFINITY ? 0 : m[r];
      const auto weight = [&](float score) {
        return exp2_approximate(fmaf(score, kLog2E, -reference));
      };
      const float P[4] = {weight(x[r].x), weight(x[r].y), weight(x[r].z), weight(x[r].w)};
      l[r] += (P[0] + P[1]) + (P[2] + P[3]);
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i) P_smem[place_in_P(4 * quad + i, row + 8 * r)] = P[i];
    }
    return risen;
  }
};

__device__ __forceinline__ void read_four(float* to, const float* from) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

template <bool kInFours>
__global__ void __launch_bounds__(kThreads, 1) fused_3_kernel(const __grid_constant__ Arguments a) {
  FLASH_DYNAMIC_SHARED(float, shared);
  float* const V_smem = shared;                        // [kSteps][kKeys][kColumns]
  float* const P_smem = shared + kSteps * kVSize;      // [kSteps][kKeys][kRows]
  float* const alpha_smem = P_smem + kSteps * kPSize;  // [kSteps][kRows]
  const int tile = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const Index b = tile / a.across / a.down;
  const int row0 = tile / a.across % a.down * kRows, column0 = tile % a.across * kColumns;
  const int d2 = static_cast<int>(a.x.extent(2)), steps = (d2 + kKeys - 1) / kKeys;
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;

  // In the softmax.
  const int quad = lane % 4, row = warp * 8 * kSoftmaxRows + lane / 4;
  ScoresOfX<kInFours> scores(a.x, b, row0 + row, 4 * quad);
  ValuesOfV<kInFours> values(a.v, b, column0);
  Softmax softmax;
  float4 x[kSoftmaxRows];

  // In the product: rows my_row + {0 to 3, 32 to 35}, columns my_column + {0, 16, 32, 48} + 0 to 3.
  const int my_row = warp / kWarpsAcross * 64 + lane / 4 * 4,
            my_column = warp % kWarpsAcross * 64 + lane % 4 * 4;
  float O[kMyRows][kMyColumns] = {};

  bool risen = false;
  const auto weigh = [&](int n) {
    risen = softmax.step(x, P_smem + n % 2 * kPSize, alpha_smem + n % 2 * kRows, row, quad);
    scores.load(x);
  };
  if (steps > 0) {
    values.start(V_smem);
    scores.load(x);
    weigh(0);
  }
  for (int n = 0; n < steps; ++n) {
    cp_async_wait<0>();
    if (__syncthreads_or(risen)) {
      FLASH_UNROLL
      for (int r = 0; r < kMyRows; ++r) {
        const float alpha = alpha_smem[n % 2 * kRows + my_row + r / 4 * 32 + r % 4];
        FLASH_UNROLL
        for (int c = 0; c < kMyColumns; ++c) O[r][c] *= alpha;
      }
    }
    const float *const V = V_smem + n % 2 * kVSize, *const P = P_smem + n % 2 * kPSize;
    const bool more = n + 1 < steps;
    if (more) values.start(V_smem + (n + 1) % 2 * kVSize);
    if (more) weigh(n + 1);

    // Two sets of a key's numbers: the next key's are read while this one's are multiplied.
    float P_key[2][kMyRows], V_key[2][kMyColumns];
    const auto read = [&](int key) {
      FLASH_UNROLL
      for (int r = 0; r < kMyRows; r += 4)
        read_four(&P_key[key % 2][r], P + place_in_P(key, my_row + 8 * r));
      FLASH_UNROLL
      for (int c = 0; c < kMyColumns; c += 4)
        read_four(&V_key[key % 2][c], V + key * kColumns + my_column + 4 * c);
    };
    read(0);
    FLASH_UNROLL
    for (int key = 0; key < kKeys; ++key) {
      if (key + 1 < kKeys) read(key + 1);
      FLASH_UNROLL
      for (int r = 0; r < kMyRows; ++r) FLASH_UNROLL
      for (int c = 0; c < kMyColumns; ++c)
        O[r][c] = fmaf(P_key[key % 2][r], V_key[key % 2][c], O[r][c]);
    }
  }

  // Each row's 1 / l to the threads that have its accumulators.
  FLASH_UNROLL
  for (int r = 0; r < kSoftmaxRows; ++r) {
    const float l = warp_sum<4>(softmax.l[r]);
    if (quad == 0) alpha_smem[steps % 2 * kRows + row + 8 * r] = l == 0 ? 0 : 1 / l;
  }
  __syncthreads();
  FLASH_UNROLL
  for (int r = 0; r < kMyRows; ++r) {
    const int my = my_row + r / 4 * 32 + r % 4;
    const float inverse = alpha_smem[steps % 2 * kRows + my];
    if (row0 + my >= a.out.extent(1)) continue;
    float* const to = &a.out(b, row0 + my, 0);
    FLASH_UNROLL
    for (int c = 0; c < kMyColumns; c += 4) {
      const int column = column0 + my_column + 4 * c;
      const float4 four{O[r][c] * inverse, O[r][c + 1] * inverse, O[r][c + 2] * inverse,
                        O[r][c + 3] * inverse};
      const auto put = [&](int i, float value) {
        if (column + i < a.out.extent(2)) to[(column + i) * a.out.stride(2)] = value;
      };
      if (!kInFours) {
        put(0, four.x), put(1, four.y), put(2, four.z), put(3, four.w);
      } else if (column < a.out.extent(2)) {
        *reinterpret_cast<float4*>(to + column) = four;
      }
    }
  }
}

void fused_softmax_matmul(const SoftmaxMatmul<float>& pass) {
  const auto [batch, d1, d2, d3] = check_softmax_matmul(pass);
  const Index down = (d1 + kRows - 1) / kRows, across = (d3 + kColumns - 1) / kColumns;
  const bool in_fours = d2 % 4 == 0 && d3 % 4 == 0 && rows_in_chunks(pass.x, 4) &&
                        rows_in_chunks(pass.v, 4) && rows_in_chunks(pass.out, 4);
  launch("fused_3", in_fours ? fused_3_kernel<true> : fused_3_kernel<false>,
         {.grid = grid_size(batch * down * across),
          .block = kThreads,
          .shared_bytes = kSharedBytes,
          .stream = pass.stream},
         Arguments{pass.x, pass.v, pass.out, static_cast<int>(down), static_cast<int>(across)});
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.softmax_matmul.add(
      {.name = name, .device = DeviceKind::kGpu, .run = {.float32 = fused_softmax_matmul}});
}

}  // namespace flash::fused_3
