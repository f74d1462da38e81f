// Device memory that two processes map: the judge makes it and hands out a descriptor, a runner
// maps it by that. A descriptor goes across sandboxes, where the handles of cudaIpcGetMemHandle()
// need processes that see each other.
#pragma once

#include <cstddef>

namespace flash::grading {

class JointMemory {
 public:
  explicit JointMemory(std::size_t bytes);         // makes memory
  JointMemory(int descriptor, std::size_t bytes);  // maps what another process made
  ~JointMemory();
  JointMemory(const JointMemory&) = delete;

  char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // For another process; the caller closes it.
  int descriptor() const;

 private:
  void map();

  std::size_t bytes_;  // a multiple of what the device hands out
  unsigned long long handle_ = 0;
  char* data_ = nullptr;
};

}  // namespace flash::grading
