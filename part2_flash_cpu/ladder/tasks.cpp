// Implements tasks.hpp, and release_kept_memory() of ladder.hpp: cuts the work into tasks, and
// hands each its rows and its memory.
#include "part2_flash_cpu/ladder/tasks.hpp"

#include <algorithm>

#include "common/cpu/threads.hpp"
#include "common/half.hpp"
#include "part2_flash_cpu/ladder/kept_memory.hpp"
#include "part2_flash_cpu/ladder/ladder.hpp"

namespace flash {
namespace {

constexpr Index kRowsOfATask = 256;  // where a task only passes over rows

// A tensor whose rows are contiguous numbers that the kernels compute in: the caller's, or where
// they are not, a copy. Writing, it is copied back when this ends.
template <class Element>
class Rows {
  using Value = std::remove_const_t<Element>;
  using Number = LseType<Value>;
  using T = std::conditional_t<std::is_const_v<Element>, const Number, Number>;

 public:
  explicit Rows(TensorView<Element, 4> view) : view_(view) {
    if constexpr (std::is_same_v<Element, T>) {
      rows_ = view;
      if (view.stride(3) == 1 || view.extent(3) == 1) return;
    }
    copy_ = Tensor<Number, 4>(view.shape());
    rows_ = copy_.view();
    if constexpr (std::is_const_v<Element>) copy(view_, copy_.view());
  }
  ~Rows() {
    if constexpr (!std::is_const_v<Element>)
      if (copy_.size() > 0) copy(TensorView<const Number, 4>(copy_.view()), view_);
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  HeadRows<T> head(Index b, Index h) const {
    return {rows_.data() + b * rows_.stride(0) + h * rows_.stride(1),
            static_cast<std::ptrdiff_t>(rows_.stride(2))};
  }

 private:
  template <class From, class To>
  static void copy(TensorView<const From, 4> from, TensorView<To, 4> to) {
    parallel_for(from.extent(0) * from.extent(1), [&](Index head) {
      const Index b = head / from.extent(1), h = head % from.extent(1);
      for (Index i = 0; i < from.extent(2); ++i)
        for (Index c = 0; c < from.extent(3); ++c)
          to(b, h, i, c) = static_cast<To>(from(b, h, i, c));
    });
  }

  TensorView<Element, 4> view_;
  TensorView<T, 4> rows_;
  Tensor<Number, 4> copy_;
};

Index ceil_div(Index x, Index by) { return (x + by - 1) / by; }

// In elements, whole cache lines.
template <class T>
Index in_lines(Index elements) {
  constexpr Index kLine = 64 / sizeof(T);
  return ceil_div(elements, kLine) * kLine;
}

// What the tasks of a thread work in, and what the thread that makes a call has for all of its
// tasks.
thread_local KeptMemory task_memory, call_memory;

}  // namespace

void release_kept_memory() {
  stop_threads();  // and with them goes what they keep
  task_memory.release();
  call_memory.release();
}

template <class Element>
void forward_in_tasks(const AttentionForward<Element>& pass,
                      const Kernels<LseType<Element>>& kernels, const ForwardPlan& plan) {
  using T = LseType<Element>;
  const AttentionShape shape = check_attention(pass);
  const bool causal = pass.options.causal;
  const double scale = attention_scale(pass.options, shape.head_dim);
  const Rows<const Element> q_rows(pass.q), k_rows(pass.k), v_rows(pass.v);
  const Rows<Element> out_rows(pass.out);
  const auto& lse = pass.lse;

  const Index block_queries = plan.query_panels * kernels.panel,
              blocks = ceil_div(shape.queries, block_queries);
  const Index heads = shape.batch * shape.heads;
  const Index scratch = kernels.forward_scratch(block_queries, plan.block_keys, shape.head_dim);
  parallel_for(heads * blocks, [&](Index task) {
    // All heads' last blocks before anybody's last but one; else head by head, whose keys then stay
    // in the cache.
    const Index block = plan.last_first ? blocks - 1 - task / heads : task % blocks;
    const Index head = plan.last_first ? task % heads : task / blocks;
    const Index b = head / shape.heads, h = head % shape.heads;
    kernels.forward({.q = q_rows.head(b, h),
                     .k = k_rows.head(b, h),
                     .v = v_rows.head(b, h),
                     .out = out_rows.head(b, h),
                     .lse = lse.data() + b * lse.stride(0) + h * lse.stride(1),
                     .lse_step = static_cast<std::ptrdiff_t>(lse.stride(2)),
                     .first_query = block * block_queries,
                     .last_query = std::min(shape.queries, (block + 1) * block_queries),
                     .keys = shape.keys,
                     .head_dim = shape.head_dim,
                     .block_keys = plan.block_keys,
                     .causal = causal,
                     .scale = scale,
                     .scratch = task_memory.get<T>(scratch)});
  });
}

template <class Element>
void backward_in_tasks(const AttentionBackward<Element>& pass,
                       const Kernels<LseType<Element>>& kernels, const BackwardPlan& plan) {
  using T = LseType<Element>;
  const AttentionShape shape = check_attention(pass);
  const bool causal = pass.options.causal;
  const double scale = attention_scale(pass.options, shape.head_dim);
  const Rows<const Element> q_rows(pass.q), k_rows(pass.k), v_rows(pass.v), out_rows(pass.out),
      d_out_rows(pass.d_out);
  const Rows<Element> d_q_rows(pass.d_q), d_k_rows(pass.d_k), d_v_rows(pass.d_v);
  const auto& lse = pass.lse;

  const Index heads = shape.batch * shape.heads, block_keys = plan.key_panels * kernels.panel;
  const Index scratch = kernels.backward_scratch(plan.block_queries, block_keys, shape.head_dim);
  const Index share = in_lines<T>(shape.queries * kernels.width(shape.head_dim)),
              row_numbers = in_lines<T>(heads * shape.queries);
  T* const shares = call_memory.get<T>(share * plan.splits * heads + 3 * row_numbers);
  T* const lse2 = shares + share * plan.splits * heads;
  T* const lse2_rest = lse2 + row_numbers;
  T* const delta = lse2_rest + row_numbers;

  // Tasks of a few rows of one head.
  const Index chunks = ceil_div(shape.queries, kRowsOfATask);
  const auto for_rows = [&](const auto& body) {
    parallel_for(heads * chunks, [&](Index task) {
      const Index head = task / chunks, first = task % chunks * kRowsOfATask;
      body(head / shape.heads, head % shape.heads, head, first,
           std::min(shape.queries, first + kRowsOfATask));
    });
  };
  for_rows([&](Index b, Index h, Index head, Index first, Index last) {
    kernels.backward_rows({.out = out_rows.head(b, h),
                           .d_out = d_out_rows.head(b, h),
                           .lse = lse.data() + b * lse.stride(0) + h * lse.stride(1),
                           .lse_step = static_cast<std::ptrdiff_t>(lse.stride(2)),
                           .first_query = first,
                           .last_query = last,
                           .head_dim = shape.head_dim,
                           .lse2 = lse2 + head * shape.queries,
                           .lse2_rest = lse2_rest + head * shape.queries,
                           .delta = delta + head * shape.queries});
  });
  parallel_for(heads * plan.splits, [&](Index task) {
    const Index head = task / plan.splits, split = task % plan.splits, b = head / shape.heads,
                h = head % shape.heads;
    kernels.backward_split({.q = q_rows.head(b, h),
                            .k = k_rows.head(b, h),
                            .v = v_rows.head(b, h),
                            .d_out = d_out_rows.head(b, h),
                            .d_k = d_k_rows.head(b, h),
                            .d_v = d_v_rows.head(b, h),
                            .lse2 = lse2 + head * shape.queries,
                            .lse2_rest = lse2_rest + head * shape.queries,
                            .delta = delta + head * shape.queries,
                            .d_q = shares + task * share,
                            .queries = shape.queries,
                            .keys = shape.keys,
                            .head_dim = shape.head_dim,
                            .first_block = split,
                            .block_step = plan.splits,
                            .block_queries = plan.block_queries,
                            .block_keys = block_keys,
                            .causal = causal,
                            .scale = scale,
                            .scratch = task_memory.get<T>(scratch)});
  });
  for_rows([&](Index b, Index h, Index head, Index first, Index last) {
    kernels.backward_sum({.shares = shares + head * plan.splits * share,
                          .splits = plan.splits,
                          .step = share,
                          .first_query = first,
                          .last_query = last,
                          .head_dim = shape.head_dim,
                          .d_q = d_q_rows.head(b, h),
                          .scale = scale});
  });
}

#define FLASH_INSTANTIATE(T)                                                               \
  template void forward_in_tasks(const AttentionForward<T>&, const Kernels<LseType<T>>&,   \
                                 const ForwardPlan&);                                      \
  template void backward_in_tasks(const AttentionBackward<T>&, const Kernels<LseType<T>>&, \
                                  const BackwardPlan&)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(double);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash
