// PyTorch's kernels as passes of the registry, called through ATen:
//
//   pytorch_unfused     softmax(X) V, on the CPU and on a GPU, as the others without a remark
//   pytorch_flash       FlashAttention
//   pytorch_efficient   memory-efficient attention, on a GPU
//   pytorch_cudnn       cuDNN's, on a GPU
//   pytorch_math        standard attention by matrix products; a pair through autograd
//   pytorch_sdpa        what scaled_dot_product_attention() chooses; a pair through autograd
//
// The inputs are a pass's own memory. PyTorch allocates its outputs; PassMemory::deliver copies
// them to the tensors of the pass, which is not timed.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>
#if FLASH_TORCH_CUDA
#include <c10/cuda/CUDAGuard.h>
#endif

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "common/cpu/threads.hpp"
#include "common/registry.hpp"

namespace flash {

namespace {

// ---- A pass in PyTorch's terms ------------------------------------------------------------------

struct Call {
  at::Tensor q, k, v, out, lse, d_out;  // out and lse are inputs of a backward pass only
  bool causal = false;
  std::optional<double> scale;
  PassMemory& memory;
};

// Returns {out, lse} or {d_q, d_k, d_v}; a tensor that is not defined is not delivered.
using Kernel = std::vector<at::Tensor>(const Call& call);

template <class T>
constexpr at::ScalarType kScalarType = c10::CppTypeToScalarType<T>::value;
template <>
constexpr at::ScalarType kScalarType<Half> = at::kHalf;
template <>
constexpr at::ScalarType kScalarType<BFloat16> = at::kBFloat16;

// The same memory.
template <class T, int Rank>
at::Tensor wrapped(const TensorView<T, Rank>& view, DeviceKind device) {
  using Number = std::remove_const_t<T>;
  const auto type = at::TensorOptions(kScalarType<Number>)
                        .device(device == DeviceKind::kCpu ? at::kCPU : at::kCUDA);
  return at::from_blob(const_cast<Number*>(view.data()), view.shape(), view.strides(), type);
}

// What PyTorch allocated on a kind of device since this was made, in all threads that work for this
// one. Its allocators report to the profiler, or to this where there is none.
struct AllocationMeter : c10::MemoryReportingInfoBase {
  explicit AllocationMeter(at::DeviceType type) : device_type(type) {}

  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, at::Device device) override {
    if (device.type() != device_type) return;
    const int64_t in_use = now += bytes;
    int64_t most = peak;
    while (most < in_use && !peak.compare_exchange_weak(most, in_use)) {
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  const at::DeviceType device_type;
  std::atomic<int64_t> now{0}, peak{0};
};

// PyTorch gets as many threads as our own passes.
void set_threads() {
  if (host_threads() != at::get_num_threads()) at::set_num_threads(host_threads());
}

// Within this, PyTorch's work goes to a stream.
struct OnStream {
#if FLASH_TORCH_CUDA
  c10::cuda::OptionalCUDAStreamGuard guard;
#endif
  OnStream(DeviceKind device, [[maybe_unused]] Stream stream) {
    if (device == DeviceKind::kCpu) set_threads();
#if FLASH_TORCH_CUDA
    if (device == DeviceKind::kCpu) return;
    at::globalContext().lazyInitDevice(at::kCUDA);
    guard.reset_stream(c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream.handle),
                                                        c10::cuda::current_device()));
#endif
  }
};

// Calls compute(), which returns what goes to `outputs` later. A pass that `keeps` may leave
// something for a backward pass.
template <class Compute>
void run_metered(DeviceKind device, Stream stream, PassMemory& memory, bool keeps,
                 const std::vector<at::Tensor>& outputs, Compute compute) {
  const auto meter =
      std::make_shared<AllocationMeter>(device == DeviceKind::kCpu ? at::kCPU : at::kCUDA);
  std::optional<c10::DebugInfoGuard> metered;
  const auto kind = c10::DebugInfoKind::PROFILER_STATE;
  if (c10::ThreadLocalDebugInfo::get(kind) == nullptr) metered.emplace(kind, meter);
  const std::vector<at::Tensor> results = compute();
  memory.own_peak_bytes = static_cast<std::size_t>(meter->peak);
  if (keeps && memory.kept) memory.kept_bytes = static_cast<std::size_t>(meter->now);
  memory.deliver = [=] {
    const OnStream same_stream(device, stream);
    const c10::NoGradGuard copies_only;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (results[i].defined()) outputs[i].copy_(results[i]);
  };
}

void unfused(DeviceKind device, const SoftmaxMatmul<float>& pass, PassMemory& memory) {
  (void)check_softmax_matmul(pass);
  const OnStream on_stream(device, pass.stream);
  const c10::NoGradGuard no_grad;
  run_metered(device, pass.stream, memory, false, {wrapped(pass.out, device)}, [&] {
    return std::vector<at::Tensor>{
        at::matmul(at::softmax(wrapped(pass.x, device), -1), wrapped(pass.v, device))};
  });
}

template <class Pass>
void run(Kernel* kernel, DeviceKind device, const Pass& pass, PassMemory& memory) {
  check_attention(pass);
  const OnStream on_stream(device, pass.stream);
  // Within an operator of PyTorch autograd is off; the pairs need it.
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  const c10::impl::ForceDispatchKeyGuard autograd(
      keys.included_, keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const c10::NoGradGuard no_grad;

  const auto wrap = [&](const auto& view) { return wrapped(view, device); };
  Call call{.q = wrap(pass.q),
            .k = wrap(pass.k),
            .v = wrap(pass.v),
            .out = wrap(pass.out),
            .lse = wrap(pass.lse),
            .d_out = {},
            .causal = pass.options.causal,
            .scale = attention_scale(pass.options, pass.shape().head_dim),
            .memory = memory};
  std::vector<at::Tensor> outputs{call.out, call.lse};
  constexpr bool kIsBackward = requires { pass.d_q; };
  if constexpr (kIsBackward) {
    call.d_out = wrap(pass.d_out);
    outputs = {wrap(pass.d_q), wrap(pass.d_k), wrap(pass.d_v)};
  }

  run_metered(device, pass.stream, memory, !kIsBackward, outputs, [&] { return kernel(call); });
}

// ---- The kernels --------------------------------------------------------------------------------

std::vector<at::Tensor> flash_cpu_forward(const Call& call) {
  const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      call.q, call.k, call.v, /*dropout_p=*/0, call.causal, /*attn_mask=*/{}, call.scale);
  return {out, lse};
}

std::vector<at::Tensor> flash_cpu_backward(const Call& call) {
  const auto [d_q, d_k, d_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      call.d_out, call.q, call.k, call.v, call.out, call.lse, /*dropout_p=*/0, call.causal,
      /*attn_mask=*/{}, call.scale);
  return {d_q, d_k, d_v};
}

// A pair through autograd keeps its graph: the tensors that it made from q, k and v, and out.
struct Graph {
  at::Tensor q, k, v, out;
};

at::Tensor math(const Graph& x, const Call& call) {
  return std::get<0>(at::_scaled_dot_product_attention_math(x.q, x.k, x.v, /*attn_mask=*/{},
                                                            /*dropout_p=*/0, call.causal,
                                                            /*dropout_mask=*/{}, call.scale));
}

at::Tensor sdpa(const Graph& x, const Call& call) {
  return at::scaled_dot_product_attention(x.q, x.k, x.v, /*attn_mask=*/{}, /*dropout_p=*/0,
                                          call.causal, call.scale);
}

template <auto kFunction>
std::vector<at::Tensor> pair_forward(const Call& call) {
  const c10::AutoGradMode grad(true);
  const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(); };
  const auto graph = std::make_shared<Graph>(Graph{leaf(call.q), leaf(call.k), leaf(call.v), {}});
  graph->out = kFunction(*graph, call);
  call.memory.kept = graph;
  return {graph->out.detach(), {}};
}

