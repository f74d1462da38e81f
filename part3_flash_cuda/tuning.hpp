// Given: which configuration of the forward kernel is the fastest depends on the GPU, the type,
// head_dim, the number of heads, the length of the sequence and the mask. It is found by timing
// each of them once, and remembered in a file.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "part3_flash_cuda/flash_attention_cuda.hpp"

namespace flash {

// What a choice is good for. Heads, of all batches together, and lengths are classes.
struct TuningKey {
  std::string gpu;
  std::string dtype;  // as in the CSVs: "float32"
  Index head_dim = 0;
  Index heads = 0;
  Index length = 0;
  bool causal = false;

  auto operator<=>(const TuningKey&) const = default;
};

// 1, 2, 4, ..., 64: the next power of two of all heads of all batches. More than 64 keep any GPU
// busy.
FLASH_EXPORT Index tuning_heads(const AttentionShape& shape);

// 128 for up to 128 queries or keys, whichever are more, then 256, 512, ...
FLASH_EXPORT Index tuning_length(const AttentionShape& shape);

// The choices of one file, a line each. A line that is no choice is dropped. A choice that is not
// among the configurations asked for is made again. Safe to call from several threads. When
// processes write at the same time, the newest line of one may get lost; it is timed again.
class FLASH_EXPORT ForwardTuner {
 public:
  // Reads the file if it is there. Throws Error when it cannot be read.
  explicit ForwardTuner(std::filesystem::path file);

  // The choice for `key` among `configs`, of which there is at least one. If the file has none,
  // `time_ms` is called for each configuration, the fastest is chosen, and the file is written
  // anew, as a whole or not at all. If the file cannot be written, the choice holds for this
  // process, and that is no error. If there is no memory to time them, the first is taken for this
  // process, and nothing is written.
  FlashForwardConfig choose(const TuningKey& key, const std::vector<FlashForwardConfig>& configs,
                            const std::function<double(const FlashForwardConfig&)>& time_ms);

 private:
  void save() const;

  std::filesystem::path file_;
  std::map<TuningKey, FlashForwardConfig> choices_;
  std::map<TuningKey, FlashForwardConfig> defaults_;  // where there was no memory
  std::mutex mutex_;
};

// The forward pass of a task with its fastest configuration. The first call of a kind times
// them all, on tensors of its own, some milliseconds to seconds, and waits for that. The file: what
// the environment variable FLASH_TUNING_FILE names, else flash/forward_tuning.txt in XDG_CACHE_HOME
// or ~/.cache. FLASH_FORWARD_CONFIG="128x64x4" (queries x keys x warps) forces one instead. On the
// emulator the default is taken, since its times mean nothing. Throws what
// the task's function throws, and Unsupported when a forced one is not compiled.
template <class T>
FLASH_EXPORT void flash_attention_forward_tuned_cuda(const FlashForwardCudaFunctions<T>& task,
                                                     const AttentionForward<T>& pass);

}  // namespace flash
