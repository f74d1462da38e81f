// Implements worker.hpp, and of kernel_interface.hpp what a running thread calls.
#include "emulator/run/worker.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <iomanip>
#include <map>

#include "common/error.hpp"
#include "common/half.hpp"
#include "emulator/check/checker.hpp"
#include "emulator/hopper/hopper.hpp"

// The variables that kernel_interface.hpp declares as constants.
#define FLASH_SIMT_WRITABLE(name)                             \
  __thread uint3 writable_##name __asm__("flash_simt_" #name) \
      __attribute__((tls_model("initial-exec"), visibility("default")))
FLASH_SIMT_WRITABLE(threadIdx);
FLASH_SIMT_WRITABLE(blockIdx);
FLASH_SIMT_WRITABLE(blockDim);
FLASH_SIMT_WRITABLE(gridDim);
#undef FLASH_SIMT_WRITABLE

namespace flash::simt {

using enum FindingKind;
namespace {

__thread Worker* current_worker __attribute__((tls_model("initial-exec"))) = nullptr;

constexpr unsigned kAtomicsPerTurn = 16;
// How many of them a block may do before a thread reaches a barrier or its end. A lock that 1024
// threads take in turn needs up to 1024 * 1024 * 16.
constexpr std::uint64_t kMostWaits = std::uint64_t{1} << 25;

constexpr unsigned kNobody = ~0u;

// xorshift64*: decides whose turn it is.
std::uint64_t next_random(std::uint64_t& state) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545f4914f6cdd1dull;
}

std::uint64_t random_start(std::uint64_t seed, std::uint64_t block) {
  std::uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15ull ^ (block + 1) * 0xbf58476d1ce4e5b9ull;
  return state != 0 ? state : 1;
}

std::string coordinates(uint3 v) { return text_of("(", v.x, ", ", v.y, ", ", v.z, ")"); }

std::string mask_text(std::uint32_t mask) {
  return text_of("mask 0x", std::hex, std::setw(8), std::setfill('0'), mask);
}

}  // namespace

bool same_site(const Site& a, const Site& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

Location location_of(const Site& site) {
  return {site.file != nullptr ? shown_path(site.file) : std::string(), site.line};
}

std::string ranges(const std::vector<unsigned>& numbers, const char* one, const char* many) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    parts.push_back(last == i
                        ? text_of(numbers[i])
                        : text_of(numbers[i], last > i + 1 ? " to " : " and ", numbers[last]));
    i = last + 1;
  }
  constexpr std::size_t kShown = 4;
  std::string text = std::string(numbers.size() == 1 ? one : many) + " ";
  const std::size_t shown = std::min(parts.size(), kShown);
  for (std::size_t i = 0; i < shown; ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  if (parts.size() > shown) text += text_of(" and others, ", numbers.size(), " in all");
  return text;
}

// ---- a block ------------------------------------------------------------------------------------

Worker::Worker() = default;
Worker::~Worker() = default;

Worker* Worker::current() { return current_worker; }

uint3 Worker::block_index(std::uint64_t block) const {
  const uint3 grid = launch_->call.grid;
  return {static_cast<unsigned>(block % grid.x), static_cast<unsigned>(block / grid.x % grid.y),
          static_cast<unsigned>(block / grid.x / grid.y)};
}

std::string Worker::describe(unsigned number, std::uint64_t block) const {
  return text_of("thread ", coordinates(thread_index(number)), " of ", describe_block(block));
}

std::string Worker::describe_block(std::uint64_t block) const {
  return "block " + coordinates(block_index(block));
}

void Worker::run_block(Launch& launch, std::uint64_t block) {
  launch_ = &launch;
  const KernelCall& call = launch.call;
  count_ = live_ = launch.threads();
  block_ = block;
  if (call.block.x != block_size_.x || call.block.y != block_size_.y ||
      call.block.z != block_size_.z) {
    block_size_ = call.block;
    for (unsigned i = 0; i < count_; ++i)
      thread_indices_[i] = {i % block_size_.x, i / block_size_.x % block_size_.y,
                            i / block_size_.x / block_size_.y};
  }
  writable_gridDim = call.grid;
  writable_blockDim = call.block;
  writable_blockIdx = block_index(block);

  runnable_.reset();
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i] = {};
    wake(i);
  }
  for (unsigned warp = 0; warp * kWarpSize < count_; ++warp) {
    const unsigned lanes = std::min(kWarpSize, count_ - warp * kWarpSize);
    warps_[warp].alive = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
    warps_[warp].groups.clear();
    warps_[warp].synced_lanes = 0;
  }
  arrived_ = 0;
  passed_ = {};
  mismatch_ = false;
  last_words_.reset();
  predicate_sum_ = 0;
  atomics_in_turn_ = 0;
  waits_ = 0;
  random_ = random_start(launch.schedule.seed, block);
  shared_.start_block(launch.module, call.shared_bytes, call.checked);
  hopper_.reset();
  if (call.checked && !own_checker_) own_checker_ = std::make_unique<Checker>(*this, shared_);
  checker_ = call.checked ? own_checker_.get() : nullptr;
  if (checker_ != nullptr) checker_->start_block(count_);

  running_ = turn_of(kMostThreads - 1);  // so that the first turn is next
  resume(pick(), &scheduler_stack_);
  current_worker = nullptr;
  if (checker_ != nullptr) checker_->end_block();
}

