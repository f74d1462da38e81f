// The registry of single passes, from which tests, benchmarks, plots and PyTorch's operators choose
// by name. Any forward pass that leaves (out, lse) works with any backward pass that takes them.
//
// A file ladder/N_name.cpp or .cu enters its passes by its last lines, under the name of the file:
//
//   FLASH_ENTER(registry, name) {
//     registry.backward.add({.name = name, .device = DeviceKind::kGpu,
//                            .run = {.float32 = backward<float>, .float16 = backward<Half>},
//                            .unsupported = [](const AttentionProblem& problem) { ... }});
//   }
//
// The build collects the files and generates the calls (cmake/FlashRegistry.cmake): never a static
// constructor, since the linker drops an object of a static library that nobody refers to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/attention.hpp"
#include "common/decode.hpp"
#include "common/error.hpp"
#include "common/half.hpp"
#include "common/softmax_matmul.hpp"
#include "common/task.hpp"

// FLASH_RUNG is set by the build for each file of a ladder: enter_part2_4_balanced, for example.
#define FLASH_ENTER(registry, name)                                    \
  extern "C" FLASH_EXPORT void FLASH_RUNG(::flash::Registry& registry, \
                                          [[maybe_unused]] const char* name)

namespace flash {

enum class DeviceKind { kCpu, kGpu };
enum class DType { kFloat32, kFloat64, kFloat16, kBFloat16 };

FLASH_EXPORT std::string to_string(DeviceKind device);  // "cpu", "cuda"
FLASH_EXPORT std::string to_string(DType dtype);        // "float32", ...

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
  if constexpr (std::is_same_v<T, Half>) return DType::kFloat16;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::kBFloat16;
}

// ---- Problems: passes without their data --------------------------------------------------------

// How one tensor of a pass lies in memory.
struct TensorLayout {
  std::string name;            // "q"
  std::vector<Index> strides;  // in elements, one for each axis
  std::size_t alignment;       // the largest power of 2 that divides its address, in bytes
};

struct AttentionProblem {
  AttentionShape shape;
  AttentionOptions options = {};
  DType dtype = DType::kFloat32;
  std::vector<TensorLayout> tensors = {};  // in the order of the pass

  // Operations of one product of Q and K, or of a matrix of that size: two for each pair that is
  // visible and each column. A forward pass has 2 products, a backward pass 5.
  double product_flops() const {
    return 2 * visible_pairs(shape, options.causal) *
           static_cast<double>(shape.batch * shape.heads * shape.head_dim);
  }
};

struct SoftmaxMatmulProblem {
  SoftmaxMatmulShape shape;
  DType dtype = DType::kFloat32;
  std::vector<TensorLayout> tensors = {};
};

struct DecodeProblem {
  DecodeShape shape;
  DType dtype = DType::kFloat32;
  std::vector<TensorLayout> tensors = {};
};

template <class T, int Rank>
TensorLayout layout_of(const char* name, const TensorView<T, Rank>& view) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.data());
  const Shape<Rank> strides = view.strides();
  return {name, {strides.begin(), strides.end()}, address & (~address + 1)};
}

template <class T>
AttentionProblem problem_of(const AttentionForward<T>& pass) {
  return {pass.shape(),
          pass.options,
          dtype_of<T>(),
          {layout_of("q", pass.q), layout_of("k", pass.k), layout_of("v", pass.v),
           layout_of("out", pass.out), layout_of("lse", pass.lse)}};
}

template <class T>
AttentionProblem problem_of(const AttentionBackward<T>& pass) {
  return {pass.shape(),
          pass.options,
          dtype_of<T>(),
          {layout_of("q", pass.q), layout_of("k", pass.k), layout_of("v", pass.v),
           layout_of("out", pass.out), layout_of("lse", pass.lse), layout_of("d_out", pass.d_out),
           layout_of("d_q", pass.d_q), layout_of("d_k", pass.d_k), layout_of("d_v", pass.d_v)}};
}

