#include "emulator/run/warps.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/run/counts.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;

void Warps::start_block(unsigned threads) {
  for (unsigned number = 0; number * kWarpSize < threads; ++number) {
    const unsigned lanes = std::min(kWarpSize, threads - number * kWarpSize);
    Warp& warp = warps_[number];
    warp.alive = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
    warp.groups.clear();
    warp.synced_lanes = 0;
  }
}

void Warps::come(const WarpCall& call) {
  const unsigned thread = worker_.thread_number();
  const unsigned number = thread / kWarpSize, lane = thread % kWarpSize;
  Warp& warp = warps_[number];
  if ((call.mask >> lane & 1) == 0)
    worker_.fail_in(thread, kWarpMismatch, call.site,
                    text_of(call.name, ": lane ", lane, " calls it with ", mask_text(call.mask),
                            ", which does not name the lane itself.\n", worker_.describe()));
  std::size_t group = 0;
  while (group < warp.groups.size()) {
    const WarpCall& other = warp.groups[group].call;
    // As in PTX: the same operation on the same mask; only matrix instructions have to be the same
    // instruction (.aligned).
    if (other.mask == call.mask && other.complete == call.complete &&
        (other.name == call.name || std::strcmp(other.name, call.name) == 0) &&
        (!call.whole_warp || same_site(other.site, call.site)))
      break;
    ++group;
  }
  if (group == warp.groups.size()) warp.groups.push_back({call, 0});
  warp.groups[group].arrived |= 1u << lane;
  warp.slots[lane] = call.slot;
  worker_.start_waiting(Waiting::kInWarpOperation, call.name, call.site, call.mask);
  complete_if_all_there(number, group);
  if (worker_.is_waiting(thread)) worker_.suspend();
}

void Warps::complete_if_all_there(unsigned number, std::size_t index) {
  Warp& warp = warps_[number];
  const Group& group = warp.groups[index];
  if ((group.call.mask & warp.alive) != group.arrived) return;
  const WarpCall call = group.call;
  const std::uint32_t present = group.arrived;
  if (call.whole_warp && present != ~0u)
    worker_.fail_in(
        number * kWarpSize + unsigned(std::countr_zero(present)), kWarpMismatch, call.site,
        text_of(call.name, " needs all 32 lanes of a warp.\n", worker_.waiting_threads()));
  void* slots[kWarpSize] = {};
  for (std::uint32_t rest = present; rest != 0; rest &= rest - 1) {
    const unsigned lane = unsigned(std::countr_zero(rest));
    slots[lane] = warp.slots[lane];
    worker_.wake(number * kWarpSize + lane);
  }
  warp.groups.erase(warp.groups.begin() + static_cast<std::ptrdiff_t>(index));
  if (Counts* const counts = Counts::wanted(); counts != nullptr && worker_.checks() != nullptr)
    counts->add(call.site, call.name,
                {.requests = 1, .lanes = static_cast<std::uint64_t>(std::popcount(present))});
  Checks* const checks = worker_.checks();
  if (checks != nullptr) checks->lanes_meet(number, present);
  if (call.orders_memory) {
    warp.synced = call.site;
    warp.synced_lanes = present;
    if (checks != nullptr) checks->warp_sync(number, present);
  }
  if (call.complete != nullptr) call.complete(slots, present);
}

void Warps::thread_returns(unsigned thread) {
  const unsigned number = thread / kWarpSize;
  warps_[number].alive &= ~(1u << thread % kWarpSize);
  for (std::size_t group = warps_[number].groups.size(); group-- > 0;)
    complete_if_all_there(number, group);
}

void Warps::barrier() {
  for (Warp& warp : warps_) warp.synced_lanes = 0;
}

const Site* Warps::last_sync(unsigned a, unsigned b) const {
  const Warp& warp = warps_[a / kWarpSize];
  const auto took_part = [&warp](unsigned thread) {
    return (warp.synced_lanes >> thread % kWarpSize & 1) != 0;
  };
  return a / kWarpSize == b / kWarpSize && took_part(a) && took_part(b) ? &warp.synced : nullptr;
}

}  // namespace flash::simt
