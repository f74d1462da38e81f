// Times softmax(X) V, fused against unfused, over the number of keys d2 and the block size: the program around task 1.B.
//
// Every time comes from the contract's measure(). A configuration's result is checked before it is timed, and the CSV is saved
// after each row. README.md beside this file says what the columns mean and how the measuring is done.
#include <algorithm>
#include <map>

#include "benchmarking/csv_table.hpp"
#include "benchmarking/interrupt.hpp"
#include "benchmarking/machine.hpp"
#include "benchmarking/options.hpp"
#include "benchmarking/program.hpp"
#include "benchmarking/row.hpp"
#include "benchmarking/screen.hpp"
#include "benchmarking/softmax_matmul_problem.hpp"

namespace flash {
namespace {

const CsvSchema kSchema{
    .columns = {"batch_size", "d1", "d2", "d3", "fused", "BLOCK", "forward_ms_mean", "forward_ms_std", "forward_peak_MiB",
                "device", "dtype", "status", "tflops", "gpu"},
    .key = {"batch_size", "d1", "d2", "d3", "fused", "BLOCK", "device", "dtype", "gpu"},
};

// ---- Settings ------------------------------------------------------------------------------------------------------------

struct Settings {
  std::string device;  // "cuda" or "cpu"
  bool quick = false;
  Index batch = 16, d1 = 2048, d3 = 512;
  std::vector<Index> d2 = {64, 128, 256, 512, 1024, 2048, 4096, 8192};
  std::vector<Index> blocks = {16, 32, 64};
  int warmups = 10, passes = 100;
  std::string only;  // "fused", "unfused", or empty: both
  std::optional<std::size_t> memory_limit;
  std::filesystem::path output;
  std::uint64_t seed = 1;
};

// --quick, in place of the defaults above: seconds instead of minutes (GPU) or hours (CPU). Sizes of their own, so that its
// rows never replace those of a complete run.
void make_quick(Settings& settings) {
  settings.quick = true;
  settings.warmups = 2;
  settings.passes = 10;
  if (settings.device == "cuda") {
    settings.batch = 4;
  } else {
    settings.batch = 2;
    settings.d1 = 128;
    settings.d3 = 64;
    settings.d2 = {64, 128, 256, 512, 1024};
  }
}

// The repository that the program was built in; where that is gone, the current folder.
std::filesystem::path default_output() {
  const std::filesystem::path root = FLASH_REPOSITORY;
  std::error_code error;
  return (std::filesystem::is_directory(root, error) ? root : "") / "outputs/csv/softmax_matmul_benchmark.csv";
}

// Nothing when --help was asked for. Throws OptionError.
std::optional<Settings> parse(int argc, const char* const* argv) {
  constexpr std::int64_t kMostExtent = 1 << 20;  // three of them stay below 2^63
  bool quick = false;
  std::optional<std::string> device, only;
  std::optional<std::int64_t> batch, d1, d3, warmups, passes, seed;
  std::optional<std::vector<std::int64_t>> d2, blocks;
  Settings settings{.output = default_output()};

  Options options(std::filesystem::path(argv[0]).filename().string(),
                  "Times softmax(X) V, X (batch, d1, d2), V (batch, d2, d3), float32: fused against unfused.");
  options.choice("device", "where to run; default: the GPU where there is one", device, {"gpu", "cpu"});
  options.flag("quick", "a smaller problem and fewer passes: seconds, on a laptop too", quick);
  options.integer("batch", "N", "batch size; default 16 (quick: 4 on a GPU, 2 on a CPU)", batch, 1, kMostExtent);
  options.integer("d1", "N", "rows of X; default 2048 (quick: 2048 on a GPU, 128 on a CPU)", d1, 1, kMostExtent);
  options.integers("d2", "keys, one row of the benchmark each; default 64,128,...,8192 (quick on a CPU: to 1024)", d2, 1,
                   kMostExtent);
  options.integer("d3", "N", "columns of V; default 512 (quick: 512 on a GPU, 64 on a CPU)", d3, 1, kMostExtent);
  options.integers("blocks", "block sizes of the fused function (block_1 = block_2); default 16,32,64", blocks, 1, kMostExtent);
  options.integer("warmups", "N", "passes before the timed ones; default 10 (quick: 2)", warmups, 0, 1000000);
  options.integer("passes", "N", "timed passes; default 100 (quick: 10)", passes, 1, 1000000);
  options.choice("only", "leave out the other one", only, {"fused", "unfused"});
  options.bytes("memory-limit", "cap what inputs, output and work may allocate on the device (on the host with\n"
                "--device cpu), like 512MiB or 1.5GiB: running out is a row with the status OOM", settings.memory_limit);
  options.file("output", "the CSV; default outputs/csv/softmax_matmul_benchmark.csv in the repository", settings.output);
  options.integer("seed", "N", "of the inputs; default 1", seed, 0, std::int64_t{1} << 32);
  if (!options.parse(argc, argv)) return std::nullopt;

  if (device == "gpu" && !has_gpu())
    throw OptionError(std::string("--device is 'gpu'; it must be cpu here: ") +
                      (FLASH_HAVE_CUDA ? "this machine has no usable GPU" : "this program was built without CUDA"));
  settings.device = device ? (*device == "gpu" ? "cuda" : "cpu") : (has_gpu() ? "cuda" : "cpu");
  if (quick) make_quick(settings);
  settings.batch = batch.value_or(settings.batch);
  settings.d1 = d1.value_or(settings.d1);
  settings.d2 = d2.value_or(settings.d2);
  settings.d3 = d3.value_or(settings.d3);
  settings.blocks = blocks.value_or(settings.blocks);
  settings.warmups = static_cast<int>(warmups.value_or(settings.warmups));
  settings.passes = static_cast<int>(passes.value_or(settings.passes));
  settings.only = only.value_or("");
  settings.seed = static_cast<std::uint64_t>(seed.value_or(1));
  return settings;
}

// ---- The benchmark -------------------------------------------------------------------------------------------------------

// A function at a block size; no block: unfused.
using Contender = std::optional<Index>;

std::string name_of(const Contender& contender) {
  return contender ? format("fused %lld", static_cast<long long>(*contender)) : "unfused";
}

class Benchmark {
 public:
  explicit Benchmark(const Settings& settings)
      : settings_(settings), table_(settings.output, kSchema), machine_(make_machine(settings.device)) {
    if (settings.only != "fused") contenders_.push_back(std::nullopt);
    if (settings.only != "unfused") contenders_.insert(contenders_.end(), settings.blocks.begin(), settings.blocks.end());
  }