std::vector<at::Tensor> pair_backward(const Call& call) {
  const auto& graph = *static_cast<const Graph*>(call.memory.kept.get());
  return torch::autograd::grad({graph.out}, {graph.q, graph.k, graph.v}, {call.d_out},
                               /*retain_graph=*/true);
}

#if FLASH_TORCH_CUDA
// The state of the random numbers for dropout, of which there is none (dropout_p = 0 everywhere).
at::Tensor no_philox(const Call& call) { return at::empty({}, call.q.options().dtype(at::kLong)); }

std::vector<at::Tensor> flash_gpu_forward(const Call& call) {
  const auto results =
      at::_scaled_dot_product_flash_attention(call.q, call.k, call.v, /*dropout_p=*/0, call.causal,
                                              /*return_debug_mask=*/false, call.scale);
  return {std::get<0>(results), std::get<1>(results)};
}

std::vector<at::Tensor> flash_gpu_backward(const Call& call) {
  const auto [d_q, d_k, d_v] = at::_scaled_dot_product_flash_attention_backward(
      call.d_out, call.q, call.k, call.v, call.out, call.lse, /*cum_seq_q=*/{}, /*cum_seq_k=*/{},
      call.q.size(2), call.k.size(2), /*dropout_p=*/0, call.causal, no_philox(call),
      no_philox(call), call.scale);
  return {d_q, d_k, d_v};
}

