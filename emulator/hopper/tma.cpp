#include "emulator/hopper/tma.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "emulator/check/checker.hpp"
#include "emulator/hopper/hopper.hpp"
#include "emulator/run/counts.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;

void encode_tensor_map(unsigned char* bits, const void* data, int element_bytes,
                       const std::int64_t (&extents)[4], const std::int64_t (&byte_strides)[4],
                       int box_rows) {
  MapContent map{};
  map.magic = MapContent::kMagic;
  map.data = static_cast<char*>(const_cast<void*>(data));
  std::copy(extents, extents + 4, map.extents);
  std::copy(byte_strides, byte_strides + 4, map.byte_strides);
  map.element_bytes = element_bytes;
  map.box_rows = box_rows;
  static_assert(sizeof map <= 128);
  std::memcpy(bits, &map, sizeof map);
}

// ---- a box --------------------------------------------------------------------------------------

template <class Use>
void Box::for_each_row(Use use) const {
  const int columns = 128 / map.element_bytes, *const at = place.coordinate;
  const std::int64_t begin = std::clamp<std::int64_t>(-std::int64_t{at[0]}, 0, columns),
                     end = std::clamp<std::int64_t>(map.extents[0] - at[0], 0, columns);
  for (std::int64_t row = 0; row < map.box_rows; ++row) {
    const std::int64_t index[4] = {at[0] + begin, at[1] + row, at[2], at[3]};
    bool inside = begin < end;
    std::int64_t offset = index[0] * map.element_bytes;
    for (int i = 1; i < 4; ++i) {
      inside = inside && index[i] >= 0 && index[i] < map.extents[i];
      offset += index[i] * map.byte_strides[i];
    }
    use(inside ? map.data + offset : nullptr, static_cast<std::size_t>(row),
        static_cast<std::size_t>(begin * map.element_bytes),
        static_cast<std::size_t>(end * map.element_bytes));
  }
}

char* Box::in_shared(std::size_t row, std::size_t byte) const {
  const auto chunk = static_cast<std::uint32_t>(128 * row + byte / 16 * 16);
  return shared + (swizzled(window_address + chunk) - window_address) + byte % 16;
}

void Box::load() const {
  std::vector<char> content(bytes());
  for_each_row([&](const char* memory, std::size_t row, std::size_t begin, std::size_t end) {
    if (memory != nullptr) std::memcpy(&content[128 * row + begin], memory, end - begin);
  });
  for (std::size_t i = 0; i < bytes(); i += 16)
    std::memcpy(in_shared(i / 128, i % 128), &content[i], 16);
}

std::vector<char> Box::read() const {
  std::vector<char> content(bytes());
  for (std::size_t i = 0; i < bytes(); i += 16)
    std::memcpy(&content[i], in_shared(i / 128, i % 128), 16);
  return content;
}

void Box::store(const std::vector<char>& content) const {
  for_each_row([&](char* memory, std::size_t row, std::size_t begin, std::size_t end) {
    if (memory != nullptr) std::memcpy(memory, &content[128 * row + begin], end - begin);
  });
}

// ---- the block ----------------------------------------------------------------------------------

Box Tma::checked_box(const char* what, const void* map, const void* shared, const BoxPlace& place,
                     std::uintptr_t pc) {
  Box box{};
  std::memcpy(&box.map, map, sizeof box.map);
  if (box.map.magic != MapContent::kMagic)
    worker_.fail_at(kWrongArgument, pc, what,
                    " is given a tensor map that tensor_map() has not made.");
  box.place = place;
  box.shared = static_cast<char*>(const_cast<void*>(shared));
  box.window_address = shared_address_of(worker_, shared, what, pc);
  box.pc = pc;
  if (box.window_address % 1024 != 0)
    worker_.fail_at(kMisaligned, pc, what, ": the box begins in ", shared_text(worker_, shared),
                    ", at shared address ", box.window_address,
                    "; it must be a multiple of 1024 (align_to_1024()).");
  if (worker_.shared_memory().at(box.window_address, box.bytes()) == nullptr)
    worker_.fail_at(kOutOfBounds, pc, what, ": the box has ", box.map.box_rows,
                    " rows of 128 bytes and begins in ", shared_text(worker_, shared),
                    ": it ends behind it.");
  return box;
}

void Tma::count(bool is_load, const Box& box) const {
  Counts* const counts = Counts::wanted();
  if (counts == nullptr || worker_.checks() == nullptr) return;
  counts->come(box.pc, worker_.launch().module, worker_.stacks().top(worker_.thread_number()));
  std::size_t inside = 0;
  box.for_each_row([&](const char* memory, std::size_t, std::size_t begin, std::size_t end) {
    if (memory != nullptr) inside += end - begin;
  });
  // A load fills the box, with zeros where the tensor ends, and Nsight Compute counts them.
  const Counted counted{
      .requests = 1, .lanes = 1, .bytes = is_load ? box.bytes() : inside, .sectors = inside / 32};
  counts->add(box.pc, is_load ? "TMA load" : "TMA store", box.map.data, 0, counted, {}, 0);
}

