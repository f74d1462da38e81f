// Times attention, forward and backward, over the sequence length: any forward pass of the registry
// with any backward pass.
#include <dlfcn.h>

#include <algorithm>

#include "benchmarking/attention_inputs.hpp"
#include "benchmarking/benchmark.hpp"
#include "benchmarking/memory.hpp"
#include "common/all_passes.hpp"
#include "common/best_pass.hpp"
#ifdef FLASH_HAVE_PART3
#include "part3_flash_cuda/measure_attention.hpp"
#endif

namespace flash {
namespace {

using std::to_string;

Registry& registry() {
  static Registry passes = with_best(all_passes());
  return passes;
}

// Enters the passes of a rung that was compiled alone (./lab tune), under the name of the library.
void load(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW);
  void* const enter = library == nullptr ? nullptr : dlsym(library, "enter_rung");
  if (enter == nullptr)
    throw OptionError("--load is '" + file +
                      "'; it must be a library with the function enter_rung(): " + dlerror());
  reinterpret_cast<void (*)(Registry&, const char*)>(enter)(
      registry(), std::filesystem::path(file).stem().c_str());
}

// ---- Pairs of passes on one problem -------------------------------------------------------------

using Pairs = std::vector<AttentionNames>;

// The inputs are on the host those of AttentionInputs, on a GPU copies of them.
template <class T, template <class, int> class Memory>
class InputsOf final : public Inputs {
 public:
  InputsOf(const AttentionProblem& problem, std::uint64_t seed, Index query_scale,
           DeviceKind device, const Pairs& pairs)
      : host_(problem, seed, query_scale,
              std::ranges::any_of(
                  pairs, [](const AttentionNames& pair) { return !pair.backward.empty(); })),
        device_(device),
        pairs_(pairs) {}

  std::size_t bytes() const override { return 3 * bytes_of(q_) + bytes_of(d_out_); }
  void prepare_check() override { host_.prepare_check(); }
  std::unique_ptr<Trial> trial(std::size_t i) override {
    const auto& [forward, backward] = pairs_[i];
    return std::make_unique<Pair>(
        *this, registry().forward.find(forward, device_),
        backward.empty() ? nullptr : &registry().backward.find(backward, device_));
  }

 private:
  class Pair final : public TrialIn<Memory> {
   public:
    Pair(const InputsOf& inputs, const Entry<AttentionForward>& forward,
         const Entry<AttentionBackward>* backward)
        : x_(inputs), forward_(forward), backward_(backward) {}

    void prepare() override {
      for (auto* const tensor : {&out_, &d_q_, &d_k_, &d_v_}) *tensor = {};
      lse_ = {};
      memory_ = {};
      out_ = this->template output<T>(shape().of_queries());
      lse_ = this->template output<LseType<T>>(shape().of_rows());
      forward_pass_ = {x_.q_.view(), x_.k_.view(), x_.v_.view(),
                       out_.view(),  lse_.view(),  x_.host_.problem.options};
      this->reserve(forward_, forward_pass_, bytes_of(out_) + bytes_of(lse_));
    }
    void forward() override { forward_.run.template of<T>()(forward_pass_, memory_); }

    void prepare_backward() override {
      d_q_ = this->template output<T>(shape().of_queries());
      d_k_ = this->template output<T>(shape().of_keys());
      d_v_ = this->template output<T>(shape().of_keys());
      const auto& [q, k, v, out, lse, options, stream] = forward_pass_;
      backward_pass_ = {q,           k,           v,           out,    lse, x_.d_out_.view(),
                        d_q_.view(), d_k_.view(), d_v_.view(), options};
      this->reserve(*backward_, backward_pass_, bytes_of(d_q_) + bytes_of(d_k_) + bytes_of(d_v_));
    }
    void backward() override { backward_->run.template of<T>()(backward_pass_, memory_); }

    // q, k and v, and what the backward pass reads of the forward pass: what that kept for it, or
    // out and lse. A pass that makes its own outputs keeps those.
    std::size_t saved_bytes() const override {
      const bool is_pair = backward_ != nullptr && backward_->name == forward_.name;
      const std::size_t kept = is_pair ? memory_.kept_bytes : 0;
      const bool reads_kept = kept > 0 && (backward_->only_as_pair || memory_.deliver);
      return bytes_of(x_.q_) + bytes_of(x_.k_) + bytes_of(x_.v_) + kept +
             (reads_kept ? 0 : bytes_of(out_) + bytes_of(lse_));
    }

