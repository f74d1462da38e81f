// Rung 2: a tile as large as the registers, vectors of exponentials, all cores.
//
// New: with AVX-512 24 vectors of accumulators stay in registers through 128 keys, as in part 2's
// ladder (common/cpu/tile.hpp): 24 multiply-adds need 10 loads, where rung 1 needs 6 for 8. A whole
// vector of exponentials is computed at a time (common/cpu/exp2.hpp). And a tile never waits for
// memory: 128 rows of V are packed in panels of 4 vectors, and 480 rows of X use a panel from the
// second-level cache. Unpacked, the pieces of a panel are a whole row of V apart, and would push
// each other out of the first level. What comes next of X and V is prefetched, since the pieces of
// their rows, 512 and 256 bytes, are too short for the processor to foresee (2 to 4 %). Each thread
// takes blocks of 480 rows.
//
// An unfused function has fast products and threads too. It is slower because
// softmax(X) goes out to memory and comes back. On one core of an AMD EPYC (Zen 4, AVX-512), 512
// columns, 256, 1024 and 8192 keys: 88, 91 and 97 GFLOP/s, where PyTorch's softmax and product
// reach 63, 64 and 72, and multiply-adds on registers 117.
#define FLASH_ISA fused_2  // the vectors of the instruction set that this file is compiled for

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>

#include "common/cpu/exp2.hpp"
#include "common/cpu/threads.hpp"
#include "common/cpu/tile.hpp"
#include "common/registry.hpp"

namespace flash::fused_2 {
namespace {

constexpr Index kLanesOf = kLanes<float>;
// A tile of O: 24 accumulators where there are 32 registers, 12 where there are 16.
constexpr int kM = 6, kN = kRegisters == 32 ? 4 : 2;
constexpr Index kPanel = kN * kLanesOf;    // columns of a packed panel of V
constexpr Index kRows = 480, kKeys = 128;  // that are worked on at a time
constexpr Index kLine = 64 / sizeof(float), kRowsAhead = 4;
constexpr float kLog2E = 1.4426950408889634f, kInfinity = std::numeric_limits<float>::infinity();

Index round_up(Index value, Index multiple) { return (value + multiple - 1) / multiple * multiple; }

// What a thread works in.
struct Memory {
  float *P, *V, *O, *m, *l, *alpha;  // (rows, kKeys), (kKeys, kPanel), (rows, width), (rows) each

