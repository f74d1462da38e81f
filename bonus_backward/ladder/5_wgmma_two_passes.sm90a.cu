// Rung 5: two passes on wgmma, with copies by TMA (Hopper).
//
// Blocks of keys compute dK and dV, blocks of queries dQ. No two blocks add to the same element.
// So the same inputs give the same bits, and dQ needs no float32 copy.
//
// New: wgmma multiplies tiles that TMA brings. One thread orders the copies, two warpgroups
// compute. In the first pass these have different work, since dK or dV of 64 keys and heads of 256
// takes 128 registers of a thread:
//
//   group 0   S^T = K Q^T     P^T = exp2(S^T - lse)            dV += P^T dO
//   group 1   dP^T = V dO^T   dS^T = P^T * (dP^T - delta)      dK += dS^T Q
//
// The rows are keys. What a thread has of P^T and dS^T is then what it has to give to the next
// product, so neither goes to shared memory for it. Only P crosses, from group 0 to group 1. Both
// have the same fragments: thread t writes and thread t reads, without a layout and without
// a fence for wgmma. P crosses as float32. When 2^15 P crossed as fp16, the error of half's dK was
// 1.22 times cuDNN's, and sharp rows of bfloat16 lost weights below 2^-40.
//
// In the second pass a warpgroup has 64 queries and computes S, dP and dQ. dS goes from registers
// into dQ += dS K one step late, together with the next step's S and dP. This pass reads nothing
// that the first one writes. So without a mask its blocks begin where the first pass has none left:
// 1.5 to 3 % faster. With a mask that was 3 % slower. The kernel before both has ended by then,
// because each block of the first pass has waited for it.
//
// The bottleneck: tensor cores, since two passes do 7 products and one pass 5. For a step of 64
// keys and 64 queries of heads of 256 each product takes 512 clocks. Up to 128, one pass is faster
// (from rung 6 on). At 256, dQ's additions would be 64 KB a step, and the L2 cache the limit:
// there this rung stays the best one.
// Measured on an H200 (bfloat16, 16k tokens, hidden size 2048, with the kernel before): heads of
// 256: 406, 485 and 497 TFLOP/s at 1024, 4096 and 16384, 1.39, 1.27 and 1.45 times cuDNN's in the
// same run; with a mask 326, 459 and 507 (1.29, 1.23, 1.38). Heads of 128: 322, 358 and 365 (0.73,
// 0.69, 0.70), with a mask 259, 340 and 374 (0.88, 0.74, 0.73). 64 heads and 4096 keys, on an H100:
// heads of 160 1.52 times cuDNN's, with a mask 1.55; heads of 192 1.31 and 1.36 times.
#include "bonus_backward/ladder/hopper.hpp"

