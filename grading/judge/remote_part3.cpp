// measure_attention() of the judge: the student's runs in the runner, and calls back for the work
// and the clock, which are the case's.
#include "grading/judge/remote.hpp"
#include "part3_flash_cuda/measure_attention.hpp"

namespace flash {

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
  double* const numbers[] = {&result.forward_ms_mean,      &result.forward_ms_std,
                             &result.forward_peak_MiB,     &result.backward_ms_mean,
                             &result.backward_ms_std,      &result.backward_peak_MiB,
                             &result.saved_activations_MiB};
  for (int n = 0; n < 7; ++n) *numbers[n] = done.numbers[n];
  return result;
}

}  // namespace flash
