// bench_attention on a CPU: standard attention, the flash passes, and the rungs of the ladder, on the same inputs, one call of
// each in turn: what disturbs the machine for a while disturbs all of them.
#include <algorithm>

#include "benchmarking/attention_ladder.hpp"
#include "benchmarking/attention_rows.hpp"
#include "benchmarking/interrupt.hpp"
#include "benchmarking/program.hpp"
#include "common/attention_registry.hpp"
#include "common/compare.hpp"
#include "part2_flash_cpu/implementations.hpp"

namespace flash {
namespace {

using Contender = Implementation<const AttentionFunctions>;

// What there is, in the order of the rows.
const AttentionRegistry& registry() {
  static const AttentionRegistry made = [] {
    AttentionRegistry registry;
    register_part2_attention(registry);
    register_ladder(registry);
    return registry;
  }();
  return made;
}

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
  Benchmark(const AttentionSettings& settings, AttentionReport& report)
      : settings_(settings), report_(report), machine_(report.machine()) {
    for (const std::string& name : settings.implementations) contenders_.push_back(&registry().find(name));
  }

  int run() {
    report_.header(format("%d timed turns after %d", settings_.passes, settings_.warmups),
                   ceiling_name().empty() ? "" : ceiling_name() + "; measured between the passes");
    for (const Index seq_len : settings_.seq_lens)
      for (const bool causal : settings_.causal) {
        const AttentionSizes sizes{settings_.batch, settings_.heads, seq_len, settings_.head_dim, causal};
        settings_.dtype == DType::kFloat32 ? run_problem<float>(sizes) : run_problem<double>(sizes);
      }
    return report_.finish();
  }

 private:
  template <class T>
  void run_problem(const AttentionSizes& sizes) {
    throw_if_interrupted();
    std::vector<Result> results;
    for (const Contender* contender : contenders_) results.push_back({{.implementation = contender->name}, contender->run, {}, {}});
    const std::string what = format("seq_len %lld%s: ", static_cast<long long>(sizes.seq_len), sizes.causal ? ", causal" : "");
    const int steps = 1 + settings_.warmups + settings_.passes;

    std::optional<AttentionProblem<T>> problem;
    report_.screen().progress(0, steps, what + "inputs and oracle");
    try {
      const MemoryCap cap(machine_, machine_.memory_in_use(), settings_.memory_limit);
      problem.emplace(sizes, settings_.seed);
    } catch (const OutOfMemory& error) {
      for (Result& result : results) result.row.fail("OOM", std::string("the inputs do not fit: ") + error.what());
    }
    std::vector<double> ceilings;
    if (problem) {
      problem->prepare_check();
      baseline_bytes_ = machine_.memory_in_use() - std::min(machine_.memory_in_use(), problem->bytes());
      for (Result& result : results) {
        throw_if_interrupted();
        report_.screen().progress(0, steps, what + "check of " + result.row.implementation);
        check(*problem, result);
      }
      for (int turn = 0; turn < settings_.warmups + settings_.passes; ++turn) {
        for (Result& result : results) {
          throw_if_interrupted();
          report_.screen().progress(1 + turn, steps, what + result.row.implementation);
          if (turn == 0)
            measure_memory(*problem, result);
          else
            measure_time(*problem, result, turn >= settings_.warmups);
          if (turn >= settings_.warmups) ceilings.push_back(ceiling_gflops(settings_.dtype));
        }
      }
    }
    const double ceiling = ceilings.empty() ? 0 : quantile(ceilings, 0.5);
    std::vector<AttentionRow> rows;
    for (Result& result : results) {
      if (result.row.has_forward) result.row.forward_ms = quantile(result.forward_ms, 0.5);
      if (result.row.has_backward) result.row.backward_ms = quantile(result.backward_ms, 0.5);
      rows.push_back(result.row);
    }
    report_.add(sizes, rows, ceiling);
  }

  // A row, the implementation that it is of, and the times of its turns.
  struct Result {
    AttentionRow row;
    const AttentionFunctions* functions;
    std::vector<double> forward_ms, backward_ms;
  };

