// How the runner calls the functions of the CUDA tasks: with tensors in the memory of its device,
// which is the emulator's or a GPU's, or in device memory that the judge has mapped here.
#include <memory>
#include <optional>
#include <string>

#include "common/attention.hpp"
#include "common/cuda/device.hpp"
#include "common/half.hpp"
#include "harness/judge/joint_memory.hpp"
#include "harness/runner/runner.hpp"
#include "part1_softmax_matmul/attention_1d.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#if __has_include("part3_flash_cuda/flash_attention_cuda.hpp")  // a release may lack the part
#include "part3_flash_cuda/flash_attention_cuda.hpp"
#define FLASH_HAVE_PART3
#endif

namespace flash::grading {
namespace {

// The tensors of a call on the device, each with what lies around it in the judge's memory; or that
// memory itself.
class OnDevice {
 public:
  OnDevice(const Message& call, void* memory)
      : call_(call), host_(static_cast<char*>(memory)), is_copy_(call.kind == Kind::kMap) {
    for (unsigned n = 0; !is_copy_ && n < call.views && n < kMostViews; ++n)
      device_[n] = host_ + call.placed[n].begin;
    if (!is_copy_) return;
    for (unsigned n = 0; n < call.views && n < kMostViews; ++n) {
      const Placed& placed = call.placed[n];
      device_[n] = static_cast<char*>(device::allocate(placed.bytes));
      device::copy_to_device(device_[n], host_ + placed.begin, placed.bytes);
      forbid_surroundings(n);
    }
  }
  ~OnDevice() {
    for (char* const memory : device_)
      if (is_copy_) device::free(memory);
  }
  OnDevice(const OnDevice&) = delete;

  template <class T, int Rank>
  TensorView<T, Rank> view(int number) const {
    const auto here = OnHost{call_, nullptr}.view<T, Rank>(number);
    const Placed& placed = call_.placed[number];
    char* const data = device_[number] + (placed.offset - placed.begin);
    return {reinterpret_cast<T*>(data), here.shape(), here.strides()};
  }

  void copy_back(Message& done) const {
    if (!is_copy_) return;
    for (unsigned n = 0; n < call_.views && n < kMostViews; ++n) {
      const Placed& placed = call_.placed[n];
      device::copy_to_host(host_ + placed.begin, device_[n], placed.bytes);
      if (const auto moved = device::traffic(device_[n])) {
        done.counted = 1;
        done.shared_reads = device::shared_reads().value_or(0);
        done.moved[n] = {moved->loaded_bytes, moved->stored_bytes};
      }
    }
  }

 private:
  // The checks report an access to what lies around the tensor, and between its elements.
  void forbid_surroundings(unsigned n) {
    const Placed& placed = call_.placed[n];
    std::vector<bool> inside(placed.bytes / placed.element);
    const std::size_t first = placed.offset - placed.begin;
    for_each_element(placed, [&](std::size_t at) { inside[(first + at) / placed.element] = true; });
    for (std::size_t begin = 0, end; begin < inside.size(); begin = end) {
      for (end = begin + 1; end < inside.size() && inside[end] == inside[begin];) ++end;
      if (!inside[begin])
        device::forbid(device_[n] + begin * placed.element, (end - begin) * placed.element);
    }
  }

