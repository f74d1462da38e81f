// The registry's passes as an operator of PyTorch, with gradients, on tensors of the CPU and of a
// GPU:
//
//   torch.ops.load_library("build/default/lib/libflash_course_skeleton.so")
//   torch.ops.flash_course.attention(q, k, v, causal=True, forward="flash_best", backward="flash")
//   out, lse = torch.ops.flash_course.decode(q, k, v, block_table, lengths)  # on a GPU
//
// TORCH_LIBRARY is a static constructor, which is how PyTorch loads operators: the one in this
// project.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#if FLASH_TORCH_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "common/all_passes.hpp"
#include "common/best_pass.hpp"
#include "common/cpu/threads.hpp"

namespace flash {

namespace {

const Registry& registry() {
  static const Registry all = with_best(all_passes());
  return all;
}

// The same memory as a view of the registry's passes, of the type and rank that the place wants.
struct View {
  const at::Tensor& x;

  template <class T, int Rank>
  operator TensorView<T, Rank>() const {
    Shape<Rank> shape{}, strides{};
    std::copy_n(x.sizes().begin(), Rank, shape.begin());
    std::copy_n(x.strides().begin(), Rank, strides.begin());
    return {static_cast<T*>(const_cast<void*>(x.const_data_ptr())), shape, strides};
  }
};

std::string kind_of(const at::Tensor& x) {
  return std::string(c10::toString(x.scalar_type())) + " on " + x.device().str();
}

// What all passes are called with.
struct Arguments {
  const at::Tensor &q, &k, &v;
  AttentionOptions options;

  DeviceKind device() const { return q.is_cuda() ? DeviceKind::kGpu : DeviceKind::kCpu; }
  Stream stream() const {
#if FLASH_TORCH_CUDA
    if (q.is_cuda()) return {c10::cuda::getCurrentCUDAStream(q.device().index()).stream()};
#endif
    return {};
  }

  void check() const {
    for (const auto& [name, x] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
      if (x->dim() != 4)
        throw ShapeError(std::string(name) + " has " + std::to_string(x->dim()) +
                         " axes; it must have 4");
      if (x->scalar_type() != q.scalar_type() || x->device() != q.device())
        throw ArgumentError(std::string(name) + " is " + kind_of(*x) + "; it must be " +
                            kind_of(q) + ", as q is");
    }
  }
};

template <class EntryOfPass, class T>
void call(const EntryOfPass& named, const T& pass, const Arguments& arguments, PassMemory& memory) {
  const auto problem = problem_of(pass);
  const EntryOfPass& entry = chosen(named, problem);
  const auto bytes = static_cast<int64_t>(entry.workspace_of(problem));
  at::Tensor workspace;
  if (bytes > 0) workspace = at::empty({bytes}, arguments.q.options().dtype(at::kByte));
  memory.workspace = bytes > 0 ? workspace.data_ptr() : nullptr;
  entry.run.template of<typename T::Element>()(pass, memory);
  if (memory.deliver) std::exchange(memory.deliver, nullptr)();
}

// Calls body with a number of the tensors' type, within their device, with as many threads as
// PyTorch has; our errors become Python's.
template <class Body>
auto with_type(const Arguments& arguments, const Body& body) {
  try {
    arguments.check();
    const c10::OptionalDeviceGuard guard(arguments.q.device());
    if (arguments.device() == DeviceKind::kCpu) set_host_threads(at::get_num_threads());
    switch (arguments.q.scalar_type()) {
      case at::kFloat: return body(float{});
      case at::kDouble: return body(double{});
      case at::kHalf: return body(Half{});
      case at::kBFloat16: return body(BFloat16{});
      default:
        throw Unsupported(std::string("q is ") + c10::toString(arguments.q.scalar_type()) +
                          "; it must be Float, Double, Half or BFloat16");
    }
  } catch (const ArgumentError& error) {
    TORCH_CHECK_VALUE(false, error.what());
  } catch (const Unsupported& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, error.what());
  } catch (const NotYetImplemented& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, error.what());
  }
}

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// ---- The two passes, as operators without gradients ---------------------------------------------

