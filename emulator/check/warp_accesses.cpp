#include "emulator/check/warp_accesses.hpp"

#include <algorithm>

#include "emulator/run/shared_memory.hpp"

namespace flash::simt {
namespace {

constexpr unsigned kSector = 32, kWord = 4, kBanks = 32;
// Of one instruction and warp between two barriers: what comes after them is not counted, so that
// a long loop without a barrier takes no memory.
constexpr std::uint32_t kMostRequests = 4096;

// The numbers of the pieces of `size` bytes that the lanes touch, each once.
class Pieces {
 public:
  void add(std::uint32_t address, unsigned bytes, unsigned size) {
    for (std::uint32_t n = address / size; n <= (address + bytes - 1) / size; ++n)
      numbers_[count_++] = n;
  }
  std::uint32_t* begin() { return numbers_.data(); }
  std::uint32_t* end() { return begin() + count_; }
  unsigned keep_each_once() {
    std::sort(begin(), end());
    count_ = static_cast<unsigned>(std::unique(begin(), end()) - begin());
    return count_;
  }

 private:
  std::array<std::uint32_t, 32 * 5> numbers_;
  unsigned count_ = 0;
};

}  // namespace

WarpAccesses::Code& WarpAccesses::find(std::uintptr_t pc, unsigned warp) {
  if (table_.size() < 4 * (codes_.size() + 1)) {
    table_.assign(std::max<std::size_t>(1024, 2 * table_.size()), 0);
    const std::vector<Code> old = std::move(codes_);
    codes_.clear();
    for (const Code& code : old) {
      Code& again = find(code.pc, code.warp);
      again = code;
    }
  }
  const std::size_t mask = table_.size() - 1;
  std::size_t at = ((pc ^ warp << 20) * 0x9e3779b97f4a7c15u >> 32) & mask;
  for (; table_[at] != 0; at = (at + 1) & mask)
    if (Code& code = codes_[table_[at] - 1]; code.pc == pc && code.warp == warp) return code;
  codes_.push_back({.pc = pc, .warp = warp});
  table_[at] = static_cast<std::uint32_t>(codes_.size());
  return codes_.back();
}

void WarpAccesses::add(unsigned thread, const Touch& touch) {
  if (touch.bytes > 16) return;  // the emulator's own, not a lane's
  Code& code = find(touch.pc, thread / 32);
  const unsigned lane = thread % 32;
  const std::uint32_t number = code.times[lane]++;
  if (number >= kMostRequests) return;
  if (code.requests.size() <= number) code.requests.resize(number + 1);
  Request& request = code.requests[number];
  if (request.lanes == 0) {
    request.shadow = touch.place.shadow;
    request.is_global = touch.place.is_global;
    request.is_read = touch.kind == AccessKind::kRead;
    request.bytes = static_cast<std::uint8_t>(touch.bytes);
  }
  request.address[lane] =
      static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(touch.address));
  request.lanes |= std::uint32_t{1} << lane;
}

void WarpAccesses::count_all() {
  for (Code& code : codes_) {
    for (const Request& request : code.requests) count(request);
    code.requests.clear();
    code.times = {};
  }
}

void WarpAccesses::count(const Request& request) {
  const auto is_in = [&](unsigned lane) { return (request.lanes >> lane & 1) != 0; };
  if (request.is_global) {
    Pieces sectors;
    for (unsigned lane = 0; lane < 32; ++lane)
      if (is_in(lane)) sectors.add(request.address[lane], request.bytes, kSector);
    Traffic& traffic = request.shadow->traffic;
    ++(request.is_read ? traffic.load_requests : traffic.store_requests);
    (request.is_read ? traffic.load_sectors : traffic.store_sectors) += sectors.keep_each_once();
    return;
  }
  // 32 lanes want at most 128 bytes at a time: of 8 bytes a lane half of the warp, of 16 a quarter.
  const unsigned together = request.bytes <= 4 ? 32 : request.bytes <= 8 ? 16 : 8;
  SharedAccesses& counted = SharedMemory::accesses;
  for (unsigned first = 0; first < 32; first += together) {
    Pieces words;
    for (unsigned lane = first; lane < first + together; ++lane)
      if (is_in(lane)) words.add(request.address[lane], request.bytes, kWord);
    if (words.keep_each_once() == 0) continue;
    std::array<unsigned, kBanks> wanted{};
    for (const std::uint32_t word : words) ++wanted[word % kBanks];
    const unsigned wavefronts = *std::max_element(wanted.begin(), wanted.end());
    counted.wavefronts += wavefronts;
    counted.conflicts += wavefronts - 1;
  }
}

}  // namespace flash::simt
