// What the judge and the runner say to each other, over a socket that keeps messages apart.
//
// The judge (trusted) owns inputs, oracle, bounds and result. The runner holds the student's code,
// which it loads when both have said kReady.
// A call is: the judge puts all tensors of a call into fresh shared memory and sends kMap with it;
// the runner maps it and answers kMapped; the judge sends kCall; the runner answers kDone. For a
// timed call on a GPU it is device memory (kMapDevice), which comes once for many calls. A task
// whose function takes interfaces (a clock) sends kCallback in between and gets kCallbackResult.
// The judge believes nothing that the runner says: a message of another size or kind ends the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/counted.hpp"
#include "common/half.hpp"

namespace flash::grading {

inline constexpr int kSocket = 3;  // the runner's end, a descriptor

// Bytes that are mapped behind the end of a call's memory: a touch is a crash.
inline constexpr std::size_t kBehind = 1 << 20;

enum class Kind : std::uint32_t {
  kReady,           // runner: its facts; judge: it may load the student's library
  kMap,             // judge: with the descriptor of the memory
  kMapped,          // runner
  kCall,            // judge
  kCallback,        // runner: call `function` of the interface that the judge holds
  kCallbackResult,  // judge
  kDone,            // runner
  kMapDevice,       // judge: like kMap, with a descriptor where the memory is a new one
  kWhere,  // runner, at any time: where a thread is that crashed, or that the judge has asked
};

// How a call or a callback ended: with this exception, or without one.
enum class Ended : std::uint32_t {
  kReturned,
  kNotYetImplemented,
  kNoOtherTask,
  kShapeError,
  kArgumentError,
  kUnsupported,
  kOutOfMemory,
  kCudaError,
  kKernelError,  // the emulator found a mistake in a kernel
  kError,        // flash::Error
  kOther,
};

// A view of a tensor in the shared memory. A call on a device gets for each view an allocation of
// device memory with the bytes from `begin` on.
struct Placed {
  std::uint64_t offset = 0;  // of the first element, in bytes
  std::int64_t shape[4] = {}, strides[4] = {};
  std::uint64_t element = 0;           // bytes of one
  std::uint64_t begin = 0, bytes = 0;  // the tensor with what lies around it
};

// Calls use(offset in bytes, how many) for all elements of a tensor, those that lie side by side at
// once.
template <class Use>
void for_each_run(const Placed& of, Use use) {
  const auto& strides = of.strides;
  const std::int64_t run = strides[3] == 1 ? of.shape[3] : 1;
  for (std::int64_t i = 0; i < of.shape[0]; ++i)
    for (std::int64_t j = 0; j < of.shape[1]; ++j)
      for (std::int64_t k = 0; k < of.shape[2]; ++k)
        for (std::int64_t l = 0; l < of.shape[3]; l += run)
          use(static_cast<std::size_t>(i * strides[0] + j * strides[1] + k * strides[2] +
                                       l * strides[3]) *
                  of.element,
              run);
}

// On which stream a call on a device runs.
enum class OnStream : std::uint32_t {
  kDefault,
  kOwn,   // one that does not wait for the default one
  kBusy,  // such a one, which has work to do before it writes the inputs
};

// What becomes of a call's kernels. The last two are for the emulator.
enum class Kernels : std::uint64_t {
  kRun,
  kCounted,  // what their warps do is counted
  kSkipped,  // only their launches are checked
};

inline constexpr int kMostViews = 10;
inline constexpr std::size_t kMostText = 1024;
inline constexpr std::string_view kInput = "const ";  // before the name of an input

// One struct for all messages: plain numbers, so that any bytes are a message to be checked.
struct Message {
  Kind kind{};
  std::uint32_t function = 0;
  Ended ended = Ended::kReturned;
  std::uint32_t views = 0;
  std::uint64_t bytes =
      0;  // to map, more than there are; of kDone: extra bytes by the runner's own meter
  Placed placed[kMostViews];
  // Of the call: which of the runner's libraries; and how many bytes the second half of the memory
  // lies behind the first, 0 where it follows it.
  std::uint32_t library = 0;
  OnStream stream = OnStream::kDefault;
  std::uint64_t apart = 0;
  std::int64_t integers[4] = {};
  // Of kDone, on the emulator: whether races are all that is wrong, and the results are there;
  // bytes that kernels wrote to device memory beside the tensors, or read back from outputs.
  double numbers[8] = {};
  // Of kDone: bytes that the call had not freed when it returned. After a call on a device: extra
  // device memory (of kMap: bytes at the beginning that are read only), what was moved of each
  // view.
  std::int64_t kept = 0;  // of kMap: whether threads go on in step
  std::uint64_t device_bytes = 0;
  // Whether the following were counted; of kMap: Kernels.
  std::uint64_t counted = 0;
  device::SharedAccesses shared;
  device::Work work;
  device::Traffic moved[kMostViews];
  char text[kMostText] = {};  // of kMap: the names of the tensors, one a line, kInput before some
};
static_assert(std::is_trivially_copyable_v<Message>);
static_assert(sizeof(Message) == 4 * 690);  // tests/tools/attacks.py forges messages of this size

// What a runner may be asked to call. Those of attention on the CPU exist for float, double, Half
// and BFloat16, one behind the other; those of attention on a device for float, Half and BFloat16.
enum Function : std::uint32_t {
  kFusedSoftmaxMatmul,
  kMeasure,
  kAttentionForward,
  kAttentionDelta = kAttentionForward + 4,
  kAttentionBackward = kAttentionDelta + 4,
  kMeasureAttention = kAttentionBackward + 4,
  kMeasureAll,
  kMeasureAllAttention,
  kFusedSoftmaxMatmulCuda,
  kAttention1dCuda,
  kSmallKernel,
  kFlashForwardCuda,
  kFlashDeltaCuda = kFlashForwardCuda + 3,
  kFlashDkDvCuda = kFlashDeltaCuda + 3,
  kFlashDqCuda = kFlashDkDvCuda + 3,
  kFlashBackwardCuda = kFlashDqCuda + 3,
  kFlashForwardConfigs = kFlashBackwardCuda + 3,
  kFlashBackwardBlocks = kFlashForwardConfigs + 3,
  kNothing = kFlashBackwardBlocks + 3,  // on a GPU a kernel that does nothing
  kListOfRuns,
  kListOfAttentionRuns,
  kMergeParts,
  kFlashDecodeCuda,
};

// The function of a device for elements of type T.
template <class T>
constexpr Function device_function(Function of_float) {
  constexpr unsigned kType = std::is_same_v<T, float> ? 0 : std::is_same_v<T, Half> ? 1 : 2;
  return static_cast<Function>(of_float + kType);
}

// What a runner says of itself before it loads a library (kReady).
struct Facts {
  std::string backend;     // "cpu", "gpu", "emulated" or "checked"
  bool has_device = true;  // false: it is for a GPU, and there is none
  bool is_sandboxed = false;
  bool is_sanitized = false;                         // AddressSanitizer is there
  std::uint64_t shared_memory = 0, free_memory = 0;  // of the device, in bytes

