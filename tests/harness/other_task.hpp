// A function of another task of the same author, for the cases in which two tasks work together.
//
// A test program is linked with the library of one task, so that a file that does not compile costs
// its own task only. The other library is opened when a case asks for it, as it was last built.
#pragma once

#include <string>

#include "common/attention.hpp"
#include "harness/graded_case.hpp"

namespace flash::harness {

// The function with this name in the library of `task` ("part2.flash_forward"), for the same
// implementation and backend. Throws NotYetImplemented where there is no such library. On Linux;
// elsewhere there is none.
void* symbol_of_other_task(const std::string& task, const char* mangled_name);

template <class Function>
Function* function_of_other_task(const std::string& task, const char* mangled_name) {
  return reinterpret_cast<Function*>(symbol_of_other_task(task, mangled_name));
}

// The cases in which an author's two passes of attention work together, one after the other.
inline constexpr const char *kFromOwnForward = "from the out and lse of your forward pass",
                            *kKeepsOutAndLse = "your forward pass keeps out and lse only";

// Of the forward pass of `task`, after which `kept` bytes more are in use than before: with many
// layers all of this is in memory at once.
inline Verdict kept_beside_out_and_lse(const std::string& task, std::size_t kept,
                                       const AttentionShape& shape) {
  return verdict_on(
      kept == 0 ? ""
                : "The forward pass of task " + task + " keeps " + std::to_string(kept) +
                      " bytes beside out and lse when it has returned. It must keep "
                      "nothing; P of all heads would be " +
                      std::to_string(4 * shape.batch * shape.heads * shape.queries * shape.keys) +
                      " bytes in float.");
}

}  // namespace flash::harness
