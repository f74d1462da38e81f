// Passes of the registry behind the contracts of tasks, so that a runner calls them like a
// submission: the given pass that a board compares with, and the rungs of the ladders, its marks.
// The environment says which: FLASH_TASK the task's id, FLASH_PASS the name of the pass, or of both
// passes as FORWARD+BACKWARD.
#include <cstdlib>
#include <string>

#include "common/all_passes.hpp"
#include "common/attention_call.hpp"
#include "common/heads.hpp"
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
  const std::string names = variable("FLASH_PASS");
  const std::size_t plus = names.find('+');
  const bool second = std::is_same_v<Pass<float>, AttentionBackward<float>> && plus < names.size();
  return (registry.*passes).find(second ? names.substr(plus + 1) : names.substr(0, plus), kDevice);
}

template <template <class> class Pass, class T>
void run(const Entry<Pass>& entry, const Pass<T>& pass) {
  PassMemory memory;
  run_entry<Memory>(entry, pass, memory);
}

void softmax_matmul(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks&) {
  run(chosen(&Registry::softmax_matmul), pass);
}

// On a GPU the pass that holds P gets one head after the other: P of all would not fit a small one.
template <class Pass, class Use>
void for_each_part(const Pass& pass, Use use) {
  if (kDevice == DeviceKind::kCpu || variable("FLASH_PASS") != "standard") return use(pass);
  for (Index b = 0; b < pass.shape().batch; ++b)
    for (Index h = 0; h < pass.shape().heads; ++h) use(view_of_head(pass, b, h));
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
      run_entry<Memory>(chosen(&Registry::forward),
                        AttentionForward<T>{part.q, part.k, part.v, out.view(), lse.view(),
                                            part.options, part.stream},
                        memory);
    }
    run_entry<Memory>(entry, part, memory);
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
constexpr FlashForwardTask kForwardTask{
    {kForward<float>, kForward<double>, kForward<Half>, kForward<BFloat16>}};
constexpr FlashBackwardTask kBackwardTask{
    {kBackward<float>, kBackward<double>, kBackward<Half>, kBackward<BFloat16>}};
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
