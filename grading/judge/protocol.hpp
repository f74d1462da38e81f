// What the judge and the runner say to each other, over a socket that keeps messages apart.
//
// The judge (trusted) owns inputs, oracle, bounds and result. The runner holds the student's code.
// A call is: the judge puts all tensors of a call into fresh shared memory and sends kMap with it;
// the runner maps it and answers kMapped; the judge sends kCall; the runner answers kDone. A task
// whose function takes interfaces (a clock) sends kCallback in between and gets kCallbackResult.
// The judge believes nothing that the runner says: a message of another size or kind ends the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace flash::grading {

inline constexpr int kSocket = 3;  // the runner's end, a descriptor

enum class Kind : std::uint32_t {
  kReady,           // runner: it is about to load the student's library
  kMap,             // judge: with the descriptor of the memory
  kMapped,          // runner
  kCall,            // judge
  kCallback,        // runner: call `function` of the interface that the judge holds
  kCallbackResult,  // judge
  kDone,            // runner
};

// How a call or a callback ended: with this exception, or without one.
enum class Ended : std::uint32_t {
  kReturned,
  kNotYetImplemented,
  kShapeError,
  kArgumentError,
  kUnsupported,
  kOutOfMemory,
  kCudaError,
  kError,         // flash::Error
  kRuntimeError,  // std::runtime_error
  kOther,
};

// A view of a tensor in the shared memory.
struct Placed {
  std::uint64_t offset = 0;  // of the first element, in bytes
  std::int64_t shape[4] = {}, strides[4] = {};
};

inline constexpr int kMostViews = 9;
inline constexpr std::size_t kMostText = 1024;

// One struct for all messages: plain numbers, so that any bytes are a message to be checked.
struct Message {
  Kind kind{};
  std::uint32_t function = 0;
  Ended ended = Ended::kReturned;
  std::uint32_t views = 0;
  std::uint64_t bytes =
      0;  // to map, more than there are; of kDone: extra bytes by the runner's own meter
  Placed placed[kMostViews];
  std::int64_t integers[4] = {};
  double numbers[8] = {};
  char text[kMostText] = {};
};
static_assert(std::is_trivially_copyable_v<Message>);

// What a runner may be asked to call. Those of attention exist for float and for double.
enum Function : std::uint32_t {
  kFusedSoftmaxMatmul,
  kMeasure,
  kAttentionForward,
  kAttentionForwardDouble,
  kAttentionDelta,
  kAttentionDeltaDouble,
  kAttentionBackward,
  kAttentionBackwardDouble,
  kMeasureAttention,
};

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
  kCallbacks
};

}  // namespace flash::grading
