// measure_attention() and measure_all() of the judge: the student's run in the runner, and call
// back for the work, the clock and the configurations, which are the case's.
#include "grading/judge/attention_numbers.hpp"
#include "grading/judge/remote.hpp"

namespace flash {

using grading::kNumbers;
using grading::number_of;

AttentionMeasurement measure_attention(AttentionWork& work, Clock& clock, int warmups, int passes) {
  const auto on_callback = [&](grading::Callback what) -> double {
    switch (what) {
      case grading::kPrepare: work.prepare(); break;
      case grading::kForward: work.forward(); break;
      case grading::kPrepareBackward: work.prepare_backward(); break;
      case grading::kBackward: work.backward(); break;
      case grading::kSavedBytes: return static_cast<double>(work.saved_bytes());
      default: return grading::answer(what, work, clock);
    }
    return 0;
  };
  const auto done = grading::remote_call({.function = grading::kMeasureAttention,
                                          .integers = {warmups, passes},
                                          .on_callback = on_callback});
  AttentionMeasurement result{.message = done.text};
  // What is no status of the contract is not taken for one.
  if (done.integers[0] == 1) result.status = AttentionStatus::kOutOfMemory;
  if (done.integers[0] == 2) result.status = AttentionStatus::kOutOfMemoryBackward;
  for (int n = 0; n < kNumbers; ++n) number_of(result, n) = done.numbers[n];
  return result;
}

std::vector<AttentionRow> measure_all(const std::vector<AttentionConfiguration>& configurations) {
  std::vector<AttentionRow> rows;
  for (const auto& sent : grading::remote_rows(
           configurations,
           [](const AttentionMeasurement&m) { return static_cast<double>(m.status); },
           [](AttentionMeasurement m, int n) { return n < kNumbers ? number_of(m, n) : 0; })) {
    AttentionMeasurement m{.status = AttentionStatus::kOk, .message = sent[2]};
    for (int status = 0; status <= static_cast<int>(AttentionStatus::kError); ++status)
      if (sent[1] == to_string(AttentionStatus(status))) m.status = AttentionStatus(status);
    for (int n = 0; n < kNumbers; ++n) number_of(m, n) = grading::number_in(sent, 3 + n);
    rows.push_back({sent[0], m});
  }
  return rows;
}

}  // namespace flash
