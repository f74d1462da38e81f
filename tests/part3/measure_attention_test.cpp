// What measure_attention refuses, and the words of its status.
#include "part3_flash_cuda/measure_attention.hpp"

#include "common/all_passes.hpp"
#include "harness/catch.hpp"

using namespace flash;

TEST_CASE("measure_attention refuses numbers of passes that make no sense") {
  struct Nothing : AttentionWork, Clock {
    void prepare() override {}
    void forward() override {}
    void backward() override {}
    std::size_t saved_bytes() override { return 0; }
    void reset_peak_memory() override {}
    std::size_t peak_memory_bytes() override { return 0; }
    void synchronize() override {}
    double now_ms() override { return 0; }
  } nothing;
  const auto task = all_passes().tasks.library<MeasureAttentionTask>();
  CHECK_THROWS_WITH(task->measure_attention(nothing, nothing, -1, 1),
                    "warmups is -1; it must be at least 0");
  CHECK_THROWS_WITH(task->measure_attention(nothing, nothing, 0, 0),
                    "passes is 0; it must be at least 1");
}

TEST_CASE("a status has the words of the CSV") {
  CHECK(to_string(AttentionStatus::kOk) == "ok");
  CHECK(to_string(AttentionStatus::kOutOfMemory) == "OOM");
  CHECK(to_string(AttentionStatus::kOutOfMemoryBackward) == "OOM(backward)");
  CHECK(to_string(AttentionStatus::kUnsupported) == "unsupported");
  CHECK(to_string(AttentionStatus::kError) == "error");
}
