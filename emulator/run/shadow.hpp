// What the checks remember of each byte of memory: whether it was written, whether it may be
// accessed, who accessed it.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "emulator/headers/device/host_interface.hpp"

namespace flash::simt {

// `bytes` of zeroed memory that takes space only where it is used. Throws std::bad_alloc.
char* reserve(std::size_t bytes, int protection = PROT_READ | PROT_WRITE);

// Zeroed memory that takes space only where it is used. T must be valid as all zeros.
template <class T>
class LazyArray {
 public:
  LazyArray() = default;
  explicit LazyArray(std::size_t count)
      : data_(reinterpret_cast<T*>(reserve((count + 1) * sizeof(T)))),
        bytes_((count + 1) * sizeof(T)) {}
  LazyArray(LazyArray&& other) noexcept { swap(other); }
  LazyArray& operator=(LazyArray&& other) noexcept {
    swap(other);
    return *this;
  }
  ~LazyArray() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }

  T* data() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void swap(LazyArray& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  T* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// A bit for each byte of a piece of memory.
class ByteSet {
 public:
  ByteSet() = default;
  explicit ByteSet(std::size_t bytes) : words_((bytes + 63) / 64 + 1) {}

  void insert(std::size_t begin, std::size_t count) { assign(begin, count, true); }
  void remove(std::size_t begin, std::size_t count) { assign(begin, count, false); }
  // For at most 64 bytes: bit i says whether byte begin + i is in the set.
  std::uint64_t bits(std::size_t begin, std::size_t count) const {
    const std::size_t shift = begin % 64;
    std::uint64_t bits = words_[begin / 64] >> shift;
    if (shift != 0) bits |= words_[begin / 64 + 1] << (64 - shift);
    return bits & ones(count);
  }
  bool has_all(std::size_t begin, std::size_t count) const {
    return bits(begin, count) == ones(count);
  }
  explicit operator bool() const { return static_cast<bool>(words_); }

 private:
  static std::uint64_t ones(std::size_t count) {
    return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  }
  void assign(std::size_t begin, std::size_t count, bool value);

  LazyArray<std::uint64_t> words_;
};

// One access. `time` is the clock of the checks, which never goes back, so that it also identifies
// the block and the launch.
struct Access {
  std::uint32_t time = 0;  // when the thread last synchronized; 0: no access
  std::uint32_t pc = 0;    // offset in the kernel's module
  std::uint16_t thread = 0;
  bool atomic = false;
};

// Who accessed a few neighbouring bytes: the last writer, and two later readers, from different
// warps or blocks if possible. 32 bytes: a check that finds nothing reads half a cache line.
struct alignas(32) Cell {
  static constexpr int kWriter = 0, kReader = 1, kOtherReader = 2;

  std::uint32_t time[3];
  std::uint32_t pc[3];
  std::uint16_t who[3];  // the thread's number; the highest bit: atomically

  unsigned actor(int slot) const { return who[slot] & 0x7fffu; }
  bool has_one_warp() const { return who[kReader] / 32 == who[kOtherReader] / 32; }  // of readers
  Access get(int slot) const {
    return {time[slot], pc[slot], static_cast<std::uint16_t>(actor(slot)),
            (who[slot] & 0x8000) != 0};
  }
  void set(int slot, const Access& access) {
    time[slot] = access.time;
    pc[slot] = access.pc;
    who[slot] = static_cast<std::uint16_t>(access.thread | (access.atomic ? 0x8000 : 0));
  }
};

// The cells of a piece of memory: one for 4 bytes, until an access is smaller or not at a multiple
// of 4. Then cells get as small as the access needs, so that neighbouring elements are kept apart.
class Cells {
 public:
  Cells() = default;
  explicit Cells(std::size_t bytes) : bytes_(bytes), cells_(bytes / kLargest + 2) {}

  // Whether [begin, begin + count) consists of whole cells.
  bool are_whole(std::size_t begin, std::size_t count) const {
    return ((begin | count) & ((std::size_t{1} << shift_) - 1)) == 0;
  }
  // The first cell of [begin, begin + count), and the one after the last.
  std::pair<Cell*, Cell*> of(std::size_t begin, std::size_t count) {
    if (!are_whole(begin, count)) split(begin, count);
    return {cells_.data() + (begin >> shift_), cells_.data() + ((begin + count) >> shift_)};
  }

 private:
  static constexpr std::size_t kLargest = 4;
  void split(std::size_t begin, std::size_t count);

  std::size_t bytes_ = 0;
  unsigned shift_ = 2;  // log2 of a cell's bytes
  LazyArray<Cell> cells_;
};

// A piece of memory that kernels share.
struct Shadow {
  Shadow() = default;
  explicit Shadow(std::size_t size) : bytes(size), initialized(size), cells(size) {}

  std::size_t bytes = 0;

  ByteSet initialized;  // written by a kernel, a copy or a memset
  ByteSet pending;  // the target of a cp.async that was not waited for; empty where there was none
  ByteSet forbidden;       // empty where nothing is
  bool is_tensor = false;  // it has a name
  bool is_input = false;   // that kernels may only read
  Cells cells;
  Traffic traffic;  // in checked launches
  // Loaded before the running block; by the launch's busiest block so far.
  std::uint64_t loaded_before = 0, loaded_by_busiest = 0;
};

}  // namespace flash::simt
