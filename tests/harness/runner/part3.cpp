// How the runner calls measure_attention() and measure_all(): the work, the clock and the
// configurations are the judge's.
#include "common/error.hpp"
#include "harness/judge/attention_measurement.hpp"
#include "harness/runner/runner.hpp"

namespace flash::grading {
namespace {

struct JudgesAttention : JudgesWork<AttentionWork> {
  void forward() override { ask_judge(kForward); }
  void prepare_backward() override { ask_judge(kPrepareBackward); }
  void backward() override { ask_judge(kBackward); }
  std::size_t saved_bytes() override {
    return static_cast<std::size_t>(ask_judge(kSavedBytes).numbers[0]);
  }
};

void run_measure_all_attention(const Message& call) {
  std::vector<AttentionConfiguration> configurations;
  for (int i = 0; i < call.integers[0]; ++i)
    configurations.push_back(
        {std::to_string(i),
         [i] { return attention_measurement_in(ask_judge(kConfiguration, {.integers = {i}})); }});
  for (const AttentionRow& row : functions_of<MeasureAttentionTask>().measure_all(configurations)) {
    Message message{};
    put(message, row.measurement);
    set_text(message, row.name + "\n" + row.measurement.message);
    ask_judge(kRow, message);
  }
}

void run_measure_attention(const Message& call, Message& done) {
  JudgesAttention judges;
  put(done,
      functions_of<MeasureAttentionTask>().measure_attention(
          judges, judges, static_cast<int>(call.integers[0]), static_cast<int>(call.integers[1])));
}

void run_list_of_attention_runs() {
  for (const AttentionRun& run : functions_of<MeasureAttentionTask>().list_of_attention_runs()) {
    Message message{.integers = {run.seq_len}};
    set_text(message, run.implementation);
    ask_judge(kRow, message);
  }
}

}  // namespace

bool run_part3(const Message& call, void*, Message& done) {
  switch (call.function) {
    case kMeasureAttention: run_measure_attention(call, done); return true;
    case kMeasureAllAttention: run_measure_all_attention(call); return true;
    case kListOfAttentionRuns: run_list_of_attention_runs(); return true;
    default: return false;
  }
}

}  // namespace flash::grading
