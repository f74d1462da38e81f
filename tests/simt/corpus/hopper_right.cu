// Right uses of mbarriers, TMA, wgmma and what belongs to them.
#include <cmath>

#include "simt/corpus/hopper.hpp"

namespace flash::simt_corpus {
namespace {

// A producer thread, whose warpgroup gives its registers away and returns; two warpgroups that
// multiply ones by each tile and add up. One arrival a warpgroup frees a tile, since only wgmma
// reads it. The tile's number is an ordinary store before the announcement, and is read by all:
// there each warp arrives. The last tile has fewer rows.
__global__ void elected_arrivals(const __grid_constant__ TensorMap map, int count, float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const ones = tiles(shared);
  Half* const ring = ones + kTile;
  __shared__ Barrier full[2], empty[2], number_read;
  __shared__ int number;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 2; ++stage) init(full[stage], 1), init(empty[stage], 2);
    init(number_read, 2 * 4);
    fence_barrier_init();
  }
  fill(ones, kTile);
  fence_proxy_async();
  __syncthreads();
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (warpgroup == 2) {
    give_registers<24>();
    if (thread != 0) return;
    for (int n = 0; n <= count; ++n) {
      wait(empty[n % 2], (n / 2 + 1) % 2);
      wait(number_read, (n + 1) % 2);
      number = n < count ? n : -1;
      if (n < count)
        copy(ring + n % 2 * kTile, map, full[n % 2], n * 64);
      else
        arrive(full[n % 2]);
    }
    return;
  }
  take_registers<240>();
  float D[32];
  for (int n = 0;; ++n) {
    wait(full[n % 2], n / 2 % 2);
    const int tile = number;
    __syncwarp();
    if (thread % 32 == 0) arrive(number_read);
    if (tile < 0) break;
    wgmma_fence();
    multiply<64>(D, ones, ring + n % 2 * kTile, tile > 0);
    wgmma_commit();
    wgmma_wait<0>();
    wait(full[n % 2], n / 2 % 2);  // again
    if (thread == 0) arrive(empty[n % 2]);
  }
  out[threadIdx.x] = sum(D);
}

// Fragments of a tile by ldmatrix, an arrival a warp behind a __syncwarp(). The barrier is asked
// rather than waited for.
__global__ void arrivals_of_warps(const __grid_constant__ TensorMap map, int count, float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const tile = tiles(shared);
  __shared__ Barrier full, empty;
  if (threadIdx.x == 0) init(full, 1), init(empty, 2), fence_barrier_init();
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 2) {
    for (int n = 0; n < count && lane == 0; ++n) {
      wait(empty, (n + 1) % 2);
      copy(tile, map, full, 64 * n);
    }
    return;
  }
  float total = 0;
  for (int n = 0; n < count; ++n) {
    while (!has_ended(full, n % 2)) {
    }
    const int row = 32 * warp + lane;
    std::uint32_t r[4];
    ldmatrix<4>(r, tile + 64 * row + 8 * (2 ^ row % 8));  // columns 16 to 23 of 32 rows
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half)
        total += to_float(Half::from_bits(static_cast<std::uint16_t>(r[i] >> 16 * half)));
    __syncwarp();
    if (lane == 0) arrive(empty);
  }
  out[threadIdx.x] = total;
}

// Two warpgroups take turns, by barriers 1 and 2; the second one gives the first its first turn.
__global__ void turns(int count, float* out) {
  __shared__ float shared;
  const int warpgroup = threadIdx.x / 128;
  if (threadIdx.x == 0) shared = 0;
  __syncthreads();
  if (warpgroup == 1) arrive_named(1, 256);
  for (int n = 0; n < count; ++n) {
    sync_named(1 + warpgroup, 256);
    bool wrong = false;
    if (threadIdx.x % 128 == 0) {
      shared = 2 * shared + warpgroup;
      wrong = shared < 0;
    }
    if (any_named(3 + warpgroup, 128, wrong)) break;
    if (n + 1 < count || warpgroup == 0) arrive_named(2 - warpgroup, 256);
  }
  sync_named(5, 256);
  out[threadIdx.x] = shared;
}

