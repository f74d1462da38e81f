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

namespace {

// Axes whose extent is 1 have no stride that matters.
std::string why_not_in_chunks(const TensorLayout& tensor, DType dtype, const Shape<3>& extents,
                              std::size_t bytes) {
  const auto elements = static_cast<Index>(bytes / (dtype == DType::kFloat64   ? 8
                                                    : dtype == DType::kFloat32 ? 4
                                                                               : 2));
  if (tensor.strides.size() != 4) return "";
  if (tensor.alignment % bytes != 0)
    return tensor.name + "'s address is only a multiple of " + std::to_string(tensor.alignment) +
           " bytes; it must be a multiple of " + std::to_string(bytes);
  if (tensor.strides[3] != 1)
    return tensor.name + "'s stride along head_dim is " + std::to_string(tensor.strides[3]) +
           "; it must be 1";
  for (int axis = 0; axis < 3; ++axis)
    if (extents[axis] > 1 && tensor.strides[axis] % elements != 0)
      return tensor.name + "'s stride along axis " + std::to_string(axis) + " is " +
             std::to_string(tensor.strides[axis]) + "; it must be a multiple of " +
             std::to_string(elements);
  return "";
}

}  // namespace

std::string why_not_in_chunks(const AttentionProblem& problem, std::size_t bytes) {
  const AttentionShape& shape = problem.shape;
  for (const TensorLayout& tensor : problem.tensors)
    if (const std::string why =
            why_not_in_chunks(tensor, problem.dtype, {shape.batch, shape.heads, 2}, bytes);
        !why.empty())
      return why;
  return "";
}

std::string why_not_in_chunks(const DecodeProblem& problem, std::size_t bytes) {
  const DecodeShape& shape = problem.shape;
  for (const TensorLayout& tensor : problem.tensors)
    if (tensor.name == "k" || tensor.name == "v")
      if (const std::string why = why_not_in_chunks(
              tensor, problem.dtype, {shape.pages, shape.page_size, shape.kv_heads}, bytes);
          !why.empty())
        return why;
  return "";
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
