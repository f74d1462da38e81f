// What the vectorised kernels take and give, the same for each instruction set that they are
// compiled for. Plain data: the files that implement it share no inline function with the rest of
// the program (simd.hpp says why).
#pragma once

#include <cstddef>

namespace flash {

// Rows of one head in memory: row i starts at data + i * row, its elements lie next to each other.
template <class T>
struct HeadRows {
  T* data;
  std::ptrdiff_t row;
};

// A block of queries of one head, against all keys that they see: out and lse.
template <class T>
struct ForwardBlock {
  HeadRows<const T> q, k, v;  // of the head, from row 0
  HeadRows<T> out;
  T* lse;
  std::ptrdiff_t lse_step;
  std::ptrdiff_t first_query, last_query, keys, head_dim;  // queries [first_query, last_query)
  std::ptrdiff_t block_keys;                               // how many keys are taken at a time
  bool causal;
  double scale;
  T* scratch;  // of forward_scratch() elements, aligned to 64 bytes
};

// Rows of one head: what the backward pass needs to know of each query.
template <class T>
struct BackwardRows {
  HeadRows<const T> out, d_out;
  const T* lse;
  std::ptrdiff_t lse_step;
  std::ptrdiff_t first_query, last_query, head_dim;
  T* lse2;       // lse * log2(e), and +inf for a query that sees no key
  T* lse2_rest;  // what lse2 lost in rounding: 2^-21 of every weight, at an lse of 7 in float
  T* delta;      // sum of out * d_out
};

// Some blocks of keys of one head, against all queries that see them: blocks first_block,
// first_block + block_step, ... Their d_k and d_v, and their share of d_q.
template <class T>
struct BackwardSplit {
  HeadRows<const T> q, k, v, d_out;
  HeadRows<T> d_k, d_v;
  const T *lse2, *lse2_rest, *delta;
  T* d_q;  // (queries, width(head_dim)): the sum over these blocks' keys, without the scale
  std::ptrdiff_t queries, keys, head_dim;
  std::ptrdiff_t first_block, block_step;
  std::ptrdiff_t block_queries, block_keys;
  bool causal;
  double scale;
  T* scratch;  // of backward_scratch() elements, aligned to 64 bytes
};

// d_q = scale * the sum of the splits' shares, for some rows of one head.
template <class T>
struct BackwardSum {
  const T* shares;  // of split s from shares + s * step on, (queries, width(head_dim))
  std::ptrdiff_t splits, step;
  std::ptrdiff_t first_query, last_query, head_dim;
  HeadRows<T> d_q;
  double scale;
};

// The kernels for one instruction set and element type.
template <class T>
struct Kernels {
  std::ptrdiff_t panel;  // queries or keys in the lanes of a tile: blocks are best multiples of it
  std::ptrdiff_t (*width)(std::ptrdiff_t head_dim);  // head_dim rounded up to whole vectors
  std::ptrdiff_t (*forward_scratch)(std::ptrdiff_t block_queries, std::ptrdiff_t block_keys,
                                    std::ptrdiff_t head_dim);
  void (*forward)(const ForwardBlock<T>&);
  void (*backward_rows)(const BackwardRows<T>&);
  std::ptrdiff_t (*backward_scratch)(std::ptrdiff_t block_queries, std::ptrdiff_t block_keys,
                                     std::ptrdiff_t head_dim);
  void (*backward_split)(const BackwardSplit<T>&);
  void (*backward_sum)(const BackwardSum<T>&);
};

struct RungKernels {
  Kernels<float> float32;
  Kernels<double> float64;

  template <class T>
  const Kernels<T>& of() const {
    if constexpr (sizeof(T) == sizeof(float))
      return float32;
    else
      return float64;
  }
};

}  // namespace flash
