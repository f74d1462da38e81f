#include "common/checks.hpp"

#include "common/softmax_matmul.hpp"

namespace flash {

void check_at_least(const std::string& argument, Index value, Index least) {
  if (value < least)
    throw ArgumentError(argument + " is " + std::to_string(value) + "; it must be at least " +
                        std::to_string(least));
}

void check_between(const std::string& argument, Index value, Index least, Index most) {
  if (value < least || value > most)
    throw ArgumentError(argument + " is " + std::to_string(value) + "; it must be " +
                        std::to_string(least) + " to " + std::to_string(most));
}

std::string why_above(const std::string& name, Index value, Index most) {
  if (value <= most) return "";
  return name + " is " + std::to_string(value) + "; it must be at most " + std::to_string(most);
}

void check_supported(const std::string& why) {
  if (!why.empty()) throw Unsupported(why);
}

int checked_axis(int axis, int rank) {
  if (axis < -1 || axis >= rank)
    throw ArgumentError("axis is " + std::to_string(axis) + "; it must be -1 (the last) or 0 to " +
                        std::to_string(rank - 1));
  return axis == -1 ? rank - 1 : axis;
}

void check_elementwise_shapes(const Shape<2>& x, const Shape<2>& out) {
  if (x[0] < 1 || x[1] < 1)
    throw ShapeError("x has shape " + to_string<2>(x) +
                     "; it must be (rows, columns), both at least 1");
  if (out != x)
    throw ShapeError("out has shape " + to_string<2>(out) + "; it must be x's, " + to_string<2>(x));
}

void check_softmax_matmul_shapes(const Shape<3>& x, const Shape<3>& v, const Shape<3>& out) {
  if (x[0] < 1 || x[1] < 1)
    throw ShapeError("x has shape " + to_string<3>(x) +
                     "; it must be (batch, d1, d2) with batch and d1 at least 1");
  if (v[0] != x[0] || v[1] != x[2] || v[2] < 1)
    throw ShapeError("v has shape " + to_string<3>(v) +
                     "; it must be (batch = " + std::to_string(x[0]) +
                     ", d2 = " + std::to_string(x[2]) + ", d3) with d3 at least 1");
  const Shape<3> expected{x[0], x[1], v[2]};
  if (out != expected)
    throw ShapeError("out has shape " + to_string<3>(out) +
                     "; it must be (batch, d1, d3) = " + to_string<3>(expected));
}

}  // namespace flash
