#include "emulator/check/checker.hpp"

#include <bit>

#include "emulator/run/device_memory.hpp"
#include "emulator/run/events.hpp"
#include "emulator/run/shared_memory.hpp"

namespace flash::simt {
namespace {

// As many as a GPU makes, of at most 16 bytes. g++ puts those of a structure together, also where
// its address is no multiple of that.
std::uint64_t reads_of(const void* address, std::size_t bytes) {
  const std::size_t most = std::min<std::size_t>(bytes, 16);
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(address) % most == 0;
  return is_aligned ? (bytes + 15) / 16 : (bytes + 3) / 4;
}

}  // namespace

using enum FindingKind;

__thread Checker* active_checker __attribute__((tls_model("initial-exec"))) = nullptr;
__thread std::uint64_t flash_simt_work = 0;
__thread std::ptrdiff_t flash_simt_copy = 0;

std::unique_ptr<Checks> make_checks(Worker& worker, SharedMemory& shared) {
  return std::make_unique<Checker>(worker, shared);
}

void Checker::start_block(unsigned threads) {
  const Launch& launch = worker_.launch();
  is_first_block_ = number_of_launch_ != launch.number;
  if (is_first_block_) {
    number_of_launch_ = launch.number;
    module_base_ = launch.module.base;
    counts_warps_ = launch.counts_warps;
    is_in_step_ = launch.is_in_step;
    reported_.clear();
    compared_.clear();
    perhaps_compared_.clear();
    perhaps_races_.clear();
    places_.start_launch(launch.module);
    clocks_.start_launch();
    changed_at_.clear();
  }
  if (clocks_.is_wide()) registers_ = {};
  uses_registers_ = false;
  clocks_.start_block(threads, worker_.block_number());
  std::fill_n(work_.begin(), threads, 0);
  std::fill_n(waited_.begin(), threads, 0);
  time_ = 0;
  changed_in_block_.clear();
  work_before_ = flash_simt_work;
  if (Counts::wanted() != nullptr) straight_code_.start_block();
  threads_ = threads;
  lowest_ = stack_top_;
  active_checker = this;
  flash_simt_copy = copy_.data() - worker_.stacks().begin(0) + FiberStacks::kGuard;
  if (Events* const events = Events::wanted()) events->start_block(worker_.block_number());
}

void Checker::end_block() {
  warp_accesses_.count_all(threads_);
  active_checker = nullptr;
  flash_simt_copy = 0;
  for (const auto& [read, lines] : perhaps_compared_)
    if (compared_.count(read) == 0 && is_new(kRace, lines.first, lines.second))
      add(perhaps_races_.at(lines));
  perhaps_compared_.clear();
  perhaps_races_.clear();
  count_work();
  if (Counts::wanted() != nullptr) straight_code_.meet(threads_), straight_code_.end_block();
  count_local_bytes();
  count_shared_bytes();
  share_work();
  work.threads = std::max<std::uint64_t>(work.threads, threads_);
  DeviceMemory::instance().end_block(is_first_block_);
}

void Checker::barrier() {
  warp_accesses_.count_all(threads_);
  count_work();
  share_work();
  if (Counts* const counts = Counts::wanted()) counts->met = straight_code_.meet(threads_);
  clocks_.barrier();
  if (Events* const events = Events::wanted()) events->barrier();
}

void Checker::count_work() {
  work_[clocks_.thread()] += flash_simt_work - work_before_;
  work_before_ = flash_simt_work;
  if (Counts::wanted() != nullptr) straight_code_.ran(clocks_.thread());
}

void Checker::share_work() {
  std::uint64_t busiest = 0;
  for (unsigned thread = 0; thread < threads_; ++thread) {
    work.reads += work_[thread];
    busiest = std::max(busiest, work_[thread] + waited_[thread]);
    if (work_[thread] > 0) readers.set(thread);
  }
  work.busiest += busiest;
  time_ += busiest;
  std::fill_n(work_.begin(), threads_, 0);
  std::fill_n(waited_.begin(), threads_, 0);
}

void Checker::lanes_meet(unsigned warp, std::uint32_t lanes) {
  count_work();
  const auto each = [&](auto use) {
    for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1)
      use(warp * kWarpSize + static_cast<unsigned>(std::countr_zero(rest)));
  };
  std::uint64_t last = 0;
  each([&](unsigned thread) { last = std::max(last, time_of(thread)); });
  each([&](unsigned thread) { wait_until(thread, last); });
}

