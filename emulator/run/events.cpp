#include "emulator/run/events.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "emulator/run/counts.hpp"
#include "emulator/run/device_memory.hpp"

namespace flash::simt {

Events* Events::wanted() {
  static Events* const instance = []() -> Events* {
    const char* const folder = std::getenv("FLASH_SIMT_EVENTS");
    if (folder == nullptr || *folder == '\0' || Counts::wanted() == nullptr) return nullptr;
    std::ofstream(std::string(folder) + "/events.tsv")
        << "launch\tblock\tstep\tplace\twhat\tobject\tnumber\twarps\tasked\truns\tto\n";
    return new Events(folder);
  }();
  return instance;
}

void Events::start_block(std::uint64_t block) {
  block_ = block;
  step_ = 0;
  epoch_ = 0;
  of_code_.clear();
  visits_.clear();
  happened_.clear();
  threads_.clear();
}

std::size_t Events::add(Event event) {
  if (events_.size() >= kMost) return kNone;
  event.block = block_;
  event.step = step_++;
  events_.push_back(std::move(event));
  return events_.size() - 1;
}

void Events::touch(std::uintptr_t pc, unsigned thread, const void* memory, std::size_t offset,
                   std::size_t bytes, bool is_read) {
  Thread& its = threads_[thread];
  const std::size_t loading = std::exchange(its.loading, kNone);
  std::uint32_t number = 0;
  if (memory != nullptr) {
    if (its.memory != memory || its.is_read != is_read || its.epoch != epoch_) ++its.turns;
    its = {memory, is_read, epoch_, its.turns, kNone};
    const auto [visit, is_first] = visits_.try_emplace({pc, thread}, Visit{epoch_, its.turns, 0});
    Visit& last = visit->second;
    if (!is_first && last.turns != its.turns)
      last = {epoch_, its.turns, last.epoch == epoch_ ? last.number + 1 : 0};
    number = last.number;
  }
  const auto [found, is_new] = of_code_.try_emplace({pc, memory, epoch_, number}, kNone);
  if (is_new) found->second = add({.pc = pc, .what = is_read ? "load" : "store", .memory = memory});
  const auto begin = static_cast<std::uint32_t>(offset),
             end = static_cast<std::uint32_t>(offset + bytes);
  if (memory == nullptr && !is_read && loading != kNone) {
    Event& load = events_[loading];
    load.to_begin = std::min(load.to_begin, begin);
    load.to_end = std::max(load.to_end, end);
  }
  if (found->second == kNone) return;
  Event& event = events_[found->second];
  event.asked += bytes;
  event.warps |= std::uint64_t{1} << thread / 32;
  if (memory != nullptr && is_read) its.loading = found->second;
  auto& runs = event.runs;
  if (runs.empty() || memory == nullptr) {
    if (runs.empty()) runs.push_back({begin, end});
    runs[0] = {std::min(runs[0].first, begin), std::max(runs[0].second, end)};
  } else if (runs.back().second == begin) {
    runs.back().second = end;
  } else {
    runs.push_back({begin, end});
  }
}

void Events::happens(std::uintptr_t pc, const char* what, unsigned warp, std::uint64_t name,
                     std::uint64_t number) {
  if (!happened_.insert({what, warp, name, number}).second) return;
  add({.pc = pc,
       .what = what,
       .memory = reinterpret_cast<const void*>(name),
       .number = number,
       .warps = std::uint64_t{1} << warp});
}

void Events::write(const Launch& launch, Counts& counts) {
  std::ofstream file(folder_ + "/events.tsv", std::ios::app);
  std::set<const Allocation*> seen;
  for (Event& event : events_) {
    const bool is_access = !event.runs.empty();
    const Allocation* const allocation = is_access && event.memory != nullptr
                                             ? DeviceMemory::instance().find(event.memory)
                                             : nullptr;
    if (allocation != nullptr) seen.insert(allocation);
    std::size_t first = 0;
    if (allocation != nullptr && allocation->first_element != nullptr)
      first = allocation->offset(allocation->first_element);
    std::sort(event.runs.begin(), event.runs.end());
    std::string runs;
    for (std::size_t i = 0, next; i < event.runs.size(); i = next) {
      auto [begin, end] = event.runs[i];
      for (next = i + 1; next < event.runs.size() && event.runs[next].first <= end; ++next)
        end = std::max(end, event.runs[next].second);
      if (end <= first) continue;
      runs += (runs.empty() ? "" : ",") +
              std::to_string(begin - std::min<std::size_t>(first, begin)) + "-" +
              std::to_string(end - first);
    }
    file << launch.number << '\t' << event.block << '\t' << event.step << '\t'
         << (event.pc == 0 ? "" : place_text(counts.place(event.pc))) << '\t' << event.what << '\t';
    if (!is_access)
      file << reinterpret_cast<std::uintptr_t>(event.memory);
    else if (event.memory != nullptr)
      file << (allocation == nullptr || allocation->name.empty() ? "device memory"
                                                                 : allocation->name);
    file << '\t' << event.number << '\t' << event.warps << '\t' << event.asked << '\t' << runs
         << '\t';
    if (event.to_end != 0) file << event.to_begin << '-' << event.to_end;
    file << '\n';
  }
  if (events_.size() >= kMost) file << launch.number << "\t0\t0\t\tcut\t\t0\t0\t0\t\t\n";
  for (const Allocation* const allocation : seen)
    if (allocation->first_element != nullptr && allocation->bytes <= 1u << 22)
      std::ofstream(folder_ + "/" + std::to_string(launch.number) + "." + allocation->name,
                    std::ios::binary)
          .write(allocation->first_element,
                 static_cast<std::streamsize>(allocation->bytes -
                                              allocation->offset(allocation->first_element)));
  events_.clear();
}

}  // namespace flash::simt
