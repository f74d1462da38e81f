// Rung 2: vectors. The inner loops and exp compute a vector at a time.
//
// What changed since rung 1: the innermost loops are written in vectors, as wide as the processor
// has them, chosen at the first call. Where scores are computed, a lane is a key: the dot products
// of a query with 4 vectors of keys stay in registers over all of head_dim, where the solution
// loads and stores its row of scores for each column. Where rows are summed up (O, dQ, dK, dV), a
// lane is a column. Only a row's maximum and its sum are added up across the lanes, once for each
// block of keys.
//
// exp is a polynomial (common/cpu/exp2.hpp) and computes a vector at a time, where std::exp takes
// one number after the other. In the forward pass a task is some of a head's queries (192 with
// AVX-512 in float), so that one head has work for many threads; in the backward pass a task is
// still a head.
//
// Measured, as in rung 1: forward 391 to 29 ms, backward 648 to 370 ms; 58 to 151 GFLOP/s. In the
// backward pass each pair of a query and a key still loads and stores the rows of dK and dV that it
// adds to, and 4 heads keep 4 cores busy.
#include "common/cpu/exp2.hpp"
#include "common/cpu/tile.hpp"
#include "part2_flash_cpu/ladder/isa.hpp"
#include "part2_flash_cpu/ladder/per_isa/rows.hpp"
#include "part2_flash_cpu/ladder/per_isa/transpose.hpp"

namespace flash::FLASH_ISA {
namespace {

constexpr int kVectors = 4;  // that are summed up at a time: 4 cycles' latency and 2 multiply-adds
                             // a cycle need 8, and the loads allow 2
template <class T>
constexpr Index kKeys = kVectors* kLanes<T>;  // a block

// to (columns, kKeys) = the transpose of `rows` rows, 0 in the lanes behind them.
template <class T>
void pack(HeadRows<const T> from, Index rows, Index columns, T* to) {
  transpose(from, rows, columns, T{1}, HeadRows<T>{to, kKeys<T>});
  for (Index c = 0; c < columns; ++c)
    for (Index j = rows; j < kKeys<T>; ++j) to[c * kKeys<T> + j] = 0;
}

// to (rows, width) = rows of `from`, 0 in the columns behind them.
template <class T>
void pad(HeadRows<const T> from, Index rows, Index columns, T* to) {
  const Index wide = width<T>(columns);
  for (Index j = 0; j < rows; ++j)
    for (Index c = 0; c < wide; ++c)
      to[j * wide + c] = c < columns ? from.data[j * from.row + c] : T{0};
}

// product = row (columns) times the packed block (columns, kKeys).
template <class T>
FLASH_INLINE void scores(const T* row, const T* block, Index columns,
                         Vector<T> (&product)[kVectors]) {
  tile_product<1, kVectors, Along::kSteps, T>(
      {row, 0}, block, Constant<kKeys<T>>{},
      columns, [&](int, int n, Vector<T> sum) __attribute__((always_inline)) { product[n] = sum; });
}

// sums (wide) = factor * sums + weights (count) times `count` rows of (count, wide).
template <class T>
FLASH_INLINE void add_rows(const T* weights, const T* rows, Index count, Index wide, T factor,
                           T* sums) {
  const auto columns = [&]<int kColumns>(Index c) __attribute__((always_inline)) {
    tile_product<1, kColumns, Along::kSteps, T>(
        {weights, 0}, rows + c, wide,
        count, [&](int, int n, Vector<T> sum) __attribute__((always_inline)) {
          T* const to = sums + c + n * kLanes<T>;
          store(to, load(to) * factor + sum);
        });
  };
  Index c = 0;
  for (; c + kVectors * kLanes<T> <= wide; c += kVectors * kLanes<T>)
    columns.template operator()<kVectors>(c);
  for (; c < wide; c += kLanes<T>) columns.template operator()<1>(c);
}

template <class T>
Index forward_scratch(Index block_queries, Index, Index head_dim) {
  return kKeys<T> * (head_dim + width<T>(head_dim) + 1) + block_queries * (width<T>(head_dim) + 2);
}

template <class T>
void forward(const ForwardBlock<T>& x) {
  const Index d = x.head_dim, wide = width<T>(d), rows = x.last_query - x.first_query;
  T* const Kt = x.scratch;           // (d, kKeys)
  T* const V = Kt + d * kKeys<T>;    // (kKeys, wide)
  T* const P = V + kKeys<T> * wide;  // of one query: (kKeys)
  T* const O = P + kKeys<T>;         // (rows, wide)
  T *const m = O + rows * wide, *const l = m + rows;
  const T scale2 = static_cast<T>(x.scale * kLog2e);
  clear(O, rows * wide);
  clear(l, rows);
  for (Index i = 0; i < rows; ++i) m[i] = -infinity<T>();

  const auto visible = [&](Index query) { return x.causal ? least(query + 1, x.keys) : x.keys; };
  for (Index j0 = 0; j0 < visible(x.last_query - 1); j0 += kKeys<T>) {
    const Index keys = least(kKeys<T>, x.keys - j0);
    pack(from_row(x.k, j0), keys, d, Kt);
    pad(from_row(x.v, j0), keys, d, V);
    for (Index i = x.causal ? most(0, j0 - x.first_query) : 0; i < rows; ++i) {
      const Index seen = least(keys, visible(x.first_query + i) - j0);
      Vector<T> s[kVectors];
      scores(x.q.data + (x.first_query + i) * x.q.row, Kt, d, s);
      T m_new = m[i];
      FLASH_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        s[n] = lane_numbers<T>() + n * kLanes<T> < static_cast<typename VectorTypes<T>::Bits>(seen)
                   ? s[n] * scale2
                   : broadcast(-infinity<T>());
        for (int lane = 0; lane < kLanes<T>; ++lane)
          m_new = m_new > s[n][lane] ? m_new : s[n][lane];
      }
      const T reference = m_new == -infinity<T>() ? T{0} : m_new;
      Vector<T> sum{};
      FLASH_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        const Vector<T> p = exp2<T>(s[n] - reference);
        store(P + n * kLanes<T>, p);
        sum += p;
      }
      const T alpha = exp2<T>(broadcast(m[i] - reference))[0];
      l[i] *= alpha;
      for (int lane = 0; lane < kLanes<T>; ++lane) l[i] += sum[lane];
      m[i] = m_new;
      add_rows(P, V, seen, wide, alpha, O + i * wide);
    }
  }
  for (Index i = 0; i < rows; ++i) {
    T* const out = x.out.data + (x.first_query + i) * x.out.row;
    for (Index c = 0; c < d; ++c) out[c] = l[i] == 0 ? T{0} : O[i * wide + c] / l[i];
    x.lse[(x.first_query + i) * x.lse_step] = static_cast<T>(m[i] * kLn2 + __builtin_log(l[i]));
  }
}

