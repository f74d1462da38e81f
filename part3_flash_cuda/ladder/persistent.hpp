// What the rungs share whose thread blocks stay and draw their work: the numbers of a
// configuration, the queue and the launch.
#pragma once

#include <algorithm>

#include "part3_flash_cuda/ladder/choice.hpp"
#include "part3_flash_cuda/ladder/warpgroups.hpp"

namespace flash::persistent {

using namespace hopper;

// As hopper::Config, with kQBuffers tiles of Q.
template <int HeadDim, int BlockK, int Groups, int Stages, int QBuffers>
struct Config : hopper::Config<HeadDim, BlockK, Groups, Stages, 1> {
  using Base = hopper::Config<HeadDim, BlockK, Groups, Stages, 1>;
  static constexpr int kQBuffers = QBuffers;
  // Whether O has memory of its own, behind the tiles of Q; else it takes that of its Q.
  static constexpr bool kHasO =
      (HeadDim + 63) / 64 * 128 * (Base::kBlockQ * (QBuffers + 1) + 2 * Stages * BlockK) <
      226 << 10;

  static constexpr int kWorks = QBuffers + 1;  // loaded, computed, and sent

  template <class T>
  using QTile = typename Base::template QTile<T>;
  template <class T>
  using Tiles = mma::Tiles<QTile<T>[QBuffers + kHasO], typename Base::template KTile<T>, Stages>;
  static constexpr std::size_t kSharedBytes = sizeof(Tiles<Half>) + 1024;
};

constexpr int kNone = -1;  // in place of Work::some_see: no work is left

// The work of a pass. A block begins with number blockIdx.x; `next` counts what is drawn later.
// Without `next` block b of G gets b, b + G, b + 2 G.
struct WorkQueue {
  unsigned count;
  int section;
  unsigned* next;

  __device__ __forceinline__ unsigned draw(unsigned last) const {
    return gridDim.x + (next == nullptr ? last : atomicAdd(next, 1u));
  }

  // The step of some work behind which the next Q is loaded. Where work is not drawn, that is as
  // soon as there is memory for it: while all blocks load, a copy takes 4 us.
  template <class C>
  __device__ __forceinline__ int next_Q(int steps) const {
    constexpr int kFree = C::kStages - C::kHasO;
    return next == nullptr && C::kQBuffers > 1 && kFree < steps ? kFree : steps - 1;
  }

  template <class C, class T>
  __device__ __forceinline__ Work work(unsigned number, const Arguments<T>& a) const {
    if (number < count)
      return next == nullptr
                 ? work_in_rounds(a.shape, a.causal, C::kBlockQ, number)
                 : Work(a.shape, a.causal, C::kBlockQ, static_cast<int>(number), section);
    Work none;
    none.some_see = kNone;
    return none;
  }
};

// Short work does not hide the draw, which takes 0.7 us, and setting the counter to 0 takes as
// long. Without a mask no work is longer than another.
inline bool draws_work(const AttentionShape& shape, bool causal) {
  return shape.keys > (causal ? 512 : 1024);
}

// Launches kernel_of(config) with the first configuration of the table that fits.
template <class Table, class T, class KernelOf>
void run(const char* name, const AttentionForward<T>& pass, PassMemory& memory, Table table,
         choice::Kernel kernel, KernelOf kernel_of) {
  const AttentionShape shape = check_attention(pass);
  const choice::Choice chosen = choice::choose(shape, pass.options.causal);
  const auto fits = [&]<class C>(C config) {
    return shape.head_dim <= C::kHeadDim && has_room(config);
  };
  const auto start = [&]<class C>(C config) {
    const Index heads = shape.batch * shape.heads, count = count_work<C>(shape);
    // Sections of equal size: a last one of 4 heads, behind four of 63, cost up to 9 %.
    constexpr Index kInCache = 16 << 20;  // K and V of a section; the L2 cache of an H200 has 50 MB
    const Index fit = std::clamp<Index>(kInCache / (4 * shape.keys * shape.head_dim), 1, heads),
                sections = (heads + fit - 1) / fit, section = (heads + sections - 1) / sections;
    const bool draws = draws_work(shape, pass.options.causal);
    const auto next = draws ? static_cast<unsigned*>(memory.workspace) : nullptr;
    if (draws) device::fill_bytes(next, 0, sizeof *next, pass.stream);
    launch(name, kernel_of(config),
           launch_config(config, std::min<Index>(count, device::multiprocessors()), pass.stream),
           tensor_map(pass.q, C::kBlockQ), tensor_map(pass.k, C::kBlockK),
           tensor_map(pass.v, C::kBlockK), tensor_map(pass.out, 16), make_arguments(pass),
           WorkQueue{grid_size(count).x, static_cast<int>(section), next});
  };
  if (!choice::use_chosen(table, chosen, kernel, fits, start)) throw_no_room(shape.head_dim);
}

inline std::string why_not(const AttentionProblem& problem) {
  return problem.shape.keys == 0 ? "keys is 0; it must be at least 1" : hopper::why_not(problem);
}

template <class Forward>
void enter(Registry& registry, const char* name, std::string (*why_not)(const AttentionProblem&),
           choice::Kernel kernel, Forward forward) {
  registry.forward.add({.name = name,
                        .device = DeviceKind::kGpu,
                        .run = {.float16 = forward, .bfloat16 = forward},
                        .unsupported = why_not,
                        .workspace_bytes =
                            [](const AttentionProblem& problem) {
                              return draws_work(problem.shape, problem.options.causal)
                                         ? sizeof(unsigned)
                                         : 0;
                            },
                        .best_for = choice::is_best(kernel),
                        .finite_inputs = true});
}

}  // namespace flash::persistent
