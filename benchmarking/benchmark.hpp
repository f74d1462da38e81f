// A program that times passes of the registry and writes a CSV. It is one file, bench_NAME.cpp: a
// class that derives from Benchmark and says what the options, the inputs, the passes and the cells
// of a row are. The core does the rest, on the host and on a GPU alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarking/core.hpp"
#include "benchmarking/csv.hpp"
#include "benchmarking/options.hpp"

namespace flash {

struct Settings : Protocol {
  std::string device = "cpu";  // "cuda" or "cpu"
  bool quick = false;
  std::filesystem::path output;
  std::uint64_t seed = 1;
};

class Benchmark : public Contest {
 public:
  virtual std::string table() const = 0;  // of <table>_benchmark.csv
  virtual std::string purpose() const = 0;
  virtual std::string default_device() const { return "cpu"; }

  // Its own options; then, with device and quick known, what they mean. Throws OptionError.
  virtual void declare(Options& options) = 0;
  virtual void decide(Settings& settings) = 0;

  virtual std::string headline() const = 0;  // "batch 1, 4 heads of 64, float32"

  // The cells of a row but for those that all benchmarks have (status, machine, errors, others).
  virtual CsvRow cells(std::size_t size, std::size_t implementation,
                       const std::vector<Result>& results) const = 0;
  virtual Strings shown_columns() const = 0;  // on the screen; a GPU has no percent_of_peak
  virtual std::string remark(const std::vector<Result>&) const { return ""; }

  // What main() returns: 0, or 1 when a row has the status "error" or there is no row, or
  // run_program()'s.
  int main(int argc, char** argv);

 protected:
  // Runs a size by a task's measure_all(): the first configuration that it runs measures the whole
  // size, so that all implementations take turns. measurement_of(result) is what a configuration
  // returns or throws; take(row, result) puts what the task made of it into the result.
  template <class Configuration, class MeasureAll, class MeasurementOf, class Take>
  void run_by(MeasureAll measure_all, MeasurementOf measurement_of, Take take, std::size_t size,
              const std::function<void()>& measure_size);

 private:
  void report(std::size_t size, const std::vector<Result>& results,
              std::optional<double> others) override;
  void write(std::size_t size, const std::vector<Result>& results, std::optional<double> others);

  int run(int argc, char** argv);
  void print_header();
  void progress(int done, int of, const std::string& what) override;
  bool goes_on(const Result& failed) override;

  Settings settings_;
  std::optional<CsvFile> csv_;
  std::unique_ptr<Machine> machine_;
  Screen screen_;
  Strings names_;
  int rows_ = 0, errors_ = 0;
  bool machine_lost_ = false;
  bool is_run_by_task_ = false;  // then report() only keeps these, of the size that runs
  std::vector<Result> results_;
  std::optional<double> others_;
  std::map<std::string, std::string> missing_tasks_;  // and the implementation that each belongs to
};

// A runner as what a task measures: Work of task 1.B, or AttentionWork of task 3.B. Without a
// backward pass prepare_backward() throws OutOfMemory, and the forward pass's numbers stand.
template <class WorkOfTask>
class WorkOf final : public WorkOfTask {
 public:
  explicit WorkOf(Runner& runner) : runner_(runner) {}
  void prepare() { runner_.prepare(); }
  void run() { runner_.forward(); }
  void forward() { runner_.forward(); }
  void prepare_backward() { runner_.prepare_backward(); }
  void backward() { runner_.backward(); }
  std::size_t saved_bytes() { return runner_.saved_bytes(); }
  void reset_peak_memory() { runner_.reset_peak_memory(); }
  std::size_t peak_memory_bytes() { return runner_.peak_memory_bytes(); }

 private:
  Runner& runner_;
};

template <class Configuration, class MeasureAll, class MeasurementOf, class Take>
void Benchmark::run_by(MeasureAll measure_all, MeasurementOf measurement_of, Take take,
                       std::size_t size, const std::function<void()>& measure_size) {
  is_run_by_task_ = true;
  results_.clear();
  std::exception_ptr ended;  // by what is no row
  std::vector<Configuration> list;
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (!takes_part(size, i)) continue;
    which.push_back(i);
    list.push_back({names_[i], [&, i] {
                      try {
                        if (results_.empty() && !ended) measure_size();
                      } catch (...) {
                        ended = std::current_exception();
                      }
                      if (ended) std::rethrow_exception(ended);
                      return measurement_of(results_[i]);
                    }});
  }
  const auto rows = measure_all(list);
  if (ended) std::rethrow_exception(ended);
  for (const std::size_t i : which) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const auto& one) { return one.name == names_[i]; });
    if (results_.empty() || row == rows.end())
      throw Error("measure_all() returned no row of '" + names_[i] +
                  "', or did not run it: ./lab check 1.B or 3.B");
    if (results_[i].status != "not started") take(*row, results_[i]);
  }
  write(size, results_, others_);
}

// Of passes of the registry, in their order.
inline Strings names_of(const auto& passes, DeviceKind device) {
  Strings names;
  for (const auto& entry : passes.entries())
    if (entry.device == device) names.push_back(entry.name);
  return names;
}

// A measured number as a cell, empty where there is none.
std::string number_cell(bool there, double value);

}  // namespace flash
