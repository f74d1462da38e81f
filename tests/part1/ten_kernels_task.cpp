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

// A mistake, by how often it counts term k of a sum, or by the element of x that it takes.
struct Slip {
  std::string name, text;  // text: what the mistake is, behind "The result is what you get if"
  std::function<double(Index k)> weight = [](Index) { return 1; };
  std::function<Index(Index i, Index k)> element = nullptr;
};

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
  std::size_t most_served = 1000000;  // requests to shared memory, of warps
  double roundings = 1;  // of a term at most, if the sum is made as the kernel's comment says
  std::vector<Slip> slips = {};
};

std::vector<SmallKernel> small_kernels() {
  using enum SmallKernel::Shared;
  const auto same = [](Index i, Index) { return i; };
  return {
      {"the index of a thread", 512, 512, 1, same, [](double v) { return 2 * v; }, kAny, 4},
      {"bounds", 1000, 1000, 1, same, [](double v) { return v + 1; }},
      {"a grid-stride loop", 1900, 1900, 1, same, [](double v) { return v * v; }, kAny, 4},
      {"shared memory and a barrier", 512, 512, 1,
       [](Index i, Index) { return i / 128 * 128 + 127 - i % 128; }, [](double v) { return v; },
       kUsed},
      {.idea = "a tree sum",
       .n = 512,
       .outputs = 4,
       .terms = 128,
       .element = [](Index i, Index k) { return 128 * i + k; },
       .shared = kUsed,
       .most_served = 200,  // 116 where the threads share each step, 1544 where one adds all
       .roundings = 7,
       .slips = {{"first step missing", "the first step, where half is 64, is missing",
                  [](Index k) { return k < 64; }},
                 {"last step missing", "the last step, where half is 1, is missing",
                  [](Index k) { return k % 2 == 0; }}}},
      {.idea = "the shuffles of a warp",
       .n = 96,
       .outputs = 3,
       .terms = 32,
       .element = [](Index i, Index k) { return kWarp * i + k; },
       .shared = kUnused,
       .roundings = 5,
       .slips = {{"first step missing", "the step with distance 16 is missing",
                  [](Index k) { return k < 16; }},
                 {"last step missing", "the step with distance 1 is missing",
                  [](Index k) { return k % 2 == 0; }},
                 {"sum of the other lane alone",
                  "each step puts the other lane's sum in the place of this lane's: add it",
                  [](Index k) { return k == 31; }},
                 {"distance of a warp",
                  "there is a step with distance 32: a warp has the lanes 0 to 31, so each lane "
                  "adds its own sum",
                  [](Index) { return 2; }}}},
      {"coalesced loads and stores", 2048, 2048, 1, same, [](double v) { return -v; }, kAny, 4},
      {.idea = "bank conflicts",
       .n = 1024,
       .outputs = 1024,
       .terms = 1,
       .element = [](Index i, Index) { return i % kWarp * kWarp + i / kWarp; },
       .shared = kUsed,
       .most_sectors = 4,
       .slips = {{.name = "not transposed",
                  .text =
                      "y is x itself: the second loop reads the rows of the tile, and needs its "
                      "columns",
                  .element = same}}},
      {.idea = "several warps a row",
       .n = 3000,
       .outputs = 3,
       .terms = 1000,
       .element = [](Index i, Index k) { return 1000 * i + k; },
       .shared = kUsed,
       .most_sectors = 4,
       .roundings = 16,
       .slips = {{"warp_sum() dropped",
                  "the value that warp_sum() returns is not used: it does not change its argument",
                  [](Index k) { return k % kWarp == 0; }},
                 {"first warp only", "only the sum of the first warp is stored",
                  [](Index k) { return k % 128 < kWarp; }},
                 {"first warp twice", "the sum of the first warp is counted twice",
                  [](Index k) { return k % 128 < kWarp ? 2 : 1; }},
                 {"no loop over the columns", "each thread adds only one column",
                  [](Index k) { return k < 128; }}}},
      {"four floats at a time", 4000, 4000, 1, same, [](double v) { return 3 * v; }, kAny, 16, 32}};
}

struct Expected {
  double sum = 0, bound = 0;
  bool is(double value) const { return std::fabs(value - sum) <= bound; }
};

Expected expected(const SmallKernel& kernel, const Tensor<float, 1>& x, Index i,
                  const Slip* slip = nullptr) {
  Expected all;
  const auto& element = slip != nullptr && slip->element ? slip->element : kernel.element;
  for (Index k = 0; k < kernel.terms; ++k) {
    const double term = kernel.map(x(element(i, k))) * (slip == nullptr ? 1 : slip->weight(k));
    all.sum += term;
    all.bound += 0x1p-24 * kernel.roundings * std::fabs(term);
  }
  return all;
}

