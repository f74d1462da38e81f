// Implements problem.hpp: from a board's text to a problem.
#include "benchmarking/leaderboard/problem.hpp"

#include <cstdio>

#include "common/error.hpp"

namespace flash::leaderboard {

Shape<4> sizes_in(const std::string& text) {
  long sizes[4] = {};
  int end = 0;
  const int read = std::sscanf(text.c_str(), "%6ldx%6ldx%6ldx%6ld%n", &sizes[0], &sizes[1],
                               &sizes[2], &sizes[3], &end);
  if (read != 4 || static_cast<std::size_t>(end) != text.size() || sizes[0] < 1 || sizes[1] < 1 ||
      sizes[2] < 1 || sizes[3] < 1)
    throw ArgumentError("a problem is '" + text +
                        "'; it must be four sizes of at least 1, as in 8x1x256x64");
  return {sizes[0], sizes[1], sizes[2], sizes[3]};
}

std::unique_ptr<Problem> make_problem(const std::string& kind, const std::string& name) {
  constexpr std::string_view kCausal = ":causal";
  const bool causal = name.ends_with(kCausal);
  const Shape<4> sizes = sizes_in(causal ? name.substr(0, name.size() - kCausal.size()) : name);
  if (kind == "attention") return make_attention(sizes, causal);
  if (kind == "softmax_matmul" && !causal) return make_softmax_matmul(sizes);
  throw ArgumentError("a problem is '" + name + "' of the kind '" + kind +
                      "'; kinds are attention and softmax_matmul, the latter without a mask");
}

}  // namespace flash::leaderboard
