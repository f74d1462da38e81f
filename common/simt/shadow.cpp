// Implements shadow.hpp.
#include "common/simt/shadow.hpp"

#include <algorithm>
#include <new>

namespace flash::simt {

template <class T>
LazyArray<T>::LazyArray(std::size_t count) : bytes_((count + 1) * sizeof(T)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<T*>(memory);
}

template class LazyArray<std::uint64_t>;
template class LazyArray<std::uint32_t>;
template class LazyArray<Cell>;

void Cells::split(std::size_t begin, std::size_t count) {
  unsigned shift = shift_;
  while (((begin | count) & ((std::size_t{1} << shift) - 1)) != 0) --shift;
  const std::size_t old_cells = bytes_ / (std::size_t{1} << shift_) + 1, parts = std::size_t{1} << (shift_ - shift);
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
    const std::uint64_t mask = (here == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << here) - 1) << shift;
    std::uint64_t& word = words_[begin / 64];
    word = value ? word | mask : word & ~mask;
    begin += here;
  }
}

}  // namespace flash::simt
