// Implements attention_c.h, but for the oracle, which is in oracle_c.cpp.
#include "benchmarking/c_interface/attention_c.h"

#include "benchmarking/c_interface/c_interface.hpp"
#include "part2_flash_cpu/implementations.hpp"
#include "part2_flash_cpu/ladder/ladder.hpp"
#include "part2_flash_cpu/ladder/parallel.hpp"

namespace flash {
namespace {

const AttentionRegistry& registry() {
  static const AttentionRegistry all = [] {
    AttentionRegistry made;
    register_part2_attention(made);
    register_attention_ladder(made);
    return made;
  }();
  return all;
}

const AttentionFunctions& functions(const char* name) { return *registry().find(&not_null("name", name)).run; }

template <class T>
const AttentionPasses<T>& passes(const char* name) {
  return attention_passes<T>(registry(), &not_null("name", name));
}

}  // namespace
}  // namespace flash

using namespace flash;

int flash_implementation_count(int* count) { return implementation_count(registry(), count); }

int flash_implementation_name(int index, const char** name) { return implementation_name(registry(), index, name); }

int flash_implementation_has_dtype(const char* name, int dtype, int* has) {
  return guarded([&] {
    with_dtype<float, double, Half, BFloat16>(dtype, [&]<class T>() {
      const AttentionFunctions& found = functions(name);
      not_null("has", has) = 0;
      if constexpr (std::is_floating_point_v<T>) *has = found.passes<T>().forward != nullptr;
    });
  });
}

int flash_implementation_saves_p(const char* name, int* saves_p) {
  return guarded([&] { not_null("saves_p", saves_p) = functions(name).saves_p; });
}

int flash_attention_forward(const char* name, int dtype, const FlashShape* shape, int causal, const void* q, const void* k,
                            const void* v, void* out, void* lse, void* p) {
  return guarded([&] {
    with_dtype<float, double>(dtype, [&]<class T>() {
      const AttentionShape of = shape_of(shape);
      passes<T>(name).forward(view_of<const T, 4>("q", q, of.of_queries()), view_of<const T, 4>("k", k, of.of_keys()),
                              view_of<const T, 4>("v", v, of.of_keys()), view_of<T, 4>("out", out, of.of_queries()),
                              view_of<T, 3>("lse", lse, of.of_rows()), view_of_p<T>(functions(name).saves_p, p, of),
                              {.causal = causal != 0});
    });
  });
}

int flash_attention_backward(const char* name, int dtype, const FlashShape* shape, int causal, const void* q, const void* k,
                             const void* v, const void* out, const void* lse, const void* p, const void* d_out, void* d_q,
                             void* d_k, void* d_v) {
  return guarded([&] {
    with_dtype<float, double>(dtype, [&]<class T>() {
      const AttentionShape of = shape_of(shape);
      passes<T>(name).backward(
          view_of<const T, 4>("q", q, of.of_queries()), view_of<const T, 4>("k", k, of.of_keys()),
          view_of<const T, 4>("v", v, of.of_keys()), view_of<const T, 4>("out", out, of.of_queries()),
          view_of<const T, 3>("lse", lse, of.of_rows()), view_of_p<const T>(functions(name).saves_p, p, of),
          view_of<const T, 4>("d_out", d_out, of.of_queries()), view_of<T, 4>("d_q", d_q, of.of_queries()),
          view_of<T, 4>("d_k", d_k, of.of_keys()), view_of<T, 4>("d_v", d_v, of.of_keys()), {.causal = causal != 0});
    });
  });
}

int flash_set_threads(int threads) {
  return guarded([&] { set_ladder_threads(threads); });
}

int flash_isa(const char** isa) {
  return guarded([&] {
    static const std::string text = ladder_isa();
    not_null("isa", isa) = text.c_str();
  });
}

int flash_fma_peak_gflops(int dtype, double* gflops) {
  return guarded([&] {
    with_dtype<float, double>(dtype, [&]<class T>() {
      not_null("gflops", gflops) = fma_peak_gflops(sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64);
    });
  });
}
