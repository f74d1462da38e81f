// What bench_attention was asked for, and the rows that it makes of it: in the CSV, and as tables on the screen. The same for a
// CPU (attention_on_cpu.cpp) and a GPU (attention_on_gpu.cpp), which differ in how they measure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarking/attention_problem.hpp"
#include "benchmarking/csv_table.hpp"
#include "benchmarking/machine.hpp"
#include "benchmarking/screen.hpp"
#include "common/registry.hpp"

namespace flash {

struct AttentionSettings {
  std::string device = "cpu";  // "cuda" or "cpu"
  DType dtype = DType::kFloat32;
  Index batch = 1, heads = 4, head_dim = 64;
  std::vector<Index> seq_lens;
  std::vector<bool> causal = {false, true};
  std::vector<std::string> implementations;  // of the device's registry, in its order
  int warmups = 1, passes = 5;
  std::optional<std::size_t> memory_limit;
  bool memory_limit_is_default = false;
  std::filesystem::path output;
  std::uint64_t seed = 1;
};

// What one implementation did on one problem.
struct AttentionRow {
  std::string implementation;
  std::string status = "ok";  // the CSV's, or "not started", which is no row
  std::string message;        // in one line; empty when ok
  bool has_forward = true, has_backward = true;  // were measured; as long as they are not, still to be run
  double forward_ms = 0, backward_ms = 0;
  double forward_peak_MiB = 0, backward_peak_MiB = 0, saved_MiB = 0;

  double total_ms() const { return forward_ms + backward_ms; }

  // `keep_forward`: only the backward pass is without a result.
  void fail(const std::string& new_status, std::string new_message, bool keep_forward = false);
};

// Runs `call`, a pass of this row's implementation, and returns whether it came to its end. What stops it becomes the row's
// status; NotYetImplemented is left in `missing_tasks`. Interrupted passes through.
template <class Call>
bool attempt(AttentionRow& row, bool backward, std::map<std::string, std::string>& missing_tasks, Call&& call) {
  try {
    call();
    return true;
  } catch (const NotYetImplemented& missing) {
    missing_tasks[missing.task()] = row.implementation;
    row.fail("not started", "task " + missing.task() + " is not started", backward);
  } catch (const OutOfMemory& error) {
    row.fail(backward ? "OOM(backward)" : "OOM", error.what(), backward);
  } catch (const std::bad_alloc&) {
    row.fail(backward ? "OOM(backward)" : "OOM", "no host memory", backward);
  } catch (const Unsupported& error) {
    row.fail("unsupported", error.what());
  } catch (const std::exception& error) {
    row.fail("error", error.what());
  }
  return false;
}

class AttentionReport {
 public:
  explicit AttentionReport(const AttentionSettings& settings);

  Machine& machine() { return *machine_; }
  Screen& screen() { return screen_; }
  std::map<std::string, std::string>& missing_tasks() { return missing_tasks_; }

  // What is measured, and how: `turns` says what a turn is, `ceiling` what the peak is (empty: there is none).
  void header(const std::string& turns, const std::string& ceiling);

  // The rows of one problem, in the CSV and as a table. `ceiling`: the peak in GFLOP/s, 0 where there is none.
  void add(const AttentionSizes& sizes, const std::vector<AttentionRow>& rows, double ceiling);

  // The last lines, and the exit code: 0, or 1 when a row has the status "error" or there is no row.
  int finish();

 private:
  void record(const AttentionSizes& sizes, const AttentionRow& row, double ceiling);
  void print(const AttentionSizes& sizes, const std::vector<AttentionRow>& rows, double ceiling);

  const AttentionSettings settings_;
  CsvTable table_;
  std::unique_ptr<Machine> machine_;
  Screen screen_;
  int rows_ = 0, errors_ = 0;
  std::map<std::string, std::string> missing_tasks_;  // and the implementation that each is a part of
};

// The benchmark on each kind of machine, and the names that --impl takes there. The exit code; throws Interrupted.
std::vector<std::string> attention_names_on_cpu();
int bench_attention_on_cpu(const AttentionSettings& settings, AttentionReport& report);
std::vector<std::string> attention_names_on_gpu();  // empty in a build without CUDA or without part 3
int bench_attention_on_gpu(const AttentionSettings& settings, AttentionReport& report);

}  // namespace flash
