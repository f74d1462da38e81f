#include "emulator/hopper/warpgroup.hpp"

#include <algorithm>

#include "emulator/check/checker.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;
namespace {

constexpr int kRegisters = 65536;  // of a multiprocessor

}  // namespace

// ---- meetings -----------------------------------------------------------------------------------

unsigned Meetings::first() const {
  return worker_.thread_number() / kWarpgroupSize * kWarpgroupSize;
}

Meetings::Meeting& Meetings::mine() { return meetings_[first() / kWarpgroupSize]; }

bool Meetings::come(const char* what, Site site) {
  Meeting& meeting = mine();
  if (first() + kWarpgroupSize > worker_.threads())
    worker_.fail_at(kWarpgroupMismatch, site, what,
                    " needs the 128 threads of a warpgroup; the last one of this block has ",
                    worker_.threads() - first(), ".");
  if (meeting.arrived.none()) {
    meeting.what = what;
    meeting.site = site;
  } else if (meeting.what != what || !same_site(meeting.site, site)) {
    worker_.fail(kWarpgroupMismatch, location_of(site),
                 text_of(worker_.describe(), " calls ", what, " at ", place_text(location_of(site)),
                         "; threads of its warpgroup wait in ", meeting.what, " at ",
                         place_text(location_of(meeting.site)), "."));
  }
  meeting.arrived.set(worker_.thread_number() - first());
  if (meeting.arrived.all()) return true;
  worker_.sleep(what, site);
  return false;
}

void Meetings::release() {
  Meeting& meeting = mine();
  for (unsigned i = 0; i < kWarpgroupSize; ++i)
    if (first() + i != worker_.thread_number()) worker_.wake(first() + i);
  meeting.arrived.reset();
}

bool Meetings::is_stuck(Site& site) const {
  for (unsigned warpgroup = 0; warpgroup < kMostWarpgroups; ++warpgroup) {
    const Meeting& meeting = meetings_[warpgroup];
    if (meeting.arrived.none()) continue;
    for (unsigned i = 0; i < kWarpgroupSize; ++i)
      if (!meeting.arrived[i] && !worker_.is_asleep(warpgroup * kWarpgroupSize + i)) {
        site = meeting.site;
        return true;
      }
  }
  return false;
}

// ---- named barriers -----------------------------------------------------------------------------

void NamedBarriers::come(const char* name, int id, int threads, bool waits, Site site) {
  const auto wrong = [&](const auto&... text) {
    worker_.fail_at(kWrongArgument, site, name, ": ", text..., ".");
  };
  if (id < 1 || id > 15)
    wrong("the barrier's number is ", id, "; it must be 1 to 15 (0 is __syncthreads())");
  if (threads < 1 || threads % 32 != 0 || static_cast<unsigned>(threads) > worker_.threads())
    wrong("barrier ", id, " is to have ", threads,
          " threads; it must be a multiple of 32, and at most the block's ", worker_.threads());
  NamedBarrier& barrier = barriers_[static_cast<unsigned>(id)];
  if (barrier.arrived == 0) {
    barrier.threads = threads;
    barrier.site = site;
  } else if (barrier.threads != threads) {
    wrong("barrier ", id, " has ", threads, " threads here, and ", barrier.threads,
          " for those that have come at ", place_text(location_of(barrier.site)));
  }
  Checker* const checker = Checker::of(worker_);
  if (checker != nullptr) checker->clocks().release(barrier.clock);
  const unsigned self = worker_.thread_number();
  if (waits) barrier.waiting.push_back(self);
  if (++barrier.arrived < barrier.threads) {
    if (waits) worker_.sleep(name, site);
    return;
  }
  if (checker != nullptr) checker->some_have_met();
  for (const unsigned thread : barrier.waiting) {
    if (checker != nullptr) checker->clocks().acquire(thread, barrier.clock);
    if (thread != self) worker_.wake(thread);
  }
  barrier = {};
}

std::string NamedBarriers::what_is_missing() const {
  std::string text;
  for (std::size_t id = 1; id < barriers_.size(); ++id)
    if (const NamedBarrier& barrier = barriers_[id]; !barrier.waiting.empty())
      text += text_of("Barrier ", id, ": ", barrier.threads - barrier.arrived, " of ",
                      barrier.threads, " threads are missing.\n");
  return text;
}

// ---- registers ----------------------------------------------------------------------------------

RegisterPool::RegisterPool(Worker& worker, Meetings& meetings)
    : worker_(worker), meetings_(meetings) {
  held_.fill(std::min(kRegisters / static_cast<int>(worker_.threads()) / 8 * 8, 256));
}

void RegisterPool::set(int count, bool takes, Site site) {
  if (!meetings_.come(takes ? "take_registers" : "give_registers", site)) return;
  int& held = held_[meetings_.first() / kWarpgroupSize];
  if (takes ? count < held : count > held)
    worker_.fail_at(kWrongArgument, site, takes ? "take_registers" : "give_registers", "<", count,
                    ">: each thread has ", held, " registers, which is ", takes ? "more" : "fewer",
                    ".");
  held = count;
  if (takes) taken_at_ = site;
  meetings_.release();
}

// Threads do not wait for registers here. If the block holds too many at its end, some thread would
// wait for ever on a GPU.
void RegisterPool::block_ends() {
  if (taken_at_.file == nullptr) return;
  int all = 0;
  for (unsigned thread = 0; thread < worker_.threads(); ++thread)
    all += held_[thread / kWarpgroupSize];
  if (all > kRegisters)
    worker_.fail(kDeadlock, location_of(taken_at_),
                 text_of("The threads of ", worker_.describe_block(worker_.block_number()),
                         " take ", all, " registers in all, and a multiprocessor has ", kRegisters,
                         ": on a GPU some wait for ever."));
}

}  // namespace flash::simt
