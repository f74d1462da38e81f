// Every pass of part 3 in the registry, the rungs of its ladder among them: what it gives, what is
// kept for the backward pass, and what it does not take.
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "common/best_pass.hpp"
#include "common/inputs.hpp"
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
                                   {2, 2, 33, 66, 24},
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
    if (names.forward != "standard" &&  // its products multiply 0 by NaN
        !registry.forward.find(names.forward, DeviceKind::kGpu).finite_inputs)
      part3::check_pair<float>(registry, names, {2, 2, 70, 70, 8}, true, Data::kNaN);
}

TEST_CASE("every rung of the ladder solves the graded cases") {
  if (harness::skipped_without_gpu()) return;
  // Emulated, flash_best is the rung that it chooses once more.
  const Registry registry = device::is_emulated() ? all_passes() : with_best(all_passes());
  auto problems = part3::forward_cases();
  problems.push_back(part3::narrow_case());
  if (!device::is_emulated()) std::ranges::copy(part3::long_cases(), std::back_inserter(problems));
  part3::check_cases<harness::ForwardCall>(registry.forward.entries(), problems);
}

namespace {

// The passes of the ladder: the task's and the peer have tests of their own.
std::vector<Entry<AttentionForward>> rungs_of(const Registry& registry) {
  std::vector<Entry<AttentionForward>> rungs;
  for (const auto& entry : registry.forward.entries())
    if (entry.name != "flash" && entry.name != "standard") rungs.push_back(entry);
  return rungs;
}

// Those that take heads of this width.
std::vector<Entry<AttentionForward>> rungs_for(Index head_dim) {
  std::vector<Entry<AttentionForward>> rungs = rungs_of(all_passes());
  std::erase_if(rungs, [&](const auto& rung) { return !part3::takes_heads_of(head_dim, rung); });
  return rungs;
}

}  // namespace

TEST_CASE("every rung gives the oracle's out and lse around the edges of its tiles") {
  if (harness::skipped_without_gpu()) return;
  const std::vector<DType> types{DType::kFloat16, DType::kBFloat16, DType::kFloat32};
  std::vector<harness::AttentionCase> problems;
  for (const DType type : types)
    for (const bool causal : {false, true})
      for (const Index head_dim : {64, 128, 256}) {
        std::vector<Index> lengths{1, 63, 64, 65, 127, 129, 193, 257, 1000};
        if (device::is_emulated()) {  // which takes seconds for the longest, and for all together
          if (causal == (type == DType::kFloat16) && type != DType::kFloat32) continue;
          lengths = head_dim == 64    ? std::vector<Index>{1, 64, 65, 129, 193}
                    : head_dim == 128 ? std::vector<Index>{1, 63, 129}
                                      : std::vector<Index>{1, 65};
        }
        for (const Index n : lengths) {
          const Index keys = n == 129 ? 70 : n == 193 ? 300 : n;
          problems.push_back({.name = std::to_string(n),
                              .shape = {1, n < 100 ? 2 : 1, n, keys, head_dim},
                              .causal = causal,
                              .type = type});
        }
      }
  using enum harness::Layout;
  for (harness::AttentionCase problem : std::vector<harness::AttentionCase>{
           {.name = "head_dim 72", .shape = {1, 2, 70, 70, 72}},
           {.name = "head_dim 152", .shape = {1, 1, 70, 170, 152}, .causal = true},
           {.name = "head_dim 192", .shape = {1, 1, 70, 70, 192}},
           {.name = "head_dim 200", .shape = {1, 1, 40, 90, 200}, .causal = true},
           {.name = "all keys in chunks: 200", .shape = {1, 1, 60, 200, 128}},
           {.name = "all keys in chunks: 300", .shape = {1, 2, 40, 300, 128}, .causal = true},
           {.name = "all keys in chunks: 450", .shape = {1, 1, 100, 450, 64}, .causal = true},
           {.name = "interleaved heads", .shape = {2, 3, 50, 70, 40}, .layout = kInterleavedHeads},
           {.name = "a scale of its own", .shape = {1, 1, 40, 70, 16}, .scale = 0.3},
           {.name = "large equal scores", .shape = {1, 1, 16, 3000, 16}, .data = Data::kEqual}})
    for (const DType type : types)
      problems.push_back(type == DType::kFloat32 ? problem : problem.of_type(type));
  part3::check_cases<harness::ForwardCall>(rungs_for(64), problems);
}

TEST_CASE("rungs for wide heads give the oracle's out and lse around the edges of their tiles") {
  if (harness::skipped_without_gpu()) return;
  part3::check_cases<harness::ForwardCall>(rungs_for(512), part3::wide_cases());
}

