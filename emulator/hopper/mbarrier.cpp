#include "emulator/hopper/mbarrier.hpp"

#include <utility>

#include "emulator/check/checker.hpp"
#include "emulator/hopper/hopper.hpp"
#include "emulator/run/events.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;
namespace {

constexpr int kMost = (1 << 20) - 1;  // arrivals, and bytes, of a phase

}  // namespace

Mbarrier& Mbarriers::find(const void* address, const char* what, std::uintptr_t pc) {
  const auto found = barriers_.find(address);
  if (found == barriers_.end())
    worker_.fail_at(kWrongArgument, pc, what, " uses ", shared_text(worker_, address),
                    ", where init() has not made a barrier.");
  if (Checker* const checker = Checker::of(worker_))
    checker->access_by_emulator(address, sizeof(std::uint64_t), false, pc);
  return found->second;
}

void Mbarriers::init(const void* address, int arrivals, std::uintptr_t pc) {
  (void)shared_address_of(worker_, address, "init()", pc);
  if (reinterpret_cast<std::uintptr_t>(address) % 8 != 0)
    worker_.fail_at(kMisaligned, pc,
                    "init(): the address of a barrier is a multiple of 8; this one is ",
                    shared_text(worker_, address), ".");
  if (arrivals < 1 || arrivals > kMost)
    worker_.fail_at(kWrongArgument, pc, "init(): a phase has 1 to ", kMost,
                    " arrivals; this one is to have ", arrivals, ".");
  if (Checker* const checker = Checker::of(worker_))
    checker->access_by_emulator(address, sizeof(std::uint64_t), true, pc);
  Mbarrier barrier{.address = address, .arrivals = arrivals, .missing = arrivals};
  barrier.initializer = worker_.thread_number();
  barrier.initialized_at = pc;
  if (!barriers_.try_emplace(address, std::move(barrier)).second)
    worker_.fail_at(kWrongArgument, pc, "init(): ", shared_text(worker_, address),
                    " is a barrier already; each is made once, by one thread.");
}

void Mbarriers::fence_init() {
  for (auto& [address, barrier] : barriers_)
    if (barrier.initializer == worker_.thread_number() && !barrier.known_to_tma) {
      barrier.known_to_tma = true;
      if (Checker* const checker = Checker::of(worker_))
        barrier.fence_time = checker->clocks().now();
    }
}

void Mbarriers::arrive(const void* address, int bytes, std::uintptr_t pc) {
  Mbarrier& barrier = find(address, bytes > 0 ? "arrive_expecting()" : "arrive()", pc);
  if (bytes < 0 || barrier.bytes + bytes > kMost)
    worker_.fail_at(kWrongArgument, pc, "arrive_expecting(): ", barrier.bytes + bytes,
                    " bytes are announced for one phase; 0 to ", kMost, " can be.");
  if (Checker* const checker = Checker::of(worker_)) {
    checker->clocks().release(barrier.clock);
    checker->happens(pc, "arrive", address, barrier.phase);
  }
  barrier.bytes += bytes;
  barrier.uncovered += bytes;
  --barrier.missing;
  end_phase_if_complete(barrier);
}

void Mbarriers::end_phase_if_complete(Mbarrier& barrier) {
  if (barrier.missing > 0 || barrier.bytes != 0) return;
  if (Checker* const checker = Checker::of(worker_)) checker->some_have_met();
  ++barrier.phase;
  barrier.missing = barrier.arrivals;
  barrier.ended_clock = std::exchange(barrier.clock, {});
  if (barrier.copies != 0) barrier.ended_copies = std::exchange(barrier.copies, 0);
  for (const unsigned thread : std::exchange(barrier.waiting, {})) {
    see_end(barrier, thread);
    worker_.wake(thread);
  }
}

// A thread is told that the last phase has ended.
void Mbarriers::see_end(Mbarrier& barrier, unsigned thread) {
  barrier.ended_copies = 0;
  if (Checker* const checker = Checker::of(worker_))
    checker->clocks().acquire(thread, barrier.ended_clock);
}

