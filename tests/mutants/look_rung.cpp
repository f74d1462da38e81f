// Launches what `./lab look --rung` shows, in a small problem:
//
//   PART_look NAME [causal]    the rung of that name
//   PART_look NAME LIBRARY     in the same problem the kernel of part 1's or part 3's task
#include <iostream>
#include <string>

#include "common/all_passes.hpp"
#include "emulator/run/simt.hpp"
#include "mutants/launches.hpp"
#if __has_include("part1_softmax_matmul/softmax_matmul.hpp")  // a release may lack a part
#include "part1_softmax_matmul/softmax_matmul.hpp"
#define FLASH_HAVE_PART1
#endif
#if __has_include("part3_flash_cuda/flash_attention_cuda.hpp")
#include "part3_flash_cuda/flash_attention_cuda.hpp"
#define FLASH_HAVE_PART3
#endif

namespace flash::mutants {
namespace {

// The names of a problem's tensors, and for the counts their shapes.
class Names {
 public:
  explicit Names(bool causal) : text_(causal ? "causal" : "") {}
  template <class T, int Rank>
  void add(const char* name, const TensorView<T, Rank>& view) {
    simt::name_memory(view.data(), name);
    text_ += " " + std::string(name) + "=" + std::to_string(sizeof(T));
    for (int axis = 0; axis < 4; ++axis)
      text_ += "x" + std::to_string(axis < Rank ? view.extent(axis) : 1);
    for (int axis = 0; axis < 4; ++axis)
      text_ += "@" + std::to_string(axis < Rank ? view.stride(axis) : 0);
    simt::note_problem(text_);
  }

 private:
  std::string text_;
};

template <class Pass>
void name_attention(const Pass& pass) {
  Names names(pass.options.causal);
  names.add("q", pass.q), names.add("k", pass.k), names.add("v", pass.v);
  names.add("out", pass.out), names.add("lse", pass.lse);
  if constexpr (requires { pass.d_q; }) {
    names.add("d_out", pass.d_out), names.add("d_q", pass.d_q);
    names.add("d_k", pass.d_k), names.add("d_v", pass.d_v);
  }
}

template <class Entry, class Pass>
void run(const Entry& entry, const Pass& pass) {
  PassMemory memory;
  run_entry<DeviceTensor>(entry, pass, memory);
}

int look(const std::string& name, const std::string& how) {
  const Registry registry = all_passes();
  const auto is_wanted = [&](const auto& entry) {
    return entry.name == name && entry.device == DeviceKind::kGpu;
  };
  const bool causal = how == "causal";
  const char* const library = causal || how.empty() ? nullptr : how.c_str();
  for (const auto& entry : registry.softmax_matmul.entries())
    if (is_wanted(entry)) {
      softmax_matmul(
          [&](const auto& pass) {
            Names names(false);
            names.add("x", pass.x), names.add("v", pass.v), names.add("out", pass.out);
#ifdef FLASH_HAVE_PART1
            if (library != nullptr)
              return load_task<FusedCudaTask>(library).fused_softmax_matmul_cuda(pass, {64, 64});
#endif
            run(entry, pass);
          },
          {{1, 256, 128, 256}});
      return 0;
    }
  for (const auto& entry : registry.forward.entries())
    if (is_wanted(entry)) {
      const auto call = [&](auto pass) {
        pass.options.causal = causal;
        name_attention(pass);
#ifdef FLASH_HAVE_PART3
        if constexpr (std::is_same_v<decltype(pass), AttentionForward<float>>)
          if (library != nullptr)
            return load_task<FlashForwardCudaTask>(library)
                .of<float>()
                .flash_attention_forward_cuda(pass, {});
#endif
        run(entry, pass);
      };
      const std::vector<AttentionShape> shapes{{1, 1, 256, 512, 64}};
      entry.run.float32 || library != nullptr ? forward<float>(call, shapes)
                                              : forward<Half>(call, shapes);
      return 0;
    }
  for (const auto& entry : registry.backward.entries())
    if (is_wanted(entry)) {
      const auto call = [&](auto pass) {
        pass.options.causal = causal;
        name_attention(pass);
        run(entry, pass);
      };
      const AttentionShape shape{1, 1, 256, 256, 64};
      entry.run.float32 ? backward<float>(call, shape) : backward<Half>(call, shape);
      return 0;
    }
  for (const auto& entry : registry.decode.entries())
    if (is_wanted(entry)) {
      decode<Half>(
          [&](const auto& pass) {
            Names names(false);
            names.add("q", pass.q), names.add("k", pass.k), names.add("v", pass.v);
            names.add("out", pass.out), names.add("lse", pass.lse);
            run(entry, pass);
          },
          {1100, 40});
      return 0;
    }
  std::cerr << "there is no rung " << name << " on a GPU; there are:";
  const auto list = [](const auto& passes) {
    for (const auto& entry : passes.entries())
      if (entry.device == DeviceKind::kGpu) std::cerr << ' ' << entry.name;
  };
  list(registry.softmax_matmul), list(registry.forward), list(registry.backward),
      list(registry.decode);
  std::cerr << '\n';
  return 1;
}

}  // namespace
}  // namespace flash::mutants

int main(int argc, char** argv) {
  try {
    return flash::mutants::look(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
