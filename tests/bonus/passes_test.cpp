// Every backward pass of the bonus in the registry, the rungs of its ladder among them.
#include "bonus/backward_cases.hpp"
#include "harness/needs_gpu.hpp"
#include "part3/on_device.hpp"

using namespace flash;

TEST_CASE("every pass gives the oracle's gradients, for every type, with a mask and without") {
  if (harness::skipped_without_gpu()) return;
  part3::check_pairs_of_all_types({{2, 2, 33, 66, 24}, {1, 1, 20, 40, 200}, {1, 2, 5, 0, 8}});
}

// Two tests, for ctest to run side by side.
TEST_CASE("every rung of the ladder solves the graded cases: whole blocks") {
  if (harness::skipped_without_gpu()) return;
  part3::check_cases<harness::BackwardCall>(all_passes().backward.entries(),
                                            bonus::cases_of_a_gradient());
}

TEST_CASE("every rung of the ladder solves the graded cases: masks, ragged ends and all the rest") {
  if (harness::skipped_without_gpu()) return;
  const Registry registry = all_passes();
  part3::check_cases<harness::BackwardCall>(registry.backward.entries(),
                                            bonus::cases_of_all_gradients());
  if (!device::is_emulated())
    part3::check_cases<harness::BackwardCall>(registry.backward.entries(), bonus::long_cases());
}

TEST_CASE("a problem that a pass does not take is named") {
  const Registry registry = all_passes();
  for (const auto& entry : registry.backward.entries()) {
    const auto why_not = [&](const AttentionShape& shape) {
      return entry.why_not({shape, {}, entry.dtypes().front(), {}});
    };
    CAPTURE(entry.name);
    CHECK(why_not({1, 1, 3, 5, 64}) == "");
    if (entry.name == "plain") continue;
    CHECK_THAT(why_not({1, 1, 3, 5, 264}),
               harness::ContainsSubstring("head_dim is 264; it must be at most "));
    CHECK_THAT(why_not({1, 1, 3, Index{1} << 31, 8}),
               harness::ContainsSubstring("keys is 2147483648; it must be at most "));
  }
}
