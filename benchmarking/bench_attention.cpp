// Times attention, forward and backward, over the sequence length: standard attention, the flash passes, and the rungs of the
// ladder, on the same inputs, one call of each in turn: what disturbs the machine for a while disturbs all of them.
//
// A result is checked before it is timed, and the CSV is saved after each problem. README.md beside this file says what the
// columns mean and how the measuring is done.
#include <algorithm>
#include <map>

#include "benchmarking/attention_ladder.hpp"
#include "benchmarking/attention_problem.hpp"
#include "benchmarking/csv_table.hpp"
#include "benchmarking/interrupt.hpp"
#include "benchmarking/machine.hpp"
#include "benchmarking/options.hpp"
#include "benchmarking/program.hpp"
#include "benchmarking/screen.hpp"
#include "common/attention_registry.hpp"
#include "common/compare.hpp"
#include "part2_flash_cpu/implementations.hpp"

namespace flash {
namespace {

const CsvSchema kSchema{
    .columns = {"implementation", "d_model", "seq_len", "forward_ms", "forward_peak_MiB", "backward_ms", "backward_peak_MiB",
                "saved_activations_MiB", "status", "gpu", "device", "dtype", "batch", "heads", "causal", "total_ms", "tflops",
                "percent_of_peak"},
    .key = {"implementation", "d_model", "seq_len", "gpu", "device", "dtype", "batch", "heads", "causal"},
};

using Contender = Implementation<const AttentionFunctions>;

// What there is, in the order of the rows.
AttentionRegistry make_registry() {
  AttentionRegistry registry;
  register_part2_attention(registry);
  register_ladder(registry);
  return registry;
}

// ---- Settings ------------------------------------------------------------------------------------------------------------

struct Settings {
  std::string device = "cpu";
  DType dtype = DType::kFloat32;
  Index batch = 1, heads = 4, head_dim = 64;
  std::vector<Index> seq_lens = {256, 512, 1024, 2048, 4096};
  std::vector<bool> causal = {false, true};
  std::vector<std::string> implementations;  // empty: all
  int warmups = 1, passes = 5;
  std::optional<std::size_t> memory_limit;
  bool memory_limit_is_default = false;
  std::filesystem::path output;
  std::uint64_t seed = 1;
};

// --quick, in place of the defaults above: seconds instead of minutes. Another number of heads, so that its rows never replace
// those of a complete run.
void make_quick(Settings& settings) {
  settings.heads = 2;
  settings.seq_lens = {128, 256, 512};
}

// The repository that the program was built in; where that is gone, the current folder.
std::filesystem::path default_output() {
  const std::filesystem::path root = FLASH_REPOSITORY;
  std::error_code error;
  return (std::filesystem::is_directory(root, error) ? root : "") / "outputs/csv/attention_benchmark.csv";
}

// Nothing when --help was asked for. Throws OptionError.
std::optional<Settings> parse(int argc, const char* const* argv, const AttentionRegistry& registry) {
  constexpr std::int64_t kMostExtent = 1 << 12, kMostKeys = 1 << 20;  // all four times 8 bytes stay below 2^63
  bool quick = false;
  std::optional<std::string> device, dtype, causal;
  std::optional<std::int64_t> batch, heads, head_dim, warmups, passes, seed;
  std::optional<std::vector<std::int64_t>> seq_lens;
  std::optional<std::vector<std::string>> implementations;
  std::vector<std::string> names;
  for (const Contender& entry : registry.entries()) names.push_back(entry.name);
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  Settings settings{.output = default_output()};

  Options options(std::filesystem::path(argv[0]).filename().string(),
                  "Times attention forward and backward: Q, K and V (batch, heads, seq_len, head_dim).");
  options.choice("device", "where to run; default cpu", device, {"cpu"});
  options.choices("impl", "implementations, of: " + known + ";\ndefault: all of them", implementations, names);
  options.flag("quick", "smaller problems: seconds, on a laptop too", quick);
  options.integer("batch", "N", "batch size; default 1", batch, 1, kMostExtent);
  options.integer("heads", "N", "heads of a batch; default 4 (quick: 2)", heads, 1, kMostExtent);
  options.integer("head-dim", "N", "columns of Q, K and V of a head; default 64", head_dim, 1, kMostExtent);
  options.integers("seq-lens", "numbers of queries and keys; default 256,512,...,4096 (quick: 128,256,512)", seq_lens, 1,
                   kMostKeys);
  options.choice("dtype", "of everything; default float32", dtype, {"float32", "float64"});
  options.choice("causal", "the mask; default both: with it and without", causal, {"both", "on", "off"});
  options.integer("warmups", "N", "turns before the timed ones, of which the first measures the memory; default 1", warmups, 1,
                  1000000);
  options.integer("passes", "N", "timed turns, a forward and a backward pass of each implementation; default 5", passes, 1,
                  1000000);
  options.bytes(
      "memory-limit",
      "cap what inputs, outputs and work may allocate, like 512MiB or 1.5GiB: running out is a\nrow with the status OOM; "
      "default: half of what is available",
      settings.memory_limit);
  options.file("output", "the CSV; default outputs/csv/attention_benchmark.csv in the repository", settings.output);
  options.integer("seed", "N", "of the inputs; default 1", seed, 0, std::int64_t{1} << 32);
  if (!options.parse(argc, argv)) return std::nullopt;

  if (quick) make_quick(settings);
  settings.dtype = dtype == "float64" ? DType::kFloat64 : DType::kFloat32;
  settings.batch = batch.value_or(settings.batch);
  settings.heads = heads.value_or(settings.heads);
  settings.head_dim = head_dim.value_or(settings.head_dim);
  settings.seq_lens = seq_lens.value_or(settings.seq_lens);
  if (causal && causal != "both") settings.causal = {causal == "on"};
  settings.implementations = implementations.value_or(settings.implementations);
  settings.warmups = static_cast<int>(warmups.value_or(settings.warmups));
  settings.passes = static_cast<int>(passes.value_or(settings.passes));
  settings.seed = static_cast<std::uint64_t>(seed.value_or(1));
  if (!settings.memory_limit)
    if (const auto available = available_host_memory()) {
      settings.memory_limit = std::max<std::size_t>(*available / 2, 1);
      settings.memory_limit_is_default = true;
    }
  return settings;
}

// ---- The benchmark -------------------------------------------------------------------------------------------------------

// What one implementation did on one problem.
struct Result {
  const Contender* contender = nullptr;
  std::string status = "ok";  // the CSV's, or "not started", which is no row
  std::string message;        // in one line; empty when ok
  double forward_peak_MiB = 0, backward_peak_MiB = 0, saved_MiB = 0;
  std::vector<double> forward_ms, backward_ms;  // of each timed turn

