// The emulator's interface for host code, without CUDA headers: the order in which kernels run, the
// mistakes that were found in them, and how much memory they moved. README.md says what the
// emulator supports.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "emulator/headers/device/host_interface.hpp"

namespace flash::simt {

// ---- How kernels run ----------------------------------------------------------------------------

// The order in which blocks run, and the threads of a block. A thread runs until it waits: at a
// barrier, in a warp operation, or at every 16th atomic operation. A correct kernel gives the same
// result in any order. The order also decides when asynchronous copies and products happen: as late
// as they may (forward), at once (reverse), or now this, now that (random).
enum class Order { kForward, kReverse, kRandom };

struct Schedule {
  Order order = Order::kForward;
  std::uint64_t seed = 1;  // of kRandom
};

// For all later launches of the process. The environment sets the initial values:
//   FLASH_SIMT_SCHEDULE = forward | reverse | random:SEED        default forward
//   FLASH_SIMT_THREADS  = OS threads that share a grid's blocks    default: one a processor
// Checked launches use one OS thread, and run one at a time.
FLASH_EXPORT void set_schedule(const Schedule& schedule);

// "forward", "reverse" or "random:SEED". Throws ArgumentError for anything else.
FLASH_EXPORT Schedule parse_schedule(const std::string& text);

// From now on launches are checked and their kernels are not run, or they are run again.
FLASH_EXPORT void skip_kernels(bool skipped);

// From now on each access of a checked kernel ends its thread's turn, or not: so threads go on side
// by side, as on a GPU, where most races do no harm.
FLASH_EXPORT void run_in_step(bool in_step);

// Names the tensor in an allocation of device memory, for the texts of what is found. To write to
// an input is a finding.
FLASH_EXPORT void name_memory(const void* first_element, const std::string& name,
                              bool is_input = false);

// What the next launches are about, for the counts (counts.hpp).
FLASH_EXPORT void note_problem(const std::string& text);

// From now on memory gets the addresses of what was freed, as on a GPU, and not as late as
// possible.
FLASH_EXPORT void reuse_addresses();

// From `true` until `false` host code may access device memory. It is for many copies one after the
// other: each alone would change the protection of all allocations twice.
FLASH_EXPORT void let_host_access(bool allowed);

// ---- What kernels do wrong ----------------------------------------------------------------------

enum class FindingKind {
  kBarrierMissed,    // some threads reach a barrier, others have returned
  kBarrierMismatch,  // threads of one block wait at different barriers
  kWarpMismatch,     // lanes in the mask of a warp operation do something else, or a lane is not in
                     // its own mask
  kWarpgroupMismatch,  // not all 128 threads of a warpgroup come to the same wgmma or setmaxnreg
  kDeadlock,           // threads that wait for what nobody will do
  kWrongArgument,      // a barrier, byte count, descriptor, ... that an operation cannot have
  kRace,   // two threads access the same memory, one of them writes, and nothing orders them
  kFence,  // no fence between ordinary accesses and those of TMA or wgmma
  kUninitialized,  // a read of shared or device memory that was never written
  kOutOfBounds,    // an access outside of shared memory, or of the device memory that was allocated
  kInput,          // a write to an input
  kMisaligned,     // an access of n bytes at an address that is no multiple of n
  kHostMemory,     // a kernel accesses host memory
  kHostCall,       // a kernel calls a host function
  kAsyncCopy,      // a cp.async, TMA copy or wgmma that was not waited for
  kUndefined,      // arithmetic whose result C++ leaves open
  kAssertion,      // assert() that does not hold, or __trap()
  kFault,          // an illegal address or instruction, or an overflow of the thread's stack
};

FLASH_EXPORT const char* to_string(FindingKind kind);

// A launch with findings throws a KernelError: of at most 5, what was found, then the threads and
// places. This is the text of the first since reset_counters(), also if somebody caught the error;
// "" where there is none.
FLASH_EXPORT std::string first_finding();

// From now on launches that find races alone do not throw: host code goes on, and there are
// results. first_finding() has the races.
FLASH_EXPORT void go_on_after_races();
// Whether races are all that was found since reset_counters().
FLASH_EXPORT bool found_races_only();

// Bytes that kernels wrote since reset_counters() to device memory without a name (name_memory()),
// or read from memory that has one and is no input.
FLASH_EXPORT std::size_t workspace_bytes();

// All addresses that device memory has: it changes their protection.
FLASH_EXPORT std::pair<const void*, std::size_t> device_memory();

// Reads a library's names and lines now, for a process that may open no file later.
FLASH_EXPORT void prepare(const std::string& library);

// ---- Host code in a process of its own ----------------------------------------------------------

// A class' runner keeps host code in another process than the device: there it can change neither
// what kernels compute nor what is counted of them.
struct Answer {
  int error = 0;  // a cudaError_t
  const void* memory = nullptr;
};
// In the process of host code: from now on `ask` has each request done, by answer() in the other
// process, which has loaded the same libraries at the same addresses.
FLASH_EXPORT void ask_elsewhere(Answer (*ask)(const std::string& request));
// Throws what a launch throws, and Error for a request that no host code makes.
FLASH_EXPORT Answer answer(const std::string& request);

}  // namespace flash::simt