void Checker::count_local_bytes() {
  const auto bytes = static_cast<std::size_t>(stack_top_ - lowest_);
  if (bytes <= local_memory.bytes) return;
  const Launch& launch = worker_.launch();
  local_memory = {bytes, launch.call.name, &launch.module, lowest_pc_};
}

// The arrays of all kernels of the file, and of the functions that they call, lie in one place. A
// launch knows those of its kernel; what others a block writes to shows here.
void Checker::count_shared_bytes() {
  SharedMemory& memory = places_.shared();
  const std::size_t fixed = memory.fixed_bytes();
  if (fixed <= SharedMemory::kMost) return;
  std::size_t bytes = memory.dynamic_bytes();
  for (std::size_t begin = 0; begin < fixed; begin += 64)
    bytes += static_cast<std::size_t>(std::popcount(
        memory.fixed_shadow().initialized.bits(begin, std::min<std::size_t>(64, fixed - begin))));
  if (bytes > SharedMemory::kMost)
    add({kOutOfBounds,
         {},
         {},
         text_of("\nA thread block has ", bytes, " bytes of shared memory in use, and a GPU has ",
                 SharedMemory::kMost, " for it.")});
}

void Checker::running(unsigned thread) {
  count_work();
  count_local_bytes();
  clocks_.running(thread);
  stack_begin_ = worker_.stacks().begin(thread);
  stack_top_ = lowest_ = worker_.stacks().top(thread);
}

// ---- accesses -----------------------------------------------------------------------------------

inline bool Checker::adds_nothing(const char* begin, std::size_t bytes) {
  SharedMemory& memory = places_.shared();
  Shadow* shadow = &memory.dynamic_shadow();
  auto offset = static_cast<std::size_t>(begin - memory.dynamic());
  std::size_t size = memory.dynamic_bytes();
  if (offset >= size) {
    shadow = &memory.fixed_shadow();
    offset = static_cast<std::size_t>(begin - memory.fixed());
    size = memory.fixed_bytes();
  }
  if (offset >= size || bytes > size - offset || !counts_ || counts_warps_ || shadow->pending ||
      shadow->forbidden || !shadow->initialized.has_all(offset, bytes) ||
      !shadow->cells.are_whole(offset, bytes))
    return false;
  const auto [first, end] = shadow->cells.of(offset, bytes);
  for (const Cell* cell = first; cell != end; ++cell)
    if (!is_read_by_many(*cell, false)) return false;
  shadow->traffic.loaded_bytes += bytes;
  SharedMemory::accesses.reads += reads_of(begin, bytes);
  work_[clocks_.thread()] += reads_of(begin, bytes);
  return true;
}

void Checker::read_elsewhere(const char* begin, std::size_t bytes, std::uintptr_t pc) {
  reaches(__builtin_frame_address(0), pc);
  if (!adds_nothing(begin, bytes)) access_shared({begin, bytes, AccessKind::kRead, pc});
  end_step();
}

void Checker::write_elsewhere(const char* begin, std::size_t bytes, std::uintptr_t pc) {
  reaches(__builtin_frame_address(0), pc);
  access_shared({begin, bytes, AccessKind::kWrite, pc});
  end_step();
}

void Checker::access_shared(Touch touch) {
  if (!places_.find(touch)) return outside(touch);
  check(touch);
}

void Checker::access_by_emulator(const void* address, std::size_t bytes, bool is_write,
                                 std::uintptr_t pc) {
  counts_ = false;
  access(address, bytes, is_write, pc);
  counts_ = true;
}

