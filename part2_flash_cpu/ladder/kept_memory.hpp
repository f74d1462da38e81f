// Memory to work in that stays from call to call, so that its pages are fresh, and fault, only
// once.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "common/error.hpp"

namespace flash {

class KeptMemory {
 public:
  // `elements` of T, aligned to a cache line, with anything in them; valid until the next get().
  // Throws OutOfMemory.
  template <class T>
  T* get(std::ptrdiff_t elements) {
    const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(T);
    if (bytes > size_ ||
        size_ > kKept) {  // a piece larger than kKept is given back at the next call
      release();
      try {
        memory_.reset(static_cast<std::byte*>(::operator new(bytes, kLine)));
      } catch (const std::bad_alloc&) {
        throw OutOfMemory("no host memory to work in, " + std::to_string(bytes) + " bytes");
      }
      size_ = bytes;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

  void release() {
    memory_.reset();
    size_ = 0;
  }

 private:
  static constexpr std::align_val_t kLine{64};
  static constexpr std::size_t kKept = std::size_t{64} << 20;

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kLine); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace flash