  template <class Call>
  bool attempt(Result& result, bool backward, Call&& call) {
    const bool done = flash::attempt(result.row, backward, report_.missing_tasks(), [&] {
      const MemoryCap cap(machine_, baseline_bytes_, settings_.memory_limit);
      call();
    });
    if (!done) machine_.release_cached_memory();
    return done;
  }

  template <class T>
  void check(const AttentionProblem<T>& problem, Result& result) {
    const AttentionFunctions& functions = *result.functions;
    const AttentionShape shape = problem.sizes().shape();
    if (functions.template passes<T>().forward == nullptr)
      return result.row.fail("unsupported", "there is no " + to_string(settings_.dtype) + " version");
    std::optional<ForwardOutputs<T>> forward;
    if (!attempt(result, false, [&] {
          forward.emplace(shape, functions.saves_p);
          run_forward(functions, problem, *forward);
        }))
      return;
    std::string wrong = problem.check_forward(std::as_const(forward->out).view());
    if (!wrong.empty()) return result.row.fail("error", "wrong result: " + wrong);

    std::optional<BackwardOutputs<T>> backward;
    if (!attempt(result, true, [&] {
          backward.emplace(shape);
          run_backward(functions, problem, *forward, *backward);
        }))
      return;
    wrong = problem.check_backward(std::as_const(backward->d_q).view(), std::as_const(backward->d_k).view(),
                                   std::as_const(backward->d_v).view());
    if (!wrong.empty()) result.row.fail("error", "wrong result: " + wrong);
  }

  // One forward and one backward pass as a caller has them who keeps nothing but what the backward pass needs.
  template <class T>
  void measure_memory(const AttentionProblem<T>& problem, Result& result) {
    if (!result.row.has_forward) return;
    std::optional<Attention<T>> pass;
    release_ladder_memory();
    if (!attempt(result, false, [&] {
          const PeakMeter meter(machine_);
          pass.emplace(*result.functions, problem.q(), problem.k(), problem.v(), problem.sizes().options());
          result.row.forward_peak_MiB = meter.MiB();
        }))
      return;
    std::size_t saved = 0;
    for (const auto& [name, bytes] : pass->saved()) saved += bytes;
    result.row.saved_MiB = static_cast<double>(saved) / 0x1p20;
    if (!result.row.has_backward) return;
    release_ladder_memory();
    attempt(result, true, [&] {
      const PeakMeter meter(machine_);
      (void)pass->backward(problem.d_out());
      result.row.backward_peak_MiB = meter.MiB();
    });
  }

  // Outputs are made before the clock is read, and caches are evicted after that.
  template <class T>
  void measure_time(const AttentionProblem<T>& problem, Result& result, bool counts) {
    if (!result.row.has_forward) return;
    const AttentionFunctions& functions = *result.functions;
    const AttentionShape shape = problem.sizes().shape();
    std::optional<ForwardOutputs<T>> forward;
    double forward_ms = 0, backward_ms = 0;
    if (!attempt(result, false, [&] {
          forward.emplace(shape, functions.saves_p);
          forward_ms = timed([&] { run_forward(functions, problem, *forward); });
        }))
      return;
    if (counts) result.forward_ms.push_back(forward_ms);
    if (!result.row.has_backward) return;
    if (!attempt(result, true, [&] {
          BackwardOutputs<T> backward(shape);
          backward_ms = timed([&] { run_backward(functions, problem, *forward, backward); });
        }))
      return;
    if (counts) result.backward_ms.push_back(backward_ms);
  }

  template <class Call>
  double timed(Call&& call) {
    Clock& clock = machine_.clock();
    machine_.evict_caches();
    clock.synchronize();
    const double start = clock.now_ms();
    call();
    clock.synchronize();
    return clock.now_ms() - start;
  }

  const AttentionSettings& settings_;
  AttentionReport& report_;
  Machine& machine_;
  std::vector<const Contender*> contenders_;
  std::size_t baseline_bytes_ = 0;  // in use without the inputs: it does not count in the limit
};

}  // namespace

std::vector<std::string> attention_names_on_cpu() {
  std::vector<std::string> names;
  for (const Contender& entry : registry().entries()) names.push_back(entry.name);
  return names;
}

int bench_attention_on_cpu(const AttentionSettings& settings, AttentionReport& report) {
  return Benchmark(settings, report).run();
}

}  // namespace flash
