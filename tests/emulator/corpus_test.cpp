// The corpus (corpus/*.cu): every planted mistake is found, of the right kind and on a marked line,
// under every schedule; right kernels are not reported, and their results are right. Without the
// checks, the mistakes that the scheduler sees are found.
#include "emulator/corpus/corpus.hpp"

#include <algorithm>
#include <iostream>
#include <set>

#include "common/error.hpp"
#include "harness/catch.hpp"

using namespace flash;
using simt::FindingKind;
using simt_corpus::Group;
using simt_corpus::Specimen;

namespace {

std::vector<Specimen> specimens(Group group, const std::string& file = "") {
  std::vector<Specimen> some;
  for (const Specimen& one : simt_corpus::specimens())
    if (one.group == group && one.file.find(file) != std::string::npos) some.push_back(one);
  return some;
}

std::vector<simt::Schedule> schedules(int random_ones) {
  std::vector<simt::Schedule> all{{simt::Order::kForward, 1}, {simt::Order::kReverse, 1}};
  for (int seed = 1; seed <= random_ones; ++seed)
    all.push_back({simt::Order::kRandom, static_cast<std::uint64_t>(seed)});
  return all;
}

struct Outcome {
  std::string text;  // of the error that was thrown; empty: none
  bool right = false;
};

Outcome run(const Specimen& specimen) {
  try {
    return {"", specimen.run()};
  } catch (const KernelError& error) {
    return {error.what(), false};
  }
}

// Whether the emulator finds such a mistake without instrumentation.
bool seen_by_scheduler(FindingKind kind) {
  return kind == FindingKind::kBarrierMissed || kind == FindingKind::kBarrierMismatch ||
         kind == FindingKind::kWarpMismatch || kind == FindingKind::kWarpgroupMismatch ||
         kind == FindingKind::kDeadlock || kind == FindingKind::kWrongArgument ||
         kind == FindingKind::kUndefined || kind == FindingKind::kAssertion;
}

// The places that the first line of a message names: of a race both.
bool names_as_many_places_as_it_should(FindingKind kind, int places) {
  if (kind == FindingKind::kFence) return places == 1 || places == 2;  // the other access, if any
  return places == (kind == FindingKind::kRace ? 2 : 1);
}

void check_mistakes(const std::string& in_file) {
  for (const Specimen& specimen : specimens(Group::kMistake, in_file)) {
    REQUIRE(specimen.mistake.has_value());
    const std::string& file = specimen.file;
    if (!simt_corpus::is_checked() && !seen_by_scheduler(*specimen.mistake)) continue;
    const std::set<int> lines = simt_corpus::marked_lines(FLASH_REPOSITORY, specimen);
    // A thread that only asks again and again has no place.
    const bool is_endless = *specimen.mistake == FindingKind::kDeadlock && lines.empty();
    if (*specimen.mistake != FindingKind::kDeadlock) REQUIRE_FALSE(lines.empty());
    std::vector<simt::Schedule> orders = schedules(20);
    if (is_endless) orders.resize(1);  // patience takes seconds
    for (const simt::Schedule& schedule : orders) {
      simt::set_schedule(schedule);
      const Outcome outcome = run(specimen);
      CAPTURE(specimen.name, static_cast<int>(schedule.order), schedule.seed, outcome.text);
      REQUIRE(outcome.text.starts_with("kernel " + specimen.name + ": " +
                                       to_string(*specimen.mistake)));
      if (is_endless) continue;
      // The first line of the message names the place, of a race both places.
      const std::string first = outcome.text.substr(0, outcome.text.find('\n'));
      int places = 0;
      for (std::size_t at = 0; (at = first.find(file + ":", at)) != std::string::npos; ++places) {
        at += file.size() + 1;
        CHECK(lines.count(std::atoi(first.c_str() + at)) == 1);
      }
      CHECK(names_as_many_places_as_it_should(*specimen.mistake, places));
      // Where a fence is missing, the barrier behind it is not taken for missing as well.
      if (*specimen.mistake == FindingKind::kFence)
        CHECK(outcome.text.find(to_string(FindingKind::kRace)) == std::string::npos);
      CHECK(outcome.text.find("block (") != std::string::npos);
      CHECK(outcome.text.find("thread") != std::string::npos);
    }
    simt::set_schedule({});
  }
}

}  // namespace

TEST_CASE("planted mistakes of one thread, of a warp and of a block are found") {
  for (const char* file : {"races.cu", "barriers.cu", "warps.cu", "memory.cu", "language.cu",
                           "results.cu", "async.cu"})
    check_mistakes(file);
}
TEST_CASE("mistakes with mbarriers, TMA and wgmma are found") { check_mistakes("hopper"); }
TEST_CASE("a function that a kernel calls is named with the line that calls it") {
  for (const Specimen& specimen : specimens(Group::kMistake, "warps.cu")) {
    const int line = *simt_corpus::marked_lines(FLASH_REPOSITORY, specimen).begin();
    const std::string text = run(specimen).text;
    CAPTURE(specimen.name, text);
    const std::string called =
        "\ncalled at " + specimen.file + ":" + std::to_string(line - 4) + "\n";
    CHECK((text.find(called) != std::string::npos) == (specimen.name == "sum_in_a_function"));
  }
}
TEST_CASE("a local variable that nobody set is not zero") {
  for (const Specimen& specimen : specimens(Group::kByLuck)) {
    CAPTURE(specimen.name);
    CHECK_FALSE(specimen.run());
  }
}

