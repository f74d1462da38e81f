// Runs a grid: checks that the launch can be, shares its blocks out to OS threads, collects findings and counters.
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
namespace {

// Each OS thread has stacks for a block, whose guards take 2048 of the 65000 mappings that a process has.
constexpr int kMostOsThreads = 24;

int threads_from_environment() {
  const int available = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
  const char* const text = std::getenv("FLASH_SIMT_THREADS");
  if (text == nullptr || *text == '\0') return available;
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  if (*end != '\0' || count < 1 || count > kMostOsThreads)
    throw ArgumentError("FLASH_SIMT_THREADS is '" + std::string(text) + "'; it must be a whole number from 1 to " + std::to_string(kMostOsThreads));
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
  Counters counters;
  std::vector<Finding> findings;
  std::uint64_t launches = 0;
  bool checking = false;
  Witness* witness = nullptr;
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
    if (const std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
  }

 private:
  // Runs `work`; keeps what it throws (no memory for a worker) for the launching thread.
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

// The number of the block that comes `place`-th: forward, backward, or by a walk through all of them in steps of a large prime,
// from a random start.
std::uint64_t block_at(std::uint64_t place, std::uint64_t blocks, const Schedule& schedule) {
  switch (schedule.order) {
    case Order::kForward: return place;
    case Order::kReverse: return blocks - 1 - place;
    case Order::kRandom: {
      constexpr std::uint64_t kPrimes[] = {2147483629, 2147483587, 2147483579, 2147483563};
      const std::uint64_t step = kPrimes[schedule.seed % 4];
      return blocks % step == 0 ? place : (place * step + schedule.seed * 7919) % blocks;  // no common factor: each comes once
    }
  }
  return place;
}

// Whether a GPU would give a block this much shared memory, the kernel's own __shared__ arrays included. Throws Unsupported for a
// kernel that nvcc would not compile.
bool shared_memory_fits(const KernelCall& call, const Module& module) {
  constexpr std::size_t kFew = SharedMemory::kWithoutAsking;
  const std::optional<std::size_t> allowed = allowed_dynamic_shared(call.function);
  if (call.shared_bytes > allowed.value_or(kFew)) return false;
  if (module.thread_local_bytes + call.shared_bytes <= kFew) return true;  // those of all its kernels: no need to look closer
  const std::size_t arrays = static_shared_bytes(module, call.function);
  if (arrays > kFew)
    throw Unsupported(std::string(call.name) + ": its __shared__ arrays take " + std::to_string(arrays) + " bytes; nvcc allows " +
                      std::to_string(kFew) + ", and more as dynamic shared memory only (FLASH_DYNAMIC_SHARED)");
  return arrays + call.shared_bytes <= (allowed ? SharedMemory::kMost : kFew);
}

// cudaSuccess, or why the launch cannot be.
int refused(const KernelCall& call, const Module& module) {
  const uint3 g = call.grid, b = call.block;
  if (g.x == 0 || g.y == 0 || g.z == 0 || b.x == 0 || b.y == 0 || b.z == 0) return kErrorInvalidConfiguration;
  if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) return kErrorInvalidConfiguration;
  if (b.x > 1024 || b.y > 1024 || b.z > 64) return kErrorInvalidConfiguration;
  if (std::uint64_t{b.x} * b.y * b.z > kMostThreads) return kErrorInvalidConfiguration;
  if (!shared_memory_fits(call, module)) return kErrorInvalidValue;
  return kSuccess;
}

// A race may show as a read of what nobody has written *yet*: then the race says all.
void forget_consequences(std::vector<Finding>& findings) {
  const auto same = [](const Location& a, const Location& b) { return a.file == b.file && a.line == b.line; };
  const auto of_a_race = [&](const Finding& finding) {
    return finding.kind == FindingKind::kUninitialized &&
           std::any_of(findings.begin(), findings.end(), [&](const Finding& race) {
             return race.kind == FindingKind::kRace && (same(race.where, finding.where) || same(race.other, finding.where));
           });
  };
  std::vector<Finding> kept;
  std::copy_if(findings.begin(), findings.end(), std::back_inserter(kept), [&](const Finding& f) { return !of_a_race(f); });
  findings = std::move(kept);
}

}  // namespace

void Launch::add(FindingKind kind, const Location& where, const Location& other, const std::string& text) {
  const std::scoped_lock lock(mutex_);
  if (findings_.size() >= kMostFindings) return;
  // The same source line may be several instructions, and each OS thread finds what the others find.
  for (const Finding& known : findings_)
    if (known.kind == kind && known.where.file == where.file && known.where.line == where.line && known.other.line == other.line)
      return;
  Finding finding;
  finding.kind = kind;
  finding.kernel = call.name;
  finding.where = where;
  finding.other = other;
  finding.text = text;
  findings_.push_back(std::move(finding));
  if (findings_.size() == kMostFindings) stop = true;
}

std::string place_text(const Location& where) {
  return where.line == 0 ? "an unknown place" : where.file + ":" + std::to_string(where.line);
}