// New tensors for the results, for torch.compile, where a size may be a symbol.
Pair out_and_lse(const at::Tensor& q) {
  const auto lse_type = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {at::empty_symint(q.sym_sizes(), q.options()),
          at::empty_symint(q.sym_sizes().slice(0, 3), q.options().dtype(lse_type))};
}

Pair forward_shapes(const at::Tensor& q, const at::Tensor&, const at::Tensor&, bool,
                    std::optional<double>, const std::string&, const std::string&) {
  return out_and_lse(q);
}

Triple backward_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor&, const at::Tensor&, const at::Tensor&, bool,
                       std::optional<double>, const std::string&, const std::string&) {
  return {at::empty_symint(q.sym_sizes(), q.options()),
          at::empty_symint(k.sym_sizes(), k.options()),
          at::empty_symint(v.sym_sizes(), v.options())};
}

template <class T>
void run_forward(const Entry<AttentionForward>& entry, const Arguments& arguments,
                 const at::Tensor& out, const at::Tensor& lse, PassMemory& memory) {
  const AttentionForward<T> pass{View{arguments.q}, View{arguments.k}, View{arguments.v}, View{out},
                                 View{lse},         arguments.options, arguments.stream()};
  check_attention(pass);
  call(entry, pass, arguments, memory);
}

Pair forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
             std::optional<double> scale, const std::string& forward, const std::string& backward) {
  const Arguments arguments{q, k, v, {causal, scale}};
  return with_type(arguments, [&](auto number) -> Pair {
    using T = decltype(number);
    const auto& entry = registry().forward.find(forward, arguments.device());
    check_pair(entry, registry().backward.find(backward, arguments.device()));
    const Pair results = out_and_lse(q);
    PassMemory memory;
    run_forward<T>(entry, arguments, std::get<0>(results), std::get<1>(results), memory);
    return results;
  });
}

Triple backward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const at::Tensor& out, const at::Tensor& lse, const at::Tensor& d_out, bool causal,
                std::optional<double> scale, const std::string& forward,
                const std::string& backward) {
  const Arguments arguments{q, k, v, {causal, scale}};
  return with_type(arguments, [&](auto number) -> Triple {
    using T = decltype(number);
    const auto& entry = registry().backward.find(backward, arguments.device());
    PassMemory memory;
    // What the forward pass of a pair keeps is no tensor that PyTorch could save: it runs again.
    if (entry.only_as_pair)
      run_forward<T>(registry().forward.find(forward, arguments.device()), arguments,
                     at::empty_like(out), at::empty_like(lse), memory);
    const Triple d = backward_shapes(q, k, v, out, lse, d_out, causal, scale, forward, backward);
    const auto& [d_q, d_k, d_v] = d;
    const AttentionBackward<T> pass{View{q},   View{k},           View{v},           View{out},
                                    View{lse}, View{d_out},       View{d_q},         View{d_k},
                                    View{d_v}, arguments.options, arguments.stream()};
    check_attention(pass);
    call(entry, pass, arguments, memory);
    return d;
  });
}

// ---- Decoding, without gradients ----------------------------------------------------------------

Pair decode_shapes(const at::Tensor& q, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                   const at::Tensor&, std::optional<double>, const std::string&) {
  return out_and_lse(q);
}

Pair decode(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
            const at::Tensor& block_table, const at::Tensor& lengths, std::optional<double> scale,
            const std::string& name) {
  const Arguments arguments{q, k, v, {}};
  return with_type(arguments, [&](auto number) -> Pair {
    using T = decltype(number);
    for (const auto& [of, x, axes] :
         {std::tuple{"block_table", &block_table, 2}, {"lengths", &lengths, 1}})
      if (x->dim() != axes || x->scalar_type() != at::kInt || x->device() != q.device())
        throw ArgumentError(std::string(of) + " is " + kind_of(*x) + ", with " +
                            std::to_string(x->dim()) + " axes; it must be Int on " +
                            q.device().str() + ", with " + std::to_string(axes));
    const Pair results = out_and_lse(q);
    const Decode<T> pass{View{q},
                         View{k},
                         View{v},
                         View{block_table},
                         View{lengths},
                         View{std::get<0>(results)},
                         View{std::get<1>(results)},
                         scale,
                         arguments.stream()};
    check_decode(pass);
    PassMemory memory;
    call(registry().decode.find(name, arguments.device()), pass, arguments, memory);
    return results;
  });
}