namespace flash::wgmma_two_passes {
namespace {

using namespace gradients;

// Keys and queries of a step, in both passes; the second pass has kBlockQ queries a block.
constexpr int kStep = 64, kBlockQ = 128;
constexpr int kThreads = 384, kRegistersToCopy = 24, kRegistersToCompute = 240;

template <int HeadDim>
struct Config {
  // A tile has room for whole slabs of 64 columns.
  static constexpr int kHeadDim = HeadDim, kWidth = (HeadDim + 63) / 64 * 64,
                       kSize = kStep * kWidth, kQSize = kBlockQ * kWidth;
  static constexpr int kPSize = kStep * kStep;
  static constexpr std::size_t kSharedOfKeys =
                                   2 * 6 * kSize + 4 * kPSize + 4 * 4 * kRowNumbers + 1024,
                               kSharedOfQueries = 2 * (2 * kQSize + 3 * kSize) + 1024;
  static constexpr std::size_t kSharedBytes = std::max(kSharedOfKeys, kSharedOfQueries);
};

struct Arguments {
  AttentionShape shape;
  Workspace work;
  int section;
  float scale, scale_in_base_2;
  bool causal;
};

// In the first pass P is 2^kShift times as large, for half's small numbers to keep their digits.
template <class T>
constexpr float kShift = std::is_same_v<T, Half> ? 15 : 0;

// ---- dK and dV ----------------------------------------------------------------------------------

struct KeyMaps {
  TensorMap q, k, v, d_out, rows, d_k, d_v;
};

template <class T, class C>
__global__ void __launch_bounds__(kThreads, 1)
    dk_dv_kernel(const __grid_constant__ KeyMaps maps, Arguments a) {
  constexpr int kD = C::kHeadDim, kSize = C::kSize;
  __shared__ KeyBarriers barriers;
  auto& [K_full, V_full, Q_full, dO_full, Q_empty, dO_empty, P_full, P_empty, dS_full, dS_empty] =
      barriers;
  FLASH_DYNAMIC_SHARED(T, shared);
  T *const K_smem = align_to_1024(shared), *const V_smem = K_smem + kSize,
           *const Q_smem = V_smem + kSize, *const dO_smem = Q_smem + 2 * kSize,
           *const P_smem = dO_smem + 2 * kSize;  // of float
  float* const lse_smem = reinterpret_cast<float*>(P_smem) + C::kPSize;
  float* const delta_smem = lse_smem + 2 * kRowNumbers;
  if (threadIdx.x == 0) barriers.init_all();
  __syncthreads();
  wait_for_kernel_before();
  let_next_kernel_begin();

  const BlockOfHead block(a.shape, a.section, a.shape.keys, kStep, a.causal, false);
  const int j0 = block.first, first = a.causal ? j0 / kStep : 0,
            all = static_cast<int>((a.shape.queries + kStep - 1) / kStep),
            steps = all > first ? all - first : 0;

  if (threadIdx.x < 128) {
    give_registers<kRegistersToCopy>();
    if (threadIdx.x != 0) return;
    const int first_row = block.head * static_cast<int>(a.work.rows / 32);
    for (int n = 0; n < steps; ++n) {
      const int stage = n % 2, parity = n / 2 % 2, i0 = (first + n) * kStep,
                row = first_row + i0 / 32;
      if (n == 0) {
        arrive_expecting(K_full, 2 * kSize);
        load_tile<kStep, kD>(K_smem, maps.k, K_full, j0, block);
      }
      wait(Q_empty[stage], parity ^ 1);
      arrive_expecting(Q_full[stage], 2 * kSize + 4 * kStep);
      load_tile<kStep, kD>(Q_smem + stage * kSize, maps.q, Q_full[stage], i0, block);
      tma_load(lse_smem + stage * kRowNumbers, maps.rows, Q_full[stage], 0, row, 0, 0);
      if (n == 0) {
        arrive_expecting(V_full, 2 * kSize);
        load_tile<kStep, kD>(V_smem, maps.v, V_full, j0, block);
      }
      wait(dO_empty[stage], parity ^ 1);
      arrive_expecting(dO_full[stage], 2 * kSize + 4 * kStep);
      load_tile<kStep, kD>(dO_smem + stage * kSize, maps.d_out, dO_full[stage], i0, block);
      tma_load(delta_smem + stage * kRowNumbers, maps.rows, dO_full[stage], 0, row, 1, 0);
    }
    return;
  }

  take_registers<kRegistersToCompute>();
  const unsigned thread = threadIdx.x % 128, lane = thread % 32;
  const int warp = static_cast<int>(thread / 32);
  const RowPlace row_place(lane);
  float4* const my_P = reinterpret_cast<float4*>(P_smem) + thread;
  float D[kD / 2];  // dV or dK
  FLASH_UNROLL
  for (float& x : D) x = 0;

  if (threadIdx.x < 256) {
    const Mask<kStep> mask(static_cast<int>(a.shape.keys) - j0, a.causal, warp, lane);
    if (steps > 0) wait(K_full, 0);
    for (int n = 0; n < steps; ++n) {
      const int stage = n % 2, parity = n / 2 % 2;
      float S[kStep / 2];
      wait(Q_full[stage], parity);
      start_scores<kStep, kStep, kD, T>(S, by_rows(K_smem), by_rows(Q_smem + stage * kSize));
      wgmma_wait<0>();
      FLASH_UNROLL
      for (int i = 0; i < kStep / 8; ++i) {
        const float2 lse = row_place(lse_smem + stage * kRowNumbers, i);
        FLASH_UNROLL
        for (int r = 0; r < 2; ++r) {
          float* const two = &S[4 * i + 2 * r];
          two[0] = exp2_approximate(fmaf(two[0], a.scale_in_base_2, kShift<T> - lse.x));
          two[1] = exp2_approximate(fmaf(two[1], a.scale_in_base_2, kShift<T> - lse.y));
        }
      }
      tell(Q_empty[stage], lane);
      mask.apply(S, (first + n) * kStep - j0);
      wait(P_empty, n % 2 ^ 1);
      FLASH_UNROLL
      for (int i = 0; i < kStep / 8; ++i)
        my_P[i * 128] = make_float4(S[4 * i], S[4 * i + 1], S[4 * i + 2], S[4 * i + 3]);
      tell(P_full, lane);
      Packed<kStep> P;
      pack_scores<T, kStep>(P, S);
      wait(dO_full[stage], parity);
      start_gradient<kStep, kD, T>(D, P, by_columns<kStep>(dO_smem + stage * kSize));
      wgmma_wait<0>();
      tell(dO_empty[stage], lane);
    }
    sync_named(1, 256);  // the other group has read all of V
    send_gradient<kStep, kD>(maps.d_v, V_smem, D, exp2f(-kShift<T>), 16 * warp, lane, block);
  } else {
    if (steps > 0) wait(V_full, 0);
    for (int n = 0; n < steps; ++n) {
      const int stage = n % 2, parity = n / 2 % 2;
      float dP[kStep / 2];
      wait(dO_full[stage], parity);
      start_scores<kStep, kStep, kD, T>(dP, by_rows(V_smem), by_rows(dO_smem + stage * kSize));
      wgmma_wait<0>();
      Packed<kStep> dS;
      wait(P_full, n % 2);
      FLASH_UNROLL
      for (int i = 0; i < kStep / 8; ++i) {
        const float4 P = my_P[i * 128];
        const float2 delta = row_place(delta_smem + stage * kRowNumbers, i);
        const float* const dP_i = dP + 4 * i;
        const float unshift = exp2f(-kShift<T>);  // in half 2^15 dS might not fit
        dS[i / 2][i % 2 * 2] =
            pack<T>(P.x * unshift * (dP_i[0] - delta.x), P.y * unshift * (dP_i[1] - delta.y));
        dS[i / 2][i % 2 * 2 + 1] =
            pack<T>(P.z * unshift * (dP_i[2] - delta.x), P.w * unshift * (dP_i[3] - delta.y));
      }
      tell(P_empty, lane);
      tell(dO_empty[stage], lane);
      wait(Q_full[stage], parity);  // no race without it: group 0 has waited before it sent P
      start_gradient<kStep, kD, T>(D, dS, by_columns<kStep>(Q_smem + stage * kSize));
      wgmma_wait<0>();
      tell(Q_empty[stage], lane);
    }
    sync_named(1, 256);  // the other group has read all of K
    send_gradient<kStep, kD>(maps.d_k, K_smem, D, a.scale, 16 * warp, lane, block);
  }
  if (lane == 0) tma_wait_read<0>();
}

// ---- dQ -----------------------------------------------------------------------------------------

struct QueryMaps {
  TensorMap q, k, v, d_out, d_q;
};
struct QueryBarriers {
  Barrier Q_full, dO_full, K_full[2], K_empty[2], V_full, V_empty;
};

template <class T, class C>
__global__ void __launch_bounds__(kThreads, 1)
    dq_kernel(const __grid_constant__ QueryMaps maps, Arguments a) {
  constexpr int kD = C::kHeadDim, kSize = C::kSize, kQSize = C::kQSize;
  __shared__ QueryBarriers barriers;
  auto& [Q_full, dO_full, K_full, K_empty, V_full, V_empty] = barriers;
  FLASH_DYNAMIC_SHARED(T, shared);
  T *const Q_smem = align_to_1024(shared), *const dO_smem = Q_smem + kQSize,
           *const K_smem = dO_smem + kQSize, *const V_smem = K_smem + 2 * kSize;
  if (threadIdx.x == 0) {
    init(Q_full, 1);
    init(dO_full, 1);
    init(V_full, 1);
    init(V_empty, 8);
    for (int i = 0; i < 2; ++i) {
      init(K_full[i], 1);
      init(K_empty[i], 8);
    }
    fence_barrier_init();
  }
  __syncthreads();

  const BlockOfHead block(a.shape, a.section, a.shape.queries, kBlockQ, a.causal, true);
  const int i0 = block.first, queries = static_cast<int>(a.shape.queries),
            some_see = static_cast<int>(a.shape.visible_keys(
                (i0 + kBlockQ < queries ? i0 + kBlockQ : queries) - 1, a.causal)),
            steps = (some_see + kStep - 1) / kStep;

  if (threadIdx.x < 128) {
    give_registers<kRegistersToCopy>();
    if (threadIdx.x != 0 || steps == 0) return;
    arrive_expecting(Q_full, 2 * kQSize);
    load_tile<kBlockQ, kD>(Q_smem, maps.q, Q_full, i0, block);
    arrive_expecting(dO_full, 2 * kQSize);
    load_tile<kBlockQ, kD>(dO_smem, maps.d_out, dO_full, i0, block);
    for (int n = 0; n < steps; ++n) {
      const int stage = n % 2;
      wait(K_empty[stage], n / 2 % 2 ^ 1);
      arrive_expecting(K_full[stage], 2 * kSize);
      load_tile<kStep, kD>(K_smem + stage * kSize, maps.k, K_full[stage], n * kStep, block);
      wait(V_empty, n % 2 ^ 1);
      arrive_expecting(V_full, 2 * kSize);
      load_tile<kStep, kD>(V_smem, maps.v, V_full, n * kStep, block);
    }
    return;
  }

  take_registers<kRegistersToCompute>();
  const unsigned thread = threadIdx.x % 128, lane = thread % 32;
  const int warp = static_cast<int>(thread / 32), t2 = static_cast<int>(lane % 4) * 2,
            group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128) - 1, 0),
            all_see = static_cast<int>(a.shape.visible_keys(i0 + 64 * group, a.causal));
  float lse[2], delta[2];
  int sees[2];  // keys, from the thread's first column on
  FLASH_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int i = i0 + 64 * group + 16 * warp + static_cast<int>(lane / 4) + 8 * r;
    lse[r] = a.work.lse[block.head * a.work.rows + i];
    delta[r] = a.work.delta[block.head * a.work.rows + i];
    sees[r] = static_cast<int>(a.shape.visible_keys(i, a.causal)) - t2;
  }
  const MatrixDescriptor Q = by_rows(Q_smem + group * 64 * 64),
                         dO = by_rows(dO_smem + group * 64 * 64);
  float dQ[kD / 2];
  FLASH_UNROLL
  for (float& x : dQ) x = 0;
  Packed<kStep> dS;

  const auto step = [&]<bool kFirst>(int n, std::bool_constant<kFirst>) {
    const int stage = n % 2;
    float S[kStep / 2], dP[kStep / 2];
    if constexpr (!kFirst)
      start_gradient<kStep, kD, T>(dQ, dS, by_columns<kStep>(K_smem + (stage ^ 1) * kSize));
    wait(barriers.K_full[stage], n / 2 % 2);
    start_scores<kBlockQ, kStep, kD, T>(S, Q, by_rows(K_smem + stage * kSize));
    wait(barriers.V_full, n % 2);
    start_scores<kBlockQ, kStep, kD, T>(dP, dO, by_rows(V_smem));
    if constexpr (!kFirst) {
      wgmma_wait<2>();
      tell(barriers.K_empty[stage ^ 1], lane);
    }
    wgmma_wait<1>();
    FLASH_UNROLL
    for (int i = 0; i < kStep / 2; ++i)
      S[i] = exp2_approximate(fmaf(S[i], a.scale_in_base_2, -lse[i / 2 % 2]));
    if ((n + 1) * kStep > all_see) {
      FLASH_UNROLL
      for (int i = 0; i < kStep / 2; ++i)
        if (i / 4 * 8 + i % 2 >= sees[i / 2 % 2] - n * kStep) S[i] = 0;
    }
    wgmma_wait<0>();
    tell(barriers.V_empty, lane);
    FLASH_UNROLL
    for (int i = 0; i < kStep / 2; ++i) dP[i] = S[i] * (dP[i] - delta[i / 2 % 2]);
    pack_scores<T, kStep>(dS, dP);
  };
  if (steps > 0) {
    wait(Q_full, 0);
    wait(dO_full, 0);
    step(0, std::true_type());
  }
  for (int n = 1; n < steps; ++n) step(n, std::false_type());
  if (steps > 0) {
    start_gradient<kStep, kD, T>(dQ, dS, by_columns<kStep>(K_smem + (steps - 1) % 2 * kSize));
    wgmma_wait<0>();
  }
  send_gradient<kBlockQ, kD>(maps.d_q, Q_smem, dQ, a.scale, 64 * group + 16 * warp, lane, block);
  if (lane == 0) tma_wait_read<0>();
  wait_for_kernel_before();  // whoever waits for this kernel waits for dK and dV, too
}