  static Index rows(const SoftmaxMatmulShape& shape) { return std::min(kRows, shape.d1); }
  static Index size(const SoftmaxMatmulShape& shape) {
    const Index width = round_up(shape.d3, kPanel);
    return round_up(kKeys * kPanel + rows(shape) * (kKeys + width + 3), 16);
  }
  Memory(float* memory, const SoftmaxMatmulShape& shape)
      : P(memory),
        V(P + rows(shape) * kKeys),
        O(V + kKeys * kPanel),
        m(O + rows(shape) * round_up(shape.d3, kPanel)),
        l(m + rows(shape)),
        alpha(l + rows(shape)) {}
};

// What `combine` makes of all lanes.
template <class Combine>
float over_lanes(Vector<float> x, Combine combine) {
  for (int half = kLanesOf / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) x[lane] = combine(x[lane], x[lane + half]);
  return x[0];
}

// Row i of P, m, l and alpha for `keys` scores; behind them zeros.
void weigh(const Memory& memory, Index i, const float* x, Index stride, Index keys) {
  float* const P = memory.P + i * kKeys;
  if (stride != 1 || keys % kLanesOf != 0) {
    for (Index j = 0; j < keys; ++j) P[j] = x[j * stride];
    std::fill(P + keys, P + round_up(keys, kLanesOf), -kInfinity);
    x = P;
  }
  Vector<float> largest = broadcast(-kInfinity), sums{};
  for (Index j = 0; j < keys; j += kLanesOf) largest = max(largest, load(x + j));
  // m is the maximum times log2(e), rounded once: the same number in each weight and in alpha, so
  // that its rounding cancels.
  const float largest_of_all = over_lanes(largest, [](float a, float b) { return a > b ? a : b; });
  const float m_old = memory.m[i], m = std::fmax(m_old, largest_of_all * kLog2E);
  const float reference = m == -kInfinity ? 0 : m;
  for (Index j = 0; j < keys; j += kLanesOf) {
    const Vector<float> p = exp2<float>(load(x + j) * kLog2E - reference);
    store(P + j, p);
    sums += p;
  }
  const float alpha = exp2<float>(broadcast(m_old - reference))[0];
  memory.l[i] = memory.l[i] * alpha + over_lanes(sums, std::plus<float>());
  memory.m[i] = m;
  memory.alpha[i] = alpha;
}

// Columns column0 to column0 + kPanel - 1 of `keys` keys, side by side; zeros where there are none.
void pack(const Memory& memory, const TensorView<const float, 3>& v, Index b, Index key0,
          Index keys, Index column0) {
  const Index columns = std::min(kPanel, v.extent(2) - column0);
  for (Index j = 0; j < keys; ++j) {
    const float* const from = &v(b, key0 + j, column0);
    float* const to = memory.V + j * kPanel;
    if (v.stride(2) == 1)
      std::copy_n(from, columns, to);
    else
      for (Index c = 0; c < columns; ++c) to[c] = from[c * v.stride(2)];
    std::fill(to + columns, to + kPanel, 0.0f);
  }
}

// Rows i0 to i0 + rows - 1 of a batch index.
void rows_of_out(const SoftmaxMatmul<float>& pass, Index b, Index i0, Index rows,
                 const Memory& memory) {
  const auto [batch, d1, d2, d3] = pass.shape();
  const Index width = round_up(d3, kPanel);
  std::fill_n(memory.m, rows, -kInfinity);
  std::fill_n(memory.l, rows, 0.0f);
  std::fill_n(memory.O, rows * width, 0.0f);
  for (Index key0 = 0; key0 < d2; key0 += kKeys) {
    const Index keys = std::min(kKeys, d2 - key0);
    for (Index i = 0; i < rows; ++i) {
      if (i + kRowsAhead < rows)
        for (Index j = 0; j < keys; j += kLine)
          __builtin_prefetch(&pass.x(b, i0 + i + kRowsAhead, key0 + j));
      weigh(memory, i, &pass.x(b, i0 + i, key0), pass.x.stride(2), keys);
    }
    for (Index column0 = 0; column0 < d3; column0 += kPanel) {
      pack(memory, pass.v, b, key0, keys, column0);
      const bool last = column0 + kPanel >= d3;
      const Index next_key0 = key0 + (last ? kKeys : 0), next_column0 = last ? 0 : column0 + kPanel;
      const auto add =
          [ =, &pass, all_keys = d2, columns = d3, O = memory.O + column0, alpha = memory.alpha ](
              Index i, int n, Vector<float> sum) __attribute__((always_inline)) {
        float* const o = O + i * width + n * kLanesOf;
        store(o, load(o) * alpha[i] + sum);
        // The next panel's row i: the product has more rows than the panel.
        if (const Index column = next_column0 + n * kLanesOf;
            i < kKeys && next_key0 + i < all_keys && column < columns)
          __builtin_prefetch(&pass.v(b, next_key0 + i, column));
      };
      rows_product<kM, kN, Along::kSteps, float>(0, rows, {memory.P, kKeys}, memory.V,
                                                 Constant<kPanel>{}, keys, add);
    }
  }
  for (Index i = 0; i < rows; ++i) {
    const float l = memory.l[i], inverse = l == 0 ? 0 : 1 / l;
    const float* const o = memory.O + i * width;
    float* const to = &pass.out(b, i0 + i, 0);
    for (Index c = 0; c < d3; ++c) to[c * pass.out.stride(2)] = o[c] * inverse;
  }
}

Index row_blocks(const SoftmaxMatmulShape& shape) { return (shape.d1 + kRows - 1) / kRows; }

Index threads_for(const SoftmaxMatmulShape& shape) {
  return std::min<Index>(host_threads(), shape.batch * row_blocks(shape));
}

void fused_softmax_matmul(const SoftmaxMatmul<float>& pass, PassMemory& memory) {
  const SoftmaxMatmulShape shape = check_softmax_matmul(pass);
  const Index blocks = row_blocks(shape);
  std::atomic<Index> next{0};
  parallel_for(threads_for(shape), [&](Index thread) {
    const Memory mine(static_cast<float*>(memory.workspace) + thread * Memory::size(shape), shape);
    for (Index task = next++; task < shape.batch * blocks; task = next++) {
      const Index i0 = task % blocks * kRows;
      rows_of_out(pass, task / blocks, i0, std::min(kRows, shape.d1 - i0), mine);
    }
  });
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.softmax_matmul.add({.name = name,
                               .run = {.float32 = fused_softmax_matmul},
                               .workspace_bytes = [](const SoftmaxMatmulProblem& problem) {
                                 return sizeof(float) *
                                        static_cast<std::size_t>(threads_for(problem.shape) *
                                                                 Memory::size(problem.shape));
                               }});
}

}  // namespace flash::fused_2
