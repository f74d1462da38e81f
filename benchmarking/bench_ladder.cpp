// Times the rungs of part 1's CPU ladder beside the solution they start from, on the same inputs, one call of each in turn: what
// disturbs the machine for a while disturbs all of them. Reports medians; a ratio is the median of the ratios within a turn.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "benchmarking/csv_table.hpp"
#include "benchmarking/interrupt.hpp"
#include "benchmarking/options.hpp"
#include "benchmarking/program.hpp"
#include "benchmarking/screen.hpp"
#include "common/compare.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "part1_softmax_matmul/ladder/ladder.hpp"

namespace flash {
namespace {

const CsvSchema kSchema{
    .columns = {"implementation", "batch_size", "d1", "d2", "d3", "BLOCK", "forward_ms_median", "forward_ms_p10",
                "forward_ms_p90", "speed_up", "device", "dtype", "status", "gflops"},
    .key = {"implementation", "batch_size", "d1", "d2", "d3", "BLOCK", "device", "dtype"},
};

struct Settings {
  std::optional<std::int64_t> batch = 2, d1 = 256, d2 = 1024, d3 = 64, block = 32, turns = 21;
  std::filesystem::path output = std::filesystem::path(FLASH_REPOSITORY) / "outputs/csv/ladder_softmax_matmul.csv";
};

// The solution, then the rungs.
Registry<FusedCpu> contenders() {
  Registry<FusedCpu> registry;
  registry.add({.name = "solution", .device = DeviceKind::kCpu, .dtypes = {DType::kFloat32}, .constraints = "",
                .run = fused_softmax_matmul});
  register_fused_cpu_ladder(registry);
  return registry;
}

class Benchmark {
 public:
  explicit Benchmark(const Settings& settings)
      : batch_(*settings.batch), d1_(*settings.d1), d2_(*settings.d2), d3_(*settings.d3), block_(*settings.block),
        turns_(static_cast<int>(*settings.turns)), table_(settings.output, kSchema),
        x_(make_input<3>({batch_, d1_, d2_}, Pattern::kNormal, 1)), v_(make_input<3>({batch_, d2_, d3_}, Pattern::kNormal, 2)) {}

  int run() {
    screen_.line(format("softmax(X) V on the CPU, one thread: batch %lld, d1 %lld, d2 %lld, d3 %lld, block %lld, float32; %d turns",
                        static_cast<long long>(batch_), static_cast<long long>(d1_), static_cast<long long>(d2_),
                        static_cast<long long>(d3_), static_cast<long long>(block_), turns_));
    const Registry<FusedCpu> registry = contenders();
    std::vector<const Implementation<FusedCpu>*> right;
    int wrong = 0;
    for (const auto& entry : registry.entries()) {
      std::string text;
      try {
        text = check(entry);
      } catch (const Unsupported& constraint) {
        screen_.line(entry.name + ": unsupported: " + constraint.what());
        record(entry, "unsupported", {}, {});
        continue;
      }
      if (text.empty()) {
        right.push_back(&entry);
      } else {
        screen_.line(entry.name + ": error: " + text);
        record(entry, "error", {}, {});
        ++wrong;
      }
    }

    std::vector<std::vector<double>> times(right.size());
    for (int turn = 0; turn <= turns_; ++turn)  // turn 0 warms up
      for (std::size_t i = 0; i < right.size(); ++i) {
        throw_if_interrupted();
        screen_.progress(turn, turns_, right[i]->name);
        const double ms = timed(*right[i]);
        if (turn > 0) times[i].push_back(ms);
      }

    std::vector<std::vector<std::string>> rows{{"implementation", "median ms", "GFLOP/s", "speed-up"}};
    for (std::size_t i = 0; i < right.size(); ++i) {
      std::vector<double> ratios;
      for (int turn = 0; turn < turns_; ++turn) ratios.push_back(times[0][turn] / times[i][turn]);
      record(*right[i], "ok", times[i], ratios);
      rows.push_back({right[i]->name, format("%.4g", quantile(times[i], 0.5)), format("%.3g", gflops(quantile(times[i], 0.5))),
                      format("%.2fx", quantile(ratios, 0.5))});
    }
    for (const std::string& line : aligned(rows)) screen_.line(line);
    screen_.line("saved in " + table_.path().string());
    return wrong == 0 ? 0 : 1;
  }

