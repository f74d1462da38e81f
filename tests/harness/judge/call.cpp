#include "harness/judge/call.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>

#include "common/error.hpp"
#include "harness/cases/surroundings.hpp"
#include "harness/judge/ended.hpp"

namespace flash::grading {
namespace {

constexpr std::size_t kGuard = 4096;  // bytes before and behind each tensor
constexpr std::size_t kPage = 4096;
constexpr std::size_t kFar = std::size_t{1} << 30;
constexpr std::size_t kAllocation = 256;  // what an allocation of device memory is aligned to

const unsigned char *hidden_begin = nullptr, *hidden_end = nullptr;

bool is_hidden(const Argument& of) {
  const auto* const data = static_cast<const unsigned char*>(of.data);
  return hidden_begin != nullptr && data < hidden_end && data + span_of(of) >= hidden_begin;
}

// Whether what lies between its two batches is too much to be copied.
bool is_far(const Argument& of) {
  return of.shape[0] == 2 && static_cast<std::size_t>(of.strides[0]) * of.element > kFar;
}

}  // namespace

std::uint64_t random_bits() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

void hide_from_runner(const void* begin, const void* end) {
  hidden_begin = static_cast<const unsigned char*>(begin);
  hidden_end = static_cast<const unsigned char*>(end);
}

bool hides_from_runner() { return hidden_begin != nullptr; }

Shared::Shared(std::size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
#ifdef __linux__
  fd_ = Descriptor(memfd_create("call", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd_.get() < 0 || ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0) broken("memfd");
  if (fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    broken("sealing");
#else
  static int count = 0;
  const std::string name = "/flash-" + std::to_string(getpid()) + "-" + std::to_string(count++);
  fd_ = Descriptor(shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  shm_unlink(name.c_str());
  if (fd_.get() < 0 || ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0) broken("shm_open");
#endif
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (data_ == MAP_FAILED) broken("mmap");
}
Shared::~Shared() { munmap(data_, bytes_); }

void fill(unsigned char* data, std::size_t bytes, bool with_nan) {
  std::uint64_t state = random_bits() | 1;
  for (std::size_t at = 0; at < bytes; at += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::uint64_t word = state;
    // Of two floats, or of one double (whose upper half decides): a quiet NaN, or near 1.
    const std::uint64_t exponents = with_nan ? 0x7ff800007ff80000u : 0x3f8000003f800000u;
    word = (word & 0x0007ffff0007ffffu) | exponents;
    memcpy(data + at, &word, std::min<std::size_t>(8, bytes - at));
  }
}

std::size_t span_of(const Argument& of) {
  std::int64_t last = 0;
  for (int axis = 0; axis < 4; ++axis) {
    if (of.shape[axis] == 0) return 0;
    if (of.strides[axis] < 0) throw std::logic_error("the judge: a negative stride");
    last += (of.shape[axis] - 1) * of.strides[axis];
  }
  return static_cast<std::size_t>(last + 1) * of.element;
}

Layout::Layout(const Call& call) : placed(call.arguments.size()), there(call.arguments.size()) {
  strides.resize(placed.size()), around.resize(placed.size()), around_at.resize(placed.size());
  bytes = kGuard;
  std::vector<std::size_t> far;
  const auto is_output = [](const Argument& of) { return of.output; };
  const auto outputs = std::find_if(call.arguments.begin(), call.arguments.end(), is_output);
  const bool inputs_first = std::all_of(outputs, call.arguments.end(), is_output);
  const auto inputs = static_cast<std::size_t>(outputs - call.arguments.begin());
  for (std::size_t n = 0; n < call.arguments.size(); ++n) {
    const Argument& of = call.arguments[n];
    if (n == inputs && inputs_first && apart == 0 && !call.on_device) {
      read_only = bytes = (bytes + kPage - 1) / kPage * kPage;
      bytes += kGuard;
    }
    std::copy(of.strides, of.strides + 4, strides[n].begin());
    if (is_hidden(of)) {
      hidden = static_cast<int>(n);
    } else if (is_far(of)) {
      const std::size_t bytes_apart = static_cast<std::size_t>(of.strides[0]) * of.element;
      if (apart != 0 && apart != bytes_apart)
        throw std::logic_error("the judge: batches of one call lie differently far apart");
      apart = bytes_apart;
      Argument first = of;
      first.shape[0] = 1;
      place(of, n, span_of(first), true, call.on_device);
      far.push_back(n);
    } else {
      place(of, n, span_of(of), true, call.on_device);
    }
  }
  if (apart != 0) {
    const std::size_t half = (bytes + kPage - 1) / kPage * kPage;
    bytes = 2 * half;
    for (const std::size_t n : far)
      strides[n][0] = static_cast<std::int64_t>(half / placed[n].element);
  }
  if (hidden < 0) return;
  // So that the first hidden byte begins a page.
  const Argument& of = call.arguments[hidden];
  const std::size_t seen =
      static_cast<std::size_t>(hidden_begin - static_cast<const unsigned char*>(of.data));
  bytes = (bytes + seen + kPage - 1) / kPage * kPage - seen;
  place(of, hidden, seen, false, false);
  behind += span_of(of);
}

void Layout::place(const Argument& of, std::size_t n, std::size_t length, bool guarded,
                   bool on_device) {
  auto* const data = static_cast<unsigned char*>(of.data);
  std::size_t before = 0, after = 0;
  if (const auto memory = guarded && apart == 0 ? harness::memory_around(data) : std::nullopt) {
    around[n] = *memory;
    before = static_cast<std::size_t>(data - memory->first);
    after = memory->second - before - length;
  }
  if (on_device) {  // an allocation of its own, in which the tensor is aligned as it is here
    placed[n].begin = bytes = (bytes + kAllocation - 1) / kAllocation * kAllocation;
    bytes += kGuard + before;
    if (before == 0) bytes += reinterpret_cast<std::uintptr_t>(data) % kAllocation;
    placed[n].bytes = bytes - placed[n].begin + length + after + kGuard;
  } else if (guarded) {  // to 16 bytes aligned as it is here
    bytes = (bytes + before + 63) / 64 * 64 + reinterpret_cast<std::uintptr_t>(data) % 16;
  }
  placed[n].element = of.element;
  placed[n].offset = bytes;
  around_at[n] = bytes - before;
  std::copy(of.shape, of.shape + 4, placed[n].shape);
  std::copy(of.strides, of.strides + 4, placed[n].strides);
  there[n] = length;
  bytes += length + after;
  if (guarded) bytes = (bytes + kGuard + 63) / 64 * 64;
}

void rethrow(const Message& done, const std::exception_ptr& from_callback) {
  // What a case threw in a callback comes out as it was; student code cannot make one up.
  if (from_callback) {
    try {
      std::rethrow_exception(from_callback);
    } catch (const std::exception& original) {
      if (original.what() == std::string(done.text)) throw;
    }
  }
  if (done.ended == Ended::kCudaError || done.ended >= Ended::kOther) throw Error(done.text);
  throw_again(done);
}

void put_arguments(const Call& call, const Layout& layout, unsigned char* memory, bool outputs) {
  for (std::size_t n = 0; n < call.arguments.size(); ++n) {
    const Argument& of = call.arguments[n];
    if (of.output && !outputs) continue;
    const auto& [around, bytes] = layout.around[n];
    if (outputs && around != nullptr) {
      memcpy(memory + layout.around_at[n], around, bytes);
      continue;
    }
    for_each_row(of, layout.strides[n].data(),
                 [&](std::size_t from, std::size_t to, std::size_t row) {
                   if (layout.apart == 0 && to >= layout.there[n]) return;
                   if (layout.apart == 0) row = std::min(row, layout.there[n] - to);
                   memcpy(memory + layout.placed[n].offset + to,
                          static_cast<const unsigned char*>(of.data) + from, row);
                 });
  }
}

std::string damage_of(const Call& call, const Layout& layout,
                      const std::vector<unsigned char>& before,
                      const std::vector<unsigned char>& after) {
  if (before == after) return "";
  std::vector<unsigned char> expected = before;  // but for the elements of outputs
  for (std::size_t n = 0; n < call.arguments.size(); ++n) {
    const Argument& of = call.arguments[n];
    const std::size_t begin = layout.placed[n].offset;
    if (!of.output && memcmp(&before[begin], &after[begin], layout.there[n]) != 0)
      return "It changes `" + std::string(of.name) +
             "`, or writes between its elements. Inputs must stay as they are.";
    if (of.output)
      for_each_row(of, layout.strides[n].data(),
                   [&](std::size_t, std::size_t at, std::size_t bytes) {
                     memcpy(&expected[begin + at], &after[begin + at], bytes);
                   });
  }
  if (expected == after) return "";
  const auto different = std::mismatch(after.begin(), after.end(), expected.begin()).first;
  const auto at = static_cast<std::size_t>(different - after.begin());
  std::size_t nearest = 0, distance = static_cast<std::size_t>(-1);
  bool behind = false;
  for (std::size_t n = 0; n < call.arguments.size(); ++n) {
    const std::size_t begin = layout.placed[n].offset, end = begin + layout.there[n];
    const std::size_t away = at < begin ? begin - at : at >= end ? at - end : 0;
    if (away < distance) nearest = n, distance = away, behind = at >= end;
  }
  const Argument& of = call.arguments[nearest];
  const std::size_t bytes = behind ? distance + 1 : distance;  // up to the far end of this one
  const std::string elements = std::to_string((bytes + of.element - 1) / of.element);
  return "It writes outside of `" + std::string(of.name) + "`: " +
         (at >= layout.placed[nearest].offset && !behind
              ? "between its elements."
              : elements + (behind ? " elements behind its last element."
                                   : " elements before its first element."));
}

void take_back(const Call& call, const Layout& layout, const std::vector<unsigned char>& memory) {
  for (std::size_t n = 0; n < call.arguments.size(); ++n) {
    const Argument& of = call.arguments[n];
    const auto& [around, bytes] = layout.around[n];
    const auto shares = [around = around](const auto& other) { return other.first == around; };
    if (around != nullptr &&
        std::count_if(layout.around.begin(), layout.around.end(), shares) == 1) {
      memcpy(around, &memory[layout.around_at[n]], bytes);
    } else if (of.output) {
      for_each_row(of, layout.strides[n].data(),
                   [&](std::size_t to, std::size_t at, std::size_t row) {
                     memcpy(static_cast<unsigned char*>(of.data) + to,
                            &memory[layout.placed[n].offset + at], row);
                   });
    }
  }
}

Message message_of(const Call& call, std::size_t bytes, const Layout& layout) {
  Message message{};
  message.kind = Kind::kMap;
  message.function = call.function;
  message.library = call.library;
  message.stream = call.stream;
  message.counted = static_cast<std::uint64_t>(call.kernels);
  std::string names;
  for (const Argument& of : call.arguments)
    names += std::string(of.output ? "" : kInput) + of.name + "\n";
  set_text(message, names);
  message.apart = layout.apart;
  message.device_bytes = layout.read_only;
  message.bytes = bytes + layout.behind;
  message.views = static_cast<std::uint32_t>(layout.placed.size());
  std::copy(layout.placed.begin(), layout.placed.end(), message.placed);
  std::copy(call.integers.begin(), call.integers.end(), message.integers);
  std::copy(call.numbers.begin(), call.numbers.end(), message.numbers);
  return message;
}

}  // namespace flash::grading
