#include "emulator/run/shared_memory.hpp"

#include <cstring>

namespace flash::simt {
namespace {

constexpr std::size_t kPages = 256 * 1024;  // at least kMost, in whole pages of any size
constexpr std::size_t kGuard = 64 * 1024;
constexpr std::size_t kAlignment = 128;
constexpr std::uint32_t kDynamicWindow = 1024 + 16;  // a GPU keeps the first KiB for itself
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
  const auto alignment = static_cast<std::uint32_t>(module.thread_local_alignment);
  const auto end = kDynamicWindow + static_cast<std::uint32_t>(dynamic_bytes);
  fixed_window_ = (end + 1023) / 1024 * 1024 + (alignment < 1024 ? alignment : 0);
  if (!forget) return;
  if (fixed_shadow_.bytes < fixed_bytes_) fixed_shadow_ = Shadow(fixed_bytes_);
  for (auto& [shadow, bytes] : {std::pair<Shadow&, std::size_t>{dynamic_shadow_, dynamic_bytes},
                                {fixed_shadow_, fixed_bytes_}}) {
    if (bytes == 0) continue;
    shadow.initialized.remove(0, bytes);
    if (shadow.pending) shadow.pending.remove(0, bytes);
  }
  if (module_ != &module) guards_ = constructor_guards(*(module_ = &module));
  for (const auto& [begin, bytes] : guards_) fixed_shadow_.initialized.insert(begin, bytes);
}

std::string SharedMemory::dynamic_text() const {
  return "the block has " + std::to_string(dynamic_bytes_) +
         " bytes of dynamic shared memory, which is what the launch's shared_bytes says";
}

std::optional<std::uint32_t> SharedMemory::window_address(const void* memory) const {
  const auto offset_in = [memory](const char* begin) {
    return reinterpret_cast<std::uintptr_t>(memory) - reinterpret_cast<std::uintptr_t>(begin);
  };
  if (const auto offset = offset_in(dynamic_); offset < dynamic_bytes_)
    return kDynamicWindow + static_cast<std::uint32_t>(offset);
  if (const auto offset = offset_in(fixed_); offset < fixed_bytes_)
    return fixed_window_ + static_cast<std::uint32_t>(offset);
  return std::nullopt;
}

char* SharedMemory::at(std::uint32_t address, std::size_t bytes) const {
  if (const std::size_t offset = std::size_t{address} - kDynamicWindow;
      offset < dynamic_bytes_ && bytes <= dynamic_bytes_ - offset)
    return dynamic_ + offset;
  if (const std::size_t offset = std::size_t{address} - fixed_window_;
      offset < fixed_bytes_ && bytes <= fixed_bytes_ - offset)
    return fixed_ + offset;
  return nullptr;
}

bool SharedMemory::is_guard(const void* address) const {
  const char* const guard = memory_ + kPages;
  return address >= guard && address < guard + kGuard;
}

}  // namespace flash::simt