  const Message& call_;
  char* host_;
  const bool is_copy_;
  char* device_[kMostViews] = {};
};

// An element type in the names of a library's functions.
struct OfType {
  const char *type, *delta_arguments;
};
constexpr char kPass[] = "RKNS_17AttentionBackwardIT_EE";
constexpr char kPassAndDelta[] = "RKNS_17AttentionBackwardIT_EENS_10TensorViewIKfLi3EEE";

// Whether it is a function for elements of T.
template <class T>
bool run_attention(const Message& call, const OnDevice& on, const OfType& of) {
#ifdef FLASH_HAVE_PART3
  using Forward = void(const AttentionForward<T>&, const std::optional<FlashForwardConfig>&);
  if (call.function == device_function<T>(kFlashForwardCuda)) {
    const auto& [head_dim, queries, keys, warps] = call.integers;
    std::optional<FlashForwardConfig> config;
    if (head_dim != 0) config = {head_dim, queries, keys, warps};
    function_for<Forward>(of.type, "28flash_attention_forward_cuda",
                          "RKNS_16AttentionForwardIT_EERKSt8optionalINS_18FlashForwardConfigEE")(
        forward_pass<T>(call, on), config);
    return true;
  }
#endif
  using Delta = void(TensorView<const T, 4>, TensorView<const T, 4>, TensorView<float, 3>, Stream);
  using Gradients = void(const AttentionBackward<T>&, TensorView<const float, 3>);
  using Backward = void(const AttentionBackward<T>&);
  if (call.function == device_function<T>(kFlashDeltaCuda)) {
    function_for<Delta>(of.type, "25flash_backward_delta_cuda", of.delta_arguments)(
        on.view<const T, 4>(0), on.view<const T, 4>(1), on.view<float, 3>(2), {});
  } else if (call.function == device_function<T>(kFlashDkDvCuda)) {
    function_for<Gradients>(of.type, "25flash_backward_dk_dv_cuda", kPassAndDelta)(
        backward_pass<T>(call, on), on.view<const float, 3>(9));
  } else if (call.function == device_function<T>(kFlashDqCuda)) {
    function_for<Gradients>(of.type, "22flash_backward_dq_cuda", kPassAndDelta)(
        backward_pass<T>(call, on), on.view<const float, 3>(9));
  } else if (call.function == device_function<T>(kFlashBackwardCuda)) {
    function_for<Backward>(of.type, "29flash_attention_backward_cuda",
                           kPass)(backward_pass<T>(call, on));
  } else {
    return false;
  }
  return true;
}

void run_fused(const Message& call, const OnDevice& on) {
  using Fused = void(const SoftmaxMatmul<float>&, const SoftmaxMatmulBlocks&);
  function<Fused>(
      "_ZN5flash25fused_softmax_matmul_cudaERKNS_13SoftmaxMatmulIfEERKNS_19SoftmaxMatmulBlocksE")(
      softmax_matmul_pass(on), {call.integers[0], call.integers[1]});
}

void run_1d(const Message& call, const OnDevice& on) {
  using Numbers = TensorView<const float, 1>;
  function<void(Numbers, Numbers, Numbers, TensorView<float, 1>, int, int, Stream)>(
      "_ZN5flash17attention_1d_cudaENS_10TensorViewIKfLi1EEES2_S2_NS0_IfLi1EEEiiNS_6StreamE")(
      on.view<const float, 1>(0), on.view<const float, 1>(1), on.view<const float, 1>(2),
      on.view<float, 1>(3), static_cast<int>(call.integers[0]), static_cast<int>(call.integers[1]),
      {});
}

void run_on(const Message& call, const OnDevice& on) {
  static const OfType types[] = {
      {"f", "NS_10TensorViewIKT_Li4EEES4_NS1_IfLi3EEENS_6StreamE"},
      {"NS_10SmallFloatILi5EEE", "NS_10TensorViewIKT_Li4EEES6_NS3_IfLi3EEENS_6StreamE"},
      {"NS_10SmallFloatILi8EEE", "NS_10TensorViewIKT_Li4EEES6_NS3_IfLi3EEENS_6StreamE"}};
  if (call.function == kFusedSoftmaxMatmulCuda) return run_fused(call, on);
  if (call.function == kAttention1dCuda) return run_1d(call, on);
  if (!run_attention<float>(call, on, types[0]) && !run_attention<Half>(call, on, types[1]) &&
      !run_attention<BFloat16>(call, on, types[2]))
    throw Error("there is no such function on a device");
}

}  // namespace

void run(const Message& call, void* memory, Message& done) {
  const OnDevice on(call, memory);
  const std::size_t before = device::memory_in_use();
  device::reset_peak_memory();
  device::reset_traffic();  // and what was found
  run_on(call, on);
  device::synchronize();
  done.device_bytes = device::peak_memory() - before;
  on.copy_back(done);
  // A launch with a finding has thrown; the student's code may have caught that.
  if (const std::string text = finding(); !text.empty()) throw KernelError(text);
}

void run_nothing() {
  static void* const own = device::allocate(64);
  device::fill_bytes(own, 0, 64);  // is a kernel
  device::synchronize();
}

void* mapped_on_device(int descriptor, std::size_t bytes) {
  static std::unique_ptr<JointMemory> mapped;
  if (descriptor >= 0) {
    mapped.reset();
    mapped = std::make_unique<JointMemory>(descriptor, bytes);
  }
  if (mapped == nullptr) throw Error("the judge has sent no device memory");
  device::synchronize();
  return mapped->data();
}

}  // namespace flash::grading
