// A CUDA stream as an opaque value, so that a contract header needs no CUDA header.
#pragma once

namespace flash {

// Holds a cudaStream_t. The default is CUDA's default stream.
struct Stream {
  void* handle = nullptr;
};

}  // namespace flash
