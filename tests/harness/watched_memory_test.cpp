// watched_memory.hpp: who reads what nobody may read is found out, and goes on.
#include "harness/watched_memory.hpp"

#include "harness/catch.hpp"

namespace flash::harness {
namespace {

constexpr Index kRows = 256, kColumns = 64,
                kFirst = 128;  // 16 rows a page of 4 KiB: 128 is a page's begin, also with 16 KiB

// What a row adds up to, read in a way that no compiler leaves out.
float sum_of_row(WatchedRows& rows, Index row) {
  const volatile float* const x = rows.data() + row * kColumns;
  float sum = 0;
  for (Index c = 0; c < kColumns; ++c) sum += x[c];
  return sum;
}

}  // namespace

TEST_CASE("rows before the watched ones may be read and written") {
  WatchedRows rows(kRows, kColumns);
  rows.watch_from(kFirst);
  rows.data()[kFirst * kColumns - 1] = 5;
  CHECK(sum_of_row(rows, kFirst - 1) == 5);
  CHECK_FALSE(rows.touched());
}

TEST_CASE("the first watched row that is touched is known, and what it holds is still read") {
  for (const Index row : {kFirst, kFirst + 77, kRows - 1}) {
    WatchedRows rows(kRows, kColumns);
    rows.data()[row * kColumns] = 3;
    rows.watch_from(kFirst);
    CHECK_FALSE(rows.touched());
    CHECK(sum_of_row(rows, row) == 3);
    CHECK(sum_of_row(rows, kFirst + 1) == 0);
    REQUIRE(rows.touched());
    CHECK(*rows.touched() == row);
  }
}

}  // namespace flash::harness