void Mbarriers::wait(const void* address, int parity, Site site, std::uintptr_t pc) {
  Mbarrier& barrier = find(address, "wait()", pc);
  const auto tell = [&](const char* what, unsigned phase) {
    if (Checker* const checker = Checker::of(worker_)) checker->happens(pc, what, address, phase);
  };
  if (barrier.phase % 2 != static_cast<unsigned>(parity & 1)) {
    tell("go on", barrier.phase);
    return see_end(barrier, worker_.thread_number());
  }
  tell("wait", barrier.phase + 1);
  barrier.waiting.push_back(worker_.thread_number());
  worker_.sleep("wait()", site);
  tell("go on", barrier.phase);
}

Mbarrier& Mbarriers::start_copy(const void* address, int bytes, std::uintptr_t pc) {
  Mbarrier& barrier = find(address, "tma_load()", pc);
  if (barrier.uncovered < bytes)
    worker_.fail_at(kWrongArgument, pc, "tma_load() copies ", bytes,
                    " bytes; of those that arrive_expecting() has announced at ",
                    shared_text(worker_, address), " only ", barrier.uncovered,
                    " are left. A box counts in full, also where it hangs over the tensor's end, "
                    "and is announced before its copy starts.");
  if (Checker* const its = Checker::of(worker_)) its->happens(pc, "copy", address, barrier.phase);
  barrier.uncovered -= bytes;
  barrier.copies = pc;
  Checker* const checker = Checker::of(worker_);
  if (!barrier.known_to_tma ||
      (checker != nullptr &&
       !checker->clocks().before_me(barrier.fence_time, barrier.initializer, false)))
    worker_.fail_at(kFence, pc, "tma_load() uses ", shared_text(worker_, address),
                    ", made by init() at ",
                    place_text(locate(worker_.launch().module, barrier.initialized_at)),
                    ": the thread that called init() calls fence_barrier_init() behind it, "
                    "and then all threads meet.");
  if (checker != nullptr && barrier.agent == 0)
    barrier.agent = checker->clocks().new_agent("tma_load()");
  return barrier;
}

void Mbarriers::land(Mbarrier& barrier, int bytes, std::uint32_t time) {
  if (Checker* const checker = Checker::of(worker_))
    checker->clocks().learn(barrier.clock, barrier.agent, time);
  if (Events* const events = Events::wanted(); events != nullptr && worker_.checks() != nullptr)
    events->happens(0, "landed", Events::kUnit,
                    worker_.shared_memory().window_address(barrier.address).value_or(0),
                    barrier.phase);
  barrier.bytes -= bytes;
  end_phase_if_complete(barrier);
}

void Mbarriers::block_ends() {
  for (const auto& [address, barrier] : barriers_)
    if (const std::uintptr_t pc = barrier.copies != 0 ? barrier.copies : barrier.ended_copies)
      worker_.fail(kAsyncCopy, locate(worker_.launch().module, pc),
                   text_of("All threads of ", worker_.describe_block(worker_.block_number()),
                           " return, and none has waited for the copy, whose barrier is in ",
                           shared_text(worker_, address), ". The last one to return is ",
                           worker_.describe(), "."));
}

std::string Mbarriers::what_is_missing() const {
  std::string text;
  for (const auto& [address, barrier] : barriers_) {
    if (barrier.waiting.empty()) continue;
    text += text_of("The barrier in ", shared_text(worker_, address), ", ", "phase ", barrier.phase,
                    " (parity ", barrier.phase % 2, "): ", barrier.missing, " of ",
                    barrier.arrivals, " arrivals are missing");
    if (barrier.bytes > 0)
      text += text_of(", and of the bytes that were announced ", barrier.bytes,
                      " have not landed (", barrier.uncovered, " of them no copy was started for)");
    text += ".\n";
  }
  return text;
}

}  // namespace flash::simt
