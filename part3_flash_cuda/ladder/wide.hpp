// What the rungs for heads of 257 to 1024 columns share. A thread block has some columns of O:
// several blocks have the same queries.
#pragma once

#include <algorithm>

#include "part3_flash_cuda/ladder/fragments.hpp"

namespace flash::wide {

// Why a rung for wide heads refuses a problem, or "" if it takes it. `others` is the same function
// of the rungs for heads of up to 256 columns; it checks everything but the width.
template <class Others>
std::string why_not(const AttentionProblem& problem, Others others) {
  constexpr Index kMost = 1024, kMostOfOthers = 256;
  const Index head_dim = problem.shape.head_dim;
  if (head_dim <= kMostOfOthers)
    return "head_dim is " + std::to_string(head_dim) + "; it must be above 256";
  if (std::string why = why_above("head_dim", head_dim, kMost); !why.empty()) return why;
  AttentionProblem narrow = problem;
  if (head_dim % mma::kChunk == 0) narrow.shape.head_dim = kMostOfOthers;
  return others(narrow);
}

// `out` cut by columns, kColumns each; the last ones may have none.
template <class T>
struct Parts {
  TensorView<T, 4> parts[4];
};
template <int kColumns, class T>
Parts<T> cut(const TensorView<T, 4>& out) {
  Parts<T> cut;
  for (int i = 0; i < 4; ++i) {
    const Index first = std::min<Index>(i * kColumns, out.extent(3));
    cut.parts[i] = {out.data() + first,
                    {out.extent(0), out.extent(1), out.extent(2), out.extent(3) - first},
                    out.strides()};
  }
  return cut;
}

// Launches the kernel with the first configuration of the table that is wide enough for the head
// and fits into shared memory.
template <class Table, class T, class Start>
void run(const AttentionForward<T>& pass, Table table, Start start) {
  const AttentionShape shape = check_attention(pass);
  const auto fits = [&]<class C>(C config) {
    return shape.head_dim <= C::kWidth && has_room(config);
  };
  if (!use_first(table, fits, start)) throw_no_room(shape.head_dim);
}

}  // namespace flash::wide
