// The graded cases of task 1.A, the same for the CPU and the GPU: a case is a problem, its inputs
// and its bound.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/compare.hpp"
#include "common/inputs.hpp"
#include "common/memory_meter.hpp"
#include "harness/cases/device_checks.hpp"
#include "harness/cases/device_copy.hpp"
#include "harness/cases/graded_case.hpp"
#include "harness/cases/padded_pass.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash::part1 {

using harness::Layout;
using harness::PaddedTensor;
using harness::PassTensor;
using harness::TaskUnderTest;
using harness::Verdict;
using enum Pattern;
using enum Layout;

struct SoftmaxMatmulCase {
  std::string name;
  SoftmaxMatmulShape shape;
  SoftmaxMatmulBlocks blocks = {};
  Pattern x = kNormal, v = kNormal;
  Layout layout = kRowMajor;     // of x, v and out
  Index shift = 0;               // of their first elements behind an aligned address
  bool measures_memory = false;  // the extra memory has to stay below fused_extra_bytes()
  bool on_device = false;
  // A step's case: functions that later steps need may be empty, so only this shape and its own are
  // tried, and where all scores are equal they stay so.
  std::optional<SoftmaxMatmulShape> also_solved = std::nullopt;

  std::string requirement() const;
};

std::vector<SoftmaxMatmulCase> softmax_matmul_cases();

// Calls the function under test; returns the extra bytes that it had in use at its peak.
using RunFused = std::function<std::size_t(const SoftmaxMatmulCase&, PaddedTensor& x,
                                           PaddedTensor& v, PaddedTensor& out)>;

// Runs fused(pass, blocks) on the host.
template <class Fused>
RunFused on_host(Fused fused) {
  return [fused](const SoftmaxMatmulCase& problem, auto& x, auto& v, auto& out) {
    return host_memory::extra_bytes_of([&] {
      fused(SoftmaxMatmul<float>{x.view(), v.view(), out.view()}, problem.blocks);
    });
  };
}

// The same on a device, with copies of the tensors.
template <class Fused>
RunFused on_device(Fused fused) {
  return [fused](const SoftmaxMatmulCase& problem, auto& x, auto& v, auto& out) {
    harness::DeviceCopy device_x(x), device_v(v), device_out(out);
    const auto call = [&] {
      fused(SoftmaxMatmul<float>{device_x.view(), device_v.view(), device_out.view()},
            problem.blocks);
    };
    std::size_t extra_bytes = 0;
    problem.measures_memory ? void(extra_bytes = harness::extra_device_bytes(call)) : call();
    for (auto* const copy : {&device_x, &device_v, &device_out}) copy->copy_back();
    return extra_bytes;
  };
}

// Judges out by the oracle and softmax_matmul_bound(), what lies around out, x and v, and the extra
// memory.
Verdict judge(const SoftmaxMatmulCase& problem, std::uint64_t seed, const RunFused& run);

// `judge` for each of softmax_matmul_cases().
void add_softmax_matmul_cases(TaskUnderTest& task, const RunFused& run, bool on_device);

// With batches that are 2^31 elements apart.
void add_far_apart(TaskUnderTest& task,
                   const std::function<void(const SoftmaxMatmul<float>&)>& run);

// out against the oracle's softmax(x) v, `bound` being of its magnitude; "" when it is right.
template <class T>
std::string wrong_product(TensorView<const float, 3> got, TensorView<const T, 3> x,
                          TensorView<const T, 3> v, double bound, const std::string& row,
                          Index block);

}  // namespace flash::part1
