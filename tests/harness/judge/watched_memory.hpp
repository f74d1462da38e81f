// Memory that finds out whether it is touched: for code that must not so much as read what it has
// no use for.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/error.hpp"
#include "common/tensor.hpp"
#include "harness/cases/graded_case.hpp"

namespace flash::harness {

// Rows of `columns` floats, row after row, all 0. One at a time.
class WatchedRows {
 public:
  WatchedRows(Index rows, Index columns);
  ~WatchedRows();
  WatchedRows(const WatchedRows&) = delete;
  WatchedRows& operator=(const WatchedRows&) = delete;

  float* data() { return rows_.data(); }

  // From now on a runner gets no memory for row `first` and those behind it, and crashes where it
  // touches one.
  void watch_from(Index first);

  // The row at which it crashed.
  std::optional<Index> touched() const;

 private:
  std::vector<float> rows_;
  Index columns_;
};

// As long as it lives a runner gets no memory behind the tensor's last element, and crashes where
// it touches some. One at a time.
class WatchBehind {
 public:
  template <class Padded>
  explicit WatchBehind(Padded& tensor) {
    auto view = tensor.view();
    const auto* last = view.data();
    for (std::size_t axis = 0; axis < view.shape().size(); ++axis)
      last += (view.extent(static_cast<int>(axis)) - 1) * view.stride(static_cast<int>(axis));
    const auto& buffer = tensor.buffer();
    begin(last + 1, buffer.data() + buffer.size());
  }
  ~WatchBehind();
  WatchBehind(const WatchBehind&) = delete;
  WatchBehind& operator=(const WatchBehind&) = delete;

 private:
  static void begin(const void* end, const void* buffer_end);
};
bool touched_behind();

inline std::string read_behind(const std::string& name) {
  return "It reads behind the last element of `" + name +
         "`. What it reads there is not used, but there need not be any memory.";
}

// run(call) once for each input of call.tensors, which reads nothing behind its end: also not what
// it has no use for.
template <class Call, class Inputs, class Run>
Verdict nothing_is_read_behind(const decltype(Call::problem)& problem, std::uint64_t seed,
                               Inputs inputs, Run run) {
  std::string wrong;
  const auto try_one = [&](std::size_t number) {
    Call call(problem, seed);
    std::string name;
    std::optional<WatchBehind> watch;
    std::apply(
        [&, n = std::size_t{0}](auto&... tensor) mutable {
          ((n++ == number ? (watch.emplace(tensor.padded()), void(name = tensor.name())) : void()),
           ...);
        },
        inputs(call.tensors));
    if (name.empty()) return false;
    try {
      run(call);
    } catch (const KernelError&) {
      if (!touched_behind()) throw;
      wrong = read_behind(name);
    }
    return true;
  };
  for (std::size_t n = 0; wrong.empty() && try_one(n);) ++n;
  return {wrong.empty(), wrong};
}

}  // namespace flash::harness
