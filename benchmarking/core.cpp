#include "benchmarking/core.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <thread>

#include "benchmarking/peak.hpp"
#include "common/cpu/threads.hpp"

namespace flash {
namespace {

constexpr int kMostTurns = 10;
constexpr std::chrono::milliseconds kSlow(200);  // passes that take longer need no warm-up
constexpr double kDisturbed = 0.05;              // the share of the processors that others may have

std::string one_line(std::string text) {
  for (std::size_t end; (end = text.find('\n')) != std::string::npos;) text.replace(end, 1, "; ");
  return text;
}

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / 0x1p20; }

// The task's `measure` promises OutOfMemory; operator new throws another exception.
template <class Call>
void with_out_of_memory(Call&& call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("no host memory");
  }
}

// Mean and deviation of all passes from those of the turns; median and spread of the turns.
void sum_up(const std::vector<PassTime>& turns, PassResult& result) {
  double count = 0, sum = 0, squares = 0, peak = 0;
  std::vector<double> means;
  for (const PassTime& turn : turns) {
    count += turn.passes;
    sum += turn.passes * turn.mean_ms;
    means.push_back(turn.mean_ms);
    peak = std::max(peak, turn.peak_MiB.value_or(result.peak_MiB));
  }
  result.peak_MiB = peak;
  result.mean_ms = sum / count;
  for (const PassTime& turn : turns) {
    const double off = turn.mean_ms - result.mean_ms;
    squares += (turn.passes - 1) * turn.std_ms * turn.std_ms + turn.passes * off * off;
  }
  result.std_ms = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  result.median_ms = quantile(means, 0.5);
  result.spread_percent = 100 * (quantile(means, 0.9) - quantile(means, 0.1)) / result.median_ms;
}

class Session {
 public:
  Session(Benchmark& benchmark, const Settings& settings)
      : benchmark_(benchmark),
        settings_(settings),
        csv_(settings.output, benchmark.table()),
        machine_(make_machine(settings.device)),
        names_(benchmark.implementations()) {}

  int run() {
    print_header();
    for (std::size_t size = 0; size < benchmark_.sizes() && !machine_lost_; ++size) run_size(size);
    screen_.line("");
    if (rows_ > 0) screen_.line("saved in " + settings_.output.string());
    if (machine_lost_)
      screen_.line(
          "stopped: the GPU answers every call with that error; start again without that row");
    for (const auto& [task, name] : missing_tasks_)
      screen_.line("task " + task + " is not started, so rows of '" + name +
                   "' are missing; next: ./lab check " + task);
    return errors_ > 0 || rows_ == 0 ? 1 : 0;
  }

 private:
  bool on_cpu() const { return settings_.device == "cpu"; }

  void print_header() {
    Clock& clock = machine_->clock();
    clock.synchronize();
    const double begin = clock.now_ms();
    clock.synchronize();
    const double empty_ms = clock.now_ms() - begin;
    screen_.line(benchmark_.table() + " on " + machine_->name() + ": " + benchmark_.headline() +
                 format("; %d passes in %d turns", settings_.passes, turns_));
    screen_.line("caches: " + machine_->eviction());
    screen_.line(
        format("clock:  an empty pass takes %.2g ms; every time below contains it", empty_ms));
    if (settings_.memory_limit)
      screen_.line(format("memory: at most %.6g MiB", mebibytes(*settings_.memory_limit)));
    if (on_cpu())
      screen_.line(format("peak:   multiply-adds in registers, vectors of %d bytes, %d threads",
                          native_vector_bytes(), host_threads()));
  }

  void run_size(std::size_t size) {
    what_ = benchmark_.name_of_size(size) + ": ";
    checked_ = false;
    step_ = 0;
    steps_ = static_cast<int>(names_.size()) * (1 + turns_);
    screen_.progress(0, steps_, what_ + "inputs and oracle");
    std::vector<Result> results(names_.size());
    for (std::size_t i = 0; i < names_.size(); ++i)
      results[i].has_backward = benchmark_.has_backward(i);

    std::unique_ptr<Inputs> inputs;
    try {
      const MemoryCap cap(*machine_, machine_->memory.in_use(), settings_.memory_limit);
      with_out_of_memory([&] { inputs = benchmark_.inputs(size); });
    } catch (const OutOfMemory& error) {
      for (Result& result : results)
        result.fail("OOM", std::string("the inputs do not fit: ") + error.what());
    }
    std::optional<double> others;
    if (inputs) {
      inputs->prepare_check();
      // Everything but the inputs does not count in the limit: what the check keeps, too.
      baseline_ = machine_->memory.in_use() - std::min(machine_->memory.in_use(), inputs->bytes());
      for (std::size_t i = 0; i < names_.size() && !machine_lost_; ++i)
        check(*inputs, i, results[i]);
      checked_ = true;
      const OtherPrograms programs;
      take_turns(*inputs, results);
      if (on_cpu()) others = programs.share();
    }
    inputs.reset();
    machine_->memory.release_cached();
    report(size, results, others);
  }

