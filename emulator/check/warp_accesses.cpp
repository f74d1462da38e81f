#include "emulator/check/warp_accesses.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include "emulator/run/shared_memory.hpp"

namespace flash::simt {
namespace {

constexpr unsigned kSector = 32, kWord = 4, kBanks = 32, kLine = 128;
// Of one instruction and warp between two barriers, so that a long loop without a barrier takes no
// memory. After them each lane's access is a request of its own, so that none is free.
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

WarpAccesses::Code& WarpAccesses::find(std::uintptr_t pc, unsigned warp, bool is_read) {
  if (table_.size() < 4 * (codes_.size() + 1)) {
    table_.assign(std::max<std::size_t>(1024, 2 * table_.size()), 0);
    const std::vector<Code> old = std::move(codes_);
    codes_.clear();
    for (const Code& code : old) {
      Code& again = find(code.pc, code.warp, code.is_read);
      again = code;
    }
  }
  const std::size_t mask = table_.size() - 1;
  std::size_t at =
      ((pc ^ warp << 20 ^ std::uintptr_t{is_read} << 30) * 0x9e3779b97f4a7c15u >> 32) & mask;
  for (; table_[at] != 0; at = (at + 1) & mask)
    if (Code& code = codes_[table_[at] - 1];
        code.pc == pc && code.warp == warp && code.is_read == is_read)
      return code;
  codes_.push_back({.pc = pc, .warp = warp, .is_read = is_read});
  table_[at] = static_cast<std::uint32_t>(codes_.size());
  return codes_.back();
}

void WarpAccesses::add(unsigned thread, const Touch& touch, const void* from) {
  if (touch.bytes > 16) return;  // the emulator's own, not a lane's
  Code& code = find(touch.pc, thread / 32, touch.kind == AccessKind::kRead);
  const unsigned lane = thread % 32;
  const std::uint32_t number = code.times[lane]++;
  if (number >= kMostRequests) return count_alone(touch);
  if (code.requests.size() <= number) code.requests.resize(number + 1);
  Request& request = code.requests[number];
  if (request.lanes == 0) {
    request.place = touch.place;
    request.is_read = touch.kind == AccessKind::kRead;
    request.bytes = static_cast<std::uint8_t>(touch.bytes);
  }
  // Two accesses, one after the other.
  if (request.place.shadow != touch.place.shadow) return count_alone(touch);
  request.address[lane] =
      static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(touch.address));
  request.line[lane] = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from) / kLine);
  request.lanes |= std::uint32_t{1} << lane;
}

void WarpAccesses::count_alone(const Touch& touch) {
  if (!touch.place.is_global) {
    ++SharedMemory::accesses.wavefronts, ++SharedMemory::accesses.conflicts;
    return;
  }
  Traffic& traffic = touch.place.shadow->traffic;
  const bool is_read = touch.kind == AccessKind::kRead;
  Pieces sectors;
  sectors.add(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(touch.address)),
              static_cast<unsigned>(touch.bytes), kSector);
  ++(is_read ? traffic.load_requests : traffic.store_requests);
  (is_read ? traffic.load_sectors : traffic.store_sectors) += sectors.keep_each_once();
}

void WarpAccesses::count_all(unsigned threads) {
  Counts* const lines = Counts::wanted();
  for (Code& code : codes_) {
    const unsigned first = code.warp * 32, lanes = std::min(32u, threads - first);
    for (const Request& request : code.requests) {
      Counted counted = count(request);
      counted.partial = counted.lanes < lanes;
      if (request.place.is_global) {
        Traffic& traffic = request.place.shadow->traffic;
        ++(request.is_read ? traffic.load_requests : traffic.store_requests);
        (request.is_read ? traffic.load_sectors : traffic.store_sectors) += counted.sectors;
      } else {
        SharedMemory::accesses.wavefronts += counted.wavefronts;
        SharedMemory::accesses.conflicts += counted.wavefronts - counted.least;
      }
      if (lines == nullptr) continue;
      const Place& place = request.place;
      const auto begin = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(place.begin));
      std::array<std::uint32_t, 32> offsets{};
      for (unsigned lane = 0; lane < 32; ++lane) offsets[lane] = request.address[lane] - begin;
      lines->add(code.pc, request.is_read ? "load" : "store",
                 place.is_global ? place.begin : nullptr, request.bytes, counted, offsets,
                 request.lanes);
    }
    code.requests.clear();
    code.times = {};
  }
}

Counted WarpAccesses::count(const Request& request) {
  if (!request.place.is_global) return count_shared(request);
  Pieces sectors, bytes;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (request.has(lane)) {
      sectors.add(request.address[lane], request.bytes, kSector);
      bytes.add(request.address[lane], request.bytes, request.bytes);
    }
  return {.requests = 1,
          .lanes = static_cast<unsigned>(std::popcount(request.lanes)),
          .bytes = std::uint64_t{bytes.keep_each_once()} * request.bytes,
          .sectors = sectors.keep_each_once()};
}

// 32 lanes want at most 128 bytes at a time: of 8 bytes a lane half of the warp, of 16 a quarter.
// Two such parts of a load go together if in both of them each lane and its neighbour, or each lane
// and the one after next, want the same or nothing. cp.async writes what comes from different lines
// of 128 bytes one after the other. `./lab counts` compares this with a GPU.
Counted WarpAccesses::count_shared(const Request& request) {
  const unsigned part = request.bytes <= 4 ? 32 : request.bytes <= 8 ? 16 : 8;
  const auto go_together = [&](unsigned first, unsigned other) {
    for (unsigned lane = first; lane < first + 2 * part; ++lane)
      if (request.has(lane) && request.has(lane ^ other) &&
          request.address[lane] != request.address[lane ^ other])
        return false;
    return true;
  };
  Counted sum{.requests = 1, .lanes = static_cast<unsigned>(std::popcount(request.lanes))};
  const auto take = [&](auto is_taken) {
    Pieces words;
    for (unsigned lane = 0; lane < 32; ++lane)
      if (request.has(lane) && is_taken(lane))
        words.add(request.address[lane], request.bytes, kWord);
    if (words.keep_each_once() == 0) return;
    std::array<unsigned, kBanks> wanted{};
    for (const std::uint32_t word : words) ++wanted[word % kBanks];
    sum.wavefronts += *std::max_element(wanted.begin(), wanted.end());
    ++sum.least;
  };
  std::set<std::uint32_t> lines;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (request.has(lane)) lines.insert(request.line[lane]);
  for (const std::uint32_t line : lines)
    if (line != 0) take([&](unsigned lane) { return request.line[lane] == line; });
  for (unsigned first = 0, lanes; first < 32 && *lines.begin() == 0; first += lanes) {
    const bool may_go_together = request.is_read && part < 32 && first % (2 * part) == 0;
    lanes = may_go_together && (go_together(first, 1) || go_together(first, 2)) ? 2 * part : part;
    take([&](unsigned lane) {
      return request.line[lane] == 0 && lane >= first && lane < first + lanes;
    });
  }
  return sum;
}

}  // namespace flash::simt
