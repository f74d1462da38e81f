// Implements the oracle's part of attention_c.h.
#include <algorithm>
#include <cmath>

#include "benchmarking/c_interface.hpp"
#include "common/oracle.hpp"

namespace flash {
namespace {

// Copies the oracle's result to `to`. Returns its largest magnitude.
double copy_out(const char* argument, const WithMagnitude& result, double* to) {
  not_null(argument, to);
  double largest = 0;
  for (Index i = 0; i < result.value.size(); ++i) {
    to[i] = result.value.data()[i];
    largest = std::fmax(largest, result.magnitude.data()[i]);
  }
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

}  // namespace
}  // namespace flash

using namespace flash;

int flash_attention_oracle(int dtype, const FlashShape* shape, int causal, const void* q, const void* k, const void* v,
                           double* out, double* lse, double* largest_error) {
  return guarded([&] {
    with_dtype(dtype, [&]<class T>() {
      const AttentionShape of = shape_of(shape);
      const AttentionOracle oracle =
          attention_oracle<T>(view_of<const T, 4>("q", q, of.of_queries()), view_of<const T, 4>("k", k, of.of_keys()),
                              view_of<const T, 4>("v", v, of.of_keys()), {.causal = causal != 0});
      std::copy_n(oracle.lse.data(), oracle.lse.size(), &not_null("lse", lse));
      not_null("largest_error", largest_error) =
          attention_bound(of, oracle.largest_score, unit_roundoff<T>()) * copy_out("out", oracle.out, out);
    });
  });
}

int flash_attention_backward_oracle(int dtype, const FlashShape* shape, int causal, const void* q, const void* k, const void* v,
                                    const void* d_out, double* d_q, double* d_k, double* d_v, double* largest_errors) {
  return guarded([&] {
    with_dtype(dtype, [&]<class T>() {
      const AttentionShape of = shape_of(shape);
      const auto query = view_of<const T, 4>("q", q, of.of_queries());
      const auto key = view_of<const T, 4>("k", k, of.of_keys());
      const auto value = view_of<const T, 4>("v", v, of.of_keys());
      const AttentionOptions options{.causal = causal != 0};
      const auto gradients =
          attention_backward_oracle<T>(query, key, value, view_of<const T, 4>("d_out", d_out, of.of_queries()), options);
      // sum |q k| <= |q| |k|: the bound does not need each score, which would take as long as a forward pass.
      const double largest_score = attention_scale(options, of.head_dim) * longest_row(query) * longest_row(key);
      const double bound = attention_backward_bound(of, largest_score, unit_roundoff<T>());
      not_null("largest_errors", largest_errors);
      largest_errors[0] = bound * copy_out("d_q", gradients.d_q, d_q);
      largest_errors[1] = bound * copy_out("d_k", gradients.d_k, d_k);
      largest_errors[2] = bound * copy_out("d_v", gradients.d_v, d_v);
    });
  });
}
