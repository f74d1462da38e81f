// The registers that a thread's wgmma use: arrays on the thread's stack. From wgmma() to the wait
// that covers it nobody may touch D, nor write A; and an access before wgmma() needs a
// wgmma_fence() in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flash::simt {

struct RegisterRange {
  const char* begin;
  const char* end;
  bool is_d;
  std::uint64_t last_product = 0;  // the number of the last wgmma that uses it
  bool in_flight = false;
  std::uintptr_t pc = 0;       // of that wgmma
  std::uintptr_t touched = 0;  // from where, since the last wgmma_fence(); 0: not at all

  bool overlaps(const char* from, std::size_t bytes) const {
    return from < end && from + bytes > begin;
  }
};

struct RegisterWatch {
  std::vector<RegisterRange> ranges{};
  // All ranges lie between them: most accesses are elsewhere.
  const char* lowest = nullptr;
  const char* highest = nullptr;
  bool has_fenced = false;

  void fence();
  // The products up to this number are over for the thread.
  void end_products(std::uint64_t last);
  // The range, which is remembered from now on. Others that overlap it are forgotten.
  RegisterRange& use(const char* begin, std::size_t bytes, bool is_d);
};

}  // namespace flash::simt
