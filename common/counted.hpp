// What the emulator's checks count of the kernels of one or several calls: exact, and the same in
// every run. common/cuda/device.hpp has the functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace flash::device {

// Of one allocation; an atomic operation's bytes count as loaded and as stored.
struct Traffic {
  std::uint64_t loaded_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t loaded_by_busiest = 0;  // by the busiest block of each launch, together
  // A warp's 32 lanes load or store together: a request. It moves the 32-byte sectors that they
  // touch. Without atomic operations; check/warp_accesses.hpp of the emulator says how.
  std::uint64_t load_requests = 0, load_sectors = 0;
  std::uint64_t store_requests = 0, store_sectors = 0;

  void operator+=(const Traffic& other) {
    loaded_bytes += other.loaded_bytes, stored_bytes += other.stored_bytes;
    loaded_by_busiest += other.loaded_by_busiest;
    load_requests += other.load_requests, load_sectors += other.load_sectors;
    store_requests += other.store_requests, store_sectors += other.store_sectors;
  }
};

// How kernels accessed shared memory.
struct SharedAccesses {
  std::uint64_t reads = 0;       // of threads, whether 4 or 16 bytes at a time
  std::uint64_t wavefronts = 0;  // rounds in which the banks served warps, writes too
  std::uint64_t conflicts = 0;   // of these, those that bank conflicts add

  void operator+=(const SharedAccesses& other) {
    reads += other.reads, wavefronts += other.wavefronts, conflicts += other.conflicts;
  }
};

// How thread blocks shared their reads of device and shared memory among their threads.
struct Work {
  std::uint64_t reads = 0;  // of all threads
  // Of the thread of a block that comes last from a barrier to the next, with the reads of those
  // that it may have waited for; of all barriers and blocks together.
  std::uint64_t busiest = 0;
  std::uint64_t threads = 0;  // of the largest block
  std::uint64_t readers = 0;  // of these, how many read anything in any block

  void operator+=(const Work& other) {
    reads += other.reads, busiest += other.busiest;
    threads = std::max(threads, other.threads), readers = std::max(readers, other.readers);
  }
};

}  // namespace flash::device