std::vector<at::Tensor> efficient_forward(const Call& call) {
  const auto results = at::_scaled_dot_product_efficient_attention(
      call.q, call.k, call.v, /*attn_bias=*/{}, /*compute_log_sumexp=*/true, /*dropout_p=*/0,
      call.causal, call.scale);
  return {std::get<0>(results), std::get<1>(results).narrow(2, 0, call.q.size(2))};
}

std::vector<at::Tensor> efficient_backward(const Call& call) {
  // It wants an lse for a multiple of 32 queries. Padding is timed, and moves 8 bytes a query,
  // where the pass itself moves at least 16 * head_dim.
  const int64_t padding = (32 - call.lse.size(2) % 32) % 32;
  const at::Tensor lse =
      padding == 0
          ? call.lse
          : at::constant_pad_nd(call.lse, {0, padding}, std::numeric_limits<double>::infinity());
  const auto [d_q, d_k, d_v, d_bias] = at::_scaled_dot_product_efficient_attention_backward(
      call.d_out, call.q, call.k, call.v, /*attn_bias=*/{}, call.out, lse, no_philox(call),
      no_philox(call), /*dropout_p=*/0, {true, true, true, false}, call.causal, call.scale);
  return {d_q, d_k, d_v};
}

// cuDNN's backward pass wants what its forward pass made.
using CudnnResults = decltype(at::_scaled_dot_product_cudnn_attention({}, {}, {}, {}, true));

std::vector<at::Tensor> cudnn_forward(const Call& call) {
  const auto kept = std::make_shared<CudnnResults>(at::_scaled_dot_product_cudnn_attention(
      call.q, call.k, call.v, /*attn_bias=*/{}, /*compute_log_sumexp=*/true, /*dropout_p=*/0,
      call.causal, /*return_debug_mask=*/false, call.scale));
  const at::Tensor &out = std::get<0>(*kept), &lse = std::get<1>(*kept);
  call.memory.kept = kept;
  return {out, lse.view(call.q.sizes().slice(0, 3))};
}

std::vector<at::Tensor> cudnn_backward(const Call& call) {
  const auto& [out, lse, cum_q, cum_k, max_q, max_k, seed, offset, mask] =
      *static_cast<const CudnnResults*>(call.memory.kept.get());
  const auto [d_q, d_k, d_v] = at::_scaled_dot_product_cudnn_attention_backward(
      call.d_out, call.q, call.k, call.v, out, lse, seed, offset, /*attn_bias=*/{}, cum_q, cum_k,
      max_q.expect_int(), max_k.expect_int(), /*dropout_p=*/0, call.causal, call.scale);
  return {d_q, d_k, d_v};
}
#endif

// ---- What they take -----------------------------------------------------------------------------

using Predicate = std::string(const AttentionProblem&);