#ifdef FLASH_FEW_CONFIGURATIONS
using Configs = Table<Config<64>, Config<160>, Config<256>>;
#else
using Configs = Table<Config<64>, Config<128>, Config<160>, Config<192>, Config<256>>;
#endif

template <class T>
void backward(const AttentionBackward<T>& pass, PassMemory& memory) {
  const AttentionShape shape = check_attention(pass);
  with_config(Configs(), shape.head_dim, [&]<class C>(C) {
    constexpr int kD = C::kHeadDim;
    const Workspace work = workspace_at(memory.workspace, shape);
    prepare<(kD > 128 ? 256 : kD), false>(pass, work);
    Arguments a{shape,
                work,
                heads_of_section(work.heads, shape.queries, 4 * kD),
                static_cast<float>(attention_scale(pass.options, shape.head_dim)),
                scale_in_base_2(pass.options, shape.head_dim),
                pass.options.causal};
    const TensorMap q = tensor_map(pass.q, kStep), k = tensor_map(pass.k, kStep),
                    v = tensor_map(pass.v, kStep), d_out = tensor_map(pass.d_out, kStep);
    if (shape.keys > 0)
      launch("dk_dv", dk_dv_kernel<T, C>,
             {.grid = grid_size(work.heads * ((shape.keys + kStep - 1) / kStep)),
              .block = kThreads,
              .shared_bytes = C::kSharedOfKeys,
              .stream = pass.stream,
              .begins_early = true},
             KeyMaps{q, k, v, d_out, map_of_rows(work, kStep), tensor_map(pass.d_k, 16),
                     tensor_map(pass.d_v, 16)},
             a);
    if (shape.keys > 0) a.section = heads_of_section(work.heads, shape.keys, 4 * kD);
    launch("dq", dq_kernel<T, C>,
           {.grid = grid_size(work.heads * ((shape.queries + kBlockQ - 1) / kBlockQ)),
            .block = kThreads,
            .shared_bytes = C::kSharedOfQueries,
            .stream = pass.stream,
            .begins_early = shape.keys > 0 && !pass.options.causal},
           QueryMaps{tensor_map(pass.q, kBlockQ), k, v, tensor_map(pass.d_out, kBlockQ),
                     tensor_map(pass.d_q, 16)},
           a);
  });
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.backward.add(
      {.name = name,
       .device = DeviceKind::kGpu,
       .run = {.float16 = backward<Half>, .bfloat16 = backward<BFloat16>},
       .unsupported = why_not_on_hopper,
       .workspace_bytes =
           [](const AttentionProblem& problem) { return workspace_bytes(problem.shape, 0); },
       .finite_inputs = true});
}

}  // namespace flash::wgmma_two_passes