void Checker::atomic(const void* address, std::size_t bytes, std::uintptr_t pc, bool compares) {
  Touch touch{static_cast<const char*>(address), bytes, AccessKind::kAtomic, pc};
  if (!places_.find(touch)) return outside(touch);
  count_work();
  std::uint64_t& changed =
      (touch.place.is_global ? changed_at_
                             : changed_in_block_)[reinterpret_cast<std::uintptr_t>(address) / 8];
  wait_until(clocks_.thread(), changed);
  changed = time_of(clocks_.thread());
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    touch.bytes = 1;  // the text has the size already
    stop(kMisaligned, pc,
         text_of(" changes ", bytes_text(bytes), " at ", places_.text(touch),
                 ": the address is not a multiple of ", bytes, "."));
  }
  if (compares) {
    const auto [first, end] = touch.place.shadow->cells.of(touch.offset(), bytes);
    for (const int slot : {Cell::kReader, Cell::kOtherReader})
      if (first->actor(slot) == clocks_.thread() && clocks_.is_since_barrier(first->time[slot]))
        compared_.insert({first->pc[slot], first});
  }
  check(touch);
  clocks_.synchronize(address, touch.place.is_global);
}

void Checker::async_copy_starts(const void* to, const void* from, std::size_t bytes,
                                std::size_t valid, std::uintptr_t pc) {
  if (valid > 0) access(from, valid, false, pc);
  copied_from_ = valid > 0 ? from : nullptr;
  access(to, bytes, true, pc);
  copied_from_ = nullptr;
  Touch touch{static_cast<const char*>(to), bytes, AccessKind::kWrite, pc};
  if (!places_.find(touch) || touch.place.is_global)
    stop(kOutOfBounds, pc, ": cp.async copies to an address that is not in shared memory.");
  Shadow& shadow = *touch.place.shadow;
  if (!shadow.pending) shadow.pending = ByteSet(shadow.bytes);
  shadow.pending.insert(touch.offset(), bytes);
  shadow.initialized.remove(touch.offset(), bytes);
}

void Checker::async_copy_ends(const void* to, std::size_t bytes, std::uintptr_t pc) {
  Touch touch{static_cast<const char*>(to), bytes, AccessKind::kWrite, pc};
  if (!places_.find(touch)) return;
  touch.place.shadow->pending.remove(touch.offset(), bytes);
  access_by_emulator(to, bytes, true, pc);  // the bytes were counted when the copy started
}

void Checker::async_access(const AsyncStep& step, const void* address, std::size_t bytes,
                           AccessKind kind) {
  constexpr std::size_t kPiece = 64;  // what the shadow looks up at once
  const auto* begin = static_cast<const char*>(address);
  for (; bytes > kPiece; begin += kPiece, bytes -= kPiece) async_access(step, begin, kPiece, kind);
  Touch touch{begin, bytes, kind, step.pc, &step};
  if (!places_.find(touch)) return outside(touch);
  check(touch);
}

void Checker::async_write_starts(const AsyncStep& step, const void* address, std::size_t bytes) {
  async_access(step, address, bytes, AccessKind::kWrite);
  Touch touch{static_cast<const char*>(address), bytes, AccessKind::kWrite, step.pc, &step};
  if (places_.find(touch)) touch.place.shadow->initialized.remove(touch.offset(), bytes);
}

void Checker::async_write_ends(const void* address, std::size_t bytes) {
  Touch touch{static_cast<const char*>(address), bytes, AccessKind::kWrite, 0};
  if (places_.find(touch)) touch.place.shadow->initialized.insert(touch.offset(), bytes);
}

void Checker::outside(const Touch& touch) {
  if (const auto trespass = places_.trespass(touch))
    stop(trespass->kind, touch.pc, verb(touch.kind) + trespass->text);
}

