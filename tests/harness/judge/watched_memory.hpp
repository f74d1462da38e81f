// Memory that finds out whether it is touched: for code that must not so much as read what it has
// no use for.
#pragma once

#include <cstddef>
#include <optional>

#include "common/tensor.hpp"

namespace flash::harness {

// Rows of `columns` floats, row after row, all 0. Linux and macOS. One at a time in a process: it
// owns the handler of faults.
class WatchedRows {
 public:
  // Throws OutOfMemory.
  WatchedRows(Index rows, Index columns);
  ~WatchedRows();
  WatchedRows(const WatchedRows&) = delete;
  WatchedRows& operator=(const WatchedRows&) = delete;

  float* data() { return data_; }

  // From now on, whoever touches row `first` or one behind it is found out, and goes on as if
  // nothing had been. Memory is watched in whole pages: up to a page of rows from `first` on may
  // escape.
  void watch_from(Index first);

  // The first row that was touched although watched.
  std::optional<Index> touched() const;

 private:
  float* data_ = nullptr;
  std::size_t bytes_ = 0;
  Index columns_ = 0;
};

}  // namespace flash::harness
