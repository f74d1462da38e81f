// What the blocks of checked kernels do, in its order, for a picture: the folder that
// FLASH_SIMT_EVENTS names gets, beside what counts.hpp writes, a table of events and the tensors.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "emulator/headers/device/kernel_interface.hpp"
#include "emulator/run/launch.hpp"

namespace flash::simt {

class Counts;

class Events {
 public:
  // nullptr unless the environment asks for them, and for counts.
  static Events* wanted();

  void start_block(std::uint64_t block);
  // All threads of the block meet.
  void barrier() { ++epoch_; }
  // The thread accesses memory at `offset` behind `memory`, where its allocation begins; nullptr:
  // shared memory. What the threads do at `pc` between two barriers is one event, unless a thread
  // comes back to it after an access to other device memory.
  void touch(std::uintptr_t pc, unsigned thread, const void* memory, std::size_t offset,
             std::size_t bytes, bool is_read);
  // A warp, or a unit where `warp` is kUnit, does `what` with the object `name` in phase `number`.
  static constexpr unsigned kUnit = 32;
  void happens(std::uintptr_t pc, const char* what, unsigned warp, std::uint64_t name,
               std::uint64_t number);

  // Writes them, and begins anew.
  void write(const Launch& launch, Counts& counts);

 private:
  explicit Events(std::string folder) : folder_(std::move(folder)) {}

  struct Event {
    std::uint64_t block = 0, step = 0;
    std::uintptr_t pc = 0;
    const char* what = "";
    const void* memory = nullptr;
    std::uint64_t asked = 0, number = 0;
    std::uint64_t warps = 0;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> runs{};  // of bytes
    std::uint32_t to_begin = ~0u, to_end = 0;  // of a load: where in shared memory it goes
  };
  struct Thread {
    const void* memory = nullptr;
    bool is_read = false;
    std::uint32_t epoch = 0, turns = 0;
    std::size_t loading = kNone;  // the event of a load that was its last access
  };
  struct Visit {
    std::uint32_t epoch, turns, number;
  };
  static constexpr std::size_t kNone = ~std::size_t{0}, kMost = 20000;  // of a launch

  std::size_t add(Event event);

  std::string folder_;
  std::uint64_t block_ = 0, step_ = 0;
  std::uint32_t epoch_ = 0;
  std::vector<Event> events_;
  std::map<std::tuple<std::uintptr_t, const void*, std::uint32_t, std::uint32_t>, std::size_t>
      of_code_;
  std::map<std::pair<std::uintptr_t, unsigned>, Visit> visits_;
  std::set<std::tuple<std::string, unsigned, std::uint64_t, std::uint64_t>> happened_;
  std::map<unsigned, Thread> threads_;
};

}  // namespace flash::simt
