// The part of checker.hpp that only kernels for Hopper need: clocks of all threads of a block,
// agents, proxies, registers in flight.
#include <algorithm>

#include "emulator/check/checker.hpp"
#include "emulator/run/device_memory.hpp"
#include "emulator/run/launch.hpp"
#include "emulator/run/shared_memory.hpp"
#include "emulator/hopper/warpgroup.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;

// ---- clocks -------------------------------------------------------------------------------------

std::uint32_t Checker::now() {
  is_wide_ = true;
  return clock_[thread_] = tick();
}

void Checker::release(SyncClock& clock) {
  const std::uint32_t time = now();
  clock.times.resize(kMostActors);
  const std::uint32_t* const mine = row(thread_);
  for_each_actor(
      [&](unsigned actor) { clock.times[actor] = std::max(clock.times[actor], mine[actor]); });
  clock.times[thread_] = time;
  if (const auto told = acquired_.find(thread_); told != acquired_.end())
    clock.told.merge(told->second);
}

void Checker::acquire(unsigned thread, const SyncClock& clock) {
  if (clock.times.empty()) return;
  std::uint32_t* const its = row(thread);
  for_each_actor([&](unsigned actor) { its[actor] = std::max(its[actor], clock.times[actor]); });
  if (!clock.told.empty()) acquired_[thread].merge(clock.told);
}

unsigned Checker::new_agent(const char* what) {
  is_wide_ = true;
  if (kFirstAgent + agents_.size() < kMostActors) agents_.push_back({what, thread_});
  return kFirstAgent + static_cast<unsigned>(agents_.size()) - 1;
}

void Checker::learn(unsigned thread, unsigned agent, std::uint32_t time) {
  row(thread)[agent] = std::max(row(thread)[agent], time + 1);
}

void Checker::learn(SyncClock& clock, unsigned agent, std::uint32_t time) {
  clock.times.resize(kMostActors);
  clock.times[agent] = std::max(clock.times[agent], time + 1);
}

// ---- agents -------------------------------------------------------------------------------------

Checker::AsyncStep Checker::async_step(unsigned number, bool by_warpgroup, std::uintptr_t pc) {
  AsyncStep step{number, tick(), pc, by_warpgroup ? kNobody : thread_, {}};
  agent(number).thread = thread_;
  if (!by_warpgroup) {
    step.known.assign(row(thread_), row(thread_) + kMostActors);
    return step;
  }
  // What all of its threads know, where each knows of itself everything.
  const unsigned first = thread_ / kWarpgroupSize * kWarpgroupSize;
  std::array<std::uint32_t, kWarpgroupSize> of_itself;
  for (unsigned i = 0; i < kWarpgroupSize; ++i)
    of_itself[i] = std::exchange(row(first + i)[first + i], ~0u);
  step.known.assign(row(first), row(first) + kMostActors);
  for (unsigned i = 1; i < kWarpgroupSize; ++i) {
    const std::uint32_t* const its = row(first + i);
    for_each_actor(
        [&](unsigned actor) { step.known[actor] = std::min(step.known[actor], its[actor]); });
  }
  for (unsigned i = 0; i < kWarpgroupSize; ++i) row(first + i)[first + i] = of_itself[i];
  return step;
}

bool Checker::ordered_before(const AsyncStep& step, std::uint32_t time, unsigned actor,
                             bool is_global) const {
  if (time < block_start_) return !is_global || time < launch_start_ || released_to_me(time, actor);
  if (actor < kMostThreads && (time < barrier_time_ || actor == step.thread)) return true;
  return time < step.known[actor];
}

void Checker::async_access(const AsyncStep& step, const void* address, std::size_t bytes,
                           Kind kind) {
  constexpr std::size_t kPiece = 64;  // what the shadow looks up at once
  const auto* begin = static_cast<const char*>(address);
  for (; bytes > kPiece; begin += kPiece, bytes -= kPiece) async_access(step, begin, kPiece, kind);
  Touch touch{begin, bytes, kind, step.pc, &step};
  if (!find_place(touch)) return outside(touch);
  check(touch);
}

void Checker::async_write_starts(const AsyncStep& step, const void* address, std::size_t bytes) {
  async_access(step, address, bytes, Kind::kWrite);
  Touch touch{static_cast<const char*>(address), bytes, Kind::kWrite, step.pc, &step};
  if (find_place(touch)) touch.place.shadow->initialized.remove(touch.offset(), bytes);
}

void Checker::async_write_ends(const void* address, std::size_t bytes) {
  Touch touch{static_cast<const char*>(address), bytes, Kind::kWrite, 0};
  if (find_place(touch)) touch.place.shadow->initialized.insert(touch.offset(), bytes);
}

void Checker::access_by_emulator(const void* address, std::size_t bytes, bool is_write,
                                 std::uintptr_t pc) {
  counts_ = false;
  access(address, bytes, is_write, pc);
  counts_ = true;
}

// ---- proxies ------------------------------------------------------------------------------------

void Checker::proxy_fence() { proxy_fences_[thread_].push_back(now()); }

// What a thread wrote to shared memory, an agent sees after a fence_proxy_async() by that thread
// that is ordered before the agent's access.
void Checker::check_proxy(const Cell& cell, const Touch& touch) {
  const Access write = cell.get(Cell::kWriter);
  if (touch.place.is_global || write.thread >= kMostThreads || write.time < block_start_) return;
  const std::vector<std::uint32_t>& fences = proxy_fences_[write.thread];
  const auto fence = std::upper_bound(fences.begin(), fences.end(), write.time);
  if (fence != fences.end() && ordered_before(*touch.step, *fence, write.thread, false)) return;
  found(kFence, touch.pc, write.pc, [&](const std::string& where, const std::string& before) {
    return text_of(actor_text(write.thread, write.time), " wrote ", address_text(touch), " at ",
                   before, ", and ", agent(touch.step->agent).what,
                   touch.kind == Kind::kRead ? " reads" : " overwrites", " it at ", where,
                   ". The thread that wrote calls fence_proxy_async() first, and then a barrier "
                   "tells of it.");
  });
}

// ---- registers ----------------------------------------------------------------------------------

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
  return ranges.emplace_back(RegisterRange{begin, begin + bytes, is_d});
}

void Checker::check_registers(const char* begin, std::size_t bytes, bool is_write,
                              std::uintptr_t pc) {
  for (RegisterRange& range : registers_[thread_].ranges) {
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
