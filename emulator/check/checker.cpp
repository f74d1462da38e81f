// Implements checker.hpp.
#include "emulator/check/checker.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "emulator/run/device_memory.hpp"
#include "emulator/run/launch.hpp"
#include "emulator/run/shared_memory.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;

__thread Checker* active_checker __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

// Calls use(lane) for each lane in a mask.
template <class Use>
void for_each_lane(std::uint32_t lanes, Use use) {
  for (; lanes != 0; lanes &= lanes - 1) use(static_cast<unsigned>(std::countr_zero(lanes)));
}

std::string bytes_text(std::size_t bytes) {
  return text_of(bytes, bytes == 1 ? " byte" : " bytes");
}

const char* verb(Checker::Kind kind) {
  using enum Checker::Kind;
  return kind == kRead ? " reads " : kind == kWrite ? " writes " : " atomically changes ";
}

// What tells a thread that an agent is done.
const char* how_it_ends(std::string_view what) {
  if (what == "tma_load()") return "wait() for its barrier comes first.";
  if (what == "wgmma()")
    return "a wgmma_wait() that covers it comes first, and a barrier for other threads.";
  return "tma_wait() or tma_wait_read() comes first, and a barrier for other threads.";
}

}  // namespace

std::uint32_t Checker::time_ = 1;
std::uint64_t Checker::shared_reads = 0;

std::uint32_t Checker::tick() {
  if (++time_ != 0) return time_;
  std::fputs(
      "the emulator's checks ended the program after 2^32 synchronizations: they cannot count "
      "more\n",
      stderr);
  std::abort();
}

void Checker::start_block(unsigned threads) {
  threads_ = threads;
  block_start_ = barrier_time_ = tick();
  if (number_of_launch_ != worker_.launch().number) {
    number_of_launch_ = worker_.launch().number;
    launch_start_ = block_start_;
    module_base_ = worker_.launch().module.base;
    global_releases_.clear();
    anything_released_ = false;
    reported_.clear();
    blocks_.clear();
  }
  blocks_.push_back({block_start_, worker_.block_number()});
  fenced_ = {};
  shared_releases_.clear();
  acquired_.clear();
  acquired_by_block_ = {};
  if (is_wide_) {
    for (auto& fences : proxy_fences_) fences.clear();
    registers_ = {};
    agents_.clear();
    is_wide_ = false;
  }
  active_checker = this;
}

void Checker::end_block() { active_checker = nullptr; }

void Checker::running(unsigned thread) {
  thread_ = thread;
  known_to_me_ = row(thread);
  stack_begin_ = worker_.stacks().begin(thread);
}

// ---- what orders accesses -----------------------------------------------------------------------

void Knowledge::merge(const Knowledge& other) {
  for (const auto& [block, time] : other.blocks) blocks[block] = std::max(blocks[block], time);
  for (const auto& [thread, time] : other.threads)
    threads[thread] = std::max(threads[thread], time);
}

void Checker::barrier() {
  barrier_time_ = tick();
  for (const auto& [thread, knowledge] : acquired_) acquired_by_block_.merge(knowledge);
  acquired_.clear();
  // What one thread knows of the agents all know now.
  for (unsigned agent = kFirstAgent; agent < kFirstAgent + agents_.size(); ++agent) {
    std::uint32_t known = 0;
    for (unsigned thread = 0; thread < threads_; ++thread)
      known = std::max(known, row(thread)[agent]);
    for (unsigned thread = 0; thread < threads_; ++thread) row(thread)[agent] = known;
  }
}

