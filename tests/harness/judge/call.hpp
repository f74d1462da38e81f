// The memory of a call: where each tensor lies in it, and what surrounds it.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
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

// use(offset in bytes, bytes) for each piece of a tensor whose elements lie side by side; the
// offsets of two tensors of the same shape come in pairs where `strides` are the other's.
template <class Use>
void for_each_row(const Argument& of, const std::int64_t* other_strides, Use use) {
  // The axes from the largest stride to the smallest, without those of extent 1. The innermost ones
  // whose elements lie side by side are joined to one row.
  struct Axis {
    std::int64_t extent, stride, other;
  };
  std::array<Axis, 4> axes;
  int count = 0;
  for (int axis = 0; axis < 4; ++axis) {
    if (of.shape[axis] == 0) return;
    if (of.shape[axis] > 1)
      axes[count++] = {of.shape[axis], of.strides[axis],
                       other_strides ? other_strides[axis] : of.strides[axis]};
  }
  std::sort(axes.begin(), axes.begin() + count,
            [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  std::int64_t row = 1;  // elements
  while (count > 0 && axes[count - 1].stride == row && axes[count - 1].other == row)
    row *= axes[--count].extent;
  const std::size_t bytes = static_cast<std::size_t>(row) * of.element;
  std::array<std::int64_t, 4> index{};
  std::int64_t at = 0, other = 0;
  for (;;) {
    use(static_cast<std::size_t>(at) * of.element, static_cast<std::size_t>(other) * of.element,
        bytes);
    int axis = count - 1;
    for (; axis >= 0; --axis) {
      at += axes[axis].stride, other += axes[axis].other;
      if (++index[axis] < axes[axis].extent) break;
      at -= index[axis] * axes[axis].stride, other -= index[axis] * axes[axis].other;
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

// The memory of one call: each tensor between guards, with what its case has laid around it. A
// tensor that is partly hidden comes last, and the memory ends where its hidden part begins. Bytes
// between two tensors are a multiple of 64.
//
// If batches lie far apart, the second half of the memory holds the second batch of each tensor,
// and the runner maps that half `apart` bytes behind the first.
struct Layout {
  std::vector<Placed> placed;                        // as the runner finds them
  std::vector<std::size_t> there;                    // bytes of each tensor that are in the memory
  std::vector<std::array<std::int64_t, 4>> strides;  // in this memory, in elements
  std::vector<std::pair<unsigned char*, std::size_t>> around;  // what a case has laid around it
  std::vector<std::size_t> around_at;                          // and where that begins here
  std::size_t bytes = 0;                                       // of the memory
  std::size_t behind = kBehind;  // bytes that are mapped behind its end
  std::size_t apart = 0;
  std::size_t read_only =
      0;            // bytes at the beginning that hold inputs alone: of a call on the host
  int hidden = -1;  // the tensor of which a part is hidden, or what lies behind it

  explicit Layout(const Call& call);

 private:
  void place(const Argument& of, std::size_t n, std::size_t length, bool guarded, bool on_device);
};

// Writes the inputs of a call to its memory; with `outputs` also what its outputs hold now.
void put_arguments(const Call& call, const Layout& layout, unsigned char* memory,
                   bool outputs = false);

// In words, what a call did to its inputs and to the memory around its tensors; "" if nothing.
std::string damage_of(const Call& call, const Layout& layout,
                      const std::vector<unsigned char>& before,
                      const std::vector<unsigned char>& after);

// Copies what the call left in its memory to the caller's tensors.
void take_back(const Call& call, const Layout& layout, const std::vector<unsigned char>& memory);

// The message kMap of a call in a memory of `bytes`.
Message message_of(const Call& call, std::size_t bytes, const Layout& layout);

// Throws what student code threw, as kDone says; if a callback of a case threw it, that same one.
[[noreturn]] void rethrow(const Message& done, const std::exception_ptr& from_callback);

}  // namespace flash::grading