  bool has_forward = true, has_backward = true;  // still to be run, and in the end: were measured

  double total_ms() const { return quantile(forward_ms, 0.5) + quantile(backward_ms, 0.5); }
};

// What a call allocated beyond what was there before it.
class PeakMeter {
 public:
  explicit PeakMeter(Machine& machine) : machine_(machine), before_(machine.memory_in_use()) { machine.reset_peak_memory(); }
  double MiB() const { return static_cast<double>(machine_.peak_memory() - before_) / 0x1p20; }

 private:
  Machine& machine_;
  std::size_t before_;
};

template <class T, int Rank>
Tensor<T, Rank> poisoned(Tensor<T, Rank> tensor) {
  std::fill_n(tensor.data(), tensor.size(), poison<T>());
  return tensor;
}

// The outputs of a forward pass, and of a backward pass.
template <class T>
struct ForwardOutputs {
  ForwardOutputs(const AttentionShape& shape, bool saves_p)
      : out(poisoned(Tensor<T, 4>(shape.of_queries()))), lse(poisoned(Tensor<T, 3>(shape.of_rows()))) {
    if (saves_p) p = poisoned(Tensor<T, 4>({shape.batch, shape.heads, shape.queries, shape.keys}));
  }
  Tensor<T, 4> out, p;
  Tensor<T, 3> lse;
};
template <class T>
struct BackwardOutputs {
  explicit BackwardOutputs(const AttentionShape& shape)
      : d_q(poisoned(Tensor<T, 4>(shape.of_queries()))),
        d_k(poisoned(Tensor<T, 4>(shape.of_keys()))),
        d_v(poisoned(Tensor<T, 4>(shape.of_keys()))) {}
  Tensor<T, 4> d_q, d_k, d_v;
};

template <class T>
void run_forward(const AttentionFunctions& functions, const AttentionProblem<T>& problem, ForwardOutputs<T>& to) {
  functions.template passes<T>().forward(problem.q(), problem.k(), problem.v(), to.out.view(), to.lse.view(), to.p.view(),
                                         problem.sizes().options());
}
template <class T>
void run_backward(const AttentionFunctions& functions, const AttentionProblem<T>& problem, const ForwardOutputs<T>& from,
                  BackwardOutputs<T>& to) {
  functions.template passes<T>().backward(problem.q(), problem.k(), problem.v(), from.out.view(), from.lse.view(),
                                          from.p.view(), problem.d_out(), to.d_q.view(), to.d_k.view(), to.d_v.view(),
                                          problem.sizes().options());
}

class Benchmark {
 public:
  Benchmark(const Settings& settings, const AttentionRegistry& registry)
      : settings_(settings), table_(settings.output, kSchema), machine_(make_machine(settings.device)) {
    for (const Contender& entry : registry.entries()) {
      const auto& chosen = settings.implementations;
      if (chosen.empty() || std::find(chosen.begin(), chosen.end(), entry.name) != chosen.end()) contenders_.push_back(&entry);
    }
  }