void Worker::fiber_entry() { current_worker->run_thread(); }

void Worker::run_thread() {
  try {
    launch_->call.run(launch_->call.arguments);
  } catch (const std::exception& error) {
    fail(kFault, {},
         text_of("The kernel threw an exception, which is impossible on a GPU: ", error.what()));
  } catch (...) {
    fail(kFault, {}, "The kernel threw an exception, which is impossible on a GPU.");
  }
  leave();
}

void Worker::leave() {
  waits_ = 0;
  Thread& thread = threads_[running_];
  if (!thread.copies.empty()) {
    async_commit();
    async_wait(0);
  }
  if (hopper_ != nullptr) {
    hopper_->thread_returns();
    if (live_ == 1) hopper_->block_ends();
  }
  thread.state = State::kReturned;
  runnable_.reset(turn_of(running_));
  --live_;
  const unsigned warp = running_ / kWarpSize;
  warps_[warp].alive &= ~(1u << running_ % kWarpSize);
  for (std::size_t group = warps_[warp].groups.size(); group-- > 0;)
    complete_if_all_there(warp, group);
  if (live_ == 0) back_to_scheduler();
  suspend();
  __builtin_unreachable();  // a thread that has returned is never resumed
}

void Worker::back_to_scheduler() {
  void* abandoned = nullptr;
  flash_simt_switch(&abandoned, scheduler_stack_);
  __builtin_unreachable();
}

// ---- turns --------------------------------------------------------------------------------------

unsigned Worker::turn_of(unsigned thread) const {
  return launch_->schedule.order == Order::kReverse ? kMostThreads - 1 - thread : thread;
}

unsigned Worker::pick() {
  std::size_t turn = launch_->schedule.order == Order::kRandom ? next_random(random_) % count_
                                                               : turn_of(running_) + 1;
  if (turn == kMostThreads || !runnable_[turn]) turn = runnable_._Find_next(turn);  // of libstdc++
  if (turn == kMostThreads) turn = runnable_._Find_first();
  return turn == kMostThreads ? kNobody : turn_of(static_cast<unsigned>(turn));
}

void Worker::suspend() {
  unsigned next = pick();
  while (next == kNobody && hopper_ != nullptr && hopper_->something_completes()) next = pick();
  if (next == kNobody) nobody_can_go_on();
  if (next != running_) switch_to(next);
  if (last_words_) fail_in(running_, last_words_->kind, last_words_->site, last_words_->text);
}

void Worker::resume(unsigned next, void** saved) {
  Thread& thread = threads_[next];
  if (thread.stack_pointer == nullptr)
    thread.stack_pointer = stacks_.prepared(next, &Worker::fiber_entry);
  running_ = next;
  atomics_in_turn_ = 0;
  writable_threadIdx = thread_index(next);
  if (checker_ != nullptr) checker_->running(next);
  current_worker = this;
  flash_simt_switch(saved, thread.stack_pointer);
}

void Worker::pass_turn() {
  const unsigned next = pick();
  if (next != kNobody && next != running_) switch_to(next);
}

void Worker::waited(unsigned atomics) {
  if ((waits_ += atomics) > kMostWaits)
    fail(kDeadlock, {},
         text_of("In ", kMostWaits, " atomic operations (__nanosleep() counts as ", kAtomicsPerTurn,
                 ") no thread reached a barrier or its end: the threads wait for a value that does "
                 "not change.\nThe emulator runs a block to its end before it starts the next, so "
                 "a block cannot wait for a later one."));
}

void Worker::nap() {
  waited(kAtomicsPerTurn);
  pass_turn();
}

