// Rung 3: registers. A tile of accumulators stays in registers in a product.
//
// What changed since rung 2: there a product is computed row by row, and each vector that is loaded
// serves one multiply-add. Here a tile of 24 accumulators (12 where there are 16 registers) stays
// in registers through a whole product (common/cpu/tile.hpp), and 11 loads serve 24 multiply-adds.
// A lane is a query (forward) or a key (backward): scores, maxima, sums and exponentials of a
// vector of queries are computed side by side, and nothing has to be added up across a vector. A
// panel of kPanel queries or keys is packed once, transposed, and stays in the first-level cache,
// while the rows of the other side are read past it number by number, as they lie in memory.
//
// The work is cut much as PyTorch's CPU kernel cuts it: in the forward pass a task is some of a
// head's queries (192 with AVX-512 in float), in their order; in the backward pass a task is a
// head.
//
// Measured, as in rung 1: forward 29 to 11 ms, backward 370 to 122 ms; 151 to 453 GFLOP/s.
#include "common/cpu/exp2.hpp"
#include "common/cpu/tile.hpp"
#include "part2_flash_cpu/ladder/isa.hpp"
#include "part2_flash_cpu/ladder/per_isa/rows.hpp"
#include "part2_flash_cpu/ladder/per_isa/transpose.hpp"