void Checker::warp_sync(unsigned warp, std::uint32_t lanes) {
  const std::uint32_t now = tick();
  std::array<std::uint32_t, kMostActors> known;
  const unsigned first = warp * kWarpSize;
  for_each_known(first, [&](unsigned actor) { known[actor] = 0; });
  for_each_lane(lanes, [&](unsigned lane) {
    const std::uint32_t* const its = row(first + lane);
    for_each_known(first,
                   [&](unsigned actor) { known[actor] = std::max(known[actor], its[actor]); });
  });
  for_each_lane(lanes, [&](unsigned lane) { known[first + lane] = now; });
  for_each_lane(lanes, [&](unsigned lane) {
    std::uint32_t* const its = row(first + lane);
    for_each_known(first, [&](unsigned actor) { its[actor] = known[actor]; });
    clock_[first + lane] = now;
  });
  if (acquired_.empty()) return;
  Knowledge told;
  for_each_lane(lanes, [&](unsigned lane) {
    if (const auto knowledge = acquired_.find(first + lane); knowledge != acquired_.end())
      told.merge(knowledge->second);
  });
  if (told.empty()) return;
  for_each_lane(lanes, [&](unsigned lane) { acquired_[first + lane] = told; });
}

void Checker::fence() { fenced_[thread_] = clock_[thread_] = tick(); }

std::uint32_t Checker::start_of_block_at(std::uint32_t time) const {
  return std::prev(std::upper_bound(
                       blocks_.begin(), blocks_.end(), time,
                       [](std::uint32_t at, const Started& started) { return at < started.time; }))
      ->time;
}

bool Checker::told_to_me(std::uint32_t time, unsigned thread) const {
  if (time < launch_start_) return true;
  const std::uint32_t block = start_of_block_at(time);
  const auto covers = [&](const Knowledge& knowledge) {
    const auto of_block = knowledge.blocks.find(block);
    if (thread < kMostThreads && of_block != knowledge.blocks.end() && time < of_block->second)
      return true;
    const auto of_thread = knowledge.threads.find({block, thread});
    return of_thread != knowledge.threads.end() && time < of_thread->second;
  };
  if (covers(acquired_by_block_)) return true;
  const auto mine = acquired_.find(thread_);
  return mine != acquired_.end() && covers(mine->second);
}

// An atomic operation on `address` learns what was published there, and publishes what this
// thread's last fence covers.
void Checker::synchronize(const void* address, bool is_global) {
  auto& releases = is_global ? global_releases_ : shared_releases_;
  if (const auto told = releases.find(address); told != releases.end())
    acquired_[thread_].merge(told->second);
  if (fenced_[thread_] == 0) return;
  anything_released_ = true;
  Knowledge& told = releases[address];
  told.blocks[block_start_] = barrier_time_;
  told.threads[{block_start_, thread_}] = fenced_[thread_];
  for_each_known(thread_ / kWarpSize * kWarpSize, [&](unsigned actor) {
    const std::uint32_t time = row(thread_)[actor];
    if (actor == thread_ || time <= block_start_ || time > fenced_[thread_]) return;
    std::uint32_t& known = told.threads[{block_start_, actor}];
    known = std::max(known, time);
  });
  told.merge(acquired_by_block_);
  if (const auto mine = acquired_.find(thread_); mine != acquired_.end()) told.merge(mine->second);
}

// ---- an access ----------------------------------------------------------------------------------

bool Checker::find_place(Touch& touch) const {
  Place& place = touch.place;
  const auto offset_in = [&](const char* begin) {
    return reinterpret_cast<std::uintptr_t>(touch.address) -
           reinterpret_cast<std::uintptr_t>(begin);
  };
  if (const std::size_t size = shared_.dynamic_bytes(); offset_in(shared_.dynamic()) < size) {
    place = {&shared_.dynamic_shadow(), shared_.dynamic(), size, false};
  } else if (const std::size_t fixed = shared_.fixed_bytes(); offset_in(shared_.fixed()) < fixed) {
    place = {&shared_.fixed_shadow(), shared_.fixed(), fixed, false};
  } else if (Allocation* const allocation = DeviceMemory::instance().find(touch.address)) {
    place = {&allocation->shadow, allocation->begin, allocation->bytes, true};
  } else {
    return false;
  }
  return offset_in(place.begin) < place.bytes &&
         offset_in(place.begin) + touch.bytes <= place.bytes;
}

