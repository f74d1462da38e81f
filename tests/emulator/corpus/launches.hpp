// How the lists of corpus/*.cu are written: a kernel, its configuration, its arguments and what has
// to come of them, one line each.
#pragma once

#include <tuple>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/launch.hpp"
#include "emulator/corpus/corpus.hpp"

namespace flash::simt_corpus {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// Device memory that a launch gets for a pointer, made anew each time.
struct Array {
  Index count;
  enum { kZeros, kUnwritten, kCounting } content;  // kCounting: 0, 1, 2, ...
  bool is_result = false;
};
inline Array zeros(Index count) { return {count, Array::kZeros}; }
inline Array unwritten(Index count) { return {count, Array::kUnwritten}; }
inline Array counting(Index count) { return {count, Array::kCounting}; }
inline Array result(Index count) { return {count, Array::kUnwritten, true}; }
inline Array result_from_zeros(Index count) { return {count, Array::kZeros, true}; }

template <class T>
DeviceTensor<T, 1> on_device(const Array& array) {
  if (array.content == Array::kUnwritten) return DeviceTensor<T, 1>({array.count});
  Tensor<T, 1> host({array.count});
  for (Index i = 0; i < array.count; ++i)
    host(i) = static_cast<T>(array.content == Array::kCounting ? i : 0);
  return DeviceTensor<T, 1>(host);
}

template <class Parameter, class Given>
struct Argument {
  Parameter value;
  explicit Argument(Given given) : value(given) {}
  Parameter get() const { return value; }
  template <class Expect>
  bool is_right(Expect) const {
    return true;
  }
};
template <class T>
struct Argument<T*, Array> {
  Array array;
  DeviceTensor<std::remove_const_t<T>, 1> memory;
  explicit Argument(const Array& given)
      : array(given), memory(on_device<std::remove_const_t<T>>(given)) {}
  T* get() const { return memory.data(); }
  template <class Expect>
  bool is_right(Expect expect) const {
    const auto host = memory.to_host();
    for (Index i = 0; array.is_result && i < array.count; ++i)
      if (host(i) != static_cast<T>(expect(i))) return false;
    return true;
  }
};

// KERNEL(kernel), the launch's configuration and arguments: a value, or an Array, for each
// parameter.
#define KERNEL(kernel) #kernel, kernel

// What element i of a result has to be.
#define IS(expression) []([[maybe_unused]] Index i) { return expression; }

template <class... Parameters, class... Given>
Specimen mistake(simt::FindingKind kind, const char* name, void (*kernel)(Parameters...),
                 LaunchConfig config, Given... given) {
  return {name, kind, [=] {
            launch(name, kernel, config, Argument<Parameters, Given>(given).get()...);
            return true;
          }};
}

// Each element i of a result has to be expect(i).
template <class... Parameters, class Expect, class... Given>
Specimen right(const char* name, void (*kernel)(Parameters...), LaunchConfig config, Expect expect,
               Given... given) {
  return {name, {}, [=] {
            const std::tuple<Argument<Parameters, Given>...> arguments(given...);
            return std::apply(
                [&](const auto&... argument) {
                  launch(name, kernel, config, argument.get()...);
                  return (argument.is_right(expect) && ...);
                },
                arguments);
          }};
}

}  // namespace flash::simt_corpus