void Tma::load(void* to, const void* map, const void* barrier, const BoxPlace& place,
               std::uintptr_t pc) {
  const Box box = checked_box("tma_load()", map, to, place, pc);
  count(true, box);
  Load load{box, &mbarriers_.start_copy(barrier, static_cast<int>(box.bytes()), pc), 0};
  if (Checker* const checker = Checker::of(worker_)) {
    box.for_each_row([&](const char* memory, std::size_t, std::size_t begin_, std::size_t end) {
      for (std::size_t i = begin_; memory != nullptr && i < end; i += 64)
        checker->access(memory + (i - begin_), std::min<std::size_t>(64, end - i), false, pc);
    });
    const AsyncStep step = checker->clocks().async_step(load.barrier->agent, false, pc);
    checker->async_write_starts(step, box.shared, box.bytes());
    load.time = step.time;
  }
  if (worker_.prefers_late())
    loads_.push_back(load);
  else
    land(load);
}

void Tma::land(const Load& load) {
  load.box.load();
  if (Checker* const checker = Checker::of(worker_))
    checker->async_write_ends(load.box.shared, load.box.bytes());
  mbarriers_.land(*load.barrier, static_cast<int>(load.box.bytes()), load.time);
}

void Tma::land_at(const void* barrier) {
  const std::vector<Load> all = std::exchange(loads_, {});
  const auto is_elsewhere = [barrier](const Load& load) {
    return load.barrier->address != barrier;
  };
  std::copy_if(all.begin(), all.end(), std::back_inserter(loads_), is_elsewhere);
  std::for_each(all.rbegin(), all.rend(), [&](const Load& load) {
    if (!is_elsewhere(load)) land(load);
  });
}

// The newest first, and one barrier at a time: copies may overtake each other.
bool Tma::land_waited_for() {
  const auto load = std::find_if(loads_.rbegin(), loads_.rend(),
                                 [](const Load& one) { return !one.barrier->waiting.empty(); });
  if (load == loads_.rend()) return false;
  land_at(load->barrier->address);
  return true;
}

void Tma::store(const void* map, const void* from, const BoxPlace& place, std::uintptr_t pc) {
  Thread& thread = threads_[worker_.thread_number()];
  Store store{checked_box("tma_store()", map, from, place, pc), thread.groups};
  const int* const at = place.coordinate;
  if (std::any_of(at, at + 4, [](int coordinate) { return coordinate < 0; }))
    worker_.fail_at(kWrongArgument, pc, "tma_store(): the box begins at column ", at[0], ", row ",
                    at[1], ", head ", at[2], ", batch ", at[3],
                    ". None of them may be negative: on a GPU this is an illegal instruction. "
                    "Only a tma_load() may begin before the tensor; it reads zeros there.");
  if (worker_.checks() != nullptr) check(store, thread);
  count(false, store.box);
  if (!worker_.prefers_late()) {
    read(store);
    write(store);
  }
  thread.stores.push_back(std::move(store));
}

// The checks of what the store reads, and of what it writes.
void Tma::check(Store& store, Thread& thread) const {
  Checker& checker = *Checker::of(worker_);
  const Box& box = store.box;
  if (thread.reader == 0) {
    thread.reader = checker.clocks().new_agent("tma_store()");
    thread.writer = checker.clocks().new_agent("tma_store()");
  }
  const AsyncStep reads = checker.clocks().async_step(thread.reader, false, box.pc);
  box.for_each_row([&](const char* memory, std::size_t row, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin, next; memory != nullptr && i < end; i = next) {
      next = std::min(i / 16 * 16 + 16, end);
      checker.async_access(reads, box.in_shared(row, i), next - i, AccessKind::kRead);
    }
  });
  const AsyncStep writes = checker.clocks().async_step(thread.writer, false, box.pc);
  box.for_each_row([&](const char* memory, std::size_t, std::size_t begin, std::size_t end) {
    if (memory != nullptr) checker.async_access(writes, memory, end - begin, AccessKind::kWrite);
  });
  store.read_time = reads.time;
  store.write_time = writes.time;
}

void Tma::read(Store& store) {
  if (!store.was_read) store.content = store.box.read();
  store.was_read = true;
}

void Tma::write(Store& store) {
  if (!store.was_written) store.box.store(store.content);
  store.was_written = true;
}

void Tma::commit() { ++threads_[worker_.thread_number()].groups; }

void Tma::wait(int groups, bool complete) {
  Thread& thread = threads_[worker_.thread_number()];
  for (Store& store : thread.stores) {
    if (store.group + groups >= thread.groups) break;
    read(store);
    store.source_is_free = true;
    if (complete) write(store);
    if (Checker* const checker = Checker::of(worker_)) {
      checker->clocks().learn(worker_.thread_number(), thread.reader, store.read_time);
      if (complete)
        checker->clocks().learn(worker_.thread_number(), thread.writer, store.write_time);
    }
  }
  std::erase_if(thread.stores,
                [](const Store& store) { return store.source_is_free && store.was_written; });
}

void Tma::thread_returns() {
  Thread& thread = threads_[worker_.thread_number()];
  for (Store& store : thread.stores) {
    if (!store.source_is_free)
      worker_.fail(kAsyncCopy, locate(worker_.launch().module, store.box.pc),
                   text_of(worker_.describe(), " returns, and its copy may still read ",
                           shared_text(worker_, store.box.shared),
                           ": tma_commit() and tma_wait_read<0>() come first."));
    write(store);
  }
  thread.stores.clear();
}

}  // namespace flash::simt