void Checker::access(const void* address, std::size_t bytes, bool is_write, std::uintptr_t pc) {
  const auto* const begin = static_cast<const char*>(address);
  // The thread's own stack: its local memory.
  if (static_cast<std::size_t>(begin - stack_begin_) < FiberStacks::kStackBytes) {
    if (!registers_[thread_].ranges.empty()) check_registers(begin, bytes, is_write, pc);
    return;
  }
  Touch touch{begin, bytes, is_write ? Kind::kWrite : Kind::kRead, pc};
  if (!find_place(touch)) return outside(touch);
  check(touch);
}

void Checker::atomic(const void* address, std::size_t bytes, std::uintptr_t pc) {
  Touch touch{static_cast<const char*>(address), bytes, Kind::kAtomic, pc};
  if (!find_place(touch)) return outside(touch);
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    touch.bytes = 1;  // the text has the size already
    stop(kMisaligned, pc,
         text_of(" changes ", bytes_text(bytes), " at ", address_text(touch),
                 ": the address is not a multiple of ", bytes, "."));
  }
  check(touch);
  synchronize(address, touch.place.is_global);
}

void Checker::async_copy_starts(const void* to, const void* from, std::size_t bytes,
                                std::size_t valid, std::uintptr_t pc) {
  if (valid > 0) access(from, valid, false, pc);
  access(to, bytes, true, pc);
  Touch touch{static_cast<const char*>(to), bytes, Kind::kWrite, pc};
  if (!find_place(touch) || touch.place.is_global)
    stop(kOutOfBounds, pc, ": cp.async copies to an address that is not in shared memory.");
  Shadow& shadow = *touch.place.shadow;
  if (!shadow.pending) shadow.pending = ByteSet(shadow.bytes);
  shadow.pending.insert(touch.offset(), bytes);
  shadow.initialized.remove(touch.offset(), bytes);
}

void Checker::async_copy_ends(const void* to, std::size_t bytes, std::uintptr_t pc) {
  Touch touch{static_cast<const char*>(to), bytes, Kind::kWrite, pc};
  if (!find_place(touch)) return;
  touch.place.shadow->pending.remove(touch.offset(), bytes);
  access_by_emulator(to, bytes, true, pc);  // the bytes were counted when the copy started
}

void Checker::report(
    FindingKind kind, std::uintptr_t pc, std::uint32_t other_pc,
    const std::function<std::string(const std::string&, const std::string&)>& text) {
  Launch& launch = worker_.launch();
  const Location where = locate(launch.module, pc);
  const Location other =
      other_pc == 0 ? Location{} : locate(launch.module, module_base_ + other_pc);
  const std::string here = place_text(where), there = place_text(other);
  launch.add(kind, where, other,
             text_of(other_pc == 0 ? " at " : " between " + there + " and ", here, "\n",
                     text(here, there)));
  if (launch.stop) worker_.abandon();
}

void Checker::check_bytes(const Touch& touch) {
  const auto& [address, bytes, kind, pc, step, place] = touch;
  Shadow& shadow = *place.shadow;
  const std::size_t offset = touch.offset();
  if (shadow.forbidden && shadow.forbidden.bits(offset, bytes) != 0) outside(touch);
  if (counts_) {
    if (kind != Kind::kWrite) {
      shadow.traffic.loaded_bytes += bytes;
      shared_reads += !place.is_global;
    }
    if (kind != Kind::kRead) shadow.traffic.stored_bytes += bytes;
  }
  const auto call = [&, by = step] {
    return by == nullptr ? "" : text_of(" calls ", agent(by->agent).what, ", which");
  };
  if (shadow.pending && shadow.pending.bits(offset, bytes) != 0)
    stop(kAsyncCopy, pc,
         text_of(call(), kind == Kind::kRead ? " reads " : " changes ", address_text(touch),
                 ": the target of a cp.async that its thread has not waited for."));
  if (kind != Kind::kWrite && !shadow.initialized.has_all(offset, bytes))
    found(kUninitialized, pc, 0, [&](const std::string&, const std::string&) {
      return text_of(worker_.describe(), call(), " reads ", address_text(touch),
                     ", which nobody has written.");
    });
  if (kind != Kind::kRead) shadow.initialized.insert(offset, bytes);
}

