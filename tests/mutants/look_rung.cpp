// Launches what `./lab look --rung` shows, in a small problem:
//
//   PART_look NAME [causal]    the rung of that name
//   PART_look all              each rung, behind a kernel of its name, for `./lab counts`
//   PART_look NAME LIBRARY     in the same problem the kernel of part 1's or part 3's task
#include <iostream>
#include <string>

#include "common/all_passes.hpp"
#include "emulator/counts/mark.hpp"
#ifdef FLASH_HAVE_EMULATOR
#include "emulator/run/simt.hpp"
#endif
#include "mutants/launches.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"

namespace flash::mutants {
namespace {

// The names of a problem's tensors, and for the counts their shapes.
class Names {
 public:
  explicit Names(bool causal) : text_(causal ? "causal" : "") {}
  template <class T, int Rank>
  void add([[maybe_unused]] const char* name, [[maybe_unused]] const TensorView<T, Rank>& view) {
#ifdef FLASH_HAVE_EMULATOR
    simt::name_memory(view.data(), name);
    text_ += " " + std::string(name) + "=" + std::to_string(sizeof(T));
    for (int axis = 0; axis < 4; ++axis)
      text_ += "x" + std::to_string(axis < Rank ? view.extent(axis) : 1);
    for (int axis = 0; axis < 4; ++axis)
      text_ += "@" + std::to_string(axis < Rank ? view.stride(axis) : 0);
    simt::note_problem(text_);
#endif
  }

 private:
  std::string text_;
};

template <class Pass>
void name(const Pass& pass) {
  if constexpr (requires { pass.x; }) {
    Names names(false);
    names.add("x", pass.x), names.add("v", pass.v), names.add("out", pass.out);
  } else {
    bool causal = false;
    if constexpr (requires { pass.options.causal; }) causal = pass.options.causal;
    Names names(causal);
    names.add("q", pass.q), names.add("k", pass.k), names.add("v", pass.v);
    names.add("out", pass.out), names.add("lse", pass.lse);
    if constexpr (requires { pass.d_q; }) {
      names.add("d_out", pass.d_out), names.add("d_q", pass.d_q);
      names.add("d_k", pass.d_k), names.add("d_v", pass.d_v);
    }
  }
}

const std::vector<AttentionShape> kForward{
    {1, 1, 256, 512, 64}, {1, 1, 128, 128, 320}, {1, 1, 256, 512, 4}};
// `./lab counts` compares rungs in heads of 256 columns: for narrower ones, builds for a GPU have
// more tiles to choose from.
const std::vector<AttentionShape> kCounted{
    {1, 1, 128, 128, 256}, {1, 1, 256, 256, 64}, {1, 1, 128, 128, 320}, {1, 1, 256, 256, 4}},
    kBackward{{1, 1, 256, 256, 64}, {1, 1, 128, 128, 320}, {1, 1, 256, 256, 4}};

// Runs the entry on the first problem that it takes, or in its place a task's library.
template <class Entry>
class FirstTaken {
 public:
  FirstTaken(const Entry& entry, bool causal) : entry_(entry), causal_(causal) {}

  template <class Pass>
  void operator()(Pass pass) {
    for (const bool causal : {causal_, true}) {
      if constexpr (requires { pass.options.causal; }) pass.options.causal = causal;
      if (is_done_ || !entry_.why_not(problem_of(pass)).empty()) continue;
      is_done_ = true;
      name(pass);
      PassMemory memory;
      run_entry<DeviceTensor>(entry_, pass, memory);
    }
  }

 private:
  const Entry& entry_;
  bool causal_, is_done_ = false;
};

int look(const std::string& name, const std::string& how) {
  const Registry registry = all_passes();
  const bool all = name == "all", causal = how == "causal";
  const char* const library = causal || how.empty() ? nullptr : how.c_str();
  bool is_found = false;
  const auto wanted = [&](const auto& passes) {
    auto entries = passes.entries();
    std::erase_if(entries, [&](const auto& entry) {
      return entry.device != DeviceKind::kGpu || (!all && entry.name != name);
    });
    is_found |= !entries.empty();
    return entries;
  };
  const auto begin = [all](const auto& entry) {
    if (all) mark(entry.name);
  };
  for (const auto& entry : wanted(registry.softmax_matmul)) {
    begin(entry);
    softmax_matmul(
        [&](const auto& pass) {
          if (library != nullptr) {
            flash::mutants::name(pass);
            return load_task<FusedCudaTask>(library).fused_softmax_matmul_cuda(pass, {64, 64});
          }
          FirstTaken(entry, false)(pass);
        },
        {{1, 256, 128, 256}});
  }
  for (const auto& entry : wanted(registry.forward)) {
    begin(entry);
    if (library != nullptr) {
      forward<float>(
          [&](const auto& pass) {
            flash::mutants::name(pass);
            load_task<FlashForwardCudaTask>(library).of<float>().flash_attention_forward_cuda(pass,
                                                                                              {});
          },
          {kForward.front()});
      continue;
    }
    FirstTaken run(entry, causal);
    entry.run.float32 ? forward<float>(run, kForward) : forward<Half>(run, kForward);
  }
  for (const auto& entry : wanted(registry.backward)) {
    begin(entry);
    FirstTaken run(entry, causal);
    const auto call = [&run](const auto& pass) { run(pass); };
    for (const AttentionShape& shape : all&& entry.run.float32 ? kCounted : kBackward)
      entry.run.float32 ? backward<float>(call, shape) : backward<Half>(call, shape);
  }
  for (const auto& entry : wanted(registry.decode)) {
    begin(entry);
    decode<Half>(FirstTaken(entry, false), {1500, 40});
  }
  if (is_found) return 0;
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