void Checker::count(const Touch& touch) {
  if (!counts_) return;
  Traffic& traffic = touch.place.shadow->traffic;
  if (touch.kind != AccessKind::kWrite) {
    traffic.loaded_bytes += touch.bytes;
    const std::uint64_t reads = reads_of(touch.address, touch.bytes);
    if (!touch.place.is_global) SharedMemory::accesses.reads += reads;
    if (touch.step == nullptr) work_[clocks_.thread()] += reads;
  }
  if (touch.kind != AccessKind::kRead) traffic.stored_bytes += touch.bytes;
  // A workspace: memory of no tensor where it is written, outputs where they are read back.
  const Shadow& shadow = *touch.place.shadow;
  if (touch.place.is_global &&
      (shadow.is_tensor ? !shadow.is_input && touch.kind != AccessKind::kWrite
                        : touch.kind != AccessKind::kRead))
    workspace_bytes += touch.bytes;
  if (!counts_warps_) return;
  if (touch.kind == AccessKind::kAtomic) {
    if (!touch.place.is_global) WarpAccesses::count_alone(touch);  // one lane after the other
    return;
  }
  const unsigned thread = clocks_.thread();
  if (Counts* const lines = Counts::wanted()) {
    lines->come(touch.pc, worker_.launch().module, worker_.stacks().top(thread));
    if (Events* const events = Events::wanted())
      events->touch(touch.pc, thread, touch.place.is_global ? touch.place.begin : nullptr,
                    places_.shared().window_address(touch.address).value_or(touch.offset()),
                    touch.bytes, touch.kind == AccessKind::kRead);
  }
  if (touch.step == nullptr) warp_accesses_.add(thread, touch, copied_from_);
}

void Checker::happens(std::uintptr_t pc, const char* what, const void* object,
                      std::uint64_t number) {
  Events* const events = Events::wanted();
  if (events == nullptr) return;
  const unsigned thread = worker_.thread_number();
  Counts::wanted()->come(pc, worker_.launch().module, worker_.stacks().top(thread));
  events->happens(pc, what, thread / 32, places_.shared().window_address(object).value_or(0),
                  number);
}

// ---- what is wrong with them --------------------------------------------------------------------

void Checker::check_bytes(const Touch& touch) {
  const auto& [address, bytes, kind, pc, step, place] = touch;
  Shadow& shadow = *place.shadow;
  const std::size_t offset = touch.offset();
  if (shadow.forbidden && shadow.forbidden.bits(offset, bytes) != 0) outside(touch);
  if (shadow.is_input && kind != AccessKind::kRead)
    stop(kInput, pc, verb(kind) + places_.text(touch) + ": inputs must stay as they are.");
  count(touch);
  if (shadow.pending && shadow.pending.bits(offset, bytes) != 0)
    stop(kAsyncCopy, pc,
         text_of(words_.call(touch), kind == AccessKind::kRead ? " reads " : " changes ",
                 places_.text(touch),
                 ": the target of a cp.async that its thread has not waited for."));
  if (kind != AccessKind::kWrite && !shadow.initialized.has_all(offset, bytes))
    found(kUninitialized, pc, 0, [&](const std::string&, const std::string&) {
      const int unwritten = static_cast<int>(touch.bytes) -
                            std::popcount(shadow.initialized.bits(offset, touch.bytes));
      return text_of(worker_.describe(), words_.call(touch), " reads ", places_.text(touch),
                     unwritten == static_cast<int>(touch.bytes)
                         ? ", which nobody has written."
                         : text_of(". Nobody has written ", unwritten, " of these bytes."));
    });
  if (kind != AccessKind::kRead) shadow.initialized.insert(offset, bytes);
}