    Verdict check_forward() override { return x_.host_.check_forward(on_host(out_).view()); }
    Verdict check_backward() override {
      return x_.host_.check_backward(on_host(d_q_).view(), on_host(d_k_).view(),
                                     on_host(d_v_).view());
    }

   private:
    const AttentionShape& shape() const { return x_.host_.problem.shape; }

    using Trial::memory_;
    const InputsOf& x_;
    const Entry<AttentionForward>& forward_;
    const Entry<AttentionBackward>* const backward_;
    Memory<T, 4> out_, d_q_, d_k_, d_v_;
    Memory<LseType<T>, 3> lse_;
    AttentionForward<T> forward_pass_;
    AttentionBackward<T> backward_pass_;
  };

  AttentionInputs<T> host_;
  const InMemory<T, 4, Memory> q_{host_.q}, k_{host_.k}, v_{host_.v}, d_out_{host_.d_out};
  const DeviceKind device_;
  const Pairs& pairs_;
};

// ---- The benchmark ------------------------------------------------------------------------------

// What a run measures where no option says otherwise: `problem` with each of these lengths.
struct Defaults {
  AttentionProblem problem;
  std::vector<Index> seq_lens;
  const char* mask = "both";
};
constexpr Index kAny = 1;  // length
// By name: what the four notebooks measure that the course began with.
const std::map<std::string, Defaults> kNotebooks = {
    {"notebook-000", {{{4, 1, kAny, kAny, 1024}, {}, DType::kFloat16}, {1024}}},
    {"notebook-001", {{{4, 8, kAny, kAny, 512}}, {64}, "on"}},
    {"notebook-002", {{{1, 1, kAny, kAny, 1}}, {200}, "off"}},
    {"notebook-003", {{{8, 8, kAny, kAny, 64}, {}, DType::kFloat16}, {2048}}}};

class AttentionBenchmark final : public Benchmark {
 public:
  std::string table() const override { return "attention"; }
  std::string purpose() const override {
    return "Times attention forward and backward: Q, K and V (batch, heads, seq_len, head_dim).\n" +
           names_text(DeviceKind::kCpu) + names_text(DeviceKind::kGpu);
  }

  void declare(Options& options) override {
    constexpr std::int64_t kMost = 1 << 12, kMostKeys = 1 << 20;  // together below 2^63 bytes
    Strings names_of_notebooks;
    for (const auto& [name, notebook] : kNotebooks) names_of_notebooks.push_back(name);
    options.names("impl,--forward",
                  "forward passes, or implementations as the CSV names them: flash, flash+plain "
                  "(default: all passes but flash_best)",
                  names_);
    options.names(
        "backward",
        "backward passes, each with each of --forward; none: forward passes alone "
        "(default: those of the same names; a pass that has only a backward one goes with flash)",
        backward_);
    options.names("load", "libraries of rungs, which ./lab tune compiles", libraries_);
    options.choice("problem",
                   "sizes, type and mask of one of the notebooks, on a CPU with --dtype float32 "
                   "(benchmarking/README.md)",
                   problem_, names_of_notebooks);
    options.integer("batch", "batch size (default: 1; on a GPU 8, quick 2)", batch_, 1, kMost);
    options.integer("heads", "heads of a batch (default: 4, quick 2; on a GPU 1)", heads_, 1,
                    kMost);
    options.integer("head-dim", "columns of Q, K and V of a head (default: 64)", head_dim_, 1,
                    kMost);
    options.integers("seq-lens",
                     "numbers of queries and keys (default: 256,512,...,4096, quick 128,256,512; "
                     "on a GPU 256,1024,4096,8192,16384, quick 256,1024)",
                     seq_lens_, 1, kMostKeys);
    options.integer("query-scale", "factor of Q: 8 makes sharp softmaxes (default: 1)",
                    query_scale_, 1, 1000);
    options.choice("dtype", "of every tensor (default: float32)", dtype_,
                   {"float32", "float64", "float16", "bfloat16"});
    options.choice("causal", "the mask (default: both)", mask_, {"both", "on", "off"});
  }

