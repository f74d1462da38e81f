// What the functions of attention_c.h share: exceptions become results, and pointers become views.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <type_traits>

#include "benchmarking/attention_c.h"
#include "common/attention.hpp"
#include "common/error.hpp"

namespace flash {

// Keeps `what` for flash_last_error(). Returns `result`.
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

// body.operator()<float>() or <double>().
template <class Body>
void with_dtype(int dtype, Body&& body) {
  switch (dtype) {
    case FLASH_FLOAT32: return body.template operator()<float>();
    case FLASH_FLOAT64: return body.template operator()<double>();
  }
  throw ArgumentError("dtype is " + std::to_string(dtype) + "; it must be 0 (float32) or 1 (float64)");
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

}  // namespace flash
