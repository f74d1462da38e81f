// Runs a grid: checks the launch, distributes its blocks to OS threads, collects findings and
// counters.
#include "common/simt/launch.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <thread>

#include "common/error.hpp"
#include "common/simt/checker.hpp"
#include "common/simt/device_memory.hpp"
#include "common/simt/faults.hpp"
#include "common/simt/runtime.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/symbols.hpp"
#include "common/simt/worker.hpp"

namespace flash::simt {

using enum FindingKind;
namespace {

// Each OS thread has stacks for a block, whose guards take 2048 of the 65000 mappings that a
// process has.
constexpr int kMostOsThreads = 24;

int threads_from_environment() {
  const int available = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
  const char* const text = std::getenv("FLASH_SIMT_THREADS");
  if (text == nullptr || *text == '\0') return available;
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  if (*end != '\0' || count < 1 || count > kMostOsThreads)
    throw ArgumentError(text_of("FLASH_SIMT_THREADS is '", text,
                                "'; it must be a whole number from 1 to ", kMostOsThreads));
  return static_cast<int>(count);
}

Schedule schedule_from_environment() {
  const char* const text = std::getenv("FLASH_SIMT_SCHEDULE");
  return text == nullptr || *text == '\0' ? Schedule{} : parse_schedule(text);
}

// What the whole process shares.
struct State {
  std::mutex mutex;
  Schedule schedule = schedule_from_environment();
  int os_threads = threads_from_environment();
  std::uint64_t shared_reads = 0;
  std::vector<Finding> findings;
  std::string first_finding;
  std::uint64_t launches = 0;
  bool checking = false;
};

State& state() {
  static State* const instance = new State;  // launches may come from destructors of static objects
  return *instance;
}

Worker& worker_of_this_thread() {
  thread_local std::unique_ptr<Worker> worker;
  if (!worker) worker = std::make_unique<Worker>();
  return *worker;
}

// OS threads that are kept from launch to launch: each has a worker with its stacks.
class Pool {
 public:
  static Pool& instance() {
    static Pool* const pool = new Pool;
    return *pool;
  }

  // Runs `work` on `count` OS threads, the caller among them. One launch at a time.
  void run(int count, const std::function<void()>& work) {
    const std::scoped_lock one_at_a_time(launch_mutex_);
    {
      const std::scoped_lock lock(mutex_);
      while (static_cast<int>(threads_) < count - 1) {
        std::thread([this] { serve(); }).detach();
        ++threads_;
      }
      work_ = &work;
      wanted_ = count - 1;
      running_ = count - 1;
    }
    wake_.notify_all();
    guarded(work);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return running_ == 0; });
    work_ = nullptr;
    if (const std::exception_ptr error = std::exchange(error_, nullptr))
      std::rethrow_exception(error);
  }

 private:
  // Keeps what `work` throws (no memory for a worker) for the launching thread.
  void guarded(const std::function<void()>& work) {
    try {
      work();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      error_ = std::current_exception();
    }
  }

  [[noreturn]] void serve() {
    while (true) {
      const std::function<void()>* work = nullptr;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return wanted_ > 0; });
        --wanted_;
        work = work_;
      }
      guarded(*work);
      const std::scoped_lock lock(mutex_);
      if (--running_ == 0) done_.notify_one();
    }
  }

  std::mutex launch_mutex_, mutex_;
  std::condition_variable wake_, done_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr error_;
  int threads_ = 0, wanted_ = 0, running_ = 0;
};

// The block that runs as number `place`: forward, backward, or in steps of a large prime from a
// random start.
std::uint64_t block_at(std::uint64_t place, std::uint64_t blocks, const Schedule& schedule) {
  switch (schedule.order) {
    case Order::kForward: return place;
    case Order::kReverse: return blocks - 1 - place;
    case Order::kRandom: {
      constexpr std::uint64_t kPrimes[] = {2147483629, 2147483587, 2147483579, 2147483563};
      const std::uint64_t step = kPrimes[schedule.seed % 4];
      if (blocks % step == 0) return place;
      return (place * step + schedule.seed * 7919) % blocks;  // no common factor: each comes once
    }
  }
  return place;
}

