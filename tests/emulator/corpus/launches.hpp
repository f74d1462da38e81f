// How the corpus is written: each kernel stands behind what it is, its launch (configuration, what
// has to come of it, arguments: a value, or an Array, for each parameter), and its parameters.
//
//   MISTAKE(kRace, no_barrier, ({1, 64}, zeros(64)), float* out) { ... }
//   RIGHT(copy, ({1, 64}, IS(i), counting(64), result(64)), const float* x, float* out) { ... }
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

// What element i of a result has to be.
#define IS(expression) []([[maybe_unused]] Index i) { return expression; }

struct Listed {
  Listed(Group group, const std::string& name, const std::string& file,
         std::optional<simt::FindingKind> mistake, std::function<bool()> run) {
    specimens().push_back(
        {group, name, file.substr(file.rfind("tests/emulator/")), mistake, std::move(run)});
  }
};

template <class... Parameters, class... Given>
std::function<bool()> runs(const char* name, void (*kernel)(Parameters...),
                           const LaunchConfig& config, Given... given) {
  return [=] {
    launch(name, kernel, config, Argument<Parameters, Given>(given).get()...);
    return true;
  };
}

// Each element i of a result has to be expect(i).
template <class... Parameters, class Expect, class... Given>
std::function<bool()> gives(const char* name, void (*kernel)(Parameters...),
                            const LaunchConfig& config, Expect expect, Given... given) {
  return [=] {
    const std::tuple<Argument<Parameters, Given>...> arguments(given...);
    return std::apply(
        [&](const auto&... argument) {
          launch(name, kernel, config, argument.get()...);
          return (argument.is_right(expect) && ...);
        },
        arguments);
  };
}

#define FLASH_LAUNCH(...) __VA_ARGS__
#define FLASH_SPECIMEN(name, parameters, ...)     \
  __global__ void name parameters;                \
  const Listed name##_listed(Group::__VA_ARGS__); \
  __global__ void name parameters
#define MISTAKE(kind, name, how, ...)                                                     \
  FLASH_SPECIMEN(name, (__VA_ARGS__), kMistake, #name, __FILE__, simt::FindingKind::kind, \
                 runs(#name, name, FLASH_LAUNCH how))
#define RIGHT(name, how, ...) FLASH_GIVES(kRight, name, how, __VA_ARGS__)
#define BY_LUCK(name, how, ...) FLASH_GIVES(kByLuck, name, how, __VA_ARGS__)
#define EARLY(name, how, ...) FLASH_GIVES(kEarly, name, how, __VA_ARGS__)
#define FLASH_GIVES(group, name, how, ...)                                  \
  FLASH_SPECIMEN(name, (__VA_ARGS__), group, #name, __FILE__, std::nullopt, \
                 gives(#name, name, FLASH_LAUNCH how))

}  // namespace flash::simt_corpus
