// Runs a grid: checks the launch, distributes its blocks to OS threads, collects findings and
// counters.
#include "emulator/run/launch.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "common/error.hpp"
#include "emulator/run/counts.hpp"
#include "emulator/run/device_memory.hpp"
#include "emulator/run/elsewhere.hpp"
#include "emulator/run/events.hpp"
#include "emulator/run/faults.hpp"
#include "emulator/run/runtime.hpp"
#include "emulator/run/shared_memory.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;
namespace {

// Each OS thread has stacks for a block, whose guards take 2048 of the 65000 mappings that a
// process has.
constexpr int kMostOsThreads = 24;
constexpr std::size_t kMostFindings = 5;  // of a launch

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
  const int os_threads = threads_from_environment();
  std::string first_finding;
  std::uint64_t launches = 0;
  bool checking = false;
  bool counts_warps = false;
  bool skips_kernels = false, runs_in_step = false;
  bool goes_on_after_races = false, found_races_only = false;
};

State& state() {
  static State* const instance = new State;  // launches may come from destructors of static objects
  return *instance;
}

// The worker of an OS thread; made when it is first needed, and kept, with its stacks.
Worker& worker_number(std::size_t number) {
  static auto* const workers = new std::vector<std::unique_ptr<Worker>>;
  while (workers->size() <= number) workers->push_back(std::make_unique<Worker>());
  return *(*workers)[number];
}

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

// A race may also show as a read of memory that was not written *yet*: the race is enough. Either
// may have given a number that no integer has. Threads that go past a barrier alone race with those
// that wait there: the barrier comes first.
void order_by_cause(std::vector<Finding>& findings) {
  const std::vector<Finding> all = findings;
  std::erase_if(findings, [&](const Finding& finding) {
    return finding.kind == kUninitialized &&
           std::any_of(all.begin(), all.end(), [&](const Finding& race) {
             return race.kind == kRace &&
                    (race.where == finding.where || race.other == finding.where);
           });
  });
  const auto first = [&](const auto& is_a_cause) {
    std::stable_partition(findings.begin(), findings.end(),
                          [&](const Finding& finding) { return is_a_cause(finding.kind); });
  };
  if (!findings.empty() && findings.front().kind == kUndefined)
    first([](FindingKind kind) { return kind == kRace || kind == kUninitialized; });
  first([](FindingKind kind) { return kind == kBarrierMissed; });
}

// Whether a grid of whole warps with a block of other than whole warps looks as if the two had been
// exchanged.
bool looks_exchanged(const uint3& grid, const uint3& block) {
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z,
                      threads = std::uint64_t{block.x} * block.y * block.z;
  return blocks % 32 == 0 && blocks <= kMostThreads && threads % 32 != 0;
}

}  // namespace

void Launch::add(FindingKind kind, const Location& where, const Location& other,
                 const std::string& text) {
  const std::scoped_lock lock(mutex);
  // A race may also show as a read of memory that was not written yet.
  const auto may_go_on = [&](FindingKind of) {
    return goes_on_after_races && (of == kRace || of == kUninitialized);
  };
  if (findings.size() >= kMostFindings && (stop || may_go_on(kind))) return;
  // A source line may be several instructions, and several OS threads may find the same.
  for (const Finding& known : findings)
    if (known.kind == kind && known.where == where && known.other.line == other.line) return;
  findings.push_back(
      {kind, where, other, text_of("kernel ", call.name, ": ", to_string(kind), text)});
  // Perhaps too few threads were launched to write all of it, or too many.
  if (looks_exchanged(call.grid, call.block))
    findings.back().text +=
        text_of("\nThe launch has a .grid of ", call.grid.x * call.grid.y * call.grid.z,
                " and a .block of ", call.block.x * call.block.y * call.block.z,
                ": are grid and block exchanged?");
  else if (kind == kUninitialized || kind == kOutOfBounds)
    findings.back().text +=
        text_of(" A thread block has ", call.block.x * call.block.y * call.block.z,
                " threads in this launch.");
  if (findings.size() >= kMostFindings)
    stop = !std::all_of(findings.begin(), findings.end(),
                        [&](const Finding& finding) { return may_go_on(finding.kind); });
}

bool Launch::has_races_only() const {
  return std::all_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.kind == kRace; });
}

std::string place_text(const Location& where) {
  return where.line == 0 ? "an unknown place" : text_of(where.file, ":", where.line);
}

