// Implements warpgroup.hpp.
#include "common/simt/warpgroup.hpp"

#include <algorithm>

#include "common/simt/checker.hpp"
#include "common/simt/worker.hpp"

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
    worker_.fail(kWarpgroupMismatch, location_of(site),
                 text_of(what,
                         " needs the 128 threads of a warpgroup; the last one of this block "
                         "has ",
                         worker_.threads() - first(), ".\n", worker_.describe()));
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

bool NamedBarriers::come(const NamedBarrierCall& call) {
  const Location where = location_of(call.site);
  if (call.id < 1 || call.id > 15)
    worker_.fail(kWrongArgument, where,
                 text_of(call.name, ": the barrier's number is ", call.id,
                         "; it must be 1 to 15 (0 is __syncthreads()).\n", worker_.describe()));
  if (call.threads < 1 || call.threads % 32 != 0 ||
      static_cast<unsigned>(call.threads) > worker_.threads())
    worker_.fail(kWrongArgument, where,
                 text_of(call.name, ": barrier ", call.id, " is to have ", call.threads,
                         " threads; it must be a multiple of 32, and at most the block's ",
                         worker_.threads(), ".\n", worker_.describe()));
  NamedBarrier& barrier = barriers_[static_cast<unsigned>(call.id)];
  if (barrier.arrived == 0) {
    barrier.threads = call.threads;
    barrier.site = call.site;
  } else if (barrier.threads != call.threads) {
    worker_.fail(kWrongArgument, where,
                 text_of(call.name, ": barrier ", call.id, " has ", call.threads,
                         " threads here, and ", barrier.threads, " for those that have come at ",
                         place_text(location_of(barrier.site)), ".\n", worker_.describe()));
  }
  Checker* const checker = worker_.checker();
  if (checker != nullptr) checker->release(barrier.clock);
  barrier.any |= call.predicate;
  if (++barrier.arrived == barrier.threads) {
    const bool any = barrier.any;
    for (const unsigned thread : barrier.waiting) {
      result_[thread] = any;
      if (checker != nullptr) checker->acquire(thread, barrier.clock);
      worker_.wake(thread);
    }
    if (call.waits && checker != nullptr) checker->acquire(worker_.thread_number(), barrier.clock);
    barrier = {};
    return any;
  }
  if (!call.waits) return false;
  barrier.waiting.push_back(worker_.thread_number());
  worker_.sleep(call.name, call.site);
  return result_[worker_.thread_number()];
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

// At the start all registers are shared out evenly, in steps of 8.
void RegisterPool::start_block() {
  const int threads = static_cast<int>(worker_.threads());
  const int each = std::min(kRegisters / threads / 8 * 8, 256);
  held_.fill(each);
  wanted_.fill(0);
  free_ = kRegisters - threads * each;
}

void RegisterPool::set(int count, bool takes, Site site) {
  if (!meetings_.come(takes ? "take_registers" : "give_registers", site)) return;
  const unsigned warpgroup = meetings_.first() / kWarpgroupSize;
  int& held = held_[warpgroup];
  if (takes ? count < held : count > held)
    worker_.fail(kWrongArgument, location_of(site),
                 text_of(takes ? "take_registers" : "give_registers", "<", count,
                         ">: each thread has ", held, " registers, which is ",
                         takes ? "more" : "fewer", ".\n", worker_.describe()));
  if (!takes) {
    free_ += (held - count) * static_cast<int>(kWarpgroupSize);
    held = count;
  } else {
    wanted_[warpgroup] = count;
  }
  serve();
  if (wanted_[warpgroup] != 0) {  // the others of the warpgroup sleep on as well
    waits_[warpgroup] = worker_.thread_number();
    worker_.sleep("take_registers", site);
  }
  meetings_.release();
}

// Warpgroups that wait for registers get them, if there are enough.
void RegisterPool::serve() {
  for (unsigned i = 0; i < kMostWarpgroups; ++i) {
    const int needed = (wanted_[i] - held_[i]) * static_cast<int>(kWarpgroupSize);
    if (wanted_[i] == 0 || needed > free_) continue;
    free_ -= needed;
    held_[i] = wanted_[i];
    wanted_[i] = 0;
    if (i != meetings_.first() / kWarpgroupSize) worker_.wake(waits_[i]);
  }
}

std::string RegisterPool::what_is_missing() const {
  std::string text;
  for (unsigned i = 0; i < kMostWarpgroups; ++i)
    if (wanted_[i] != 0)
      text += text_of("Warpgroup ", i, " waits for ", wanted_[i] - held_[i],
                      " more registers a thread, ",
                      (wanted_[i] - held_[i]) * static_cast<int>(kWarpgroupSize), " in all; ",
                      free_, " of ", kRegisters, " are free.\n");
  return text;
}

}  // namespace flash::simt
