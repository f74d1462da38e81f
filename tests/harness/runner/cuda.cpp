// How the runner calls the functions of the CUDA tasks: with tensors in the memory of its device,
// which is the emulator's or a GPU's, or in device memory that the judge has mapped here.
#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "common/attention.hpp"
#include "common/cuda/check.hpp"
#include "common/cuda/device.hpp"
#include "common/half.hpp"
#include "harness/judge/joint_memory.hpp"
#include "harness/runner/runner.hpp"
#ifdef FLASH_HAVE_PART1  // a release may lack a part
#include "part1_softmax_matmul/attention_1d.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#include "part1_softmax_matmul/ten_kernels.hpp"
#endif
#ifdef FLASH_HAVE_PART3
#include "part3_flash_cuda/flash_attention_cuda.hpp"
#endif
#ifdef FLASH_HAVE_BONUS
#include "bonus_backward/flash_backward_cuda.hpp"
#endif
#ifdef FLASH_HAVE_DECODE
#include "bonus_decode/flash_decode.hpp"
#endif

namespace flash::grading {
namespace {

void copy_on_device(void* to, const void* from, std::size_t bytes, Stream stream) {
  FLASH_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                   static_cast<cudaStream_t>(stream.handle)));
}

// While one exists, and student code does not run.
class HostAccess {
 public:
  HostAccess() { let_host_access(true); }
  ~HostAccess() { let_host_access(false); }
  HostAccess(const HostAccess&) = delete;
};

// The stream of a call, and for OnStream::kBusy what comes on it before the inputs.
class CallStream {
 public:
  explicit CallStream(OnStream how) : how_(how) {
    if (how != OnStream::kDefault) own_.emplace();
  }
  Stream get() const { return own_ ? own_->get() : Stream{}; }
  bool is_busy() const { return how_ == OnStream::kBusy; }

  // Enqueues 2 GiB of writing.
  void begin_work() {
    constexpr std::size_t kBytes = std::size_t{1} << 28;
    other_ = device::allocate(kBytes);
    device::synchronize();
    for (int i = 0; i < 8; ++i) device::fill_bytes(other_, 1, kBytes, get());
  }
  ~CallStream() { device::free(other_); }
  CallStream(const CallStream&) = delete;

 private:
  OnStream how_;
  std::optional<device::IndependentStream> own_;
  void* other_ = nullptr;
};

// The tensors of a call on the device, each with what lies around it in the judge's memory; or that
// memory itself.
class OnDevice {
 public:
  OnDevice(const Message& call, void* memory)
      : stream(call.stream),
        call_(call),
        host_(static_cast<char*>(memory)),
        // The emulator's kernels take memory of the host.
        is_copy_(call.kind == Kind::kMap && (call.apart == 0 || !device::is_emulated())) {
    const unsigned views = std::min<std::uint32_t>(call.views, kMostViews);
    std::istringstream names(call.text);
    std::string problem = call.numbers[0] != 0 ? "causal" : "";
    const HostAccess access;
    reuse_addresses();
    if (is_copy_ && call.apart != 0) {
      half_ = (call.bytes - kBehind) / 2;
      far_apart_ = static_cast<char*>(device::allocate(call.apart + half_));
      copy_halves(true);
    }
    for (unsigned n = 0; n < views; ++n) {
      const Placed& placed = call.placed[n];
      if (far_apart_ != nullptr || !is_copy_) {
        device_[n] = (far_apart_ != nullptr ? far_apart_ : host_) + placed.begin;
        continue;
      }
      device_[n] = static_cast<char*>(device::allocate(placed.bytes));
      device::copy_to_device(device_[n], host_ + placed.begin, placed.bytes);
      forbid_surroundings(n);
      std::string name;
      if (std::getline(names, name)) {
        const bool is_input = name.starts_with(kInput);
        if (is_input) name.erase(0, kInput.size());
        name_memory(device_[n] + (placed.offset - placed.begin), name, is_input);
        problem += " " + name + "=" + std::to_string(placed.element);
        for (const std::int64_t extent : placed.shape) problem += "x" + std::to_string(extent);
        for (const std::int64_t stride : placed.strides) problem += "@" + std::to_string(stride);
      }
    }
    note_problem(problem);
    if (stream.is_busy()) delay_inputs();
  }
  ~OnDevice() {
    device::free(far_apart_);
    for (char* const memory : device_)
      if (is_copy_ && far_apart_ == nullptr) device::free(memory);
    for (void* const memory : later_) device::free(memory);
  }
  OnDevice(const OnDevice&) = delete;

  // The call, with what run_host_code() asks for.
  Message for_host_code() const {
    Message message = call_;
    for (unsigned n = 0; n < call_.views && n < kMostViews; ++n)
      message.placed[n].offset = reinterpret_cast<std::uint64_t>(device_[n]) +
                                 call_.placed[n].offset - call_.placed[n].begin;
    message.bytes = reinterpret_cast<std::uint64_t>(stream.get().handle);
    return message;
  }

