// Inputs that are hard for float32 numbers cut in pieces, and the error of a result.
#pragma once

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "common/inputs.hpp"
#include "common/oracle.hpp"

namespace flash::part3 {

using Float32Inputs = std::array<Tensor<float, 4>, 4>;  // q, k, v, d_out

struct Float32Case {
  std::string name;
  std::function<void(Float32Inputs&)> change;  // of N(0, 1)
  bool ordinary = false;                       // the error is that of many elements, not of a few
  double scale = 1;                            // of the scores, times 1 / sqrt(head_dim)

  Float32Inputs inputs(const AttentionShape& shape) const {
    Float32Inputs x{normal<float>(shape.of_queries(), 1), normal<float>(shape.of_keys(), 2),
                    normal<float>(shape.of_keys(), 3), normal<float>(shape.of_queries(), 4)};
    change(x);
    return x;
  }
  AttentionOptions options(const AttentionShape& shape, bool causal) const {
    return {.causal = causal, .scale = scale / std::sqrt(static_cast<double>(shape.head_dim))};
  }
};

inline auto scaled(double of_q, double of_k, double of_v) {
  return [=](Float32Inputs& x) {
    for (const auto& [i, factor] : {std::pair{0, of_q}, {1, of_k}, {2, of_v}})
      for (Index n = 0; n < x[i].size(); ++n)
        x[i].data()[n] = static_cast<float>(x[i].data()[n] * factor);
  };
}

// Rows and columns each times a factor of their own.
inline void scale_lognormal(Tensor<float, 4>& x, std::uint64_t seed) {
  Random random(seed);
  const Index columns = x.extent(3);
  std::vector<double> of_column(columns);
  for (double& factor : of_column) factor = std::exp(random.normal());
  for (Index row = 0; row < x.size() / columns; ++row) {
    const double of_row = std::exp(random.normal());
    for (Index n = 0; n < columns; ++n) {
      float& element = x.data()[row * columns + n];
      element = static_cast<float>(element * of_row * of_column[n]);
    }
  }
}

inline std::vector<Float32Case> float32_cases() {
  std::vector<Float32Case> cases{
      {"N(0, 1)", [](Float32Inputs&) {}, true},
      {"q x 8", scaled(8, 1, 1), true},
      {"rows and columns x lognormal",
       [](Float32Inputs& x) {
         for (int i = 0; i < 4; ++i) scale_lognormal(x[i], 4 + i);
       }},
      {"q and k x 2^-50, scale x 2^100", scaled(0x1p-50, 0x1p-50, 1), true, 0x1p100}};
  for (const float size : {1e3f, 1e6f})
    for (int i = 0; i < 4; ++i)
      // Not in the first step of keys, so that sums have begun.
      cases.push_back({"an element of " + std::to_string(static_cast<int>(size)) + " in " +
                           std::array{"q", "k", "v", "d_out"}[i],
                       [=](Float32Inputs& x) { x[i](0, 0, i % 3 == 0 ? 30 : 37, 5) = size; }});
  return cases;
}

// Relative to the oracle's norm.
inline double error(const Tensor<float, 4>& got, const WithMagnitude& want) {
  double wrong = 0, all = 0;
  for (Index n = 0; n < got.size(); ++n) {
    const double must = want.value.data()[n];
    wrong += std::pow(got.data()[n] - must, 2);
    all += must * must;
  }
  return std::sqrt(wrong / all);
}

}  // namespace flash::part3
