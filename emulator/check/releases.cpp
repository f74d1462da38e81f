#include "emulator/check/releases.hpp"

#include <algorithm>
#include <iterator>

namespace flash::simt {

void Knowledge::merge(const Knowledge& other) {
  auto mine = known_.begin();
  bool has_all = true;
  for (const Known& its : other.known_) {
    while (mine != known_.end() && is_before(*mine, its)) ++mine;
    if (mine != known_.end() && mine->actor == its.actor)
      mine->time = std::max(mine->time, its.time);
    else
      has_all = false;
  }
  if (has_all) return;
  std::vector<Known> both;
  both.reserve(known_.size() + other.known_.size());
  std::set_union(known_.begin(), known_.end(), other.known_.begin(), other.known_.end(),
                 std::back_inserter(both), is_before);
  known_ = std::move(both);
}

bool Knowledge::covers(std::uint32_t block, unsigned actor, std::uint32_t time) const {
  const auto says = [&](unsigned who) {
    const Known wanted{{block, who}, time};
    const auto known = std::lower_bound(known_.begin(), known_.end(), wanted, is_before);
    return known != known_.end() && known->actor == wanted.actor && time < known->time;
  };
  return (actor < kMostThreads && says(kAllThreads)) || says(actor);
}

void Releases::start_launch() {
  global_.clear();
  any_ = false;
}

void Releases::start_block() {
  fenced_ = {};
  shared_.clear();
  learned_.clear();
  learned_by_all_ = {};
}

void Releases::barrier() {
  for (const auto& [thread, knowledge] : learned_) learned_by_all_.merge(knowledge);
  learned_.clear();
}

void Releases::warp_sync(unsigned first, std::uint32_t lanes) {
  if (learned_.empty()) return;
  Knowledge told;
  for_each_lane(lanes, [&](unsigned lane) { add_learned(first + lane, false, told); });
  if (told.empty()) return;
  for_each_lane(lanes, [&](unsigned lane) { learned_[first + lane] = told; });
}

void Releases::learn(unsigned thread, const void* address, bool is_global) {
  const auto& published = is_global ? global_ : shared_;
  if (const auto told = published.find(address); told != published.end())
    learn(thread, told->second);
}

void Releases::learn(unsigned thread, const Knowledge& told) {
  if (!told.empty()) learned_[thread].merge(told);
}

Knowledge& Releases::at(const void* address, bool is_global) {
  any_ = true;
  return (is_global ? global_ : shared_)[address];
}

void Releases::add_learned(unsigned thread, bool all, Knowledge& told) const {
  if (all) told.merge(learned_by_all_);
  if (const auto its = learned_.find(thread); its != learned_.end()) told.merge(its->second);
}

bool Releases::covers(unsigned thread, std::uint32_t block, unsigned actor,
                      std::uint32_t time) const {
  if (learned_by_all_.covers(block, actor, time)) return true;
  const auto its = learned_.find(thread);
  return its != learned_.end() && its->second.covers(block, actor, time);
}

}  // namespace flash::simt