  void decide(Settings& settings) override {
    for (const std::string& file : libraries_.value_or(Strings{})) load(file);
    gpu_ = settings.device == "cuda";
    device_ = gpu_ ? DeviceKind::kGpu : DeviceKind::kCpu;
    const bool quick = settings.quick;
    Defaults defaults{{{1, quick ? 2 : 4, kAny, kAny, 64}}, {256, 512, 1024, 2048, 4096}};
    if (quick) defaults.seq_lens = {128, 256, 512};
    if (gpu_) defaults = {{{quick ? 2 : 8, 1, kAny, kAny, 64}}, {256, 1024, 4096, 8192, 16384}};
    if (gpu_ && quick) defaults.seq_lens = {256, 1024};
    if (problem_) defaults = kNotebooks.at(*problem_);
    auto& [problem, seq_lens, mask] = defaults;
    if (problem_ && quick) problem.shape.batch = 1;
    settings.warmups = !gpu_ ? 1 : quick ? 2 : 10;
    settings.passes = !gpu_ ? 5 : quick ? 10 : 100;
    seed_ = settings.seed;

    problem.shape.batch = batch_.value_or(problem.shape.batch);
    problem.shape.heads = heads_.value_or(problem.shape.heads);
    problem.shape.head_dim = head_dim_.value_or(problem.shape.head_dim);
    const std::string dtype = dtype_.value_or(to_string(problem.dtype));
    Strings types;
    for (const DType each : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
      if (gpu_ && each == DType::kFloat64) continue;
      types.push_back(to_string(each));
      if (types.back() == dtype) settings.dtype = problem.dtype = each;
    }
    if (!contains(types, dtype))
      throw OptionError("--dtype is '" + dtype + "'; with --device " + settings.device +
                        " it must be one of: " + joined(types));
#ifdef FLASH_HAVE_PART3
    if (gpu_ && !seq_lens_ && !problem_) {
      runs_ = task()->list_of_attention_runs();
      seq_lens.clear();
      for (const AttentionRun& run : runs_)
        if (!contains_length(seq_lens, run.seq_len) && !(quick && run.seq_len > 1024))
          seq_lens.push_back(run.seq_len);
      if (seq_lens.empty())
        throw OptionError("list_of_attention_runs() has no run: ./lab check 3.B");
    }
#endif
    for (const Index seq_len : seq_lens_.value_or(seq_lens))
      for (const bool causal : {false, true}) {
        if (mask_.value_or(mask) != "both" && causal != (mask_.value_or(mask) == "on")) continue;
        problem.shape.queries = problem.shape.keys = seq_len;
        problem.options.causal = causal;
        sizes_.push_back(problem);
      }
    if (!settings.memory_limit && !gpu_)
      if (const auto available = available_host_memory())
        settings.memory_limit = std::max<std::size_t>(*available / 2, 1);
    choose_pairs();
  }

  std::string headline() const override {
    const auto& [shape, options, dtype, tensors] = sizes_.front();
    return "batch " + to_string(shape.batch) + ", " + to_string(shape.heads) + " heads of " +
           to_string(shape.head_dim) + ", " + to_string(dtype) +
           (query_scale() == 1 ? "" : ", Q times " + to_string(query_scale()));
  }

  // One name where both passes have it; FORWARD+none where the other pass of that name is left out.
  Strings implementations() const override {
    Strings names;
    for (const auto& [forward, backward] : pairs_) {
      const bool is_there = registry().backward.find_or_null(forward, device_) != nullptr;
      names.push_back(forward == backward || (backward.empty() && !is_there)
                          ? forward
                          : forward + "+" + (backward.empty() ? "none" : backward));
    }
    return names;
  }
  bool has_backward(std::size_t i) const override { return !pairs_[i].backward.empty(); }

  std::size_t sizes() const override { return sizes_.size(); }
  std::string name_of_size(std::size_t size) const override {
    return "seq_len " + to_string(sizes_[size].shape.keys) +
           (sizes_[size].options.causal ? ", causal" : ", not causal");
  }
  std::unique_ptr<Inputs> inputs(std::size_t size) override {
    const DType dtype = sizes_[size].dtype;
#if FLASH_HAVE_CUDA
    if (gpu_ && dtype == DType::kFloat16) return make<Half, DeviceTensor>(size);
    if (gpu_ && dtype == DType::kBFloat16) return make<BFloat16, DeviceTensor>(size);
    if (gpu_) return make<float, DeviceTensor>(size);
#endif
    if (dtype == DType::kFloat16) return make<Half, Tensor>(size);
    if (dtype == DType::kBFloat16) return make<BFloat16, Tensor>(size);
    if (dtype == DType::kFloat64) return make<double, Tensor>(size);
    return make<float, Tensor>(size);
  }

