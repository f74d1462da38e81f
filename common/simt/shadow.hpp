// What the checks know about each byte of a piece of memory: whether it was written, whether it may be touched, who accessed it.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace flash::simt {

// Zeroed memory that is only paid for where it is touched. T must be meaningful as all zeros.
template <class T>
class LazyArray {
 public:
  LazyArray() = default;
  explicit LazyArray(std::size_t count);
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
    return count >= 64 ? bits : bits & ((std::uint64_t{1} << count) - 1);
  }
  bool has_all(std::size_t begin, std::size_t count) const {
    return bits(begin, count) == (count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1);
  }
  explicit operator bool() const { return static_cast<bool>(words_); }

 private:
  void assign(std::size_t begin, std::size_t count, bool value);

  LazyArray<std::uint64_t> words_;
};

// One access, as a race check needs it. `time` is the clock of the Checker, which never goes back: it also tells the block and the
// launch apart.
struct Access {
  std::uint32_t time = 0;  // when the thread last synchronized; 0: no access
  std::uint32_t pc = 0;    // offset in the kernel's module
  std::uint16_t thread = 0;
  bool atomic = false;
};

// Who touched a few neighbouring bytes: the last writer, and two readers since, from different warps or blocks where there were
// such. Times first, and 32 bytes in all: a check that finds nothing reads one half of a cache line.
struct alignas(32) Cell {
  static constexpr int kWriter = 0, kReader = 1, kOtherReader = 2;

  std::uint32_t time[3];
  std::uint32_t pc[3];
  std::uint16_t who[3];  // the thread's number; the highest bit: atomically

  Access get(int slot) const { return {time[slot], pc[slot], static_cast<std::uint16_t>(who[slot] & 0x7fff), (who[slot] & 0x8000) != 0}; }
  void set(int slot, const Access& access) {
    time[slot] = access.time;
    pc[slot] = access.pc;
    who[slot] = static_cast<std::uint16_t>(access.thread | (access.atomic ? 0x8000 : 0));
  }
};

// The cells of a piece of memory: one for 4 bytes, until an access is smaller, or not at a multiple of 4; then one for as many
// bytes as that takes, so that neighbouring elements are never taken for one.
class Cells {
 public:
  Cells() = default;
  explicit Cells(std::size_t bytes) : bytes_(bytes), cells_(bytes / kLargest + 2) {}

  // The cells of [begin, begin + count): first, and behind the last.
  std::pair<Cell*, Cell*> of(std::size_t begin, std::size_t count) {
    if (((begin | count) & ((std::size_t{1} << shift_) - 1)) != 0) split(begin, count);
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
  // Of memory of `bytes`, or of whatever part of as many is in use.
  explicit Shadow(std::size_t size) : bytes(size), initialized(size), cells(size) {}

  std::size_t bytes = 0;

  ByteSet initialized;    // written by a kernel, a copy or a memset
  ByteSet pending;        // the target of a cp.async that was not waited for; empty where there was none
  ByteSet forbidden;      // empty where nothing is
  Cells cells;
  std::uint64_t loaded = 0, stored = 0;  // bytes, in checked launches
};

}  // namespace flash::simt
