// TMA (common/cuda/tma.hpp) in the block that a worker runs: boxes of rows of 128 bytes between
// device and shared memory, swizzled there.
//
// A load lands, and a store is made, either at once or as late as it may: a load when no thread can
// go on and one waits at its barrier, a store when its thread waits for it or returns. The schedule
// decides (Worker::prefers_late()).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/headers/device/kernel_interface.hpp"

namespace flash::simt {

class Mbarriers;
class Worker;
struct Mbarrier;

// The place of a box's first element: column, row, head, batch.
struct BoxPlace {
  int coordinate[4];
};

// What the emulator writes into the 128 bytes of a TensorMap. The dimensions are columns, rows,
// heads, batch, in this order.
struct MapContent {
  static constexpr std::uint64_t kMagic = 0x70616d726f736e74;
  std::uint64_t magic;
  char* data;
  std::int64_t extents[4], byte_strides[4];
  std::int32_t element_bytes, box_rows;
};

// A box of one tensor, and where it is in shared memory.
struct Box {
  MapContent map;
  BoxPlace place;
  char* shared;
  std::uint32_t window_address;
  std::uintptr_t pc;

  std::size_t bytes() const { return 128 * static_cast<std::size_t>(map.box_rows); }
  // Where `byte` of a row is in shared memory; up to the next multiple of 16 its neighbours follow.
  char* in_shared(std::size_t row, std::size_t byte) const;
  void load() const;
  // The box as it is in shared memory, in the order of the rows.
  std::vector<char> read() const;
  void store(const std::vector<char>& content) const;

  // Calls use(memory, row, begin, end) for bytes `begin` to `end` of each row, those that lie in
  // the tensor; `memory` is where they begin there, nullptr where none do.
  template <class Use>
  void for_each_row(Use use) const;
};

class Tma {
 public:
  Tma(Worker& worker, Mbarriers& mbarriers) : worker_(worker), mbarriers_(mbarriers) {}

  // What the running thread calls, from code at `pc`.
  void load(void* to, const void* map, const void* barrier, const BoxPlace& place,
            std::uintptr_t pc);
  void store(const void* map, const void* from, const BoxPlace& place, std::uintptr_t pc);
  void commit();
  void wait(int groups, bool complete);
  void thread_returns();

  // Lands the loads of this barrier; of a barrier where a thread waits, if there is one.
  void land_at(const void* barrier);
  bool land_waited_for();

 private:
  struct Load {
    Box box;
    Mbarrier* barrier;
    std::uint32_t time;  // of the checks
  };
  struct Store {
    Box box;
    int group;
    bool was_read = false, was_written = false, source_is_free = false;
    std::uint32_t read_time = 0, write_time = 0;  // of the checks
    std::vector<char> content{};
  };
  struct Thread {
    std::vector<Store> stores;
    int groups = 0;                   // committed
    unsigned reader = 0, writer = 0;  // the agents of its stores; 0: none yet
  };

  Box checked_box(const char* what, const void* map, const void* shared, const BoxPlace& place,
                  std::uintptr_t pc);
  void count(bool is_load, const Box& box) const;
  void land(const Load& load);
  void check(Store& store, Thread& thread) const;  // for the checks
  static void read(Store& store);
  static void write(Store& store);

  Worker& worker_;
  Mbarriers& mbarriers_;
  std::vector<Load> loads_;  // that have not landed
  std::array<Thread, 1024> threads_{};
};

}  // namespace flash::simt
