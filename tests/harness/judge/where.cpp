#include "harness/judge/where.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "common/lines.hpp"

namespace flash::grading {
namespace {

using Calls = std::vector<int>;  // their lines in one file, the outermost first

// The path in the course of a student's file, "" of others: a file in skeleton/ or solution/.
std::string students_file(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return "";
  const auto folder = path.rfind('/', slash - 1);
  if (folder == std::string::npos || folder == 0) return "";
  const std::string name = path.substr(folder + 1, slash - folder - 1);
  if (name != "skeleton" && name != "solution") return "";
  const auto part = path.rfind('/', folder - 1);
  return path.substr(part == std::string::npos ? 0 : part + 1);
}

// The lines of the student's file that an address belongs to: of functions that were inlined there,
// the outermost first. An address is the one behind a call; the call itself is before it.
Calls lines_at(const std::string& library, std::uint64_t offset, std::string& file) {
  Calls calls;
  for (const SourceLine& line : source_lines(library, offset - 1)) {
    const std::string own = students_file(line.file);
    if (own.empty() || line.line == 0) continue;
    file = own;
    calls.insert(calls.begin(), line.line);
  }
  return calls;
}

}  // namespace

std::string to_string(const Spot& spot) {
  const std::string lines = spot.first < spot.last
                                ? "in the lines " + std::to_string(spot.first) + " to " +
                                      std::to_string(spot.last) + " of " + spot.file
                                : "at " + spot.file + ":" + std::to_string(spot.first);
  return lines + (spot.caller > 0 ? ", called in line " + std::to_string(spot.caller) : "");
}

std::optional<Spot> spot_of(const std::string& library, const std::vector<Where>& seen,
                            std::uint64_t busiest) {
  Spot spot;
  std::error_code none;
  const auto size = std::filesystem::file_size(library, none);
  if (none) return std::nullopt;
  std::map<std::uint64_t, Calls> lines;
  std::map<std::uint64_t, std::vector<Calls>> threads;
  for (const Where& where : seen) {
    Calls calls;
    for (auto address = where.addresses.rbegin(); address != where.addresses.rend(); ++address) {
      const std::uint64_t offset = *address - where.library;
      if (*address <= where.library || offset >= size) continue;
      const auto [found, is_new] = lines.try_emplace(offset);
      if (is_new) found->second = lines_at(library, offset, spot.file);
      calls.insert(calls.end(), found->second.begin(), found->second.end());
    }
    if (!calls.empty()) threads[where.thread].push_back(calls);
  }
  if (threads.empty()) return std::nullopt;
  auto chosen = threads.find(busiest);
  if (chosen == threads.end())
    chosen = std::max_element(threads.begin(), threads.end(), [](const auto& a, const auto& b) {
      return a.second.size() < b.second.size();
    });
  // The innermost call that all have in common, and the lines below it.
  const std::vector<Calls>& calls = chosen->second;
  std::size_t common = 0;
  while (std::all_of(calls.begin(), calls.end(), [&](const Calls& each) {
    return common < each.size() && each[common] == calls[0][common];
  }))
    ++common;
  std::set<int> below;
  for (const Calls& each : calls)
    if (each.size() > common) below.insert(each[common]);
  if (below.empty()) {
    spot.first = spot.last = calls[0][common - 1];
  } else {
    spot.first = *below.begin(), spot.last = *below.rbegin();
    spot.caller = common > 0 ? calls[0][common - 1] : 0;
  }
  return spot;
}

}  // namespace flash::grading
