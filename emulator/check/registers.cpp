// Implements registers.hpp, and what checker.hpp says of registers.
#include "emulator/check/registers.hpp"

#include <algorithm>

#include "emulator/check/checker.hpp"

namespace flash::simt {

using enum FindingKind;

void RegisterWatch::fence() {
  has_fenced = true;
  for (RegisterRange& range : ranges) range.touched = 0;
}

void RegisterWatch::end_products(std::uint64_t last) {
  for (RegisterRange& range : ranges)
    if (range.last_product <= last) range.in_flight = false;
}

RegisterRange& RegisterWatch::use(const char* begin, std::size_t bytes, bool is_d) {
  for (RegisterRange& range : ranges)
    if (range.begin == begin && range.end == begin + bytes && range.is_d == is_d) return range;
  std::erase_if(ranges, [&](const RegisterRange& range) { return range.overlaps(begin, bytes); });
  lowest = ranges.empty() ? begin : std::min(lowest, begin);
  highest = ranges.empty() ? begin + bytes : std::max(highest, begin + bytes);
  return ranges.emplace_back(RegisterRange{begin, begin + bytes, is_d});
}

void Checker::check_registers(const char* begin, std::size_t bytes, bool is_write,
                              std::uintptr_t pc) {
  RegisterWatch& watch = registers_[clocks_.thread()];
  if (begin >= watch.highest || begin + bytes <= watch.lowest) return;
  for (RegisterRange& range : watch.ranges) {
    if (!range.overlaps(begin, bytes) || !(range.is_d || is_write)) continue;
    if (range.in_flight)
      stop(kAsyncCopy, pc,
           text_of(is_write ? " changes" : " reads", " registers of ", range.is_d ? "D" : "A",
                   " of the wgmma() at ", place_text(locate(worker_.launch().module, range.pc)),
                   ", which it has not waited for: wgmma_commit() and a wgmma_wait() that covers "
                   "it come first."));
    range.touched = pc;
  }
}

void Checker::use_registers(unsigned thread, const void* begin, std::size_t bytes, bool is_d,
                            std::uint64_t product, std::uintptr_t pc) {
  uses_registers_ = true;
  RegisterWatch& watch = registers_[thread];
  RegisterRange& range = watch.use(static_cast<const char*>(begin), bytes, is_d);
  if (!watch.has_fenced || range.touched != 0)
    found(kFence, pc, 0, [&](const std::string&, const std::string&) {
      return text_of(
          worker_.describe(thread),
          range.touched == 0
              ? " calls wgmma() before its first wgmma_fence()."
              : text_of(" accessed registers of ", is_d ? "D" : "A", " of this wgmma() at ",
                        place_text(locate(worker_.launch().module, range.touched)),
                        ", and has not called wgmma_fence() since."));
    });
  range.last_product = product;
  range.in_flight = true;
  range.pc = pc;
}

}  // namespace flash::simt