void Checker::check(const Touch& touch) {
  check_bytes(touch);
  const AsyncStep* const step = touch.step;
  const Place& place = touch.place;
  const Access me{.time = step == nullptr ? time_of(thread_) : step->time,
                  .pc = static_cast<std::uint32_t>(touch.pc - module_base_),
                  .thread = static_cast<std::uint16_t>(step == nullptr ? thread_ : step->agent),
                  .atomic = touch.kind == Kind::kAtomic};
  const auto conflicts = [&](const Cell& cell, int slot) {
    const std::uint32_t time = cell.time[slot];
    const unsigned actor = cell.who[slot] & 0x7fff;
    return step == nullptr ? !ordered_before_me(time, actor, place.is_global)
                           : !ordered_before(*step, time, actor, place.is_global);
  };
  const auto [first, end] = place.shadow->cells.of(touch.offset(), touch.bytes);
  for (Cell* cell = first; cell != end; ++cell) {
    const auto same_warp = [&] {
      return cell->who[Cell::kReader] / kWarpSize == cell->who[Cell::kOtherReader] / kWarpSize;
    };
    // Most reads are of what many threads have read since the last barrier: there is nothing to
    // add.
    if (touch.kind == Kind::kRead && step == nullptr && cell->time[Cell::kWriter] < barrier_time_ &&
        (cell->who[Cell::kWriter] & 0x7fffu) < kMostThreads &&
        cell->time[Cell::kReader] >= barrier_time_ &&
        cell->time[Cell::kOtherReader] >= barrier_time_ && !same_warp() &&
        (cell->time[Cell::kWriter] >= block_start_ || cell->time[Cell::kWriter] < launch_start_ ||
         !place.is_global))
      continue;
    if (conflicts(*cell, Cell::kWriter)) {
      if (!me.atomic || !cell->get(Cell::kWriter).atomic)
        conflict_with(*cell, Cell::kWriter, touch);
    } else if (step != nullptr) {
      check_proxy(*cell, touch);
    }
    if (touch.kind != Kind::kRead) {
      for (const int reader : {Cell::kReader, Cell::kOtherReader})
        if (conflicts(*cell, reader)) conflict_with(*cell, reader, touch);
      cell->set(Cell::kWriter, me);
      continue;
    }
    // Of unordered readers two are kept, from different warps if possible: a later writer that is
    // ordered after both is most likely ordered after all.
    const auto mine = [&](int slot) {
      return cell->who[slot] == me.thread && cell->time[slot] >= block_start_;
    };
    if (mine(Cell::kReader) || !conflicts(*cell, Cell::kReader)) {
      cell->set(Cell::kReader, me);
    } else if (step != nullptr || mine(Cell::kOtherReader) ||
               !conflicts(*cell, Cell::kOtherReader) ||
               (same_warp() && cell->time[Cell::kReader] >= block_start_)) {
      cell->set(Cell::kOtherReader, me);
    }
  }
}

// ---- words --------------------------------------------------------------------------------------

