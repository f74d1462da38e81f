// A rung of a ladder behind a task's contract, so that it is measured like a submission: the one
// that the environment's FLASH_MARK names.
#pragma once

#include <cstdlib>
#include <type_traits>

#include "common/all_passes.hpp"

namespace flash {

// Memory is Tensor or DeviceTensor: where the rung has its workspace.
template <template <class, int> class Memory, template <class> class Pass, class T>
void run_mark(PassList<Pass> Registry::*passes, DeviceKind device, const Pass<T>& pass) {
  static const Registry registry = all_passes();
  static const auto& entry = (registry.*passes).find(std::getenv("FLASH_MARK"), device);
  check_supported(entry, pass);
  using Workspace = Memory<std::byte, 1>;
  const Shape<1> bytes{static_cast<Index>(entry.workspace_of(problem_of(pass)))};
  Workspace workspace = [&] {
    if constexpr (std::is_constructible_v<Workspace, Shape<1>, Stream>)
      return Workspace(bytes, pass.stream);  // freed behind the rung's kernels
    else
      return Workspace(bytes);
  }();
  PassMemory memory;
  memory.workspace = workspace.data();
  entry.run.template of<T>()(pass, memory);
}

}  // namespace flash