int run(const KernelCall& call) {
  if (Worker::current() != nullptr) throw Unsupported(std::string(call.name) + " is launched by a kernel; the emulator launches from the host only");
  const Module& module = module_of(call.function);
  if (const int error = refused(call, module); error != kSuccess) return set_last_error(error);
  if (module.thread_local_initializer)
    throw Unsupported(std::string(call.name) + ": its library has a thread_local or __shared__ variable with an initializer; CUDA has no such __shared__ variables");

  State& s = state();
  std::unique_lock lock(s.mutex);
  Launch launch(call, module, s.schedule, ++s.launches);
  const std::uint64_t blocks = launch.blocks();
  s.checking |= call.checked;
  if (call.checked) launch.witness = s.witness;
  const int os_threads = call.checked ? 1 : static_cast<int>(std::min<std::uint64_t>(blocks, static_cast<std::uint64_t>(s.os_threads)));
  lock.unlock();

  // What the checks remember of device memory belongs to the process: one checked launch at a time.
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

  if (launch.witness != nullptr) launch.witness->end_launch();
  Counters moved;
  if (Checker* const checker = worker_of_this_thread().checker(); checker != nullptr && call.checked) moved = checker->take_moved();
  moved.launches = 1;
  moved.blocks = blocks;
  moved.barriers = launch.barriers;
  moved.warp_operations = launch.warp_operations;
  moved.atomics = launch.atomics;
  lock.lock();
  Counters& sum = s.counters;
  for (const auto field : {&Counters::launches, &Counters::blocks, &Counters::barriers, &Counters::warp_operations,
                           &Counters::global_loaded, &Counters::global_stored, &Counters::shared_loaded, &Counters::shared_stored,
                           &Counters::atomics})
    sum.*field += moved.*field;
  if (launch.findings_.empty()) return kSuccess;
  forget_consequences(launch.findings_);
  for (Finding& finding : launch.findings_) s.findings.push_back(std::move(finding));
  return set_last_error(kErrorLaunchFailure);
}

// ---- simt.hpp ----------------------------------------------------------------------------------------------------------------

void set_schedule(const Schedule& schedule) {
  const std::scoped_lock lock(state().mutex);
  state().schedule = schedule;
}

void set_os_threads(int count) {
  if (count < 1 || count > kMostOsThreads)
    throw ArgumentError("count is " + std::to_string(count) + "; it must be 1 to " + std::to_string(kMostOsThreads));
  const std::scoped_lock lock(state().mutex);
  state().os_threads = count;
}

Schedule parse_schedule(const std::string& text) {
  if (text == "forward") return {Order::kForward, 1};
  if (text == "reverse") return {Order::kReverse, 1};
  const std::string random = "random:";
  if (text.starts_with(random)) {
    const std::string digits = text.substr(random.size());
    if (!digits.empty() && digits.size() <= 18 && digits.find_first_not_of("0123456789") == std::string::npos)
      return {Order::kRandom, std::stoull(digits)};
  }
  throw ArgumentError("the schedule is '" + text + "'; it must be forward, reverse or random:SEED");
}

const char* to_string(FindingKind kind) {
  switch (kind) {
    case FindingKind::kBarrierMissed: return "a barrier that not all threads reach";
    case FindingKind::kBarrierMismatch: return "different barriers met";
    case FindingKind::kWarpMismatch: return "a warp operation whose lanes do not agree";
    case FindingKind::kDeadlock: return "a deadlock";
    case FindingKind::kRace: return "a data race";
    case FindingKind::kUninitialized: return "a read of memory that was never written";
    case FindingKind::kOutOfBounds: return "an access out of bounds";
    case FindingKind::kMisaligned: return "a misaligned access";
    case FindingKind::kHostMemory: return "an access to host memory";
    case FindingKind::kAsyncCopy: return "an asynchronous copy that was not waited for";
    case FindingKind::kFault: return "a fault";
  }
  return "unknown";
}

std::vector<Finding> take_findings() {
  const std::scoped_lock lock(state().mutex);
  return std::exchange(state().findings, {});
}

Counters counters() {
  const std::scoped_lock lock(state().mutex);
  return state().counters;
}

void reset_counters() {
  DeviceMemory::instance().reset_traffic();
  const std::scoped_lock lock(state().mutex);
  state().counters = {};
}

void set_witness(Witness* witness) {
  const std::scoped_lock lock(state().mutex);
  state().witness = witness;
}

bool checking() {
  const std::scoped_lock lock(state().mutex);
  return state().checking;
}

Traffic traffic(const void* device_memory) {
  const Allocation* const allocation = DeviceMemory::instance().find(device_memory);
  if (allocation == nullptr) throw ArgumentError("device_memory is no device memory");
  return {allocation->shadow.loaded, allocation->shadow.stored};
}

void forbid(const void* memory, std::size_t bytes) {
  Allocation* const allocation = DeviceMemory::instance().find(memory);
  const auto* const begin = static_cast<const char*>(memory);
  if (allocation == nullptr || begin < allocation->begin || begin + bytes > allocation->begin + allocation->bytes)
    throw ArgumentError("memory .. memory + bytes is not inside of one allocation of device memory");
  ByteSet& forbidden = allocation->shadow.forbidden;
  if (!forbidden) forbidden = ByteSet(allocation->bytes);
  forbidden.insert(static_cast<std::size_t>(begin - allocation->begin), bytes);
}

}  // namespace flash::simt
