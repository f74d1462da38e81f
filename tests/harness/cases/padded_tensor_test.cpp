// padded_tensor.hpp: what is written around an output is found, counted and placed.
#include "harness/cases/padded_tensor.hpp"

#include "harness/catch.hpp"

namespace flash::harness {
namespace {

// What is said of a (1, 4, 6) tensor whose rows are 11 elements apart when these places, counted
// from its first element, are written. Its last element is at 38.
std::string said_of(const std::vector<Index>& places) {
  PaddedTensor out({1, 4, 6}, Layout::kPaddedRows);
  for (const Index place : places) out.view().data()[place] = 2;
  return out.written_outside("out");
}

}  // namespace

TEST_CASE("what is written outside of a tensor is counted, and its first place is named") {
  CHECK(said_of({0, 5, 11, 38}) == "");
  const std::string begin = "It writes outside of `out`, to ", end = ", with the value 2.000000.";
  CHECK(said_of({-3}) == begin + "1 place: 3 places before its first element" + end);
  CHECK(said_of({-3, 40}) ==
        begin + "2 places. The first is 3 places before its first element" + end);
  CHECK(said_of({39, 40, 41}) ==
        begin + "3 places. The first is 1 place after its last element" + end);
  CHECK(said_of({6}) == begin + "1 place: between its elements, 6 places after the first" + end);
}

}  // namespace flash::harness
