// Passes that go wrong, each in its own way, for the tests of what bench_attention makes of them.
// They compute by the oracle; "flash" is right.
#include "common/oracle.hpp"
#include "common/registry.hpp"

namespace flash {
namespace {

template <int Rank>
void copy(const Tensor<double, Rank>& from, TensorView<float, Rank> to) {
  for (Index i = 0; i < from.size(); ++i) to.data()[i] = static_cast<float>(from.data()[i]);
}

void forward(const AttentionForward<float>& pass) {
  const AttentionOracle right = attention_oracle(pass.q, pass.k, pass.v, pass.options);
  copy(right.out.value, pass.out);
  copy(right.lse, pass.lse);
}

void backward(const AttentionBackward<float>& pass) {
  const auto right = attention_backward_oracle(pass.q, pass.k, pass.v, pass.d_out, pass.options);
  copy(right.d_q.value, pass.d_q);
  copy(right.d_k.value, pass.d_k);
  copy(right.d_v.value, pass.d_v);
}

}  // namespace

FLASH_ENTER(registry, name) {
  using Forward = AttentionForward<float>;
  using Backward = AttentionBackward<float>;
  const auto add_forward = [&](const char* pass, PassFunction<Forward> run) {
    registry.forward.add({.name = pass, .run = {.float32 = std::move(run)}});
  };
  const auto add_backward = [&](const char* pass, PassFunction<Backward> run) {
    registry.backward.add({.name = pass, .run = {.float32 = std::move(run)}});
  };
  add_forward("flash", forward);
  add_backward("flash", backward);

  registry.forward.add(
      {.name = "refuses", .run = {.float32 = forward}, .unsupported = [](const AttentionProblem&) {
         return "head_dim is 8; it must be larger";
       }});
  add_forward("throws", [](const Forward&) { throw Error("something\nwent wrong"); });
  add_forward("wrong_out", [](const Forward& pass) {
    forward(pass);
    pass.out.data()[pass.out.size() - 1] += 0.01F;
  });
  add_forward("no_memory", [](const Forward&) { throw std::bad_alloc(); });
  add_backward("writes_nothing", [](const Backward&) {});
  add_backward("wrong_d_k", [](const Backward& pass) {
    backward(pass);
    pass.d_k.data()[0] *= 2;
  });
  add_backward("missing", [](const Backward&) { throw NotYetImplemented("part2.flash_backward"); });
  add_backward("no_memory_backward", [](const Backward&) { throw std::bad_alloc(); });

  // A pass with a workspace that makes its outputs itself, as PyTorch's kernels do.
  registry.forward.add(
      {.name = "own",
       .run = {.float32 =
                   [](const Forward& pass, PassMemory& memory) {
                     memory.deliver = [pass] { forward(pass); };
                     memory.own_peak_bytes = std::size_t{8} << 20;
                     memory.kept_bytes = std::size_t{4} << 20;
                   }},
       .workspace_bytes = [](const AttentionProblem&) { return std::size_t{1} << 20; }});
  add_backward("own", [](const Backward& pass, PassMemory& memory) {
    memory.deliver = [pass] { backward(pass); };
    memory.own_peak_bytes = std::size_t{2} << 20;
  });
}

}  // namespace flash
