// An OS thread that runs thread blocks one at a time: a fiber for each CUDA thread, the scheduler,
// the barrier, warp operations, and the diagnosis when no thread can continue.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/headers/device/kernel_interface.hpp"
#include "emulator/run/fiber.hpp"
#include "emulator/run/launch.hpp"
#include "emulator/run/shared_memory.hpp"

namespace flash::simt {

class Checker;
class Hopper;

inline constexpr unsigned kMostThreads = 1024;  // of a block
inline constexpr unsigned kWarpSize = 32;

bool same_site(const Site& a, const Site& b);
Location location_of(const Site& site);
// "threads 0 to 31, 64 and 96 to 127"
std::string ranges(const std::vector<unsigned>& numbers, const char* one, const char* many);

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

  // ---- for the running thread (kernel_interface.hpp) --------------------------------------------
  unsigned thread_number() const { return running_; }
  void* dynamic_shared_memory() const { return shared_.dynamic(); }
  int barrier(const char* name, Site site, int predicate);
  void warp_operation(const WarpCall& call);
  void async_copy(void* to, const void* from, int bytes, int valid, std::uintptr_t pc);
  void async_commit();
  void async_wait(int groups);
  // Both let other threads run, so that a thread can wait for a value to change.
  void nap();
  void before_atomic();
  // Waits until another thread, or hopper(), calls wake() for this one. `what` is what the source
  // calls, for messages.
  void sleep(const char* what, Site site);
  void wake(unsigned thread);
  // What the block does with Hopper's own instructions; made when it is first asked for.
  Hopper& hopper();
  // Of two moments that CUDA leaves open, whether to take the later one: forward always, reverse
  // never, random now and then.
  bool prefers_late();

  // Records the finding and ends the block: control returns to run_block(). Objects on the fibers'
  // stacks are not destroyed: kernels own nothing that needs it, and only a few bytes of this
  // message leak.
  [[noreturn]] void fail(FindingKind kind, Location where, const std::string& text);
  // Of the running thread, whom the message names behind `text`: at the code of `pc`, at `site`.
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

  Launch& launch() const { return *launch_; }
  std::uint64_t block_number() const { return block_; }
  // The checks of the running block; nullptr if it is not checked.
  Checker* checker() const { return checker_; }
  const FiberStacks& stacks() const { return stacks_; }
  const SharedMemory& shared_memory() const { return shared_; }
  unsigned threads() const { return count_; }
  // Where two threads last met: in their warp, else at the block's barrier. Empty: nowhere yet.
  Site last_sync(unsigned a, unsigned b) const;
  bool is_asleep(unsigned thread) const { return threads_[thread].state == State::kAsleep; }
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
  enum class State : std::uint8_t { kRunnable, kAtBarrier, kInWarpOperation, kAsleep, kReturned };

  struct AsyncCopy {
    void* to;
    const void* from;
    std::size_t bytes, valid;
    std::uintptr_t pc;
    int group;
  };

  struct Thread {
    void* stack_pointer = nullptr;  // nullptr: not started
    State state = State::kRunnable;
    Site site{};                      // where it waits
    const char* waits_in = "";        // "__syncthreads"
    std::uint32_t mask = 0;           // of the warp operation
    std::vector<AsyncCopy> copies{};  // not waited for
    int copy_groups = 0;              // committed
  };

  // Lanes of one warp that wait in the same operation.
  struct Group {
    WarpCall call{};
    std::uint32_t arrived = 0;
  };
  struct Warp {
    std::uint32_t alive = 0;
    std::array<void*, kWarpSize> slots{};
    std::vector<Group> groups;
    Site synced{};  // of the last operation since the block's barrier that ordered memory
    std::uint32_t synced_lanes = 0;
  };

  static void fiber_entry();
  void run_thread();                                          // on its fiber, once; never returns
  void leave();                                               // the running thread has returned
  Thread& wait_in(State state, const char* what, Site site);  // what the running thread does now
  void suspend();                                             // another thread runs
  void switch_to(unsigned next) { resume(next, &threads_[running_].stack_pointer); }
  void resume(unsigned next, void** saved);  // `saved` gets the caller's stack pointer
  unsigned turn_of(unsigned thread) const;
  unsigned pick();                // whose turn is next; kNobody: nobody can go on
  void pass_turn();               // the running thread stays runnable
  void waited(unsigned atomics);  // counts towards a deadlock
  void release_barrier();
  void complete_if_all_there(unsigned warp, std::size_t group);
  [[noreturn]] void nobody_can_go_on();
  [[noreturn]] void back_to_scheduler();

  FiberStacks stacks_{kMostThreads};
  SharedMemory shared_;
  std::unique_ptr<Checker> own_checker_;
  Checker* checker_ = nullptr;
  std::unique_ptr<Hopper> hopper_;  // if the running block has used it
  std::array<Thread, kMostThreads> threads_{};
  std::array<Warp, kMostThreads / kWarpSize> warps_{};

  Launch* launch_ = nullptr;
  uint3 block_size_{};
  std::array<uint3, kMostThreads> thread_indices_{};  // by number, for blocks of this size
  unsigned count_ = 0;                                // threads of the block
  unsigned live_ = 0;                                 // that have not returned
  unsigned running_ = 0;
  std::bitset<kMostThreads> runnable_;  // by the order of turns
  std::uint64_t block_ = 0;
  void* scheduler_stack_ = nullptr;
  std::uint64_t random_ = 1;

  unsigned arrived_ = 0;  // at the barrier
  bool mismatch_ = false;
  // What a thread was resumed to say: only it can tell which calls it is in.
  struct LastWords {
    FindingKind kind;
    Site site;
    std::string text;
  };
  std::optional<LastWords> last_words_;
  Site barrier_site_{};
  Site passed_{};  // the block's last barrier
  int predicate_sum_ = 0;
  int predicate_result_ = 0;
  unsigned atomics_in_turn_ = 0;
  // Atomic operations (a nap is 16) since a thread reached a barrier or its end.
  std::uint64_t waits_ = 0;
};

// "the shared full, from byte 8", "dynamic shared memory, from byte 1040", for the running block.
std::string shared_text(const Worker& worker, const void* memory);

// The worker of the running kernel thread. Throws if host code calls a device function: `what`.
Worker& running_worker(const char* what);

}  // namespace flash::simt
