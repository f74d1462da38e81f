// Times attention, forward and backward, over the sequence length, on the CPU or on a GPU. A result is checked before it is
// timed, and the CSV is saved after each problem. README.md beside this file says what the columns mean and how the measuring is
// done: attention_on_cpu.cpp, attention_on_gpu.cpp.
#include <algorithm>

#include "benchmarking/attention_rows.hpp"
#include "benchmarking/interrupt.hpp"
#include "benchmarking/options.hpp"
#include "benchmarking/program.hpp"

namespace flash {
namespace {

// The repository that the program was built in; where that is gone, the current folder.
std::filesystem::path default_output() {
  const std::filesystem::path root = FLASH_REPOSITORY;
  std::error_code error;
  return (std::filesystem::is_directory(root, error) ? root : "") / "outputs/csv/attention_benchmark.csv";
}

// What differs between the devices before anything is asked for. --quick: seconds instead of minutes; another number of heads, or
// of batches, so that its rows never replace those of a complete run.
AttentionSettings defaults(const std::string& device, bool quick, bool wide_head) {
  AttentionSettings settings{.device = device, .output = default_output()};
  if (device == "cuda") {
    settings.batch = quick ? 2 : 8;
    settings.heads = 1;
    settings.seq_lens = quick ? std::vector<Index>{256, 1024} : std::vector<Index>{256, 1024, 4096, 8192, 16384};
    settings.warmups = quick ? 2 : 10;
    settings.passes = quick ? 10 : 100;
    if (wide_head) {
      settings.batch = quick ? 1 : 4;
      settings.head_dim = 1024;
      settings.seq_lens = {1024};
      settings.dtype = DType::kFloat16;
    }
  } else {
    settings.heads = quick ? 2 : 4;
    settings.seq_lens = quick ? std::vector<Index>{128, 256, 512} : std::vector<Index>{256, 512, 1024, 2048, 4096};
  }
  return settings;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Of the names that --impl was given those of the device, in the order of its rows. Throws OptionError for any other.
std::vector<std::string> chosen(const std::vector<std::string>& known, const std::optional<std::vector<std::string>>& asked,
                                const std::string& device) {
  if (!asked) return known;
  std::vector<std::string> names;
  for (const std::string& name : *asked)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw OptionError("--impl is '" + name + "'; with --device " + device + " it must be one of: " + joined(known));
  for (const std::string& name : known)
    if (std::find(asked->begin(), asked->end(), name) != asked->end()) names.push_back(name);
  return names;
}

// Nothing when --help was asked for. Throws OptionError.
std::optional<AttentionSettings> parse(int argc, const char* const* argv) {
  constexpr std::int64_t kMostExtent = 1 << 12, kMostKeys = 1 << 20;  // all four times 8 bytes stay below 2^63
  bool quick = false;
  std::optional<std::string> device, problem, dtype, causal;
  std::optional<std::int64_t> batch, heads, head_dim, warmups, passes, seed;
  std::optional<std::vector<std::int64_t>> seq_lens;
  std::optional<std::vector<std::string>> implementations;
  std::optional<std::size_t> memory_limit;
  std::filesystem::path output = default_output();
  const std::vector<std::string> on_cpu = attention_names_on_cpu(), on_gpu = attention_names_on_gpu();
  std::vector<std::string> names = on_cpu;
  for (const std::string& name : on_gpu)
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);

  Options options(std::filesystem::path(argv[0]).filename().string(),
                  "Times attention forward and backward: Q, K and V (batch, heads, seq_len, head_dim).");
  options.choice("device", "where to run: cpu, or cuda, a GPU; default cpu", device, {"cpu", "cuda"});
  options.choices("impl", "implementations, on a CPU of: " + joined(on_cpu) + ";\non a GPU of: " +
                  (on_gpu.empty() ? "none in this build" : joined(on_gpu)) + ";\ndefault: all of them", implementations, names);
  options.choice("problem", "a named one, where nothing else is said: heads, the default; wide-head, on a GPU, 1024 queries\n"
                 "and 1 head of 1024 columns in float16, batch 4 (quick: 1)", problem, {"heads", "wide-head"});
  options.flag("quick", "smaller problems: seconds, on a laptop too", quick);
  options.integer("batch", "N", "batch size; default 1 (cuda: 8, quick: 2)", batch, 1, kMostExtent);
  options.integer("heads", "N", "heads of a batch; default 4 (quick: 2; cuda: 1)", heads, 1, kMostExtent);
  options.integer("head-dim", "N", "columns of Q, K and V of a head; default 64", head_dim, 1, kMostExtent);
  options.integers("seq-lens", "numbers of queries and keys; default 256,512,...,4096 (quick: 128,256,512; cuda:\n"
                   "256,1024,4096,8192,16384, quick: 256,1024)", seq_lens, 1, kMostKeys);
  options.choice("dtype", "of everything; default float32; float64 on a CPU, float16 and bfloat16 on a GPU", dtype,
                 {"float32", "float64", "float16", "bfloat16"});
  options.choice("causal", "the mask; default both: with it and without", causal, {"both", "on", "off"});
  options.integer("warmups", "N", "turns before the timed ones, of which on a CPU the first measures the memory; default 1\n"
                  "(cuda: 10, quick: 2)", warmups, 1, 1000000);
  options.integer("passes", "N", "timed turns, a forward and a backward pass of each implementation; default 5 (cuda:\n"
                  "100, quick: 10)", passes, 1, 1000000);
  options.bytes(
      "memory-limit",
      "cap what inputs, outputs and work may allocate, like 512MiB or 1.5GiB: running out is a\nrow with the status OOM; "
      "default: half of what is available (cuda: all)",
      memory_limit);
  options.file("output", "the CSV; default outputs/csv/attention_benchmark.csv in the repository", output);
  options.integer("seed", "N", "of the inputs; default 1", seed, 0, std::int64_t{1} << 32);
  if (!options.parse(argc, argv)) return std::nullopt;

  const std::string on = device.value_or("cpu");
  if (on == "cuda" && (on_gpu.empty() || !has_gpu()))
    throw OptionError(std::string("--device is 'cuda'; it must be cpu here: ") +
                      (on_gpu.empty() ? "this program was built without CUDA" : "this machine has no usable GPU"));
  const bool wide_head = problem == "wide-head";
  if (wide_head && on != "cuda") throw OptionError("--problem is 'wide-head'; with --device cpu it must be one of: heads");
  AttentionSettings settings = defaults(on, quick, wide_head);
  const std::string type = dtype.value_or(to_string(settings.dtype));
  const DType types[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
  settings.dtype = *std::find_if(std::begin(types), std::end(types), [&](DType each) { return to_string(each) == type; });
  const bool is_16_bit = settings.dtype == DType::kFloat16 || settings.dtype == DType::kBFloat16;
  if (on == "cuda" ? settings.dtype == DType::kFloat64 : is_16_bit)
    throw OptionError("--dtype is '" + type + "'; with --device " + on + " it must be one of: " +
                      (on == "cuda" ? "float32, float16, bfloat16" : "float32, float64"));
  settings.implementations = chosen(on == "cuda" ? on_gpu : on_cpu, implementations, on);
  settings.batch = batch.value_or(settings.batch);
  settings.heads = heads.value_or(settings.heads);
  settings.head_dim = head_dim.value_or(settings.head_dim);
  settings.seq_lens = seq_lens.value_or(settings.seq_lens);
  if (causal && causal != "both") settings.causal = {causal == "on"};
  settings.warmups = static_cast<int>(warmups.value_or(settings.warmups));
  settings.passes = static_cast<int>(passes.value_or(settings.passes));
  settings.seed = static_cast<std::uint64_t>(seed.value_or(1));
  settings.output = output;
  settings.memory_limit = memory_limit;
  if (!settings.memory_limit && on == "cpu")
    if (const auto available = available_host_memory()) {
      settings.memory_limit = std::max<std::size_t>(*available / 2, 1);
      settings.memory_limit_is_default = true;
    }
  return settings;
}

int run(int argc, char** argv) {
  const auto settings = parse(argc, argv);
  if (!settings) return 0;
  AttentionReport report(*settings);
  remember_interrupts();
  try {
    return settings->device == "cuda" ? bench_attention_on_gpu(*settings, report) : bench_attention_on_cpu(*settings, report);
  } catch (const Interrupted& interrupted) {
    report.screen().line("interrupted: the rows above are saved, the others are as they were");
    return 128 + interrupted.signal;
  }
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::run_program(argc, argv, flash::run); }
