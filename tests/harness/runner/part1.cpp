// How the runner calls the functions of part 1. The work and the clock of measure() are the
// judge's.
#include "harness/judge/measurement.hpp"
#include "harness/runner/runner.hpp"
#include "part1_softmax_matmul/measure.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash::grading {
namespace {

struct Judges : JudgesWork<Work> {
  void run() override { ask_judge(kRun); }
};

void run_fused(const Message& call, void* memory) {
  using Fused = void(const SoftmaxMatmul<float>&, const SoftmaxMatmulBlocks&);
  function<Fused>(
      "_ZN5flash20fused_softmax_matmulERKNS_13SoftmaxMatmulIfEERKNS_19SoftmaxMatmulBlocksE")(
      softmax_matmul_pass(OnHost{call, memory}), {call.integers[0], call.integers[1]});
}

void run_measure(const Message& call, Message& done) {
  using Measure = Measurement(Work&, Clock&, int, int);
  auto* const measure = function<Measure>("_ZN5flash7measureERNS_4WorkERNS_5ClockEii");
  Judges judges;
  put(done, measure(judges, judges, static_cast<int>(call.integers[0]),
                    static_cast<int>(call.integers[1])));
}

void run_measure_all(const Message& call) {
  using MeasureAll = std::vector<Row>(const std::vector<Configuration>&);
  auto* const measure_all =
      function<MeasureAll>("_ZN5flash11measure_allERKSt6vectorINS_13ConfigurationESaIS1_EE");
  std::vector<Configuration> configurations;
  for (int i = 0; i < call.integers[0]; ++i)
    configurations.push_back({std::to_string(i), [i] {
                                return measurement_in(ask_judge(kConfiguration, {.integers = {i}}));
                              }});
  for (const Row& row : measure_all(configurations)) {
    Message message{};
    put(message, row.measurement);
    set_text(message, row.name + "\n" + row.status + "\n" + row.message);
    ask_judge(kRow, message);
  }
}

}  // namespace

void run(const Message& call, void* memory, Message& done) {
  if (call.function == kMeasure) return run_measure(call, done);
  if (call.function == kMeasureAll) return run_measure_all(call);
  if (call.function == kFusedSoftmaxMatmul) return run_fused(call, memory);
  throw Error("part 1 has no such function");
}

}  // namespace flash::grading
