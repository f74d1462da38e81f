// Implements attention_cases.hpp.
#include "part2/attention_cases.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "common/inputs.hpp"

namespace flash::part2 {

using harness::Layout;

std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases{
      {.name = "one block: 1 x 1 x 16 x 16", .shape = {1, 1, 16, 16, 16}},
      {.name = "one query and one key", .shape = {1, 1, 1, 1, 8}},
      {.name = "head_dim 1", .shape = {2, 1, 17, 17, 1}},
      {.name = "ragged by one: 15", .shape = {1, 2, 15, 15, 24}},
      {.name = "ragged by one: 17", .shape = {1, 2, 17, 17, 24}},
      {.name = "batches and heads: 4 x 8", .shape = {4, 8, 32, 32, 16}, .weight = 2},
      {.name = "a notebook of multi-head attention: 4 x 8 x 64 x 64",
       .shape = {4, 8, 64, 64, 64},
       .tolerance = Tolerance{1e-5, 1e-4}},
      {.name = "the tolerance of the homework: 1e-3", .shape = {4, 1, 128, 128, 64}, .tolerance = Tolerance{1e-5, 1e-3}},
      {.name = "ragged: 100", .shape = {2, 3, 100, 100, 80}, .weight = 2},
      {.name = "many keys: 257", .shape = {1, 2, 257, 257, 64}, .weight = 2},
      {.name = "head_dim 128", .shape = {1, 1, 64, 64, 128}},
      {.name = "head_dim 512", .shape = {1, 1, 32, 32, 512}},
      {.name = "fewer queries than keys", .shape = {2, 2, 33, 70, 16}},
      {.name = "more queries than keys", .shape = {2, 2, 70, 33, 16}},
      {.name = "one query and many keys", .shape = {1, 2, 1, 100, 16}},
      {.name = "no keys", .shape = {1, 2, 5, 0, 8}},
      {.name = "causal: 16", .shape = {1, 1, 16, 16, 16}, .causal = true, .weight = 2},
      {.name = "causal: 100", .shape = {2, 2, 100, 100, 24}, .causal = true, .weight = 2},
      {.name = "causal: 257", .shape = {1, 2, 257, 257, 16}, .causal = true},
      {.name = "causal: fewer queries than keys", .shape = {1, 2, 33, 70, 16}, .causal = true},
      {.name = "causal: more queries than keys", .shape = {1, 2, 70, 33, 16}, .causal = true},
      {.name = "blocks of 1", .shape = {1, 1, 9, 11, 8}, .blocks = {1, 1}},
      {.name = "blocks of 32 and 8", .shape = {1, 2, 70, 70, 16}, .causal = true, .blocks = {32, 8}},
      {.name = "blocks of 8 and 32", .shape = {1, 2, 70, 70, 16}, .causal = true, .blocks = {8, 32}},
      {.name = "blocks larger than everything", .shape = {1, 1, 20, 30, 8}, .blocks = {1000, 1000}},
      {.name = "a scale of its own", .shape = {1, 2, 40, 40, 16}, .scale = 0.3},
      {.name = "a negative scale", .shape = {1, 1, 20, 20, 16}, .scale = -0.5},
      {.name = "large scores", .shape = {1, 2, 64, 100, 64}, .data = Data::kLargeScores, .weight = 2},
      {.name = "rising scores: a new maximum in each block", .shape = {1, 2, 40, 100, 16}, .data = Data::kRising, .weight = 2},
      {.name = "very negative scores", .shape = {1, 1, 40, 100, 16}, .data = Data::kVeryNegative},
      {.name = "equal scores", .shape = {1, 1, 33, 47, 16}, .data = Data::kEqual},
      {.name = "one key a query", .shape = {1, 1, 40, 100, 64}, .data = Data::kOneHot},
      {.name = "values that show which keys were counted", .shape = {1, 2, 50, 83, 32}, .data = Data::kSignature},
      {.name = "values that show which keys were counted (causal)",
       .shape = {1, 2, 83, 83, 32},
       .causal = true,
       .data = Data::kSignature},
      {.name = "scores of -inf and rows of nothing else", .shape = {1, 2, 40, 100, 16}, .data = Data::kMinusInfinity},
      {.name = "NaN reaches the rows that see it", .shape = {2, 2, 40, 40, 8}, .causal = true, .data = Data::kNaN},
      {.name = "strides: padded rows", .shape = {2, 2, 20, 33, 16}, .layout = Layout::kPaddedRows},
      {.name = "strides: transposed", .shape = {2, 2, 20, 33, 16}, .layout = Layout::kTransposed},
      {.name = "strides: spread out", .shape = {2, 2, 20, 33, 16}, .layout = Layout::kSpread},
      {.name = "strides: interleaved heads", .shape = {2, 3, 20, 33, 16}, .layout = Layout::kInterleavedHeads},
      {.name = "double: 100", .shape = {2, 2, 100, 100, 24}, .float64 = true},
      {.name = "double: causal (ragged and strided)",
       .shape = {1, 2, 70, 33, 16},
       .causal = true,
       .layout = Layout::kSpread,
       .float64 = true},
      {.name = "double: large scores", .shape = {1, 1, 64, 100, 64}, .data = Data::kLargeScores, .float64 = true},
  };
  return cases;
}