  // The exit code: 0, or 1 when a row has the status "error" or nothing could be measured. Throws NotYetImplemented when
  // `measure` is not written, Interrupted.
  int run() {
    print_header();
    for (const Index d2 : settings_.d2) {
      if (machine_lost_) break;
      run_size({settings_.batch, settings_.d1, d2, settings_.d3});
    }
    print_summary();
    if (machine_lost_) screen_.line("stopped: the GPU answers every call with that error now; start again without that row");
    if (!missing_task_.empty())
      screen_.line("task " + missing_task_ + " is not started, so fused rows are missing; next: ./lab check " + missing_task_);
    return errors_ > 0 || results_.empty() ? 1 : 0;
  }

  void print_summary() {
    if (results_.empty()) return;
    std::vector<std::string> header{"d2"};
    for (const Contender& contender : contenders_) header.push_back(name_of(contender) + " ms");
    for (const char* text : {"best speed-up", "unfused MiB", "fused MiB"}) header.push_back(text);
    std::vector<std::vector<std::string>> rows{header};
    for (const Index d2 : settings_.d2)
      if (results_.count(d2)) rows.push_back(summary_of(d2));
    screen_.line("");
    for (const std::string& line : aligned(rows)) screen_.line(line);
    screen_.line("");
    screen_.line("saved in " + settings_.output.string());
  }

  Screen& screen() { return screen_; }

