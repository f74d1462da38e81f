// Times softmax(X) V, fused against unfused, over the number of keys d2 and the block size: the
// program around task 1.B. What it measures is the task's list_of_runs(), the rows are what its
// measure_all() makes of them, and its measure() takes every time.
#include <algorithm>
#include <cctype>

#include "benchmarking/benchmark.hpp"
#include "benchmarking/memory.hpp"
#include "benchmarking/softmax_matmul_inputs.hpp"
#include "common/all_passes.hpp"
#include "part1_softmax_matmul/measure.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {
namespace {

using std::to_string;

using SoftmaxEntry = Entry<SoftmaxMatmul>;

// Whether a pass is task 1.A's function, with the blocks that its name ends with.
bool has_block(const SoftmaxEntry& entry) { return entry.name.starts_with("fused_"); }

template <template <class, int> class Memory>
class InputsOf final : public Inputs {
 public:
  InputsOf(const SoftmaxMatmulShape& shape, std::uint64_t seed,
           const std::vector<SoftmaxEntry>& entries)
      : entries_(entries), host_(shape, seed) {}

  std::size_t bytes() const override { return bytes_of(x_) + bytes_of(v_); }
  void prepare_check() override { host_.prepare_check(); }
  std::unique_ptr<Trial> trial(std::size_t i) override {
    return std::make_unique<OnePass>(*this, entries_[i]);
  }

 private:
  class OnePass final : public TrialIn<Memory> {
   public:
    OnePass(const InputsOf& inputs, const SoftmaxEntry& entry) : inputs_(inputs), entry_(entry) {}

    void prepare() override {
      out_ = {};
      this->memory_ = {};
      out_ = this->template output<float>(inputs_.host_.shape.of_out());
      pass_ = {inputs_.x_.view(), inputs_.v_.view(), out_.view()};
      this->reserve(entry_, pass_, bytes_of(out_));
    }
    void forward() override { entry_.run.float32(pass_, this->memory_); }
    Verdict check_forward() override { return inputs_.host_.check(on_host(out_).view()); }

   private:
    const InputsOf& inputs_;
    const SoftmaxEntry& entry_;
    Memory<float, 3> out_;
    SoftmaxMatmul<float> pass_;
  };

  const std::vector<SoftmaxEntry>& entries_;
  SoftmaxMatmulInputs host_;
  const InMemory<float, 3, Memory> x_{host_.x}, v_{host_.v};
};

class SoftmaxMatmulBenchmark final : public Benchmark {
 public:
  std::string table() const override { return "softmax_matmul"; }
  std::string purpose() const override {
    return "Times softmax(X) V, X (batch, d1, d2), V (batch, d2, d3), float32: fused against "
           "unfused.";
  }
  std::string default_device() const override { return has_gpu() ? "cuda" : "cpu"; }

  void declare(Options& options) override {
    constexpr std::int64_t kMost = 1 << 20;  // three of them stay below 2^63
    options.integer("batch", "batch size (default: 16; quick: 4 on a GPU, 2 on a CPU)", batch_, 1,
                    kMost);
    options.integer("d1", "rows of X (default: 2048; quick on a CPU: 128)", d1_, 1, kMost);
    options.integers(
        "d2", "keys, instead of those of list_of_runs() (of which quick on a CPU takes up to 1024)",
        d2_, 1, kMost);
    options.integer("d3", "columns of V (default: 512; quick on a CPU: 64)", d3_, 1, kMost);
    options.names("impl", "implementations, by name (default: all)", names_);
  }

  void decide(Settings& settings) override {
    gpu_ = settings.device == "cuda";
    const bool small = settings.quick && !gpu_;
    settings.warmups = settings.quick ? 2 : 10;
    settings.passes = settings.quick ? 10 : 100;
    seed_ = settings.seed;
    std::vector<Index> d2;
    if (!d2_) runs_ = task()->list_of_runs();
    for (const BenchmarkRun& run : runs_)
      if (std::find(d2.begin(), d2.end(), run.d2) == d2.end() && !(small && run.d2 > 1024))
        d2.push_back(run.d2);
    for (const Index keys : d2_.value_or(d2))
      sizes_.push_back({.batch = batch_.value_or(small            ? 2
                                                 : settings.quick ? 4
                                                                  : 16),
                        .d1 = d1_.value_or(small ? 128 : 2048),
                        .d2 = keys,
                        .d3 = d3_.value_or(small ? 64 : 512)});

    const Registry registry = all_passes();
    for (const SoftmaxEntry& entry : registry.softmax_matmul.entries())
      if ((entry.device == DeviceKind::kGpu) == gpu_) entries_.push_back(entry);
    const Strings known = implementations();
    for (const std::string& name : names_.value_or(known))
      if (!contains(known, name))
        throw OptionError("--impl is '" + name + "'; it must be one of: " + joined(known));
    std::erase_if(entries_, [&](const SoftmaxEntry& entry) {
      return names_ && !contains(*names_, entry.name);
    });
    if (sizes_.empty()) throw OptionError("list_of_runs() has no run: ./lab check part1.measure");
  }