  // The exit code: 0, or 1 when a row has the status "error" or there is no row. Throws Interrupted.
  int run() {
    print_header();
    for (const Index seq_len : settings_.seq_lens)
      for (const bool causal : settings_.causal) {
        const AttentionSizes sizes{settings_.batch, settings_.heads, seq_len, settings_.head_dim, causal};
        settings_.dtype == DType::kFloat32 ? run_problem<float>(sizes) : run_problem<double>(sizes);
      }
    screen_.line("");
    if (rows_ > 0) screen_.line("saved in " + table_.path().string());
    for (const auto& [task, name] : missing_tasks_)
      screen_.line("task " + task + " is not started, so rows of '" + name + "' are missing; next: ./lab check " + task);
    return errors_ > 0 || rows_ == 0 ? 1 : 0;
  }

  Screen& screen() { return screen_; }

 private:
  void print_header() {
    screen_.line(format("attention on %s: batch %lld, %lld heads of %lld, %s; %d timed turns after %d",
                        machine_->description().c_str(), static_cast<long long>(settings_.batch),
                        static_cast<long long>(settings_.heads), static_cast<long long>(settings_.head_dim),
                        to_string(settings_.dtype).c_str(), settings_.passes, settings_.warmups));
    screen_.line("caches: " + machine_->eviction());
    if (settings_.memory_limit)
      screen_.line(format("memory: at most %.6g MiB", static_cast<double>(*settings_.memory_limit) / 0x1p20) +
                   (settings_.memory_limit_is_default ? ", half of what is available" : ""));
    if (!ceiling_name().empty()) screen_.line("peak:   " + ceiling_name() + "; measured between the passes");
  }

  template <class T>
  void run_problem(const AttentionSizes& sizes) {
    throw_if_interrupted();
    std::vector<Result> results(contenders_.size());
    for (std::size_t i = 0; i < results.size(); ++i) results[i].contender = contenders_[i];
    const std::string what = format("seq_len %lld%s: ", static_cast<long long>(sizes.seq_len), sizes.causal ? ", causal" : "");
    const int steps = 1 + settings_.warmups + settings_.passes;

    std::optional<AttentionProblem<T>> problem;
    screen_.progress(0, steps, what + "inputs and oracle");
    try {
      const MemoryCap cap(*machine_, machine_->memory_in_use(), settings_.memory_limit);
      problem.emplace(sizes, settings_.seed);
    } catch (const OutOfMemory& error) {
      for (Result& result : results) fail(result, "OOM", std::string("the inputs do not fit: ") + error.what());
    }
    std::vector<double> ceilings;
    if (problem) {
      problem->prepare_check();
      baseline_bytes_ = machine_->memory_in_use() - std::min(machine_->memory_in_use(), problem->bytes());
      for (Result& result : results) {
        throw_if_interrupted();
        screen_.progress(0, steps, what + "check of " + result.contender->name);
        check(*problem, result);
      }
      for (int turn = 0; turn < settings_.warmups + settings_.passes; ++turn) {
        for (Result& result : results) {
          throw_if_interrupted();
          screen_.progress(1 + turn, steps, what + result.contender->name);
          if (turn == 0)
            measure_memory(*problem, result);
          else
            measure_time(*problem, result, turn >= settings_.warmups);
          if (turn >= settings_.warmups) ceilings.push_back(ceiling_gflops(settings_.dtype));
        }
      }
    }
    const double ceiling = ceilings.empty() ? 0 : quantile(ceilings, 0.5);
    for (const Result& result : results) record(sizes, result, ceiling);
    print(sizes, results, ceiling);
  }

