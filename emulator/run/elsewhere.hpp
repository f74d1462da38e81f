// What host code asks of the device where that is in another process (simt.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "emulator/headers/device/kernel_call.hpp"
#include "emulator/run/simt.hpp"

namespace flash::simt {

struct Request {
  enum What : std::uint32_t { kAllocate, kFree, kFill, kWait, kAllowShared, kLaunch } what;
  std::int32_t value = 0;
  const void* address = nullptr;  // of memory, or of a kernel
  std::uint64_t bytes = 0;
  const void* stream = nullptr;
  char name[256] = "";  // of a kernel, or of the function that host code calls
  // Of a launch. Behind the request come the arguments, and where each lies among them.
  void (*run)(const void* arguments) = nullptr;
  uint3 grid{}, block{};
  std::uint64_t argument_bytes = 0, argument_count = 0;
};

bool is_elsewhere();
Answer ask(const Request& request, const std::string& more = "");
Answer ask_to_launch(const KernelCall& call);

}  // namespace flash::simt
