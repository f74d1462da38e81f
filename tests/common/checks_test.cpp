#include "common/checks.hpp"

#include "harness/catch.hpp"

using namespace flash;

TEST_CASE("checks name the argument, its value, and what it had to be") {
  CHECK_NOTHROW(check_at_least("warmups", 0, 0));
  CHECK_THROWS_WITH(check_at_least("warmups", -1, 0), "warmups is -1; it must be at least 0");
  CHECK_NOTHROW(check_between("threads", 1, 1, 1024));
  CHECK_NOTHROW(check_between("threads", 1024, 1, 1024));
  CHECK_THROWS_WITH(check_between("threads", 0, 1, 1024), "threads is 0; it must be 1 to 1024");
  CHECK_THROWS_AS(check_between("threads", 1025, 1, 1024), ArgumentError);
}

TEST_CASE("an axis counts from the front, or is -1") {
  CHECK(checked_axis(0, 3) == 0);
  CHECK(checked_axis(2, 3) == 2);
  CHECK(checked_axis(-1, 3) == 2);
  CHECK_THROWS_WITH(checked_axis(3, 3), "axis is 3; it must be -1 (the last) or 0 to 2");
  CHECK_THROWS_AS(checked_axis(-2, 3), ArgumentError);
}

TEST_CASE("an unwritten task names itself") {
  const NotYetImplemented error("part1.fused_cpu");
  CHECK(error.task() == "part1.fused_cpu");
  CHECK(std::string(error.what()) == "part1.fused_cpu is not written yet");
}