  // Whether `call`, a pass of this implementation, came to its end. What stops it becomes the result's status.
  template <class Call>
  bool attempt(Result& result, bool backward, Call&& call) {
    try {
      const MemoryCap cap(*machine_, baseline_bytes_, settings_.memory_limit);
      call();
      return true;
    } catch (const NotYetImplemented& missing) {
      missing_tasks_[missing.task()] = result.contender->name;
      fail(result, "not started", "task " + missing.task() + " is not started", backward);
    } catch (const OutOfMemory& error) {
      fail(result, backward ? "OOM(backward)" : "OOM", error.what(), backward);
    } catch (const std::bad_alloc&) {
      fail(result, backward ? "OOM(backward)" : "OOM", "no host memory", backward);
    } catch (const Unsupported& error) {
      fail(result, "unsupported", error.what());
    } catch (const std::exception& error) {
      fail(result, "error", error.what());
    }
    machine_->release_cached_memory();
    return false;
  }

  // `keep_forward`: only the backward pass is without a result.
  static void fail(Result& result, const std::string& status, std::string message, bool keep_forward = false) {
    std::replace(message.begin(), message.end(), '\n', ' ');
    result.status = status;
    result.message = message;
    result.has_forward = keep_forward;
    result.has_backward = false;
  }

  template <class T>
  void check(const AttentionProblem<T>& problem, Result& result) {
    const AttentionFunctions& functions = *result.contender->run;
    const AttentionShape shape = problem.sizes().shape();
    if (functions.template passes<T>().forward == nullptr)
      return fail(result, "unsupported", "there is no " + to_string(settings_.dtype) + " version");
    std::optional<ForwardOutputs<T>> forward;
    if (!attempt(result, false, [&] {
          forward.emplace(shape, functions.saves_p);
          run_forward(functions, problem, *forward);
        }))
      return;
    std::string wrong = problem.check_forward(std::as_const(forward->out).view());
    if (!wrong.empty()) return fail(result, "error", "wrong result: " + wrong);

    std::optional<BackwardOutputs<T>> backward;
    if (!attempt(result, true, [&] {
          backward.emplace(shape);
          run_backward(functions, problem, *forward, *backward);
        }))
      return;
    wrong = problem.check_backward(std::as_const(backward->d_q).view(), std::as_const(backward->d_k).view(),
                                   std::as_const(backward->d_v).view());
    if (!wrong.empty()) fail(result, "error", "wrong result: " + wrong);
  }

  // One forward and one backward pass as a caller has them who keeps nothing but what the backward pass needs.
  template <class T>
  void measure_memory(const AttentionProblem<T>& problem, Result& result) {
    if (!result.has_forward) return;
    std::optional<Attention<T>> pass;
    release_ladder_memory();
    if (!attempt(result, false, [&] {
          const PeakMeter meter(*machine_);
          pass.emplace(*result.contender->run, problem.q(), problem.k(), problem.v(), problem.sizes().options());
          result.forward_peak_MiB = meter.MiB();
        }))
      return;
    std::size_t saved = 0;
    for (const auto& [name, bytes] : pass->saved()) saved += bytes;
    result.saved_MiB = static_cast<double>(saved) / 0x1p20;
    if (!result.has_backward) return;
    release_ladder_memory();
    attempt(result, true, [&] {
      const PeakMeter meter(*machine_);
      (void)pass->backward(problem.d_out());
      result.backward_peak_MiB = meter.MiB();
    });
  }

  // Outputs are made before the clock is read, and caches are evicted after that.
  template <class T>
  void measure_time(const AttentionProblem<T>& problem, Result& result, bool counts) {
    if (!result.has_forward) return;
    const AttentionFunctions& functions = *result.contender->run;
    const AttentionShape shape = problem.sizes().shape();
    std::optional<ForwardOutputs<T>> forward;
    double forward_ms = 0, backward_ms = 0;
    if (!attempt(result, false, [&] {
          forward.emplace(shape, functions.saves_p);
          forward_ms = timed([&] { run_forward(functions, problem, *forward); });
        }))
      return;
    if (counts) result.forward_ms.push_back(forward_ms);
    if (!result.has_backward) return;
    if (!attempt(result, true, [&] {
          BackwardOutputs<T> backward(shape);
          backward_ms = timed([&] { run_backward(functions, problem, *forward, backward); });
        }))
      return;
    if (counts) result.backward_ms.push_back(backward_ms);
  }

  template <class Call>
  double timed(Call&& call) {
    Clock& clock = machine_->clock();
    machine_->evict_caches();
    clock.synchronize();
    const double start = clock.now_ms();
    call();
    clock.synchronize();
    return clock.now_ms() - start;
  }

  // ---- results ---------------------------------------------------------------------------------------------------------

