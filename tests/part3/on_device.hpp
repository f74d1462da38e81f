// One attention problem on a device, and what passes of the registry make of it beside the oracle.
#pragma once

#include <string>
#include <vector>

#include "common/all_passes.hpp"
#include "common/attention_call.hpp"
#include "common/cuda/device_tensor.hpp"
#include "harness/cases/attention_case.hpp"
#include "harness/catch.hpp"

namespace flash::part3 {

using harness::AttentionCase;
using harness::Data;

template <class T>
struct OnDevice {
  harness::AttentionInputs<T> host;
  Tensor<T, 4> host_d_out;
  DeviceTensor<T, 4> q, k, v, d_out;

  explicit OnDevice(const AttentionShape& shape, Data data = Data::kNormal)
      : host(harness::make_inputs<T>(shape, data, 1)),
        host_d_out(normal<T>(shape.of_queries(), 1000)),
        q(host.q),
        k(host.k),
        v(host.v),
        d_out(host_d_out) {}

  Attention<T, DeviceTensor> forward(const Registry& registry, const AttentionNames& names,
                                     const AttentionOptions& options = {}) const {
    return {registry, names, q.view(), k.view(), v.view(), options};
  }
};

// A dense tensor of device memory.
template <class T, int Rank>
Tensor<std::remove_const_t<T>, Rank> to_host(const TensorView<T, Rank>& x) {
  Tensor<std::remove_const_t<T>, Rank> host(x.shape());
  device::synchronize();
  device::copy_to_host(host.data(), x.data(), sizeof(T) * static_cast<std::size_t>(host.size()));
  return host;
}

// Whether the emulator is spared the slow "plain" backward pass: part 3, which has no other one,
// tries it.
inline bool is_left_out(const std::string& name, std::size_t backward_passes) {
  return device::is_emulated() && name == "plain" && backward_passes > 1;
}

template <class EntryOfPass>
bool takes_heads_of(Index head_dim, const EntryOfPass& pass) {
  return pass.why_not({{1, 1, 8, 8, head_dim}, {}, pass.dtypes().front(), {}}).empty();
}

// Pairs in which each pass is used: of two passes of one name if it has both; a backward pass that
// stands alone with the forward pass "flash", a forward pass that does with the backward pass
// "plain". Of those the emulator takes only the last with float32 and the last without: out and lse
// of all of them have tests of their own, as have the passes for wide heads alone.
inline std::vector<AttentionNames> pairs_of(const Registry& registry) {
  std::vector<AttentionNames> pairs;
  for (const auto& entry : registry.backward.entries())
    if (!is_left_out(entry.name, registry.backward.entries().size()) && takes_heads_of(64, entry))
      pairs.push_back(
          {registry.forward.find_or_null(entry.name, entry.device) ? entry.name : "flash",
           entry.name});
  std::vector<std::string> alone[2];  // without float32, with it
  for (const auto& entry : registry.forward.entries())
    if (!registry.backward.find_or_null(entry.name, entry.device) && takes_heads_of(64, entry))
      alone[entry.run.float32 ? 1 : 0].push_back(entry.name);
  for (const auto& names : alone) {
    const bool all = !device::is_emulated() || names.empty();
    for (auto name = all ? names.begin() : names.end() - 1; name != names.end(); ++name)
      pairs.push_back({*name, "plain"});
  }
  return pairs;
}

// Forward and backward by these passes: out, lse and the gradients. Nothing where one of them does
// not take the problem.
template <class T>
void check_pair(const Registry& registry, const AttentionNames& names, const AttentionShape& shape,
                bool causal, Data data = Data::kNormal) {
  CAPTURE(names.forward, names.backward, to_string<4>(shape.of_queries()), shape.keys, causal,
          sizeof(T));
  const AttentionCase problem{.shape = shape, .causal = causal, .data = data};
  const OnDevice<T> on_device(shape, data);
  AttentionProblem dense{shape, problem.options(), dtype_of<T>(), {}};
  if (!registry.forward.find(names.forward, DeviceKind::kGpu).why_not(dense).empty() ||
      !registry.backward.find(names.backward, DeviceKind::kGpu).why_not(dense).empty())
    return;
  auto pass = on_device.forward(registry, names, problem.options());
  const auto d = pass.backward(on_device.d_out.view());

  const auto& [q, k, v] = on_device.host;
  const Tensor<T, 4> out = to_host(pass.out()), d_q = to_host(d.d_q.view()),
                     d_k = to_host(d.d_k.view()), d_v = to_host(d.d_v.view());
  const Tensor<float, 3> lse = to_host(pass.lse());
  CHECK(harness::wrong_outputs<T>(problem, q.view(), k.view(), v.view(), out.view(), lse.view()) ==
        "");
  CHECK(harness::wrong_gradients<T>(
            problem, {q.view(), k.view(), v.view(), {}, {}, on_device.host_d_out.view()},
            d_q.view(), d_k.view(), d_v.view()) == "");
}

template <class T>
void check_pairs(const Registry& registry, const AttentionShape& shape, bool causal,
                 Data data = Data::kNormal) {
  for (const AttentionNames& names : pairs_of(registry))
    check_pair<T>(registry, names, shape, causal, data);
}

// Each pair of passes, with a mask and without, for every type.
inline void check_pairs_of_all_types(const std::vector<AttentionShape>& shapes) {
  const Registry registry = all_passes();
  for (const bool causal : {false, true})
    for (const AttentionShape& shape : shapes) {
      // Each forward with each backward pass takes the emulator's checks half a minute.
      if (device::is_emulated() && shape.queries * shape.keys > 4096) continue;
      check_pairs<float>(registry, shape, causal);
      check_pairs<Half>(registry, shape, causal);
      check_pairs<BFloat16>(registry, shape, causal);
    }
}

// Runs one pass of the registry, and says whether it takes the problem.
template <class EntryOfPass, class Pass>
bool is_run(const EntryOfPass& entry, const Pass& pass) {
  if (!entry.why_not(problem_of(pass)).empty()) return false;
  PassMemory memory;
  run_entry<DeviceTensor>(entry, pass, memory);
  device::synchronize();
  return true;
}

// The graded cases with each pass of one direction, within its predicate. Not with the pass of the
// task, which is graded, nor with standard attention, the peer, which has tests of its own.
template <template <class, template <class, int> class> class Call, class Entries>
void check_cases(const Entries& entries, const std::vector<AttentionCase>& problems) {
  for (const auto& entry : entries) {
    if (entry.name == "flash" || entry.name == "standard") continue;
    if (is_left_out(entry.name, entries.size())) continue;
    int taken = 0;
    for (const AttentionCase& problem : problems)
      harness::with_type(problem.type, [&]<class T>(T) {
        const bool finite = problem.data != Data::kNaN && problem.data != Data::kNaNInScores &&
                            problem.data != Data::kMinusInfinity && problem.nan_in == nullptr;
        if (entry.finite_inputs && !finite) return;
        CAPTURE(entry.name, problem.name);
        Call<T, harness::DeviceCopy> call(problem, 1);
        if (!is_run(entry, call.tensors.pass())) return;
        ++taken;
        const harness::Verdict verdict = call.verdict();
        INFO(verdict.text);
        CHECK(verdict.pass);
      });
    CAPTURE(entry.name);
    CHECK(taken > 0);
  }
}

// So narrow that the rungs for narrow heads take it. Some rows do not see its NaN.
inline AttentionCase narrow_case() {
  return {.name = "head_dim 3: causal",
          .shape = {1, 2, 70, 100, 3},
          .causal = true,
          .data = Data::kNaN};
}

// Problems around the edges of the tiles of rungs for heads above 256, and those of `problems`.
inline std::vector<AttentionCase> wide_cases(std::vector<AttentionCase> problems = {}) {
  problems.insert(problems.end(),
                  {{.name = "264", .shape = {1, 2, 129, 193, 264}, .causal = true},
                   {.name = "no keys", .shape = {1, 2, 5, 0, 264}},
                   {.name = "520", .shape = {1, 1, 65, 97, 520}},
                   {.name = "1024", .shape = {1, 1, 70, 200, 1024}, .causal = true},
                   {.name = "400",
                    .shape = {2, 2, 5, 96, 400},
                    .layout = harness::Layout::kInterleavedHeads,
                    .scale = 0.3},
                   {.name = "1000", .shape = {1, 1, 1, 300, 1000}, .data = Data::kLargeScores},
                   {.name = "rising", .shape = {1, 1, 40, 290, 384}, .data = Data::kRising}});
  if (!device::is_emulated())
    for (const Index head_dim : {264, 384, 392, 512, 520, 768, 776, 1024})
      for (const Index n : {63, 64, 95, 97, 127, 128, 129, 1000, 1100})
        for (const bool causal : {false, true})
          problems.push_back({.name = std::to_string(n),
                              .shape = {1, 2, n, n == 129 ? 70 : n, head_dim},
                              .causal = causal});
  std::vector<AttentionCase> cases;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    cases.push_back(problems[i].of_type(i % 2 == 0 ? DType::kFloat16 : DType::kBFloat16));
    if (problems[i].shape.head_dim <= 512) cases.push_back(problems[i]);
  }
  return cases;
}

}  // namespace flash::part3
