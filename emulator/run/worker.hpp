// An OS thread that runs thread blocks one at a time: a fiber for each CUDA thread, and the switch
// from one to the next. What threads do together is in turns.hpp, block_barrier.hpp, warps.hpp and
// async_copies.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/headers/device/kernel_interface.hpp"
#include "emulator/run/async_copies.hpp"
#include "emulator/run/block_barrier.hpp"
#include "emulator/run/fiber.hpp"
#include "emulator/run/launch.hpp"
#include "emulator/run/observers.hpp"
#include "emulator/run/shared_memory.hpp"
#include "emulator/run/turns.hpp"
#include "emulator/run/warps.hpp"

namespace flash::simt {

bool same_site(const Site& a, const Site& b);
Location location_of(const Site& site);
// "threads 0 to 31, 64 and 96 to 127"
std::string ranges(const std::vector<unsigned>& numbers, const char* one, const char* many);
std::string mask_text(std::uint32_t mask);  // "mask 0x0000ffff"

enum class Waiting : std::uint8_t { kNot, kAtBarrier, kInWarpOperation, kAsleep, kReturned };

class Worker {
 public:
  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs one block of `launch` to its end, or to its first fatal finding, which goes to
  // Launch::add().
  void run_block(Launch& launch, std::uint64_t block);

  // The worker of this OS thread while it runs a block, else nullptr.
  static Worker* current();

  // ---- the running thread -----------------------------------------------------------------------

  unsigned thread_number() const { return running_; }
  void* dynamic_shared_memory() const { return shared_.dynamic(); }
  int barrier(const char* name, Site site, int predicate);
  void warp_operation(const WarpCall& call) { warps_.come(call); }
  AsyncCopies& async_copies() { return async_copies_; }
  // Both let other threads run, so that a thread can wait for a value to change.
  void nap(unsigned nanoseconds);
  void before_atomic();
  void pass_turn();  // the running thread stays runnable
  // Waits until another thread, or a unit, calls wake() for this one. `what` is what the source
  // calls, for messages.
  void sleep(const char* what, Site site);
  void wake(unsigned thread);
  bool prefers_late() { return turns_.prefers_late(); }

  // ---- how it waits -----------------------------------------------------------------------------

  // From now on it waits, and another thread runs; wait() does both.
  void start_waiting(Waiting how, const char* what, Site site, std::uint32_t mask = 0);
  void suspend();
  void wait(Waiting how, const char* what, Site site) {
    start_waiting(how, what, site);
    suspend();
  }
  bool is_waiting(unsigned thread) const { return threads_[thread].waiting != Waiting::kNot; }
  bool is_asleep(unsigned thread) const { return threads_[thread].waiting == Waiting::kAsleep; }
  // At the block's barrier: all go on.
  void all_have_met();

  // ---- findings ---------------------------------------------------------------------------------

  // Records the finding and ends the block: control returns to run_block(). Objects on the fibers'
  // stacks are not destroyed: kernels own nothing that needs it, and only a few bytes of this
  // message leak.
  [[noreturn]] void fail(FindingKind kind, Location where, const std::string& text);
  // A finding of the running thread, which the message names behind `text`, at the code of `pc` or
  // at `site`.
  template <class... Text>
  [[noreturn]] void fail_at(FindingKind kind, std::uintptr_t pc, const Text&... text) {
    fail(kind, locate(launch_->module, pc), text_of(text..., "\n", describe()));
  }
  template <class... Text>
  [[noreturn]] void fail_at(FindingKind kind, const Site& site, const Text&... text) {
    fail(kind, location_of(site), text_of(text..., "\n", describe()));
  }
  // The same for an operation at `site` that `thread` is in, or was when the running one returned.
  // Where the site is in a header, the place is the line of the .cu file that calls it; the text
  // says where the function of that line was called.
  [[noreturn]] void fail_in(unsigned thread, FindingKind kind, const Site& site,
                            const std::string& text);
  // Ends the block without another finding.
  [[noreturn]] void abandon() { back_to_scheduler(); }
  // The stack pointer of run_block(): below it a signal handler can run a function.
  void* scheduler_stack() const { return scheduler_stack_; }

