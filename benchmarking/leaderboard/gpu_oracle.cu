// Implements gpu_oracle.hpp: one kernel for all products, and one between them for each pass.
#include <algorithm>

#include "benchmarking/leaderboard/gpu_oracle.hpp"
#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"

namespace flash::leaderboard {
namespace {

// ---- Products -----------------------------------------------------------------------------------

constexpr int kTile = 64, kDepth = 16, kShare = 4, kThreads = 256;  // a thread has 4 x 4 sums

// A matrix in memory, which may be transposed.
template <class X>
struct Matrix {
  const X* data;
  Index rows, columns, row_stride, column_stride;

  Matrix transposed() const { return {data, columns, rows, column_stride, row_stride}; }
  __device__ double operator()(Index i, Index j) const {
    return i < rows && j < columns ? to_double(data[i * row_stride + j * column_stride]) : 0;
  }
  __device__ static double to_double(double x) { return x; }
  template <class Y>
  __device__ static double to_double(Y x) {
    return to_float(x);
  }
};

template <class X>
Matrix<X> row_major(const X* data, Index rows, Index columns, Index row_stride = 0) {
  return {data, rows, columns, row_stride == 0 ? columns : row_stride, 1};
}

// Which terms of the sum are not 0 with a causal mask, where row i of all stands for query first +
// i: those of C(query, key), sums over keys, and sums over queries.
enum class Causal { kNone, kScores, kOverKeys, kOverQueries };

// C = factor * A B, and magnitude = factor * |sizes| |B|, or the same added to what is there.
template <class A, class M, class B>
struct Product {
  Matrix<A> a;
  Matrix<M> sizes;  // of the terms of a
  Matrix<B> b;
  double* c;
  float* magnitude;
  Index row_stride;  // of both
  double factor = 1;
  bool adds = false;
  Causal causal = Causal::kNone;
  Index first = 0;
};

template <class A, class M, class B>
__global__ void __launch_bounds__(kThreads) product_kernel(Product<A, M, B> p, int across) {
  __shared__ double a_smem[kDepth][kTile + 1], b_smem[kDepth][kTile + 1];
  __shared__ float sizes_smem[kDepth][kTile + 1];
  const Index i0 = blockIdx.x / across * kTile, j0 = blockIdx.x % across * kTile;
  const int row = threadIdx.x / kDepth, column = threadIdx.x % kDepth;
  Index begin = 0, end = p.a.columns;
  if (p.causal == Causal::kScores && j0 > p.first + i0 + kTile - 1) return;
  if (p.causal == Causal::kOverKeys && p.first + i0 + kTile < end) end = p.first + i0 + kTile;
  if (p.causal == Causal::kOverQueries && i0 > p.first) begin = (i0 - p.first) / kDepth * kDepth;

  double sum[kShare][kShare] = {};
  float size[kShare][kShare] = {};
  for (Index c0 = begin; c0 < end; c0 += kDepth) {
    for (int n = threadIdx.x; n < kTile * kDepth; n += kThreads) {
      // Neighbouring threads read neighbours in memory, whichever way the matrix lies.
      const bool down_a = p.a.row_stride == 1, down_b = p.b.row_stride == 1;
      const int ia = down_a ? n % kTile : n / kDepth, ca = down_a ? n / kTile : n % kDepth;
      a_smem[ca][ia] = p.a(i0 + ia, c0 + ca);
      sizes_smem[ca][ia] = static_cast<float>(fabs(p.sizes(i0 + ia, c0 + ca)));
      const int jb = down_b ? n / kDepth : n % kTile, cb = down_b ? n % kDepth : n / kTile;
      b_smem[cb][jb] = p.b(c0 + cb, j0 + jb);
    }
    __syncthreads();
    FLASH_UNROLL_BY(4)
    for (int c = 0; c < kDepth; ++c) {
      double a[kShare], b[kShare];
      FLASH_UNROLL
      for (int n = 0; n < kShare; ++n) {
        a[n] = a_smem[c][row + n * kDepth];
        b[n] = b_smem[c][column + n * kDepth];
      }
      FLASH_UNROLL
      for (int r = 0; r < kShare; ++r) {
        FLASH_UNROLL
        for (int n = 0; n < kShare; ++n) {
          sum[r][n] += a[r] * b[n];
          size[r][n] += sizes_smem[c][row + r * kDepth] * fabsf(static_cast<float>(b[n]));
        }
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < kShare; ++r)
    for (int n = 0; n < kShare; ++n) {
      const Index i = i0 + row + r * kDepth, j = j0 + column + n * kDepth;
      if (i >= p.a.rows || j >= p.b.columns) continue;
      double* const c = p.c + i * p.row_stride + j;
      float* const m = p.magnitude + i * p.row_stride + j;
      const float factor = static_cast<float>(p.factor);
      *c = (p.adds ? *c : 0) + p.factor * sum[r][n];
      *m = (p.adds ? *m : 0) + factor * size[r][n];
    }
}

template <class A, class M, class B>
void multiply(const Product<A, M, B>& p) {
  const Index down = (p.a.rows + kTile - 1) / kTile, across = (p.b.columns + kTile - 1) / kTile;
  launch("product", product_kernel<A, M, B>, {.grid = grid_size(down * across), .block = kThreads},
         p, static_cast<int>(across));
}

// ---- Rows ---------------------------------------------------------------------------------------

constexpr int kRowThreads = 256;

// The sum, or the largest, of what the threads of a block have.
template <class Combine>
__device__ double combined(double mine, double* shared, Combine combine) {
  __syncthreads();
  shared[threadIdx.x] = mine;
  for (int half = kRowThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half)
      shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
  }
  __syncthreads();
  return shared[0];
}
struct Add {
  __device__ double operator()(double a, double b) const { return a + b; }
};
struct Largest {
  __device__ double operator()(double a, double b) const { return a > b ? a : b; }
};

// One row of P(row, key) a block: the scores S become exp(S - lse), and 0 where the row sees no
// key. magnitude: of the scores, whose largest finite one is wanted; where it is null that is the
// largest |S|. `largest` has an element for each row, or one for all.
__global__ void __launch_bounds__(kRowThreads)
    softmax_kernel(double* p, const float* magnitude, double* lse, float* largest, bool of_rows,
                   Index keys, Index first, bool causal) {
  __shared__ double shared[kRowThreads];
  const Index row = blockIdx.x, visible = causal && first + row + 1 < keys ? first + row + 1 : keys;
  double* const s = p + row * keys;
  double m = -INFINITY, size = 0, l = 0;
  for (Index j = threadIdx.x; j < visible; j += kRowThreads) {
    m = Largest()(s[j], m);
    const double one = magnitude == nullptr ? fabs(s[j]) : magnitude[row * keys + j];
    if (isfinite(one)) size = Largest()(size, one);
  }
  m = combined(m, shared, Largest());
  size = combined(size, shared, Largest());
  if (m == -INFINITY) m = 0;  // a row of nothing else, or with a NaN
  for (Index j = threadIdx.x; j < visible; j += kRowThreads) l += exp(s[j] - m);
  l = combined(l, shared, Add());
  const double log_sum = m + log(l);
  for (Index j = threadIdx.x; j < keys; j += kRowThreads)
    s[j] = j < visible && l != 0 ? exp(s[j] - log_sum) : 0;
  if (threadIdx.x > 0) return;
  if (lse != nullptr) lse[row] = log_sum;
  // Positive floats are in the order of their bits.
  atomicMax(reinterpret_cast<int*>(largest + (of_rows ? row : 0)),
            __float_as_int(static_cast<float>(size)));
}

// One row a block: dP becomes dS = P * (dP - delta), delta = sum of P * dP, with the magnitude P *
// (|dP| + sum of |dO| |O|).
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    d_scores_kernel(const double* p, double* d_p, float* magnitude, const T* d_out,
                    const double* out, Index keys, Index head_dim, Index first, bool causal) {
  __shared__ double shared[kRowThreads];
  const Index row = blockIdx.x, visible = causal && first + row + 1 < keys ? first + row + 1 : keys;
  double delta = 0, size = 0;
  for (Index j = threadIdx.x; j < visible; j += kRowThreads)
    delta += p[row * keys + j] * d_p[row * keys + j];
  for (Index c = threadIdx.x; c < head_dim; c += kRowThreads)
    size += fabs(Matrix<T>::to_double(d_out[row * head_dim + c]) * out[row * head_dim + c]);
  delta = combined(delta, shared, Add());
  size = combined(size, shared, Add());
  for (Index j = threadIdx.x; j < keys; j += kRowThreads) {
    const Index at = row * keys + j;
    d_p[at] = j < visible ? p[at] * (d_p[at] - delta) : 0;
    magnitude[at] = j < visible ? static_cast<float>(p[at] * (magnitude[at] + size)) : 0;
  }
}

// ---- Elements -----------------------------------------------------------------------------------

// What each thread does for its share of `count` elements.
template <class Use>
__device__ void for_each(Index count, Use use) {
  const Index threads = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads)
    use(i);
}
LaunchConfig elements(Index count) {
  return {.grid = grid_size(std::clamp<Index>((count + 255) / 256, 1, 2048)), .block = 256};
}

template <class T>
__global__ void normal_kernel(T* x, Index count, Cipher cipher, std::uint64_t stream,
                              float deviation) {
  for_each(Cipher::blocks(count), [&](Index n) {
    cipher.normal(stream, n, count,
                  [&](Index place, float one) { x[place] = from_float<T>(deviation * one); });
  });
}

template <class T>
__global__ void sharpen_kernel(T* q, Index rows, Index d, Cipher cipher) {
  for_each(rows, [&](Index i) {
    const float sharp = sharpness(cipher, i);
    for (Index c = 0; c < d; ++c) q[i * d + c] = from_float<T>(sharp * to_float(q[i * d + c]));
  });
}

template <class T>
__global__ void grade_head_kernel(T* q, T* k, AttentionShape head, Graded kind, Index spike) {
  const Index d = head.head_dim;
  for_each(head.queries, [&](Index i) {
    q[i * d] = from_float<T>(graded_query(kind, to_float(q[i * d]), i, d));
  });
  for_each(head.keys, [&](Index j) {
    k[j * d] = from_float<T>(graded_key(kind, to_float(k[j * d]), j, head.keys, spike));
  });
}

template <class T>
__global__ void fill_rows_kernel(T* x, Index rows, Index width, float value) {
  for_each(rows * width, [&](Index i) {
    if (has_no_weights(i / width)) x[i] = from_float<T>(value);
  });
}

__global__ void grade_scores_kernel(float* x, Index rows, Index keys, Cipher cipher, Index kinds,
                                    bool in_each_part) {
  for_each(rows, [&](Index i) {
    const Graded kind = kind_of(cipher, i / kRowsOfAKind, kinds, in_each_part);
    const float sharp = sharpness(cipher, i);
    const Index spike = spike_of(cipher, i, keys);
    for (Index j = 0; j < keys; ++j)
      x[i * keys + j] = graded_score(kind, sharp * x[i * keys + j], i, j, keys, spike);
  });
}

template <class T>
__global__ void round_kernel(T* to, const double* from, Index count) {
  for_each(count, [&](Index i) { to[i] = from_float<T>(static_cast<float>(from[i])); });
}

__global__ void widen_kernel(double* to, const float* from, Index count) {
  for_each(count, [&](Index i) { to[i] = from[i]; });
}

template <class T>
__global__ void mistakes_kernel(const T* got, const double* wanted, const float* magnitude,
                                Index count, const double* bounds, Index piece, double absolute,
                                double relative, unsigned long long* found) {
  for_each(count, [&](Index i) {
    const double allowed = bounds[i / piece] * magnitude[i] + absolute + relative * fabs(wanted[i]),
                 one = Matrix<T>::to_double(got[i]);
    if (isfinite(wanted[i]) ? fabs(one - wanted[i]) <= allowed
                            : one == wanted[i] || (isnan(one) && isnan(wanted[i])))
      return;
    atomicAdd(&found[0], 1ull);
    atomicMin(&found[1], static_cast<unsigned long long>(i));
  });
}

Index rows_at_a_time(const AttentionShape& head) {
  return std::min<Index>(head.queries, std::max<Index>(64, (Index{1} << 23) / head.keys));
}

}  // namespace

template <class T>
GpuOracle<T>::GpuOracle(Index heads, const AttentionShape& head, bool causal, bool backward,
                        Index rows)
    : heads_(heads),
      head_(head),
      causal_(causal),
      backward_(backward),
      rows_(rows > 0 ? rows : rows_at_a_time(head)),
      largest_({heads}) {
  const Index of_queries = heads * head.queries * head.head_dim,
              of_keys = heads * head.keys * head.head_dim;
  out = Wanted(of_queries);
  lse = Wanted(heads * head.queries);
  Tensor<float, 1> ones(lse.magnitude.shape());
  std::fill_n(ones.data(), ones.size(), 1.0f);
  lse.magnitude.copy_from(ones);
  p_ = Wanted(rows_ * head.keys);
  if (!backward) return;
  d_q = Wanted(of_queries);
  d_k = Wanted(of_keys);
  d_v = Wanted(of_keys);
  d_p_ = Wanted(rows_ * head.keys);
}

template <class T>
void GpuOracle<T>::compute(const T* q, const T* k, const T* v, const T* d_out) {
  const Index n = head_.keys, d = head_.head_dim;
  const double scale = attention_scale({}, d);
  const auto causal = [&](Causal terms) { return causal_ ? terms : Causal::kNone; };
  device::fill_bytes(largest_.data(), 0, largest_.bytes());
  for (Index head = 0; head < heads_; ++head) {
    const Index keys = head * n * d;
    const auto K = row_major(k + keys, n, d), V = row_major(v + keys, n, d);
    for (Index first = 0; first < head_.queries; first += rows_) {
      const Index rows = std::min(rows_, head_.queries - first);
      const Index row = head * head_.queries + first, at = row * d;
      const auto Q = row_major(q + at, rows, d);
      multiply(Product<T, T, T>{Q, Q, K.transposed(), p_.value.data(), p_.magnitude.data(), n,
                                scale, false, causal(Causal::kScores), first});
      launch("softmax", softmax_kernel, {.grid = grid_size(rows), .block = kRowThreads},
             p_.value.data(), static_cast<const float*>(p_.magnitude.data()),
             lse.value.data() + row, largest_.data() + head, false, n, first, causal_);
      const double* const p = p_.value.data();
      const auto P = row_major(p, rows, n);
      multiply(Product<double, double, T>{P, P, V, out.value.data() + at, out.magnitude.data() + at,
                                          d, 1, false, causal(Causal::kOverKeys), first});
      if (!backward_) continue;
      const auto dO = row_major(d_out + at, rows, d);
      multiply(Product<T, T, T>{dO, dO, V.transposed(), d_p_.value.data(), d_p_.magnitude.data(), n,
                                1, false, causal(Causal::kScores), first});
      launch("d_scores", d_scores_kernel<T>, {.grid = grid_size(rows), .block = kRowThreads}, p,
             d_p_.value.data(), d_p_.magnitude.data(), d_out + at,
             static_cast<const double*>(out.value.data()) + at, n, d, first, causal_);
      const double* const d_s = d_p_.value.data();
      const float* const sizes = d_p_.magnitude.data();
      const auto dS = row_major(d_s, rows, n);
      const auto dS_sizes = row_major(sizes, rows, n);
      multiply(Product<double, float, T>{dS, dS_sizes, K, d_q.value.data() + at,
                                         d_q.magnitude.data() + at, d, scale, false,
                                         causal(Causal::kOverKeys), first});
      multiply(Product<double, float, T>{dS.transposed(), dS_sizes.transposed(), Q,
                                         d_k.value.data() + keys, d_k.magnitude.data() + keys, d,
                                         scale, first > 0, causal(Causal::kOverQueries), first});
      multiply(Product<double, double, T>{P.transposed(), P.transposed(), dO,
                                          d_v.value.data() + keys, d_v.magnitude.data() + keys, d,
                                          1, first > 0, causal(Causal::kOverQueries), first});
    }
  }
  const Tensor<float, 1> largest = largest_.to_host();
  largest_scores.assign(largest.data(), largest.data() + heads_);
}

std::vector<double> softmax_matmul_wanted(const float* x, const float* v,
                                          const SoftmaxMatmulShape& shape, Wanted& out) {
  const auto& [batch, d1, d2, d3] = shape;
  DeviceTensor<double, 1> p({d1 * d2});
  DeviceTensor<float, 1> largest({batch * d1});
  device::fill_bytes(largest.data(), 0, largest.bytes());
  for (Index b = 0; b < batch; ++b) {
    launch("widen", widen_kernel, elements(d1 * d2), p.data(), x + b * d1 * d2, d1 * d2);
    launch("softmax", softmax_kernel, {.grid = grid_size(d1), .block = kRowThreads}, p.data(),
           static_cast<const float*>(nullptr), static_cast<double*>(nullptr),
           largest.data() + b * d1, true, d2, Index{0}, false);
    const auto P = row_major(static_cast<const double*>(p.data()), d1, d2);
    multiply(Product<double, double, float>{P, P, row_major(v + b * d2 * d3, d2, d3),
                                            out.value.data() + b * d1 * d3,
                                            out.magnitude.data() + b * d1 * d3, d3});
  }
  const Tensor<float, 1> there = largest.to_host();
  return {there.data(), there.data() + there.size()};
}

template <class T>
void fill_normal(T* x, Index count, const Cipher& cipher, std::uint64_t stream, float deviation) {
  launch("normal", normal_kernel<T>, elements(Cipher::blocks(count)), x, count, cipher, stream,
         deviation);
}

template <class T>
void sharpen(T* q, Index rows, Index head_dim, const Cipher& cipher) {
  launch("sharpen", sharpen_kernel<T>, elements(rows), q, rows, head_dim, cipher);
}

template <class T>
void grade_head(T* q, T* k, const AttentionShape& head, Graded kind, Index spike) {
  launch("grade_head", grade_head_kernel<T>, elements(std::max(head.queries, head.keys)), q, k,
         head, kind, spike);
}

template <class T>
void fill_rows_without_weights(T* x, Index rows, Index width, float value) {
  launch("fill_rows", fill_rows_kernel<T>, elements(rows * width), x, rows, width, value);
}

void grade_scores(float* x, const SoftmaxMatmulShape& shape, const Cipher& cipher, Index kinds,
                  bool in_each_part) {
  const Index rows = shape.batch * shape.d1;
  launch("grade_scores", grade_scores_kernel, elements(rows), x, rows, shape.d2, cipher, kinds,
         in_each_part);
}

template <class T>
void round_to(T* to, const double* from, Index count) {
  launch("round", round_kernel<T>, elements(count), to, from, count);
}

template <class T>
Mistakes find_mistakes(const T* got, const Wanted& wanted, const std::vector<double>& bounds,
                       double absolute, double relative) {
  const Index count = wanted.value.shape()[0], pieces = static_cast<Index>(bounds.size());
  Tensor<double, 1> of_pieces({pieces});
  std::copy(bounds.begin(), bounds.end(), of_pieces.data());
  const DeviceTensor<double, 1> bounds_there(of_pieces);
  Tensor<unsigned long long, 1> found({2});
  found(0) = 0, found(1) = ~0ull;
  DeviceTensor<unsigned long long, 1> on_device(found);
  launch("mistakes", mistakes_kernel<T>, elements(count), got,
         static_cast<const double*>(wanted.value.data()),
         static_cast<const float*>(wanted.magnitude.data()), count,
         static_cast<const double*>(bounds_there.data()), count / pieces, absolute, relative,
         on_device.data());
  found = on_device.to_host();
  Mistakes mistakes{.count = static_cast<std::int64_t>(found(0))};
  if (mistakes.count == 0) return mistakes;
  mistakes.first = static_cast<std::int64_t>(found(1));
  T one{};
  device::copy_to_host(&one, got + mistakes.first, sizeof one);
  device::copy_to_host(&mistakes.wanted, wanted.value.data() + mistakes.first, sizeof(double));
  mistakes.got = static_cast<double>(one);
  return mistakes;
}

#define FLASH_INSTANTIATE(T)                                                                   \
  template class GpuOracle<T>;                                                                 \
  template void fill_normal(T*, Index, const Cipher&, std::uint64_t, float);                   \
  template void sharpen(T*, Index, Index, const Cipher&);                                      \
  template void grade_head(T*, T*, const AttentionShape&, Graded, Index);                      \
  template void fill_rows_without_weights(T*, Index, Index, float);                            \
  template void round_to(T*, const double*, Index);                                            \
  template Mistakes find_mistakes(const T*, const Wanted&, const std::vector<double>&, double, \
                                  double)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash::leaderboard