void Worker::before_atomic() {
  waited(1);
  if (++atomics_in_turn_ % kAtomicsPerTurn == 0) pass_turn();
}

Worker::Thread& Worker::wait_in(State state, const char* what, Site site) {
  Thread& thread = threads_[running_];
  thread.state = state;
  thread.site = site;
  thread.waits_in = what;
  runnable_.reset(turn_of(running_));
  return thread;
}

void Worker::sleep(const char* what, Site site) {
  waits_ = 0;
  wait_in(State::kAsleep, what, site);
  suspend();
}

void Worker::wake(unsigned number) {
  threads_[number].state = State::kRunnable;
  runnable_.set(turn_of(number));
}

Hopper& Worker::hopper() {
  if (hopper_ == nullptr) hopper_ = std::make_unique<Hopper>(*this);
  return *hopper_;
}

bool Worker::prefers_late() {
  switch (launch_->schedule.order) {
    case Order::kForward: return true;
    case Order::kReverse: return false;
    case Order::kRandom: return next_random(random_) % 2 == 0;
  }
  return true;
}

// ---- the barrier --------------------------------------------------------------------------------

int Worker::barrier(const char* name, Site site, int predicate) {
  waits_ = 0;
  if (arrived_ == 0) {
    barrier_site_ = site;
  } else if (!same_site(site, barrier_site_)) {
    mismatch_ = true;
  }
  predicate_sum_ += predicate;
  if (++arrived_ == count_ && !mismatch_) {
    release_barrier();
    return predicate_result_;
  }
  wait_in(State::kAtBarrier, name, site);
  suspend();
  return predicate_result_;
}

void Worker::release_barrier() {
  predicate_result_ = predicate_sum_;
  predicate_sum_ = 0;
  arrived_ = 0;
  passed_ = barrier_site_;
  for (Warp& warp : warps_) warp.synced_lanes = 0;
  for (unsigned i = 0; i < count_; ++i) wake(i);
  if (checker_ != nullptr) checker_->barrier();
}

// ---- warp operations ----------------------------------------------------------------------------

void Worker::warp_operation(const WarpCall& call) {
  const unsigned warp_number = running_ / kWarpSize, lane = running_ % kWarpSize;
  Warp& warp = warps_[warp_number];
  if ((call.mask >> lane & 1) == 0)
    fail_in(running_, kWarpMismatch, call.site,
            text_of(call.name, ": lane ", lane, " calls it with ", mask_text(call.mask),
                    ", which does not name the lane itself.\n", describe()));
  std::size_t group = 0;
  while (group < warp.groups.size()) {
    const WarpCall& other = warp.groups[group].call;
    if (other.mask == call.mask && other.complete == call.complete &&
        same_site(other.site, call.site))
      break;
    ++group;
  }
  if (group == warp.groups.size()) warp.groups.push_back({call, 0});
  warp.groups[group].arrived |= 1u << lane;
  warp.slots[lane] = call.slot;
  Thread& thread = wait_in(State::kInWarpOperation, call.name, call.site);
  thread.mask = call.mask;
  complete_if_all_there(warp_number, group);
  if (thread.state == State::kInWarpOperation) suspend();
}

void Worker::complete_if_all_there(unsigned warp_number, std::size_t index) {
  Warp& warp = warps_[warp_number];
  const Group& group = warp.groups[index];
  if ((group.call.mask & warp.alive) != group.arrived) return;
  const WarpCall call = group.call;
  const std::uint32_t present = group.arrived;
  if (call.whole_warp && present != ~0u)
    fail_in(warp_number * kWarpSize + unsigned(std::countr_zero(present)), kWarpMismatch, call.site,
            text_of(call.name, " needs all 32 lanes of a warp.\n", waiting_threads()));
  void* slots[kWarpSize] = {};
  for (std::uint32_t rest = present; rest != 0; rest &= rest - 1) {
    const unsigned lane = unsigned(std::countr_zero(rest));
    slots[lane] = warp.slots[lane];
    wake(warp_number * kWarpSize + lane);
  }
  warp.groups.erase(warp.groups.begin() + static_cast<std::ptrdiff_t>(index));
  if (call.orders_memory) {
    warp.synced = call.site;
    warp.synced_lanes = present;
    if (checker_ != nullptr) checker_->warp_sync(warp_number, present);
  }
  if (call.complete != nullptr) call.complete(slots, present);
}