 private:
  // Of the product, a multiplication and an addition each; the softmax is not counted.
  double gflops(double ms) const { return 2e-6 * static_cast<double>(batch_ * d1_ * d2_ * d3_) / ms; }

  Tensor<float, 3> result(const Implementation<FusedCpu>& entry) const {
    Tensor<float, 3> out({batch_, d1_, d3_});
    std::fill_n(out.data(), out.size(), poison());
    entry.run(x_.view(), v_.view(), out.view(), block_, block_);
    return out;
  }

  // Empty when the result is right. One batch index against the oracle: the whole would take longer than the benchmark.
  std::string check(const Implementation<FusedCpu>& entry) const {
    const Tensor<float, 3> out = result(entry);
    const TensorView<const float, 3> x(x_.data(), {1, d1_, d2_}), v(v_.data(), {1, d2_, d3_}), got(out.data(), {1, d1_, d3_});
    const Tensor<double, 3> want = softmax_matmul_oracle(x, v), magnitude = softmax_matmul_magnitude(x, v);
    const double bound = softmax_matmul_bound(d2_, 6);  // N(0, 1) hardly exceeds 6
    CompareOptions options;
    options.max_scaled = bound;
    options.max_frobenius = bound * std::sqrt(static_cast<double>(d2_));
    options.axes = {"batch", "row", "column"};
    options.magnitude = magnitude.data();
    const Comparison comparison = compare<3>(got, want, options);
    return comparison.pass ? "" : comparison.text.substr(0, comparison.text.find('\n'));
  }

  double timed(const Implementation<FusedCpu>& entry) const {
    Tensor<float, 3> out({batch_, d1_, d3_});
    const auto start = std::chrono::steady_clock::now();
    entry.run(x_.view(), v_.view(), out.view(), block_, block_);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

  void record(const Implementation<FusedCpu>& entry, const std::string& status, const std::vector<double>& ms,
              const std::vector<double>& ratios) {
    const auto number = [](const std::vector<double>& values, double share) {
      return values.empty() ? std::string() : format("%.6g", quantile(values, share));
    };
    table_.record({{"implementation", entry.name},
                   {"batch_size", std::to_string(batch_)},
                   {"d1", std::to_string(d1_)},
                   {"d2", std::to_string(d2_)},
                   {"d3", std::to_string(d3_)},
                   {"BLOCK", std::to_string(block_)},
                   {"forward_ms_median", number(ms, 0.5)},
                   {"forward_ms_p10", number(ms, 0.1)},
                   {"forward_ms_p90", number(ms, 0.9)},
                   {"speed_up", number(ratios, 0.5)},
                   {"device", to_string(entry.device)},
                   {"dtype", to_string(entry.dtypes.front())},
                   {"status", status},
                   {"gflops", ms.empty() ? "" : format("%.6g", gflops(quantile(ms, 0.5)))}});
  }

  const Index batch_, d1_, d2_, d3_, block_;
  const int turns_;
  CsvTable table_;
  Screen screen_;
  const Tensor<float, 3> x_, v_;
};

int run(int argc, char** argv) {
  Settings settings;
  Options options("bench_ladder", "Times the rungs of part 1's CPU ladder beside the solution, in turn.");
  options.integer("batch", "N", "batch size; default 2", settings.batch, 1, 1 << 20);
  options.integer("d1", "N", "rows of X; default 256", settings.d1, 1, 1 << 20);
  options.integer("d2", "N", "keys; default 1024", settings.d2, 1, 1 << 20);
  options.integer("d3", "N", "columns of V; default 64", settings.d3, 1, 1 << 20);
  options.integer("block", "N", "block_1 and block_2; default 32", settings.block, 1, 1 << 20);
  options.integer("turns", "N", "timed calls of each; default 21", settings.turns, 1, 1000000);
  options.file("output", "the CSV; default outputs/csv/ladder_softmax_matmul.csv in the repository", settings.output);
  if (!options.parse(argc, argv)) return 0;
  remember_interrupts();
  return Benchmark(settings).run();
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::run_program(argc, argv, flash::run); }
