// The memory meter and the watched rows of the harness, in the judge: what they find out is found
// out about the runner.
#include <sys/mman.h>

#include <string>

#include "common/error.hpp"
#include "common/memory_meter.hpp"
#include "harness/judge/remote.hpp"
#include "harness/judge/watched_memory.hpp"

namespace flash::host_memory {

// extra_bytes_of() reads peak() - in_use() around a call.
std::size_t in_use() noexcept { return 0; }
void reset_peak() noexcept { grading::measure_memory(); }
std::size_t peak() noexcept { return grading::measured_memory(); }
void set_limit(std::optional<std::size_t>) noexcept {}

}  // namespace flash::host_memory

namespace flash::harness {

WatchedRows::WatchedRows(Index rows, Index columns)
    : bytes_(static_cast<std::size_t>(rows * columns) * sizeof(float)), columns_(columns) {
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw OutOfMemory("no memory to watch, " + std::to_string(bytes_) + " bytes");
  data_ = static_cast<float*>(memory);
}

WatchedRows::~WatchedRows() {
  grading::hide_from_runner(nullptr, nullptr);
  munmap(data_, bytes_);
}

// The runner gets no memory for these rows, and crashes where it touches one.
void WatchedRows::watch_from(Index first) {
  grading::hide_from_runner(data_ + first * columns_,
                            reinterpret_cast<const char*>(data_) + bytes_);
}

std::optional<Index> WatchedRows::touched() const { return std::nullopt; }

}  // namespace flash::harness
