// The core of every benchmark: problem x implementations x sizes -> rows. A benchmark is one file,
// bench_NAME.cpp: a class that derives from Benchmark and says what the options, the inputs, the
// passes and the cells of a row are. The core does the rest, on the host and on a GPU alike:
//
//   for each size: make the inputs, check each implementation once against the oracle,
//                  time turns of all implementations (A B C A B C ...), write a row for each
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarking/csv.hpp"
#include "benchmarking/machine.hpp"
#include "benchmarking/options.hpp"
#include "benchmarking/program.hpp"
#include "common/attention_call.hpp"
#include "common/compare.hpp"
#if FLASH_HAVE_CUDA
#include "common/cuda/device_tensor.hpp"
#endif

namespace flash {

// ---- Memory of the host (Tensor) and of a GPU (DeviceTensor) alike ------------------------------

template <class T, int Rank>
void fill_with_nan(Tensor<T, Rank>& tensor) {
  if constexpr (std::is_same_v<T, std::byte>)
    std::fill_n(tensor.data(), tensor.size(), std::byte{0xff});
  else
    std::fill_n(tensor.data(), tensor.size(), poison<T>());
}
template <class T, int Rank>
const Tensor<T, Rank>& on_host(const Tensor<T, Rank>& tensor) {
  return tensor;
}
#if FLASH_HAVE_CUDA
template <class T, int Rank>
void fill_with_nan(DeviceTensor<T, Rank>& tensor) {
  device::fill_bytes(tensor.data(), 0xff, tensor.bytes());
}
template <class T, int Rank>
const Tensor<T, Rank> on_host(const DeviceTensor<T, Rank>& tensor) {
  return tensor.to_host();
}
#endif

// A host tensor itself, or a copy of it on a GPU.
template <class T, int Rank, template <class, int> class Memory>
using InMemory = std::conditional_t<std::is_same_v<Memory<T, Rank>, Tensor<T, Rank>>,
                                    const Tensor<T, Rank>&, const Memory<T, Rank>>;

template <class TensorOfMemory>
std::size_t bytes_of(const TensorOfMemory& tensor) {
  return sizeof(*tensor.data()) * static_cast<std::size_t>(tensor.view().size());
}

// ---- What a problem gives to the core -----------------------------------------------------------

// Whether a result is right, and how far it is from the oracle.
struct Verdict {
  std::string wrong;  // empty when it is right, else what is wrong, in one line
  double scaled_error = 0, frobenius_error = 0;

  // The first thing that is wrong, and the larger errors.
  void add(const Verdict& other);
};

// The verdict of a comparison with the oracle; `where` begins the line of a wrong result.
Verdict verdict_of(const Comparison& comparison, const std::string& where);

// One implementation on one problem. Outputs and workspace are made in prepare() and
// prepare_backward(), outside of what is timed.
class Trial {
 public:
  virtual ~Trial() = default;

  bool poison = false;  // outputs are made full of NaN, so that what a pass does not write is seen

  virtual void prepare() = 0;         // drops what earlier passes left
  virtual void forward() = 0;         // may return before its work is done
  virtual void prepare_backward() {}  // keeps what forward() saved
  virtual void backward() {}
  virtual std::size_t saved_bytes() const { return 0; }
  virtual Verdict check_forward() = 0;
  virtual Verdict check_backward() { return {}; }

  // A pass that makes outputs of its own copies them to ours after its time was taken.
  void finish() {
    if (memory_.deliver) std::exchange(memory_.deliver, nullptr)();
  }
  // What the last pass that was prepared adds to its inputs, beside what it allocates while it
  // runs: outputs and workspace; of a pass that makes its own outputs, what it says instead.
  std::size_t reserved_bytes() const {
    return workspace_bytes_ + memory_.own_peak_bytes + (memory_.deliver ? 0 : output_bytes_);
  }

 protected:
  PassMemory memory_;
  std::size_t workspace_bytes_ = 0, output_bytes_ = 0;
};

// A trial whose tensors are in one of these memories.
template <template <class, int> class Memory>
class TrialIn : public Trial {
 protected:
  template <class U, std::size_t Rank>
  auto output(const std::array<Index, Rank>& shape) {
    auto tensor = tensor_in<Memory<U, static_cast<int>(Rank)>>(shape, Stream{});
    if (poison) fill_with_nan(tensor);
    return tensor;
  }

  // Before a pass with outputs of `output_bytes`: throws Unsupported, or makes its workspace.
  template <class EntryOfPass, class Pass>
  void reserve(const EntryOfPass& entry, const Pass& pass, std::size_t output_bytes) {
    check_supported(entry, pass);
    workspace_ = {};
    workspace_bytes_ = entry.workspace_of(problem_of(pass));
    if (workspace_bytes_ > 0)
      workspace_ = output<std::byte>(Shape<1>{static_cast<Index>(workspace_bytes_)});
    memory_.workspace = workspace_.data();
    memory_.own_peak_bytes = 0;
    output_bytes_ = output_bytes;
  }