std::string Checker::address_text(const Touch& touch) const {
  const auto& [address, bytes, kind, pc, step, place] = touch;
  const std::string size = bytes > 1 ? bytes_text(bytes) + " of " : "";
  if (!place.is_global) return size + shared_text(worker_, address);
  // Which argument of the kernel points into this allocation, and how far from there the address
  // is.
  const KernelCall& call = worker_.launch().call;
  for (std::size_t i = 0; i < call.argument_count; ++i) {
    if (call.argument_list[i].bytes < sizeof(char*)) continue;
    char* pointer = nullptr;
    std::memcpy(&pointer, call.argument_list[i].value, sizeof pointer);
    if (pointer < place.begin || pointer > place.begin + place.bytes) continue;
    const std::ptrdiff_t distance = address - pointer;
    const auto magnitude = static_cast<std::size_t>(std::abs(distance));
    const std::string argument = text_of(size, "device memory, argument ", i + 1, " of the kernel");
    if (distance < 0)
      return text_of(argument, ", ", bytes_text(magnitude), " before its first element");
    const std::string from = text_of(argument, ", from byte ", distance);
    if (bytes == 1 || magnitude % bytes != 0) return from;
    return text_of(from, " (element ", magnitude / bytes, " of that size)");
  }
  return text_of(size, "device memory, from byte ", address - place.begin, " of an allocation of ",
                 bytes_text(place.bytes));
}

void Checker::stop(FindingKind kind, std::uintptr_t pc, const std::string& text) {
  worker_.fail(kind, locate(worker_.launch().module, pc), worker_.describe() + text);
}

// Why the order of two accesses is not known, for the later one's actor and the earlier access.
std::string Checker::why_unordered(const Access& other, const AsyncStep* step,
                                   int line_of_sync) const {
  if (other.time < block_start_)
    return ". Only atomic operations after a __threadfence() order two blocks of a launch.";
  if (other.thread >= kMostThreads)
    return text_of(". Nothing says that this ", agent(other.thread).what,
                   " is over: ", how_it_ends(agent(other.thread).what));
  if (step != nullptr || is_wide_) return ". No barrier lies between the two.";
  const std::string first =
      line_of_sync == 0 ? "."
                        : text_of(": the one in line ", line_of_sync,
                                  " is before both. One is missing at the end of the round, or at "
                                  "its start.");
  if (other.thread / kWarpSize == thread_ / kWarpSize)
    return ". Neither a __syncthreads() nor a __syncwarp() lies between the two" + first;
  return ". No __syncthreads() lies between the two" + first;
}

// The last synchronization of two accesses that nothing orders comes before both. Where it lies
// between their lines in one function, the access above it belongs to the next round of a loop.
Checker::Rounds Checker::rounds(const Access& other, const AsyncStep* step,
                                std::uintptr_t pc) const {
  if (step != nullptr || is_wide_ || other.time < block_start_ || other.thread >= kMostThreads)
    return {};
  const Site sync = worker_.last_sync(thread_, other.thread);
  if (sync.file == nullptr || sync.function == nullptr) return {};
  const Module& module = worker_.launch().module;
  const std::uintptr_t before = module_base_ + other.pc;
  const CodePlace code = look_up(module, pc), code_before = look_up(module, before);
  const Location &now = code.outermost, &then = code_before.outermost;
  const std::string file = location_of(sync).file, function = sync.function;
  const std::string name = function.substr(0, function.find('<'));
  if (now.file != file || then.file != file || !code.is_in(name) || !code_before.is_in(name))
    return {};
  const bool now_above = now.line < sync.line, then_above = then.line < sync.line;
  const bool now_below = now.line > sync.line, then_below = then.line > sync.line;
  return {sync.line, now_above && then_below, then_above && now_below};
}

void Checker::conflict_with(const Cell& cell, int slot, const Touch& touch) {
  const Access other = cell.get(slot);
  const AsyncStep* const step = touch.step;
  found(kRace, touch.pc, other.pc, [&](const std::string& where, const std::string& before) {
    const char* const then = slot != Cell::kWriter ? " read it at "
                             : other.atomic        ? " atomically changed it at "
                                                   : " wrote it at ";
    const Rounds in = rounds(other, step, touch.pc);
    const auto next = [](bool is_next) {
      return is_next ? ", already in the next round of the loop" : "";
    };
    return text_of(
        actor_text(step == nullptr ? thread_ : step->agent, time_), verb(touch.kind),
        address_text(touch), " at ", where, next(in.now_is_next), ";\n",
        actor_text(other.thread, other.time), then, before, next(in.then_is_next),
        why_unordered(other, step, in.now_is_next || in.then_is_next ? in.line_of_sync : 0));
  });
}