  // ---- the block --------------------------------------------------------------------------------

  Launch& launch() const { return *launch_; }
  std::uint64_t block_number() const { return block_; }
  // The checks of the running block; nullptr if it is not checked.
  Checks* checks() const { return checks_; }
  // The units beside its threads, made when one is first asked for; until then nullptr.
  Units* units() const { return units_.get(); }
  void set_units(std::unique_ptr<Units> units) { units_ = std::move(units); }
  const FiberStacks& stacks() const { return stacks_; }
  const SharedMemory& shared_memory() const { return shared_; }
  unsigned threads() const { return count_; }
  // Where two threads last met: in their warp, else at the block's barrier. Empty: nowhere yet.
  Site last_sync(unsigned a, unsigned b) const;
  Location first_sleeper() const;  // where the first thread that is asleep waits
  // Which threads wait where, a line for each place, and which have returned.
  std::string waiting_threads() const;
  uint3 block_index(std::uint64_t block) const;
  uint3 thread_index(unsigned number) const { return thread_indices_[number]; }
  // "thread (3, 0, 0) of block (1, 0, 0)", of the running block and of another one of the launch.
  std::string describe(unsigned number) const { return describe(number, block_); }
  std::string describe() const { return describe(running_); }  // the running thread
  std::string describe(unsigned number, std::uint64_t block) const;
  std::string describe_block(std::uint64_t block) const;  // "block (1, 0, 0)"

 private:
  struct Thread {
    void* stack_pointer = nullptr;  // nullptr: not started
    Waiting waiting = Waiting::kNot;
    Site site{};                // where it waits
    const char* waits_in = "";  // "__syncthreads"
    std::uint32_t mask = 0;     // of the warp operation
  };
  // What a thread was resumed to say: only it can tell which calls it is in.
  struct LastWords {
    FindingKind kind;
    Site site;
    std::string text;
  };

  static void fiber_entry();
  void run_thread();  // on its fiber, once; never returns
  void leave();       // the running thread has returned
  void switch_to(unsigned next) { resume(next, &threads_[running_].stack_pointer); }
  void resume(unsigned next, void** saved);  // `saved` gets the caller's stack pointer
  void waited(unsigned atomics);             // counts towards a deadlock
  unsigned first_in(Waiting how) const;      // kNobody: no thread
  [[noreturn]] void nobody_can_go_on();
  [[noreturn]] void back_to_scheduler();

  FiberStacks stacks_{kMostThreads};
  SharedMemory shared_;
  Turns turns_;
  BlockBarrier barrier_{*this};
  Warps warps_{*this};
  AsyncCopies async_copies_{*this};
  std::unique_ptr<Checks> own_checks_;
  Checks* checks_ = nullptr;
  std::unique_ptr<Units> units_;
  std::array<Thread, kMostThreads> threads_{};

  Launch* launch_ = nullptr;
  std::uint64_t block_ = 0;
  uint3 block_size_{};
  std::array<uint3, kMostThreads> thread_indices_{};  // by number, for blocks of this size
  unsigned count_ = 0;                                // threads of the block
  unsigned live_ = 0;                                 // that have not returned
  unsigned running_ = 0;
  void* scheduler_stack_ = nullptr;
  std::optional<LastWords> last_words_;
  unsigned atomics_in_turn_ = 0;
  // Atomic operations (a nap is 16) since a thread reached a barrier or its end.
  std::uint64_t waits_ = 0;
};

// "the shared full, from byte 8", "dynamic shared memory, from byte 1040", for the running block.
std::string shared_text(const Worker& worker, const void* memory);

// The worker of the running kernel thread. Throws if host code calls a device function: `what`.
Worker& running_worker(const char* what);

}  // namespace flash::simt