// Whether a GPU has this much shared memory for a block, with the kernel's own __shared__ arrays.
// Throws Unsupported for a kernel that nvcc does not compile.
bool shared_memory_fits(const KernelCall& call, const Module& module) {
  constexpr std::size_t kFew = SharedMemory::kWithoutAsking;
  const std::optional<std::size_t> allowed = allowed_dynamic_shared(call.function);
  if (call.shared_bytes > allowed.value_or(kFew)) return false;
  if (module.thread_local_bytes + call.shared_bytes <= kFew)
    return true;  // with the arrays of all its kernels
  const std::size_t arrays = static_shared_bytes(module, call.function);
  if (arrays > kFew)
    throw Unsupported(text_of(call.name, ": its __shared__ arrays take ", arrays,
                              " bytes; nvcc allows ", kFew,
                              ", and more as dynamic shared memory only (FLASH_DYNAMIC_SHARED)"));
  return arrays + call.shared_bytes <= (allowed ? SharedMemory::kMost : kFew);
}

// cudaSuccess, or why the launch cannot be.
cudaError_t refused(const KernelCall& call, const Module& module) {
  const uint3 g = call.grid, b = call.block;
  const auto within = [](uint3 size, unsigned x, unsigned y, unsigned z) {
    return size.x >= 1 && size.y >= 1 && size.z >= 1 && size.x <= x && size.y <= y && size.z <= z;
  };
  if (!within(g, 0x7fffffff, 65535, 65535) || !within(b, 1024, 1024, 64) ||
      b.x * b.y * b.z > kMostThreads)
    return cudaErrorInvalidConfiguration;
  if (!shared_memory_fits(call, module)) return cudaErrorInvalidValue;
  return cudaSuccess;
}

// A race may also show as a read of memory that was not written *yet*: the race is enough.
void forget_consequences(std::vector<Finding>& findings) {
  const std::vector<Finding> all = findings;
  std::erase_if(findings, [&](const Finding& finding) {
    return finding.kind == kUninitialized &&
           std::any_of(all.begin(), all.end(), [&](const Finding& race) {
             return race.kind == kRace &&
                    (race.where == finding.where || race.other == finding.where);
           });
  });
}

}  // namespace

void Launch::add(FindingKind kind, const Location& where, const Location& other,
                 const std::string& text) {
  const std::scoped_lock lock(mutex_);
  if (findings_.size() >= kMostFindings) return;
  // A source line may be several instructions, and several OS threads may find the same.
  for (const Finding& known : findings_)
    if (known.kind == kind && known.where == where && known.other.line == other.line) return;
  findings_.push_back(
      {kind, call.name, where, other, text_of("kernel ", call.name, ": ", to_string(kind), text)});
  if (findings_.size() == kMostFindings) stop = true;
}

std::string place_text(const Location& where) {
  return where.line == 0 ? "an unknown place" : text_of(where.file, ":", where.line);
}

int run(const KernelCall& call) {
  if (Worker::current() != nullptr)
    throw Unsupported(text_of(
        call.name, " is launched by a kernel; in the emulator only the host can launch kernels"));
  const Module& module = module_of(call.function);
  if (const cudaError_t error = refused(call, module); error != cudaSuccess)
    return set_last_error(error);
  note_enqueued("kernel " + std::string(call.name), call.stream);
  if (module.thread_local_initializer)
    throw Unsupported(text_of(call.name,
                              ": its library has a thread_local or __shared__ variable with an "
                              "initializer; CUDA does not allow initializers for __shared__"));

  State& s = state();
  std::unique_lock lock(s.mutex);
  Launch launch(call, module, s.schedule, ++s.launches);
  const std::uint64_t blocks = launch.blocks();
  s.checking |= call.checked;
  const int os_threads =
      call.checked ? 1 : static_cast<int>(std::min(blocks, std::uint64_t(s.os_threads)));
  lock.unlock();

  // The checks' memory of device memory belongs to the process: one checked launch at a time.
  static std::mutex checked_mutex;
  std::unique_lock one_at_a_time(checked_mutex, std::defer_lock);
  if (call.checked) one_at_a_time.lock();
  install_fault_handler();
  const DeviceMemory::Open open;
  std::atomic<std::uint64_t> next{0};
  const std::function<void()> work = [&] {
    Worker& worker = worker_of_this_thread();
    for (std::uint64_t place; !launch.stop && (place = next.fetch_add(1)) < blocks;)
      worker.run_block(launch, block_at(place, blocks, launch.schedule));
  };
  if (os_threads == 1) {
    work();
  } else {
    Pool::instance().run(os_threads, work);
  }

  lock.lock();
  if (call.checked) s.shared_reads += worker_of_this_thread().checker()->take_shared_reads();
  if (launch.findings_.empty()) return cudaSuccess;
  forget_consequences(launch.findings_);
  if (s.first_finding.empty()) s.first_finding = launch.findings_.front().text;
  std::move(launch.findings_.begin(), launch.findings_.end(), std::back_inserter(s.findings));
  return set_last_error(cudaErrorLaunchFailure);
}