template <class T>
SoftmaxMatmulProblem problem_of(const SoftmaxMatmul<T>& pass) {
  return {pass.shape(),
          dtype_of<T>(),
          {layout_of("x", pass.x), layout_of("v", pass.v), layout_of("out", pass.out)}};
}

template <class T>
DecodeProblem problem_of(const Decode<T>& pass) {
  return {pass.shape(),
          dtype_of<T>(),
          {layout_of("q", pass.q), layout_of("k", pass.k), layout_of("v", pass.v),
           layout_of("out", pass.out), layout_of("lse", pass.lse)}};
}

// ---- Entries ------------------------------------------------------------------------------------

// What a pass works with besides its tensors.
struct PassMemory {
  // As many bytes as the entry's workspace_bytes() says, uninitialised; aligned to 64 bytes on the
  // host, to 256 on a GPU.
  void* workspace = nullptr;

  // What the forward pass of a pair leaves for the backward pass of the same name.
  std::shared_ptr<void> kept = nullptr;
  std::size_t kept_bytes = 0;

  // Set by a pass that makes outputs of its own, as PyTorch's kernels do: copies them to the
  // tensors of the pass. The caller runs it; a benchmark does after the time was taken.
  std::function<void()> deliver = nullptr;
  // The most that such a pass allocated at a time, outputs included, where our meters cannot see
  // it.
  std::size_t own_peak_bytes = 0;
};

// A function void(const Pass&) or void(const Pass&, PassMemory&), or none.
template <class Pass>
class PassFunction {
 public:
  PassFunction() = default;
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, PassFunction>)
      PassFunction(Function function) {
    if constexpr (std::is_invocable_v<Function, const Pass&, PassMemory&>)
      call_ = std::move(function);
    else
      call_ = [function](const Pass& pass, PassMemory&) { function(pass); };
  }

  explicit operator bool() const { return call_ != nullptr; }
  void operator()(const Pass& pass, PassMemory& memory) const { call_(pass, memory); }

 private:
  std::function<void(const Pass&, PassMemory&)> call_;
};

// The function for each element type; empty where there is no version for it.
template <template <class> class Pass>
struct PassFunctions {
  PassFunction<Pass<float>> float32 = {};
  PassFunction<Pass<double>> float64 = {};
  PassFunction<Pass<Half>> float16 = {};
  PassFunction<Pass<BFloat16>> bfloat16 = {};

  template <class T>
  const PassFunction<Pass<T>>& of() const {
    if constexpr (std::is_same_v<T, float>) return float32;
    if constexpr (std::is_same_v<T, double>) return float64;
    if constexpr (std::is_same_v<T, Half>) return float16;
    if constexpr (std::is_same_v<T, BFloat16>) return bfloat16;
  }
};

template <template <class> class Pass>
struct Entry {
  using Problem = typename Pass<float>::Problem;

  std::string name;  // unique among the passes of its direction on its device
  DeviceKind device = DeviceKind::kCpu;
  PassFunctions<Pass> run;

  // Says in words why the pass does not take a problem: "head_dim is 300; it must be at most 256".
  // The result is empty when the pass takes it. It need not test the element type: a type without a
  // function is refused.
  std::function<std::string(const Problem&)> unsupported = nullptr;

  // How many bytes of workspace the pass needs; without it none.
  std::function<std::size_t(const Problem&)> workspace_bytes = nullptr;

  // This pass works only with the pass of the same name in the other direction: a backward pass
  // that reads what its forward pass kept, or a forward pass that leaves no lse.
  bool only_as_pair = false;

  // False for a rung that is not faster than those before it: flash_best leaves it out.
  bool best = true;

  // The problems for which flash_best may choose the pass, of those that it takes; without it all.
  std::function<bool(const Problem&)> best_for = nullptr;

  // Only of flash_best: the pass that it hands a problem to, or null.
  std::function<const Entry*(const Problem&)> choose = nullptr;

