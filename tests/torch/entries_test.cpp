// PyTorch's kernels as passes of the registry, on the CPU and on a GPU: against the oracle, alone
// and together with our own passes; and what they say of their memory.
#include <map>
#include <string>
#include <vector>

#include "common/all_passes.hpp"
#include "common/attention_call.hpp"
#include "harness/attention_data.hpp"
#include "harness/catch.hpp"
#if FLASH_TORCH_CUDA
#include "common/cuda/device_tensor.hpp"
#include "harness/needs_gpu.hpp"
#endif

using namespace flash;

namespace {

// How many problems each pair of passes took: "flash+pytorch_flash float32".
using Taken = std::map<std::string, int>;

template <class T, template <class, int> class Memory, int Rank>
Tensor<T, Rank> on_host(TensorView<const T, Rank> x) {  // x is row-major
  if constexpr (std::is_same_v<Memory<T, Rank>, Tensor<T, Rank>>) return packed(x);
#if FLASH_TORCH_CUDA
  Tensor<T, Rank> host(x.shape());
  device::copy_to_host(host.data(), x.data(), sizeof(T) * static_cast<std::size_t>(x.size()));
  return host;
#endif
}

// Every pair of which at least one pass is PyTorch's. Where `swapped`, q, k and v lie in memory as
// (batch, sequence, heads, head_dim), as models have them.
template <class T, template <class, int> class Memory>
void check_pairs(const Registry& registry, const AttentionShape& shape, bool causal, bool swapped,
                 Stream stream, Taken& taken) {
  using Call = Attention<T, Memory>;
  const auto of_torch = [](const std::string& name) { return name.starts_with("pytorch_"); };
  const AttentionOptions options{.causal = causal};
  const auto view = [&](const auto& x) -> TensorView<const T, 4> {
    const auto [batch, heads, rows, columns] = x.view().shape();
    if (!swapped) return x.view();
    return {x.data(), x.view().shape(), {heads * rows * columns, columns, heads * columns, 1}};
  };
  const Tensor<T, 4> q = normal<T>(shape.of_queries(), 1), k = normal<T>(shape.of_keys(), 2),
                     v = normal<T>(shape.of_keys(), 3), d_out = normal<T>(shape.of_queries(), 4);
  const AttentionOracle want = attention_oracle(view(q), view(k), view(v), options);
  const AttentionOracleGradients d =
      attention_backward_oracle(view(q), view(k), view(v), view(d_out), options);
  // tf32 and the like are off in PyTorch, so that its float32 is ours.
  const double bound = attention_output_bound<T>(shape, want.largest_score);
  const double backward_bound = attention_gradient_bound<T>(shape, want.largest_score) + 2 * bound;
  const auto wrong = [](TensorView<const T, 4> got, const WithMagnitude& expected, double most) {
    const Tensor<T, 4> host = on_host<T, Memory>(got);
    return harness::wrong_in<T>(host.view(), expected, most, "row", 0);
  };

  const Memory<T, 4> its_q(q), its_k(k), its_v(v), its_d_out(d_out);
  for (const auto& forward : registry.forward.entries())
    for (const auto& backward : registry.backward.entries()) {
      if (forward.device != Call::kDevice || backward.device != Call::kDevice) continue;
      if (!of_torch(forward.name) && !of_torch(backward.name)) continue;
      if (forward.name != backward.name && (forward.only_as_pair || backward.only_as_pair))
        continue;
      CAPTURE(forward.name, backward.name, to_string(dtype_of<T>()),
              to_string<4>(shape.of_queries()), to_string<4>(shape.of_keys()), causal, swapped);
      try {
        Call pass(registry, {forward.name, backward.name}, view(its_q), view(its_k), view(its_v),
                  options, stream);
        const auto gradients = pass.backward(view(its_d_out));
#if FLASH_TORCH_CUDA
        if (Call::kDevice == DeviceKind::kGpu) device::synchronize();
#endif
        CHECK(wrong(pass.out(), want.out, bound) == "");
        if (!forward.only_as_pair) {
          const auto lse = on_host<LseType<T>, Memory>(pass.lse());
          CHECK(harness::wrong_lse<LseType<T>>(lse.view(), want.lse, bound, 0) == "");
        }
        CHECK(wrong(gradients.d_q.view(), d.d_q, backward_bound) == "");
        CHECK(wrong(gradients.d_k.view(), d.d_k, backward_bound) == "");
        CHECK(wrong(gradients.d_v.view(), d.d_v, backward_bound) == "");
        ++taken[forward.name + "+" + backward.name + " " + to_string(dtype_of<T>())];
      } catch (const Unsupported&) {
      }
    }
}

template <class T, template <class, int> class Memory>
void check_shapes(Taken& taken, bool swapped = false, Stream stream = {}) {
  const Registry registry = all_passes();
  for (const AttentionShape& shape : std::vector<AttentionShape>{{1, 1, 64, 64, 64},
                                                                 {2, 3, 100, 100, 64},
                                                                 {1, 2, 257, 257, 128},
                                                                 {1, 2, 130, 70, 32},
                                                                 {1, 2, 70, 130, 32},
                                                                 {1, 1, 33, 47, 13}})
    for (const bool causal : {false, true})
      check_pairs<T, Memory>(registry, shape, causal, swapped, stream, taken);
  for (const std::string pair : {"pytorch_math+pytorch_math ", "pytorch_sdpa+pytorch_sdpa "})
    CHECK(taken[pair + to_string(dtype_of<T>())] == 12);
}

}  // namespace

