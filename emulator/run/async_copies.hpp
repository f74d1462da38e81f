// cp.async in a block: copies are kept in a list for each thread and made by its wait, or when the
// thread returns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/run/turns.hpp"

namespace flash::simt {

class Worker;

class AsyncCopies {
 public:
  explicit AsyncCopies(Worker& worker) : worker_(worker) {}

  void start_block(unsigned threads);
  // What the running thread calls.
  void start(void* to, const void* from, int bytes, int valid, std::uintptr_t pc);
  void commit();
  void wait(int groups);
  void thread_returns();

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes, valid;
    std::uintptr_t pc;
    int group;
  };
  struct Thread {
    std::vector<Copy> copies{};  // not waited for
    int groups = 0;              // committed
  };
  Thread& mine();

  Worker& worker_;
  std::array<Thread, kMostThreads> threads_{};
};

}  // namespace flash::simt