  void copy_back() const {
    if (!is_copy_) return;
    const HostAccess access;
    if (far_apart_ != nullptr) return copy_halves(false);
    for (unsigned n = 0; n < call_.views && n < kMostViews; ++n) {
      const Placed& placed = call_.placed[n];
      device::copy_to_host(host_ + placed.begin, device_[n], placed.bytes);
    }
  }

  // What was moved of each tensor.
  void count(Message& done) const {
    for (unsigned n = 0; is_copy_ && far_apart_ == nullptr && n < call_.views && n < kMostViews;
         ++n)
      if (const auto moved = device::traffic(device_[n])) {
        done.counted = 1;
        done.moved[n] = *moved;
        done.shared = device::shared_accesses().value_or(device::SharedAccesses{});
        done.work = device::work().value_or(device::Work{});
      }
  }

  CallStream stream;

 private:
  // The checks report an access to what lies around the tensor, and between its elements.
  void forbid_surroundings(unsigned n) {
    if (!device::is_emulated()) return;
    const Placed& placed = call_.placed[n];
    std::vector<bool> inside(placed.bytes / placed.element);
    const std::size_t first = placed.offset - placed.begin;
    for_each_run(placed, [&](std::size_t at, std::int64_t count) {
      std::fill_n(inside.begin() + static_cast<std::ptrdiff_t>((first + at) / placed.element),
                  count, true);
    });
    for (std::size_t begin = 0, end; begin < inside.size(); begin = end) {
      for (end = begin + 1; end < inside.size() && inside[end] == inside[begin];) ++end;
      if (!inside[begin])
        device::forbid(device_[n] + begin * placed.element, (end - begin) * placed.element);
    }
  }

  void copy_halves(bool to_device) const {
    for (const std::size_t n : {0, 1}) {
      char *const there = far_apart_ + n * call_.apart, *const here = host_ + n * call_.apart;
      to_device ? device::copy_to_device(there, here, half_)
                : device::copy_to_host(here, there, half_);
    }
  }

  // What the tensors hold comes on the stream, behind other work; until then it is NaN.
  void delay_inputs() {
    const unsigned views = std::min<std::uint32_t>(call_.views, kMostViews);
    for (unsigned n = 0; n < views; ++n) {
      const std::size_t bytes = call_.placed[n].bytes;
      later_[n] = device::allocate(bytes);
      copy_on_device(later_[n], device_[n], bytes, {});
      device::fill_bytes(device_[n], 0xff, bytes);
    }
    stream.begin_work();
    for (unsigned n = 0; n < views; ++n)
      copy_on_device(device_[n], later_[n], call_.placed[n].bytes, stream.get());
  }

  const Message& call_;
  char* host_;
  const bool is_copy_;
  std::size_t half_ = 0;
  char* far_apart_ = nullptr;
  char* device_[kMostViews] = {};
  void* later_[kMostViews] = {};
};

// The tensors and the stream of a call, for host code.
struct Views : OnHost {
  explicit Views(const Message& of) : OnHost{of, nullptr} {}
  Stream stream() const { return {reinterpret_cast<void*>(call.bytes)}; }
};

template <class Pass>
Pass on_stream(Pass pass, const Views& on) {
  pass.stream = on.stream();
  return pass;
}

// What the library is compiled for: whether the call asks for that, for elements of T.
template <class T>
bool say_what_there_is(const Message& call, Message& done) {
#ifdef FLASH_HAVE_PART3
  if (call.function == device_function<T>(kFlashForwardConfigs)) {
    std::string text;
    for (const FlashForwardConfig& each :
         functions_of<FlashForwardCudaTask>().of<T>().flash_attention_forward_configs(
             call.integers[0]))
      text += std::to_string(each.head_dim) + " " + std::to_string(each.block_queries) + " " +
              std::to_string(each.block_keys) + " " + std::to_string(each.warps) + "\n";
    set_text(done, text);
    return true;
  }
#endif
#ifdef FLASH_HAVE_BONUS
  if (call.function == device_function<T>(kFlashBackwardBlocks)) {
    const auto blocks =
        functions_of<FlashBackwardCudaTask>().of<T>().flash_backward_blocks(call.integers[0]);
    done.integers[2] = blocks.own, done.integers[3] = blocks.streamed;
    return true;
  }
#endif
  return false;
}

