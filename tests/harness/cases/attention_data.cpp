#include "harness/cases/attention_data.hpp"

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "common/inputs.hpp"

namespace flash::harness {

template <class T>
AttentionInputs<T> make_inputs(const AttentionShape& shape, Data data, std::uint64_t seed) {
  AttentionInputs<T> inputs{normal<T>(shape.of_queries(), 3 * seed),
                            normal<T>(shape.of_keys(), 3 * seed + 1),
                            normal<T>(shape.of_keys(), 3 * seed + 2)};
  Tensor<T, 4>&q = inputs.q, &k = inputs.k, &v = inputs.v;
  const double root = std::sqrt(static_cast<double>(shape.head_dim));
  const auto each = [](Tensor<T, 4>& x, auto change) {  // change(element, row, column)
    for (Index i = 0; i < x.size(); ++i)
      x.data()[i] = static_cast<T>(
          change(static_cast<double>(x.data()[i]), i / x.extent(3) % x.extent(2), i % x.extent(3)));
  };
  const auto each_head = [&shape](auto use) {  // use(batch, head)
    for (Index b = 0; b < shape.batch; ++b)
      for (Index h = 0; h < shape.heads; ++h) use(b, h);
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                   kQuietNaN = std::numeric_limits<double>::quiet_NaN();
  Random random(seed);
  switch (data) {
    case Data::kNormal:
      if constexpr (std::is_same_v<T, BFloat16>)
        each(v,
             [](double value, Index, Index c) { return std::ldexp(value, exponent_of_column(c)); });
      break;
    case Data::kHalfNormal:
      for (Tensor<T, 4>* x : {&q, &k, &v})
        each(*x, [](double value, Index, Index) { return 0.5 * value; });
      break;
    case Data::kSmallIntegers:
      for (Tensor<T, 4>* x : {&q, &k, &v})
        each(*x, [](double value, Index, Index) { return std::round(2 * value); });
      break;
    case Data::kLargeScores:
      for (Tensor<T, 4>* x : {&q, &k})
        each(*x, [](double value, Index, Index) { return 7 * value; });
      break;
    case Data::kRising:  // column 0 carries the rise, the others a little noise
      each(q, [&](double value, Index, Index c) { return c == 0 ? root : 0.3 * value; });
      each(k, [&](double value, Index j, Index c) {
        return c == 0 ? 300.0 * static_cast<double>(j) / static_cast<double>(shape.keys) - 150
                      : value;
      });
      break;
    case Data::kVeryNegative:
      each(q, [&](double value, Index, Index c) { return c == 0 ? 10 * root : value; });
      each(k, [](double value, Index, Index c) { return c == 0 ? -100 : value; });
      break;
    case Data::kEqual:
    case Data::kSignature:
      each(k, [](double, Index, Index c) { return 0.25 * static_cast<double>(c % 5) - 0.5; });
      if (data == Data::kSignature)
        each(v, [&](double, Index j, Index c) {
          return c == j % shape.head_dim ? 1 + static_cast<double>(j % 13) / 13 : 0.0;
        });
      break;
    case Data::kOneHot:
      each_head([&](Index b, Index h) {
        for (Index i = 0; i < shape.queries; ++i) {
          const Index chosen = random.below(shape.keys);
          for (Index c = 0; c < shape.head_dim; ++c)
            q(b, h, i, c) = static_cast<T>(12 * static_cast<double>(k(b, h, chosen, c)));
        }
      });
      break;
    case Data::kMinusInfinity:
      each(q, [](double value, Index, Index c) { return c == 0 ? std::fabs(value) + 0.1 : value; });
      each_head([&](Index b, Index h) {
        for (Index j = 0; j < (h == shape.heads - 1 ? shape.keys : shape.keys / 3); ++j)
          k(b, h, j, 0) = static_cast<T>(-kInfinity);
      });
      break;
    case Data::kLowest:
      each(q, [&](double, Index, Index c) { return c == 0 ? 4e4 * root : 0; });
      each(k, [](double, Index, Index c) { return c == 0 ? -3e4 : 0; });
      break;
    case Data::kTiny:
    case Data::kHuge:
      for (Tensor<T, 4>* x : {&q, &k})
        each(*x, [&](double value, Index, Index) {
          return std::ldexp(value, data == Data::kTiny ? -40 : 40);
        });
      break;
    case Data::kEdge:
      each(q, [](double, Index, Index c) { return c == 0 ? 0x1p63 : 0; });
      each(k, [](double, Index j, Index c) { return c > 0 ? 0 : j == 0 ? 0x1p64 : -0x1p64; });
      break;
    case Data::kFarApart:
      each(q, [&](double value, Index i, Index c) {
        return c == 0 ? (is_high(i) ? 150 : -150) * root : value;
      });
      each(k, [](double value, Index, Index c) { return c == 0 ? 1 : value; });
      break;
    case Data::kNaNInScores:
      each_head([&](Index b, Index h) {
        q(b, h, random.below(shape.queries), random.below(shape.head_dim)) =
            static_cast<T>(kQuietNaN);
        // Of the later keys: with a causal mask some rows do not see it.
        k(b, h, shape.keys / 2 + random.below((shape.keys + 1) / 2), 0) = static_cast<T>(kQuietNaN);
      });
      break;
    case Data::kNaN:
      each_head([&](Index b, Index h) {
        v(b, h, random.below(shape.keys), random.below(shape.head_dim)) = static_cast<T>(kQuietNaN);
      });
      break;
  }
  return inputs;
}

namespace {

// "" where got has each NaN and each infinity of want, and 0 then stands in place of both.
template <class T, int Rank, class Place>
std::string take_out_special(Tensor<T, Rank>& got, Tensor<double, Rank>& want,
                             Tensor<double, Rank>& magnitude, Place place) {
  for (Index i = 0; i < want.size(); ++i) {
    const double expected = want.data()[i];
    if (std::isfinite(expected)) continue;
    const T value = got.data()[i];
    if (std::isnan(expected) ? !std::isnan(value) || is_poison(value)
                             : static_cast<double>(value) != expected)
      return place(i) + " is " +
             (is_poison(value) ? "unchanged (never written)" : std::to_string(value)) +
             ", expected " +
             (std::isnan(expected) ? "NaN: it sees a NaN." : "-inf: the query sees no key.");
    got.data()[i] = static_cast<T>(0);
    want.data()[i] = 0;
    magnitude.data()[i] = 1;
  }
  return "";
}

}  // namespace

template <class T>
std::string wrong_in(TensorView<const T, 4> got, const WithMagnitude& want, double bound,
                     const std::string& rows, Index block,
                     const std::optional<Tolerance>& tolerance) {
  Tensor<T, 4> elements = packed(got);
  Tensor<double, 4> finite = want.value, magnitude = want.magnitude;
  using Computed = std::conditional_t<sizeof(T) == 2, float, T>;
  // A weight below the smallest normal number may be lost, whoever computes; on its way to a
  // gradient it is multiplied by up to about 100.
  for (Index i = 0; i < finite.size(); ++i)
    magnitude.data()[i] += 100 * static_cast<double>(std::numeric_limits<Computed>::min()) / bound;
  const auto place = [&](Index i) {
    return rows + " " + std::to_string(i / finite.extent(3) % finite.extent(2)) + ", column " +
           std::to_string(i % finite.extent(3));
  };
  if (const std::string wrong = take_out_special(elements, finite, magnitude, place);
      !wrong.empty())
    return wrong;
  CompareOptions options;
  options.max_scaled = bound;
  options.max_frobenius = frobenius_bound(bound, finite, magnitude);
  options.axes = {"batch", "head", rows, "column"};
  options.blocks = {0, 0, block, 0};
  options.magnitude = magnitude.data();
  const Comparison comparison = compare<4>(std::as_const(elements).view(), finite, options);
  if (!comparison.pass) return comparison.text;
  for (Index i = 0; tolerance && i < finite.size(); ++i) {
    const double value = static_cast<double>(elements.data()[i]), expected = finite.data()[i];
    if (!(std::fabs(value - expected) <=
          tolerance->absolute + tolerance->relative * std::fabs(expected)))
      return place(i) + " is " + std::to_string(value) + ", expected " + std::to_string(expected) +
             ": more than the tolerance of " + std::to_string(tolerance->relative) + " away.";
  }
  return "";
}

template <class T>
std::string wrong_lse(TensorView<const T, 3> got, const Tensor<double, 3>& want, double bound,
                      Index block) {
  Tensor<T, 3> elements = packed(got);
  Tensor<double, 3> finite = want, magnitude(want.shape());
  for (Index i = 0; i < finite.size(); ++i)
    magnitude.data()[i] = 1 + std::fabs(finite.data()[i]) * unit_roundoff<T>() / bound;
  if (const std::string wrong = take_out_special(
          elements, finite, magnitude,
          [&](Index i) { return "lse of query " + std::to_string(i % want.extent(2)); });
      !wrong.empty())
    return wrong;
  CompareOptions options;
  options.max_scaled = bound;
  options.max_frobenius = std::numeric_limits<double>::max();
  options.axes = {"batch", "head", "query"};
  options.blocks = {0, 0, block};
  options.magnitude = magnitude.data();
  const Comparison comparison = compare<3>(std::as_const(elements).view(), finite, options);
  return comparison.pass ? "" : comparison.text;
}

std::string gradients_text(const std::string& in_d_q, const std::string& in_d_k,
                           const std::string& in_d_v) {
  std::string text;
  for (const auto& [name, found] : {std::pair{"dQ", &in_d_q}, {"dK", &in_d_k}, {"dV", &in_d_v}})
    if (!found->empty()) text += (text.empty() ? "" : "\n") + std::string(name) + ": " + *found;
  return text;
}

Verdict grows_no_faster(Index sequence, std::size_t few, std::size_t many, std::size_t most,
                        const std::string& matrix) {
  const std::string text = std::to_string(few) + " extra bytes for a sequence of " +
                           std::to_string(sequence) + ", " + std::to_string(many) + " for " +
                           std::to_string(4 * sequence);
  if (many <= most) return {true, text};
  return {false, text + ": the memory grows faster than the sequence. " + matrix + " " +
                     std::to_string(16 * sequence * sequence * sizeof(float)) + "."};
}

template <class T>
std::string wrong_delta(TensorView<const float, 3> delta, TensorView<const T, 4> out,
                        TensorView<const T, 4> d_out) {
  Tensor<double, 3> want(delta.shape()), magnitude(delta.shape());
  for (Index b = 0; b < out.extent(0); ++b)
    for (Index h = 0; h < out.extent(1); ++h)
      for (Index i = 0; i < out.extent(2); ++i)
        for (Index c = 0; c < out.extent(3); ++c) {
          const double term =
              static_cast<double>(out(b, h, i, c)) * static_cast<double>(d_out(b, h, i, c));
          want(b, h, i) += term;
          magnitude(b, h, i) += std::fabs(term);
        }
  CompareOptions options;
  options.max_scaled = 0x1p-24 * (2 + 2 * std::sqrt(static_cast<double>(out.extent(3))));
  options.max_frobenius = 1e-5;
  options.axes = {"batch", "head", "query"};
  options.blocks = {0, 0, 0};
  options.magnitude = magnitude.data();
  const Comparison comparison = compare<3>(delta, want, options);
  return comparison.pass ? "" : "delta is wrong. " + comparison.text;
}

#define FLASH_INSTANTIATE(T)                                                              \
  template AttentionInputs<T> make_inputs<T>(const AttentionShape&, Data, std::uint64_t); \
  template std::string wrong_in(TensorView<const T, 4>, const WithMagnitude&, double,     \
                                const std::string&, Index, const std::optional<Tolerance>&)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(double);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

template std::string wrong_lse(TensorView<const float, 3>, const Tensor<double, 3>&, double, Index);
template std::string wrong_lse(TensorView<const double, 3>, const Tensor<double, 3>&, double,
                               Index);
template std::string wrong_delta(TensorView<const float, 3>, TensorView<const float, 4>,
                                 TensorView<const float, 4>);
template std::string wrong_delta(TensorView<const float, 3>, TensorView<const Half, 4>,
                                 TensorView<const Half, 4>);
template std::string wrong_delta(TensorView<const float, 3>, TensorView<const BFloat16, 4>,
                                 TensorView<const BFloat16, 4>);

}  // namespace flash::harness
