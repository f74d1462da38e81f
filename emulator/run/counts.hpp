// What checked kernels do, by source line, for a profile: the file that FLASH_SIMT_COUNTS names
// gets it after each launch, a table with tabs between its columns.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "emulator/headers/device/kernel_interface.hpp"
#include "emulator/run/launch.hpp"

namespace flash::simt {

// Sums over the requests of warps. check/warp_accesses.cpp has the rule.
struct Counted {
  std::uint64_t requests = 0, lanes = 0;
  std::uint64_t partial = 0;                // requests in which some lanes of the warp took no part
  std::uint64_t bytes = 0;                  // different ones, of each request
  std::uint64_t sectors = 0;                // of device memory
  std::uint64_t wavefronts = 0, least = 0;  // of shared memory; without bank conflicts
  // Between barriers: instructions of a warp in the mean, and of the slowest one
  // (check/straight_code.hpp).
  std::uint64_t work = 0, slowest = 0;

  Counted& operator+=(const Counted& other);
};

class Counts {
 public:
  // nullptr unless the environment asks for them.
  static Counts* wanted();

  // Before what the running thread, whose stack begins at `top`, does at `pc`: finds the line.
  void come(std::uintptr_t pc, const Module& module, const void* top);
  const Location& place(std::uintptr_t pc) { return places_[pc]; }
  // `what` is "load", "store" or the name of an operation; `memory` where the allocation begins,
  // nullptr for shared memory; `width` the bytes of a lane.
  // `offsets` says where the lanes in `lanes` are, behind the start of the allocation, or of shared
  // memory.
  void add(std::uintptr_t pc, const char* what, const void* memory, unsigned width,
           const Counted& counted, const std::array<std::uint32_t, 32>& offsets,
           std::uint32_t lanes);
  void add(const Site& site, const char* what, const Counted& counted) {
    of_sites_[{site.file, site.line, what}] += counted;
  }
  void note_problem(const std::string& text) { problem_ = text; }
  Counted met{};  // the work until the barrier where the block is
  // Writes them, and begins anew.
  void write(const Launch& launch);

 private:
  explicit Counts(std::string file) : file_(std::move(file)) {}

  std::string file_, problem_;
  std::unordered_map<std::uintptr_t, Location> places_;
  struct OfCode {
    Counted sum{};
    // The request that touches the most sectors, or takes the most wavefronts.
    std::uint64_t most = 0;
    std::array<std::uint32_t, 32> offsets{};
    std::uint32_t lanes = 0;
  };
  std::map<std::tuple<std::uintptr_t, std::string, const void*, unsigned>, OfCode> of_code_;
  std::map<std::tuple<std::string, int, std::string>, Counted> of_sites_;
};

}  // namespace flash::simt
