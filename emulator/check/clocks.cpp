#include "emulator/check/clocks.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace flash::simt {

std::uint32_t Clocks::time_ = 1;

std::uint32_t Clocks::tick() {
  if (++time_ != 0) return time_;
  std::fputs(
      "the emulator's checks ended the program after 2^32 synchronizations: they cannot count "
      "more\n",
      stderr);
  std::abort();
}

void Clocks::start_launch() {
  launch_start_ = time_ + 1;
  releases_.start_launch();
  blocks_.clear();
}

void Clocks::start_block(unsigned threads, std::uint64_t number) {
  threads_ = threads;
  block_start_ = barrier_time_ = tick();
  blocks_.push_back({block_start_, number});
  releases_.start_block();
  if (std::exchange(has_fences_, false)) fenced_ = fenced_at_barrier_ = {};
  if (!is_wide_) return;
  for (auto& fences : proxy_fences_) fences.clear();
  agents_.clear();
  is_wide_ = false;
}

// ---- threads ------------------------------------------------------------------------------------

void Clocks::barrier() {
  barrier_time_ = tick();
  releases_.barrier();
  if (has_fences_) fenced_at_barrier_ = fenced_;
  // What one thread knows of the agents all know now.
  for (unsigned agent = kFirstAgent; agent < kFirstAgent + agents_.size(); ++agent) {
    std::uint32_t known = 0;
    for (unsigned thread = 0; thread < threads_; ++thread)
      known = std::max(known, row(thread)[agent]);
    for (unsigned thread = 0; thread < threads_; ++thread) row(thread)[agent] = known;
  }
}

void Clocks::warp_sync(unsigned warp, std::uint32_t lanes) {
  const std::uint32_t now = tick();
  std::array<std::uint32_t, kMostActors> known;
  const unsigned first = warp * kWarpSize;
  for_each_known(first, [&](unsigned actor) { known[actor] = 0; });
  for_each_lane(lanes, [&](unsigned lane) {
    const std::uint32_t* const its = row(first + lane);
    for_each_known(first,
                   [&](unsigned actor) { known[actor] = std::max(known[actor], its[actor]); });
  });
  for_each_lane(lanes, [&](unsigned lane) { known[first + lane] = now; });
  for_each_lane(lanes, [&](unsigned lane) {
    std::uint32_t* const its = row(first + lane);
    for_each_known(first, [&](unsigned actor) { its[actor] = known[actor]; });
    clock_[first + lane] = now;
  });
  releases_.warp_sync(first, lanes);
}

void Clocks::fence() {
  has_fences_ = true;
  for_each_known(thread_ / kWarpSize * kWarpSize, [&](unsigned actor) {
    if (actor < kMostThreads)
      fenced_.of_each[actor] = std::max(fenced_.of_each[actor], known_to_me_[actor]);
  });
  fenced_.of_each[thread_] = clock_[thread_] = tick();
  fenced_.of_all = barrier_of_fence_[thread_] = barrier_time_;
  releases_.fence(thread_, clock_[thread_]);
}

// Learns what was published at `address`, and publishes what the thread's last fence covers, and
// what those of other threads did before the last barrier.
void Clocks::synchronize(const void* address, bool is_global) {
  releases_.learn(thread_, address, is_global);
  const std::uint32_t fenced = releases_.last_fence(thread_);
  if (fenced == 0) return;
  const std::uint32_t of_all = std::max(barrier_of_fence_[thread_], fenced_at_barrier_.of_all);
  const unsigned first = thread_ / kWarpSize * kWarpSize;
  Knowledge mine;
  for_each_actor([&](unsigned actor) {
    std::uint32_t time = actor == thread_                                     ? fenced
                         : is_wide_ || actor / kWarpSize * kWarpSize == first ? known_to_me_[actor]
                                                                              : 0;
    if (time > fenced) time = 0;
    if (actor < kMostThreads) time = std::max(time, fenced_at_barrier_.of_each[actor]);
    if (time > std::max(block_start_, actor < kMostThreads ? of_all : 0))
      mine.append(block_start_, actor, time);
  });
  mine.append(block_start_, Knowledge::kAllThreads, of_all);
  Knowledge& told = releases_.at(address, is_global);
  told.merge(mine);
  releases_.add_learned(thread_, true, told);
}

std::uint32_t Clocks::now() {
  is_wide_ = true;
  return clock_[thread_] = tick();
}

void Clocks::release(SyncClock& clock) {
  const std::uint32_t time = now();
  clock.times.resize(kMostActors);
  for_each_actor([&](unsigned actor) {
    clock.times[actor] = std::max(clock.times[actor], known_to_me_[actor]);
  });
  clock.times[thread_] = time;
  releases_.add_learned(thread_, false, clock.told);
}

void Clocks::acquire(unsigned thread, const SyncClock& clock) {
  if (clock.times.empty()) return;
  std::uint32_t* const its = row(thread);
  for_each_actor([&](unsigned actor) { its[actor] = std::max(its[actor], clock.times[actor]); });
  releases_.learn(thread, clock.told);
}

// ---- agents -------------------------------------------------------------------------------------

unsigned Clocks::new_agent(const char* what) {
  is_wide_ = true;
  if (kFirstAgent + agents_.size() < kMostActors) agents_.push_back({what, thread_});
  return kFirstAgent + static_cast<unsigned>(agents_.size()) - 1;
}

void Clocks::learn(unsigned thread, unsigned agent, std::uint32_t time) {
  row(thread)[agent] = std::max(row(thread)[agent], time + 1);
}

void Clocks::learn(SyncClock& clock, unsigned agent, std::uint32_t time) {
  clock.times.resize(kMostActors);
  clock.times[agent] = std::max(clock.times[agent], time + 1);
}

AsyncStep Clocks::async_step(unsigned number, bool by_warpgroup, std::uintptr_t pc) {
  AsyncStep step{number, tick(), pc, by_warpgroup ? AsyncStep::kNobody : thread_, {}};
  agents_[number - kFirstAgent].thread = thread_;
  if (!by_warpgroup) {
    step.known.assign(known_to_me_, known_to_me_ + kMostActors);
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

bool Clocks::is_fenced(unsigned thread, std::uint32_t time, const AsyncStep& step) const {
  const std::vector<std::uint32_t>& fences = proxy_fences_[thread];
  const auto fence = std::upper_bound(fences.begin(), fences.end(), time);
  return fence != fences.end() && before(step, *fence, thread, false);
}

// ---- order --------------------------------------------------------------------------------------

const Clocks::Started& Clocks::started_at(std::uint32_t time) const {
  return *std::prev(
      std::upper_bound(blocks_.begin(), blocks_.end(), time,
                       [](std::uint32_t at, const Started& block) { return at < block.time; }));
}

bool Clocks::told_to_me(std::uint32_t time, unsigned actor) const {
  return time < launch_start_ || releases_.covers(thread_, started_at(time).time, actor, time);
}

bool Clocks::before(const AsyncStep& step, std::uint32_t time, unsigned actor,
                    bool is_global) const {
  if (time < block_start_) return !is_global || time < launch_start_ || released_to_me(time, actor);
  if (actor < kMostThreads && (time < barrier_time_ || actor == step.thread)) return true;
  return time < step.known[actor];
}

}  // namespace flash::simt
