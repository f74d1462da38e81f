// bench_attention on a GPU: standard attention and the flash passes, one implementation after another, by task 3.B's
// measure_attention(): the program around that task.
#include "benchmarking/attention_rows.hpp"

#ifdef FLASH_HAVE_PART3_CUDA

#include <functional>

#include "benchmarking/device_attention_registry.hpp"
#include "benchmarking/interrupt.hpp"
#include "common/compare.hpp"
#include "part3_flash_cuda/measure_attention.hpp"

namespace flash {
namespace {

// The inputs on the device.
template <class T>
struct Inputs {
  DeviceTensor<T, 4> q, k, v, d_out;

  explicit Inputs(const AttentionProblem<T>& problem)
      : q(packed(problem.q())), k(packed(problem.k())), v(packed(problem.v())), d_out(packed(problem.d_out())) {}
};

// One implementation on one problem, as measure_attention() takes it. Memory is counted beyond what is there when a pass
// begins.
template <class T>
class Work final : public AttentionWork {
 public:
  Work(Machine& machine, const std::string& name, const Inputs<T>& inputs, const AttentionOptions& options)
      : machine_(machine), name_(name), inputs_(inputs), options_(options) {}

  std::function<void()> progress = [] {};

  void prepare() override {
    throw_if_interrupted();
    progress();
    gradients_.reset();
    pass_.reset();
    machine_.evict_caches();
  }
  void forward() override {
    pass_.emplace(device_attention_registry(), name_, inputs_.q.view(), inputs_.k.view(), inputs_.v.view(), options_);
  }
  void prepare_backward() override { machine_.evict_caches(); }
  void backward() override { gradients_.emplace(pass_->backward(inputs_.d_out.view())); }

  std::size_t saved_bytes() override {
    std::size_t bytes = 0;
    for (const auto& [name, size] : pass_->saved()) bytes += size;
    return bytes;
  }
  void reset_peak_memory() override {
    before_ = machine_.memory_in_use();
    machine_.reset_peak_memory();
  }
  std::size_t peak_memory_bytes() override { return machine_.peak_memory() - before_; }

  const DeviceAttention<T>& pass() const { return *pass_; }
  const DeviceAttentionGradients<T>& gradients() const { return *gradients_; }

 private:
  Machine& machine_;
  const std::string name_;
  const Inputs<T>& inputs_;
  const AttentionOptions options_;
  std::size_t before_ = 0;
  std::optional<DeviceAttention<T>> pass_;
  std::optional<DeviceAttentionGradients<T>> gradients_;
};

// const, so that its view() is one of const elements.
template <class T>
const Tensor<T, 4> to_host(TensorView<const T, 4> x) {
  Tensor<T, 4> host(x.shape());
  device::copy_to_host(host.data(), x.data(), sizeof(T) * static_cast<std::size_t>(host.size()));
  return host;
}

class Benchmark {
 public:
  Benchmark(const AttentionSettings& settings, AttentionReport& report)
      : settings_(settings), report_(report), machine_(report.machine()) {}

  int run() {
    report_.header(format("%d passes after %d", settings_.passes, settings_.warmups), "");
    for (const Index seq_len : settings_.seq_lens)
      for (const bool causal : settings_.causal) {
        const AttentionSizes sizes{settings_.batch, settings_.heads, seq_len, settings_.head_dim, causal};
        switch (settings_.dtype) {
          case DType::kFloat16: run_problem<Half>(sizes); break;
          case DType::kBFloat16: run_problem<BFloat16>(sizes); break;
          default: run_problem<float>(sizes);
        }
      }
    return report_.finish();
  }

