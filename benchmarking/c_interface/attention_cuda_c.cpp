// Implements attention_c.h for a GPU: flash_attention_cuda_c.
#include "benchmarking/c_interface/c_interface.hpp"
#include "benchmarking/device_attention_registry.hpp"

namespace flash {
namespace {

const DeviceAttentionFunctions& functions(const char* name) {
  return *device_attention_registry().find(&not_null("name", name)).run;
}

template <class T>
const DeviceAttentionPasses<T>& passes(const char* name) {
  return functions(name).passes<T>();
}

}  // namespace
}  // namespace flash

using namespace flash;

int flash_implementation_count(int* count) { return implementation_count(device_attention_registry(), count); }

int flash_implementation_name(int index, const char** name) {
  return implementation_name(device_attention_registry(), index, name);
}

int flash_implementation_has_dtype(const char* name, int dtype, int* has) {
  return guarded([&] {
    with_dtype<float, double, Half, BFloat16>(dtype, [&]<class T>() {
      const DeviceAttentionFunctions& found = functions(name);
      not_null("has", has) = 0;
      if constexpr (!std::is_same_v<T, double>) *has = found.passes<T>().forward != nullptr;
    });
  });
}

int flash_implementation_saves_p(const char* name, int* saves_p) {
  return guarded([&] { not_null("saves_p", saves_p) = functions(name).saves_p; });
}

int flash_attention_forward(const char* name, int dtype, const FlashShape* shape, int causal, const void* q, const void* k,
                            const void* v, void* out, void* lse, void* p) {
  return guarded([&] {
    with_dtype<float, Half, BFloat16>(dtype, [&]<class T>() {
      const AttentionShape of = shape_of(shape);
      passes<T>(name).forward(view_of<const T, 4>("q", q, of.of_queries()), view_of<const T, 4>("k", k, of.of_keys()),
                              view_of<const T, 4>("v", v, of.of_keys()), view_of<T, 4>("out", out, of.of_queries()),
                              view_of<float, 3>("lse", lse, of.of_rows()), view_of_p<T>(functions(name).saves_p, p, of),
                              {.causal = causal != 0}, {});
    });
  });
}

int flash_attention_backward(const char* name, int dtype, const FlashShape* shape, int causal, const void* q, const void* k,
                             const void* v, const void* out, const void* lse, const void* p, const void* d_out, void* d_q,
                             void* d_k, void* d_v) {
  return guarded([&] {
    with_dtype<float, Half, BFloat16>(dtype, [&]<class T>() {
      const AttentionShape of = shape_of(shape);
      passes<T>(name).backward(
          view_of<const T, 4>("q", q, of.of_queries()), view_of<const T, 4>("k", k, of.of_keys()),
          view_of<const T, 4>("v", v, of.of_keys()), view_of<const T, 4>("out", out, of.of_queries()),
          view_of<const float, 3>("lse", lse, of.of_rows()), view_of_p<const T>(functions(name).saves_p, p, of),
          view_of<const T, 4>("d_out", d_out, of.of_queries()), view_of<T, 4>("d_q", d_q, of.of_queries()),
          view_of<T, 4>("d_k", d_k, of.of_keys()), view_of<T, 4>("d_v", d_v, of.of_keys()), {.causal = causal != 0}, {});
    });
  });
}
