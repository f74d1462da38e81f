#include "emulator/run/async_copies.hpp"

#include <cstring>

#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;

AsyncCopies::Thread& AsyncCopies::mine() { return threads_[worker_.thread_number()]; }

void AsyncCopies::start_block(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) {
    threads_[i].copies.clear();
    threads_[i].groups = 0;
  }
}

void AsyncCopies::start(void* to, const void* from, int bytes, int valid, std::uintptr_t pc) {
  if (valid < 0 || valid > bytes)
    worker_.fail_at(kOutOfBounds, pc, "cp.async was asked to copy ", valid, " of ", bytes,
                    " bytes.");
  const std::size_t size = unsigned(bytes), copied = unsigned(valid);
  for (const void* const address : {static_cast<const void*>(to), from})
    if (reinterpret_cast<std::uintptr_t>(address) % size != 0 && (address != from || valid > 0))
      worker_.fail_at(kMisaligned, pc, "cp.async: the address that it copies ",
                      address == from ? "from" : "to", " is not a multiple of ", bytes, ".");
  if (Checks* const checks = worker_.checks())
    checks->async_copy_starts(to, from, size, copied, pc);
  std::memset(to, 0xff, size);
  mine().copies.push_back({to, from, size, copied, pc, mine().groups});
}

void AsyncCopies::commit() { ++mine().groups; }

void AsyncCopies::wait(int groups) {
  auto& [copies, committed] = mine();
  std::size_t done = 0;
  for (; done < copies.size() && copies[done].group + groups < committed; ++done) {
    const Copy& copy = copies[done];
    std::memcpy(copy.to, copy.from, copy.valid);
    std::memset(static_cast<char*>(copy.to) + copy.valid, 0, copy.bytes - copy.valid);
    if (Checks* const checks = worker_.checks())
      checks->async_copy_ends(copy.to, copy.bytes, copy.pc);
  }
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(done));
}

void AsyncCopies::thread_returns() {
  if (mine().copies.empty()) return;
  commit();
  wait(0);
}

}  // namespace flash::simt
