// Implements tensor.hpp: what is the same for every rank and type.
#include "common/tensor.hpp"

#include <limits>

namespace flash::any_rank {

std::string to_string(const Index* shape, int rank) {
  std::string text = "(";
  for (int axis = 0; axis < rank; ++axis) text += (axis ? ", " : "") + std::to_string(shape[axis]);
  return text + ")";
}

Index element_count(const Index* shape, int rank) {
  Index count = 1;
  for (int axis = 0; axis < rank; ++axis) {
    const Index extent = shape[axis];
    if (extent < 0)
      throw ShapeError("a shape is " + to_string(shape, rank) +
                       "; every extent must be at least 0");
    if (extent > 0 && count > std::numeric_limits<Index>::max() / extent)
      throw ShapeError("a shape is " + to_string(shape, rank) +
                       "; that is more elements than 63 bits can count");
    count *= extent;
  }
  return count;
}

void* allocate(const Index* shape, int rank, std::size_t element_size, std::size_t alignment) {
  const auto elements = static_cast<std::size_t>(element_count(shape, rank));
  if (elements > std::numeric_limits<std::size_t>::max() / element_size)
    throw OutOfMemory("a tensor of shape " + to_string(shape, rank) +
                      " is larger than the address space");
  try {
    return ::operator new (element_size* elements, std::align_val_t{alignment});
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("no host memory for a tensor of shape " + to_string(shape, rank) + ", " +
                      std::to_string(element_size * elements) + " bytes");
  }
}

}  // namespace flash::any_rank