// Each warp stores its 16 rows through a slab of its own, twice.
__global__ void slabs(const __grid_constant__ TensorMap map) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Half* const slab = tiles(shared) + warp * 16 * 64;
  for (int half = 0; half < 2; ++half) {
    if (lane == 0) tma_wait_read<0>();
    __syncwarp();
    for (int column = 0; column < 64; column += 16) {
      std::uint32_t r[4];
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i % 2 * 8;
        const std::uint32_t number = Half(1 + row).bits;
        r[i] = number | number << 16;
      }
      const int row = lane % 16, chunk = column / 8 + lane / 16;
      stmatrix<4>(slab + row * 64 + (chunk ^ row % 8) * 8, r);
    }
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
      tma_store(map, slab, 0, 64 * half + 16 * warp, 0, 0);
      tma_commit();
    }
  }
  if (lane == 0) tma_wait<0>();
}

// ---- attention ----------------------------------------------------------------------------------

constexpr int kHeadDim = 128, kKeys = 128;  // of a step
constexpr int kSlab = 128 * 64;             // numbers: 128 rows of 64
constexpr int kMatrix = 2 * kSlab, kStages = 2;

__device__ __forceinline__ void copy_matrix(Half* to, const TensorMap& map, Barrier& full,
                                            int row) {
  arrive_expecting(full, 2 * kMatrix);
  tma_load(to, map, full, 0, row, 0, 0);
  tma_load(to + kSlab, map, full, 64, row, 0, 0);
}

// 128 queries, 2 warpgroups with 64 each, and one that loads. Q K^T of a step is issued before P V
// of the step before.
__global__ void attention(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                          const __grid_constant__ TensorMap v, int steps, float scale, float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const Q = tiles(shared);
  const auto K = [&](int n) { return Q + (1 + n % kStages) * kMatrix; };
  const auto V = [&](int n) { return Q + (1 + kStages + n % kStages) * kMatrix; };
  __shared__ Barrier q_full, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  if (threadIdx.x == 0) {
    init(q_full, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      init(k_full[stage], 1), init(k_empty[stage], 2);
      init(v_full[stage], 1), init(v_empty[stage], 2);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (warpgroup == 2) {
    give_registers<24>();
    if (thread != 0) return;
    copy_matrix(Q, q, q_full, 0);
    for (int n = 0; n < steps; ++n) {
      const int stage = n % kStages, free = (n / kStages + 1) % 2;
      wait(k_empty[stage], free);
      copy_matrix(K(n), k, k_full[stage], n * kKeys);
      wait(v_empty[stage], free);
      copy_matrix(V(n), v, v_full[stage], n * kKeys);
    }
    return;
  }
  take_registers<240>();
  float S[64], O[64] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};
  std::uint32_t P[8][4];
  const auto multiply_QK = [&](int n) {
    wait(k_full[n % kStages], n / kStages % 2);
    wgmma_fence();
    for (int i = 0; i < kHeadDim / 16; ++i) {
      const int place = i / 4 * kSlab + i % 4 * 16;
      wgmma<128, Half>(S, matrix_descriptor(Q + place + warpgroup * 64 * 64, 16, 1024),
                       matrix_descriptor(K(n) + place, 16, 1024), i > 0);
    }
    wgmma_commit();
  };
  wait(q_full, 0);
  multiply_QK(0);
  wgmma_wait<0>();
  if (thread == 0) arrive(k_empty[0]);
  for (int n = 0; n < steps; ++n) {
    for (int half = 0; half < 2; ++half) {
      float m_new = m[half], sum = 0;
      for (int i = 0; i < 64; ++i)
        if (i / 2 % 2 == half) m_new = fmaxf(m_new, S[i]);
      for (int lanes = 1; lanes < 4; lanes *= 2)
        m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, lanes));
      const float alpha = exp2f((m[half] - m_new) * scale);
      m[half] = m_new;
      for (int i = 0; i < 64; ++i)
        if (i / 2 % 2 == half) {
          sum += S[i] = exp2f((S[i] - m_new) * scale);
          O[i] *= alpha;
        }
      l[half] = l[half] * alpha + sum;
    }
    for (int i = 0; i < 32; ++i)
      P[i / 4][i % 4] = from_float<Half>(S[2 * i]).bits |
                        static_cast<std::uint32_t>(from_float<Half>(S[2 * i + 1]).bits) << 16;
    if (n + 1 < steps) multiply_QK(n + 1);
    wait(v_full[n % kStages], n / kStages % 2);
    wgmma_fence();
    for (int i = 0; i < kKeys / 16; ++i)
      wgmma<128, Half, true>(O, P[i], matrix_descriptor(V(n) + i * 16 * 64, 2 * kSlab, 1024), true);
    wgmma_commit();
    if (n + 1 < steps) {
      wgmma_wait<1>();
      if (thread == 0) arrive(k_empty[(n + 1) % kStages]);
    }
    wgmma_wait<0>();
    if (thread == 0) arrive(v_empty[n % kStages]);
  }
  for (int half = 0; half < 2; ++half)
    for (int lanes = 1; lanes < 4; lanes *= 2) l[half] += __shfl_xor_sync(~0u, l[half], lanes);
  for (int i = 0; i < 64; ++i) {
    const int row = 64 * warpgroup + thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    out[row * kHeadDim + i / 4 * 8 + thread % 4 * 2 + i % 2] = O[i] / l[i / 2 % 2];
  }
}

