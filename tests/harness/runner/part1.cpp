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
  functions_of<FusedCpuTask>().fused_softmax_matmul(softmax_matmul_pass(OnHost{call, memory}),
                                                    {call.integers[0], call.integers[1]});
}

void run_measure(const Message& call, Message& done) {
  Judges judges;
  put(done, functions_of<MeasureTask>().measure(judges, judges, static_cast<int>(call.integers[0]),
                                                static_cast<int>(call.integers[1])));
}

void run_measure_all(const Message& call) {
  std::vector<Configuration> configurations;
  for (int i = 0; i < call.integers[0]; ++i)
    configurations.push_back({std::to_string(i), [i] {
                                return measurement_in(ask_judge(kConfiguration, {.integers = {i}}));
                              }});
  for (const Row& row : functions_of<MeasureTask>().measure_all(configurations)) {
    Message message{};
    put(message, row.measurement);
    set_text(message, row.name + "\n" + row.status + "\n" + row.message);
    ask_judge(kRow, message);
  }
}

void run_list_of_runs() {
  for (const BenchmarkRun& run : functions_of<MeasureTask>().list_of_runs())
    ask_judge(kRow, {.integers = {run.d2, run.block}});
}

}  // namespace

bool run_part1(const Message& call, void* memory, Message& done) {
  switch (call.function) {
    case kMeasure: run_measure(call, done); return true;
    case kMeasureAll: run_measure_all(call); return true;
    case kListOfRuns: run_list_of_runs(); return true;
    case kFusedSoftmaxMatmul: run_fused(call, memory); return true;
    default: return false;
  }
}

}  // namespace flash::grading
