// measure_attention(), measure_all() and list_of_attention_runs() of the judge: the student's run
// in the runner, and call back for the work, the clock and the configurations, which are the
// case's.
#include "harness/judge/attention_measurement.hpp"
#include "harness/judge/remote.hpp"

namespace flash {

using grading::Message;

AttentionMeasurement measure_attention(AttentionWork& work, Clock& clock, int warmups, int passes) {
  const auto on_callback = [&](const Message& question, Message& result) {
    switch (question.function) {
      case grading::kPrepare: work.prepare(); break;
      case grading::kForward: work.forward(); break;
      case grading::kPrepareBackward: work.prepare_backward(); break;
      case grading::kBackward: work.backward(); break;
      case grading::kSavedBytes: result.numbers[0] = static_cast<double>(work.saved_bytes()); break;
      default: grading::answer(question, result, work, clock);
    }
  };
  return grading::attention_measurement_in(
      grading::remote_call({.function = grading::kMeasureAttention,
                            .integers = {warmups, passes},
                            .on_callback = on_callback}));
}

std::vector<AttentionRow> measure_all(const std::vector<AttentionConfiguration>& configurations) {
  std::vector<AttentionRow> rows;
  grading::remote_rows(grading::kMeasureAllAttention, configurations,
                       [&rows](const std::string& name, const Message& row) {
                         rows.push_back({name, grading::attention_measurement_in(row)});
                       });
  return rows;
}

std::vector<AttentionRun> list_of_attention_runs() {
  constexpr std::size_t kMost = 1000;
  std::vector<AttentionRun> runs;
  const auto on_callback = [&](const Message& question, Message&) {
    if (question.function != grading::kRow) return;
    if (runs.size() == kMost) throw Error("list_of_attention_runs() returns too many runs");
    runs.push_back({question.integers[0], question.text});
  };
  (void)grading::remote_call(
      {.function = grading::kListOfAttentionRuns, .on_callback = on_callback});
  return runs;
}

}  // namespace flash