TEST_CASE("a race across the rounds of a loop says which access is in the next round") {
  if (!simt_corpus::is_checked()) return;
  for (const Specimen& specimen : specimens(Group::kMistake, "races.cu"))
    for (const simt::Schedule& schedule : schedules(3)) {
      simt::set_schedule(schedule);
      const std::string text = run(specimen).text;
      CAPTURE(specimen.name, static_cast<int>(schedule.order), schedule.seed, text);
      const bool is_across = text.find("in the next round of the loop") != std::string::npos;
      CHECK(is_across == (specimen.name == "tile_loop_one_barrier"));
      if (!is_across) continue;
      const int written = *simt_corpus::marked_lines(FLASH_REPOSITORY, specimen).begin();
      CHECK(text.find(specimen.file + ":" + std::to_string(written) +
                      ", already in the next round") != std::string::npos);
      CHECK(text.find("lies between the two: the one in line " + std::to_string(written + 1) +
                      " is before both. One is missing at the end of the round, or at its "
                      "start.") != std::string::npos);
    }
  simt::set_schedule({});
}

TEST_CASE("a race of a line with itself says what can be its cause") {
  if (!simt_corpus::is_checked()) return;
  for (const Specimen& specimen : specimens(Group::kMistake, "races.cu"))
    for (const simt::Schedule& schedule : schedules(3)) {
      simt::set_schedule(schedule);
      const std::string &name = specimen.name, text = run(specimen).text;
      CAPTURE(name, static_cast<int>(schedule.order), schedule.seed, text);
      const auto says = [&](const std::string& words) {
        return text.find(words) != std::string::npos;
      };
      CHECK(says(": check the index") == (name == "all_write_one" || name == "blocks_overlap"));
      CHECK(says("each round needs a barrier") ==
            (name == "all_write_one" || name == "volatile_reduction"));
      if (name == "blocks_overlap") CHECK_FALSE(says("__"));
    }
  simt::set_schedule({});
}

TEST_CASE("a deadlock says which barrier lacks what, in which phase") {
  const std::vector<std::pair<std::string, std::string>> texts{
      {"announces_too_many_bytes",
       "the shared full, from byte 0, phase 0 (parity 0): 0 of 1 arrivals are missing"},
      {"announces_too_many_bytes", "8192 have not landed (8192 of them no copy was started for)"},
      {"expects_an_arrival_too_many", "phase 0 (parity 0): 1 of 2 arrivals are missing"},
      {"barrier_with_a_warp_too_few", "Barrier 1: 32 of 64 threads are missing"},
  };
  const std::vector<Specimen> hopper = specimens(Group::kMistake, "hopper");
  for (const auto& [name, text] : texts) {
    const auto is_named = [&name = name](const Specimen& one) { return one.name == name; };
    const auto specimen = std::find_if(hopper.begin(), hopper.end(), is_named);
    REQUIRE(specimen != hopper.end());
    const std::string message = run(*specimen).text;
    CAPTURE(name, text, message);
    CHECK(message.find(text) != std::string::npos);
  }
}

TEST_CASE("right kernels are not reported, and are right, in any order") {
  for (const Specimen& specimen : specimens(Group::kRight))
    for (const simt::Schedule& schedule : schedules(4)) {
      simt::set_schedule(schedule);
      const Outcome outcome = run(specimen);
      CAPTURE(specimen.name, static_cast<int>(schedule.order), schedule.seed, outcome.text);
      CHECK(outcome.text.empty());
      CHECK(outcome.right);
    }
  simt::set_schedule({});
}
TEST_CASE("the page of limits names kernels that show them") {
  if (simt_corpus::is_checked()) check_mistakes("limits.cu");  // elsewhere blocks run at once
  std::set<std::string> known;
  for (const Specimen& specimen : simt_corpus::specimens()) known.insert(specimen.name);
  std::ifstream page(FLASH_REPOSITORY "/emulator/README.md");
  std::string text{std::istreambuf_iterator<char>(page), {}};
  text.erase(0, text.find("\n## Limits\n"));
  // Each point names kernels, or says which test has it, or that none can show it.
  std::set<std::string> named;
  for (std::size_t point = text.find("\n- "); point != std::string::npos;) {
    const std::size_t next = text.find("\n- ", point + 1);
    const std::string one = text.substr(point, next - point);
    CAPTURE(one);
    int names = 0;
    for (std::size_t at = 0; (at = one.find('`', at)) != std::string::npos;) {
      const std::size_t end = one.find('`', at + 1);
      const std::string name = one.substr(at + 1, end - at - 1);
      names += static_cast<int>(known.count(name));
      named.insert(name);
      at = end + 1;
    }
    CHECK((names > 0 || one.find("test_limits.py") != std::string::npos ||
           one.ends_with("(No kernel)")));
    point = next;
  }
  for (const Specimen& specimen : simt_corpus::specimens())
    if (specimen.file.ends_with("/limits.cu")) CHECK(named.count(specimen.name) == 1);
}
TEST_CASE("accesses of shared memory are counted") {
  for (const Specimen& specimen : specimens(Group::kRight, "right.cu")) {
    if (specimen.name != "reverse_tile") continue;
    simt::reset_counters();
    CHECK(specimen.run());
    const simt::SharedAccesses counted = simt::shared_accesses();
    CHECK(counted.reads == (simt_corpus::is_checked() ? 128 : 0));
    CHECK(counted.wavefronts == (simt_corpus::is_checked() ? 8 : 0));  // of 4 warps
    CHECK(counted.conflicts == 0);
  }
}
TEST_CASE("what was not waited for is not there, also without the checks") {
  if (simt_corpus::is_checked()) return;  // there these kernels are reported
  for (const Specimen& specimen : specimens(Group::kEarly)) {
    const Outcome outcome = run(specimen);
    CAPTURE(specimen.name, outcome.text);
    CHECK(outcome.text.empty());
    CHECK(outcome.right);
  }
}