template <class T>
Tensor<T, 4> normal(const Shape<4>& shape, std::uint64_t seed) {
  Tensor<T, 4> x(shape);
  Random random(seed);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<T>(random.normal());
  return x;
}

template <class T>
AttentionInputs<T> make_inputs(const AttentionCase& problem, std::uint64_t seed) {
  const AttentionShape& shape = problem.shape;
  AttentionInputs<T> inputs{normal<T>(shape.of_queries(), 3 * seed), normal<T>(shape.of_keys(), 3 * seed + 1),
                            normal<T>(shape.of_keys(), 3 * seed + 2)};
  auto& [q, k, v] = inputs;
  const double root = std::sqrt(static_cast<double>(shape.head_dim));
  const auto each = [](Tensor<T, 4>& x, auto change) {  // change(element, row, column)
    for (Index i = 0; i < x.size(); ++i)
      x.data()[i] = static_cast<T>(change(static_cast<double>(x.data()[i]), i / x.extent(3) % x.extent(2), i % x.extent(3)));
  };
  Random random(seed);
  switch (problem.data) {
    case Data::kNormal: break;
    case Data::kLargeScores:
      for (Tensor<T, 4>* x : {&q, &k}) each(*x, [](double value, Index, Index) { return 7 * value; });
      break;
    case Data::kRising:  // column 0 carries the rise, the others a little noise
      each(q, [&](double value, Index, Index c) { return c == 0 ? root : 0.3 * value; });
      each(k, [&](double value, Index j, Index c) {
        return c == 0 ? 100.0 * static_cast<double>(j) / static_cast<double>(shape.keys) - 50 : value;
      });
      break;
    case Data::kVeryNegative:
      each(q, [&](double value, Index, Index c) { return c == 0 ? 10 * root : value; });
      each(k, [](double value, Index, Index c) { return c == 0 ? -100 : value; });
      break;
    case Data::kEqual:
    case Data::kSignature:
      each(k, [](double, Index, Index c) { return 0.25 * static_cast<double>(c % 5) - 0.5; });
      if (problem.data == Data::kSignature)
        each(v, [&](double, Index j, Index c) { return c == j % shape.head_dim ? 1 + static_cast<double>(j % 13) / 13 : 0.0; });
      break;
    case Data::kOneHot:
      for (Index b = 0; b < shape.batch; ++b)
        for (Index h = 0; h < shape.heads; ++h)
          for (Index i = 0; i < shape.queries; ++i) {
            const Index chosen = random.below(shape.keys);
            for (Index c = 0; c < shape.head_dim; ++c) q(b, h, i, c) = T{12} * k(b, h, chosen, c);
          }
      break;
    case Data::kMinusInfinity:
      each(q, [](double value, Index, Index c) { return c == 0 ? std::fabs(value) + 0.1 : value; });
      for (Index b = 0; b < shape.batch; ++b)
        for (Index h = 0; h < shape.heads; ++h)
          for (Index j = 0; j < (h == shape.heads - 1 ? shape.keys : shape.keys / 3); ++j)
            k(b, h, j, 0) = -std::numeric_limits<T>::infinity();
      break;
    case Data::kNaN:
      for (Index b = 0; b < shape.batch; ++b)
        for (Index h = 0; h < shape.heads; ++h)
          v(b, h, random.below(shape.keys), random.below(shape.head_dim)) = std::numeric_limits<T>::quiet_NaN();
      break;
  }
  return inputs;
}