template <class T>
Index backward_scratch(Index, Index, Index head_dim) {
  return kKeys<T> * (2 * head_dim + 3 * width<T>(head_dim) + 2) + width<T>(head_dim);
}

template <class T>
void backward_split(const BackwardSplit<T>& x) {
  const Index d = x.head_dim, wide = width<T>(d);
  T *const Kt = x.scratch, *const Vt = Kt + d * kKeys<T>;  // (d, kKeys)
  T *const K = Vt + d * kKeys<T>, *const dK = K + kKeys<T> * wide,
           *const dV = dK + kKeys<T> * wide;                    // (kKeys, wide)
  T *const P = dV + kKeys<T> * wide, *const dS = P + kKeys<T>;  // of one query: (kKeys)
  T* const row = dS + kKeys<T>;                                 // of Q or dO, in whole vectors
  const T scale2 = static_cast<T>(x.scale * kLog2e);
  clear(x.d_q, x.queries * wide);
  for (Index j0 = x.first_block * kKeys<T>; j0 < x.keys; j0 += x.block_step * kKeys<T>) {
    const Index keys = least(kKeys<T>, x.keys - j0);
    pack(from_row(x.k, j0), keys, d, Kt);
    pack(from_row(x.v, j0), keys, d, Vt);
    pad(from_row(x.k, j0), keys, d, K);
    clear(dK, 2 * kKeys<T> * wide);
    for (Index i = x.causal ? j0 : 0; i < x.queries; ++i) {
      const Index seen = x.causal ? least(keys, i + 1 - j0) : keys;
      Vector<T> s[kVectors], dp[kVectors];
      const T *const q = x.q.data + i * x.q.row, *const d_out = x.d_out.data + i * x.d_out.row;
      scores(q, Kt, d, s);
      scores(d_out, Vt, d, dp);
      FLASH_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        const Vector<T> p = exp2<T>(s[n] * scale2 - x.lse2[i] - x.lse2_rest[i]);
        store(P + n * kLanes<T>, p);
        store(dS + n * kLanes<T>, p * (dp[n] - x.delta[i]));
      }
      add_rows(dS, K, seen, wide, T{1}, x.d_q + i * wide);
      const auto add_to_keys = [&](const T* weights, const T* from, T* sums)
          __attribute__((always_inline)) {
        for (Index c = 0; c < wide; ++c) row[c] = c < d ? from[c] : T{0};
        for (Index j = 0; j < seen; ++j)
          for (Index c = 0; c < wide; c += kLanes<T>)
            store(sums + j * wide + c, load(sums + j * wide + c) + weights[j] * load(row + c));
      };
      add_to_keys(P, d_out, dV);
      add_to_keys(dS, q, dK);
    }
    for (Index j = 0; j < keys; ++j)
      for (Index c = 0; c < d; ++c) {
        x.d_k.data[(j0 + j) * x.d_k.row + c] = dK[j * wide + c] * static_cast<T>(x.scale);
        x.d_v.data[(j0 + j) * x.d_v.row + c] = dV[j * wide + c];
      }
  }
}

template <class T>
constexpr Kernels<T> kernels() {
  return {.panel = kKeys<T>,
          .width = width<T>,
          .forward_scratch = forward_scratch<T>,
          .forward = forward<T>,
          .backward_rows = backward_rows<T>,
          .backward_scratch = backward_scratch<T>,
          .backward_split = backward_split<T>,
          .backward_sum = backward_sum<T>};
}

}  // namespace
}  // namespace flash::FLASH_ISA

FLASH_KERNELS(vectorised)

#ifdef FLASH_BASELINE
#include "common/registry.hpp"
#include "part2_flash_cpu/ladder/tasks.hpp"

namespace flash::vectorised {

// These kernels take kKeys<T> keys at a time, whatever block_keys and block_queries are.
FLASH_ENTER(registry, name) {
  const auto forward = []<class T>(const AttentionForward<T>& pass) {
    forward_in_tasks(pass, vectorised_kernels().of<LseType<T>>(),
                     {.query_panels = 3, .block_keys = 64, .last_first = false});
  };
  const auto backward = []<class T>(const AttentionBackward<T>& pass) {
    backward_in_tasks(pass, vectorised_kernels().of<LseType<T>>(),
                      {.splits = 1, .key_panels = 1, .block_queries = 64});
  };
  registry.forward.add({.name = name, .run = {forward, forward, forward, forward}});
  registry.backward.add({.name = name, .run = {backward, backward, backward, backward}});
}

}  // namespace flash::vectorised
#endif
