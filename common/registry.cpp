// Implements registry.hpp.
#include "common/registry.hpp"

namespace flash {

std::string to_string(DeviceKind device) { return device == DeviceKind::kCpu ? "cpu" : "cuda"; }

std::string to_string(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
  }
  return "unknown";
}

void check_pair(const Entry<AttentionForward>& forward, const Entry<AttentionBackward>& backward) {
  if (forward.name == backward.name) return;
  if (forward.only_as_pair)
    throw ArgumentError("backward is '" + backward.name + "'; forward pass '" + forward.name +
                        "' leaves no lse, so that it must be '" + forward.name + "'");
  if (backward.only_as_pair)
    throw ArgumentError("forward is '" + forward.name + "'; backward pass '" + backward.name +
                        "' reads what the forward pass of its name keeps, so that it must be '" +
                        backward.name + "'");
}

}  // namespace flash
