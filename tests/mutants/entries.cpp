// How the kernels of a rung are run: by what it enters in the registry.
#include "common/registry.hpp"
#include "mutants/launches.hpp"

namespace flash::mutants {

void run_entries(const Registry& registry, const std::string& name) {
  const auto run = [](const auto& entry, const auto& pass) {
    if (!entry.why_not(problem_of(pass)).empty()) return;
    PassMemory memory;
    run_entry<DeviceTensor>(entry, pass, memory);
    device::synchronize();
  };
  const auto of_rung = [&name](const auto& passes) {
    auto entries = passes.entries();
    std::erase_if(entries, [&name](const auto& entry) { return entry.name != name; });
    return entries;
  };
  // The second has rows that TMA can copy. Both have as many steps of 64 keys as it takes for each
  // stage to be used again, and several tiles for each block that stays.
  for (const auto& entry : of_rung(registry.softmax_matmul))
    softmax_matmul([&](const auto& pass) { run(entry, pass); }, {{4, 33, 301, 8}, {4, 33, 300, 8}});
  for (const auto& entry : of_rung(registry.forward)) {
    const auto call = [&](const auto& pass) { run(entry, pass); };
    // The first has as many steps of 128 keys as it takes for each stage to be used again. In all
    // of them a block that stays (the emulated GPU has two multiprocessors) takes several tiles:
    // the short ones show that it waits for the memory of an earlier one. In the third two
    // warpgroups share all keys, and a block has six tiles, if there is one a multiprocessor.
    const std::vector<AttentionShape> shapes{{1, 4, 70, 420, 16},  {1, 6, 70, 30, 16},
                                             {1, 12, 70, 120, 16}, {1, 6, 70, 30, 256},
                                             {1, 1, 70, 300, 264}, {1, 1, 70, 300, 520}};
    entry.run.float32 ? forward<float>(call, shapes) : forward<Half>(call, shapes);
    // A rung that takes nothing without a mask: for each stage several steps of 64 keys.
    forward<Half>(
        [&](auto pass) {
          if (entry.why_not(problem_of(pass)).empty()) return;
          pass.options.causal = true;
          run(entry, pass);
        },
        {{1, 2, 600, 600, 16}});
  }
  for (const auto& entry : of_rung(registry.decode))
    decode<Half>([&](const auto& pass) { run(entry, pass); }, {1500, 0, 40});
  for (const auto& entry : of_rung(registry.backward)) {
    const auto call = [&](const auto& pass) { run(entry, pass); };
    // As many steps of 128 queries as it takes for each stage to be used again.
    const AttentionShape shape{1, 1, 400, 150, 16};
    if (entry.run.float32) {
      backward<float>(call, shape);
      backward<float>(call, {1, 1, 70, 40, 264});
      continue;
    }
    backward<Half>(call, shape);
    backward<Half>(call, {1, 1, 70, 40, 72});  // in heads of 128 warps may share rows
    backward<Half>(call, {1, 1, 300, 400, 264});
  }
}

}  // namespace flash::mutants