  Turn measure(Runner& runner, Clock& clock, int warmups, int passes) override {
#ifdef FLASH_HAVE_PART3
    if (gpu_) {
      WorkOf<AttentionWork> work(runner);
      const AttentionMeasurement m = task()->measure_attention(work, clock, warmups, passes);
      return {.status = to_string(m.status),
              .message = m.message,
              .forward = {m.forward_ms_mean, m.forward_ms_std, m.forward_peak_MiB},
              .backward = {m.backward_ms_mean, m.backward_ms_std, m.backward_peak_MiB}};
    }
#endif
    return Benchmark::measure(runner, clock, warmups, passes);
  }

#ifdef FLASH_HAVE_PART3
  // Whatever is no implementation of the list is measured beside those that are.
  bool takes_part(std::size_t size, std::size_t i) const override {
    const std::string& name = pairs_[i].forward;
    if (runs_.empty() || (name != "standard" && name != "flash")) return true;
    return std::ranges::any_of(runs_, [&](const AttentionRun& run) {
      return run.seq_len == sizes_[size].shape.keys && run.implementation == name;
    });
  }
  void run_size(std::size_t size, const std::function<void()>& measure_size) override {
    if (!gpu_) return measure_size();
    run_by<AttentionConfiguration>(task()->measure_all, measurement_of, take, size, measure_size);
  }
#endif

  CsvRow cells(std::size_t size, std::size_t i, const std::vector<Result>& results) const override {
    const Result& result = results[i];
    const AttentionShape& shape = sizes_[size].shape;
    const auto forward = [&](double value) { return number_cell(result.has_forward, value); };
    const auto backward = [&](double value) { return number_cell(result.has_backward, value); };
    const double total_ms = result.forward.median_ms + result.backward.median_ms;
    const double gflops = 7 * sizes_[size].product_flops() / total_ms * 1e-6;
    const double peak = result.peak_gflops;
    return {{"d_model", to_string(shape.heads * shape.head_dim)},
            {"seq_len", to_string(shape.keys)},
            {"batch", to_string(shape.batch)},
            {"heads", to_string(shape.heads)},
            {"causal", sizes_[size].options.causal ? "True" : "False"},
            {"query_scale", to_string(query_scale())},
            {"forward_ms", forward(result.forward.median_ms)},
            {"forward_peak_MiB", forward(result.forward.peak_MiB)},
            {"forward_spread_percent", forward(result.forward.spread_percent)},
            {"backward_ms", backward(result.backward.median_ms)},
            {"backward_peak_MiB", backward(result.backward.peak_MiB)},
            {"backward_spread_percent", backward(result.backward.spread_percent)},
            {"saved_activations_MiB", forward(result.saved_MiB)},
            {"total_ms", backward(total_ms)},
            {"tflops", backward(gflops * 1e-3)},
            {"percent_of_peak", number_cell(result.has_backward && peak > 0, 100 * gflops / peak)}};
  }
  Strings shown_columns() const override {
    return {"implementation",
            "forward_ms",
            "backward_ms",
            "total_ms",
            "tflops",
            "percent_of_peak",
            "forward_peak_MiB",
            "backward_peak_MiB",
            "saved_activations_MiB",
            "scaled_error"};
  }

 private:
#ifdef FLASH_HAVE_PART3
  static TaskLibrary<MeasureAttentionTask> task() {
    return registry().tasks.library<MeasureAttentionTask>();
  }
  static bool contains_length(const std::vector<Index>& lengths, Index length) {
    return std::ranges::find(lengths, length) != lengths.end();
  }