// ---- Attention with gradients -------------------------------------------------------------------

// causal, scale, and the names of the forward and of the backward pass.
using Options = std::tuple<bool, std::optional<double>, std::string, std::string>;

// Calls an operator by its name, so that torch.compile sees the call.
template <class Signature, class... Tensors>
auto call_operator(const char* name, const Options& options, const Tensors&... tensors) {
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
  return std::apply([&](const auto&... each) { return handle.call(tensors..., each...); }, options);
}

class Attention : public torch::autograd::Function<Attention> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* saved, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v, const Options& options) {
    const auto [out, lse] = call_operator<decltype(flash::forward)>(
        "flash_course::attention_forward", options, q, k, v);
    saved->save_for_backward({q, k, v, out, lse});
    saved->saved_data["options"] = options;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list d_outs) {
    const auto x = saved->get_saved_variables();
    // Gradients may come with strides of 0, which not every pass takes.
    const auto [d_q, d_k, d_v] = call_operator<decltype(flash::backward)>(
        "flash_course::attention_backward", saved->saved_data["options"].to<Options>(), x[0], x[1],
        x[2], x[3], x[4], d_outs[0].contiguous());
    return {d_q, d_k, d_v, {}};
  }
};

// Whether somebody may ask for a gradient, or PyTorch computes one forwards.
bool has_gradient(const at::Tensor& x) {
  return (x.requires_grad() && at::GradMode::is_enabled()) || x._fw_grad(/*level=*/0).defined();
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                     std::optional<double> scale, const std::string& forward,
                     const std::string& backward) {
  const Options options{causal, scale, forward, backward};
  if (has_gradient(q) || has_gradient(k) || has_gradient(v))
    return Attention::apply(q, k, v, options);
  const at::AutoDispatchBelowADInplaceOrView without_autograd;  // which takes 2 us
  return std::get<0>(
      call_operator<decltype(flash::forward)>("flash_course::attention_forward", options, q, k, v));
}

}  // namespace

TORCH_LIBRARY(flash_course, library) {
  library.def(
      "attention(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, "
      "str forward=\"flash_best\", str backward=\"flash_best\") -> Tensor",
      attention);  // of other operators: its shapes and gradients follow
  library.def("attention_forward", torch::dispatch(c10::DispatchKey::CPU, forward));
  library.def("attention_backward", torch::dispatch(c10::DispatchKey::CPU, backward));
  library.impl("attention_forward", torch::dispatch(c10::DispatchKey::CUDA, forward));
  library.impl("attention_backward", torch::dispatch(c10::DispatchKey::CUDA, backward));
  library.impl("attention_forward", torch::dispatch(c10::DispatchKey::Meta, forward_shapes));
  library.impl("attention_backward", torch::dispatch(c10::DispatchKey::Meta, backward_shapes));
  library.def(
      "decode(Tensor q, Tensor k, Tensor v, Tensor block_table, Tensor lengths, "
      "float? scale=None, str name=\"flash_best\") -> (Tensor out, Tensor lse)");
  library.impl("decode", torch::dispatch(c10::DispatchKey::CUDA, decode));
  library.impl("decode", torch::dispatch(c10::DispatchKey::Meta, decode_shapes));
  // A second derivative is an error, and each of decoding; without this PyTorch would return a
  // wrong one.
  for (const char* const name : {"attention_forward", "attention_backward", "decode"})
    library.impl(name, torch::dispatch(c10::DispatchKey::Autograd,
                                       torch::autograd::autogradNotImplementedFallback()));
}

}  // namespace flash
