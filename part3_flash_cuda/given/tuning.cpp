#include "part3_flash_cuda/tuning.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "common/cuda/device_tensor.hpp"
#include "common/registry.hpp"

namespace flash {
namespace {

constexpr Index kMostHeads = 64, kShortest = 128;

// The name of the GPU comes last: it has spaces.
std::string line_of(const TuningKey& key, const FlashForwardConfig& config) {
  std::string line = "v1 " + key.dtype;
  for (const Index number : {key.head_dim, key.heads, key.length})
    line += ' ' + std::to_string(number);
  line += key.causal ? " causal" : " all";
  for (const Index number :
       {config.head_dim, config.block_queries, config.block_keys, config.warps})
    line += ' ' + std::to_string(number);
  return line + ' ' + key.gpu;
}

std::optional<std::pair<TuningKey, FlashForwardConfig>> parsed(const char* line) {
  char dtype[16], mask[16], gpu[256];
  long long numbers[7];
  const int found = std::sscanf(line, "v1 %15s %lld %lld %lld %15s %lld %lld %lld %lld %255[^\n]",
                                dtype, &numbers[0], &numbers[1], &numbers[2], mask, &numbers[3],
                                &numbers[4], &numbers[5], &numbers[6], gpu);
  if (found < 10) return std::nullopt;
  const bool causal = std::string_view(mask) == "causal";
  return std::pair{TuningKey{gpu, dtype, numbers[0], numbers[1], numbers[2], causal},
                   FlashForwardConfig{numbers[3], numbers[4], numbers[5], numbers[6]}};
}

std::filesystem::path tuning_file() {
  if (const char* const named = std::getenv("FLASH_TUNING_FILE")) return named;
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const std::filesystem::path folder = cache  ? cache
                                       : home ? std::filesystem::path(home) / ".cache"
                                              : "/tmp";
  return folder / "flash" / "forward_tuning.txt";
}

// One a file, kept: the variable may name another one later.
ForwardTuner& tuner_of(const std::filesystem::path& file) {
  static std::mutex mutex;
  static std::map<std::filesystem::path, ForwardTuner> tuners;
  const std::lock_guard lock(mutex);
  return tuners.try_emplace(file, file).first->second;
}

// "128x64x4": the one of `configs` that it means.
FlashForwardConfig forced_config(const std::string& text,
                                 const std::vector<FlashForwardConfig>& configs) {
  std::string known;
  for (const FlashForwardConfig& config : configs) {
    const std::string name = std::to_string(config.block_queries) + "x" +
                             std::to_string(config.block_keys) + "x" + std::to_string(config.warps);
    if (text == name) return config;
    known += (known.empty() ? "" : ", ") + name;
  }
  throw Unsupported("FLASH_FORWARD_CONFIG is '" + text + "'; it must be one of: " + known);
}

// The median of a few calls, on tensors of zeros: the kernel does the same work whatever they hold.
template <class T>
double time_ms(const FlashForwardCudaFunctions<T>& task, const FlashForwardConfig& config,
               const AttentionShape& asked, const AttentionOptions& options) {
  constexpr int kWarmups = 2, kPasses = 5;
  AttentionShape shape = asked;
  shape.heads = tuning_heads(asked);
  shape.batch = 1;
  DeviceTensor<T, 4> q(shape.of_queries()), k(shape.of_keys()), v(shape.of_keys()),
      out(shape.of_queries());
  DeviceTensor<float, 3> lse(shape.of_rows());
  for (const auto* tensor : {&q, &k, &v}) device::fill_bytes(tensor->data(), 0, tensor->bytes());
  std::vector<double> times;
  for (int pass = 0; pass < kWarmups + kPasses; ++pass) {
    device::Event before, after;
    before.record();
    task.flash_attention_forward_cuda(
        {q.view(), k.view(), v.view(), out.view(), lse.view(), options}, config);
    after.record();
    after.synchronize();
    if (pass >= kWarmups) times.push_back(after.milliseconds_since(before));
  }
  std::sort(times.begin(), times.end());
  return times[kPasses / 2];
}

}  // namespace

Index tuning_heads(const AttentionShape& shape) {
  Index heads = 1;
  while (heads < kMostHeads && heads < shape.batch * shape.heads) heads *= 2;
  return heads;
}

Index tuning_length(const AttentionShape& shape) {
  Index length = kShortest;
  while (length < std::max(shape.queries, shape.keys)) length *= 2;
  return length;
}

ForwardTuner::ForwardTuner(std::filesystem::path file) : file_(std::move(file)) {
  std::FILE* const open = std::fopen(file_.c_str(), "r");
  if (open == nullptr && (errno == ENOENT || errno == ENOTDIR)) return;
  if (open == nullptr) throw Error(file_.string() + " cannot be read");
  char line[512];
  while (std::fgets(line, sizeof line, open) != nullptr)
    if (const auto choice = parsed(line)) choices_[choice->first] = choice->second;
  const bool failed = std::ferror(open) != 0;  // of a folder, say
  std::fclose(open);
  if (failed) throw Error(file_.string() + " cannot be read");
}

FlashForwardConfig ForwardTuner::choose(
    const TuningKey& key, const std::vector<FlashForwardConfig>& configs,
    const std::function<double(const FlashForwardConfig&)>& time_ms) {
  const std::lock_guard lock(mutex_);
  if (const auto known = choices_.find(key);
      known != choices_.end() &&
      std::find(configs.begin(), configs.end(), known->second) != configs.end())
    return known->second;
  if (const auto known = defaults_.find(key); known != defaults_.end()) return known->second;
  FlashForwardConfig best = configs.front();
  try {
    double best_ms = time_ms(best);
    for (auto config = configs.begin() + 1; config != configs.end(); ++config)
      if (const double ms = time_ms(*config); ms < best_ms) {
        best = *config;
        best_ms = ms;
      }
  } catch (const OutOfMemory&) {
    return defaults_[key] = configs.front();
  }
  choices_[key] = best;
  save();
  return best;
}

// By C's own functions: a program that loads another C++ library, as PyTorch does, may crash in
// C++'s streams.
void ForwardTuner::save() const {
  std::string text;
  for (const auto& [key, config] : choices_) text += line_of(key, config) + "\n";
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  const std::string whole = file_.string() + "." + std::to_string(getpid());
  std::FILE* const open = std::fopen(whole.c_str(), "w");
  if (open == nullptr) return;
  const bool written = std::fwrite(text.data(), 1, text.size(), open) == text.size();
  if (std::fclose(open) != 0 || !written || std::rename(whole.c_str(), file_.c_str()) != 0)
    std::remove(whole.c_str());
}

template <class T>
void flash_attention_forward_tuned_cuda(const FlashForwardCudaFunctions<T>& task,
                                        const AttentionForward<T>& pass) {
  const AttentionShape shape = check_attention(pass);
  const std::vector<FlashForwardConfig> configs =
      task.flash_attention_forward_configs(shape.head_dim);
  FlashForwardConfig config = configs.front();
  if (const char* const forced = std::getenv("FLASH_FORWARD_CONFIG")) {
    config = forced_config(forced, configs);
  } else if (!device::is_emulated() && configs.size() > 1) {
    const TuningKey key{device::name(),      to_string(dtype_of<T>()), shape.head_dim,
                        tuning_heads(shape), tuning_length(shape),     pass.options.causal};
    config = tuner_of(tuning_file()).choose(key, configs, [&](const FlashForwardConfig& each) {
      return time_ms<T>(task, each, shape, pass.options);
    });
  }
  task.flash_attention_forward_cuda(pass, config);
}

#define FLASH_INSTANTIATE(T)                                                            \
  template void flash_attention_forward_tuned_cuda(const FlashForwardCudaFunctions<T>&, \
                                                   const AttentionForward<T>&)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash
