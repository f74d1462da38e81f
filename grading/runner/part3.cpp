// How the runner calls measure_attention(): the work and the clock are the judge's.
#include <cstdio>

#include "common/error.hpp"
#include "grading/runner/runner.hpp"
#include "part3_flash_cuda/measure_attention.hpp"

namespace flash::grading {
namespace {

class JudgesWork : public AttentionWork, public Clock {
 public:
  void prepare() override { ask_judge(kPrepare); }
  void forward() override { ask_judge(kForward); }
  void prepare_backward() override { ask_judge(kPrepareBackward); }
  void backward() override { ask_judge(kBackward); }
  std::size_t saved_bytes() override { return static_cast<std::size_t>(ask_judge(kSavedBytes)); }
  void reset_peak_memory() override { ask_judge(kResetPeakMemory); }
  std::size_t peak_memory_bytes() override {
    return static_cast<std::size_t>(ask_judge(kPeakMemoryBytes));
  }
  void synchronize() override { ask_judge(kSynchronize); }
  double now_ms() override { return ask_judge(kNowMs); }
};

}  // namespace

void run(const Message& call, void*, Message& done) {
  if (call.function != kMeasureAttention) throw Error("part 3 has no such function here");
  using Measure = AttentionMeasurement(AttentionWork&, Clock&, int, int);
  auto* const measure =
      function<Measure>("_ZN5flash17measure_attentionERNS_13AttentionWorkERNS_5ClockEii");
  JudgesWork judges;
  const AttentionMeasurement result = measure(judges, judges, static_cast<int>(call.integers[0]),
                                              static_cast<int>(call.integers[1]));
  done.integers[0] = static_cast<int>(result.status);
  const double numbers[] = {result.forward_ms_mean,      result.forward_ms_std,
                            result.forward_peak_MiB,     result.backward_ms_mean,
                            result.backward_ms_std,      result.backward_peak_MiB,
                            result.saved_activations_MiB};
  for (int n = 0; n < 7; ++n) done.numbers[n] = numbers[n];
  std::snprintf(done.text, kMostText, "%s", result.message.c_str());
}

}  // namespace flash::grading