harness::Diagnosis named(int number, const SmallKernel& kernel, const Tensor<float, 1>& x,
                         const Tensor<float, 1>& y) {
  for (const Slip& slip : kernel.slips) {
    bool is_it = true;
    for (Index i = 0; i < kernel.outputs; ++i) is_it &= expected(kernel, x, i, &slip).is(y(i));
    if (is_it)
      return {slip.name, "The result is what you get if " + slip.text + ".",
              "kernel " + std::to_string(number)};
  }
  return {};
}

std::string wrong_values(const SmallKernel& kernel, const Tensor<float, 1>& x,
                         const Tensor<float, 1>& y) {
  Index wrong = 0;
  std::string first;
  for (Index i = 0; i < kernel.outputs; ++i) {
    const Expected right = expected(kernel, x, i);
    if (right.is(y(i)) || ++wrong > 1) continue;
    first = "y[" + std::to_string(i) + "]: got " +
            (std::isnan(y(i)) ? "NaN (never written, or added to what was there)" : to_text(y(i))) +
            ", expected " + to_text(right.sum);
  }
  return wrong == 0 ? ""
                    : std::to_string(wrong) + " of " + std::to_string(kernel.outputs) +
                          " elements are wrong; the first is " + first;
}

std::string wrong_sectors(const std::string& what, std::size_t sectors, std::size_t requests,
                          double most) {
  const auto per_request = static_cast<double>(sectors) / static_cast<double>(requests);
  return per_request <= most ? ""
                             : "It is right, but in one step neighbouring threads do not access "
                               "neighbouring elements. A warp's request to " +
                                   what + " moves " + to_text(std::ceil(per_request * 10) / 10) +
                                   " sectors of 32 bytes on average; " + to_text(most) +
                                   " are enough (section 5 of cuda.md).";
}

std::string wrong_accesses(const SmallKernel& kernel, const device::Traffic& x,
                           const device::Traffic& y, const device::SharedAccesses& shared) {
  if (kernel.shared == SmallKernel::Shared::kUsed && shared.reads == 0)
    return "It is right, but does not use shared memory.";
  if (kernel.shared == SmallKernel::Shared::kUnused && shared.reads > 0)
    return "It is right, but uses shared memory; the lanes of a warp need none.";
  if (shared.wavefronts - shared.conflicts > kernel.most_served)
    return "It is right, but shared memory serves " +
           std::to_string(shared.wavefronts - shared.conflicts) + " requests of warps; " +
           std::to_string(kernel.most_served) +
           " are enough where in each step all threads that have a sum to add work at once.";
  if (x.load_requests > kernel.most_requests || y.store_requests > kernel.most_requests)
    return "Its warps make " + std::to_string(x.load_requests) + " requests to x and " +
           std::to_string(y.store_requests) + " to y; " + std::to_string(kernel.most_requests) +
           " are enough with float4.";
  for (const std::string& wrong :
       {wrong_sectors("x", x.load_sectors, x.load_requests, kernel.most_sectors),
        wrong_sectors("y", y.store_sectors, y.store_requests, kernel.most_sectors)})
    if (!wrong.empty()) return wrong;
  if (shared.conflicts == 0) return "";
  return "It is right, but shared memory serves its warps in " + std::to_string(shared.wavefronts) +
         " wavefronts, and " + std::to_string(shared.conflicts) +
         " of them are due to bank conflicts (section 5 of cuda.md).";
}

Verdict judge_kernel(int number, const SmallKernel& kernel, std::uint64_t seed) {
  const Tensor<float, 1> x = make_input<1>({kernel.n}, kNormal, seed);
  const DeviceTensor<float, 1> device_x(x), device_y({kernel.outputs});
  device::reset_traffic();
  run_small_kernel(number, device_x.view(), device_y.view());
  device::synchronize();
  const Tensor<float, 1> y = device_y.to_host();
  if (const std::string wrong = wrong_values(kernel, x, y); !wrong.empty())
    return {false, wrong, [=] { return named(number, kernel, x, y); }};
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
    task.add("kernel " + std::to_string(number) + ": " + kernel.idea, "kernels", Needs::kChecks,
             [number, kernel](auto seed) { return part1::judge_kernel(number, kernel, seed); });
  }
  return task;
}

}  // namespace flash::harness
