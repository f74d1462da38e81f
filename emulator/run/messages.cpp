// What worker.hpp says in words.
#include <algorithm>
#include <cstring>
#include <iomanip>
#include <map>

#include "emulator/run/worker.hpp"

namespace flash::simt {
namespace {

std::string coordinates(uint3 v) { return text_of("(", v.x, ", ", v.y, ", ", v.z, ")"); }

}  // namespace

std::string mask_text(std::uint32_t mask) {
  return text_of("mask 0x", std::hex, std::setw(8), std::setfill('0'), mask);
}

bool same_site(const Site& a, const Site& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

Location location_of(const Site& site) {
  return {site.file != nullptr ? shown_path(site.file) : std::string(), site.line};
}

std::string ranges(const std::vector<unsigned>& numbers, const char* one, const char* many) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    parts.push_back(last == i
                        ? text_of(numbers[i])
                        : text_of(numbers[i], last > i + 1 ? " to " : " and ", numbers[last]));
    i = last + 1;
  }
  constexpr std::size_t kShown = 4;
  std::string text = std::string(numbers.size() == 1 ? one : many) + " ";
  const std::size_t shown = std::min(parts.size(), kShown);
  for (std::size_t i = 0; i < shown; ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  if (parts.size() > shown) text += text_of(" and others, ", numbers.size(), " in all");
  return text;
}

uint3 Worker::block_index(std::uint64_t block) const {
  const uint3 grid = launch_->call.grid;
  return {static_cast<unsigned>(block % grid.x), static_cast<unsigned>(block / grid.x % grid.y),
          static_cast<unsigned>(block / grid.x / grid.y)};
}

std::string Worker::describe(unsigned number, std::uint64_t block) const {
  return text_of("thread ", coordinates(thread_index(number)), " of ", describe_block(block));
}

std::string Worker::describe_block(std::uint64_t block) const {
  return "block " + coordinates(block_index(block));
}

Location Worker::first_sleeper() const {
  return location_of(threads_[first_in(Waiting::kAsleep)].site);
}

std::string Worker::waiting_threads() const {
  std::map<std::string, std::vector<unsigned>> groups;
  std::vector<unsigned> returned;
  for (unsigned i = 0; i < count_; ++i) {
    const Thread& thread = threads_[i];
    if (thread.waiting == Waiting::kReturned) {
      returned.push_back(i);
      continue;
    }
    std::string where = text_of(thread.waits_in, " at ", place_text(location_of(thread.site)));
    if (thread.waiting == Waiting::kInWarpOperation) where += ", " + mask_text(thread.mask);
    groups[where].push_back(i);
  }
  std::string text;
  for (const auto& [where, numbers] : groups)
    text += ranges(numbers, "thread", "threads") +
            (numbers.size() == 1 ? " waits in " : " wait in ") + where + "\n";
  if (!returned.empty())
    text += ranges(returned, "thread", "threads") + (returned.size() == 1 ? " has" : " have") +
            " returned\n";
  return text_of(text, "of block ", coordinates(block_index(block_)), ", which has ", count_,
                 " threads");
}

std::string shared_text(const Worker& worker, const void* memory) {
  const SharedMemory& shared = worker.shared_memory();
  const auto* const address = static_cast<const char*>(memory);
  if (!shared.window_address(memory)) return "memory that is not shared";
  if (address >= shared.dynamic() && address < shared.dynamic() + shared.dynamic_bytes())
    return text_of("dynamic shared memory, from byte ", address - shared.dynamic());
  const auto offset = static_cast<std::size_t>(address - shared.fixed());
  const Symbol symbol = thread_local_symbol(worker.launch().module, offset);
  if (symbol.name.empty()) return text_of("static shared memory, from byte ", offset);
  return text_of("the shared ", symbol.name, ", from byte ", offset - symbol.offset);
}

}  // namespace flash::simt