// ---- simt.hpp -----------------------------------------------------------------------------------

void set_schedule(const Schedule& schedule) {
  const std::scoped_lock lock(state().mutex);
  state().schedule = schedule;
}

void set_os_threads(int count) {
  if (count < 1 || count > kMostOsThreads)
    throw ArgumentError(text_of("count is ", count, "; it must be 1 to ", kMostOsThreads));
  const std::scoped_lock lock(state().mutex);
  state().os_threads = count;
}

Schedule parse_schedule(const std::string& text) {
  if (text == "forward") return {Order::kForward, 1};
  if (text == "reverse") return {Order::kReverse, 1};
  if (text.starts_with("random:")) {
    const std::string digits = text.substr(7);
    if (!digits.empty() && digits.size() <= 18 &&
        digits.find_first_not_of("0123456789") == std::string::npos)
      return {Order::kRandom, std::stoull(digits)};
  }
  throw ArgumentError("the schedule is '" + text + "'; it must be forward, reverse or random:SEED");
}

const char* to_string(FindingKind kind) {
  switch (kind) {
    case kBarrierMissed: return "a barrier that not all threads reach";
    case kBarrierMismatch: return "threads that wait at different barriers";
    case kWarpMismatch: return "a warp operation whose lanes do not agree";
    case kWarpgroupMismatch: return "a warpgroup whose threads do not agree";
    case kDeadlock: return "a deadlock";
    case kWrongArgument: return "a wrong argument";
    case kRace: return "a data race";
    case kFence: return "a missing fence";
    case kUninitialized: return "a read of memory that was never written";
    case kOutOfBounds: return "an access out of bounds";
    case kMisaligned: return "a misaligned access";
    case kHostMemory: return "an access to host memory";
    case kAsyncCopy: return "a copy or a product that was not waited for";
    case kFault: return "a fault";
  }
  return "unknown";
}

std::vector<Finding> take_findings() {
  const std::scoped_lock lock(state().mutex);
  return std::exchange(state().findings, {});
}

std::string first_finding() {
  const std::scoped_lock lock(state().mutex);
  return state().first_finding;
}

std::uint64_t shared_reads() {
  const std::scoped_lock lock(state().mutex);
  return state().shared_reads;
}

void reset_counters() {
  DeviceMemory::instance().reset_traffic();
  const std::scoped_lock lock(state().mutex);
  state().shared_reads = 0;
  state().first_finding.clear();
}

bool checking() {
  const std::scoped_lock lock(state().mutex);
  return state().checking;
}

Traffic traffic(const void* device_memory) {
  const Allocation* const allocation = DeviceMemory::instance().find(device_memory);
  if (allocation == nullptr)
    throw ArgumentError("device_memory does not point to allocated device memory");
  return {allocation->shadow.loaded, allocation->shadow.stored};
}

void forbid(const void* memory, std::size_t bytes) {
  Allocation* const allocation = DeviceMemory::instance().find(memory);
  if (allocation == nullptr || !allocation->holds(memory, bytes))
    throw ArgumentError("memory to memory + bytes is not inside one allocation of device memory");
  ByteSet& forbidden = allocation->shadow.forbidden;
  if (!forbidden) forbidden = ByteSet(allocation->bytes);
  forbidden.insert(allocation->offset(memory), bytes);
}

}  // namespace flash::simt