// Whether it is a function for elements of T.
template <class T>
bool run_attention([[maybe_unused]] const Message& call, [[maybe_unused]] const Views& on) {
#ifdef FLASH_HAVE_PART3
  if (call.function == device_function<T>(kFlashForwardCuda)) {
    const auto& [head_dim, queries, keys, warps] = call.integers;
    std::optional<FlashForwardConfig> config;
    if (head_dim != 0) config = {head_dim, queries, keys, warps};
    functions_of<FlashForwardCudaTask>().of<T>().flash_attention_forward_cuda(
        on_stream(forward_pass<T>(call, on), on), config);
    return true;
  }
#endif
#ifdef FLASH_HAVE_BONUS
  const auto backward = [] { return functions_of<FlashBackwardCudaTask>().of<T>(); };
  const auto pass = [&] { return on_stream(backward_pass<T>(call, on), on); };
  const auto delta = [&] { return on.view<const float, 3>(9); };
  if (call.function == device_function<T>(kFlashDeltaCuda))
    return backward().flash_backward_delta_cuda(on.view<const T, 4>(0), on.view<const T, 4>(1),
                                                on.view<float, 3>(2), on.stream()),
           true;
  if (call.function == device_function<T>(kFlashDkDvCuda))
    return backward().flash_backward_dk_dv_cuda(pass(), delta()), true;
  if (call.function == device_function<T>(kFlashDqCuda))
    return backward().flash_backward_dq_cuda(pass(), delta()), true;
  if (call.function == device_function<T>(kFlashBackwardCuda))
    return backward().flash_attention_backward_cuda(pass()), true;
#endif
#ifdef FLASH_HAVE_DECODE
  if (call.function == device_function<T>(kFlashDecodeCuda)) {
    Decode<T> decode{on.view<const T, 4>(0),
                     on.view<const T, 4>(1),
                     on.view<const T, 4>(2),
                     on.view<const std::int32_t, 2>(3),
                     on.view<const std::int32_t, 1>(4),
                     on.view<T, 4>(5),
                     on.view<float, 3>(6),
                     options(call).scale};
    functions_of<FlashDecodeCudaTask>().of<T>().flash_decode_cuda(on_stream(decode, on));
    return true;
  }
#endif
  return false;
}

void run_on(const Message& call, const Views& on) {
#ifdef FLASH_HAVE_PART1
  if (call.function == kFusedSoftmaxMatmulCuda)
    return functions_of<FusedCudaTask>().fused_softmax_matmul_cuda(
        on_stream(softmax_matmul_pass(on), on), {call.integers[0], call.integers[1]});
  if (call.function == kSmallKernel)
    return functions_of<TenKernelsTask>().run_small_kernel(
        static_cast<int>(call.integers[0]), on.view<const float, 1>(0), on.view<float, 1>(1));
  if (call.function == kAttention1dCuda) {
    const auto input = [&](int n) { return on.view<const float, 1>(n); };
    return functions_of<Attention1dTask>().attention_1d_cuda(
        input(0), input(1), input(2), on.view<float, 1>(3), static_cast<int>(call.integers[0]),
        static_cast<int>(call.integers[1]), on.stream());
  }
#endif
  if (!run_attention<float>(call, on) && !run_attention<Half>(call, on) &&
      !run_attention<BFloat16>(call, on))
    throw Error("there is no such function on a device");
}

}  // namespace

void run_host_code(const Message& call, Message& done) {
  if (!say_what_there_is<float>(call, done) && !say_what_there_is<Half>(call, done) &&
      !say_what_there_is<BFloat16>(call, done))
    run_on(call, Views(call));
}

void run(const Message& call, void* memory, Message& done) {
  if (call.views == 0) return call_host_code(call, done);  // what there is
  const OnDevice on(call, memory);
  const std::size_t before = device::memory_in_use();
  device::reset_peak_memory();
  const auto kernels = static_cast<Kernels>(call.counted);
  device::reset_traffic(kernels == Kernels::kCounted);  // and what was found
  skip_kernels(kernels == Kernels::kSkipped);
  run_in_step(call.kept != 0);
  device::reset_host_calls();
  const auto measure = [&] {
    done.device_bytes = device::peak_memory() - before;
    done.kept = static_cast<std::int64_t>(device::memory_in_use() - before);
    if (const auto calls = device::host_calls(on.stream.get())) {  // of host code elsewhere, too
      done.integers[0] = 1, done.integers[1] = static_cast<std::int64_t>(calls->peak_bytes);
      done.device_bytes = calls->peak_bytes;
      done.kept = static_cast<std::int64_t>(calls->kept_bytes);
      done.integers[2] = static_cast<std::int64_t>(calls->blocks);
      done.integers[3] = static_cast<std::int64_t>(calls->threads);
    }
  };
  try {
    Message said{};
    call_host_code(on.for_host_code(), said);
  } catch (const KernelError&) {
    measure();
    on.count(done);
    if (const std::string cause = finding(); !cause.empty()) throw KernelError(cause);
    throw;
  }
  if (const auto calls = device::host_calls(on.stream.get())) {
    const auto first = [](const std::vector<std::string>& all) {
      return all.empty() ? std::string() : all[0];
    };
    set_text(done, first(calls->elsewhere) + "\n" + first(calls->waits) + "\n" +
                       calls->local_memory + "\n");
  }
  device::synchronize();
  measure();
  on.copy_back();
  on.count(done);
  done.numbers[0] = found_races_only(), done.numbers[1] = static_cast<double>(workspace_bytes());
  // A launch with a finding other than races has thrown; the student's code may have caught that.
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
