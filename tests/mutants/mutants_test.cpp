// Every barrier and every atomic addition of a file is needed: the checks find a race without it.
#include "mutants/mutants.hpp"

#include "harness/catch.hpp"

TEST_CASE("without one of its barriers or atomic additions a kernel has a race") {
  const std::vector<std::string> wrong = flash::mutants::judge(flash::mutants::run_kernels);
  for (const std::string& sentence : wrong) UNSCOPED_INFO(sentence);
  CHECK(wrong.size() == 0);
}