template <class T>
std::string wrong_in(TensorView<const T, 4> got, const WithMagnitude& want, double bound, const std::string& rows, Index block,
                     const std::optional<Tolerance>& tolerance) {
  Tensor<T, 4> elements = packed(got);
  Tensor<double, 4> finite = want.value, magnitude = want.magnitude;
  for (Index i = 0; i < finite.size(); ++i) {
    // A weight below the smallest normal number may be lost, whoever computes; on its way to a gradient it is multiplied by up
    // to about 100.
    magnitude.data()[i] += 100 * static_cast<double>(std::numeric_limits<T>::min()) / bound;
    if (!std::isnan(finite.data()[i])) continue;
    const T value = elements.data()[i];
    if (!std::isnan(value) || is_poison(value)) {
      const Index row = i / finite.extent(3);
      return "An element that sees a NaN has to be NaN: " + rows + " " + std::to_string(row % finite.extent(2)) + ", column " +
             std::to_string(i % finite.extent(3)) + " is " +
             (is_poison(value) ? "nothing (never written)" : std::to_string(value)) + ".";
    }
    elements.data()[i] = 0;
    finite.data()[i] = 0;
    magnitude.data()[i] = 1;
  }
  CompareOptions options;
  options.max_scaled = bound;
  // Of the whole tensor against the result, which is smaller than the terms summed: up to sqrt(n) of them cancel.
  double squares = 0, magnitude_squares = 0;
  for (Index i = 0; i < finite.size(); ++i) {
    squares += finite.data()[i] * finite.data()[i];
    magnitude_squares += magnitude.data()[i] * magnitude.data()[i];
  }
  // Where all should be 0 (the gradient of a softmax over one key), the elements' own bounds have to do.
  options.max_frobenius =
      squares > 0 ? bound * std::sqrt(magnitude_squares / squares) : std::numeric_limits<double>::infinity();
  options.axes = {"batch", "head", rows, "column"};
  options.blocks = {0, 0, block, 0};
  options.magnitude = magnitude.data();
  const Comparison comparison = compare<4>(std::as_const(elements).view(), finite, options);
  if (!comparison.pass) return comparison.text;
  for (Index i = 0; tolerance && i < finite.size(); ++i) {
    const double value = static_cast<double>(elements.data()[i]), expected = finite.data()[i];
    if (!(std::fabs(value - expected) <= tolerance->absolute + tolerance->relative * std::fabs(expected)))
      return "Element " + std::to_string(i) + " is " + std::to_string(value) + ", expected " + std::to_string(expected) +
             ": more than the tolerance of " + std::to_string(tolerance->relative) + " away.";
  }
  return "";
}

#define FLASH_INSTANTIATE(T)                                                                                     \
  template Tensor<T, 4> normal<T>(const Shape<4>&, std::uint64_t);                                               \
  template AttentionInputs<T> make_inputs<T>(const AttentionCase&, std::uint64_t);                               \
  template std::string wrong_in(TensorView<const T, 4>, const WithMagnitude&, double, const std::string&, Index, \
                                const std::optional<Tolerance>&)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(double);

}  // namespace flash::part2
