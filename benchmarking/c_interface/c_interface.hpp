// What the functions of attention_c.h and softmax_matmul_c.h share: exceptions become results, and pointers become views.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <type_traits>

#include "benchmarking/c_interface/attention_c.h"
#include "common/attention.hpp"
#include "common/error.hpp"
#include "common/half.hpp"

namespace flash {

// Keeps `what` for flash_last_error(). Returns `result`. In c_result.cpp.
int failed(int result, const char* what) noexcept;

template <class Body>
int guarded(Body&& body) noexcept {
  try {
    body();
    return FLASH_OK;
  } catch (const Unsupported& error) {
    return failed(FLASH_UNSUPPORTED, error.what());
  } catch (const OutOfMemory& error) {
    return failed(FLASH_OUT_OF_MEMORY, error.what());
  } catch (const std::bad_alloc&) {
    return failed(FLASH_OUT_OF_MEMORY, "no host memory left");
  } catch (const std::exception& error) {
    return failed(FLASH_ERROR, error.what());
  } catch (...) {
    return failed(FLASH_ERROR, "an exception of an unknown type");
  }
}

template <class T>
constexpr int kDTypeOf = std::is_same_v<T, float>    ? FLASH_FLOAT32
                         : std::is_same_v<T, double> ? FLASH_FLOAT64
                         : std::is_same_v<T, Half>   ? FLASH_FLOAT16
                                                     : FLASH_BFLOAT16;

// body.operator()<T>() for the one of `Types` that dtype means.
template <class... Types, class Body>
void with_dtype(int dtype, Body&& body) {
  const bool known = ((dtype == kDTypeOf<Types> && (body.template operator()<Types>(), true)) || ...);
  if (known) return;
  constexpr const char* kNames[] = {"float32", "float64", "float16", "bfloat16"};
  std::string text;
  ((text += (text.empty() ? "" : " or ") + std::to_string(kDTypeOf<Types>) + " (" + kNames[kDTypeOf<Types>] + ")"), ...);
  throw ArgumentError("dtype is " + std::to_string(dtype) + "; it must be " + text);
}

template <class T>
T& not_null(const char* argument, T* pointer) {
  if (pointer == nullptr) throw ArgumentError(std::string(argument) + " is null; it must point to something");
  return *pointer;
}

inline AttentionShape shape_of(const FlashShape* shape) {
  const FlashShape& given = not_null("shape", shape);
  const AttentionShape made{given.batch, given.heads, given.queries, given.keys, given.head_dim};
  return attention_shape(made.of_queries(), made.of_keys());
}

// Views of the caller's memory; a null pointer is named here, once for all implementations.
template <class T, int Rank>
TensorView<T, Rank> view_of(const char* argument, std::conditional_t<std::is_const_v<T>, const void, void>* data,
                            const Shape<Rank>& shape) {
  const TensorView<T, Rank> view(static_cast<T*>(data), shape);
  check_view(argument, view, shape);
  return view;
}

// p, for an implementation that saves it; else an empty view, and `p` is not looked at.
template <class T>
TensorView<T, 4> view_of_p(bool saves_p, std::conditional_t<std::is_const_v<T>, const void, void>* p,
                           const AttentionShape& shape) {
  if (!saves_p) return {};
  return view_of<T, 4>("p", p, {shape.batch, shape.heads, shape.queries, shape.keys});
}

template <class Registry>
int implementation_count(const Registry& registry, int* count) {
  return guarded([&] { not_null("count", count) = static_cast<int>(registry.entries().size()); });
}

template <class Registry>
int implementation_name(const Registry& registry, int index, const char** name) {
  return guarded([&] {
    const auto& entries = registry.entries();
    if (index < 0 || index >= static_cast<int>(entries.size()))
      throw ArgumentError("index is " + std::to_string(index) + "; it must be from 0 to " + std::to_string(entries.size() - 1));
    not_null("name", name) = entries[index].name.c_str();
  });
}

}  // namespace flash
