// PyTorch's kernels as passes on a GPU, alone and together with our own passes.
#include <string>
#include <vector>

#include "common/all_passes.hpp"
#include "common/attention_call.hpp"
#include "common/cuda/device_tensor.hpp"
#include "harness/attention_data.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"

using namespace flash;

namespace {

template <class T, int Rank>
Tensor<T, Rank> to_host(TensorView<const T, Rank> x) {  // x is row-major
  Tensor<T, Rank> host(x.shape());
  device::copy_to_host(host.data(), x.data(), sizeof(T) * static_cast<std::size_t>(x.size()));
  return host;
}

template <class T>
std::string wrong(TensorView<const T, 4> device, const WithMagnitude& want, double bound) {
  const Tensor<T, 4> got = to_host(device);
  return harness::wrong_in<T>(got.view(), want, bound, "row", 0);
}

// Returns how many pairs of passes took the problem.
template <class T>
int check_pairs(const Registry& registry, const AttentionShape& shape, bool causal) {
  const AttentionOptions options{.causal = causal};
  const Tensor<T, 4> q = normal<T>(shape.of_queries(), 1), k = normal<T>(shape.of_keys(), 2),
                     v = normal<T>(shape.of_keys(), 3), d_out = normal<T>(shape.of_queries(), 4);
  const AttentionOracle want = attention_oracle(q.view(), k.view(), v.view(), options);
  const AttentionOracleGradients d =
      attention_backward_oracle(q.view(), k.view(), v.view(), d_out.view(), options);
  // tf32 and the like are off in PyTorch, so that its float32 is ours.
  const double bound = attention_output_bound<T>(shape, want.largest_score);
  const double backward_bound = attention_gradient_bound<T>(shape, want.largest_score) + 2 * bound;

  const device::IndependentStream stream;
  const DeviceTensor<T, 4> dq(q), dk(k), dv(v), dd_out(d_out);
  int taken = 0;
  for (const auto& forward : registry.forward.entries())
    for (const auto& backward : registry.backward.entries()) {
      if (forward.device != DeviceKind::kGpu || backward.device != DeviceKind::kGpu) continue;
      if (!forward.name.starts_with("pytorch_") && !backward.name.starts_with("pytorch_")) continue;
      if (forward.name != backward.name && (forward.only_as_pair || backward.only_as_pair))
        continue;
      CAPTURE(forward.name, backward.name, to_string(dtype_of<T>()),
              to_string<4>(shape.of_queries()), to_string<4>(shape.of_keys()), causal);
      try {
        Attention<T, DeviceTensor> pass(registry, {forward.name, backward.name}, dq.view(),
                                        dk.view(), dv.view(), options, stream.get());
        const auto gradients = pass.backward(dd_out.view());
        device::synchronize();
        CHECK(wrong<T>(pass.out(), want.out, bound) == "");
        if (!forward.only_as_pair) {
          const auto lse = to_host(pass.lse());
          CHECK(harness::wrong_lse<LseType<T>>(lse.view(), want.lse, bound, 0) == "");
        }
        CHECK(wrong<T>(gradients.d_q.view(), d.d_q, backward_bound) == "");
        CHECK(wrong<T>(gradients.d_k.view(), d.d_k, backward_bound) == "");
        CHECK(wrong<T>(gradients.d_v.view(), d.d_v, backward_bound) == "");
        ++taken;
      } catch (const Unsupported&) {
      }
    }
  return taken;
}

}  // namespace

TEST_CASE(
    "PyTorch's passes on a GPU are right, and go with ours, on every problem that they take") {
  if (harness::skipped_without_gpu()) return;
  const Registry registry = all_passes();
  int taken = 0, in_16_bits = 0;
  for (const AttentionShape& shape : std::vector<AttentionShape>{{1, 1, 64, 64, 64},
                                                                 {2, 3, 100, 100, 64},
                                                                 {1, 2, 257, 257, 128},
                                                                 {1, 2, 130, 70, 32},
                                                                 {1, 2, 70, 130, 32},
                                                                 {1, 1, 33, 47, 13}})
    for (const bool causal : {false, true}) {
      taken += check_pairs<float>(registry, shape, causal) +
               check_pairs<double>(registry, shape, causal);
      in_16_bits += check_pairs<Half>(registry, shape, causal) +
                    check_pairs<BFloat16>(registry, shape, causal);
    }
  CHECK(taken >= 12 * 2 * 2 + 10);  // math and sdpa take all, efficient those whose head_dim fits
  CHECK(in_16_bits >= 12 * 2 * 2 + 20 * 2);  // and flash and cudnn most of them
}
