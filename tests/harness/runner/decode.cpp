// How the runner calls the function of the decoding part that runs on the CPU.
#include "bonus_decode/flash_decode.hpp"
#include "harness/runner/runner.hpp"

namespace flash::grading {

bool run_decode(const Message& call, void* memory, Message&) {
  if (call.function != kMergeParts) return false;
  const OnHost on{call, memory};
  functions_of<MergePartsTask>().merge_parts(on.view<const float, 3>(0), on.view<const float, 2>(1),
                                             on.view<float, 2>(2), on.view<float, 1>(3));
  return true;
}

}  // namespace flash::grading