  Memory<std::byte, 1> workspace_;
};

// The inputs of one problem, in the machine's memory.
class Inputs {
 public:
  virtual ~Inputs() = default;
  virtual std::size_t bytes() const = 0;
  virtual void prepare_check() = 0;  // computes what is right: may take seconds
  virtual std::unique_ptr<Trial> trial(std::size_t implementation) = 0;
};

// A trial as it is measured: with caches evicted and memory metered.
class Runner {
 public:
  Runner(Machine& machine, Trial& trial, bool with_backward, std::function<void()> progress)
      : has_backward(with_backward),
        machine_(machine),
        trial_(trial),
        progress_(std::move(progress)) {}

  const bool has_backward;

  void prepare();
  void forward();
  void prepare_backward();  // throws OutOfMemory where there is no backward pass to measure
  void backward();
  void reset_peak_memory();
  std::size_t peak_memory_bytes();  // what the pass added since then to what was there: its peak
  std::size_t saved_bytes() const { return trial_.saved_bytes(); }

  bool in_backward() const { return in_backward_; }
  int forward_passes() const { return forward_passes_; }

 private:
  Machine& machine_;
  Trial& trial_;
  std::function<void()> progress_;
  std::size_t before_ = 0;
  bool in_backward_ = false;
  int forward_passes_ = 0;
};

// What a turn measured of a pass: the mean and the sample standard deviation of its timed passes.
struct PassTime {
  double mean_ms = 0, std_ms = 0;
  std::optional<double> peak_MiB = std::nullopt;  // else the check's counts
  int passes = 0;                                 // set by the core
};
struct Turn {
  std::string status = "ok", message = "";  // or "OOM" or "OOM(backward)"
  PassTime forward = {}, backward = {};
};

// ---- What the core makes of it ------------------------------------------------------------------

struct PassResult {
  double mean_ms = 0, std_ms = 0;            // of all timed passes
  double median_ms = 0, spread_percent = 0;  // of the turns' means
  double peak_MiB = 0;
};

// What one implementation did on one problem.
struct Result {
  std::string status = "ok";                     // the CSV's, or "not started", which is no row
  std::string message;                           // in one line; empty when ok
  bool has_forward = true, has_backward = true;  // measured, or still to be measured
  PassResult forward, backward;
  double saved_MiB = 0;
  Verdict verdict;
  std::chrono::steady_clock::duration check_time{0};  // of both passes, and of their comparison
  double peak_gflops = 0;  // of the processor, in the same turns; 0 where it is not known

  void fail(const std::string& new_status, std::string new_message, bool keep_forward = false);
};

struct Settings {
  std::string device = "cpu";  // "cuda" or "cpu"
  bool quick = false;
  DType dtype = DType::kFloat32;
  int warmups = 1, passes = 5;
  std::optional<std::size_t> memory_limit;
  std::filesystem::path output;
  std::uint64_t seed = 1;
};

class Benchmark {
 public:
  virtual ~Benchmark() = default;

  virtual std::string table() const = 0;  // of <table>_benchmark.csv
  virtual std::string purpose() const = 0;
  virtual std::string default_device() const { return "cpu"; }

  // Its own options; then, with device and quick known, what they mean. Throws OptionError.
  virtual void declare(Options& options) = 0;
  virtual void decide(Settings& settings) = 0;

  virtual std::string headline() const = 0;     // "batch 1, 4 heads of 64, float32"
  virtual Strings implementations() const = 0;  // in the order of the rows
  virtual bool has_backward(std::size_t) const { return false; }  // of an implementation
  virtual std::size_t sizes() const = 0;
  virtual std::string name_of_size(std::size_t size) const = 0;  // "seq_len 256, causal"
  virtual std::unique_ptr<Inputs> inputs(std::size_t size) = 0;  // may throw OutOfMemory

  // One turn. By default the core measures, without a task of the course.
  virtual Turn measure(Runner& runner, Clock& clock, int warmups, int passes);

  // The cells of a row but for those that all benchmarks have (status, machine, errors, others).
  virtual CsvRow cells(std::size_t size, std::size_t implementation,
                       const Result& result) const = 0;
  virtual Strings shown_columns() const = 0;  // on the screen; a GPU has no percent_of_peak
  virtual std::string remark(const std::vector<Result>&) const { return ""; }
};

// A measured number as a cell, empty where there is none.
std::string number_cell(bool there, double value);

// What main() returns: 0, or 1 when a row has the status "error" or there is no row, or
// run_program()'s.
int run_benchmark(Benchmark& benchmark, int argc, char** argv);

}  // namespace flash
