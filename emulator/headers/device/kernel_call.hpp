// How a launch reaches the emulator: flash::launch() in common/cuda/launch.hpp calls this instead
// of cudaLaunchKernel().
#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "common/export.hpp"
#include "emulator/headers/device/vector_types.hpp"

namespace flash::simt {

struct KernelCall {
  const char* name;
  const void* function;
  uint3 grid, block;
  std::size_t shared_bytes;
  void (*run)(const void* arguments);  // calls the kernel for one thread
  // What `run` gets: an object of argument_bytes, which begins with the function.
  const void* arguments;
  std::size_t argument_bytes;
  // Where they lie in it, one by one, for messages that say to which of them an address belongs.
  struct Argument {
    const void* value;
    std::size_t bytes;
  };
  const Argument* argument_list;
  std::size_t argument_count;
  const void* stream;  // that was asked for
};

// Runs the whole grid before it returns. The result is a cudaError_t: CUDA's own codes for a launch
// that cannot be. Throws KernelError when the kernel did something wrong.
FLASH_EXPORT int run(const KernelCall& call);

// Whether T is a lambda or, with g++, another type that is declared in a function.
template <class T>
constexpr bool is_of_a_function() {
  const std::string_view name = __PRETTY_FUNCTION__;
#ifdef __clang__
  return name.find("(lambda at") != name.npos;
#else
  return name.find("<lambda") != name.npos || name.find(")::") != name.npos;
#endif
}

template <class... Parameters>
int launch(const char* name, void (*kernel)(Parameters...), uint3 grid, uint3 block,
           std::size_t shared_bytes, const void* stream,
           const std::tuple<Parameters...>& arguments) {
  static_assert((!std::is_reference_v<Parameters> && ...),
                "a kernel takes its arguments by value: a reference would be one to host memory");
  static_assert(((__is_trivially_copyable(Parameters) &&
                  __is_trivially_constructible(Parameters, const Parameters&)) &&
                 ...),
                "a kernel's arguments are copied to the GPU byte by byte");
  static_assert((!is_of_a_function<Parameters>() && ...),
                "nvcc takes no lambda, and no type that a function declares, for a kernel");
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  };
  const Call call{kernel, arguments};
  return std::apply(
      [&](const Parameters&... values) {
        const KernelCall::Argument list[] = {{__builtin_addressof(values), sizeof values}...,
                                             {nullptr, 0}};
        return run({.name = name,
                    .function = reinterpret_cast<const void*>(kernel),
                    .grid = grid,
                    .block = block,
                    .shared_bytes = shared_bytes,
                    .run =
                        [](const void* data) {
                          const auto& typed = *static_cast<const Call*>(data);
                          std::apply(typed.kernel, typed.arguments);
                        },
                    .arguments = &call,
                    .argument_bytes = sizeof call,
                    .argument_list = list,
                    .argument_count = sizeof...(Parameters),
                    .stream = stream});
      },
      call.arguments);
}

}  // namespace flash::simt
