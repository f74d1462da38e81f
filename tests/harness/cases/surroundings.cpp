#include "harness/cases/surroundings.hpp"

#include <map>

namespace flash::harness {
namespace {

std::map<const unsigned char*, std::size_t>& noted() {
  static std::map<const unsigned char*, std::size_t> memory;  // by the first byte
  return memory;
}

}  // namespace

void note_memory(void* begin, std::size_t bytes) {
  noted()[static_cast<unsigned char*>(begin)] = bytes;
}

void forget_memory(void* begin) { noted().erase(static_cast<unsigned char*>(begin)); }

std::optional<Bytes> memory_around(const void* byte) {
  const auto* const at = static_cast<const unsigned char*>(byte);
  auto above = noted().upper_bound(at);
  if (above == noted().begin()) return std::nullopt;
  const auto& [begin, bytes] = *--above;
  if (at >= begin + bytes) return std::nullopt;
  return Bytes{const_cast<unsigned char*>(begin), bytes};
}

}  // namespace flash::harness
