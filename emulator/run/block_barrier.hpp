// __syncthreads() and its variants in a block.
#pragma once

#include "emulator/headers/device/kernel_interface.hpp"

namespace flash::simt {

class Worker;

class BlockBarrier {
 public:
  explicit BlockBarrier(Worker& worker) : worker_(worker) {}

  void start_block();
  // The running thread comes; returns when all have met, with the sum of their predicates.
  int come(const char* name, Site site, int predicate);

  // Whether threads have come to different barriers; the first of them.
  bool mismatch() const { return mismatch_; }
  const Site& site() const { return site_; }
  const Site& passed() const { return passed_; }  // the block's last barrier; empty: none yet

 private:
  Worker& worker_;
  unsigned arrived_ = 0;
  bool mismatch_ = false;
  Site site_{}, passed_{};
  int sum_ = 0, result_ = 0;  // of the predicates
};

}  // namespace flash::simt
