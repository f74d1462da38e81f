// Implements watched_memory.hpp: pages that may not be accessed, and a handler of the fault that
// notes the address and opens them.
#include "harness/judge/watched_memory.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "common/error.hpp"

namespace flash::harness {
namespace {

// What the handler knows: it is called with nothing but the address.
char *watched_begin = nullptr, *watched_end = nullptr;
char* volatile first_touched = nullptr;
struct sigaction previous_segv, previous_bus;

void note_and_open(int signal, siginfo_t* info, void*) {
  char* const address = static_cast<char*>(info->si_addr);
  if (address < watched_begin ||
      address >=
          watched_end) {  // somebody else's: the instruction faults again, for who was here before
    sigaction(signal, signal == SIGSEGV ? &previous_segv : &previous_bus, nullptr);
    return;
  }
  first_touched = address;
  mprotect(watched_begin, static_cast<std::size_t>(watched_end - watched_begin),
           PROT_READ | PROT_WRITE);
}

}  // namespace

WatchedRows::WatchedRows(Index rows, Index columns)
    : bytes_(static_cast<std::size_t>(rows * columns) * sizeof(float)), columns_(columns) {
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw OutOfMemory("no memory to watch, " + std::to_string(bytes_) + " bytes");
  data_ = static_cast<float*>(memory);
}

WatchedRows::~WatchedRows() {
  if (watched_begin != nullptr) {
    sigaction(SIGSEGV, &previous_segv, nullptr);
    sigaction(SIGBUS, &previous_bus, nullptr);
    watched_begin = watched_end = nullptr;
  }
  munmap(data_, bytes_);
}

void WatchedRows::watch_from(Index first) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t offset = static_cast<std::size_t>(first * columns_) * sizeof(float);
  watched_end = reinterpret_cast<char*>(data_) + bytes_;
  watched_begin =
      std::min(reinterpret_cast<char*>(data_) + (offset + page - 1) / page * page, watched_end);
  first_touched = nullptr;

  struct sigaction action = {};
  action.sa_sigaction = note_and_open;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGBUS, &action, &previous_bus);  // what macOS sends
  mprotect(watched_begin, static_cast<std::size_t>(watched_end - watched_begin), PROT_NONE);
}

std::optional<Index> WatchedRows::touched() const {
  if (first_touched == nullptr) return std::nullopt;
  return static_cast<Index>(first_touched - reinterpret_cast<char*>(data_)) /
         (columns_ * static_cast<Index>(sizeof(float)));
}

}  // namespace flash::harness
