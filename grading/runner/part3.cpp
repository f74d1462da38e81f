// How the runner calls measure_attention() and measure_all(): the work, the clock and the
// configurations are the judge's.
#include <cstdio>

#include "common/error.hpp"
#include "grading/judge/attention_numbers.hpp"
#include "grading/judge/rows.hpp"
#include "grading/runner/runner.hpp"

namespace flash::grading {
namespace {

struct Judges : JudgesWork<AttentionWork> {
  void forward() override { ask_judge(kForward); }
  void prepare_backward() override { ask_judge(kPrepareBackward); }
  void backward() override { ask_judge(kBackward); }
  std::size_t saved_bytes() override { return static_cast<std::size_t>(ask_judge(kSavedBytes)); }
};

void run_measure_all(const Message& call, Message& done) {
  using MeasureAll = std::vector<AttentionRow>(const std::vector<AttentionConfiguration>&);
  auto* const measure_all = function<MeasureAll>(
      "_ZN5flash11measure_allERKSt6vectorINS_22AttentionConfigurationESaIS1_EE");
  std::vector<AttentionConfiguration> configurations;
  for (int i = 0; i < call.integers[0]; ++i)
    configurations.push_back({std::to_string(i), [i] {
                                AttentionMeasurement m;
                                m.status = AttentionStatus(
                                    static_cast<int>(ask_judge(Callback(kConfiguration + i))));
                                if (m.status != AttentionStatus::kOk) m.message = judges_message();
                                for (int n = 0; n < kNumbers; ++n)
                                  number_of(m, n) = ask_judge(Callback(kNumber + n));
                                return m;
                              }});
  std::vector<SentRow> sent;
  for (AttentionRow& row : measure_all(configurations)) {
    sent.push_back({row.name, to_string(row.measurement.status), row.measurement.message});
    for (int n = 0; n < kNumbers; ++n) put_number(sent.back(), number_of(row.measurement, n));
  }
  put_rows(done, sent);
}

}  // namespace

void run(const Message& call, void*, Message& done) {
  if (call.function == kMeasureAll) return run_measure_all(call, done);
  if (call.function != kMeasureAttention) throw Error("part 3 has no such function here");
  using Measure = AttentionMeasurement(AttentionWork&, Clock&, int, int);
  auto* const measure =
      function<Measure>("_ZN5flash17measure_attentionERNS_13AttentionWorkERNS_5ClockEii");
  Judges judges;
  AttentionMeasurement result = measure(judges, judges, static_cast<int>(call.integers[0]),
                                        static_cast<int>(call.integers[1]));
  done.integers[0] = static_cast<int>(result.status);
  for (int n = 0; n < kNumbers; ++n) done.numbers[n] = number_of(result, n);
  std::snprintf(done.text, kMostText, "%s", result.message.c_str());
}

}  // namespace flash::grading
