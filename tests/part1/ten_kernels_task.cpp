// Task part1.ten_kernels: a case for each of the small kernels, all under the emulator's checks.
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>

#include "common/cuda/device_tensor.hpp"
#include "harness/cases/device_checks.hpp"
#include "part1/softmax_matmul_cases.hpp"
#include "part1_softmax_matmul/ten_kernels.hpp"

namespace flash::part1 {
namespace {

constexpr Index kWarp = 32;

std::string to_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

struct SmallKernel {
  std::string idea;
  Index n, outputs;
  // Element i of y is this sum over element(i, k) of x, for k below `terms`.
  Index terms;
  std::function<Index(Index i, Index k)> element;
  std::function<double(double)> map = [](double value) { return value; };
  enum class Shared { kAny, kUsed, kUnused } shared = Shared::kAny;
  double most_sectors = 32;  // of a request
  std::size_t most_requests = 1000000;
};

std::vector<SmallKernel> small_kernels() {
  using enum SmallKernel::Shared;
  const auto same = [](Index i, Index) { return i; };
  return {
      {"the index of a thread", 512, 512, 1, same, [](double v) { return 2 * v; }},
      {"bounds", 1000, 1000, 1, same, [](double v) { return v + 1; }},
      {"a grid-stride loop", 1900, 1900, 1, same, [](double v) { return v * v; }},
      {"shared memory and a barrier", 512, 512, 1,
       [](Index i, Index) { return i / 128 * 128 + 127 - i % 128; }, [](double v) { return v; },
       kUsed},
      {"a tree sum", 512, 4, 128, [](Index i, Index k) { return 128 * i + k; },
       [](double v) { return v; }, kUsed},
      {"the shuffles of a warp", 96, 3, 32, [](Index i, Index k) { return kWarp * i + k; },
       [](double v) { return v; }, kUnused},
      {"coalesced loads and stores", 2048, 2048, 1, same, [](double v) { return -v; }, kAny, 4},
      {"bank conflicts", 1024, 1024, 1,
       [](Index i, Index) { return i % kWarp * kWarp + i / kWarp; }, [](double v) { return v; },
       kUsed, 4},
      {"several warps a row", 3000, 3, 1000, [](Index i, Index k) { return 1000 * i + k; },
       [](double v) { return v; }, kUsed},
      {"four floats at a time", 4000, 4000, 1, same, [](double v) { return 3 * v; }, kAny, 16, 32}};
}

std::string wrong_values(const SmallKernel& kernel, const Tensor<float, 1>& x,
                         const Tensor<float, 1>& y) {
  Index wrong = 0;
  std::string first;
  for (Index i = 0; i < kernel.outputs; ++i) {
    double sum = 0, magnitude = 0;
    for (Index k = 0; k < kernel.terms; ++k) {
      const double term = kernel.map(x(kernel.element(i, k)));
      sum += term;
      magnitude += std::fabs(term);
    }
    // Each addition, in whatever order, is rounded once.
    const double bound = 0x1p-24 * static_cast<double>(kernel.terms) * magnitude;
    if (std::fabs(y(i) - sum) <= bound) continue;
    if (++wrong > 1) continue;
    first = "y[" + std::to_string(i) + "]: got " +
            (std::isnan(y(i)) ? "NaN (never written?)" : to_text(y(i))) + ", expected " +
            to_text(sum);
  }
  return wrong == 0 ? ""
                    : std::to_string(wrong) + " of " + std::to_string(kernel.outputs) +
                          " elements are wrong; the first is " + first;
}

std::string wrong_sectors(const std::string& what, std::size_t sectors, std::size_t requests,
                          double most) {
  const auto per_request = static_cast<double>(sectors) / static_cast<double>(requests);
  return per_request <= most ? ""
                             : "A warp's request to " + what + " moves " + to_text(per_request) +
                                   " sectors of 32 bytes on average; " + to_text(most) +
                                   " are enough if neighbouring lanes have neighbouring elements.";
}

std::string wrong_accesses(const SmallKernel& kernel, const device::Traffic& x,
                           const device::Traffic& y, const device::SharedAccesses& shared) {
  if (kernel.shared == SmallKernel::Shared::kUsed && shared.reads == 0)
    return "It is right, but does not use shared memory.";
  if (kernel.shared == SmallKernel::Shared::kUnused && shared.reads > 0)
    return "It is right, but uses shared memory; the lanes of a warp need none.";
  if (x.load_requests > kernel.most_requests || y.store_requests > kernel.most_requests)
    return "Its warps make " + std::to_string(x.load_requests) + " requests to x and " +
           std::to_string(y.store_requests) + " to y; " + std::to_string(kernel.most_requests) +
           " are enough with float4.";
  for (const std::string& wrong :
       {wrong_sectors("x", x.load_sectors, x.load_requests, kernel.most_sectors),
        wrong_sectors("y", y.store_sectors, y.store_requests, kernel.most_sectors)})
    if (!wrong.empty()) return wrong;
  if (shared.conflicts == 0) return "";
  return "Shared memory serves its warps in " + std::to_string(shared.wavefronts) +
         " wavefronts; " + std::to_string(shared.conflicts) + " of them are due to bank conflicts.";
}

Verdict judge_kernel(int number, const SmallKernel& kernel, std::uint64_t seed) {
  const Tensor<float, 1> x = make_input<1>({kernel.n}, kNormal, seed);
  const DeviceTensor<float, 1> device_x(x), device_y({kernel.outputs});
  device::reset_traffic();
  run_small_kernel(number, device_x.view(), device_y.view());
  device::synchronize();
  if (const std::string wrong = wrong_values(kernel, x, device_y.to_host()); !wrong.empty())
    return {false, wrong};
  return harness::verdict_on(
      wrong_accesses(kernel, device::traffic(device_x.data()).value_or(device::Traffic{}),
                     device::traffic(device_y.data()).value_or(device::Traffic{}),
                     device::shared_accesses().value_or(device::SharedAccesses{})));
}

}  // namespace
}  // namespace flash::part1

namespace flash::harness {

TaskUnderTest ten_kernels_task() {
  TaskUnderTest task{.id = "part1.ten_kernels", .is_cuda = true};
  int number = 0;
  for (const part1::SmallKernel& kernel : part1::small_kernels()) {
    ++number;
    task.cases.push_back(
        {"kernel " + std::to_string(number) + ": " + kernel.idea, "kernels",
         [number, kernel](auto seed) { return part1::judge_kernel(number, kernel, seed); },
         Needs::kChecks});
  }
  return task;
}

}  // namespace flash::harness