// Whether out is right for queries and keys of numbers that say where they come from.
bool run_attention() {
  constexpr Index kQueries = 128, kSteps = 2, kAll = kSteps * kKeys;
  const auto matrix = [](Index rows, int salt) {
    Tensor<Half, 4> x({1, 1, rows, kHeadDim});
    for (Index i = 0; i < x.size(); ++i)
      x.data()[i] = Half(static_cast<double>((i * 37 + i / kHeadDim * salt) % 41 - 20) / 16);
    return x;
  };
  const Tensor<Half, 4> q = matrix(kQueries, 5), k = matrix(kAll, 7), v = matrix(kAll, 11);
  const DeviceTensor<Half, 4> device_q(q), device_k(k), device_v(v);
  const DeviceTensor<float, 2> out({kQueries, kHeadDim});
  constexpr float kScale = 0.125f;
  launch("attention", attention,
         {.grid = 1, .block = 384, .shared_bytes = 1024 + (1 + 2 * kStages) * 2 * kMatrix},
         tensor_map(device_q.view(), 128), tensor_map(device_k.view(), kKeys),
         tensor_map(device_v.view(), kKeys), int{kSteps}, float{kScale}, out.data());
  const auto result = out.to_host();
  std::vector<double> P(kAll), row(kHeadDim);
  for (Index i = 0; i < kQueries; ++i) {
    double l = 0;
    std::fill(row.begin(), row.end(), 0);
    for (Index j = 0; j < kAll; ++j) {
      double s = 0;
      for (Index d = 0; d < kHeadDim; ++d)
        s += double{static_cast<float>(q(0, 0, i, d))} * double{static_cast<float>(k(0, 0, j, d))};
      l += P[static_cast<std::size_t>(j)] = std::exp2(s * double{kScale});
      for (Index d = 0; d < kHeadDim; ++d)
        row[static_cast<std::size_t>(d)] +=
            P[static_cast<std::size_t>(j)] * double{static_cast<float>(v(0, 0, j, d))};
    }
    // P is rounded to half: 2^-11 of values of up to 1.25.
    for (Index d = 0; d < kHeadDim; ++d)
      if (!(std::fabs(double{result(i, d)} - row[static_cast<std::size_t>(d)] / l) < 1e-3))
        return false;
  }
  return true;
}

}  // namespace

std::vector<Specimen> hopper_right() {
  const auto with = [](unsigned threads) {
    return LaunchConfig{1, threads, 1024 + 3 * std::size_t{kTileBytes}};
  };
  return {
      // A tile's row r sums up to 4096 (r % 8) + 2016; of the last tile 40 rows exist. A thread has
      // columns 2t and 2t + 1 of each 8, in two rows.
      right(KERNEL(elected_arrivals), with(384),
            IS(i < 256 ? 74 * (4096 * (4 * (i % 4) + 1) + 4032) : 0), Rows{4 * 64 + 40}, 5,
            result_from_zeros(384)),
      // Row r's column c is 64 (r % 8) + c; lane l has columns 16 + 2 (l % 4) and 17 + 2 (l % 4) of
      // a
      // row with r % 8 = l / 4, four of them.
      right(KERNEL(arrivals_of_warps), with(96),
            IS(i < 64 ? 3 * 4 * (2 * (64 * (i % 32 / 4) + 16 + 2 * (i % 4)) + 1) : 0), Rows{3 * 64},
            3, result_from_zeros(96)),
      right(KERNEL(turns), {1, 256}, IS(0b01010101), 4, result(256)),
      right(KERNEL(slabs), with(128), IS(1 + i / 64 % 16), Rows{128, 16, true}),
      {"attention", {}, run_attention},
  };
}

}  // namespace flash::simt_corpus
