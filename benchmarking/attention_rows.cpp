// Implements attention_rows.hpp.
#include "benchmarking/attention_rows.hpp"

#include <algorithm>

namespace flash {
namespace {

const CsvSchema kSchema{
    .columns = {"implementation", "d_model", "seq_len", "forward_ms", "forward_peak_MiB", "backward_ms", "backward_peak_MiB",
                "saved_activations_MiB", "status", "gpu", "device", "dtype", "batch", "heads", "causal", "total_ms", "tflops",
                "percent_of_peak"},
    .key = {"implementation", "d_model", "seq_len", "gpu", "device", "dtype", "batch", "heads", "causal"},
};

struct Rates {
  double gflops, percent;
};
Rates rates(const AttentionSizes& sizes, const AttentionRow& row, double ceiling) {
  const double gflops = (sizes.forward_flops() + sizes.backward_flops()) / row.total_ms() * 1e-6;
  return {gflops, ceiling > 0 ? 100 * gflops / ceiling : 0};
}

}  // namespace

void AttentionRow::fail(const std::string& new_status, std::string new_message, bool keep_forward) {
  std::replace(new_message.begin(), new_message.end(), '\n', ' ');
  status = new_status;
  message = new_message;
  has_forward = keep_forward;
  has_backward = false;
}

AttentionReport::AttentionReport(const AttentionSettings& settings)
    : settings_(settings), table_(settings.output, kSchema), machine_(make_machine(settings.device)) {}

void AttentionReport::header(const std::string& turns, const std::string& ceiling) {
  screen_.line(format("attention on %s: batch %lld, %lld heads of %lld, %s; ", machine_->description().c_str(),
                      static_cast<long long>(settings_.batch), static_cast<long long>(settings_.heads),
                      static_cast<long long>(settings_.head_dim), to_string(settings_.dtype).c_str()) +
               turns);
  screen_.line("caches: " + machine_->eviction());
  if (settings_.memory_limit)
    screen_.line(format("memory: at most %.6g MiB", static_cast<double>(*settings_.memory_limit) / 0x1p20) +
                 (settings_.memory_limit_is_default ? ", half of what is available" : ""));
  if (!ceiling.empty()) screen_.line("peak:   " + ceiling);
}

void AttentionReport::add(const AttentionSizes& sizes, const std::vector<AttentionRow>& rows, double ceiling) {
  for (const AttentionRow& row : rows) record(sizes, row, ceiling);
  print(sizes, rows, ceiling);
}

int AttentionReport::finish() {
  screen_.line("");
  if (rows_ > 0) screen_.line("saved in " + table_.path().string());
  for (const auto& [task, name] : missing_tasks_)
    screen_.line("task " + task + " is not started, so rows of '" + name + "' are missing; next: ./lab check " + task);
  return errors_ > 0 || rows_ == 0 ? 1 : 0;
}

void AttentionReport::record(const AttentionSizes& sizes, const AttentionRow& row, double ceiling) {
  if (row.status == "not started") return;
  const auto number = [](bool there, auto value) { return there ? format("%.6g", value()) : std::string(); };
  const bool forward = row.has_forward, backward = row.has_backward;
  table_.record({
      {"implementation", row.implementation},
      {"d_model", std::to_string(sizes.d_model())},
      {"seq_len", std::to_string(sizes.seq_len)},
      {"forward_ms", number(forward, [&] { return row.forward_ms; })},
      {"forward_peak_MiB", number(forward, [&] { return row.forward_peak_MiB; })},
      {"backward_ms", number(backward, [&] { return row.backward_ms; })},
      {"backward_peak_MiB", number(backward, [&] { return row.backward_peak_MiB; })},
      {"saved_activations_MiB", number(forward, [&] { return row.saved_MiB; })},
      {"status", row.status},
      {"gpu", machine_->gpu()},
      {"device", machine_->device()},
      {"dtype", to_string(settings_.dtype)},
      {"batch", std::to_string(sizes.batch)},
      {"heads", std::to_string(sizes.heads)},
      {"causal", sizes.causal ? "True" : "False"},
      {"total_ms", number(backward, [&] { return row.total_ms(); })},
      {"tflops", number(backward, [&] { return rates(sizes, row, ceiling).gflops * 1e-3; })},
      {"percent_of_peak", number(backward && ceiling > 0, [&] { return rates(sizes, row, ceiling).percent; })},
  });
  ++rows_;
  errors_ += row.status == "error";
}

void AttentionReport::print(const AttentionSizes& sizes, const std::vector<AttentionRow>& table, double ceiling) {
  std::vector<std::vector<std::string>> cells{{"implementation", "forward ms", "backward ms", "total ms", "GFLOP/s",
                                              "% of peak", "forward MiB", "backward MiB", "saved MiB"}};
  for (const AttentionRow& row : table) {
    const auto cell = [](bool there, auto value) { return there ? format("%.4g", value()) : std::string("-"); };
    const bool forward = row.has_forward, backward = row.has_backward;
    cells.push_back({row.implementation, forward ? format("%.4g", row.forward_ms) : row.status,
                    backward  ? format("%.4g", row.backward_ms)
                    : forward ? row.status
                              : "-",
                    cell(backward, [&] { return row.total_ms(); }),
                    cell(backward, [&] { return rates(sizes, row, ceiling).gflops; }),
                    cell(backward && ceiling > 0, [&] { return rates(sizes, row, ceiling).percent; }),
                    cell(forward, [&] { return row.forward_peak_MiB; }),
                    cell(backward, [&] { return row.backward_peak_MiB; }),
                    cell(forward, [&] { return row.saved_MiB; })});
  }
  screen_.line("");
  screen_.line(format("seq_len %lld, %s, %s", static_cast<long long>(sizes.seq_len), sizes.causal ? "causal" : "not causal",
                      to_string(settings_.dtype).c_str()) +
               (ceiling > 0 ? format("; peak %.4g GFLOP/s", ceiling) : ""));
  for (const std::string& line : aligned(cells)) screen_.line(line);
  for (const AttentionRow& row : table)
    if (!row.message.empty() && row.status != "not started")
      screen_.line(row.implementation + ": " + row.status + ": " + row.message);
}

}  // namespace flash
