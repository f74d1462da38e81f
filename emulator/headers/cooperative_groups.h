// For the emulator: cooperative groups, thread blocks, tiles of 1 to 32 threads, reductions. A
// tile's operations are the warp's, with the mask of its lanes; its sync() orders memory among them
// as __syncwarp() does.
#pragma once

#include "emulator/headers/device/sync.hpp"
#include "emulator/headers/device/warp.hpp"

namespace cooperative_groups {

using flash::simt::Site;

class thread_block {
 public:
  static unsigned long long size() { return num_threads(); }
  static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned thread_rank() { return flash::simt::thread_number(); }
  static dim3 group_index() { return dim3(blockIdx); }
  static dim3 thread_index() { return dim3(threadIdx); }
  static dim3 dim_threads() { return dim3(blockDim); }
  static dim3 group_dim() { return dim3(blockDim); }
  static void sync(Site site = Site::here()) { __syncthreads(site); }
};

inline thread_block this_thread_block() { return {}; }

template <unsigned SIZE, class Parent = void>
class thread_block_tile {
  static_assert(SIZE >= 1 && SIZE <= 32 && (SIZE & (SIZE - 1)) == 0,
                "a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  thread_block_tile(unsigned rank, unsigned groups) : rank_(rank), groups_(groups) {}
  template <class Other>
  thread_block_tile(const thread_block_tile<SIZE, Other>& tile)
      : thread_block_tile(tile.meta_group_rank(), tile.meta_group_size()) {}
  static constexpr unsigned long long size() { return SIZE; }
  static constexpr unsigned num_threads() { return SIZE; }
  static unsigned thread_rank() { return flash::simt::thread_number() % SIZE; }
  unsigned meta_group_rank() const { return rank_; }  // among the tiles of the parent
  unsigned meta_group_size() const { return groups_; }

  void sync(Site site = Site::here()) const { __syncwarp(mask(), site); }
  template <class T>
  T shfl(T value, int source, Site site = Site::here()) const {
    return flash::simt::shuffle_from(mask(), value, source, SIZE, site);
  }
  template <class T>
  T shfl_up(T value, unsigned distance, Site site = Site::here()) const {
    return flash::simt::shuffle_up(mask(), value, distance, SIZE, site);
  }
  template <class T>
  T shfl_down(T value, unsigned distance, Site site = Site::here()) const {
    return flash::simt::shuffle_down(mask(), value, distance, SIZE, site);
  }
  template <class T>
  T shfl_xor(T value, int lanes, Site site = Site::here()) const {
    return flash::simt::shuffle_xor(mask(), value, lanes, SIZE, site);
  }
  int any(int predicate, Site site = Site::here()) const {
    return __any_sync(mask(), predicate, site);
  }
  int all(int predicate, Site site = Site::here()) const {
    return __all_sync(mask(), predicate, site);
  }
  unsigned ballot(int predicate, Site site = Site::here()) const {
    return (__ballot_sync(mask(), predicate, site) & mask()) >> first();
  }

  // The warp's lanes that are in this tile.
  static unsigned mask() { return (SIZE == 32 ? ~0u : (1u << SIZE % 32) - 1) << first(); }

 private:
  static unsigned first() { return flash::simt::lane_number() / SIZE * SIZE; }
  unsigned rank_, groups_;
};

template <unsigned SIZE, class Parent>
thread_block_tile<SIZE, Parent> tiled_partition(const Parent& parent) {
  return {parent.thread_rank() / SIZE, (parent.num_threads() + SIZE - 1) / SIZE};
}

// What all groups have: a block, or a tile, also of a size that is known at run time.
class thread_group {
 public:
  explicit thread_group(unsigned size) : size_(size) {}
  thread_group(thread_block) : size_(thread_block::num_threads()) {}
  template <unsigned SIZE, class Parent>
  thread_group(thread_block_tile<SIZE, Parent>) : size_(SIZE) {}
  unsigned long long size() const { return size_; }
  unsigned num_threads() const { return size_; }
  unsigned thread_rank() const { return flash::simt::thread_number() % size_; }
  void sync(Site site = Site::here()) const {
    if (size_ > 32) return (void)__syncthreads(site);
    const unsigned first = flash::simt::lane_number() / size_ * size_;
    __syncwarp((size_ == 32 ? ~0u : (1u << size_ % 32) - 1) << first, site);
  }

 private:
  unsigned size_;
};
inline thread_group tiled_partition(const thread_group&, unsigned size) {
  return thread_group(size);
}

template <class Group>
void sync(const Group& group, Site site = Site::here()) {
  group.sync(site);
}

// ---- <cooperative_groups/reduce.h> --------------------------------------------------------------

using flash::simt::bit_and, flash::simt::bit_or, flash::simt::bit_xor;
using flash::simt::plus, flash::simt::less, flash::simt::greater;

// `operation`, a commutative one, over the tile's values; each thread gets the result.
template <unsigned SIZE, class Parent, class T, class Operation>
T reduce(const thread_block_tile<SIZE, Parent>& tile, T value, Operation operation,
         Site site = Site::here()) {
  for (unsigned distance = SIZE / 2; distance > 0; distance /= 2)
    value = operation(value, tile.shfl_xor(value, static_cast<int>(distance), site));
  return value;
}

}  // namespace cooperative_groups
