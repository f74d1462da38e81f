// The functions of part 1 in the judge: each calls the student's in the runner, and measure() and
// measure_all() are called back for the work, the clock and the configurations, which are the
// case's.
#include "grading/judge/remote.hpp"
#include "part1_softmax_matmul/measure.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {

void fused_softmax_matmul(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks& blocks) {
  (void)grading::remote_call(
      grading::call_of(grading::kFusedSoftmaxMatmul, pass, {blocks.block_1, blocks.block_2}));
}

Measurement measure(Work& work, Clock& clock, int warmups, int passes) {
  const auto on_callback = [&](grading::Callback what) -> double {
    switch (what) {
      case grading::kPrepare: work.prepare(); break;
      case grading::kRun: work.run(); break;
      default: return grading::answer(what, work, clock);
    }
    return 0;
  };
  const auto done = grading::remote_call(
      {.function = grading::kMeasure, .integers = {warmups, passes}, .on_callback = on_callback});
  return {.out_of_memory = done.integers[0] != 0,
          .message = done.text,
          .mean_ms = done.numbers[0],
          .std_ms = done.numbers[1],
          .peak_MiB = done.numbers[2]};
}

std::vector<Row> measure_all(const std::vector<Configuration>& configurations) {
  std::vector<Row> rows;
  for (const auto& sent : grading::remote_rows(
           configurations, [](const Measurement&m) { return m.out_of_memory; },
           [](const Measurement&m, unsigned n) {
             return n == 0 ? m.mean_ms : n == 1 ? m.std_ms : m.peak_MiB;
           }))
    rows.push_back({.name = sent[0],
                    .status = sent[1],
                    .message = sent[2],
                    .measurement = {.mean_ms = grading::number_in(sent, 3),
                                    .std_ms = grading::number_in(sent, 4),
                                    .peak_MiB = grading::number_in(sent, 5)}});
  return rows;
}

}  // namespace flash
