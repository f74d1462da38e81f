#include "emulator/run/shadow.hpp"

#include <algorithm>
#include <new>

namespace flash::simt {

char* reserve(std::size_t bytes, int protection) {
  void* memory =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(memory);
}

void Cells::split(std::size_t begin, std::size_t count) {
  unsigned shift = shift_;
  while (((begin | count) & ((std::size_t{1} << shift) - 1)) != 0) --shift;
  const std::size_t old_cells = bytes_ / (std::size_t{1} << shift_) + 1,
                    parts = std::size_t{1} << (shift_ - shift);
  LazyArray<Cell> finer((old_cells + 1) * parts + 1);
  for (std::size_t i = 0; i < old_cells; ++i) {
    const Cell& whole = cells_[i];
    if ((whole.time[0] | whole.time[1] | whole.time[2]) == 0) continue;
    for (std::size_t part = 0; part < parts; ++part) finer[i * parts + part] = whole;
  }
  cells_ = std::move(finer);
  shift_ = shift;
}

void ByteSet::assign(std::size_t begin, std::size_t count, bool value) {
  const std::size_t end = begin + count;
  while (begin < end) {
    const std::size_t shift = begin % 64, here = std::min<std::size_t>(64 - shift, end - begin);
    const std::uint64_t mask = ones(here) << shift;
    std::uint64_t& word = words_[begin / 64];
    word = value ? word | mask : word & ~mask;
    begin += here;
  }
}

}  // namespace flash::simt
