#include "emulator/run/elsewhere.hpp"

#include <cstdio>
#include <cstring>
#include <vector>

#include "common/error.hpp"
#include "emulator/headers/cuda_runtime_api.h"
#include "emulator/run/module.hpp"
#include "emulator/run/runtime.hpp"

namespace flash::simt {
namespace {

constexpr std::size_t kMostArguments = 4096;  // bytes, as CUDA has it

Answer (*asked)(const std::string& request) = nullptr;

struct Span {
  std::uint64_t begin, bytes;
};

struct alignas(64) Arguments {
  char bytes[kMostArguments + 64];
};

// Whether it is the mangled name of the function of launch() that calls a kernel.
bool calls_kernel(const std::string& name) {
  const std::size_t first = name.find_first_not_of("_Z");
  return first != std::string::npos && name.compare(first, 20, "N5flash4simt6launchI") == 0 &&
         (name.find("_FUN") != std::string::npos || name.find("__invoke") != std::string::npos);
}

// Host code may have written any bytes. What runs as a kernel is a function of its file, called as
// launch() calls it: all else could call into this process.
Answer launch(const Request& request, const std::string& more) {
  Arguments arguments;
  std::vector<Span> spans(request.argument_count <= kMostArguments ? request.argument_count : 0);
  std::vector<KernelCall::Argument> list;
  if (request.argument_bytes > sizeof arguments.bytes || request.argument_bytes < sizeof(void*) ||
      more.size() != request.argument_bytes + spans.size() * sizeof(Span))
    throw Error("a launch whose arguments take more than 4096 bytes");
  std::memcpy(arguments.bytes, more.data(), request.argument_bytes);
  if (!spans.empty())
    std::memcpy(spans.data(), more.data() + request.argument_bytes, spans.size() * sizeof(Span));
  for (const auto& [begin, bytes] : spans) {
    if (begin > request.argument_bytes || bytes > request.argument_bytes - begin)
      throw Error("a launch with an argument that is none");
    list.push_back({arguments.bytes + begin, bytes});
  }
  const void* called = nullptr;
  std::memcpy(&called, arguments.bytes, sizeof called);
  const Module& module = module_of(request.address);
  if (called != request.address ||
      !is_function_of_file(module, reinterpret_cast<std::uintptr_t>(request.address)) ||
      !calls_kernel(function_at(module, reinterpret_cast<std::uintptr_t>(request.run))))
    throw Error("a launch of what is no kernel");
  list.push_back({nullptr, 0});
  return {run({.name = request.name,
               .function = request.address,
               .grid = request.grid,
               .block = request.block,
               .shared_bytes = request.bytes,
               .run = request.run,
               .arguments = arguments.bytes,
               .argument_bytes = request.argument_bytes,
               .argument_list = list.data(),
               .argument_count = spans.size(),
               .stream = request.stream})};
}

}  // namespace

void ask_elsewhere(Answer (*ask)(const std::string& request)) { asked = ask; }
bool is_elsewhere() { return asked != nullptr; }

Answer ask(const Request& request, const std::string& more) {
  return asked(std::string(reinterpret_cast<const char*>(&request), sizeof request) + more);
}

Answer ask_to_launch(const KernelCall& call) {
  Request request{.what = Request::kLaunch,
                  .address = call.function,
                  .bytes = call.shared_bytes,
                  .stream = call.stream,
                  .run = call.run,
                  .grid = call.grid,
                  .block = call.block,
                  .argument_bytes = call.argument_bytes,
                  .argument_count = call.argument_count};
  std::snprintf(request.name, sizeof request.name, "%s", call.name);
  const auto* const begin = static_cast<const char*>(call.arguments);
  std::string more(begin, call.argument_bytes);
  for (std::size_t i = 0; i < call.argument_count; ++i) {
    const auto& [value, bytes] = call.argument_list[i];
    const Span span{static_cast<std::uint64_t>(static_cast<const char*>(value) - begin), bytes};
    more.append(reinterpret_cast<const char*>(&span), sizeof span);
  }
  return ask(request, more);
}

Answer answer(const std::string& text) {
  Request request;
  if (text.size() < sizeof request) throw Error("a request that is none");
  std::memcpy(&request, text.data(), sizeof request);
  request.name[sizeof request.name - 1] = 0;
  void* memory = const_cast<void*>(request.address);
  switch (request.what) {
    case Request::kAllocate: return {cudaMalloc(&memory, request.bytes), memory};
    case Request::kFree: return {cudaFree(memory)};
    case Request::kFill:
      note_enqueued(request.name, request.stream);
      return {fill(memory, request.value, request.bytes)};
    case Request::kWait: return note_wait(request.name), Answer{};
    case Request::kAllowShared:
      return {
          cudaFuncSetAttribute(memory, cudaFuncAttributeMaxDynamicSharedMemorySize, request.value)};
    case Request::kLaunch: return launch(request, text.substr(sizeof request));
  }
  throw Error("a request that is none");
}

}  // namespace flash::simt
