#include "common/cpu/threads.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "common/checks.hpp"

namespace flash {
namespace {

constexpr int kMostThreads = 1024;

// A waiting thread looks again for this long before it sleeps: waking one takes about as long, and
// passes follow each other closely.
constexpr std::chrono::microseconds kSpin{50};

int default_threads() {
  const char* const text = std::getenv("FLASH_THREADS");
  if (text == nullptr || *text == '\0')
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
  char* end = nullptr;
  const long threads = std::strtol(text, &end, 10);
  if (*end != '\0' || threads < 1 || threads > kMostThreads)
    throw ArgumentError(std::string("FLASH_THREADS is '") + text +
                        "'; it must be a whole number from 1 to 1024");
  return static_cast<int>(threads);
}

// Returns when value is no longer `old`.
template <class T>
void wait_while(const std::atomic<T>& value, T old) {
  const auto start = std::chrono::steady_clock::now();
  while (value.load(std::memory_order_acquire) == old) {
    if (std::chrono::steady_clock::now() - start > kSpin) {
      value.wait(old, std::memory_order_acquire);
      return;
    }
  }
}

class Pool {
 public:
  explicit Pool(int threads) {
    try {
      for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      stop();
      throw Error("threads is " + std::to_string(threads) + "; the system started " +
                  std::to_string(workers_.size() + 1) + ": " + error.what());
    }
  }
  ~Pool() { stop(); }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  void run(Index tasks, ParallelBody* body, void* context) {
    body_ = body;
    context_ = context;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    thrown_ = nullptr;
    start();
    take_tasks();
    for (int busy = busy_.load(std::memory_order_acquire); busy > 0;
         busy = busy_.load(std::memory_order_acquire))
      wait_while(busy_, busy);
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  void start() {
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }

  void stop() {
    body_ = nullptr;
    start();
    for (std::thread& worker : workers_) worker.join();
  }

  void take_tasks() {
    try {
      for (Index task = next_.fetch_add(1, std::memory_order_relaxed); task < tasks_;
           task = next_.fetch_add(1, std::memory_order_relaxed))
        body_(context_, task);
    } catch (...) {
      next_.store(tasks_, std::memory_order_relaxed);
      const std::lock_guard lock(thrown_mutex_);
      thrown_ = std::current_exception();
    }
  }

  void work() {
    for (unsigned round = 0;;) {
      wait_while(round_, round);
      ++round;
      if (body_ == nullptr) return;
      take_tasks();
      if (busy_.fetch_sub(1, std::memory_order_release) == 1) busy_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  std::atomic<unsigned> round_{0};
  std::atomic<int> busy_{0};
  std::atomic<Index> next_{0};
  ParallelBody* body_ = nullptr;
  void* context_ = nullptr;
  Index tasks_ = 0;
  std::mutex thrown_mutex_;
  std::exception_ptr thrown_;
};

std::mutex mutex;  // of everything below, and held while tasks run
int wanted_threads = 0;
std::unique_ptr<Pool> pool;

int threads_locked() {
  if (wanted_threads == 0) wanted_threads = default_threads();
  return wanted_threads;
}

}  // namespace

int host_threads() {
  const std::lock_guard lock(mutex);
  return threads_locked();
}

void set_host_threads(int threads) {
  check_between("threads", threads, 1, kMostThreads);
  const std::lock_guard lock(mutex);
  wanted_threads = threads;
}

void stop_threads() {
  const std::lock_guard lock(mutex);
  pool.reset();
}

void parallel_tasks(Index tasks, ParallelBody* body, void* context) {
  const std::lock_guard lock(mutex);
  if (!pool || pool->threads() != threads_locked()) {
    pool.reset();
    pool = std::make_unique<Pool>(threads_locked());
  }
  pool->run(tasks, body, context);
}

}  // namespace flash