  bool counts_accesses() const { return backend == "checked"; }
  bool is_emulated() const { return backend == "emulated" || backend == "checked"; }
};
inline Message message_of(const Facts& facts) {
  Message message{};
  message.kind = Kind::kReady;
  std::snprintf(message.text, kMostText, "%s", facts.backend.c_str());
  message.integers[0] = facts.has_device;
  message.integers[1] = facts.is_sandboxed;
  message.integers[2] = facts.is_sanitized;
  message.bytes = facts.shared_memory;
  message.device_bytes = facts.free_memory;
  return message;
}
inline Facts facts_in(const Message& message) {
  return {
      message.text,  message.integers[0] != 0, message.integers[1] != 0, message.integers[2] != 0,
      message.bytes, message.device_bytes};
}

// Of kWhere: `bytes` is the address of a fault, `device_bytes` that of the call's memory, `counted`
// the thread, integers[0] where the library begins, integers[1] how large the thread's stack was
// whose end the fault is behind, integers[2] whether the processor gave no address (of x86-64: most
// often a vector that is not aligned), and the text the addresses behind the innermost calls.
inline constexpr std::size_t kMostCalls = kMostText / sizeof(std::uint64_t);

// What student code may call back, of the interfaces Work, AttentionWork and Clock.
enum Callback : std::uint32_t {
  kPrepare,
  kRun,
  kForward,
  kPrepareBackward,
  kBackward,
  kSavedBytes,
  kResetPeakMemory,
  kPeakMemoryBytes,
  kSynchronize,
  kNowMs,
  kConfiguration,  // of measure_all(): runs one, by its number, and gives its measurement
  kRow,            // and a row of the result, before kDone; of list_of_runs() a run
  kCallbacks
};

inline void set_text(Message& message, const std::string& text) {
  std::snprintf(message.text, kMostText, "%s", text.c_str());
}

// Takes the first line out of the text.
inline std::string first_line(Message& message) {
  const std::string text = message.text;
  const std::size_t end = text.find('\n');
  set_text(message, end == std::string::npos ? "" : text.substr(end + 1));
  return text.substr(0, end);
}

}  // namespace flash::grading