 private:
  template <class T>
  void run_problem(const AttentionSizes& sizes) {
    throw_if_interrupted();
    const std::string what = format("seq_len %lld%s: ", static_cast<long long>(sizes.seq_len), sizes.causal ? ", causal" : "");
    const int steps = static_cast<int>(settings_.implementations.size()) * (1 + 2 * (settings_.warmups + settings_.passes));
    report_.screen().progress(0, steps, what + "inputs and oracle");
    AttentionProblem<T> problem(sizes, settings_.seed);
    problem.prepare_check();

    std::vector<AttentionRow> rows;
    for (const std::string& name : settings_.implementations) rows.push_back({.implementation = name});
    std::optional<Inputs<T>> inputs;
    const std::size_t before = machine_.memory_in_use();
    for (AttentionRow& row : rows)
      attempt(row, false, report_.missing_tasks(), [&] {
        const MemoryCap cap(machine_, before, settings_.memory_limit);
        if (!inputs) inputs.emplace(problem);
      });
    int step = 0;
    for (AttentionRow& row : rows) {
      if (!inputs) break;
      {
        Work<T> work(machine_, row.implementation, *inputs, sizes.options());
        work.progress = [&] { report_.screen().progress(++step, steps, what + row.implementation); };
        const MemoryCap cap(machine_, before, settings_.memory_limit);
        if (check(problem, work, row)) measure(work, row);
      }
      machine_.release_cached_memory();
    }
    report_.add(sizes, rows, 0);
  }

  // Whether there is something to time: a backward pass may be missing, a wrong result may not be. All memory that a pass gets
  // holds NaN, so that what it does not write is not the result of another implementation.
  template <class T>
  bool check(const AttentionProblem<T>& problem, Work<T>& work, AttentionRow& row) {
    struct Poison {
      Poison() { device::set_poison(true); }
      ~Poison() { device::set_poison(false); }
    } const poison;
    work.prepare();
    if (!attempt(row, false, report_.missing_tasks(), [&] {
          work.forward();
          device::synchronize();
        }))
      return false;
    std::string wrong = problem.check_forward(to_host(work.pass().out()).view());
    if (wrong.empty() && attempt(row, true, report_.missing_tasks(), [&] {
          work.backward();
          device::synchronize();
        })) {
      const auto& d = work.gradients();
      wrong = problem.check_backward(to_host<T>(d.d_q.view()).view(), to_host<T>(d.d_k.view()).view(),
                                     to_host<T>(d.d_v.view()).view());
    }
    if (!wrong.empty()) row.fail("error", "wrong result: " + wrong);
    return wrong.empty() && row.status != "error";
  }

  void measure(AttentionWork& work, AttentionRow& row) {
    AttentionMeasurement measured;
    row = {.implementation = row.implementation};
    if (!attempt(row, false, report_.missing_tasks(),
                 [&] { measured = measure_attention(work, machine_.clock(), settings_.warmups, settings_.passes); }))
      return;
    row.forward_ms = measured.forward_ms_mean;
    row.forward_peak_MiB = measured.forward_peak_MiB;
    row.backward_ms = measured.backward_ms_mean;
    row.backward_peak_MiB = measured.backward_peak_MiB;
    row.saved_MiB = measured.saved_activations_MiB;
    if (measured.status != AttentionStatus::kOk)
      row.fail(to_string(measured.status), measured.message, measured.status == AttentionStatus::kOutOfMemoryBackward);
  }

  const AttentionSettings& settings_;
  AttentionReport& report_;
  Machine& machine_;
};

}  // namespace

std::vector<std::string> attention_names_on_gpu() {
  std::vector<std::string> names;
  for (const auto& entry : device_attention_registry().entries()) names.push_back(entry.name);
  return names;
}

int bench_attention_on_gpu(const AttentionSettings& settings, AttentionReport& report) {
  return Benchmark(settings, report).run();
}

}  // namespace flash

#else

namespace flash {

std::vector<std::string> attention_names_on_gpu() { return {}; }
int bench_attention_on_gpu(const AttentionSettings&, AttentionReport&) { throw CudaError("this build has no CUDA"); }

}  // namespace flash

#endif
