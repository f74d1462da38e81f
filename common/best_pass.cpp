#include "common/best_pass.hpp"

#include <algorithm>
#include <cctype>

namespace flash {
namespace {

// The passes of one device among which kBest chooses, the fastest first. They are copies, so that
// they live as long as kBest does.
template <template <class> class Pass>
struct Choice {
  std::vector<Entry<Pass>> passes;

  // The fastest that takes the problem, or null.
  const Entry<Pass>* of(const typename Entry<Pass>::Problem& problem) const {
    const auto fits = [&](const Entry<Pass>& pass) {
      return pass.has(problem.dtype) && (!pass.best_for || pass.best_for(problem)) &&
             pass.why_not(problem).empty();
    };
    const auto found = std::find_if(passes.begin(), passes.end(), fits);
    return found == passes.end() ? nullptr : &*found;
  }
};

template <template <class> class Pass>
void add_best(PassList<Pass>& passes, DeviceKind device) {
  const auto choice = std::make_shared<Choice<Pass>>();
  for (const Entry<Pass>& pass : passes.entries()) {
    const bool is_rung = std::isdigit(static_cast<unsigned char>(pass.name[0]));
    if (pass.device == device && pass.best && !pass.only_as_pair &&
        (is_rung || pass.name == "flash"))
      choice->passes.insert(choice->passes.begin(), pass);
  }
  if (choice->passes.empty()) return;

  using Problem = typename Entry<Pass>::Problem;
  Entry<Pass> best{.name = kBest, .device = device};
  best.choose = [choice](const Problem& problem) { return choice->of(problem); };
  best.unsupported = [choice](const Problem& problem) {
    return choice->of(problem) ? std::string() : choice->passes.back().why_not(problem);
  };
  best.workspace_bytes = [choice](const Problem& problem) -> std::size_t {
    const Entry<Pass>* const pass = choice->of(problem);
    return pass ? pass->workspace_of(problem) : 0;
  };
  const auto add_type = [&]<class T>(PassFunction<Pass<T>>& run) {
    for (const Entry<Pass>& pass : choice->passes)
      if (pass.run.template of<T>())
        run = [choice](const Pass<T>& call, PassMemory& memory) {
          const Entry<Pass>* const chosen = choice->of(problem_of(call));
          if (chosen == nullptr) check_supported(choice->passes.back(), call);
          chosen->run.template of<T>()(call, memory);
        };
  };
  add_type(best.run.float32);
  add_type(best.run.float64);
  add_type(best.run.float16);
  add_type(best.run.bfloat16);
  for (const Entry<Pass>& pass : choice->passes) best.finite_inputs |= pass.finite_inputs;
  passes.add(std::move(best));
}

}  // namespace

Registry with_best(Registry registry) {
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kGpu}) {
    add_best(registry.forward, device);
    add_best(registry.backward, device);
    add_best(registry.decode, device);
  }
  return registry;
}

}  // namespace flash
