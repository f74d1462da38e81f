// The memory meter and the watched rows of the harness, in the judge: what they find out is found
// out about the runner.
#include "common/memory_meter.hpp"
#include "harness/judge/remote.hpp"
#include "harness/judge/watched_memory.hpp"

namespace flash::host_memory {

// extra_bytes_of() reads peak() - in_use() around a call.
namespace {
std::size_t before = 0;
}
std::size_t in_use() noexcept { return static_cast<std::size_t>(grading::kept_memory()); }
void reset_peak() noexcept {
  before = in_use();
  grading::measure_memory();
}
std::size_t peak() noexcept { return before + grading::measured_memory(); }
void set_limit(std::optional<std::size_t>) noexcept {}

}  // namespace flash::host_memory

namespace flash::harness {

WatchedRows::WatchedRows(Index rows, Index columns)
    : rows_(static_cast<std::size_t>(rows * columns)), columns_(columns) {}

WatchedRows::~WatchedRows() { grading::hide_from_runner(nullptr, nullptr); }

void WatchedRows::watch_from(Index first) {
  grading::hide_from_runner(data() + first * columns_, data() + rows_.size());
}

WatchBehind::~WatchBehind() { grading::hide_from_runner(nullptr, nullptr); }

void WatchBehind::begin(const void* end, const void* buffer_end) {
  grading::hide_from_runner(end, buffer_end);
}

bool touched_behind() { return grading::hidden_byte_touched().has_value(); }

std::optional<Index> WatchedRows::touched() const {
  const auto byte = grading::hidden_byte_touched();
  if (!byte) return std::nullopt;
  return static_cast<Index>(*byte) / (columns_ * static_cast<Index>(sizeof(float)));
}

}  // namespace flash::harness
