// Memory in which cases have laid tensors, with what lies around them: a judge's call takes all of
// it to the runner and back.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

namespace flash::harness {

using Bytes = std::pair<unsigned char*, std::size_t>;

void note_memory(void* begin, std::size_t bytes);
void forget_memory(void* begin);

// The noted memory that holds this byte.
std::optional<Bytes> memory_around(const void* byte);

}  // namespace flash::harness