void Checker::check(const Touch& touch) {
  check_bytes(touch);
  const AsyncStep* const step = touch.step;
  const bool is_read = touch.kind == AccessKind::kRead, is_global = touch.place.is_global;
  const Access me{
      .time = step == nullptr ? clocks_.my_time() : step->time,
      .pc = static_cast<std::uint32_t>(touch.pc - module_base_),
      .thread = static_cast<std::uint16_t>(step == nullptr ? clocks_.thread() : step->agent),
      .atomic = touch.kind == AccessKind::kAtomic};
  const auto conflicts = [&](const Cell& cell, int slot) {
    const std::uint32_t time = cell.time[slot];
    const unsigned actor = cell.actor(slot);
    return step == nullptr ? !clocks_.before_me(time, actor, is_global)
                           : !clocks_.before(*step, time, actor, is_global);
  };
  const auto [first, end] = touch.place.shadow->cells.of(touch.offset(), touch.bytes);
  for (Cell* cell = first; cell != end; ++cell) {
    if (is_read && step == nullptr && is_read_by_many(*cell, is_global)) continue;
    if (conflicts(*cell, Cell::kWriter)) {
      if (!me.atomic || !cell->get(Cell::kWriter).atomic)
        conflict_with(*cell, Cell::kWriter, touch);
    } else if (step != nullptr) {
      check_proxy(*cell, touch);
    }
    if (!is_read) {
      for (const int reader : {Cell::kReader, Cell::kOtherReader})
        if (conflicts(*cell, reader)) conflict_with(*cell, reader, touch);
      // A thread's own atomic operation does not hide what it wrote plainly before.
      const Access last = cell->get(Cell::kWriter);
      if (!me.atomic || last.atomic || last.time != me.time || last.thread != me.thread)
        cell->set(Cell::kWriter, me);
      continue;
    }
    // Two of several unordered readers are kept, from different warps if possible: a later writer
    // that is ordered after both is most likely ordered after all.
    const auto mine = [&](int slot) {
      return cell->who[slot] == me.thread && clocks_.is_in_this_block(cell->time[slot]);
    };
    if (mine(Cell::kReader) || !conflicts(*cell, Cell::kReader)) {
      cell->set(Cell::kReader, me);
    } else if (step != nullptr || mine(Cell::kOtherReader) ||
               !conflicts(*cell, Cell::kOtherReader) ||
               (cell->has_one_warp() && clocks_.is_in_this_block(cell->time[Cell::kReader]))) {
      cell->set(Cell::kOtherReader, me);
    }
  }
}

void Checker::conflict_with(const Cell& cell, int slot, const Touch& touch) {
  const Access other = cell.get(slot);
  const auto text = [&](const std::string& where, const std::string& before) {
    return words_.conflict(touch, where, slot, other, before);
  };
  const bool is_read = touch.kind == AccessKind::kRead;
  const bool with_an_atomic =
      is_read ? other.atomic : touch.kind == AccessKind::kAtomic && slot != Cell::kWriter;
  if (touch.step != nullptr || other.thread >= kMostThreads || !with_an_atomic)
    return found(kRace, touch.pc, other.pc, text);
  const Read read{is_read ? static_cast<std::uint32_t>(touch.pc - module_base_) : other.pc, &cell};
  const Lines lines{touch.pc, other.pc};
  if (compared_.count(read) != 0) return;
  perhaps_compared_.insert({read, lines});
  if (perhaps_races_.count(lines) == 0)
    perhaps_races_.insert({lines, report(kRace, touch.pc, other.pc, text)});
}

// What a thread wrote to shared memory, an agent sees after a fence_proxy_async() by that thread
// that is ordered before the agent's access.
void Checker::check_proxy(const Cell& cell, const Touch& touch) {
  const Access write = cell.get(Cell::kWriter);
  if (touch.place.is_global || write.thread >= kMostThreads ||
      !clocks_.is_in_this_block(write.time) ||
      clocks_.is_fenced(write.thread, write.time, *touch.step))
    return;
  found(kFence, touch.pc, write.pc, [&](const std::string& where, const std::string& before) {
    return words_.no_proxy_fence(touch, where, write, before);
  });
}

Checker::Report Checker::report(
    FindingKind kind, std::uintptr_t pc, std::uint32_t other_pc,
    const std::function<std::string(const std::string&, const std::string&)>& text) {
  const Module& module = worker_.launch().module;
  const Location where = locate(module, pc);
  const Location other = other_pc == 0 ? Location{} : locate(module, module_base_ + other_pc);
  const std::string here = place_text(where), there = place_text(other);
  return {kind, where, other,
          text_of(other_pc == 0 ? " at " : " between " + there + " and ", here, "\n",
                  text(here, there))};
}

void Checker::add(const Report& one) {
  worker_.launch().add(one.kind, one.where, one.other, one.text);
}

void Checker::stop(FindingKind kind, std::uintptr_t pc, const std::string& text) {
  worker_.fail(kind, locate(worker_.launch().module, pc), worker_.describe() + text);
}

}  // namespace flash::simt
