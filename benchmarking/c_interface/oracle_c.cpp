// Implements the oracle's part of attention_c.h, a head at a time.
#include <algorithm>
#include <cmath>

#include "benchmarking/c_interface/c_interface.hpp"
#include "benchmarking/head_oracle.hpp"
#include "common/oracle.hpp"

namespace flash {
namespace {

// Copies a head's result to `to`. Returns its largest magnitude.
double copy_out(const HeadOracle::Result& result, double* to) {
  std::copy_n(result.value.data(), result.value.size(), to);
  double largest = 0;
  for (Index i = 0; i < result.magnitude.size(); ++i) largest = std::fmax(largest, result.magnitude.data()[i]);
  return largest;
}

// The length of the longest row.
template <class T>
double longest_row(TensorView<const T, 4> x) {
  double longest = 0;
  for (Index b = 0; b < x.extent(0); ++b)
    for (Index h = 0; h < x.extent(1); ++h)
      for (Index i = 0; i < x.extent(2); ++i) {
        double sum = 0;
        for (Index c = 0; c < x.extent(3); ++c) sum += static_cast<double>(x(b, h, i, c)) * static_cast<double>(x(b, h, i, c));
        longest = std::fmax(longest, std::sqrt(sum));
      }
  return longest;
}

// Head `number` of a packed tensor.
template <class T>
TensorView<const T, 4> head_of(TensorView<const T, 4> x, Index number) {
  return {x.data() + number * x.stride(1), {1, 1, x.extent(2), x.extent(3)}, x.strides()};
}

}  // namespace
}  // namespace flash

using namespace flash;

int flash_attention_oracle(int dtype, const FlashShape* shape, int causal, const void* q, const void* k, const void* v,
                           double* out, double* lse, double* largest_error) {
  return guarded([&] {
    with_dtype<float, double, Half, BFloat16>(dtype, [&]<class T>() {
      const AttentionShape of = shape_of(shape);
      const auto query = view_of<const T, 4>("q", q, of.of_queries());
      const auto key = view_of<const T, 4>("k", k, of.of_keys());
      const auto value = view_of<const T, 4>("v", v, of.of_keys());
      not_null("out", out);
      not_null("lse", lse);
      double largest_score = 0, largest_magnitude = 0;
      for (Index head = 0; head < of.batch * of.heads; ++head) {
        const HeadOracle oracle = head_oracle<T>(head_of(query, head), head_of(key, head), head_of(value, head), {},
                                                 causal != 0, HeadPasses::kForward);
        largest_magnitude = std::fmax(largest_magnitude, copy_out(oracle.out, out + head * query.stride(1)));
        std::copy_n(oracle.lse.data(), of.queries, lse + head * of.queries);
        largest_score = std::fmax(largest_score, oracle.largest_score);
      }
      not_null("largest_error", largest_error) = attention_output_bound<T>(of, largest_score) * largest_magnitude;
    });
  });
}

int flash_attention_backward_oracle(int dtype, const FlashShape* shape, int causal, const void* q, const void* k, const void* v,
                                    const void* d_out, double* d_q, double* d_k, double* d_v, double* largest_errors) {
  return guarded([&] {
    with_dtype<float, double, Half, BFloat16>(dtype, [&]<class T>() {
      const AttentionShape of = shape_of(shape);
      const auto query = view_of<const T, 4>("q", q, of.of_queries());
      const auto key = view_of<const T, 4>("k", k, of.of_keys());
      const auto value = view_of<const T, 4>("v", v, of.of_keys());
      const auto upstream = view_of<const T, 4>("d_out", d_out, of.of_queries());
      // sum |q k| <= |q| |k|: the bound does not need each score, which would take as long as a forward pass.
      const double largest_score = attention_scale({}, of.head_dim) * longest_row(query) * longest_row(key);
      const double bound = attention_gradient_bound<T>(of, largest_score);
      double* const results[] = {&not_null("d_q", d_q), &not_null("d_k", d_k), &not_null("d_v", d_v)};
      std::fill_n(&not_null("largest_errors", largest_errors), 3, 0.0);
      for (Index head = 0; head < of.batch * of.heads; ++head) {
        const HeadOracle oracle = head_oracle<T>(head_of(query, head), head_of(key, head), head_of(value, head),
                                                 head_of(upstream, head), causal != 0, HeadPasses::kBackward);
        const HeadOracle::Result* const gradients[] = {&oracle.d_q, &oracle.d_k, &oracle.d_v};
        for (int each = 0; each < 3; ++each) {
          const double largest = copy_out(*gradients[each], results[each] + head * gradients[each]->value.size());
          largest_errors[each] = std::fmax(largest_errors[each], bound * largest);
        }
      }
    });
  });
}
