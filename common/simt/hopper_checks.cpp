// The part of checker.hpp that only kernels for Hopper need: clocks of all threads of a block,
// agents, proxies, registers in flight.
#include <algorithm>

#include "common/simt/checker.hpp"
#include "common/simt/device_memory.hpp"
#include "common/simt/launch.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/warpgroup.hpp"
#include "common/simt/worker.hpp"

namespace flash::simt {

using enum FindingKind;

// ---- clocks -------------------------------------------------------------------------------------

// Times of earlier blocks are left in the rows: they are before all accesses of this block.
void Checker::widen() {
  if (is_wide_) return;
  is_wide_ = true;
  if (!wide_) wide_ = LazyArray<std::uint32_t>(std::size_t{kMostThreads} * kMostActors);
  for (unsigned thread = 0; thread < threads_; ++thread)
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      std::uint32_t& known = row(thread)[thread / kWarpSize * kWarpSize + lane];
      known = std::max(known, known_[thread][lane]);
    }
}

// At a __syncthreads(): what one thread knows of the agents all know then.
void Checker::share_agents() {
  for (unsigned agent = kFirstAgent; agent < kFirstAgent + agents_.size(); ++agent) {
    std::uint32_t known = 0;
    for (unsigned thread = 0; thread < threads_; ++thread)
      known = std::max(known, row(thread)[agent]);
    for (unsigned thread = 0; thread < threads_; ++thread) row(thread)[agent] = known;
  }
}

// At a __syncwarp().
void Checker::share_rows(unsigned first, std::uint32_t lanes, std::uint32_t time) {
  std::vector<std::uint32_t> known(kMostActors);
  const auto for_each_member = [&](auto use) {
    for (unsigned lane = 0; lane < kWarpSize; ++lane)
      if (lanes >> lane & 1) use(first + lane);
  };
  for_each_member([&](unsigned member) {
    const std::uint32_t* const its = row(member);
    for_each_actor([&](unsigned actor) { known[actor] = std::max(known[actor], its[actor]); });
  });
  for_each_member([&](unsigned member) { known[member] = time; });
  for_each_member([&](unsigned member) {
    std::uint32_t* const its = row(member);
    for_each_actor([&](unsigned actor) { its[actor] = known[actor]; });
  });
}

std::uint32_t Checker::now() {
  widen();
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
  widen();
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
  widen();
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
  Place place;
  if (!find_place(begin, bytes, place)) return outside(begin, bytes, kind, step.pc);
  check_bytes(place, begin, bytes, kind, step.pc, agent(step.agent).what);
  const Access me{.time = step.time,
                  .pc = static_cast<std::uint32_t>(step.pc - module_base_),
                  .thread = static_cast<std::uint16_t>(step.agent)};
  const auto conflicts = [&](const Cell& cell, int slot) {
    return !ordered_before(step, cell.time[slot], cell.who[slot] & 0x7fff, place.is_global);
  };
  const auto [first, end] =
      place.shadow->cells.of(static_cast<std::size_t>(begin - place.begin), bytes);
  for (Cell* cell = first; cell != end; ++cell) {
    if (conflicts(*cell, Cell::kWriter))
      conflict_with(*cell, Cell::kWriter, place, begin, bytes, kind, step.pc, &step);
    else
      check_proxy(step, *cell, place, begin, bytes, kind);
    if (kind != Kind::kRead) {
      for (const int reader : {Cell::kReader, Cell::kOtherReader})
        if (conflicts(*cell, reader))
          conflict_with(*cell, reader, place, begin, bytes, kind, step.pc, &step);
      cell->set(Cell::kWriter, me);
      continue;
    }
    const auto mine_or_ordered = [&](int slot) {
      return (cell->who[slot] == me.thread && cell->time[slot] >= block_start_) ||
             !conflicts(*cell, slot);
    };
    cell->set(mine_or_ordered(Cell::kReader) ? Cell::kReader : Cell::kOtherReader, me);
  }
}

void Checker::async_write_starts(const AsyncStep& step, const void* address, std::size_t bytes) {
  async_access(step, address, bytes, Kind::kWrite);
  Place place;
  const auto* const begin = static_cast<const char*>(address);
  if (find_place(begin, bytes, place))
    place.shadow->initialized.remove(static_cast<std::size_t>(begin - place.begin), bytes);
}

void Checker::async_write_ends(const void* address, std::size_t bytes) {
  Place place;
  const auto* const begin = static_cast<const char*>(address);
  if (find_place(begin, bytes, place))
    place.shadow->initialized.insert(static_cast<std::size_t>(begin - place.begin), bytes);
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
void Checker::check_proxy(const AsyncStep& step, const Cell& cell, const Place& place,
                          const char* address, std::size_t bytes, Kind kind) {
  const Access write = cell.get(Cell::kWriter);
  if (place.is_global || write.thread >= kMostThreads || write.time < block_start_) return;
  const std::vector<std::uint32_t>& fences = proxy_fences_[write.thread];
  const auto fence = std::upper_bound(fences.begin(), fences.end(), write.time);
  if (fence != fences.end() && ordered_before(step, *fence, write.thread, false)) return;
  if (!is_new(kFence, step.pc, write.pc)) return;
  const Module& module = worker_.launch().module;
  const Location where = locate(module, step.pc), before = locate(module, module_base_ + write.pc);
  found(
      kFence, where, before,
      text_of(" between ", place_text(before), " and ", place_text(where), "\n",
              actor_text(write.thread, write.time), " wrote ", address_text(place, address, bytes),
              " at ", place_text(before), ", and ", agent(step.agent).what,
              kind == Kind::kRead ? " reads" : " overwrites", " it at ", place_text(where),
              ". The thread that wrote calls fence_proxy_async() first, and then a barrier tells "
              "of it."));
}

// ---- registers ----------------------------------------------------------------------------------

void RegisterWatch::fence() {
  has_fenced_ = true;
  for (RegisterRange& range : ranges_) range.touched = 0;
}

void RegisterWatch::end_products(std::uint64_t last) {
  for (RegisterRange& range : ranges_)
    if (range.last_product <= last) range.in_flight = false;
}

RegisterRange& RegisterWatch::use(const char* begin, std::size_t bytes, bool is_d) {
  for (RegisterRange& range : ranges_)
    if (range.begin == begin && range.end == begin + bytes && range.is_d == is_d) return range;
  std::erase_if(ranges_, [&](const RegisterRange& range) { return range.overlaps(begin, bytes); });
  return ranges_.emplace_back(RegisterRange{begin, begin + bytes, is_d});
}

void Checker::check_registers(const char* begin, std::size_t bytes, bool is_write,
                              std::uintptr_t pc) {
  for (RegisterRange& range : registers_[thread_].ranges()) {
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
  if (!watch.has_fenced() || range.touched != 0) {
    const Module& module = worker_.launch().module;
    const Location where = locate(module, pc);
    if (is_new(kFence, pc, 0))
      found(kFence, where, {},
            text_of(" at ", place_text(where), "\n", worker_.describe(thread),
                    range.touched == 0
                        ? " calls wgmma() before its first wgmma_fence()."
                        : text_of(" accessed registers of ", is_d ? "D" : "A",
                                  " of this wgmma() at ", place_text(locate(module, range.touched)),
                                  ", and has not called wgmma_fence() since.")));
  }
  range.last_product = product;
  range.in_flight = true;
  range.pc = pc;
}

}  // namespace flash::simt
