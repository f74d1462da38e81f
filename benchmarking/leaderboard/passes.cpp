// Passes of the registry behind the contracts of tasks, so that a runner calls them like a
// submission: the given pass that a board compares with, and the rungs of the ladders, its marks.
// The environment says which: FLASH_TASK the task's id, FLASH_PASS the name of the pass.
#include <cstdlib>
#include <string>

#include "common/all_passes.hpp"
#include "common/attention_call.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#if FLASH_ON_GPU
#include "bonus_backward/flash_backward_cuda.hpp"
#include "common/cuda/device_tensor.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"
#else
#include "part2_flash_cpu/flash_attention.hpp"
#endif

namespace flash {
namespace {

#if FLASH_ON_GPU
constexpr DeviceKind kDevice = DeviceKind::kGpu;
template <class T, int Rank>
using Memory = DeviceTensor<T, Rank>;
#else
constexpr DeviceKind kDevice = DeviceKind::kCpu;
template <class T, int Rank>
using Memory = Tensor<T, Rank>;
#endif

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <template <class> class Pass>
const Entry<Pass>& chosen(const PassList<Pass> Registry::*passes) {
  static const Registry registry = all_passes();
  return (registry.*passes).find(variable("FLASH_PASS"), kDevice);
}

// Memory of a GPU is freed behind the kernels of the pass's stream.
template <template <class> class Pass, class T>
void run(const Entry<Pass>& entry, const Pass<T>& pass, PassMemory& memory) {
  check_supported(entry, pass);
  const auto bytes = static_cast<Index>(entry.workspace_of(problem_of(pass)));
  auto workspace = tensor_in<Memory<std::byte, 1>>(Shape<1>{bytes}, pass.stream);
  memory.workspace = workspace.data();
  entry.run.template of<T>()(pass, memory);
}
template <template <class> class Pass, class T>
void run(const Entry<Pass>& entry, const Pass<T>& pass) {
  PassMemory memory;
  run(entry, pass, memory);
}

void softmax_matmul(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks&) {
  run(chosen(&Registry::softmax_matmul), pass);
}

template <class T, int Rank>
TensorView<T, Rank> head_of(const TensorView<T, Rank>& x, Index b, Index h) {
  Shape<Rank> shape = x.shape();
  shape[0] = shape[1] = 1;
  return {x.data() + b * x.stride(0) + h * x.stride(1), shape, x.strides()};
}

template <class T>
AttentionForward<T> head_of(const AttentionForward<T>& all, Index b, Index h) {
  const auto& [q, k, v, out, lse, options, stream] = all;
  return {head_of(q, b, h),
          head_of(k, b, h),
          head_of(v, b, h),
          head_of(out, b, h),
          head_of(lse, b, h),
          options,
          stream};
}
template <class T>
AttentionBackward<T> head_of(const AttentionBackward<T>& all, Index b, Index h) {
  const auto& [q, k, v, out, lse, d_out, d_q, d_k, d_v, options, stream] = all;
  return {head_of(q, b, h),
          head_of(k, b, h),
          head_of(v, b, h),
          head_of(out, b, h),
          head_of(lse, b, h),
          head_of(d_out, b, h),
          head_of(d_q, b, h),
          head_of(d_k, b, h),
          head_of(d_v, b, h),
          options,
          stream};
}

// On a GPU the pass that holds P gets one head after the other: P of all would not fit a small one.
template <class Pass, class Use>
void for_each_part(const Pass& pass, Use use) {
  if (kDevice == DeviceKind::kCpu || variable("FLASH_PASS") != "standard") return use(pass);
  for (Index b = 0; b < pass.shape().batch; ++b)
    for (Index h = 0; h < pass.shape().heads; ++h) use(head_of(pass, b, h));
}

template <class T>
void forward(const AttentionForward<T>& pass) {
  for_each_part(pass, [](const auto& part) { run(chosen(&Registry::forward), part); });
}

// Of a pair the backward pass computes P again, because the task's contract hands it none.
template <class T>
void backward(const AttentionBackward<T>& pass) {
  const auto& entry = chosen(&Registry::backward);
  for_each_part(pass, [&](const AttentionBackward<T>& part) {
    PassMemory memory;
    const AttentionShape shape = part.shape();
    Memory<T, 4> out;
    Memory<LseType<T>, 3> lse;
    if (entry.only_as_pair) {
      out = tensor_in<Memory<T, 4>>(shape.of_queries(), part.stream);
      lse = tensor_in<Memory<LseType<T>, 3>>(shape.of_rows(), part.stream);
      run(chosen(&Registry::forward),
          AttentionForward<T>{part.q, part.k, part.v, out.view(), lse.view(), part.options,
                              part.stream},
          memory);
    }
    run(entry, part, memory);
  });
}

#if FLASH_ON_GPU
template <class T>
constexpr FlashForwardCudaFunctions<T> kForward{
    .flash_attention_forward_configs = nullptr,
    .flash_attention_forward_cuda = [](const AttentionForward<T>& pass, const auto&) {
      forward(pass);
    }};
template <class T>
constexpr FlashBackwardCudaFunctions<T> kBackward{.flash_backward_blocks = nullptr,
                                                  .flash_backward_delta_cuda = nullptr,
                                                  .flash_backward_dk_dv_cuda = nullptr,
                                                  .flash_backward_dq_cuda = nullptr,
                                                  .flash_attention_backward_cuda = backward<T>};
constexpr FusedCudaTask kFused{.fused_softmax_matmul_cuda = softmax_matmul};
constexpr FlashForwardCudaTask kForwardTask{{kForward<float>, kForward<Half>, kForward<BFloat16>}};
constexpr FlashBackwardCudaTask kBackwardTask{
    {kBackward<float>, kBackward<Half>, kBackward<BFloat16>}};
#else
template <class T>
constexpr FlashForwardFunctions<T> kForward{
    .flash_attention_forward = [](const AttentionForward<T>& pass, const AttentionBlocks&) {
      forward(pass);
    }};
template <class T>
constexpr FlashBackwardFunctions<T> kBackward{
    .attention_delta = nullptr,
    .flash_attention_backward = [](const AttentionBackward<T>& pass, Index) { backward(pass); }};
constexpr FusedCpuTask kFused{.fused_softmax_matmul = softmax_matmul};
constexpr FlashForwardTask kForwardTask{{kForward<float>, kForward<double>}};
constexpr FlashBackwardTask kBackwardTask{{kBackward<float>, kBackward<double>}};
#endif

// The entry of the first of these tasks that the environment names.
template <class... Tasks>
TaskEntry asked_for(const Tasks&... tasks) {
  TaskEntry entry{"none", nullptr};
  const std::string id = variable("FLASH_TASK");
  ((id == Tasks::kId ? void(entry = {Tasks::kId, &tasks}) : void()), ...);
  return entry;
}

}  // namespace
}  // namespace flash

extern "C" FLASH_EXPORT flash::TaskEntry flash_task() {
  return flash::asked_for(flash::kFused, flash::kForwardTask, flash::kBackwardTask);
}
