#include "emulator/run/block_barrier.hpp"

#include "emulator/run/counts.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

void BlockBarrier::start_block() {
  arrived_ = 0;
  mismatch_ = false;
  passed_ = {};
  sum_ = 0;
}

int BlockBarrier::come(const char* name, Site site, int predicate) {
  if (arrived_ == 0) {
    site_ = site;
  } else if (!same_site(site, site_)) {
    mismatch_ = true;
  }
  sum_ += predicate;
  if (++arrived_ < worker_.threads() || mismatch_) {
    worker_.wait(Waiting::kAtBarrier, name, site);
    return result_;
  }
  result_ = sum_;
  sum_ = 0;
  arrived_ = 0;
  passed_ = site_;
  worker_.all_have_met();
  if (Counts* const counts = Counts::wanted(); counts != nullptr && worker_.checks() != nullptr) {
    counts->met.requests = 1, counts->met.lanes = worker_.threads();
    counts->add(site_, name, counts->met);
  }
  return result_;
}

}  // namespace flash::simt