  std::string headline() const override {
    const auto& [batch, d1, d2, d3] = sizes_.front();
    return "batch " + to_string(batch) + ", d1 " + to_string(d1) + ", d3 " + to_string(d3) +
           ", float32";
  }
  Strings implementations() const override {
    Strings names;
    for (const SoftmaxEntry& entry : entries_) names.push_back(entry.name);
    return names;
  }
  std::size_t sizes() const override { return sizes_.size(); }
  std::string name_of_size(std::size_t size) const override {
    return "d2 " + to_string(sizes_[size].d2);
  }
  std::unique_ptr<Inputs> inputs(std::size_t size) override {
#if FLASH_HAVE_CUDA
    if (gpu_) return std::make_unique<InputsOf<DeviceTensor>>(sizes_[size], seed_, entries_);
#endif
    return std::make_unique<InputsOf<Tensor>>(sizes_[size], seed_, entries_);
  }

  // Whatever is no function of the list is measured beside those that are.
  bool takes_part(std::size_t size, std::size_t i) const override {
    const std::string& name = entries_[i].name;
    if (d2_ || (name != "unfused" && !has_block(entries_[i]))) return true;
    return std::any_of(runs_.begin(), runs_.end(), [&](const BenchmarkRun& run) {
      return run.d2 == sizes_[size].d2 &&
             name == (run.block == 0 ? "unfused" : "fused_" + to_string(run.block));
    });
  }

  void run_size(std::size_t size, const std::function<void()>& measure_size) override {
    run_by<Configuration>(task()->measure_all, measurement_of, take, size, measure_size);
  }

  Turn measure(Runner& runner, Clock& clock, int warmups, int passes) override {
    WorkOf<Work> work(runner);
    const Measurement m = task()->measure(work, clock, warmups, passes);
    return {.status = m.out_of_memory ? "OOM" : "ok",
            .message = m.message,
            .forward = {m.mean_ms, m.std_ms, m.peak_MiB}};
  }

  CsvRow cells(std::size_t size, std::size_t i, const std::vector<Result>& results) const override {
    const Result& result = results[i];
    const auto& [batch, d1, d2, d3] = sizes_[size];
    const std::string& name = entries_[i].name;
    const auto cell = [&](double value) { return number_cell(result.has_forward, value); };
    const bool is_block = has_block(entries_[i]);
    const double flops = 2.0 * static_cast<double>(batch * d1) * static_cast<double>(d2 * d3);
    const double gflops = flops / result.forward.mean_ms * 1e-6, peak = result.peak_gflops;
    return {
        {"batch_size", to_string(batch)},
        {"d1", to_string(d1)},
        {"d2", to_string(d2)},
        {"d3", to_string(d3)},
        {"fused", is_block || std::isdigit(static_cast<unsigned char>(name[0])) ? "True" : "False"},
        {"BLOCK", is_block ? name.substr(6) : ""},
        {"forward_ms_mean", cell(result.forward.mean_ms)},
        {"forward_ms_std", cell(result.forward.std_ms)},
        {"forward_ms_median", cell(result.forward.median_ms)},
        {"spread_percent", cell(result.forward.spread_percent)},
        {"forward_peak_MiB", cell(result.forward.peak_MiB)},
        {"tflops", cell(gflops * 1e-3)},
        {"percent_of_peak", number_cell(result.has_forward && peak > 0, 100 * gflops / peak)}};
  }
  Strings shown_columns() const override {
    return {"implementation", "forward_ms_median", "forward_ms_mean",  "forward_ms_std",
            "tflops",         "percent_of_peak",   "forward_peak_MiB", "scaled_error"};
  }
  std::string remark(const std::vector<Result>& results) const override {
    double unfused = 0, fused = 0;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (!results[i].has_forward) continue;
      const double ms = results[i].forward.mean_ms;
      if (entries_[i].name == "unfused") unfused = ms;
      if (has_block(entries_[i]) && (fused == 0 || ms < fused)) fused = ms;
    }
    return unfused > 0 && fused > 0 ? format("best speed-up of fused: %.2fx", unfused / fused) : "";
  }

 private:
  static TaskLibrary<MeasureTask> task() { return all_passes().tasks.library<MeasureTask>(); }

  // What a configuration returns or throws.
  static Measurement measurement_of(const Result& result) {
    const PassResult& forward = result.forward;
    if (result.status == "ok")
      return {.mean_ms = forward.mean_ms, .std_ms = forward.std_ms, .peak_MiB = forward.peak_MiB};
    if (result.status == "OOM") return {.out_of_memory = true, .message = result.message};
    if (result.status == "unsupported") throw Unsupported(result.message);
    throw Error(result.message);
  }
  // And what the task made of it.
  static void take(const Row& row, Result& result) {
    if (row.status != "ok") return result.fail(row.status, row.message);
    result.status = row.status;
    const Measurement& measured = row.measurement;
    result.forward.mean_ms = measured.mean_ms;
    result.forward.std_ms = measured.std_ms;
    result.forward.peak_MiB = measured.peak_MiB;
  }

  std::optional<std::int64_t> batch_, d1_, d3_;
  std::optional<std::vector<std::int64_t>> d2_;
  std::optional<Strings> names_;
  bool gpu_ = false;
  std::uint64_t seed_ = 1;
  std::vector<SoftmaxMatmulShape> sizes_;
  std::vector<SoftmaxEntry> entries_;
  std::vector<BenchmarkRun> runs_;  // empty where --d2 says which
};

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::SoftmaxMatmulBenchmark().main(argc, argv); }
