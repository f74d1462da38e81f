// Problems of attention on a device, and one call of a pass on each: the graded cases of part 3 and
// of the bonus, which every rung of their ladders runs too.
//
//   ForwardCall<float> call(problem, seed);
//   flash_attention_forward_cuda(call.tensors.pass());
//   return call.verdict();
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/registry.hpp"
#include "harness/attention_data.hpp"
#include "harness/device_copy.hpp"
#include "harness/graded_case.hpp"
#include "harness/padded_pass.hpp"

namespace flash::harness {

struct DeviceCase {
  std::string name = {};
  AttentionShape shape;
  bool causal = false;
  Data data = Data::kNormal;
  DType type = DType::kFloat32;
  Layout layout = Layout::kRowMajor;
  std::optional<double> scale = std::nullopt;
  const char* nan_in = nullptr;  // "q", "k" or "d_out": a NaN in row `nan_row` of the first head
  Index nan_row = 0;
  bool without_weights = false;  // backward: lse of every third row is -inf
  Index shift = 0;       // of the tensors' first element behind an aligned address, in elements
  bool sampled = false;  // only the first, a middle and the last head are compared with the oracle
  std::optional<Tolerance> tolerance = std::nullopt;

  AttentionOptions options() const { return {.causal = causal, .scale = scale}; }
  std::string requirement() const;

  // The same problem of Half or BFloat16, whose name says so.
  DeviceCase of_type(DType other) const;
};

// What the course's sources ask of their kernels.
inline constexpr Tolerance kToleranceOfSources{1e-2, 0};

// Ragged shapes, masks and layouts, which both passes have to solve, added to `cases`.
void add_cases_of_both_passes(std::vector<DeviceCase>& cases);

// For GPUs only, since the emulator takes too long: the problems that the course's sources try
// their kernels on, at their tolerance beside ours, and more heads than a grid is tall or deep
// (65535).
std::vector<DeviceCase> long_cases_of_both_passes();

// use(T()) for the element type of a case.
template <class Use>
auto with_type(DType type, Use use) {
  if (type == DType::kFloat16) return use(Half());
  if (type == DType::kBFloat16) return use(BFloat16());
  return use(float());
}

// out and lse beside the oracle's; "" when they are right. `block`: how many queries belong
// together.
template <class T>
std::string wrong_outputs(const DeviceCase& problem, TensorView<const T, 4> q,
                          TensorView<const T, 4> k, TensorView<const T, 4> v,
                          TensorView<const T, 4> out, TensorView<const float, 3> lse,
                          Index block = 0);

// What a case asks of a backward pass: one gradient, or all of them.
enum class Wanted { kDV, kDK, kDQ, kAll };

// Gradients beside the oracle's. Of the pass the inputs and d_out count; out and lse are not looked
// at.
template <class T>
std::string wrong_gradients(const DeviceCase& problem, const AttentionBackward<T>& pass,
                            TensorView<const T, 4> d_q, TensorView<const T, 4> d_k,
                            TensorView<const T, 4> d_v, Wanted wanted = Wanted::kAll,
                            Index block = 0);

template <class T>
struct ForwardCall {
  DeviceCase problem;
  AttentionInputs<T> inputs;
  PaddedForward<T, DeviceCopy> tensors;

  ForwardCall(const DeviceCase& of, std::uint64_t seed, double fill = kPoisoned);

  // Waits for the call and judges all that it did. With `run_again`, which makes the call, the
  // verdict can be explained.
  Verdict verdict(Index block = 0, const std::function<void(ForwardCall&)>& run_again = {});

 private:
  SeenForward seen(Index block);

  std::uint64_t seed_;
};

// The inputs of a backward pass: out and lse come from the oracle, and so does delta, for those who
// ask.
template <class T>
struct BackwardInputs {
  AttentionInputs<T> qkv;
  Tensor<T, 4> d_out, out;
  Tensor<float, 3> lse, delta;

  BackwardInputs(const DeviceCase& problem, std::uint64_t seed);
};

template <class T>
struct BackwardCall {
  DeviceCase problem;
  BackwardInputs<T> inputs;
  PaddedBackward<T, DeviceCopy> tensors;
  PassTensor<float, 3, DeviceCopy> delta;

  BackwardCall(const DeviceCase& of, std::uint64_t seed, double fill = kPoisoned);

  Verdict verdict(Wanted wanted = Wanted::kAll, Index block = 0,
                  const std::function<void(const BackwardCall&)>& run_again = {});

 private:
  SeenBackward seen(Wanted wanted);

  std::uint64_t seed_;
};

// The most device memory that a call has beyond what there was before, in bytes.
template <class Run>
std::size_t extra_device_bytes(Run run) {
  device::synchronize();
  const std::size_t before = device::memory_in_use();
  device::reset_peak_memory();
  device::reset_host_calls();
  run();
  // The emulator also sees what device::allocate() did not give.
  const auto calls = device::host_calls();
  device::synchronize();
  return std::max(device::peak_memory() - before, calls ? calls->peak_bytes : 0);
}

// Whether run(stream) enqueues all that it does on the stream, and returns without a wait: on the
// emulator, which writes that down.
template <class Run>
Verdict enqueues_on_its_stream(Run run) {
  const device::IndependentStream stream;
  device::reset_host_calls();
  run(stream.get());
  const auto calls = device::host_calls(stream.get());
  if (calls && !calls->elsewhere.empty())
    return {false, "It enqueues " + calls->elsewhere[0] +
                       " on another stream than the one that it was given."};
  if (calls && !calls->waits.empty())
    return {false,
            "It calls " + calls->waits[0] +
                ", which waits for the device; the call has to return when all is enqueued."};
  return {true, ""};
}

// Whether far_apart.hpp has memory for kernels: the emulator without checks takes it.
inline bool has_sparse_memory() {
  return device::is_emulated() && in_process() && backend() != std::string("checked");
}

// What a kernel has to move of one tensor since device::reset_traffic(). Only the emulator's checks
// count.
struct ExpectedTraffic {
  const char* name;
  const void* memory;
  std::size_t most_loaded, stored;  // bytes
  std::string why = "";             // of most_loaded
};
// `what` is who moves it: "It", or "The pass for dQ". "" when nothing is wrong.
std::string wrong_traffic(const std::string& what, bool causal,
                          const std::vector<ExpectedTraffic>& expected);

}  // namespace flash::harness