  struct Rates {
    double gflops, percent;
  };
  static Rates rates(const AttentionSizes& sizes, const Result& result, double ceiling) {
    const double gflops = (sizes.forward_flops() + sizes.backward_flops()) / result.total_ms() * 1e-6;
    return {gflops, ceiling > 0 ? 100 * gflops / ceiling : 0};
  }

  void record(const AttentionSizes& sizes, const Result& result, double ceiling) {
    if (result.status == "not started") return;
    const auto number = [](bool there, auto value) { return there ? format("%.6g", value()) : std::string(); };
    const bool forward = result.has_forward, backward = result.has_backward;
    table_.record({
        {"implementation", result.contender->name},
        {"d_model", std::to_string(sizes.d_model())},
        {"seq_len", std::to_string(sizes.seq_len)},
        {"forward_ms", number(forward, [&] { return quantile(result.forward_ms, 0.5); })},
        {"forward_peak_MiB", number(forward, [&] { return result.forward_peak_MiB; })},
        {"backward_ms", number(backward, [&] { return quantile(result.backward_ms, 0.5); })},
        {"backward_peak_MiB", number(backward, [&] { return result.backward_peak_MiB; })},
        {"saved_activations_MiB", number(forward, [&] { return result.saved_MiB; })},
        {"status", result.status},
        {"gpu", machine_->gpu()},
        {"device", machine_->device()},
        {"dtype", to_string(settings_.dtype)},
        {"batch", std::to_string(sizes.batch)},
        {"heads", std::to_string(sizes.heads)},
        {"causal", sizes.causal ? "True" : "False"},
        {"total_ms", number(backward, [&] { return result.total_ms(); })},
        {"tflops", number(backward, [&] { return rates(sizes, result, ceiling).gflops * 1e-3; })},
        {"percent_of_peak", number(backward && ceiling > 0, [&] { return rates(sizes, result, ceiling).percent; })},
    });
    ++rows_;
    errors_ += result.status == "error";
  }

  void print(const AttentionSizes& sizes, const std::vector<Result>& results, double ceiling) {
    std::vector<std::vector<std::string>> rows{{"implementation", "forward ms", "backward ms", "total ms", "GFLOP/s",
                                                "% of peak", "forward MiB", "backward MiB", "saved MiB"}};
    for (const Result& result : results) {
      const auto cell = [](bool there, auto value) { return there ? format("%.4g", value()) : std::string("-"); };
      const bool forward = result.has_forward, backward = result.has_backward;
      rows.push_back({result.contender->name, forward ? format("%.4g", quantile(result.forward_ms, 0.5)) : result.status,
                      backward  ? format("%.4g", quantile(result.backward_ms, 0.5))
                      : forward ? result.status
                                : "-",
                      cell(backward, [&] { return result.total_ms(); }),
                      cell(backward, [&] { return rates(sizes, result, ceiling).gflops; }),
                      cell(backward && ceiling > 0, [&] { return rates(sizes, result, ceiling).percent; }),
                      cell(forward, [&] { return result.forward_peak_MiB; }),
                      cell(backward, [&] { return result.backward_peak_MiB; }),
                      cell(forward, [&] { return result.saved_MiB; })});
    }
    screen_.line("");
    screen_.line(format("seq_len %lld, %s, %s", static_cast<long long>(sizes.seq_len), sizes.causal ? "causal" : "not causal",
                        to_string(settings_.dtype).c_str()) +
                 (ceiling > 0 ? format("; peak %.4g GFLOP/s", ceiling) : ""));
    for (const std::string& line : aligned(rows)) screen_.line(line);
    for (const Result& result : results)
      if (!result.message.empty() && result.status != "not started")
        screen_.line(result.contender->name + ": " + result.status + ": " + result.message);
  }

  const Settings settings_;
  CsvTable table_;
  std::unique_ptr<Machine> machine_;
  Screen screen_;
  std::vector<const Contender*> contenders_;
  std::size_t baseline_bytes_ = 0;  // in use without the inputs: it does not count in the limit
  int rows_ = 0, errors_ = 0;
  std::map<std::string, std::string> missing_tasks_;  // and the implementation that it is a part of
};

int run(int argc, char** argv) {
  const AttentionRegistry registry = make_registry();
  const auto settings = parse(argc, argv, registry);
  if (!settings) return 0;
  Benchmark benchmark(*settings, registry);
  remember_interrupts();
  try {
    return benchmark.run();
  } catch (const Interrupted& interrupted) {
    benchmark.screen().line("interrupted: the rows above are saved, the others are as they were");
    return 128 + interrupted.signal;
  }
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::run_program(argc, argv, flash::run); }