namespace flash::FLASH_ISA {
namespace {

// Rows and vectors of a tile. With 32 registers 24 accumulators, with 16 registers 12.
constexpr int kM = kRegisters == 32 ? 8 : 6, kN = kRegisters == 32 ? 3 : 2;
// Of dQ = dS K, whose lanes are columns: head_dim is often a multiple of 4 vectors, and hardly ever
// of 3.
constexpr int kWideM = 6, kWideN = kRegisters == 32 ? 4 : 2;

template <class T>
constexpr Index kPanel = kN* kLanes<T>;

// Vector n of row `row` of a panel.
template <class T>
FLASH_INLINE T* at(T* panel, Index row, int n) {
  return panel + row * kPanel<T> + n * kLanes<T>;
}
template <class T>
FLASH_INLINE const T* at(const T* panel, Index row, int n) {
  return panel + row * kPanel<T> + n * kLanes<T>;
}

// A product whose lanes are a panel: rows [begin, end) of A, `steps` rows of the panel b.
template <Along kAlong, class T, class Finish>
FLASH_INLINE void panel_product(Index begin, Index end, Numbers<T> a, const T* b, Index steps,
                                Finish finish) {
  rows_product<kM, kN, kAlong, T>(begin, end, a, b, Constant<kPanel<T>>{}, steps, finish);
}

// The most steps of a dot product that are summed up in one chain. Several short sums, added up,
// lose fewer digits than a long one: in halves, the error is larger than PyTorch's in 7 of 64 cases
// in float32; in pieces of 32 in 1; with short pieces on the diagonal too (backward_tile) in none.
constexpr Index kChain = 32;

// Dot products: finish(i, n, sum of row i of A with column vector n of the panel b). In two pieces
// or more, by way of C (rows, panel).
template <class T, class Finish>
FLASH_INLINE void dot_products(Index begin, Index end, HeadRows<const T> a, const T* b, Index steps,
                               T* C, Finish finish) {
  const Index piece = least(kChain, (steps + 1) / 2);
  const auto rows = [&](Index s) { return Numbers<T>{a.data + s, a.row}; };
  panel_product<Along::kSteps>(
      begin, end, rows(0), b,
      piece, [C](Index i, int n, Vector<T> sum) __attribute__((always_inline)) {
        store(at(C, i, n), sum);
      });
  Index s = piece;
  for (; s + kChain < steps; s += kChain)
    panel_product<Along::kSteps>(
        begin, end, rows(s), at(b, s, 0),
        kChain, [C](Index i, int n, Vector<T> sum) __attribute__((always_inline)) {
          store(at(C, i, n), load(at(C, i, n)) + sum);
        });
  panel_product<Along::kSteps>(
      begin, end, rows(s), at(b, s, 0), steps - s,
      [ C, finish ](Index i, int n, Vector<T> sum)
          __attribute__((always_inline)) { finish(i, n, load(at(C, i, n)) + sum); });
}

// sums (columns, panel) += A^T B, where a has `steps` rows, and b is a panel of as many; `piece`
// steps are summed up in one chain.
template <class T>
void add_product(Index columns, HeadRows<const T> a, const T* b, Index steps, Index piece,
                 T* sums) {
  for (Index s = 0; s < steps; s += piece)
    panel_product<Along::kRows>(
        0, columns, Numbers<T>{from_row(a, s).data, a.row}, at(b, s, 0), least(piece, steps - s),
        [sums](Index c, int n, Vector<T> sum)
            __attribute__((always_inline)) { store(at(sums, c, n), load(at(sums, c, n)) + sum); });
}

// panel (columns, lanes) = factor * the transpose of `rows` rows; the lanes behind them become 0.
template <class T>
void pack(HeadRows<const T> from, Index rows, Index columns, T factor, T* panel) {
  transpose(from, rows, columns, factor, HeadRows<T>{panel, kPanel<T>});
  for (Index c = 0; c < columns && rows < kPanel<T>; ++c)
    for (Index i = rows; i < kPanel<T>; ++i) panel[c * kPanel<T> + i] = 0;
}

template <class T>
void unpack(const T* panel, Index columns, Index rows, T factor, HeadRows<T> to) {
  transpose(HeadRows<const T>{panel, kPanel<T>}, columns, rows, factor, to);
}

// Where some lanes do not see a row, its weight there is 0, and 0 times a number that is not finite
// is NaN: those rows are looked at first.
template <class T>
bool all_finite(HeadRows<const T> x, Index rows, Index columns) {
  T sum = 0;  // of 0 * x
  for (Index i = 0; i < rows; ++i)
    for (Index c = 0; c < columns; ++c) sum += x.data[i * x.row + c] * 0;
  return sum == 0;
}

// ---- Forward ------------------------------------------------------------------------------------

template <class T>
Index forward_scratch(Index block_queries, Index block_keys, Index head_dim) {
  const Index panels = (block_queries + kPanel<T> - 1) / kPanel<T>;
  return kPanel<T> * (panels * (2 * head_dim + 2) + block_keys);
}

// A tile of keys [j0, j0 + keys) with the panel of queries from `first` on. S (keys, panel) is
// scratch; m, l (panel) and O^T (head_dim, panel) are brought up to date. scale2 > 0 is |scale| *
// log2(e): m is the maximum of the scores times that, in base 2. Rounded once, it is the same
// number in every weight and in alpha, so that its rounding cancels.
template <class T>
void forward_tile(const ForwardBlock<T>& x, T scale2, Index first, Index j0, Index keys,
                  const T* Qt, T* S, T* m, T* l, T* Ot) {
  const Index d = x.head_dim;
  const HeadRows<const T> K = from_row(x.k, j0), V = from_row(x.v, j0);
  // The first keys of the tile are seen by all lanes, those behind by some.
  const Index unmasked = x.causal ? most(0, least(keys, first + 1 - j0)) : keys;

  dot_products<T>(
      0, unmasked, K, Qt, d, S, [S](Index j, int n, Vector<T> s) __attribute__((always_inline)) {
        store(at(S, j, n), s);
      });
  if (unmasked < keys) {
    using Bits = typename VectorTypes<T>::Bits;
    const Bits distance = static_cast<Bits>(first - j0);
    dot_products<T>(
        unmasked, keys, K, Qt, d, S,
        [ S, distance ](Index j, int n, Vector<T> s) __attribute__((always_inline)) {
          const auto behind = lane_numbers<T>() + (distance + n * kLanes<T> - static_cast<Bits>(j));
          store(at(S, j, n), behind >= 0 ? s : broadcast(-infinity<T>()));
        });
  }

  Vector<T> largest[kN], reference[kN], alpha[kN], sum[kN];
  FLASH_UNROLL
  for (int n = 0; n < kN; ++n) largest[n] = broadcast(-infinity<T>());
  for (Index j = 0; j < keys; ++j) {
    FLASH_UNROLL
    for (int n = 0; n < kN; ++n) largest[n] = max(largest[n], load(at(S, j, n)));
  }
  FLASH_UNROLL
  for (int n = 0; n < kN; ++n) {
    const Vector<T> m_old = load(at(m, 0, n)), m_new = max(m_old, largest[n] * scale2);
    store(at(m, 0, n), m_new);
    // -inf - -inf is NaN: while a lane has seen nothing else, measure from 0.
    reference[n] = m_new == -infinity<T>() ? Vector<T>{} : m_new;
    alpha[n] = exp2<T>(m_old - reference[n]);
    sum[n] = Vector<T>{};
  }
  for (Index j = 0; j < keys; ++j) {
    FLASH_UNROLL
    for (int n = 0; n < kN; ++n) {
      const Vector<T> p = exp2<T>(load(at(S, j, n)) * scale2 - reference[n]);
      store(at(S, j, n), p);
      sum[n] += p;
    }
  }
  FLASH_UNROLL
  for (int n = 0; n < kN; ++n) store(at(l, 0, n), load(at(l, 0, n)) * alpha[n] + sum[n]);

  const Index product_keys =
      unmasked == keys || all_finite(from_row(V, unmasked), keys - unmasked, d) ? keys : unmasked;
  const Vector<T>* const alphas = alpha;
  panel_product<Along::kRows>(
      0, d, Numbers<T>{V.data, V.row}, S, product_keys,
      [ Ot, alphas ](Index c, int n, Vector<T> product) __attribute__((always_inline)) {
        store(at(Ot, c, n), load(at(Ot, c, n)) * alphas[n] + product);
      });
  for (Index j = product_keys; j < keys; ++j)
    for (Index c = 0; c < d; ++c)
      for (Index i = most(0, j0 + j - first); i < kPanel<T>; ++i)
        *(at(Ot, c, 0) + i) += *(at(S, j, 0) + i) * V.data[j * V.row + c];
}

template <class T>
void forward(const ForwardBlock<T>& x) {
  constexpr Index W = kPanel<T>;
  const Index d = x.head_dim, panels = (x.last_query - x.first_query + W - 1) / W;
  T* const Qt = x.scratch;
  T* const Ot = Qt + panels * d * W;
  T* const S = Ot + panels * d * W;
  T* const m = S + x.block_keys * W;
  T* const l = m + panels * W;
  const auto first_of = [&](Index p) { return x.first_query + p * W; };
  const auto rows_of = [&](Index p) { return least(W, x.last_query - first_of(p)); };

  // The largest score is that of the largest product only where the scale is positive: its sign
  // goes into Q.
  const T sign = x.scale > 0 ? T{1} : x.scale < 0 ? T{-1} : T{0};
  const T scale2 = x.scale == 0 ? T{1} : static_cast<T>(x.scale * kLog2e) * sign;
  for (Index p = 0; p < panels; ++p)
    pack(from_row(x.q, first_of(p)), rows_of(p), d, sign, Qt + p * d * W);
  clear(Ot, panels * d * W);
  for (Index i = 0; i < panels * W; ++i) {
    m[i] = -infinity<T>();
    l[i] = 0;
  }

  const auto visible = [&](Index query) { return x.causal ? least(query + 1, x.keys) : x.keys; };
  for (Index j0 = 0; j0 < visible(x.last_query - 1); j0 += x.block_keys)
    for (Index p = 0; p < panels; ++p) {
      const Index keys = least(x.block_keys, visible(first_of(p) + rows_of(p) - 1) - j0);
      if (keys > 0)
        forward_tile(x, scale2, first_of(p), j0, keys, Qt + p * d * W, S, m + p * W, l + p * W,
                     Ot + p * d * W);
    }

  for (Index p = 0; p < panels; ++p) {
    T *const m_p = m + p * W, *const l_p = l + p * W, *const Ot_p = Ot + p * d * W;
    for (Index i = 0; i < rows_of(p); ++i) {
      x.lse[(first_of(p) + i) * x.lse_step] = static_cast<T>(m_p[i] * kLn2 + __builtin_log(l_p[i]));
      l_p[i] = l_p[i] == 0 ? T{0} : 1 / l_p[i];
    }
    for (Index c = 0; c < d; ++c) {
      FLASH_UNROLL
      for (int n = 0; n < kN; ++n)
        store(at(Ot_p, c, n), load(at(Ot_p, c, n)) * load(at(l_p, 0, n)));
    }
    unpack(Ot_p, d, rows_of(p), T{1}, from_row(x.out, first_of(p)));
  }
}

// ---- Backward -----------------------------------------------------------------------------------

template <class T>
Index backward_scratch(Index block_queries, Index block_keys, Index head_dim) {
  return round_up(block_keys, kPanel<T>) * (4 * head_dim + width<T>(head_dim)) +
         2 * kPanel<T> * block_queries;
}

// A panel of keys in a block: what is packed of it, and what is summed up for it.
template <class T>
struct KeyPanel {
  Index first, keys;
  T *Kt, *Vt;    // (head_dim, panel): the transposes
  T* K;          // (keys, width): the rows in whole vectors, behind them 0
  T *dKt, *dVt;  // (head_dim, panel)
};

// Queries [i0, i0 + queries) with one panel of keys. P and dS (queries, panel) are scratch.
template <class T>
void backward_tile(const BackwardSplit<T>& x, const KeyPanel<T>& panel, Index i0, Index queries,
                   T* P, T* dS) {
  const Index d = x.head_dim, wide = width<T>(d);
  const HeadRows<const T> Q = from_row(x.q, i0), dO = from_row(x.d_out, i0);
  const T *const lse2 = x.lse2 + i0, *const lse2_rest = x.lse2_rest + i0,
                 *const delta = x.delta + i0;
  T* const d_q = x.d_q + i0 * wide;
  const T scale2 = static_cast<T>(x.scale * kLog2e);

  // Rows before `begin` see none of the panel's keys, those from `unmasked` on see all, those
  // between see some.
  const Index begin = x.causal ? least(queries, most(0, panel.first - i0)) : 0;
  const Index unmasked =
      x.causal ? most(begin, least(queries, panel.first + panel.keys - 1 - i0)) : 0;
  if (begin == queries) return;

  const auto weight = [=](Index i, Vector<T> s) __attribute__((always_inline)) {
    return exp2<T>(s * scale2 - lse2[i] - lse2_rest[i]);
  };
  const auto d_score = [=](Index i, int n, Vector<T> dp) __attribute__((always_inline)) {
    return load(at(P, i, n)) * (dp - delta[i]);
  };
  dot_products<T>(
      unmasked, queries, Q, panel.Kt, d,
      P, [=](Index i, int n, Vector<T> s) __attribute__((always_inline)) {
        store(at(P, i, n), weight(i, s));
      });
  dot_products<T>(
      unmasked, queries, dO, panel.Vt, d,
      dS, [=](Index i, int n, Vector<T> dp) __attribute__((always_inline)) {
        store(at(dS, i, n), d_score(i, n, dp));
      });
  Index product_begin = begin;
  if (begin < unmasked) {
    using Bits = typename VectorTypes<T>::Bits;
    const Bits distance = static_cast<Bits>(panel.first - i0);
    const auto seen = [distance](Index i, int n, Vector<T> value) __attribute__((always_inline)) {
      const auto ahead = lane_numbers<T>() + (distance + n * kLanes<T> - static_cast<Bits>(i));
      return ahead <= 0 ? value : Vector<T>{};
    };
    dot_products<T>(
        begin, unmasked, Q, panel.Kt, d,
        P, [=](Index i, int n, Vector<T> s) __attribute__((always_inline)) {
          store(at(P, i, n), seen(i, n, weight(i, s)));
        });
    dot_products<T>(
        begin, unmasked, dO, panel.Vt, d,
        dS, [=](Index i, int n, Vector<T> dp) __attribute__((always_inline)) {
          store(at(dS, i, n), seen(i, n, d_score(i, n, dp)));
        });
    const Index rows = unmasked - begin;
    if (!all_finite(from_row(Q, begin), rows, d) || !all_finite(from_row(dO, begin), rows, d) ||
        !all_finite(from_row(x.k, panel.first), panel.keys, d)) {
      product_begin = unmasked;
      for (Index i = begin; i < unmasked; ++i)
        for (Index j = 0; j <= i + i0 - panel.first; ++j)
          for (Index c = 0; c < d; ++c) {
            at(panel.dVt, c, 0)[j] += at(P, i, 0)[j] * dO.data[i * dO.row + c];
            at(panel.dKt, c, 0)[j] += at(dS, i, 0)[j] * Q.data[i * Q.row + c];
            d_q[i * wide + c] += at(dS, i, 0)[j] * panel.K[j * wide + c];
          }
    }
  }

  const Index steps = queries - product_begin;
  // On the diagonal queries see few keys, and weigh each of them most: these sums lose the most
  // digits.
  const Index piece = unmasked > begin ? kChain / 2 : steps;
  add_product(d, from_row(dO, product_begin), at(P, product_begin, 0), steps, piece, panel.dVt);
  add_product(d, from_row(Q, product_begin), at(dS, product_begin, 0), steps, piece, panel.dKt);
  const auto columns = [&]<int kVectors>(Index c) {
    T* const sums = d_q + c;
    rows_product<kWideM, kVectors, Along::kSteps, T>(
        product_begin, queries, {dS, kPanel<T>}, panel.K + c, wide,
        panel.keys, [=](Index i, int n, Vector<T> sum) __attribute__((always_inline)) {
          T* const to = sums + i * wide + n * kLanes<T>;
          store(to, load(to) + sum);
        });
  };
  Index c = 0;
  for (; c + kWideN * kLanes<T> <= wide; c += kWideN * kLanes<T>)
    columns.template operator()<kWideN>(c);
  for (; c < wide; c += kLanes<T>) columns.template operator()<1>(c);
}

template <class T>
void backward_split(const BackwardSplit<T>& x) {
  constexpr Index W = kPanel<T>;
  const Index d = x.head_dim, wide = width<T>(d);
  T* const P = x.scratch;
  T* const dS = P + x.block_queries * W;
  T* const of_panels = dS + x.block_queries * W;
  const auto panel_at = [&](Index first, Index p, Index keys) {
    T* const at_p = of_panels + p * W * (4 * d + wide);
    return KeyPanel<T>{first,           least(W, keys - p * W), at_p,
                       at_p + d * W,    at_p + 4 * d * W,       at_p + 2 * d * W,
                       at_p + 3 * d * W};
  };

  clear(x.d_q, x.queries * wide);
  for (Index block = x.first_block; block * x.block_keys < x.keys; block += x.block_step) {
    const Index j0 = block * x.block_keys, keys = least(x.block_keys, x.keys - j0),
                panels = (keys + W - 1) / W;
    for (Index p = 0; p < panels; ++p) {
      const KeyPanel<T> panel = panel_at(j0 + p * W, p, keys);
      pack(from_row(x.k, panel.first), panel.keys, d, T{1}, panel.Kt);
      pack(from_row(x.v, panel.first), panel.keys, d, T{1}, panel.Vt);
      clear(panel.dKt, 2 * d * W);
      for (Index j = 0; j < panel.keys; ++j)
        for (Index c = 0; c < wide; ++c)
          panel.K[j * wide + c] = c < d ? x.k.data[(panel.first + j) * x.k.row + c] : T{0};
    }
    for (Index i0 = x.causal ? j0 / x.block_queries * x.block_queries : 0; i0 < x.queries;
         i0 += x.block_queries)
      for (Index p = 0; p < panels; ++p)
        backward_tile(x, panel_at(j0 + p * W, p, keys), i0, least(x.block_queries, x.queries - i0),
                      P, dS);
    for (Index p = 0; p < panels; ++p) {
      const KeyPanel<T> panel = panel_at(j0 + p * W, p, keys);
      unpack(panel.dKt, d, panel.keys, static_cast<T>(x.scale), from_row(x.d_k, panel.first));
      unpack(panel.dVt, d, panel.keys, T{1}, from_row(x.d_v, panel.first));
    }
  }
}

template <class T>
constexpr Kernels<T> kernels() {
  return {.panel = kPanel<T>,
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

FLASH_KERNELS(register_blocked)

#ifdef FLASH_BASELINE
#include "common/registry.hpp"
#include "part2_flash_cpu/ladder/tasks.hpp"

namespace flash::register_blocked {

FLASH_ENTER(registry, name) {
  const auto forward = []<class T>(const AttentionForward<T>& pass) {
    forward_in_tasks(pass, register_blocked_kernels().of<LseType<T>>(),
                     {.query_panels = 4, .block_keys = 96, .last_first = false});
  };
  const auto backward = []<class T>(const AttentionBackward<T>& pass) {
    backward_in_tasks(pass, register_blocked_kernels().of<LseType<T>>(),
                      {.splits = 1, .key_panels = 4, .block_queries = 64});
  };
  registry.forward.add({.name = name, .run = {forward, forward, forward, forward}});
  registry.backward.add({.name = name, .run = {backward, backward, backward, backward}});
}

}  // namespace flash::register_blocked
#endif
