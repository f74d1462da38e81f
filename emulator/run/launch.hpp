// One launch of a kernel, as the workers see it.
#pragma once

#include <atomic>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "emulator/headers/device/kernel_call.hpp"
#include "emulator/run/module.hpp"
#include "emulator/run/simt.hpp"

namespace flash::simt {

struct Finding {
  FindingKind kind;
  Location where;
  Location other;  // of a race: the access before
  std::string text;
};

struct Launch {
  const KernelCall& call;
  const Module& module;
  Schedule schedule;
  std::uint64_t number;  // of this launch in the process
  bool counts_warps;     // check/warp_accesses.hpp
  bool goes_on_after_races;
  bool is_in_step;

  std::atomic<bool> stop{false};  // set by a finding that ends the kernel
  std::mutex mutex{};             // of the findings
  std::vector<Finding> findings{};

  unsigned threads() const { return call.block.x * call.block.y * call.block.z; }
  std::uint64_t blocks() const { return std::uint64_t{call.grid.x} * call.grid.y * call.grid.z; }

  // Keeps a finding unless the same is there already. Sets `stop` when there are kMostFindings.
  void add(FindingKind kind, const Location& where, const Location& other, const std::string& text);
  bool has_races_only() const;
};

// The parts, one after the other.
template <class... Parts>
std::string text_of(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// "fused_cuda.cu:94", or "an unknown place".
std::string place_text(const Location& where);

}  // namespace flash::simt
