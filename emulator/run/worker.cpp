// Implements worker.hpp: a block, its fibers, and the diagnosis when no thread can continue.
#include "emulator/run/worker.hpp"

#include <algorithm>
#include <exception>

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

// By this name the judge's code asks whether a kernel runs.
__thread Worker* current_worker __asm__("flash_simt_worker")
    __attribute__((tls_model("initial-exec"), visibility("default"))) = nullptr;

namespace {

constexpr unsigned kAtomicsPerTurn = 16;
// How many of them a block may do before a thread reaches a barrier or its end. A lock that 1024
// threads take in turn needs up to 1024 * 1024 * 16.
constexpr std::uint64_t kMostWaits = std::uint64_t{1} << 25;

}  // namespace

Worker::Worker() = default;
Worker::~Worker() = default;

Worker* Worker::current() { return current_worker; }

// ---- a block ------------------------------------------------------------------------------------

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

  turns_.start_block(launch.schedule, count_, block);
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i] = {};
    wake(i);
  }
  barrier_.start_block();
  warps_.start_block(count_);
  async_copies_.start_block(count_);
  units_.reset();
  last_words_.reset();
  atomics_in_turn_ = 0;
  waits_ = 0;
  const bool is_checked = launch.module.is_checked;
  shared_.start_block(launch.module, call.shared_bytes, is_checked);
  if (is_checked && !own_checks_) own_checks_ = make_checks(*this, shared_);
  checks_ = is_checked ? own_checks_.get() : nullptr;
  if (checks_ != nullptr) checks_->start_block(count_);

  running_ = turns_.before_the_first();
  resume(turns_.next(running_), &scheduler_stack_);
  current_worker = nullptr;
  if (checks_ != nullptr) checks_->end_block();
}

void Worker::fiber_entry() { current_worker->run_thread(); }

// A kernel may write to these frames, too, as if they were its own. Nothing of them is read when it
// has returned but registers, of which judged code keeps copies (checker.hpp).
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
  async_copies_.thread_returns();
  if (units_ != nullptr) {
    units_->thread_returns();
    if (live_ == 1) units_->block_ends();
  }
  threads_[running_].waiting = Waiting::kReturned;
  turns_.set_waiting(running_);
  --live_;
  warps_.thread_returns(running_);
  if (live_ == 0) back_to_scheduler();
  suspend();
  __builtin_unreachable();  // a thread that has returned is never resumed
}

void Worker::back_to_scheduler() {
  void* abandoned = nullptr;
  flash_simt_switch(&abandoned, scheduler_stack_);
  __builtin_unreachable();
}

// ---- switches -----------------------------------------------------------------------------------

void Worker::suspend() {
  unsigned next = turns_.next(running_);
  while (next == kNobody && units_ != nullptr && units_->something_completes())
    next = turns_.next(running_);
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
  if (checks_ != nullptr) checks_->running(next);
  current_worker = this;
  flash_simt_switch(saved, thread.stack_pointer);
}

void Worker::pass_turn() {
  const unsigned next = turns_.next(running_);
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

void Worker::nap(unsigned nanoseconds) {
  if (checks_ != nullptr) checks_->nap(nanoseconds);
  waited(kAtomicsPerTurn);
  pass_turn();
}

void Worker::before_atomic() {
  waited(1);
  if (++atomics_in_turn_ % kAtomicsPerTurn == 0) pass_turn();
}

void Worker::start_waiting(Waiting how, const char* what, Site site, std::uint32_t mask) {
  Thread& thread = threads_[running_];
  thread.waiting = how;
  thread.site = site;
  thread.waits_in = what;
  thread.mask = mask;
  turns_.set_waiting(running_);
}

void Worker::wake(unsigned number) {
  threads_[number].waiting = Waiting::kNot;
  turns_.set_runnable(number);
}

void Worker::sleep(const char* what, Site site) {
  waits_ = 0;
  wait(Waiting::kAsleep, what, site);
}

int Worker::barrier(const char* name, Site site, int predicate) {
  waits_ = 0;
  return barrier_.come(name, site, predicate);
}

void Worker::all_have_met() {
  warps_.barrier();
  for (unsigned i = 0; i < count_; ++i) wake(i);
  if (checks_ != nullptr) checks_->barrier();
}

Site Worker::last_sync(unsigned a, unsigned b) const {
  const Site* const in_warp = warps_.last_sync(a, b);
  return in_warp != nullptr ? *in_warp : barrier_.passed();
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

unsigned Worker::first_in(Waiting how) const {
  for (unsigned i = 0; i < count_; ++i)
    if (threads_[i].waiting == how) return i;
  return kNobody;
}

void Worker::nobody_can_go_on() {
  if (units_ != nullptr) units_->explain_deadlock();
  if (const unsigned thread = first_in(Waiting::kInWarpOperation); thread != kNobody) {
    fail_in(thread, kWarpMismatch, threads_[thread].site,
            "A warp operation waits for all lanes in its mask; not all of them have come to it.\n" +
                waiting_threads());
  }
  if (barrier_.mismatch())
    fail(kBarrierMismatch, location_of(barrier_.site()),
         "All threads of a block have to meet at the same barrier.\n" + waiting_threads());
  if (const unsigned thread = first_in(Waiting::kAtBarrier); thread != kNobody) {
    fail_in(
        thread, kBarrierMissed, threads_[thread].site,
        "All threads of a block have to reach the barrier; some have skipped it or returned.\n" +
            waiting_threads());
  }
  __builtin_unreachable();  // threads wait nowhere else
}

}  // namespace flash::simt
