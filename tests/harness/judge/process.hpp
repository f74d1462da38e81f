// A runner's process: how the judge starts it and ends it, and the messages to and from it. Nothing
// that it says is believed.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "harness/judge/protocol.hpp"

namespace flash::grading {

using SteadyClock = std::chrono::steady_clock;

// The judge itself failed, with what errno says.
[[noreturn]] void broken(const std::string& what);

// A runner's process came to its end during a call, or was ended. The text is for the student.
class RunnerEnded : public KernelError {
 public:
  enum class How { kCrashed, kTimedOut, kNotRun };
  RunnerEnded(How ended, const std::string& text) : KernelError(text), how(ended) {}
  How how;
};

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

// Where a thread of a runner was (protocol.hpp, kWhere), the innermost call first.
struct Where {
  std::uint64_t thread = 0, library = 0;  // which, and where it begins
  std::uint64_t fault = 0, memory = 0;    // the address of a fault, and of the call's memory
  std::int64_t stack = 0;       // bytes of the stack, where there are more than it may have
  bool has_no_address = false;  // the processor refused the access and gave no address
  std::vector<std::uint64_t> addresses;
};

// A command that starts a runner. Its last words are the runner and its libraries.
struct Command {
  std::vector<std::string> words;
  // A person works in it with a debugger: it keeps the judge's terminal as its input and output.
  bool is_attended = false;
};

class Runner {
 public:
  // Starts the command, and does not wait for it.
  explicit Runner(const Command& command);
  ~Runner() { end(); }
  Runner(const Runner&) = delete;

  // Waits until it is about to load the student's code. If it never gets there, the judge ends:
  // that is the fault of the grader or of the machine.
  const Facts& facts();

  // These throw RunnerEnded, with a text for the student, when the process has ended, lies, or
  // takes too long.
  void send(const Message& message, int fd = -1);
  Message receive(double seconds);
  [[noreturn]] void lied();

  // A message that comes within that time. Never ends the process because of the time.
  std::optional<Message> receive_within(double seconds);

  // Asks all threads several times where they are. Only Linux answers.
  void ask_where();
  // What the threads answered since then, or what the runner said in a crash; the busiest thread.
  const std::vector<Where>& where() const { return where_; }
  std::uint64_t busiest_thread() const { return busiest_; }

  // Whether a message comes within so many milliseconds, or the end.
  bool says_something_within(int milliseconds) const;

  void end_because_of_time(double seconds, const std::string& where);

  // What it printed since it was asked last: the beginning and the end where that is long.
  std::string take_output();

  bool was_used() const { return was_used_; }

  pid_t pid() const { return inner_pid_; }  // of the process that holds the student's code

  // How long the process could have run since it began and others did, in seconds; 0 where the
  // kernel does not say. One that sleeps does not wait.
  double waited() const;

  // What the kernel says of the process, in bytes. Nothing where it does not.
  struct Memory {
    std::size_t size = 0, peak = 0;  // its address space, now and the most that it ever had
    std::size_t writable = 0;        // what it can write to, without what the judge has sent
    std::map<std::string, std::size_t> files =
        {};  // what the judge has sent, and what it only reads
  };
  std::optional<Memory> memory() const;
  // The same before it loaded the student's library.
  const std::optional<Memory>& memory_before() const { return memory_before_; }

 private:
  [[noreturn]] static void become(const Command& command, int socket, int output);
  std::optional<Message> received();
  void take_where(const Message& message);
  void drain();
  [[noreturn]] void crashed();
  int end(bool is_ending = false);

  Descriptor socket_, output_, inner_;
  pid_t pid_ = -1, inner_pid_ = 0;
  bool is_attended_, was_used_ = false;
  bool printing_ = true;
  std::string head_, tail_;  // of what it printed
  std::size_t left_out_ = 0;
  std::optional<Facts> facts_;
  std::optional<Memory> memory_before_;
  std::vector<char> unread_;
  std::vector<Where> where_;
  std::uint64_t busiest_ = 0;
};

}  // namespace flash::grading
