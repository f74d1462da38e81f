// Given: which problems the kernels take, and how they divide them into parts.
#pragma once

#include <algorithm>
#include <string>

#include "bonus_decode/flash_decode.hpp"
#include "common/checks.hpp"

namespace flash::decode {

inline constexpr int kMostParts = 32, kFewestKeys = 512;

// Keys of each part of a sequence of `length` keys, but for the last part: whole pages.
FLASH_HOST_DEVICE inline int keys_of_part(int length, int page_size, int most = kMostParts,
                                          int fewest = kFewestKeys) {
  const int share = (length + most - 1) / most;
  const int keys = share > fewest ? share : fewest;
  return (keys + page_size - 1) / page_size * page_size;
}

// As many parts as the longest sequence has for which the table has room.
inline Index parts_of_longest(const DecodeShape& shape, int most = kMostParts,
                              int fewest = kFewestKeys) {
  return std::clamp<Index>((shape.table_pages * shape.page_size + fewest - 1) / fewest, 1, most);
}

// Why the kernels do not take a problem, in words; "" when they take it.
inline std::string why_not(const DecodeShape& shape) {
  if (shape.head_dim != 64 && shape.head_dim != 128 && shape.head_dim != 256)
    return "head_dim is " + std::to_string(shape.head_dim) + "; it must be 64, 128 or 256";
  const std::string why = why_above("table_pages * page_size", shape.table_pages * shape.page_size,
                                    (Index{1} << 31) - 1);
  return why.empty() ? why_above("heads / kv_heads * queries", shape.rows(), kDecodeMostRows) : why;
}

}  // namespace flash::decode
