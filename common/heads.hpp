// One head of a tensor, or of a pass.
#pragma once

#include "common/attention.hpp"

namespace flash {

// The view of a head, with batch = heads = 1.
template <class T, int Rank>
TensorView<T, Rank> view_of_head(const TensorView<T, Rank>& x, Index b, Index h) {
  Shape<Rank> shape = x.shape();
  shape[0] = shape[1] = 1;
  return {x.data() + b * x.stride(0) + h * x.stride(1), shape, x.strides()};
}

// The same of all tensors of a forward or of a backward pass.
template <class Pass>
requires requires(Pass pass) { pass.q; }
Pass view_of_head(Pass pass, Index b, Index h) {
  const auto narrow = [&](auto&... views) { ((views = view_of_head(views, b, h)), ...); };
  narrow(pass.q, pass.k, pass.v, pass.out, pass.lse);
  if constexpr (requires { pass.d_out; }) narrow(pass.d_out, pass.d_q, pass.d_k, pass.d_v);
  return pass;
}

}  // namespace flash
