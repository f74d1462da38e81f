// Every pass of part 3 in the registry, the rungs of its ladder among them: what it gives, what is
// kept for the backward pass, and what it does not take.
#include <algorithm>

#include "harness/needs_gpu.hpp"
#include "part3/forward_cases.hpp"
#include "part3/on_device.hpp"

using namespace flash;
using harness::Data;
using part3::check_pairs;
using part3::OnDevice;
using part3::to_host;

TEST_CASE("out, lse and the gradients are the oracle's, for every type, with a mask and without") {
  if (harness::skipped_without_gpu()) return;
  part3::check_pairs_of_all_types({{1, 1, 64, 64, 64},
                                   {2, 3, 37, 70, 24},
                                   {1, 2, 130, 33, 16},
                                   {1, 1, 1, 100, 8},
                                   {1, 1, 65, 65, 128},
                                   {1, 2, 5, 0, 8}});
}

TEST_CASE("the gradients survive large scores, and NaN reaches those that see it") {
  if (harness::skipped_without_gpu()) return;
  const Registry registry = all_passes();
  check_pairs<float>(registry, {1, 2, 64, 100, 64}, false, Data::kLargeScores);
  check_pairs<float>(registry, {1, 1, 40, 100, 16}, false, Data::kVeryNegative);
  for (const AttentionNames& names : part3::pairs_of(registry))
    if (names.forward != "standard")  // its products multiply 0 by NaN
      part3::check_pair<float>(registry, names, {2, 2, 70, 70, 8}, true, Data::kNaN);
}

TEST_CASE("every rung of the ladder solves the graded cases") {
  if (harness::skipped_without_gpu()) return;
  const Registry registry = all_passes();
  part3::check_cases<harness::ForwardCall>(registry.forward.entries(), part3::forward_cases());
  if (!device::is_emulated())
    part3::check_cases<harness::ForwardCall>(registry.forward.entries(), part3::long_cases());
}

TEST_CASE("what is saved for the backward pass is q, k, v, out and lse, and nothing else is kept") {
  if (harness::skipped_without_gpu()) return;
  const Registry registry = all_passes();
  const OnDevice<Half> on_device({2, 3, 200, 300, 40});
  const std::size_t q_bytes = 2 * 2 * 3 * 200 * 40, k_bytes = 2 * 2 * 3 * 300 * 40,
                    lse_bytes = 4 * 2 * 3 * 200, p_bytes = 2 * 2 * 3 * 200 * 300;
  using Saved = std::vector<std::pair<std::string, std::size_t>>;
  for (const AttentionNames& names : part3::pairs_of(registry)) {
    CAPTURE(names.forward, names.backward);
    device::synchronize();
    const std::size_t before = device::memory_in_use();
    const auto pass = on_device.forward(registry, names);
    const bool keeps_p = names.forward == "standard";
    CHECK(pass.saved() ==
          (keeps_p ? Saved{{"q", q_bytes}, {"k", k_bytes}, {"v", k_bytes}, {"kept", p_bytes}}
                   : Saved{{"q", q_bytes},
                           {"k", k_bytes},
                           {"v", k_bytes},
                           {"out", q_bytes},
                           {"lse", lse_bytes}}));
    CHECK(device::memory_in_use() - before == q_bytes + lse_bytes + (keeps_p ? p_bytes : 0));
  }
}

TEST_CASE("the plain backward pass runs out of memory as a result, and leaves nothing behind") {
  if (harness::skipped_without_gpu()) return;
  const Registry registry = all_passes();
  const OnDevice<float> on_device({1, 1, 512, 512, 16});
  auto pass = on_device.forward(registry, {"flash", "plain"});
  device::synchronize();
  const std::size_t before = device::memory_in_use();
  device::set_memory_limit(before + (std::size_t{1} << 20));
  CHECK_THROWS_AS(pass.backward(on_device.d_out.view()), OutOfMemory);
  device::set_memory_limit(std::nullopt);
  CHECK(device::memory_in_use() == before);
}

TEST_CASE("a pass that is not there, and a problem that a pass does not take, are named") {
  const Registry registry = all_passes();
  const TensorView<const float, 4> q(nullptr, {1, 1, 1, 1});
  const auto call = [&](const AttentionNames& names) {
    Attention<float, DeviceTensor>(registry, names, q, q, q);
  };
  CHECK_THROWS_WITH(
      call({"flush", "plain"}),
      harness::ContainsSubstring("pass is 'flush'; on cuda it must be one of: flash"));
  const auto why_not = [&](const auto& passes, const std::string& name,
                           const AttentionProblem& problem) {
    return passes.find(name, DeviceKind::kGpu).why_not(problem);
  };
  const AttentionProblem wide{{1, 1, 3, 5, 1025}, {}, DType::kFloat32, {}};
  CHECK(why_not(registry.forward, "flash", wide) == "head_dim is 1025; it must be at most 1024");
  CHECK(why_not(registry.backward, "plain", wide) == "");
  if (!registry.forward.find_or_null("standard", DeviceKind::kGpu)) return;  // no cuBLAS here
  AttentionProblem turned{
      {1, 1, 8, 8, 8}, {}, DType::kFloat32, {{"q", {64, 64, 1, 8}, 16}, {"lse", {8, 8, 2}, 4}}};
  CHECK(why_not(registry.forward, "standard", turned) ==
        "q has strides of 1 and 8 in its last two axes; cuBLAS needs a contiguous last axis and "
        "rows that do not overlap");
  turned.tensors[0].strides = {64, 64, 8, 1};
  CHECK(why_not(registry.backward, "standard", turned) == "");
}
