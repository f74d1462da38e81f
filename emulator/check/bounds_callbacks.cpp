// What the compiler calls, with -fsanitize=bounds,alignment, for an index outside an array's
// declared size and for a misaligned pointer. The access itself does not show these: after one
// __shared__ array comes another, and of a float4 the compiler may load only what is used. The
// arguments have UBSan's layout.
#include <cstdint>
#include <string>

#include "emulator/run/module.hpp"
#include "emulator/run/worker.hpp"

namespace {

struct SourceLocation {
  const char* file;
  std::uint32_t line, column;
};
struct TypeDescriptor {
  std::uint16_t kind, info;
  char name[1];
};
struct TypeMismatch {
  SourceLocation where;
  const TypeDescriptor* type;
  unsigned char log_alignment, access_kind;
};
struct OutOfBounds {
  SourceLocation where;
  const TypeDescriptor* array;
  const TypeDescriptor* index;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void __ubsan_handle_out_of_bounds(
    const OutOfBounds* data, std::uintptr_t index) {
  using namespace flash::simt;
  Worker* const worker = Worker::current();
  if (worker == nullptr) return;  // host code
  // A signed index of up to 64 bits arrives as its bit pattern, in the index type's width.
  const bool is_signed = (data->index->info & 1) != 0;
  const unsigned bits = 1u << (data->index->info >> 1);
  auto value = static_cast<std::int64_t>(index);
  if (is_signed && bits < 64)
    value = static_cast<std::int64_t>(index << (64 - bits)) >> (64 - bits);
  worker->fail(FindingKind::kOutOfBounds,
               {shown_path(data->where.file), static_cast<int>(data->where.line)},
               worker->describe() + " uses index " + std::to_string(value) +
                   " in an array of type " + data->array->name + ".");
}

extern "C" __attribute__((visibility("default"))) void __ubsan_handle_type_mismatch_v1(
    const TypeMismatch* data, std::uintptr_t pointer) {
  using namespace flash::simt;
  Worker* const worker = Worker::current();
  if (worker == nullptr) return;
  const std::size_t alignment = std::size_t{1} << data->log_alignment;
  if (pointer % alignment == 0) return;  // null: the access itself will say so
  worker->fail(FindingKind::kMisaligned,
               {shown_path(data->where.file), static_cast<int>(data->where.line)},
               worker->describe() + " follows a pointer to " + data->type->name +
                   ", whose address has to be a multiple of " + std::to_string(alignment) +
                   "; it is " + std::to_string(pointer % alignment) + " bytes past one.");
}
