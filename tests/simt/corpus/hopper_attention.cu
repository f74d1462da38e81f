// Attention on Hopper as a small kernel: TMA and mbarriers, wgmma, a warpgroup that only loads. It
// has what such kernels need and no more: tests/mutants switches off each barrier, wait and fence.
#include <cmath>

#include "simt/corpus/hopper.hpp"

namespace flash::simt_corpus {
namespace {

constexpr int kHeadDim = 128, kQueries = 128, kKeys = 64;  // keys of a step
constexpr int kStages = 2;

// A matrix in shared memory: two slabs of so many rows of 64 numbers.
template <int kRows>
struct Matrix {
  static constexpr int kSlab = kRows * 64, kSize = 2 * kSlab;
  Half* data;

  __device__ __forceinline__ void copy(const TensorMap& map, Barrier& full, int row) const {
    arrive_expecting(full, 2 * kSize);
    tma_load(data, map, full, 0, row, 0, 0);
    tma_load(data + kSlab, map, full, 64, row, 0, 0);
  }
  // Columns 16 i to 16 i + 15 of the rows from `row` on.
  __device__ __forceinline__ MatrixDescriptor columns(int i, int row = 0) const {
    return matrix_descriptor(data + i / 4 * kSlab + row * 64 + i % 4 * 16, 16, 1024);
  }
  // Rows 16 i to 16 i + 15, for a transposed operand.
  __device__ __forceinline__ MatrixDescriptor rows(int i) const {
    return matrix_descriptor(data + i * 16 * 64, 2 * kSlab, 1024);
  }
};

// 128 queries, 2 warpgroups with 64 each, and one that loads. Q K^T of a step is issued before P V
// of the step before.
__global__ void attention(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                          const __grid_constant__ TensorMap v, int steps, float scale, float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  using Block = Matrix<kKeys>;
  const Matrix<kQueries> Q{tiles(shared)};
  const auto K = [&](int n) { return Block{Q.data + Q.kSize + n % kStages * Block::kSize}; };
  const auto V = [&](int n) { return Block{K(n).data + kStages * Block::kSize}; };
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
    Q.copy(q, q_full, 0);
    for (int n = 0; n < steps; ++n) {
      const int stage = n % kStages, free = (n / kStages + 1) % 2;
      wait(k_empty[stage], free);
      K(n).copy(k, k_full[stage], n * kKeys);
      wait(v_empty[stage], free);
      V(n).copy(v, v_full[stage], n * kKeys);
    }
    return;
  }
  take_registers<240>();
  float S[kKeys / 2], O[kHeadDim / 2] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};
  std::uint32_t P[kKeys / 16][4];
  const auto multiply_QK = [&](int n) {
    wait(k_full[n % kStages], n / kStages % 2);
    wgmma_fence();
    for (int i = 0; i < kHeadDim / 16; ++i)
      wgmma<kKeys, Half>(S, Q.columns(i, warpgroup * 64), K(n).columns(i), i > 0);
    wgmma_commit();
  };
  wait(q_full, 0);
  multiply_QK(0);
  wgmma_wait<0>();
  if (thread == 0) arrive(k_empty[0]);
  for (int n = 0; n < steps; ++n) {
    for (int half = 0; half < 2; ++half) {
      float m_new = m[half], sum = 0;
      for (int i = 0; i < kKeys / 2; ++i)
        if (i / 2 % 2 == half) m_new = fmaxf(m_new, S[i]);
      for (int lanes = 1; lanes < 4; lanes *= 2)
        m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, lanes));
      const float alpha = exp2f((m[half] - m_new) * scale);
      m[half] = m_new;
      for (int i = 0; i < kKeys / 2; ++i)
        if (i / 2 % 2 == half) sum += S[i] = exp2f((S[i] - m_new) * scale);
      for (int i = 0; i < kHeadDim / 2; ++i)
        if (i / 2 % 2 == half) O[i] *= alpha;
      l[half] = l[half] * alpha + sum;
    }
    for (int i = 0; i < kKeys / 4; ++i)
      P[i / 4][i % 4] = from_float<Half>(S[2 * i]).bits |
                        static_cast<std::uint32_t>(from_float<Half>(S[2 * i + 1]).bits) << 16;
    if (n + 1 < steps) multiply_QK(n + 1);
    wait(v_full[n % kStages], n / kStages % 2);
    wgmma_fence();
    for (int i = 0; i < kKeys / 16; ++i) wgmma<kHeadDim, Half, true>(O, P[i], V(n).rows(i), true);
    wgmma_commit();
    if (n + 1 < steps) {
      wgmma_wait<1>();  // no race without it: V(n) has to be free first, behind wait<0>
      if (thread == 0) arrive(k_empty[(n + 1) % kStages]);
    }
    wgmma_wait<0>();
    if (thread == 0) arrive(v_empty[n % kStages]);
  }
  for (int half = 0; half < 2; ++half)
    for (int lanes = 1; lanes < 4; lanes *= 2) l[half] += __shfl_xor_sync(~0u, l[half], lanes);
  for (int i = 0; i < kHeadDim / 2; ++i) {
    const int row = 64 * warpgroup + thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    out[row * kHeadDim + i / 4 * 8 + thread % 4 * 2 + i % 2] = O[i] / l[i / 2 % 2];
  }
}

