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

double attention_flops(const AttentionShape& shape, bool causal, std::size_t pass) {
  double pairs = 0;
  for (Index i = 0; i < shape.queries; ++i)
    pairs += static_cast<double>(shape.visible_keys(i, causal));
  return (pass == 0 ? 4 : 10) * pairs *
         static_cast<double>(shape.batch * shape.heads * shape.head_dim);
}

double attention_bytes(const AttentionShape& shape, std::size_t pass, std::size_t element) {
  const double tensor = static_cast<double>(shape.batch * shape.heads * shape.queries) *
                        static_cast<double>(shape.head_dim);
  return static_cast<double>(element) * (pass == 0 ? 4 : 8) * tensor;
}

double softmax_matmul_flops(const SoftmaxMatmulShape& s) {
  return 2.0 * static_cast<double>(s.batch * s.d1 * s.d2 * s.d3);
}

double softmax_matmul_bytes(const SoftmaxMatmulShape& s) {
  return 4.0 * static_cast<double>(s.batch * (s.d1 * s.d2 + s.d2 * s.d3 + s.d1 * s.d3));
}

std::unique_ptr<Problem> make_problem(const Asked& asked, const std::string& name) {
  constexpr std::string_view kCausal = ":causal";
  const bool causal = name.ends_with(kCausal);
  const Shape<4> sizes = sizes_in(causal ? name.substr(0, name.size() - kCausal.size()) : name);
  if (asked.kind == "attention" || (asked.kind == "softmax_matmul" && !causal))
    return make_problem(asked, sizes, causal);
  throw ArgumentError("a problem is '" + name + "' of the kind '" + asked.kind +
                      "'; kinds are attention and softmax_matmul, the latter without a mask");
}

}  // namespace flash::leaderboard