// "thread (3, 0, 0) of block (0, 0, 0)", or "tma_load() by" such a thread.
std::string Checker::actor_text(unsigned actor, std::uint32_t time) const {
  const std::uint32_t start = start_of_block_at(time);
  const auto block = std::find_if(blocks_.begin(), blocks_.end(), [start](const Started& started) {
    return started.time == start;
  });
  if (actor < kMostThreads) return worker_.describe(actor, block->block);
  if (time < block_start_) return "TMA in " + worker_.describe_block(block->block);
  const auto& [what, thread] = agent(actor);
  return text_of(what, std::string_view(what) == "wgmma()" ? " by the warpgroup of " : " by ",
                 worker_.describe(thread, block->block));
}

// threadIdx and its kin.
static bool is_builtin_variable(const void* address) {
  for (const uint3* variable : {&threadIdx, &blockIdx, &blockDim, &gridDim})
    if (address >= variable && address < variable + 1) return true;
  return false;
}

bool Checker::is_argument(const char* address) const {
  const KernelCall& call = worker_.launch().call;
  const auto inside = [address](const void* begin, std::size_t bytes) {
    return address >= begin && address < static_cast<const char*>(begin) + bytes;
  };
  return inside(call.arguments, call.argument_bytes) ||
         std::any_of(call.argument_list, call.argument_list + call.argument_count,
                     [&](const auto& argument) { return inside(argument.value, argument.bytes); });
}

// Not shared memory, not an allocation, or a forbidden part of one.
void Checker::outside(const Touch& touch) {
  const auto& [address, bytes, kind, pc, step, nowhere] = touch;
  const char* const does = verb(kind);
  const std::uintptr_t value = reinterpret_cast<std::uintptr_t>(address);
  const Module& module = worker_.launch().module;
  DeviceMemory& memory = DeviceMemory::instance();
  if (memory.contains(address)) {
    Allocation* near = memory.find(address);
    if (near == nullptr) near = memory.nearest(address);
    if (near == nullptr)
      stop(kOutOfBounds, pc, text_of(does, "device memory that is not allocated."));
    const Touch beside{address, bytes, kind,
                       pc,      step,  {&near->shadow, near->begin, near->bytes, true}};
    const char* const how = address < near->begin ? ": before the start of the allocation."
                            : address + bytes > near->begin + near->bytes
                                ? ": after the end of the allocation."
                                : ": inside the allocation, but outside the tensor.";
    stop(kOutOfBounds, pc, text_of(does, address_text(beside), how));
  }
  const char* const begin = shared_.dynamic();
  const char* const end = begin + shared_.dynamic_bytes();
  if (shared_.is_guard(address) || (address < end + 128 && address + bytes > end))
    stop(kOutOfBounds, pc,
         text_of(does, "shared memory, from byte ", address - begin, ": ", shared_.dynamic_text(),
                 "."));
  if (address < begin && address >= begin - 128 * 1024)
    stop(kOutOfBounds, pc,
         text_of(does, "shared memory, ", bytes_text(static_cast<std::size_t>(begin - address)),
                 " before its start."));
  // Variables of the kernel's own library, the built-in variables, and the arguments of the call.
  if (value >= module.begin && value < module.end) return;
  if (is_builtin_variable(address) || is_argument(address)) return;
  if (value < 4096)
    stop(kFault, pc, text_of(does, "through a null pointer, or at an offset from one."));
  for (unsigned thread = 0; thread < kMostThreads; ++thread)
    if (static_cast<std::size_t>(address - worker_.stacks().begin(thread)) <
        FiberStacks::kStackBytes)
      stop(kOutOfBounds, pc,
           text_of(does, "a local variable of ", worker_.describe(thread),
                   ". Local variables belong to one thread."));
  stop(kHostMemory, pc,
       text_of(does,
               "host memory. A kernel can access device memory only: copy the data there first."));
}

}  // namespace flash::simt