  // All elements of the inputs have to be finite. The pass multiplies a key that a row does not see
  // by the weight 0, and 0 * NaN, or 0 * inf, would reach the row.
  bool finite_inputs = false;

  bool has(DType type) const {
    switch (type) {
      case DType::kFloat32: return static_cast<bool>(run.float32);
      case DType::kFloat64: return static_cast<bool>(run.float64);
      case DType::kFloat16: return static_cast<bool>(run.float16);
      case DType::kBFloat16: return static_cast<bool>(run.bfloat16);
    }
    return false;
  }

  std::vector<DType> dtypes() const {
    std::vector<DType> types;
    for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16})
      if (has(type)) types.push_back(type);
    return types;
  }

  // `unsupported` and the element types together.
  std::string why_not(const Problem& problem) const {
    if (!has(problem.dtype)) return "there is no " + to_string(problem.dtype) + " version";
    return unsupported ? unsupported(problem) : "";
  }

  std::size_t workspace_of(const Problem& problem) const {
    return workspace_bytes ? workspace_bytes(problem) : 0;
  }
};

// Says why a tensor cannot be read in chunks of `bytes` (a power of 2): its address or a stride is
// no multiple of them, or its last axis has gaps. "" when all tensors can; lse is not looked at.
FLASH_EXPORT std::string why_not_in_chunks(const AttentionProblem& problem, std::size_t bytes);
// The same of k and v alone.
FLASH_EXPORT std::string why_not_in_chunks(const DecodeProblem& problem, std::size_t bytes);

// Throws Unsupported, with the name and the reason, when the entry does not take the problem.
template <template <class> class Pass>
void check_supported(const Entry<Pass>& entry, const typename Entry<Pass>::Problem& problem) {
  if (const std::string why = entry.why_not(problem); !why.empty())
    throw Unsupported("'" + entry.name + "' does not take this problem: " + why);
}
template <template <class> class Pass, class T>
void check_supported(const Entry<Pass>& entry, const Pass<T>& pass) {
  check_supported(entry, problem_of(pass));
}

// Throws ArgumentError when the two do not go together.
FLASH_EXPORT void check_pair(const Entry<AttentionForward>& forward,
                             const Entry<AttentionBackward>& backward);

// ---- The registry -------------------------------------------------------------------------------

template <template <class> class Pass>
class PassList {
 public:
  // Throws ArgumentError when the name is taken on this device, or there is no function.
  void add(Entry<Pass> entry) {
    if (entry.dtypes().empty())
      throw ArgumentError("pass '" + entry.name + "' has no function; it must have at least one");
    if (find_or_null(entry.name, entry.device) != nullptr)
      throw ArgumentError("pass '" + entry.name + "' is registered twice");
    entries_.push_back(std::move(entry));
  }

  // In the order in which they were entered: a ladder's slowest rung first.
  const std::vector<Entry<Pass>>& entries() const { return entries_; }

  const Entry<Pass>* find_or_null(const std::string& name, DeviceKind device) const {
    for (const Entry<Pass>& entry : entries_)
      if (entry.name == name && entry.device == device) return &entry;
    return nullptr;
  }

  // Throws ArgumentError, with the names that there are.
  const Entry<Pass>& find(const std::string& name, DeviceKind device) const {
    if (const Entry<Pass>* const entry = find_or_null(name, device)) return *entry;
    std::string known;
    for (const Entry<Pass>& entry : entries_)
      if (entry.device == device) known += (known.empty() ? "" : ", ") + entry.name;
    throw ArgumentError("pass is '" + name + "'; on " + to_string(device) +
                        " it must be one of: " + known);
  }

 private:
  std::vector<Entry<Pass>> entries_;
};

struct Registry {
  PassList<SoftmaxMatmul> softmax_matmul;
  PassList<AttentionForward> forward;
  PassList<AttentionBackward> backward;
  PassList<Decode> decode;

  // Where the passes that are tasks have their functions.
  TaskLibraries tasks;
};

}  // namespace flash
