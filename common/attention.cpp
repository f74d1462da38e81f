#include "common/attention.hpp"

#include <cmath>
#include <limits>
#include <sstream>

namespace flash {

void any_rank::check_view(const char* argument, bool is_null, const Index* shape, const Index* want,
                          int rank) {
  if (!std::equal(shape, shape + rank, want))
    throw ShapeError(std::string(argument) + " has shape " + to_string(shape, rank) +
                     "; it must be " + to_string(want, rank));
  if (is_null && element_count(shape, rank) > 0)
    throw ArgumentError(std::string(argument) + " is a null view; it must point to " +
                        std::to_string(element_count(shape, rank)) + " elements");
}

double visible_pairs(const AttentionShape& shape, bool causal) {
  double pairs = 0;
  for (Index i = 0; i < shape.queries; ++i)
    pairs += static_cast<double>(shape.visible_keys(i, causal));
  return pairs;
}

double attention_scale(const AttentionOptions& options, Index head_dim) {
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(head_dim)));
  if (!(std::fabs(scale) <= 1e38)) {
    std::ostringstream text;
    text << "scale is " << scale << "; it must be a number from -1e38 to 1e38";
    throw ArgumentError(text.str());
  }
  return std::fabs(scale) < static_cast<double>(std::numeric_limits<float>::min()) ? 0 : scale;
}

void check_not_empty(const std::string& argument, const Shape<4>& of_queries) {
  const char* const axes[] = {"batch", "heads", "queries", "head_dim"};
  for (int axis = 0; axis < 4; ++axis)
    if (of_queries[axis] < 1)
      throw ShapeError(argument + " has shape " + to_string<4>(of_queries) + "; " + axes[axis] +
                       " must be at least 1 in (batch, heads, queries, head_dim)");
}

AttentionShape attention_shape(const Shape<4>& q, const Shape<4>& k) {
  check_not_empty("q", q);
  if (k[0] != q[0] || k[1] != q[1] || k[2] < 0 || k[3] != q[3])
    throw ShapeError(
        "k has shape " + to_string<4>(k) + "; it must be (batch = " + std::to_string(q[0]) +
        ", heads = " + std::to_string(q[1]) + ", keys, head_dim = " + std::to_string(q[3]) + ")");
  return {q[0], q[1], q[2], k[2], q[3]};
}

}  // namespace flash