  // What a configuration returns or throws.
  static AttentionMeasurement measurement_of(const Result& result) {
    if (result.status == "unsupported") throw Unsupported(result.message);
    if (result.status == "OOM") throw OutOfMemory(result.message);
    const PassResult &forward = result.forward, &backward = result.backward;
    AttentionMeasurement m{.message = result.message,
                           .forward_ms_mean = forward.mean_ms,
                           .forward_ms_std = forward.std_ms,
                           .forward_peak_MiB = forward.peak_MiB,
                           .saved_activations_MiB = result.saved_MiB};
    if (result.status == "OOM(backward)")
      m.status = AttentionStatus::kOutOfMemoryBackward;
    else if (result.status != "ok")
      throw Error(result.message);
    if (result.has_backward) {
      m.backward_ms_mean = backward.mean_ms;
      m.backward_ms_std = backward.std_ms;
      m.backward_peak_MiB = backward.peak_MiB;
    }
    return m;
  }
  // And what the task made of it.
  static void take(const AttentionRow& row, Result& result) {
    const AttentionMeasurement& m = row.measurement;
    if (m.status != AttentionStatus::kOk)
      return result.fail(to_string(m.status), m.message,
                         m.status == AttentionStatus::kOutOfMemoryBackward);
    result.status = "ok";
    result.forward.peak_MiB = m.forward_peak_MiB;
    result.backward.peak_MiB = m.backward_peak_MiB;
    result.saved_MiB = m.saved_activations_MiB;
  }

  std::vector<AttentionRun> runs_;  // empty where an option says which
#endif
  template <class T, template <class, int> class Memory>
  std::unique_ptr<Inputs> make(std::size_t size) const {
    return std::make_unique<InputsOf<T, Memory>>(sizes_[size], seed_, query_scale(), device_,
                                                 pairs_);
  }
  Index query_scale() const { return query_scale_.value_or(1); }

  static std::string names_text(DeviceKind device) {
    const std::string on = device == DeviceKind::kCpu ? "On a CPU" : "On a GPU";
    const auto forward = names_of(registry().forward, device),
               backward = names_of(registry().backward, device);
    if (forward.empty()) return on + " this build has no passes.\n";
    return on + " forward passes are " + joined(forward) + ";\nbackward passes are " +
           joined(backward) + ".\n";
  }

  void choose_pairs() {
    const Strings forward = names_of(registry().forward, device_),
                  backward = names_of(registry().backward, device_);
    if (forward.empty())
      throw OptionError(
          "--device is 'cuda'; it must be cpu here: this program has no passes for a GPU");
    Strings names = names_.value_or(forward);
    if (!names_) {
      for (const std::string& name : backward)
        if (!contains(forward, name) && contains(forward, "flash")) names.push_back(name);
      std::erase(names, kBest);
    }
    if (backward_) {
      names.clear();
      for (const std::string& f : names_.value_or(forward))
        for (const std::string& b : *backward_)
          if (names_ || (b == "none" ? f != kBest : f == (contains(forward, b) ? b : "flash")))
            names.push_back(f + "+" + b);
    }
    for (const std::string& name : names) add(name);
  }

  // FORWARD+BACKWARD, FORWARD+none, or one name: of both passes, of a forward pass alone, or of a
  // backward pass, which goes with flash. Throws OptionError for a name that there is not, and for
  // passes that do not go together.
  void add(const std::string& name) {
    const std::size_t plus = name.find('+');
    AttentionNames pair{name.substr(0, plus), name};
    if (plus != std::string::npos)
      pair.backward = name.substr(plus + 1);
    else if (registry().backward.find_or_null(name, device_) == nullptr)
      pair.backward = "none";
    else if (registry().forward.find_or_null(name, device_) == nullptr)
      pair.forward = "flash";
    if (pair.backward == "none") pair.backward.clear();
    try {
      const auto& forward = registry().forward.find(pair.forward, device_);
      if (!pair.backward.empty())
        check_pair(forward, registry().backward.find(pair.backward, device_));
    } catch (const ArgumentError& error) {
      throw OptionError(error.what());
    }
    pairs_.push_back(std::move(pair));
  }

  std::optional<Strings> names_, backward_, libraries_;
  std::optional<std::string> problem_, dtype_, mask_;
  std::optional<std::int64_t> batch_, heads_, head_dim_, query_scale_;
  std::optional<std::vector<std::int64_t>> seq_lens_;
  bool gpu_ = false;
  DeviceKind device_ = DeviceKind::kCpu;
  std::uint64_t seed_ = 1;
  std::vector<AttentionProblem> sizes_;
  Pairs pairs_;
};

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::AttentionBenchmark().main(argc, argv); }
