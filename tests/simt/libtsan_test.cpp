// A second opinion: ThreadSanitizer's own runtime judges the corpus. It shares the instrumentation
// with the checks, and what the scheduler says of order; its memory of accesses and its clocks are
// its own. Both have to say the same of each kernel, but for those with volatile accesses, fences,
// atomic operations or cp.async, which libtsan does not know.
//
// libtsan reports a pair of places once in a process, hence one order of turns a process
// (FLASH_SIMT_SCHEDULE). It is linked before libflash_simt, which has functions of the same names,
// so that its functions are called.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/cuda/device_tensor.hpp"
#include "common/error.hpp"
#include "common/simt/witness.hpp"
#include "harness/catch.hpp"
#include "simt/corpus/corpus.hpp"

using namespace flash;
using simt_corpus::Specimen;

// ---- libtsan's functions; Debian's packages have no header for them -----------------------------

extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void* __tsan_get_current_fiber();
void __tsan_acquire(void* address);
void __tsan_release(void* address);
int __tsan_get_report_mop(void* report, unsigned long index, int* thread, void** address,
                          int* bytes, int* is_write, int* is_atomic, void** trace,
                          unsigned long trace_size);
void __sanitizer_symbolize_pc(void* pc, const char* format, char* text, unsigned long size);

__attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1:exitcode=0";
}
__attribute__((visibility("default"))) void __tsan_on_report(void* report);
}

namespace {

// The two accesses of each report since the last take_reports(). libtsan reports under locks: no
// allocation.
using Report = std::array<void*, 2>;
std::array<Report, 10'000> reports;
std::size_t report_count = 0;

std::vector<Report> take_reports() {
  const auto end = reports.begin() + static_cast<std::ptrdiff_t>(
                                         std::min(std::exchange(report_count, 0), reports.size()));
  return {reports.begin(), end};
}

int line_of(void* pc) {
  char text[32] = {};
  __sanitizer_symbolize_pc(pc, "%l", text, sizeof text);
  return std::atoi(text);
}

// Tells libtsan of the fibers what the scheduler tells.
class Libtsan final : public simt::Witness {
 public:
  // All blocks use the same shared memory, which libtsan takes for a race unless the blocks are
  // ordered.
  explicit Libtsan(bool blocks_are_ordered)
      : blocks_are_ordered_(blocks_are_ordered), scheduler_(__tsan_get_current_fiber()) {
    simt::set_witness(this);
  }
  ~Libtsan() override { simt::set_witness(nullptr); }

  void start_block(unsigned threads) override {
    first_ = used_;
    used_ += threads;
    while (pool().size() < used_) pool().push_back(__tsan_create_fiber(0));
    char* const clock = new_clock();
    __tsan_release(clock);
    for (unsigned i = 0; i < threads; ++i) be(fiber(i)), __tsan_acquire(clock);
  }
  void end_block() override {
    be(scheduler_);
    if (blocks_are_ordered_) join();
  }
  void end_launch() override { join(); }
  void running(unsigned thread) override { be(fiber(running_ = thread)); }
  void barrier() override {
    meet({pool().begin() + std::ptrdiff_t(first_), pool().begin() + std::ptrdiff_t(used_)});
  }
  void warp_sync(unsigned warp, std::uint32_t lanes) override {
    std::vector<void*> members;
    for (unsigned lane = 0; lane < 32; ++lane)
      if (lanes >> lane & 1) members.push_back(fiber(warp * 32 + lane));
    meet(members);
  }

 private:
  static constexpr unsigned kNoSync = 1;  // to be another fiber is no event that orders anything
  static void be(void* fiber) { __tsan_switch_to_fiber(fiber, kNoSync); }

  // Fibers are kept: to make a thousand of them takes libtsan 10 s.
  static std::vector<void*>& pool() {
    static std::vector<void*> fibers;
    return fibers;
  }
  // Of a thread of the running block.
  void* fiber(unsigned thread) const { return pool()[first_ + thread]; }

  // One that was not used for a long time.
  char* new_clock() { return &clocks_[next_clock_++ % clocks_.size()]; }

  // What each of them has done comes before what each of them does next.
  void meet(const std::vector<void*>& members) {
    char* const clock = new_clock();
    for (void* const fiber : members) be(fiber), __tsan_release(clock);
    for (void* const fiber : members) be(fiber), __tsan_acquire(clock);
    be(fiber(running_));
  }

  // What the fibers have done comes before what the host does next; that is their end.
  void join() {
    char* const clock = new_clock();
    for (std::size_t i = 0; i < used_; ++i) be(pool()[i]), __tsan_release(clock);
    be(scheduler_);
    __tsan_acquire(clock);
    used_ = 0;
  }

  bool blocks_are_ordered_;
  void* scheduler_;
  std::size_t used_ = 0;   // fibers of the pool, by blocks that are not joined
  std::size_t first_ = 0;  // of the running block's
  unsigned running_ = 0;
  std::vector<char> clocks_ = std::vector<char>(1 << 16);
  std::size_t next_clock_ = 0;
};

bool beyond_libtsan(const std::string& name) {
  static const std::set<std::string> names{
      "large_block",  // 1024 fibers: 10 s
      "volatile_reduction", "atomic_and_plain", "no_threadfence",     "atomic_histogram",
      "last_block_sums",    "spin_lock",        "published_by_a_flag"};
  return names.count(name) > 0;
}

}  // namespace

void __tsan_on_report(void* report) {
  Report places{};
  for (unsigned long access = 0; access < 2; ++access) {
    int thread, bytes, is_write, is_atomic;
    void* address;
    __tsan_get_report_mop(report, access, &thread, &address, &bytes, &is_write, &is_atomic,
                          &places[access], 1);
  }
  if (report_count < reports.size()) reports[report_count] = places;
  ++report_count;
}

TEST_CASE("libtsan finds the races that are planted, on the marked lines") {
  int judged = 0;
  for (const Specimen& specimen : simt_corpus::races()) {
    if (beyond_libtsan(specimen.name)) continue;
    ++judged;
    static const std::set<std::string> between_blocks{"blocks_add", "blocks_overlap",
                                                      "reads_other_block"};
    const Libtsan witness(between_blocks.count(specimen.name) == 0);
    specimen.run();
    const std::vector<Report> reports_of_it = take_reports();
    CAPTURE(specimen.name);
    CHECK(reports_of_it.size() > 0);
    const std::set<int> lines =
        simt_corpus::marked_lines(FLASH_REPOSITORY "/tests/simt/corpus/races.cu", specimen.name);
    for (const Report& report : reports_of_it)
      for (void* const place : report) CHECK(lines.count(line_of(place)) == 1);
  }
  CHECK(judged >= 14);
}

TEST_CASE("libtsan finds no race in the right kernels") {
  int judged = 0;
  for (const Specimen& specimen : simt_corpus::right()) {
    if (beyond_libtsan(specimen.name)) continue;
    ++judged;
    const Libtsan witness(true);
    CAPTURE(specimen.name);
    CHECK(specimen.run());
    CHECK(take_reports().empty());
  }
  CHECK(judged >= 14);
}
