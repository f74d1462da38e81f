// A runner's process: how the judge starts it, what it may take, and the messages to and from it.
// Nothing that it says is believed.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/protocol.hpp"

namespace flash::grading {

using SteadyClock = std::chrono::steady_clock;

// Where the student's kernels run: the limits of the process follow from it.
enum class Kernels { kNone, kEmulated, kOnGpu };

// The judge itself failed, with what errno says.
[[noreturn]] void broken(const std::string& what);

// How many calls of all runners took too long.
extern int timeouts;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

class Runner {
 public:
  // Starts the command `words` and returns when it is about to load the student's code. Ends the
  // judge where it does not come so far: that is the grader's fault, or the machine's.
  Runner(Kernels kernels, const std::vector<std::string>& words);
  ~Runner() { end(); }
  Runner(const Runner&) = delete;

  // These throw KernelError, with a text for the student, when the process has ended, lies, or
  // takes too long.
  void send(const Message& message, int fd = -1);
  Message receive(double seconds);
  [[noreturn]] void lied();

  pid_t pid() const { return inner_pid_; }  // of the process that holds the student's code

  // Of the kernel, in bytes: memory of the process now, and the most that it ever had.
  std::pair<std::size_t, std::size_t> memory() const;

 private:
  [[noreturn]] static void become(char** argv, int socket, int output, Kernels kernels);
  Message received();
  void drain();
  [[noreturn]] void crashed();
  int end(bool is_ending = false);

  Descriptor socket_, output_, inner_;
  pid_t pid_ = -1, inner_pid_ = 0;
  bool printing_ = true;
  std::string printed_;
};

}  // namespace flash::grading
