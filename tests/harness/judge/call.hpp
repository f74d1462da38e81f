// The memory of a call: where each tensor lies in it, and what surrounds it.
#pragma once

#include <exception>
#include <vector>

#include "harness/judge/process.hpp"
#include "harness/judge/remote.hpp"

namespace flash::grading {

// Shared memory that nobody can make longer or shorter: behind its end there is nothing.
class Shared {
 public:
  explicit Shared(std::size_t bytes);
  ~Shared();
  Shared(const Shared&) = delete;
  unsigned char* data() const { return static_cast<unsigned char*>(data_); }
  std::size_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

 private:
  std::size_t bytes_;
  Descriptor fd_;
  void* data_ = nullptr;
};

// Unpredictable: what lies around and in outputs is not to be guessed, nor are a board's inputs.
std::uint64_t random_bits();

// How a call's memory looks before it: NaN of a random kind, or random finite numbers.
void fill(unsigned char* data, std::size_t bytes, bool with_nan);

std::size_t span_of(const Argument& of);  // bytes from the first element to behind the last

// The memory of one call: each tensor between guards; one that is partly hidden comes last, and the
// memory ends where it begins to be hidden. Bytes between two tensors are a multiple of 64.
struct Layout {
  std::vector<Placed> placed;
  std::vector<std::size_t> there;  // bytes of each tensor that are in the memory
  std::size_t bytes = 0;           // of the memory
  std::size_t behind = 1 << 20;    // bytes that are mapped behind its end: a touch is a crash

  explicit Layout(const Call& call);

 private:
  void place(const Argument& of, std::size_t n, std::size_t length, bool guarded, bool on_device);
};

// Writes the inputs of a call, and with `outputs` what its outputs hold, to its memory.
void put_arguments(const Call& call, const Layout& layout, unsigned char* memory,
                   bool outputs = false);

// The message kMap of a call in a memory of `bytes`.
Message message_of(const Call& call, std::size_t bytes, const Layout& layout);

// Throws what the message kDone says that student code threw, as it was where a callback threw it.
[[noreturn]] void rethrow(const Message& done, const std::exception_ptr& from_callback);

}  // namespace flash::grading
