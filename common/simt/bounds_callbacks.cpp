// The function that the compiler calls where code compiled with -fsanitize=bounds indexes an array outside of its declared size:
// what no address can tell, since behind one __shared__ array another one lies. The layout of its argument is UBSan's.
#include <cstdint>
#include <string>

#include "common/simt/module.hpp"
#include "common/simt/worker.hpp"

namespace {

struct SourceLocation {
  const char* file;
  std::uint32_t line, column;
};
struct TypeDescriptor {
  std::uint16_t kind, info;
  char name[1];
};
struct OutOfBounds {
  SourceLocation where;
  const TypeDescriptor* array;
  const TypeDescriptor* index;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void __ubsan_handle_out_of_bounds(const OutOfBounds* data, std::uintptr_t index) {
  using namespace flash::simt;
  Worker* const worker = Worker::current();
  if (worker == nullptr) return;  // host code: no business of the emulator's
  // A signed index of up to 64 bits arrives as its bit pattern, in the index type's width.
  const bool is_signed = (data->index->info & 1) != 0;
  const unsigned bits = 1u << (data->index->info >> 1);
  auto value = static_cast<std::int64_t>(index);
  if (is_signed && bits < 64) value = static_cast<std::int64_t>(index << (64 - bits)) >> (64 - bits);
  worker->fail(FindingKind::kOutOfBounds, {shown_path(data->where.file), static_cast<int>(data->where.line)},
               worker->describe(worker->thread_number()) + " uses index " + std::to_string(value) + " of an array of type " +
                   data->array->name + ".");
}