namespace {

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
template <class T>
std::uint32_t bits(T x) {
  return x.bits;
}

// Calls a forward pass twice; says what differs, or what it did not write.
template <class T>
std::string differs(const Entry<AttentionForward>& rung, const OnDevice<T>& x, bool causal) {
  Tensor<T, 4> outs[2];
  Tensor<float, 3> lses[2];
  for (int time = 0; time < 2; ++time) {
    const DeviceTensor<T, 4> out(x.q.shape());
    const DeviceTensor<float, 3> lse({out.shape()[0], out.shape()[1], out.shape()[2]});
    device::fill_bytes(out.data(), 0xff, out.bytes());
    device::fill_bytes(lse.data(), 0xff, lse.bytes());
    const AttentionForward<T> pass{x.q.view(), x.k.view(), x.v.view(),
                                   out.view(), lse.view(), {.causal = causal}};
    if (!part3::is_run(rung, pass)) return "";
    outs[time] = to_host(out.view());
    lses[time] = to_host(lse.view());
  }
  for (Index i = 0; i < outs[0].size(); ++i)
    if (!std::isfinite(static_cast<double>(outs[0].data()[i])) ||
        bits(outs[0].data()[i]) != bits(outs[1].data()[i]))
      return "element " + std::to_string(i) + " of out";
  for (Index i = 0; i < lses[0].size(); ++i)
    if (!(lses[0].data()[i] == lses[1].data()[i])) return "row " + std::to_string(i) + " of lse";
  return "";
}

}  // namespace

TEST_CASE("on random shapes a rung gives the same bits twice") {
  if (harness::skipped_without_gpu()) return;
  const auto rungs = rungs_of(all_passes());
  Random random(7);
  const auto upto = [&](Index most) { return 1 + static_cast<Index>(random.below(most)); };
  for (int n = 0; n < (device::is_emulated() ? 2 : 1000); ++n) {
    const Index longest = device::is_emulated() ? 100 : 400;
    const bool is_wide = n % 5 == 4;  // not emulated: these rungs have a test above
    const AttentionShape shape{upto(2), upto(3), upto(longest), upto(longest),
                               8 * (is_wide ? 32 + upto(96) : upto(32))};
    const bool causal = n % 2 == 1;
    CAPTURE(to_string<4>(shape.of_queries()), shape.keys, causal);
    const auto check = [&](const auto& x) {
      for (const auto& rung : rungs) CHECK(differs(rung, x, causal) == "");
    };
    check(OnDevice<float>(shape));
    if (n % 3 == 0)
      check(OnDevice<Half>(shape));
    else
      check(OnDevice<BFloat16>(shape));
  }
}

TEST_CASE("what is saved for the backward pass is q, k, v, out and lse, and nothing else is kept") {
  if (harness::skipped_without_gpu()) return;
  const Registry registry = all_passes();
  const OnDevice<Half> on_device({2, 3, 40, 60, 40});
  const std::size_t q_bytes = 2 * 2 * 3 * 40 * 40, k_bytes = 2 * 2 * 3 * 60 * 40,
                    lse_bytes = 4 * 2 * 3 * 40, p_bytes = 2 * 2 * 3 * 40 * 60;
  using Saved = std::vector<std::pair<std::string, std::size_t>>;
  for (const AttentionNames& names : part3::pairs_of(registry)) {
    CAPTURE(names.forward, names.backward);
    if (!registry.forward.find(names.forward, DeviceKind::kGpu).run.float16) continue;
    device::synchronize();
    const std::size_t before = device::memory_in_use();
    const auto pass = on_device.forward(registry, names, {.causal = true});  // all take a mask
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
  if (registry.forward.find_or_null("3_pipelined", DeviceKind::kGpu)) {
    const AttentionShape shape{1, 1, 8, 8, 16};
    const auto of_rung = [&](const AttentionProblem& problem) {
      return why_not(registry.forward, "3_pipelined", problem);
    };
    CHECK(of_rung({shape, {}, DType::kFloat16, {{"q", {128, 128, 16, 1}, 16}}}) == "");
    CHECK(of_rung({shape, {}, DType::kFloat32, {}}) == "there is no float32 version");
    CHECK(of_rung({{1, 1, 8, 8, 12}, {}, DType::kFloat16, {}}) ==
          "head_dim is 12; it must be a multiple of 8");
    CHECK(of_rung({shape, {.scale = -0.5}, DType::kFloat16, {}}) ==
          "scale is -0.500000; it must be a float above 0");
    CHECK(of_rung({shape, {}, DType::kFloat16, {{"k", {128, 128, 16, 1}, 8}}}) ==
          "k's address is only a multiple of 8 bytes; it must be a multiple of 16");
    CHECK(of_rung({shape, {}, DType::kFloat16, {{"v", {128, 128, 1, 8}, 16}}}) ==
          "v's stride along head_dim is 8; it must be 1");
    CHECK(of_rung({shape, {}, DType::kFloat16, {{"out", {128, 128, 12, 1}, 16}}}) ==
          "out's stride along axis 2 is 12; it must be a multiple of 8");
  }
  if (!registry.forward.find_or_null("standard", DeviceKind::kGpu)) return;  // no cuBLAS here
  AttentionProblem turned{
      {1, 1, 8, 8, 8}, {}, DType::kFloat32, {{"q", {64, 64, 1, 8}, 16}, {"lse", {8, 8, 2}, 4}}};
  CHECK(why_not(registry.forward, "standard", turned) ==
        "q has strides of 1 and 8 in its last two axes; cuBLAS needs a contiguous last axis and "
        "rows that do not overlap");
  turned.tensors[0].strides = {64, 64, 8, 1};
  CHECK(why_not(registry.backward, "standard", turned) == "");
}
