#include "emulator/run/turns.hpp"

namespace flash::simt {

namespace {

// In a random order the first turn of a block and one of so many after it go to a thread anywhere
// in it, the others to the next one: neighbours use the same lines of the cache.
constexpr unsigned kTurnsAJump = 8;

}  // namespace

void Turns::start_block(const Schedule& schedule, unsigned threads, std::uint64_t block) {
  order_ = schedule.order;
  threads_ = threads;
  runnable_.reset();
  random_ = (schedule.seed + 1) * 0x9e3779b97f4a7c15ull ^ (block + 1) * 0xbf58476d1ce4e5b9ull;
  if (random_ == 0) random_ = 1;
}

unsigned Turns::next(unsigned thread) {
  std::size_t turn = turn_of(thread) + 1;
  if (order_ == Order::kRandom && (turn == kMostThreads || random() % kTurnsAJump == 0))
    turn = random() % threads_;
  if (turn == kMostThreads || !runnable_[turn]) turn = runnable_._Find_next(turn);  // of libstdc++
  if (turn == kMostThreads) turn = runnable_._Find_first();
  return turn == kMostThreads ? kNobody : turn_of(static_cast<unsigned>(turn));
}

bool Turns::prefers_late() {
  switch (order_) {
    case Order::kForward: return true;
    case Order::kReverse: return false;
    case Order::kRandom: return random() % 2 == 0;
  }
  return true;
}

// xorshift64*
std::uint64_t Turns::random() {
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return random_ * 0x2545f4914f6cdd1dull;
}

}  // namespace flash::simt
