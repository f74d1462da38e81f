#include "benchmarking/benchmark.hpp"

#include <cstdlib>

#include "benchmarking/processor.hpp"
#include "common/cpu/threads.hpp"

namespace flash {
namespace {

constexpr double kDisturbed = 0.05;  // the share of the processors that others may have

// In the repository that the program was built in; where that is gone, in the current folder.
std::filesystem::path default_output(const std::string& table) {
  const std::filesystem::path root = FLASH_REPOSITORY;
  std::error_code error;
  return (std::filesystem::is_directory(root, error) ? root : "") / "outputs/csv" /
         (table + "_benchmark.csv");
}

// Numbers in four digits, and the status in the place of the first one that is missing.
Strings shown(const CsvRow& row, const Strings& columns) {
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

}  // namespace

std::string number_cell(bool there, double value) { return there ? format("%.6g", value) : ""; }

int Benchmark::main(int argc, char** argv) {
  return run_program([&] { return run(argc, argv); });
}

int Benchmark::run(int argc, char** argv) {
  settings_.output = default_output(table());
  std::optional<std::string> device;
  std::optional<std::int64_t> warmups, passes, seed;
  Options options(std::filesystem::path(argv[0]).filename().string(), purpose());
  options.choice("device",
                 "where to run; cuda, or gpu, is a GPU (default: " + default_device() + ")", device,
                 {"cpu", "cuda", "gpu"});
  options.flag("quick", "smaller problems: seconds, on a laptop too", settings_.quick);
  declare(options);
  options.integer("warmups", "untimed passes before the timed ones, spread over the turns", warmups,
                  0, 1000000);
  options.integer("passes", "timed passes of each kind, in at most 10 turns", passes, 1, 1000000);
  options.bytes("memory-limit",
                "cap what inputs, outputs and work may allocate, like 512MiB: running out is a row "
                "with the status OOM (default: of attention on a CPU half of what is available)",
                settings_.memory_limit);
  options.file("output", "the CSV (default: outputs/csv/" + table() + "_benchmark.csv)",
               settings_.output);
  options.integer("seed", "of the inputs (default: 1)", seed, 0, std::int64_t{1} << 32);
  if (!options.parse(argc, argv)) return 0;

  settings_.device = device.value_or(default_device()) == "cpu" ? "cpu" : "cuda";
  if (settings_.device == "cuda" && !has_gpu())
    throw OptionError("--device is '" + *device + "'; it must be cpu here: " +
                      (FLASH_HAVE_CUDA ? "this machine has no usable GPU"
                                       : "this program was built without CUDA"));
  if (seed) settings_.seed = static_cast<std::uint64_t>(*seed);
  decide(settings_);
  if (warmups) settings_.warmups = static_cast<int>(*warmups);
  if (passes) settings_.passes = static_cast<int>(*passes);

  csv_.emplace(settings_.output, table());
  machine_ = make_machine(settings_.device);
  names_ = implementations();
  // PyTorch's threads go on spinning, at most 17 ms where it was measured.
  if (!machine_->is_gpu && joined(names_).find("pytorch") != std::string::npos)
    settings_.pause = std::chrono::milliseconds(25);
  print_header();
  run_contest(*this, *machine_, settings_);
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

void Benchmark::print_header() {
  Clock& clock = machine_->clock();
  clock.synchronize();
  const double begin = clock.now_ms();
  clock.synchronize();
  const double empty_ms = clock.now_ms() - begin;
  screen_.line(table() + " on " + machine_->name() + ": " + headline() +
               format("; %d passes in %d turns", settings_.passes, settings_.turns()));
  screen_.line("caches: " + machine_->eviction());
  screen_.line(
      format("clock:  an empty pass takes %.2g ms; every time below contains it", empty_ms));
  if (settings_.memory_limit)
    screen_.line(format("memory: at most %.6g MiB", mebibytes(*settings_.memory_limit)));
  if (!machine_->is_gpu)
    screen_.line(format("peak:   multiply-adds in registers, vectors of %d bytes, %d threads",
                        native_vector_bytes(), host_threads()));
}

void Benchmark::progress(int done, int of, const std::string& what) {
  screen_.progress(done, of, what);
}

// After some errors a GPU answers every call with the same one.
bool Benchmark::goes_on(const Result& failed) {
  if (failed.status != "error") return true;
  try {
    machine_->clock().synchronize();
  } catch (const std::exception&) {
    machine_lost_ = true;
  }
  return !machine_lost_;
}

void Benchmark::report(std::size_t size, const std::vector<Result>& results,
                       std::optional<double> others) {
  if (!is_run_by_task_) return write(size, results, others);
  results_ = results;
  others_ = others;
}

void Benchmark::write(std::size_t size, const std::vector<Result>& results,
                      std::optional<double> others) {
  const bool on_cpu = !machine_->is_gpu;
  const double of_others = on_cpu ? others.value_or(-1) : -1;  // below 0: not known
  Strings columns = shown_columns();
  if (!on_cpu) std::erase(columns, "percent_of_peak");
  std::vector<Strings> lines{columns};
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Result& result = results[i];
    if (result.status == "left out") continue;
    if (!result.missing_task.empty()) missing_tasks_[result.missing_task] = names_[i];
    CsvRow row = cells(size, i, results);
    const bool ok = result.status == "ok";
    row.insert({{"implementation", names_[i]},
                {"status", result.status},
                {"gpu", on_cpu ? "" : machine_->name()},
                {"device", settings_.device},
                {"dtype", to_string(settings_.dtype)},
                {"scaled_error", ok ? format("%.3g", result.verdict.scaled_error) : ""},
                {"frobenius_error", ok ? format("%.3g", result.verdict.frobenius_error) : ""},
                {"others_percent", ok && of_others >= 0 ? format("%.3g", 100 * of_others) : ""}});
    lines.push_back(shown(row, columns));
    if (result.status == "not started") continue;
    csv_->append(row);
    ++rows_;
    errors_ += result.status == "error";
  }
  screen_.line("");
  screen_.line(name_of_size(size));
  for (const std::string& line : aligned(lines)) screen_.line(line);
  for (std::size_t i = 0; i < results.size(); ++i)
    if (!results[i].message.empty() && results[i].status != "not started")
      screen_.line(names_[i] + ": " + results[i].status + ": " + results[i].message);
  const bool disturbed = of_others > kDisturbed;
  if (const std::string line = remark(results); !line.empty())
    screen_.line(line + (disturbed ? ", of rows that were disturbed" : ""));
  if (disturbed)
    screen_.line(format(
        "disturbed: other programs had %.0f %% of the processors; measure these rows again on an "
        "idle machine",
        100 * of_others));
}

}  // namespace flash
