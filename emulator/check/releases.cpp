#include "emulator/check/releases.hpp"

#include <algorithm>

namespace flash::simt {

void Knowledge::add(std::uint32_t block, unsigned actor, std::uint32_t time) {
  std::uint32_t& known = actors[{block, actor}];
  known = std::max(known, time);
}

void Knowledge::merge(const Knowledge& other) {
  for (const auto& [block, time] : other.blocks) blocks[block] = std::max(blocks[block], time);
  for (const auto& [actor, time] : other.actors) add(actor.first, actor.second, time);
}

bool Knowledge::covers(std::uint32_t block, unsigned actor, std::uint32_t time) const {
  const auto of_block = blocks.find(block);
  if (actor < kMostThreads && of_block != blocks.end() && time < of_block->second) return true;
  const auto of_actor = actors.find({block, actor});
  return of_actor != actors.end() && time < of_actor->second;
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