int run(const KernelCall& call) {
  if (Worker::current() != nullptr)
    throw Unsupported(text_of(
        call.name, " is launched by a kernel; in the emulator only the host can launch kernels"));
  if (is_elsewhere()) return result(static_cast<cudaError_t>(ask_to_launch(call).error));
  const Module& module = module_of(call.function);
  if (const cudaError_t error = refused(call, module); error != cudaSuccess) return result(error);
  note_launch(call);
  if (module.thread_local_initializer)
    throw Unsupported(text_of(call.name,
                              ": its library has a thread_local or __shared__ variable with an "
                              "initializer; CUDA does not allow initializers for __shared__"));

  // The workers, and the checks' memory of device memory, belong to the process.
  static std::mutex one_at_a_time;
  const std::scoped_lock running(one_at_a_time);
  State& s = state();
  std::unique_lock lock(s.mutex);
  if (s.skips_kernels) return cudaSuccess;
  Launch launch{call,
                module,
                s.runs_in_step ? Schedule{} : s.schedule,
                ++s.launches,
                s.counts_warps || Counts::wanted() != nullptr,
                s.goes_on_after_races,
                s.runs_in_step};
  const std::uint64_t blocks = launch.blocks();
  s.checking |= module.is_checked;
  const std::uint64_t os_threads =
      module.is_checked ? 1 : std::min(blocks, std::uint64_t(s.os_threads));
  lock.unlock();

  install_fault_handler();
  const DeviceMemory::Open open;
  std::atomic<std::uint64_t> next{0};
  const auto work = [&](Worker& worker) {
    use_alternate_signal_stack();
    for (std::uint64_t place; !launch.stop && (place = next.fetch_add(1)) < blocks;)
      worker.run_block(launch, block_at(place, blocks, launch.schedule));
  };
  std::vector<std::future<void>> others;
  for (std::uint64_t number = 1; number < os_threads; ++number)
    others.push_back(std::async(std::launch::async, work, std::ref(worker_number(number))));
  work(worker_number(0));
  for (std::future<void>& other : others) other.get();
  if (Counts* const counts = Counts::wanted(); counts != nullptr && module.is_checked) {
    if (Events* const events = Events::wanted()) events->write(launch, *counts);
    counts->write(launch);
  }

  if (launch.findings.empty()) return cudaSuccess;
  order_by_cause(launch.findings);
  std::string texts;
  for (const Finding& finding : launch.findings)
    texts += (texts.empty() ? "" : "\n") + finding.text;
  lock.lock();
  const bool races_only = launch.has_races_only();
  s.found_races_only = races_only && (s.first_finding.empty() || s.found_races_only);
  if (s.first_finding.empty())
    s.first_finding = s.goes_on_after_races ? texts : launch.findings.front().text;
  if (s.goes_on_after_races && races_only) return cudaSuccess;
  throw KernelError(texts);
}

// ---- simt.hpp -----------------------------------------------------------------------------------

void set_schedule(const Schedule& schedule) {
  const std::scoped_lock lock(state().mutex);
  state().schedule = schedule;
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
    case kInput: return "a write to an input";
    case kMisaligned: return "a misaligned access";
    case kHostMemory: return "an access to host memory";
    case kHostCall: return "a call of a host function";
    case kAsyncCopy: return "a copy or a product that was not waited for";
    case kUndefined: return "arithmetic without a result";
    case kAssertion: return "a failed assertion";
    case kFault: return "a fault";
  }
  return "unknown";
}

std::pair<const void*, std::size_t> device_memory() { return DeviceMemory::instance().arena(); }

std::string first_finding() {
  const std::scoped_lock lock(state().mutex);
  return state().first_finding;
}

void go_on_after_races() {
  const std::scoped_lock lock(state().mutex);
  state().goes_on_after_races = true;
}

bool found_races_only() {
  const std::scoped_lock lock(state().mutex);
  return state().found_races_only;
}

std::size_t workspace_bytes() { return Checks::workspace_bytes; }

SharedAccesses shared_accesses() { return SharedMemory::accesses; }
Work work() {
  Work all = Checks::work;
  all.readers = Checks::readers.count();
  return all;
}

void reset_counters(bool counts_warps) {
  DeviceMemory::instance().reset_traffic();
  SharedMemory::accesses = {};
  Checks::work = {};
  Checks::readers.reset();
  Checks::workspace_bytes = 0;
  const std::scoped_lock lock(state().mutex);
  state().counts_warps = counts_warps;
  state().first_finding.clear();
  state().found_races_only = false;
}

void skip_kernels(bool skipped) {
  const std::scoped_lock lock(state().mutex);
  state().skips_kernels = skipped;
}

void run_in_step(bool in_step) {
  const std::scoped_lock lock(state().mutex);
  state().runs_in_step = in_step;
}

bool checking() {
  const std::scoped_lock lock(state().mutex);
  return state().checking;
}

Traffic traffic(const void* device_memory) {
  const Allocation* const allocation = DeviceMemory::instance().find(device_memory);
  if (allocation == nullptr)
    throw ArgumentError("device_memory does not point to allocated device memory");
  return allocation->shadow.traffic;
}

void name_memory(const void* first_element, const std::string& name, bool is_input) {
  if (Allocation* const allocation = DeviceMemory::instance().find(first_element)) {
    allocation->name = name;
    allocation->first_element = static_cast<const char*>(first_element);
    allocation->shadow.is_tensor = true;
    allocation->shadow.is_input = is_input;
  }
}

void reuse_addresses() { DeviceMemory::instance().reuse_addresses(); }
void let_host_access(bool allowed) { DeviceMemory::instance().change_users(allowed ? 1 : -1); }

void forbid(const void* memory, std::size_t bytes) {
  Allocation* const allocation = DeviceMemory::instance().find(memory);
  if (allocation == nullptr || !allocation->holds(memory, bytes))
    throw ArgumentError("memory to memory + bytes is not inside one allocation of device memory");
  ByteSet& forbidden = allocation->shadow.forbidden;
  if (!forbidden) forbidden = ByteSet(allocation->bytes);
  forbidden.insert(allocation->offset(memory), bytes);
}

}  // namespace flash::simt