TEST_CASE("PyTorch's passes are right, and go with ours, on every problem that they take") {
  for (const bool swapped : {false, true}) {
    Taken taken;
    check_shapes<float, Tensor>(taken, swapped);
    check_shapes<double, Tensor>(taken, swapped);
    for (const std::string pair :
         {"standard+pytorch_flash float32", "flash+pytorch_flash float64",
          "pytorch_flash+flash float32", "pytorch_flash+pytorch_flash float32"})
      CHECK(taken[pair] == 12);
  }
  Taken taken;
  check_shapes<Half, Tensor>(taken);
  check_shapes<BFloat16, Tensor>(taken);
  CHECK(taken["pytorch_flash+pytorch_flash bfloat16"] == 12);
}

#if FLASH_TORCH_CUDA
TEST_CASE("PyTorch's passes on a GPU are right, and go with ours, on what they take") {
  if (harness::skipped_without_gpu()) return;
  const device::IndependentStream stream;
  Taken taken;
  check_shapes<float, DeviceTensor>(taken, false, stream.get());
  check_shapes<double, DeviceTensor>(taken, false, stream.get());
  check_shapes<Half, DeviceTensor>(taken, false, stream.get());
  check_shapes<BFloat16, DeviceTensor>(taken, false, stream.get());
  CHECK(taken["pytorch_efficient+pytorch_efficient float32"] == 10);  // not a head_dim of 13
  for (const std::string type : {"float16", "bfloat16"}) {
    CHECK(taken["pytorch_flash+pytorch_flash " + type] == 8);
    CHECK(taken["pytorch_cudnn+pytorch_cudnn " + type] == 10);
  }
}
#endif

TEST_CASE("PyTorch's passes say how much they allocated") {
  const Registry registry = all_passes();
  const AttentionShape shape{1, 2, 2048, 2048, 16};
  const Tensor<float, 4> x = normal<float>(shape.of_queries(), 1);
  Tensor<float, 4> out(shape.of_queries());
  Tensor<float, 3> lse(shape.of_rows());
  const AttentionForward<float> pass{x.view(), x.view(), x.view(), out.view(), lse.view()};
  const auto memory_of = [&](const std::string& name) {
    PassMemory memory;
    registry.forward.find(name, DeviceKind::kCpu).run.float32(pass, memory);
    return memory;
  };
  const std::size_t p = 4 * 2 * 2048 * 2048;  // 60 times what a thread keeps of the scores
  const PassMemory flash = memory_of("pytorch_flash"), math = memory_of("pytorch_math");
  CHECK(flash.own_peak_bytes >= 4 * static_cast<std::size_t>(out.size() + lse.size()));
  CHECK(flash.own_peak_bytes < p);
  CHECK(math.own_peak_bytes >= p);
  CHECK(math.kept_bytes >= p);
}

TEST_CASE("PyTorch's passes refuse what would end the process or be wrong") {
  const Registry registry = all_passes();
  const auto& flash = registry.forward.find("pytorch_flash", DeviceKind::kCpu);
  AttentionProblem problem{
      .shape = {1, 1, 4, 0, 8}, .options = {}, .dtype = DType::kFloat32, .tensors = {}};
  CHECK(flash.why_not(problem) == "keys is 0; PyTorch's kernel needs at least 1");
  problem.shape.keys = 4;
  problem.tensors = {{"q", {32, 32, 8, 1}, 64}, {"k", {32, 32, 1, 4}, 64}};
  CHECK(flash.why_not(problem) == "k's stride along head_dim is 4; PyTorch's kernel needs 1");
}