  // Runs `call` with a runner of the implementation. What stops it becomes the result's status.
  template <class Call>
  void attempt(Inputs& inputs, std::size_t i, Result& result, Call&& call) {
    std::unique_ptr<Trial> trial = inputs.trial(i);
    Runner runner(*machine_, *trial, result.has_backward,
                  [&] { screen_.progress(step_, steps_, what_ + names_[i]); });
    try {
      const MemoryCap cap(*machine_, baseline_, settings_.memory_limit);
      return call(*trial, runner);
    } catch (const NotYetImplemented& missing) {
      if (checked_) throw;  // the passes are there: what measures is missing, so none gets a time
      missing_tasks_[missing.task()] = names_[i];
      result.fail("not started", "task " + missing.task() + " is not started",
                  runner.in_backward());
    } catch (const OutOfMemory& error) {
      result.fail(runner.in_backward() ? "OOM(backward)" : "OOM", error.what(),
                  runner.in_backward());
    } catch (const Unsupported& error) {
      result.fail("unsupported", error.what());
    } catch (const std::exception& error) {
      result.fail("error", error.what());
      machine_lost_ = !still_works();
    }
    trial.reset();
    if (!machine_lost_) machine_->memory.release_cached();
  }

  bool still_works() {
    try {
      machine_->clock().synchronize();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  // One pass of each kind from a cold start, compared with the oracle.
  void check(Inputs& inputs, std::size_t i, Result& result) {
    ++step_;
    const auto start = std::chrono::steady_clock::now();
    attempt(inputs, i, result, [&](Trial& trial, Runner& runner) {
      const auto check_pass = [&](void (Runner::*pass)(), Verdict (Trial::*verdict)()) {
        release_ladder_memory();
        machine_->clock().synchronize();
        runner.reset_peak_memory();
        (runner.*pass)();
        machine_->clock().synchronize();
        PassResult& measured = runner.in_backward() ? result.backward : result.forward;
        measured.peak_MiB = mebibytes(runner.peak_memory_bytes());
        if (!runner.in_backward()) result.saved_MiB = mebibytes(runner.saved_bytes());
        trial.finish();
        result.verdict.add((trial.*verdict)());
        if (!result.verdict.wrong.empty()) throw Error("wrong result: " + result.verdict.wrong);
      };
      trial.poison = true;
      runner.prepare();
      check_pass(&Runner::forward, &Trial::check_forward);
      if (!result.has_backward) return;
      runner.prepare_backward();
      check_pass(&Runner::backward, &Trial::check_backward);
    });
    result.check_time = std::chrono::steady_clock::now() - start;
  }

  void take_turns(Inputs& inputs, std::vector<Result>& results) {
    std::vector<std::vector<PassTime>> forward(results.size()), backward(results.size());
    std::vector<double> peaks;
    settle(inputs, results);
    for (int turn = 0; turn < turns_; ++turn) {
      const int passes = settings_.passes * (turn + 1) / turns_ - settings_.passes * turn / turns_;
      for (std::size_t i = 0; i < results.size() && !machine_lost_; ++i) {
        ++step_;
        Result& result = results[i];
        if (!result.has_forward) continue;
        // PyTorch's threads go on spinning, at most 17 ms where it was measured.
        if (pytorch_ && on_cpu()) std::this_thread::sleep_for(std::chrono::milliseconds(25));
        const bool slow = on_cpu() && result.check_time > kSlow;
        const int warmups = slow ? 0 : (settings_.warmups + turns_ - 1) / turns_;
        attempt(inputs, i, result, [&](Trial&, Runner& runner) {
          const Turn measured = benchmark_.measure(runner, machine_->clock(), warmups, passes);
          if (measured.status == "OOM") throw OutOfMemory(measured.message);
          if (runner.forward_passes() < warmups + passes)
            throw Error(
                format("measure ran the work %d times; it had to be %d warm-ups and %d passes",
                       runner.forward_passes(), warmups, passes));
          keep(measured.forward, passes, forward[i]);
          if (!result.has_backward) return;
          if (measured.status != "ok") return result.fail(measured.status, measured.message, true);
          keep(measured.backward, passes, backward[i]);
        });
        if (on_cpu()) peaks.push_back(native_peak_gflops(settings_.dtype, host_threads(), 2));
      }
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      Result& result = results[i];
      if (result.has_forward && forward[i].empty())  // "ok" where the GPU was lost before its turn
        result.fail(result.status == "ok" ? "not started" : result.status, result.message);
      if (result.has_forward) sum_up(forward[i], result.forward);
      if (result.has_backward) sum_up(backward[i], result.backward);
      if (!peaks.empty()) result.peak_gflops = quantile(peaks, 0.5);
    }
  }

  // Throws where a broken `measure` of a student gives itself away.
  static void keep(PassTime time, int passes, std::vector<PassTime>& turns) {
    if (!(time.mean_ms > 0 && time.std_ms >= 0 && std::isfinite(time.mean_ms + time.std_ms)))
      throw Error(format(
          "measure gave a mean of %g ms and a standard deviation of %g ms; the mean must be above "
          "0, the deviation at least 0",
          time.mean_ms, time.std_ms));
    time.passes = passes;
    turns.push_back(time);
  }

  // A processor at rest is slow for its first milliseconds: passes bring it to its clock rate.
  void settle(Inputs& inputs, std::vector<Result>& results) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!results[i].has_forward) continue;
      attempt(inputs, i, results[i], [&](Trial&, Runner& runner) {
        do {
          runner.prepare();
          runner.forward();
          machine_->clock().synchronize();
        } while (std::chrono::steady_clock::now() < end);
      });
      return;
    }
  }

  void report(std::size_t size, const std::vector<Result>& results, std::optional<double> others) {
    Strings columns = benchmark_.shown_columns();
    if (!on_cpu()) std::erase(columns, "percent_of_peak");
    std::vector<Strings> lines{columns};
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Result& result = results[i];
      CsvRow row = benchmark_.cells(size, i, result);
      const bool ok = result.status == "ok";
      row.insert({{"implementation", names_[i]},
                  {"status", result.status},
                  {"gpu", on_cpu() ? "" : machine_->name()},
                  {"device", settings_.device},
                  {"dtype", to_string(settings_.dtype)},
                  {"scaled_error", ok ? format("%.3g", result.verdict.scaled_error) : ""},
                  {"frobenius_error", ok ? format("%.3g", result.verdict.frobenius_error) : ""},
                  {"others_percent", ok && others ? format("%.3g", 100 * *others) : ""}});
      lines.push_back(shown(row, columns));
      if (result.status == "not started") continue;
      csv_.append(row);
      ++rows_;
      errors_ += result.status == "error";
    }
    screen_.line("");
    screen_.line(benchmark_.name_of_size(size));
    for (const std::string& line : aligned(lines)) screen_.line(line);
    for (std::size_t i = 0; i < results.size(); ++i)
      if (!results[i].message.empty() && results[i].status != "not started")
        screen_.line(names_[i] + ": " + results[i].status + ": " + results[i].message);
    const bool disturbed = others && *others > kDisturbed;
    if (const std::string remark = benchmark_.remark(results); !remark.empty())
      screen_.line(remark + (disturbed ? ", of rows that were disturbed" : ""));
    if (disturbed)
      screen_.line(format(
          "disturbed: other programs had %.0f %% of the processors; measure these rows again "
          "on an idle machine",
          100 * *others));
  }

  // Numbers in four digits, and the status in the place of the first one that is missing.
  static Strings shown(const CsvRow& row, const Strings& columns) {
    Strings cells;
    std::string missing = row.at("status") == "ok" ? "-" : row.at("status");
    for (const std::string& column : columns) {
      std::string cell = row.at(column);
      char* end = nullptr;
      const double value = std::strtod(cell.c_str(), &end);
      if (cell.empty())
        cell = std::exchange(missing, "-");
      else if (*end == '\0')
        cell = format("%.4g", value);
      cells.push_back(cell);
    }
    return cells;
  }

  Benchmark& benchmark_;
  const Settings settings_;
  const CsvFile csv_;
  std::unique_ptr<Machine> machine_;
  Screen screen_;
  const Strings names_;
  const int turns_ = std::min(settings_.passes, kMostTurns);
  const bool pytorch_ = joined(names_).find("pytorch") != std::string::npos;
  std::string what_;
  bool checked_ = false;
  int step_ = 0, steps_ = 0;
  std::size_t baseline_ = 0;
  int rows_ = 0, errors_ = 0;
  bool machine_lost_ = false;
  std::map<std::string, std::string> missing_tasks_;  // and the implementation that each belongs to
};

