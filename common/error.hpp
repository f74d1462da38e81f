// The errors that this course throws. Each message names the argument, its value, and what it had
// to be.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "common/export.hpp"

namespace flash {

// Root of every error below.
class FLASH_EXPORT Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An argument has a value that the function cannot accept: "block_1 is -3; it must be at least 1".
class FLASH_EXPORT ArgumentError : public Error {
 public:
  using Error::Error;
};

// A tensor has a shape that does not fit the others: "v has shape (2, 7, 5); it must be (batch = 2,
// d2 = 8, d3)".
class FLASH_EXPORT ShapeError : public ArgumentError {
 public:
  using ArgumentError::ArgumentError;
};

// The arguments make sense, but this implementation does not cover them: a block size without a
// compiled kernel, say.
class FLASH_EXPORT Unsupported : public Error {
 public:
  using Error::Error;
};

// Memory ran out, on the host or on a device, or a memory limit was met. A benchmark records it and
// goes on.
class FLASH_EXPORT OutOfMemory : public Error {
 public:
  using Error::Error;
};

// A CUDA call or launch failed: the call, where it stands, and CUDA's own text.
class FLASH_EXPORT CudaError : public Error {
 public:
  using Error::Error;
};

// A kernel did something wrong. The emulator says what and where: the first line has the kernel,
// the kind of mistake and file:line; then come the threads.
class FLASH_EXPORT KernelError : public CudaError {
 public:
  using CudaError::CudaError;
};

// A student has not written this yet. The harness shows the task as "not started".
class FLASH_EXPORT NotYetImplemented : public Error {
 public:
  explicit NotYetImplemented(const std::string& task)
      : Error(task + " is not written yet"), task_(task) {}
  const std::string& task() const noexcept { return task_; }

 private:
  std::string task_;
};

}  // namespace flash
