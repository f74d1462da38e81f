// Every barrier, wait and atomic addition of a file is needed: the checks find a race without it,
// or a copy that is still under way.
#include "mutants/mutants.hpp"

#include "harness/catch.hpp"

TEST_CASE("without one of its barriers, waits or atomic additions a kernel is wrong") {
  const std::vector<std::string> wrong = flash::mutants::judge(flash::mutants::run_kernels);
  for (const std::string& sentence : wrong) UNSCOPED_INFO(sentence);
  CHECK(wrong.size() == 0);
}
