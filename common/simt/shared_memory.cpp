// Implements shared_memory.hpp.
#include "common/simt/shared_memory.hpp"

#include <cstring>

namespace flash::simt {
namespace {

constexpr std::size_t kPages = 192 * 1024;  // at least kMost, in whole pages of any size
constexpr std::size_t kGuard = 64 * 1024;
constexpr std::size_t kAlignment = 128;
static_assert(kPages >= SharedMemory::kMost);

}  // namespace

SharedMemory::SharedMemory() : memory_(reserve(kPages + kGuard)), dynamic_shadow_(kPages) {
  mprotect(memory_ + kPages, kGuard, PROT_NONE);
}

SharedMemory::~SharedMemory() { munmap(memory_, kPages + kGuard); }

void SharedMemory::start_block(const Module& module, std::size_t dynamic_bytes, bool forget) {
  dynamic_bytes_ = dynamic_bytes;
  dynamic_ = memory_ + kPages - (dynamic_bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::memset(dynamic_, 0xff, dynamic_bytes);
  fixed_ = module.thread_local_memory();
  fixed_bytes_ = module.thread_local_bytes;
  if (fixed_bytes_ > 0) std::memset(fixed_, 0xff, fixed_bytes_);
  if (!forget) return;
  if (fixed_shadow_bytes_ < fixed_bytes_) {
    fixed_shadow_ = Shadow(fixed_bytes_);
    fixed_shadow_bytes_ = fixed_bytes_;
  }
  for (auto& [shadow, bytes] : {std::pair<Shadow&, std::size_t>{dynamic_shadow_, dynamic_bytes},
                                {fixed_shadow_, fixed_bytes_}}) {
    if (bytes == 0) continue;
    shadow.initialized.remove(0, bytes);
    if (shadow.pending) shadow.pending.remove(0, bytes);
  }
}

bool SharedMemory::is_guard(const void* address) const {
  const char* const guard = memory_ + kPages;
  return address >= guard && address < guard + kGuard;
}

}  // namespace flash::simt
