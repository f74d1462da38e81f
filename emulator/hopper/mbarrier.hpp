// mbarriers (common/cuda/mbarrier.hpp) of the block that a worker runs. Their state is here; the 8
// bytes in shared memory only say which one is meant.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "emulator/check/clocks.hpp"
#include "emulator/headers/device/kernel_interface.hpp"

namespace flash::simt {

class Worker;

struct Mbarrier {
  const void* address;
  int arrivals;                     // in each phase
  int missing;                      // of them, in this phase
  unsigned phase = 0;               // the number of the phase that goes on; its parity is phase % 2
  std::int64_t bytes = 0;           // announced, and not landed
  std::int64_t uncovered = 0;       // announced, and no copy started for them
  std::vector<unsigned> waiting{};  // threads, for the end of this phase

  // Where a copy was started that nobody has waited for: in this phase, in one that has ended. 0:
  // nowhere.
  std::uintptr_t copies = 0, ended_copies = 0;
  unsigned initializer;           // the thread that called init()
  std::uintptr_t initialized_at;  // from where
  bool known_to_tma = false;      // after fence_barrier_init()

  // For the checks.
  std::uint32_t fence_time = 0;
  unsigned agent = 0;                // for the copies; 0: none yet
  SyncClock clock{}, ended_clock{};  // of this phase, of the one before
};

class Mbarriers {
 public:
  explicit Mbarriers(Worker& worker) : worker_(worker) {}

  // What the running thread calls, from code at `pc`.
  void init(const void* address, int arrivals, std::uintptr_t pc);
  void fence_init();
  void arrive(const void* address, int bytes, std::uintptr_t pc);
  void wait(const void* address, int parity, Site site, std::uintptr_t pc);
  // A copy of so many bytes starts that will land at the barrier.
  Mbarrier& start_copy(const void* address, int bytes, std::uintptr_t pc);

  void land(Mbarrier& barrier, int bytes, std::uint32_t time);
  // Ends the kernel with a finding if nobody has waited for a copy.
  void block_ends();

  // What the barriers that threads wait for lack; "" where no thread waits.
  std::string what_is_missing() const;

 private:
  Mbarrier& find(const void* address, const char* what, std::uintptr_t pc);
  void end_phase_if_complete(Mbarrier& barrier);
  void see_end(Mbarrier& barrier, unsigned thread);

  Worker& worker_;
  std::map<const void*, Mbarrier> barriers_;
};

}  // namespace flash::simt
