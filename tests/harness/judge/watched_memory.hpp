// Memory that finds out whether it is touched: for code that must not so much as read what it has
// no use for.
#pragma once

#include <optional>
#include <vector>

#include "common/tensor.hpp"

namespace flash::harness {

// Rows of `columns` floats, row after row, all 0. One at a time.
class WatchedRows {
 public:
  WatchedRows(Index rows, Index columns);
  ~WatchedRows();
  WatchedRows(const WatchedRows&) = delete;
  WatchedRows& operator=(const WatchedRows&) = delete;

  float* data() { return rows_.data(); }

  // From now on a runner gets no memory for row `first` and those behind it, and crashes where it
  // touches one.
  void watch_from(Index first);

  // The row at which it crashed.
  std::optional<Index> touched() const;

 private:
  std::vector<float> rows_;
  Index columns_;
};

}  // namespace flash::harness
