#include "emulator/check/places.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emulator/run/device_memory.hpp"

namespace flash::simt {

using enum FindingKind;

const char* verb(AccessKind kind) {
  using enum AccessKind;
  return kind == kRead ? " reads " : kind == kWrite ? " writes " : " atomically changes ";
}

std::string bytes_text(std::size_t bytes) {
  return text_of(bytes, bytes == 1 ? " byte" : " bytes");
}

void Places::start_launch(const Module& module) {
  const std::size_t bytes = module.data_end - module.data_begin;
  const auto [found, is_new] = of_modules_.try_emplace(&module);
  Shadow& shadow = found->second;
  if (is_new) {
    shadow = Shadow(bytes);
    shadow.initialized.insert(0, bytes);
  }
  variables_ = {&shadow, reinterpret_cast<char*>(module.data_begin), bytes, true};
}

bool Places::find(Touch& touch) const {
  Place& place = touch.place;
  const auto offset_in = [&](const char* begin) {
    return reinterpret_cast<std::uintptr_t>(touch.address) -
           reinterpret_cast<std::uintptr_t>(begin);
  };
  if (const std::size_t size = shared_.dynamic_bytes(); offset_in(shared_.dynamic()) < size) {
    place = {&shared_.dynamic_shadow(), shared_.dynamic(), size, false};
  } else if (const std::size_t fixed = shared_.fixed_bytes(); offset_in(shared_.fixed()) < fixed) {
    place = {&shared_.fixed_shadow(), shared_.fixed(), fixed, false};
  } else if (Allocation* const allocation = DeviceMemory::instance().find(touch.address)) {
    place = {&allocation->shadow, allocation->begin, allocation->bytes, true};
  } else if (offset_in(variables_.begin) < variables_.bytes) {
    place = variables_;
  } else {
    return false;
  }
  return offset_in(place.begin) < place.bytes &&
         offset_in(place.begin) + touch.bytes <= place.bytes;
}

std::string Places::text(const Touch& touch) const {
  const auto& [address, bytes, kind, pc, step, place] = touch;
  const std::string size = bytes > 1 ? bytes_text(bytes) + " of " : "";
  if (!place.is_global) return size + shared_text(worker_, address);
  const auto from = [&](const std::string& what, const char* first) {
    const std::ptrdiff_t distance = touch.address - first;
    const auto magnitude = static_cast<std::size_t>(std::abs(distance));
    if (distance < 0)
      return text_of(size, what, ", ", bytes_text(magnitude), " before its first element");
    const std::string start = text_of(size, what, ", from byte ", distance);
    if (touch.bytes == 1 || magnitude % touch.bytes != 0) return start;
    return text_of(start, " (element ", magnitude / touch.bytes, " of that size)");
  };
  if (const Allocation* const allocation = DeviceMemory::instance().find(place.begin);
      allocation != nullptr && !allocation->name.empty())
    return from("the tensor " + allocation->name, allocation->first_element);
  if (place.begin == variables_.begin) {
    const Module& module = worker_.launch().module;
    const Symbol symbol = variable_symbol(module, reinterpret_cast<std::uintptr_t>(address));
    return from("the variable " + symbol.name,
                reinterpret_cast<const char*>(module.base + symbol.offset));
  }
  // Which argument of the kernel points into this allocation.
  const KernelCall& call = worker_.launch().call;
  for (std::size_t i = 0; i < call.argument_count; ++i) {
    if (call.argument_list[i].bytes < sizeof(char*)) continue;
    char* pointer = nullptr;
    std::memcpy(&pointer, call.argument_list[i].value, sizeof pointer);
    if (pointer >= place.begin && pointer <= place.begin + place.bytes)
      return from(text_of("device memory, argument ", i + 1, " of the kernel"), pointer);
  }
  return text_of(size, "device memory, from byte ", address - place.begin, " of an allocation of ",
                 bytes_text(place.bytes));
}

// threadIdx and its kin.
static bool is_builtin_variable(const void* address) {
  for (const uint3* variable : {&threadIdx, &blockIdx, &blockDim, &gridDim})
    if (address >= variable && address < variable + 1) return true;
  return false;
}

bool Places::is_argument(const char* address) const {
  const KernelCall& call = worker_.launch().call;
  const auto inside = [address](const void* begin, std::size_t bytes) {
    return address >= begin && address < static_cast<const char*>(begin) + bytes;
  };
  return inside(call.arguments, call.argument_bytes) ||
         std::any_of(call.argument_list, call.argument_list + call.argument_count,
                     [&](const auto& argument) { return inside(argument.value, argument.bytes); });
}

// Not in an allocation, or in a forbidden part of one.
Places::Trespass Places::beside_allocation(const Touch& touch) const {
  DeviceMemory& memory = DeviceMemory::instance();
  Allocation* near = memory.find(touch.address);
  const std::string beside_tensors = near == nullptr ? memory.beside(touch.address) : "";
  if (!beside_tensors.empty())
    return {kOutOfBounds, "device memory that is not allocated, " + beside_tensors + "."};
  if (near == nullptr) near = memory.nearest(touch.address);
  if (near == nullptr) return {kOutOfBounds, "device memory that is not allocated."};
  Touch beside = touch;
  beside.place = {&near->shadow, near->begin, near->bytes, true};
  const char* const how = touch.address < near->begin ? ": before the start of the allocation."
                          : touch.address + touch.bytes > near->begin + near->bytes
                              ? ": after the end of the allocation."
                          : near->name.empty() ? ": inside the allocation, but outside the tensor."
                                               : ": it has no element there.";
  return {kOutOfBounds, text(beside) + how};
}

std::optional<Places::Trespass> Places::trespass(const Touch& touch) const {
  const char* const address = touch.address;
  if (DeviceMemory::instance().contains(address)) return beside_allocation(touch);
  const char* const begin = shared_.dynamic();
  const char* const end = begin + shared_.dynamic_bytes();
  if (shared_.is_guard(address) || (address < end + 128 && address + touch.bytes > end))
    return Trespass{kOutOfBounds, text_of("shared memory, from byte ", address - begin, ": ",
                                          shared_.dynamic_text(), ".")};
  if (address < begin && address >= begin - 128 * 1024)
    return Trespass{kOutOfBounds, text_of("shared memory, ",
                                          bytes_text(static_cast<std::size_t>(begin - address)),
                                          " before its start.")};
  // Constants of the kernel's own library, the built-in variables, and the arguments of the call.
  const std::uintptr_t value = reinterpret_cast<std::uintptr_t>(address);
  const Module& module = worker_.launch().module;
  if ((value >= module.begin && value < module.end) || is_builtin_variable(address) ||
      is_argument(address)) {
    if (touch.kind == AccessKind::kRead) return std::nullopt;
    return Trespass{kHostMemory, "a constant, or a built-in variable, of all threads."};
  }
  if (value < 4096) return Trespass{kFault, "through a null pointer, or at an offset from one."};
  for (unsigned thread = 0; thread < kMostThreads; ++thread)
    if (static_cast<std::size_t>(address - worker_.stacks().begin(thread)) <
        FiberStacks::kStackBytes)
      return Trespass{kOutOfBounds, text_of("a local variable of ", worker_.describe(thread),
                                            ". Local variables belong to one thread.")};
  return Trespass{
      kHostMemory,
      "host memory. A kernel can access device memory only: copy the data there first."};
}

}  // namespace flash::simt