Site Worker::last_sync(unsigned a, unsigned b) const {
  const Warp& warp = warps_[a / kWarpSize];
  const auto took_part = [&warp](unsigned thread) {
    return (warp.synced_lanes >> thread % kWarpSize & 1) != 0;
  };
  return a / kWarpSize == b / kWarpSize && took_part(a) && took_part(b) ? warp.synced : passed_;
}

// ---- cp.async -----------------------------------------------------------------------------------

// Copies are kept in a list for each thread and made by its wait, or when the thread returns.
void Worker::async_copy(void* to, const void* from, int bytes, int valid, std::uintptr_t pc) {
  if (valid < 0 || valid > bytes)
    fail_at(kOutOfBounds, pc, "cp.async was asked to copy ", valid, " of ", bytes, " bytes.");
  const std::size_t size = unsigned(bytes), copied = unsigned(valid);
  for (const void* const address : {static_cast<const void*>(to), from})
    if (reinterpret_cast<std::uintptr_t>(address) % size != 0 && (address != from || valid > 0))
      fail_at(kMisaligned, pc, "cp.async: the address that it copies ",
              address == from ? "from" : "to", " is not a multiple of ", bytes, ".");
  if (checker_ != nullptr) checker_->async_copy_starts(to, from, size, copied, pc);
  std::memset(to, 0xff, size);
  Thread& thread = threads_[running_];
  thread.copies.push_back({to, from, size, copied, pc, thread.copy_groups});
}

void Worker::async_commit() { ++threads_[running_].copy_groups; }

void Worker::async_wait(int groups) {
  auto& copies = threads_[running_].copies;
  std::size_t done = 0;
  for (; done < copies.size() && copies[done].group + groups < threads_[running_].copy_groups;
       ++done) {
    const AsyncCopy& copy = copies[done];
    std::memcpy(copy.to, copy.from, copy.valid);
    std::memset(static_cast<char*>(copy.to) + copy.valid, 0, copy.bytes - copy.valid);
    if (checker_ != nullptr) checker_->async_copy_ends(copy.to, copy.bytes, copy.pc);
  }
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(done));
}

// ---- mistakes -----------------------------------------------------------------------------------

void Worker::fail(FindingKind kind, Location where, const std::string& text) {
  launch_->add(kind, where, {},
               text_of(where.line != 0 ? " at " + place_text(where) : "", "\n", text));
  launch_->stop = true;
  back_to_scheduler();
}

void Worker::fail_in(unsigned thread, FindingKind kind, const Site& site, const std::string& text) {
  if (thread != running_) {
    last_words_ = {kind, site, text};
    switch_to(thread);
    __builtin_unreachable();  // it fails
  }
  const Location own = location_of(site);
  const CallsFromKernel calls = calls_from_kernel(launch_->module, stacks_.top(running_));
  const bool is_in_header = !own.file.ends_with(".cu") && calls.innermost.line != 0;
  const Location where = is_in_header ? calls.innermost : own;
  const bool is_called = calls.outermost.line != 0 && calls.outermost != where;
  fail(kind, where,
       (is_called ? "called at " + place_text(calls.outermost) + "\n" : std::string()) + text);
}

Location Worker::first_sleeper() const {
  const auto thread = std::find_if(threads_.begin(), threads_.begin() + count_,
                                   [](const Thread& each) { return each.state == State::kAsleep; });
  return location_of(thread->site);
}

std::string Worker::waiting_threads() const {
  std::map<std::string, std::vector<unsigned>> groups;
  std::vector<unsigned> returned;
  for (unsigned i = 0; i < count_; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state == State::kReturned) {
      returned.push_back(i);
      continue;
    }
    std::string where = text_of(thread.waits_in, " at ", place_text(location_of(thread.site)));
    if (thread.state == State::kInWarpOperation) where += ", " + mask_text(thread.mask);
    groups[where].push_back(i);
  }
  std::string text;
  for (const auto& [where, numbers] : groups)
    text += ranges(numbers, "thread", "threads") +
            (numbers.size() == 1 ? " waits in " : " wait in ") + where + "\n";
  if (!returned.empty())
    text += ranges(returned, "thread", "threads") + (returned.size() == 1 ? " has" : " have") +
            " returned\n";
  return text_of(text, "of block ", coordinates(block_index(block_)), ", which has ", count_,
                 " threads");
}

