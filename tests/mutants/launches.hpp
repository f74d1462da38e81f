// How the kernels of a file are run: flash_mutants() generates a run_kernels() that calls one of
// these. The shapes have several blocks and several steps of each loop; the forward pass also gets
// a head that is wider than any tile, when it takes one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/attention_call.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/decode.hpp"
#include "common/inputs.hpp"
#include "mutants/mutants.hpp"

namespace flash::mutants {

template <class Call>
void ten_kernels(Call call) {
  const DeviceTensor<float, 1> x(make_input<1>({1024}, Pattern::kNormal, 1)), y({1024});
  for (int number = 1; number <= 10; ++number) call(number, x.view(), y.view());
}

template <class Call>
void attention_1d(Call call) {
  const DeviceTensor<float, 1> q(make_input<1>({70}, Pattern::kNormal, 1)),
      k(make_input<1>({90}, Pattern::kNormal, 2)), v(make_input<1>({90}, Pattern::kNormal, 3)),
      z({70});
  call(q.view(), k.view(), v.view(), z.view(), 64, 32, Stream{});
}

template <class Call>
void softmax_matmul(Call call, const std::vector<SoftmaxMatmulShape>& shapes = {{1, 33, 47, 40}}) {
  for (const SoftmaxMatmulShape& shape : shapes) {
    const DeviceTensor<float, 3> x(make_input<3>(shape.of_x(), Pattern::kNormal, 1)),
        v(make_input<3>(shape.of_v(), Pattern::kNormal, 2)), out(shape.of_out());
    call(SoftmaxMatmul<float>{x.view(), v.view(), out.view()});
    device::synchronize();
  }
}

template <class T>
DeviceTensor<T, 4> random4(const Shape<4>& shape, std::uint64_t seed) {
  return DeviceTensor<T, 4>(normal<T>(shape, seed));
}

template <class T, class Call>
void forward(Call call, const std::vector<AttentionShape>& shapes = {{1, 1, 150, 150, 16},
                                                                     {1, 1, 70, 70, 300}}) {
  for (const AttentionShape& shape : shapes) {
    const auto q = random4<T>(shape.of_queries(), 1), k = random4<T>(shape.of_keys(), 2),
               v = random4<T>(shape.of_keys(), 3);
    const DeviceTensor<T, 4> out(shape.of_queries());
    const DeviceTensor<float, 3> lse(shape.of_rows());
    call(AttentionForward<T>{q.view(), k.view(), v.view(), out.view(), lse.view()});
    device::synchronize();
  }
}

template <class T, class Call>
void backward(Call call, const AttentionShape& shape = {1, 1, 150, 150, 16}) {
  const auto q = random4<T>(shape.of_queries(), 1), k = random4<T>(shape.of_keys(), 2),
             v = random4<T>(shape.of_keys(), 3), out = random4<T>(shape.of_queries(), 4),
             d_out = random4<T>(shape.of_queries(), 5);
  const DeviceTensor<float, 3> lse(Tensor<float, 3>(shape.of_rows()));
  const DeviceTensor<T, 4> d_q(shape.of_queries()), d_k(shape.of_keys()), d_v(shape.of_keys());
  call(AttentionBackward<T>{q.view(), k.view(), v.view(), out.view(), lse.view(), d_out.view(),
                            d_q.view(), d_k.view(), d_v.view()});
  device::synchronize();
}

// 530 keys are two parts of the task's kernel, 1500 of a rung; a group of 6 rows has two groups of
// the task's warps.
template <class T, class Call>
void decode(Call call, const std::vector<std::int32_t>& of_lengths = {530, 0, 40}) {
  constexpr Index kTablePages = 95, kPageSize = 16, kHeadDim = 64;
  const auto batch = static_cast<Index>(of_lengths.size()), pages = batch * kTablePages;
  const auto q = random4<T>({batch, 6, 1, kHeadDim}, 1),
             k = random4<T>({pages, kPageSize, 1, kHeadDim}, 2),
             v = random4<T>({pages, kPageSize, 1, kHeadDim}, 3);
  Tensor<std::int32_t, 2> table({batch, kTablePages});
  Tensor<std::int32_t, 1> lengths({batch});
  for (Index n = 0; n < table.size(); ++n) table.data()[n] = static_cast<std::int32_t>(n);
  std::copy(of_lengths.begin(), of_lengths.end(), lengths.data());
  const DeviceTensor<std::int32_t, 2> table_there(table);
  const DeviceTensor<std::int32_t, 1> lengths_there(lengths);
  const DeviceTensor<T, 4> out({batch, 6, 1, kHeadDim});
  const DeviceTensor<float, 3> lse({batch, 6, 1});
  call(Decode<T>{q.view(), k.view(), v.view(), table_there.view(), lengths_there.view(), out.view(),
                 lse.view()});
  device::synchronize();
}

}  // namespace flash::mutants