constexpr Index kSteps = 4, kAllKeys = kSteps * kKeys;
constexpr float kScale = 0.125f;

// Numbers that say where they come from.
Tensor<Half, 4> matrix(Index rows, int salt) {
  Tensor<Half, 4> x({1, 1, rows, kHeadDim});
  for (Index i = 0; i < x.size(); ++i)
    x.data()[i] = Half(static_cast<double>((i * 37 + i / kHeadDim * salt) % 41 - 20) / 16);
  return x;
}

Tensor<double, 2> reference(const Tensor<Half, 4>& q, const Tensor<Half, 4>& k,
                            const Tensor<Half, 4>& v) {
  Tensor<double, 2> out({kQueries, kHeadDim});
  for (Index i = 0; i < kQueries; ++i) {
    double l = 0;
    for (Index j = 0; j < kAllKeys; ++j) {
      double s = 0;
      for (Index d = 0; d < kHeadDim; ++d)
        s += double{static_cast<float>(q(0, 0, i, d))} * double{static_cast<float>(k(0, 0, j, d))};
      const double p = std::exp2(s * double{kScale});
      l += p;
      for (Index d = 0; d < kHeadDim; ++d)
        out(i, d) += p * double{static_cast<float>(v(0, 0, j, d))};
    }
    for (Index d = 0; d < kHeadDim; ++d) out(i, d) /= l;
  }
  return out;
}

}  // namespace

bool attention_is_right() {
  const Tensor<Half, 4> q = matrix(kQueries, 5), k = matrix(kAllKeys, 7), v = matrix(kAllKeys, 11);
  static const Tensor<double, 2> want =
      reference(q, k, v);  // once: it takes longer than the kernel
  const DeviceTensor<Half, 4> device_q(q), device_k(k), device_v(v);
  const DeviceTensor<float, 2> out({kQueries, kHeadDim});
  constexpr Index kNumbers = Matrix<kQueries>::kSize + 2 * kStages * Matrix<kKeys>::kSize;
  launch("attention", attention,
         {.grid = 1, .block = 384, .shared_bytes = 1024 + sizeof(Half) * kNumbers},
         tensor_map(device_q.view(), kQueries), tensor_map(device_k.view(), kKeys),
         tensor_map(device_v.view(), kKeys), int{kSteps}, float{kScale}, out.data());
  const auto result = out.to_host();
  for (Index i = 0; i < result.size(); ++i)  // P is rounded to half: 2^-11 of values of up to 1.25
    if (!(std::fabs(double{result.data()[i]} - want.data()[i]) < 1e-3)) return false;
  return true;
}

}  // namespace flash::simt_corpus
