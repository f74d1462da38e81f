// The problem of decoding: a few new queries of each sequence meet a long cache of keys and values,
// which lies in pages.
//
//   q, out        (batch, heads, queries, head_dim)
//   k, v          (pages, page_size, kv_heads, head_dim)   the cache
//   block_table   (batch, table_pages)                     which page holds which keys
//   lengths       (batch)                                  keys of each sequence
//   lse           (batch, heads, queries)
//
// Key j of sequence b is row j % page_size of page block_table(b, j / page_size). heads is a
// multiple of kv_heads: query head h reads kv head h / (heads / kv_heads). The queries are the last
// ones of their sequence: query i sees the keys j <= lengths(b) - queries + i. What it gives is
// attention (attention.hpp) over these keys; a query that sees none has out = 0 and lse = -inf.
//
// block_table and lengths are in the same memory as the tensors, so host code cannot look at them.
// lengths(b) is at least 0 and at most table_pages * page_size. Only entries of the table that hold
// a key of the sequence are valid; the others may be any number. Two sequences may share a page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/attention.hpp"

namespace flash {

struct DecodeProblem;  // common/registry.hpp: a pass without its data

struct DecodeShape {
  Index batch = 1, heads = 1, kv_heads = 1, queries = 1, head_dim = 64;
  Index pages = 1, page_size = 64, table_pages = 1;

  Shape<4> of_queries() const { return {batch, heads, queries, head_dim}; }     // q, out
  Shape<4> of_cache() const { return {pages, page_size, kv_heads, head_dim}; }  // k, v
  Shape<3> of_rows() const { return {batch, heads, queries}; }                  // lse
  // Heads that share a kv head, and the rows of q that read the same keys.
  FLASH_HOST_DEVICE Index group() const { return heads / kv_heads; }
  FLASH_HOST_DEVICE Index rows() const { return group() * queries; }
};

// The argument of a pass, as AttentionForward is.
template <class T>
struct Decode {
  using Element = T;
  using Problem = DecodeProblem;

  TensorView<const T, 4> q, k, v;
  TensorView<const std::int32_t, 2> block_table;
  TensorView<const std::int32_t, 1> lengths;
  TensorView<T, 4> out;
  TensorView<float, 3> lse;
  std::optional<double> scale = std::nullopt;  // of the scores; default 1 / sqrt(head_dim)
  Stream stream = {};

  FLASH_HOST_DEVICE DecodeShape shape() const {
    return {q.extent(0), q.extent(1), k.extent(2), q.extent(2),
            q.extent(3), k.extent(0), k.extent(1), block_table.extent(1)};
  }
};

// Checks all tensors of a pass, and returns the shape of the problem. Throws as check_view() does,
// and ShapeError where the shapes do not fit each other or an extent other than pages and
// table_pages is 0.
template <class T>
DecodeShape check_decode(const Decode<T>& pass) {
  const DecodeShape shape = pass.shape();
  check_not_empty("q", pass.q.shape());
  if (shape.page_size < 1 || shape.kv_heads < 1 || shape.heads % shape.kv_heads != 0)
    throw ShapeError("k has shape " + to_string<4>(pass.k.shape()) +
                     "; it must be (pages, page_size, kv_heads, head_dim), page_size and kv_heads "
                     "at least 1, and " +
                     std::to_string(shape.heads) + " heads a multiple of kv_heads");
  check_view("q", pass.q, shape.of_queries());
  check_view("k", pass.k, shape.of_cache());
  check_view("v", pass.v, shape.of_cache());
  check_view("block_table", pass.block_table, {shape.batch, shape.table_pages});
  check_view("lengths", pass.lengths, {shape.batch});
  check_view("out", pass.out, shape.of_queries());
  check_view("lse", pass.lse, shape.of_rows());
  return shape;
}

}  // namespace flash