std::string is_but(const std::string& what, Index value, const std::string& wanted) {
  return what + " is " + std::to_string(value) + "; PyTorch's kernel needs " + wanted;
}

// Without keys PyTorch ends the process on the CPU (2.11), by a division by 0.
std::string needs_keys(const AttentionProblem& problem) {
  return problem.shape.keys == 0 ? is_but("keys", 0, "at least 1") : "";
}

// The kernels take the elements of a row to lie side by side: other strides give wrong results.
std::string needs_rows(const AttentionProblem& problem) {
  for (const auto& [name, strides, alignment] : problem.tensors)
    if (strides.back() != 1) return is_but(name + "'s stride along head_dim", strides.back(), "1");
  return needs_keys(problem);
}

#if FLASH_TORCH_CUDA
// On a GPU they read 16 bytes at a time, and lse without gaps.
std::string needs_vectors(const AttentionProblem& problem) {
  if (const std::string why = needs_rows(problem); !why.empty()) return why;
  const Index vector = problem.dtype == DType::kFloat32 ? 4 : 8;
  const AttentionShape& shape = problem.shape;
  if (shape.head_dim % vector != 0)
    return is_but("head_dim", shape.head_dim, "a multiple of " + std::to_string(vector));
  for (const auto& [name, strides, alignment] : problem.tensors) {
    if (name == "lse" &&
        strides != std::vector<Index>{shape.heads * shape.queries, shape.queries, 1})
      return "lse is not row-major; PyTorch's kernel needs it to be";
    if (name == "lse") continue;
    if (alignment < 16)
      return is_but(name + "'s alignment in bytes", static_cast<Index>(alignment), "16");
    for (int axis = 0; axis < 3; ++axis)
      if (strides[axis] % vector != 0)
        return is_but("a stride of " + name, strides[axis],
                      "a multiple of " + std::to_string(vector));
  }
  return "";
}

std::string up_to_256(const AttentionProblem& problem) {
  if (const std::string why = needs_vectors(problem); !why.empty()) return why;
  return problem.shape.head_dim > 256 ? is_but("head_dim", problem.shape.head_dim, "at most 256")
                                      : "";
}

// On an H200, PyTorch 2.11's gradients in 16 bits were wrong for other numbers of queries.
std::string takes_efficient(const AttentionProblem& problem) {
  if (problem.dtype != DType::kFloat32 && problem.shape.queries % 32 != 0)
    return is_but("queries", problem.shape.queries, "a multiple of 32 in 16 bits");
  return needs_vectors(problem);
}

// Its causal mask is aligned to the last query and the last key.
std::string takes_flash_gpu(const AttentionProblem& problem) {
  const AttentionShape& shape = problem.shape;
  if (problem.options.causal && shape.queries != shape.keys)
    return "the mask is causal, with " + std::to_string(shape.queries) + " queries and " +
           std::to_string(shape.keys) + " keys; PyTorch's flash attention needs as many of both";
  return up_to_256(problem);
}

// head_dim above 128: on Hopper alone, or cuDNN finds no kernel and says so.
std::string takes_cudnn(const AttentionProblem& problem) {
  return problem.shape.keys == 1 ? is_but("keys", 1, "at least 2") : up_to_256(problem);
}
#endif

#if FLASH_TORCH_CUDA
// ---- Decoding -----------------------------------------------------------------------------------

// These kernels know neither pages nor lengths: page b has to be all of sequence b. The host cannot
// see whether it is, so these passes are for the benchmark, which compares their results.
std::string takes_whole_sequences(const DecodeProblem& problem) {
  const DecodeShape& shape = problem.shape;
  if (shape.table_pages != 1 || shape.pages != shape.batch)
    return is_but("table_pages", shape.table_pages, "1, each page being a whole sequence");
  return shape.queries != 1 ? is_but("queries", shape.queries, "1")
                            : why_not_in_chunks(problem, 16);
}