// In the repository that the program was built in; where that is gone, in the current folder.
std::filesystem::path default_output(const std::string& table) {
  const std::filesystem::path root = FLASH_REPOSITORY;
  std::error_code error;
  return (std::filesystem::is_directory(root, error) ? root : "") / "outputs/csv" /
         (table + "_benchmark.csv");
}

}  // namespace

// ---- The parts that a problem sees --------------------------------------------------------------

void Verdict::add(const Verdict& other) {
  if (wrong.empty()) wrong = other.wrong;
  const auto larger = [](double a, double b) {
    return std::isnan(a) || b <= a ? a : b;
  };  // NaN stays
  scaled_error = larger(scaled_error, other.scaled_error);
  frobenius_error = larger(frobenius_error, other.frobenius_error);
}

Verdict verdict_of(const Comparison& comparison, const std::string& where) {
  return {comparison.pass ? "" : where + one_line(comparison.text), comparison.scaled_max,
          comparison.frobenius};
}

void Runner::prepare() {
  progress_();
  in_backward_ = false;
  with_out_of_memory([&] { trial_.prepare(); });
  machine_.evict_caches();
}

void Runner::forward() {
  ++forward_passes_;
  with_out_of_memory([&] { trial_.forward(); });
}

void Runner::prepare_backward() {
  if (!has_backward) throw OutOfMemory("there is no backward pass to measure");
  in_backward_ = true;
  with_out_of_memory([&] {
    trial_.finish();
    trial_.prepare_backward();
  });
  machine_.evict_caches();
}

