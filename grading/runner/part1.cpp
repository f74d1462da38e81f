// How the runner calls the functions of part 1. The work and the clock of measure() are the
// judge's.
#include <cstdio>

#include "grading/judge/rows.hpp"
#include "grading/runner/runner.hpp"
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
  const Measurement result = measure(judges, judges, static_cast<int>(call.integers[0]),
                                     static_cast<int>(call.integers[1]));
  done.integers[0] = result.out_of_memory;
  done.numbers[0] = result.mean_ms;
  done.numbers[1] = result.std_ms;
  done.numbers[2] = result.peak_MiB;
  std::snprintf(done.text, kMostText, "%s", result.message.c_str());
}

void run_measure_all(const Message& call, Message& done) {
  using MeasureAll = std::vector<Row>(const std::vector<Configuration>&);
  auto* const measure_all =
      function<MeasureAll>("_ZN5flash11measure_allERKSt6vectorINS_13ConfigurationESaIS1_EE");
  std::vector<Configuration> configurations;
  for (int i = 0; i < call.integers[0]; ++i)
    configurations.push_back({std::to_string(i), [i] {
                                Measurement m;
                                m.out_of_memory = ask_judge(Callback(kConfiguration + i)) != 0;
                                if (m.out_of_memory) m.message = judges_message();
                                m.mean_ms = ask_judge(kNumber);
                                m.std_ms = ask_judge(Callback(kNumber + 1));
                                m.peak_MiB = ask_judge(Callback(kNumber + 2));
                                return m;
                              }});
  std::vector<SentRow> sent;
  for (const Row& row : measure_all(configurations)) {
    sent.push_back({row.name, row.status, row.message});
    for (const double number :
         {row.measurement.mean_ms, row.measurement.std_ms, row.measurement.peak_MiB})
      put_number(sent.back(), number);
  }
  put_rows(done, sent);
}

}  // namespace

void run(const Message& call, void* memory, Message& done) {
  if (call.function == kMeasure) return run_measure(call, done);
  if (call.function == kMeasureAll) return run_measure_all(call, done);
  if (call.function == kFusedSoftmaxMatmul) return run_fused(call, memory);
  throw Error("part 1 has no such function");
}

}  // namespace flash::grading
