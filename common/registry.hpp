// The list of implementations of one function: what tests and benchmarks iterate over.
//
// A ladder enters its rungs by a function that is called by name (register_fused_cpu_ladder(registry)), never by a static
// constructor: the linker drops an object of a static library that nobody refers to, and its constructor with it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/error.hpp"

namespace flash {

enum class DeviceKind { kCpu, kGpu };
enum class DType { kFloat16, kBFloat16, kFloat32, kFloat64 };

inline std::string to_string(DeviceKind device) { return device == DeviceKind::kCpu ? "cpu" : "cuda"; }

inline std::string to_string(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
  }
  return "unknown";
}

template <class Function>
struct Implementation {
  std::string name;           // unique in its registry: "1_register_tile"
  DeviceKind device = DeviceKind::kCpu;
  std::vector<DType> dtypes;
  std::string constraints;    // in words, "needs compute capability 9.0"; empty when there are none
  Function* run = nullptr;    // throws Unsupported when a constraint is violated; never a wrong or silent result
};

template <class Function>
class Registry {
 public:
  // Throws ArgumentError when the name is taken, or the entry has no function or no dtype.
  void add(Implementation<Function> entry) {
    if (entry.run == nullptr) throw ArgumentError("implementation '" + entry.name + "' has no function; it must have one");
    if (entry.dtypes.empty()) throw ArgumentError("implementation '" + entry.name + "' has no dtypes; it must have at least one");
    for (const auto& other : entries_)
      if (other.name == entry.name) throw ArgumentError("implementation '" + entry.name + "' is registered twice");
    entries_.push_back(std::move(entry));
  }

  const std::vector<Implementation<Function>>& entries() const { return entries_; }

  // Throws ArgumentError, naming what there is.
  const Implementation<Function>& find(const std::string& name) const {
    std::string known;
    for (const auto& entry : entries_) {
      if (entry.name == name) return entry;
      known += (known.empty() ? "" : ", ") + entry.name;
    }
    throw ArgumentError("implementation is '" + name + "'; it must be one of: " + known);
  }

 private:
  std::vector<Implementation<Function>> entries_;
};

}  // namespace flash
