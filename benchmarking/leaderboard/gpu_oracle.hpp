// The oracle of common/oracle.hpp on a GPU, for the sizes of its boards: 16384 keys take a
// processor minutes. The results are in float64, the magnitudes in float32: what they decide, the
// size of a bound, needs no more digits. All pointers are device memory, and tensors are row-major.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarking/leaderboard/draw.hpp"
#include "common/attention.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/half.hpp"
#include "common/softmax_matmul.hpp"

namespace flash::leaderboard {

// A result and how large the terms are whose sum it is.
struct Wanted {
  DeviceTensor<double, 1> value;
  DeviceTensor<float, 1> magnitude;

  Wanted() = default;
  explicit Wanted(Index size) : value(Shape<1>{size}), magnitude(Shape<1>{size}) {}
};

// T is float, Half or BFloat16, here and below.
template <class T>
class FLASH_EXPORT GpuOracle {
 public:
  // Of `heads` heads of (queries, head_dim) and (keys, head_dim). It takes `rows` queries at a
  // time, without a number as many as need 64 MiB for P.
  GpuOracle(Index heads, const AttentionShape& head, bool causal, bool backward, Index rows = 0);

  // What the results are for these inputs; without a backward pass there is no d_out.
  void compute(const T* q, const T* k, const T* v, const T* d_out);

  // Of the last compute(). The magnitudes of lse are 1: an error of it is absolute.
  Wanted out, d_q, d_k, d_v, lse;
  std::vector<double> largest_scores;  // of each head, of the finite ones

 private:
  const Index heads_;
  const AttentionShape head_;
  const bool causal_, backward_;
  const Index rows_;  // queries at a time
  Wanted p_, d_p_;
  DeviceTensor<float, 1> largest_;
};

// softmax(x) v; returns the largest |x| of each row that is finite.
FLASH_EXPORT std::vector<double> softmax_matmul_wanted(const float* x, const float* v,
                                                       const SoftmaxMatmulShape& shape,
                                                       Wanted& out);

// x becomes N(0, deviation^2).
template <class T>
FLASH_EXPORT void fill_normal(T* x, Index count, const Cipher& cipher, std::uint64_t stream,
                              float deviation = 1);

// What makes N(0, 1) graded data: of the rows of q, of q and k of one head, and of x.
template <class T>
FLASH_EXPORT void sharpen(T* q, Index rows, Index head_dim, const Cipher& cipher);
template <class T>
FLASH_EXPORT void grade_head(T* q, T* k, const AttentionShape& head, Graded kind, Index spike);
FLASH_EXPORT void grade_scores(float* x, const SoftmaxMatmulShape& shape, const Cipher& cipher,
                               Index kinds, bool in_each_part);

// The rows that have no weights become `value`.
template <class T>
FLASH_EXPORT void fill_rows_without_weights(T* x, Index rows, Index width, float value);

// to[i] = from[i], rounded.
template <class T>
FLASH_EXPORT void round_to(T* to, const double* from, Index count);

// What in a result is farther from the wanted value than bound * magnitude + absolute + relative *
// |value|. Where the wanted value is NaN or an infinity, another value is.
struct Mistakes {
  std::int64_t count = 0, first = 0;
  double got = 0, wanted = 0;  // of the first
};

// The mistakes in `got`; `bounds` are those of equal pieces, one after the other.
template <class T>
FLASH_EXPORT Mistakes find_mistakes(const T* got, const Wanted& wanted,
                                    const std::vector<double>& bounds, double absolute = 0,
                                    double relative = 0);

}  // namespace flash::leaderboard
