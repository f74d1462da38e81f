// What C++ leaves undefined and the compiler can tell of. It calls these functions, whose arguments
// have UBSan's layout, in every build for a shift by too many bits and for a number that an integer
// type cannot hold; with the checks (-fsanitize=bounds-strict,alignment) for an index outside an
// array's declared size and for a misaligned pointer. The access itself does not show the latter
// two: after one __shared__ array comes another, and of a float4 the compiler may load only what is
// used.
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
struct ShiftOutOfBounds {
  SourceLocation where;
  const TypeDescriptor* left;
  const TypeDescriptor* right;
};
struct OutOfBounds {
  SourceLocation where;
  const TypeDescriptor* array;
  const TypeDescriptor* index;
};

std::int64_t number(const TypeDescriptor& type, std::uintptr_t bits) {
  // A signed number of up to 64 bits arrives as its bit pattern, in its type's width.
  const bool is_signed = (type.info & 1) != 0;
  const unsigned width = 1u << (type.info >> 1);
  return is_signed && width < 64 ? static_cast<std::int64_t>(bits << (64 - width)) >> (64 - width)
                                 : static_cast<std::int64_t>(bits);
}

// With the checks the block goes on: the number may come from a race, which shows later.
void judge_number(flash::simt::Worker& worker, const flash::simt::Location& where,
                  const std::string& text) {
  using namespace flash::simt;
  if (!worker.launch().module.is_checked) worker.fail(FindingKind::kUndefined, where, text);
  worker.launch().add(FindingKind::kUndefined, where, {},
                      text_of(" at ", place_text(where), "\n", text));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void __ubsan_handle_shift_out_of_bounds(
    const ShiftOutOfBounds* data, std::uintptr_t, std::uintptr_t bits) {
  using namespace flash::simt;
  Worker* const worker = Worker::current();
  if (worker == nullptr) return;  // host code
  judge_number(
      *worker, {shown_path(data->where.file), static_cast<int>(data->where.line)},
      text_of(worker->describe(), " shifts a number of ", 1u << (data->left->info >> 1),
              " bits by ", number(*data->right, bits),
              ". C++ does not say what comes of it; a GPU and a CPU give different numbers."));
}

extern "C" __attribute__((visibility("default"))) void __ubsan_handle_float_cast_overflow(
    const void*, std::uintptr_t) {
  using namespace flash::simt;
  Worker* const worker = Worker::current();
  if (worker == nullptr) return;
  judge_number(
      *worker, locate(worker->launch().module, FLASH_HERE),
      "A conversion to an integer of NaN, or of a number that the integer type does not have. C++ "
      "does not say what comes of it. Where it is meant, __float2int_rz() and its like give 0 for "
      "NaN, and otherwise the nearest integer of the type.\n" +
          worker->describe());
}

extern "C" __attribute__((visibility("default"))) void __ubsan_handle_out_of_bounds(
    const OutOfBounds* data, std::uintptr_t index) {
  using namespace flash::simt;
  Worker* const worker = Worker::current();
  if (worker == nullptr) return;  // host code
  worker->fail(FindingKind::kOutOfBounds,
               {shown_path(data->where.file), static_cast<int>(data->where.line)},
               worker->describe() + " uses index " + std::to_string(number(*data->index, index)) +
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

// assert(): the libraries of .cu files are linked with --wrap for it.
extern "C" [[noreturn]] void __assert_fail(const char*, const char*, unsigned,
                                           const char*) noexcept;
extern "C" [[noreturn]] __attribute__((visibility("default"))) void __wrap___assert_fail(
    const char* condition, const char* file, unsigned line, const char* function) {
  using namespace flash::simt;
  if (Worker* const worker = Worker::current())
    worker->fail(FindingKind::kAssertion, {shown_path(file), static_cast<int>(line)},
                 text_of(worker->describe(), ": assert(", condition, ") does not hold."));
  __assert_fail(condition, file, line, function);
}