void Worker::nobody_can_go_on() {
  const auto first_in = [this](State state) {
    return std::find_if(threads_.begin(), threads_.begin() + count_,
                        [state](const Thread& thread) { return thread.state == state; });
  };
  const auto end = threads_.begin() + count_;
  const auto number = [this](const auto thread) {
    return static_cast<unsigned>(thread - threads_.begin());
  };
  if (hopper_ != nullptr) hopper_->explain_deadlock();
  if (const auto thread = first_in(State::kInWarpOperation); thread != end) {
    fail_in(number(thread), kWarpMismatch, thread->site,
            "A warp operation waits for all lanes in its mask; not all of them have come to it.\n" +
                waiting_threads());
  }
  if (mismatch_)
    fail(kBarrierMismatch, location_of(barrier_site_),
         "All threads of a block have to meet at the same barrier.\n" + waiting_threads());
  if (const auto thread = first_in(State::kAtBarrier); thread != end) {
    fail_in(number(thread), kBarrierMissed, thread->site,
            "All threads of a block have to reach the barrier; some have returned before.\n" +
                waiting_threads());
  }
  __builtin_unreachable();  // threads wait nowhere else
}

std::string shared_text(const Worker& worker, const void* memory) {
  const SharedMemory& shared = worker.shared_memory();
  const auto* const address = static_cast<const char*>(memory);
  if (!shared.window_address(memory)) return "memory that is not shared";
  if (address >= shared.dynamic() && address < shared.dynamic() + shared.dynamic_bytes())
    return text_of("dynamic shared memory, from byte ", address - shared.dynamic());
  const auto offset = static_cast<std::size_t>(address - shared.fixed());
  const Symbol symbol = thread_local_symbol(worker.launch().module, offset);
  if (symbol.name.empty()) return text_of("static shared memory, from byte ", offset);
  return text_of("the shared ", symbol.name, ", from byte ", offset - symbol.offset);
}

// ---- kernel_interface.hpp -----------------------------------------------------------------------

Worker& running_worker(const char* what) {
  if (current_worker == nullptr)
    throw Error(text_of(what, " was called outside of a kernel; only device code may call it"));
  return *current_worker;
}

unsigned thread_number() { return running_worker("a warp operation").thread_number(); }
void* dynamic_shared_memory() {
  return running_worker("dynamic shared memory").dynamic_shared_memory();
}
int barrier(const char* name, Site site, int predicate) {
  return running_worker(name).barrier(name, site, predicate);
}
void warp_operation(const WarpCall& call) { running_worker(call.name).warp_operation(call); }
void nap() { running_worker("__nanosleep").nap(); }

void read_from_absent_lane(const char* name, Site site, int reader, int source) {
  Worker& worker = running_worker(name);
  const unsigned first = worker.thread_number() / kWarpSize * kWarpSize;
  worker.fail_in(first + static_cast<unsigned>(reader), kWarpMismatch, site,
                 text_of(name, ": lane ", reader, " reads from lane ", source,
                         ", which takes no part: it has returned, does not exist, or is not in the "
                         "mask. On a GPU the value is undefined.\n",
                         worker.describe(first + static_cast<unsigned>(reader))));
}

void before_atomic(const volatile void* address, std::size_t bytes, const void* pc) {
  Worker& worker = running_worker("an atomic operation");
  worker.before_atomic();  // first: no other thread may run between the check and the operation
  if (worker.checker() != nullptr)
    worker.checker()->atomic(const_cast<const void*>(address), bytes, call_before(pc));
}

void fence() {
  Worker& worker = running_worker("__threadfence");
  if (worker.checker() != nullptr) worker.checker()->fence();
}

void misaligned(const char* what, Site site, const volatile void* address, std::size_t alignment) {
  Worker& worker = running_worker(what);
  worker.fail_at(kMisaligned, site, what, ": the address has to be a multiple of ", alignment,
                 "; it is ", reinterpret_cast<std::uintptr_t>(address) % alignment,
                 " bytes past one.");
}

std::uint16_t bits_of_float16(double value, int exponent_bits) {
  return exponent_bits == 5 ? Half(value).bits : BFloat16(value).bits;
}
float float_of_float16(std::uint16_t bits, int exponent_bits) {
  return exponent_bits == 5 ? static_cast<float>(Half::from_bits(bits))
                            : static_cast<float>(BFloat16::from_bits(bits));
}

void async_copy(void* to, const void* from, int bytes, int valid) {
  running_worker("cp.async")
      .async_copy(to, from, bytes, valid, call_before(__builtin_return_address(0)));
}
void async_commit() { running_worker("cp.async").async_commit(); }
void async_wait(int groups) { running_worker("cp.async").async_wait(groups); }

}  // namespace flash::simt