 private:
  void print_header() {
    const double floor_ms = clock_floor_ms(*machine_, settings_.warmups, settings_.passes);
    screen_.line(format("softmax(X) V on %s: batch %lld, d1 %lld, d3 %lld, float32; %d warm-ups, %d passes",
                        machine_->description().c_str(), static_cast<long long>(settings_.batch),
                        static_cast<long long>(settings_.d1), static_cast<long long>(settings_.d3), settings_.warmups,
                        settings_.passes));
    screen_.line("caches: " + machine_->eviction());
    screen_.line(format("clock:  an empty pass takes %.2g ms; every time below contains it", floor_ms));
    if (settings_.memory_limit) screen_.line(format("memory: at most %.6g MiB", *settings_.memory_limit / 0x1p20));
    if (settings_.device == "cpu" && !settings_.quick) print_cost();
    screen_.line("");
  }

  // The complete benchmark is made for a GPU; on a CPU it is a night's work, and that is worth a line before it starts.
  void print_cost() {
    double flops = 0;
    for (const Index d2 : settings_.d2)
      flops += SoftmaxMatmulSizes{settings_.batch, settings_.d1, d2, settings_.d3}.flops() *
               static_cast<double>(contenders_.size()) * (settings_.warmups + settings_.passes);
    constexpr double kTypicalFlops = 20e9;  // one core of a current processor, plain C++
    if (flops / kTypicalFlops > 60)
      screen_.line(format("work:   %.3g TFLOP, %.2g hours at 20 GFLOP/s; --quick takes seconds", flops * 1e-12,
                          flops / kTypicalFlops / 3600));
  }

  void run_size(const SoftmaxMatmulSizes& sizes) {
    throw_if_interrupted();
    show_progress(format("d2 %lld: making inputs", static_cast<long long>(sizes.d2)));
    std::unique_ptr<SoftmaxMatmulProblem> problem;
    Outcome no_inputs{"OOM", "", {}};
    try {
      const MemoryCap cap(*machine_, machine_->memory_in_use(), settings_.memory_limit);
      problem = make_softmax_matmul_problem(settings_.device, sizes, settings_.seed);
    } catch (const OutOfMemory& error) {
      no_inputs.message = std::string("the inputs do not fit: ") + error.what();
    } catch (const std::bad_alloc&) {
      no_inputs.message = "the inputs do not fit in host memory";
    }
    // Everything but the inputs and the output: what the check keeps, too.
    const std::size_t inputs = sizeof(float) * static_cast<std::size_t>(element_count(sizes.x()) + element_count(sizes.v()) +
                                                                        element_count(sizes.out()));
    baseline_bytes_ = machine_->memory_in_use() - std::min(machine_->memory_in_use(), inputs);

    for (const Contender& contender : contenders_) {
      if (contender && !missing_task_.empty()) continue;
      try {
        record(sizes, contender, problem ? run_row(*machine_, plan_for(*problem, sizes, contender)) : no_inputs);
      } catch (const NotYetImplemented& missing) {
        if (!contender) throw;
        missing_task_ = missing.task();
      }
      ++rows_done_;
      if (machine_lost_) return;
    }
    problem.reset();
    if (machine_->device() == "cuda") machine_->release_cached_memory();
  }

  RowPlan plan_for(SoftmaxMatmulProblem& problem, const SoftmaxMatmulSizes& sizes, const Contender& contender) {
    const int all = settings_.warmups + settings_.passes;
    const std::string what = format("d2 %lld, %s: ", static_cast<long long>(sizes.d2), name_of(contender).c_str());
    return {
        .pass = [&problem, contender] { contender ? problem.fused(*contender) : problem.unfused(); },
        .before_check =
            [this, &problem, what] {
              show_progress(what + "check");
              problem.spoil_output();
            },
        .check = [&problem] { return problem.check(); },
        .progress = [this, what, all](int pass) { show_progress(what + format("pass %d of %d", pass, all)); },
        .warmups = settings_.warmups,
        .passes = settings_.passes,
        .baseline_bytes = baseline_bytes_,
        .memory_limit = settings_.memory_limit,
    };
  }

