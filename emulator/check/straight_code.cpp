#include "emulator/check/straight_code.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

namespace flash::simt {
namespace {

// What a piece has on one line.
struct Row {
  const char* file;
  std::uint64_t* times;
  std::uint32_t line, instructions, multiplications, additions;
};
std::span<const Row> rows;
std::span<std::uint64_t> times;  // that each piece ran, since they were last taken

std::span<const Row> rows_of(std::size_t piece) {
  const auto [begin, end] =
      std::equal_range(rows.begin(), rows.end(), Row{nullptr, &times[piece], 0, 0, 0, 0},
                       [](const Row& a, const Row& b) { return a.times < b.times; });
  return {begin, end};
}

}  // namespace

void StraightCode::start_block() { std::fill(times.begin(), times.end(), 0); }

void StraightCode::ran(unsigned thread) {
  constexpr std::size_t kAtOnce = 64;
  for (std::size_t first = 0; first < times.size(); first += kAtOnce) {
    const auto some = times.subspan(first, std::min(kAtOnce, times.size() - first));
    if (std::accumulate(some.begin(), some.end(), std::uint64_t{0}, std::bit_or<>()) == 0) continue;
    for (std::size_t n = 0; n < some.size(); ++n) {
      if (some[n] == 0) continue;
      auto& of_lane = pieces_[first + n].of_lane;
      if (of_lane.size() <= thread) of_lane.resize(thread + 1);
      of_lane[thread] += static_cast<std::uint32_t>(std::exchange(some[n], 0));
    }
  }
}

Counted StraightCode::meet(unsigned threads) {
  std::vector<std::uint64_t> work((threads + 31) / 32);
  for (auto& [number, piece] : pieces_) {
    std::uint64_t instructions = 0;
    for (const Row& row : rows_of(number)) instructions += row.instructions;
    for (std::size_t first = 0; first < piece.of_lane.size(); first += 32) {
      const std::span<const std::uint32_t> warp(
          piece.of_lane.data() + first, std::min<std::size_t>(32, piece.of_lane.size() - first));
      const std::uint64_t most = *std::max_element(warp.begin(), warp.end());
      piece.lanes += std::accumulate(warp.begin(), warp.end(), std::uint64_t{0});
      piece.warps += most;
      work[first / 32] += most * instructions;
    }
    piece.of_lane.clear();
  }
  return {.work = std::accumulate(work.begin(), work.end(), std::uint64_t{0}) / work.size(),
          .slowest = *std::max_element(work.begin(), work.end())};
}

void StraightCode::end_block() {
  Counts& counts = *Counts::wanted();
  for (const auto& [number, piece] : pieces_)
    for (const Row& row : rows_of(number))
      for (const auto& [what, each] : {std::pair{"run", row.instructions},
                                       {"multiply", row.multiplications},
                                       {"add", row.additions}})
        if (each > 0)
          counts.add({row.file, static_cast<int>(row.line)}, what,
                     {.requests = piece.warps * each, .lanes = piece.lanes * each});
  pieces_.clear();
}

}  // namespace flash::simt

// What a library calls when it is loaded; its counters stand in the order of the rows.
extern "C" FLASH_EXPORT void flash_simt_pieces(const flash::simt::Row* begin,
                                               const flash::simt::Row* end) {
  using namespace flash::simt;
  rows = {begin, end};
  if (!rows.empty()) times = {rows.front().times, rows.back().times + 1};
}