void Runner::backward() {
  with_out_of_memory([&] { trial_.backward(); });
}

void Runner::reset_peak_memory() {
  before_ = machine_.memory.in_use();
  machine_.memory.reset_peak();
}

std::size_t Runner::peak_memory_bytes() {
  const std::size_t peak = machine_.memory.peak();
  return peak - std::min(peak, before_) + trial_.reserved_bytes();
}

Turn Benchmark::measure(Runner& runner, Clock& clock, int warmups, int passes) {
  Turn turn;
  const auto timed = [&](int pass, PassTime& time, auto&& call) {
    clock.synchronize();
    const double begin = clock.now_ms();
    call();
    clock.synchronize();
    if (pass >= warmups) time.mean_ms += (clock.now_ms() - begin) / passes;
  };
  for (int pass = 0; pass < warmups + passes; ++pass) {
    runner.prepare();
    timed(pass, turn.forward, [&] { runner.forward(); });
    if (!runner.has_backward) continue;
    runner.prepare_backward();
    timed(pass, turn.backward, [&] { runner.backward(); });
  }
  return turn;
}

void Result::fail(const std::string& new_status, std::string new_message, bool keep_forward) {
  status = new_status;
  message = one_line(std::move(new_message));
  has_forward = keep_forward;
  has_backward = false;
}

std::string number_cell(bool there, double value) { return there ? format("%.6g", value) : ""; }

static int run(Benchmark& benchmark, int argc, char** argv) {
  Settings settings{.output = default_output(benchmark.table())};
  std::optional<std::string> device;
  std::optional<std::int64_t> warmups, passes, seed;
  Options options(std::filesystem::path(argv[0]).filename().string(), benchmark.purpose());
  options.choice(
      "device",
      "where to run; cuda, or gpu, is a GPU (default: " + benchmark.default_device() + ")", device,
      {"cpu", "cuda", "gpu"});
  options.flag("quick", "smaller problems: seconds, on a laptop too", settings.quick);
  benchmark.declare(options);
  options.integer("warmups", "untimed passes before the timed ones, spread over the turns", warmups,
                  0, 1000000);
  options.integer("passes", "timed passes of each kind, in at most 10 turns", passes, 1, 1000000);
  options.bytes("memory-limit",
                "cap what inputs, outputs and work may allocate, like 512MiB: running out is a row "
                "with the status OOM (default: of attention on a CPU half of what is available)",
                settings.memory_limit);
  options.file("output", "the CSV (default: outputs/csv/" + benchmark.table() + "_benchmark.csv)",
               settings.output);
  options.integer("seed", "of the inputs (default: 1)", seed, 0, std::int64_t{1} << 32);
  if (!options.parse(argc, argv)) return 0;

  settings.device = device.value_or(benchmark.default_device()) == "cpu" ? "cpu" : "cuda";
  if (settings.device == "cuda" && !has_gpu())
    throw OptionError("--device is '" + *device + "'; it must be cpu here: " +
                      (FLASH_HAVE_CUDA ? "this machine has no usable GPU"
                                       : "this program was built without CUDA"));
  if (seed) settings.seed = static_cast<std::uint64_t>(*seed);
  benchmark.decide(settings);
  if (warmups) settings.warmups = static_cast<int>(*warmups);
  if (passes) settings.passes = static_cast<int>(*passes);
  return Session(benchmark, settings).run();
}

int run_benchmark(Benchmark& benchmark, int argc, char** argv) {
  return run_program([&] { return run(benchmark, argc, argv); });
}

}  // namespace flash
