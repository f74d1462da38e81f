// Contract of the second bonus: attention of a few new queries to a long cache (common/decode.hpp),
// in parts that many thread blocks compute, and a second step that merges the parts.
//
// A part is attention over some of a row's keys, as (out, lse). Of parts that share no key follows
// attention over all of their keys:
//
//   lse = log(sum over s of exp(lse_s))       out = sum over s of exp(lse_s - lse) out_s
//
// Source: Flash-Decoding (Dao, Haziza, Massa and Sizov 2023), and part 1, where the parts are the
// blocks of one row.
#pragma once

#include "common/decode.hpp"
#include "common/half.hpp"
#include "common/task.hpp"

namespace flash {

// ---- Task D.A, on the CPU -----------------------------------------------------------------------

// Merges the parts of each row.
//   part_out (parts, rows, head_dim)   part_lse (parts, rows)   out (rows, head_dim)   lse (rows)
// A part whose lse is -inf has seen no key; what its out holds counts nothing, not even a NaN. A
// row of nothing but such parts, or of no parts at all, gives out = 0 and lse = -inf. A part whose
// lse is NaN makes its row NaN, and a NaN in a part's out makes its column of the row NaN. Any
// strides. Throws ShapeError when the shapes do not fit each other, and ArgumentError when rows or
// head_dim is 0.
void merge_parts(TensorView<const float, 3> part_out, TensorView<const float, 2> part_lse,
                 TensorView<float, 2> out, TensorView<float, 1> lse);

struct MergePartsTask {
  static constexpr char kId[] = "decode.merge_parts";
  decltype(&flash::merge_parts) merge_parts = flash::merge_parts;
};

// ---- Task D.B, in CUDA --------------------------------------------------------------------------

// What the kernels take: a head_dim of 64, 128 or 256, and at most this many rows of q for each kv
// head of a sequence, heads / kv_heads * queries.
inline constexpr Index kDecodeMostRows = 32;

// Decodes: T is float, Half or BFloat16, and all sums are in float32. All views point to device
// memory. All but k and v may have any strides; rows of k and v are contiguous, and each begins at
// a multiple of 16 bytes.
//
// Each key and value of a sequence is loaded once for all heads of its group, and nothing else of
// the cache is read. Each sequence is split into at most 64 parts, a number that depends on its own
// length and on nothing else of the batch; so a sequence gives the same bits in any batch.
//
// Enqueues on pass.stream and does not wait. Extra device memory: for each sequence at least as
// many parts as a sequence of table_pages * page_size keys has. Throws ShapeError and ArgumentError
// as check_decode() and attention_scale() do, Unsupported for another head_dim, for more rows, for
// table_pages * page_size >= 2^31 or for rows of k or v that are not aligned, OutOfMemory, and
// CudaError when a launch fails.
template <class T>
void flash_decode_cuda(const Decode<T>& pass);

template <class T>
struct FlashDecodeCudaFunctions {
  void (*flash_decode_cuda)(const Decode<T>&) = flash::flash_decode_cuda<T>;
};
struct FlashDecodeCudaTask : ForTypes<FlashDecodeCudaFunctions, float, Half, BFloat16> {
  static constexpr char kId[] = "decode.flash_decode_cuda";
};

}  // namespace flash
