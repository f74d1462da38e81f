// Given: which problems the kernels take.
#pragma once

#include <string>

#include "bonus_decode/flash_decode.hpp"
#include "common/checks.hpp"

namespace flash::decode {

// Why the kernels do not take a problem, in words; "" when they take it.
inline std::string why_not(const DecodeShape& shape) {
  if (shape.head_dim != 64 && shape.head_dim != 128 && shape.head_dim != 256)
    return "head_dim is " + std::to_string(shape.head_dim) + "; it must be 64, 128 or 256";
  const std::string why = why_above("table_pages * page_size", shape.table_pages * shape.page_size,
                                    (Index{1} << 31) - 1);
  return why.empty() ? why_above("heads / kv_heads * queries", shape.rows(), kDecodeMostRows) : why;
}

}  // namespace flash::decode