  void show_progress(const std::string& what) {
    screen_.progress(rows_done_, static_cast<int>(settings_.d2.size() * contenders_.size()), what);
  }

  void record(const SoftmaxMatmulSizes& sizes, const Contender& contender, const Outcome& outcome) {
    const Measurement& measured = outcome.measurement;
    const bool ok = outcome.status == "ok";
    const double tflops = ok ? sizes.flops() / (measured.mean_ms * 1e-3) * 1e-12 : 0;
    const auto number = [ok](double value) { return ok ? format("%.6g", value) : std::string(); };
    table_.record({
        {"batch_size", std::to_string(sizes.batch)},
        {"d1", std::to_string(sizes.d1)},
        {"d2", std::to_string(sizes.d2)},
        {"d3", std::to_string(sizes.d3)},
        {"fused", contender ? "True" : "False"},
        {"BLOCK", contender ? std::to_string(*contender) : ""},
        {"forward_ms_mean", number(measured.mean_ms)},
        {"forward_ms_std", number(measured.std_ms)},
        {"forward_peak_MiB", number(measured.peak_MiB)},
        {"device", machine_->device()},
        {"dtype", "float32"},
        {"status", outcome.status},
        {"tflops", number(tflops)},
        {"gpu", machine_->gpu()},
    });
    results_[sizes.d2][contender] = outcome;
    errors_ += outcome.status == "error";
    machine_lost_ = outcome.machine_lost;

    const std::string what = format("d2 %5lld  %-9s ", static_cast<long long>(sizes.d2), name_of(contender).c_str());
    const bool on_cpu = machine_->device() == "cpu";
    if (ok)
      screen_.line(what + format("%10.4g ms  +- %-8.2g %8.3g %s %10.5g MiB", measured.mean_ms, measured.std_ms,
                                 on_cpu ? tflops * 1e3 : tflops, on_cpu ? "GFLOP/s" : "TFLOP/s", measured.peak_MiB));
    else
      screen_.line(what + outcome.status + ": " + outcome.message);
  }

  std::vector<std::string> summary_of(Index d2) const {
    const std::map<Contender, Outcome>& row = results_.at(d2);
    std::vector<std::string> cells{std::to_string(d2)};
    const Measurement* unfused = nullptr;
    const Measurement* fused = nullptr;  // the fastest block
    for (const Contender& contender : contenders_) {
      const auto found = row.find(contender);
      if (found == row.end()) {
        cells.push_back("-");
      } else if (found->second.status != "ok") {
        cells.push_back(found->second.status);
      } else {
        const Measurement& measured = found->second.measurement;
        cells.push_back(format("%.4g", measured.mean_ms));
        if (!contender)
          unfused = &measured;
        else if (fused == nullptr || measured.mean_ms < fused->mean_ms)
          fused = &measured;
      }
    }
    cells.push_back(unfused && fused ? format("%.2fx", unfused->mean_ms / fused->mean_ms) : "-");
    cells.push_back(unfused ? format("%.5g", unfused->peak_MiB) : "-");
    cells.push_back(fused ? format("%.5g", fused->peak_MiB) : "-");
    return cells;
  }

  const Settings settings_;
  CsvTable table_;
  std::unique_ptr<Machine> machine_;
  Screen screen_;
  std::vector<Contender> contenders_;
  std::map<Index, std::map<Contender, Outcome>> results_;  // by d2
  std::size_t baseline_bytes_ = 0;
  int rows_done_ = 0;
  int errors_ = 0;
  bool machine_lost_ = false;
  std::string missing_task_;  // a fused function that is not written yet
};

int run(int argc, char** argv) {
  const auto settings = parse(argc, argv);
  if (!settings) return 0;
  Benchmark benchmark(*settings);
  remember_interrupts();
  try {
    return benchmark.run();
  } catch (const Interrupted& interrupted) {
    benchmark.print_summary();
    benchmark.screen().line("interrupted: the rows above are saved, the others are as they were");
    return 128 + interrupted.signal;
  }
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::run_program(argc, argv, flash::run); }
