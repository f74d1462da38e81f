#include "emulator/check/words.hpp"

#include <string_view>

namespace flash::simt {
namespace {

// What tells a thread that an agent is done.
const char* how_it_ends(std::string_view what) {
  if (what == "tma_load()") return "wait() for its barrier comes first.";
  if (what == "wgmma()")
    return "a wgmma_wait() that covers it comes first, and a barrier for other threads.";
  return "tma_wait() or tma_wait_read() comes first, and a barrier for other threads.";
}

}  // namespace

// "thread (3, 0, 0) of block (0, 0, 0)", or "tma_load() by" such a thread.
std::string Words::actor(unsigned number, std::uint32_t time) const {
  const std::uint64_t block = clocks_.block_at(time);
  if (number < kMostThreads) return worker_.describe(number, block);
  if (!clocks_.is_in_this_block(time)) return "TMA in " + worker_.describe_block(block);
  const auto& [what, thread] = clocks_.agent(number);
  return text_of(what, std::string_view(what) == "wgmma()" ? " by the warpgroup of " : " by ",
                 worker_.describe(thread, block));
}

std::string Words::call(const Touch& touch) const {
  if (touch.step == nullptr) return "";
  return text_of(" calls ", clocks_.agent(touch.step->agent).what, ", which");
}

// Why the order of the two is not known.
std::string Words::why_unordered(const Touch& touch, const Access& other, int line_of_sync) const {
  if (!clocks_.is_in_this_block(other.time))
    return ". Only atomic operations after a __threadfence() order two blocks of a launch.";
  if (other.thread >= kMostThreads) {
    const char* const what = clocks_.agent(other.thread).what;
    return text_of(". Nothing says that this ", what, " is over: ", how_it_ends(what));
  }
  if (touch.step != nullptr || clocks_.is_wide()) return ". No barrier lies between the two.";
  const std::string first =
      line_of_sync == 0 ? "."
                        : text_of(": the one in line ", line_of_sync,
                                  " is before both. One is missing at the end of the round, or at "
                                  "its start.");
  if (other.thread / kWarpSize == clocks_.thread() / kWarpSize)
    return ". Neither a __syncthreads() nor a __syncwarp() lies between the two" + first;
  return ". No __syncthreads() lies between the two" + first;
}

// The last synchronization of two accesses that nothing orders comes before both. Where it lies
// between their lines in one function, the access above it belongs to the next round of a loop.
Words::Rounds Words::rounds(const Touch& touch, const Access& other) const {
  if (touch.step != nullptr || clocks_.is_wide() || !clocks_.is_in_this_block(other.time) ||
      other.thread >= kMostThreads)
    return {};
  const Site sync = worker_.last_sync(clocks_.thread(), other.thread);
  if (sync.file == nullptr || sync.function == nullptr) return {};
  const Module& module = worker_.launch().module;
  const CodePlace code = look_up(module, touch.pc),
                  code_before = look_up(module, module.base + other.pc);
  const Location &now = code.outermost, &then = code_before.outermost;
  const std::string file = location_of(sync).file, function = sync.function;
  const std::string name = function.substr(0, function.find('<'));
  if (now.file != file || then.file != file || !code.is_in(name) || !code_before.is_in(name))
    return {};
  const bool now_above = now.line < sync.line, then_above = then.line < sync.line;
  const bool now_below = now.line > sync.line, then_below = then.line > sync.line;
  return {sync.line, now_above && then_below, then_above && now_below};
}

std::string Words::conflict(const Touch& touch, const std::string& where, int slot,
                            const Access& other, const std::string& before) const {
  const char* const then = slot != Cell::kWriter ? " read it at "
                           : other.atomic        ? " atomically changed it at "
                                                 : " wrote it at ";
  const bool same_line = where == before && touch.step == nullptr && other.thread < kMostThreads;
  const bool both_write =
      same_line && slot == Cell::kWriter && touch.kind == AccessKind::kWrite && !other.atomic;
  const bool rounds_may_race =
      same_line && clocks_.is_in_this_block(other.time) && !(both_write && touch.place.is_global);
  const Rounds in = rounds(touch, other);
  const auto next = [](bool is_next) {
    return is_next ? ", already in the next round of the loop" : "";
  };
  return text_of(
      both_write ? "Two threads write the same element: check the index, and which threads write.\n"
                 : "",
      actor(touch.step == nullptr ? clocks_.thread() : touch.step->agent, clocks_.time()),
      verb(touch.kind), places_.text(touch), " at ", where, next(in.now_is_next), ";\n",
      actor(other.thread, other.time), then, before, next(in.then_is_next),
      both_write
          ? "."
          : why_unordered(touch, other, in.now_is_next || in.then_is_next ? in.line_of_sync : 0),
      rounds_may_race && !both_write ? " Check the index." : "",
      rounds_may_race ? " If this line is in a loop, each round needs a barrier." : "");
}

std::string Words::no_proxy_fence(const Touch& touch, const std::string& where, const Access& write,
                                  const std::string& before) const {
  return text_of(actor(write.thread, write.time), " wrote ", places_.text(touch), " at ", before,
                 ", and ", clocks_.agent(touch.step->agent).what,
                 touch.kind == AccessKind::kRead ? " reads" : " overwrites", " it at ", where,
                 ". The thread that wrote calls fence_proxy_async() first, and then a barrier "
                 "tells of it.");
}

}  // namespace flash::simt