template <class T>
void decode(Kernel* kernel, const Decode<T>& pass, PassMemory& memory) {
  const DecodeShape shape = check_decode(pass);
  constexpr auto kGpu = DeviceKind::kGpu;
  const OnStream on_stream(kGpu, pass.stream);
  const c10::NoGradGuard no_grad;
  const auto wrap = [&](const auto& view) { return wrapped(view, kGpu); };
  const Call call{.q = wrap(pass.q),
                  .k = wrap(pass.k).transpose(1, 2),
                  .v = wrap(pass.v).transpose(1, 2),
                  .out = {},
                  .lse = {},
                  .d_out = {},
                  .scale = attention_scale({.scale = pass.scale}, shape.head_dim),
                  .memory = memory};
  run_metered(kGpu, pass.stream, memory, false, {wrap(pass.out), wrap(pass.lse)},
              [&] { return kernel(call); });
}
#endif

// ---- Entries ------------------------------------------------------------------------------------

enum Types { kHalfs = 1, kFloat = 2, kDouble = 4, kAll = 7 };

template <template <class> class Pass>
void add(PassList<Pass>& passes, const char* name, DeviceKind device, int types, Kernel* kernel,
         Predicate* why_not, bool only_as_pair) {
  const auto function = [=](const auto& pass, PassMemory& memory) {
    run(kernel, device, pass, memory);
  };
  Entry<Pass> entry{.name = name,
                    .device = device,
                    .run = {},
                    .unsupported = why_not,
                    .only_as_pair = only_as_pair};
  if (types & kFloat) entry.run.float32 = function;
  if (types & kDouble) entry.run.float64 = function;
  if (types & kHalfs) entry.run.float16 = function;
  if (types & kHalfs) entry.run.bfloat16 = function;
  passes.add(std::move(entry));
}

}  // namespace

FLASH_ENTER(registry, name) {
  enum class Pairs { kAny, kOwnForwardOnly, kOwnOnly };
  const auto add_both = [&](const char* entered, DeviceKind device, int types, Kernel* forward,
                            Kernel* backward, Predicate* why_not, Pairs pairs = Pairs::kAny) {
    add(registry.forward, entered, device, types, forward, why_not, pairs == Pairs::kOwnOnly);
    add(registry.backward, entered, device, types, backward, why_not, pairs != Pairs::kAny);
  };
  const auto add_everywhere = [&](DeviceKind device) {
    registry.softmax_matmul.add(
        {.name = "pytorch_unfused",
         .device = device,
         .run = {.float32 = [device](const SoftmaxMatmul<float>& pass, PassMemory& memory) {
           unfused(device, pass, memory);
         }}});
    add_both("pytorch_math", device, kAll, pair_forward<math>, pair_backward, needs_keys,
             Pairs::kOwnOnly);
    add_both("pytorch_sdpa", device, kAll, pair_forward<sdpa>, pair_backward, needs_keys,
             Pairs::kOwnOnly);
  };
  add_both("pytorch_flash", DeviceKind::kCpu, kAll, flash_cpu_forward, flash_cpu_backward,
           needs_rows);
  add_everywhere(DeviceKind::kCpu);
#if FLASH_TORCH_CUDA
  constexpr auto kGpu = DeviceKind::kGpu;
  add_both("pytorch_flash", kGpu, kHalfs, flash_gpu_forward, flash_gpu_backward, takes_flash_gpu);
  add_both("pytorch_efficient", kGpu, kHalfs | kFloat, efficient_forward, efficient_backward,
           takes_efficient);
  add_both("pytorch_cudnn", kGpu, kHalfs, cudnn_forward, cudnn_backward, takes_cudnn,
           Pairs::kOwnForwardOnly);
  add_everywhere(kGpu);
  for (const auto& [entered, kernel] :
       {std::pair<const char*, Kernel*>{"pytorch_flash", flash_gpu_forward},
        {"pytorch_cudnn", cudnn_forward}}) {
    const auto run = [kernel = kernel](const auto& pass, PassMemory& memory) {
      decode(kernel, pass, memory);
    };
    registry.decode.add({.name = entered,
                         .device = kGpu,
                         .run = {.float16 = run, .bfloat16 = run},
                         .unsupported = takes_whole_sequences});
  }
#endif
}

}  // namespace flash
