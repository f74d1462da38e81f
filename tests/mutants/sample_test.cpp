// mutants.py numbers the calls of sample.cu, and the judge names those that no race betrays.
#include "mutants/sample.hpp"

#include <algorithm>
#include <sstream>

#include "harness/catch.hpp"

using namespace flash::mutants;

std::vector<Mutant> flash::mutants::all() { return of_sample(); }

TEST_CASE("the calls of a file that the emulator runs are numbered, with line, text and excuse") {
  std::ostringstream list;
  for (const Mutant& mutant : all()) {
    list << mutant.number << ' ' << mutant.text.substr(0, 12) << ' ' << mutant.excuse << '\n';
    CHECK(mutant.text.find(std::to_string(mutant.number)) != std::string::npos);
  }
  CHECK(list.str() ==
        "1 atomicAdd(to \n"
        "2 if (quote == \n"
        "3 __syncthread \n"
        "4 __syncthread \n"
        "5 __syncthread 6 is enough within a warp\n"
        "6 __syncwarp() \n"
        "7 __syncwarp() which is not true\n");
  CHECK(all().front().line == 16);
}

TEST_CASE("a mutant without a race, and an excuse for one that has a race, are named") {
  std::string wrong;
  for (const std::string& sentence : judge(run_sample))
    wrong += sentence.substr(0, sentence.find('\n')) + '\n';
  CAPTURE(wrong);
  const std::string nothing =
      "The checks find nothing without line 29, __syncwarp();     // 6\n";
  CHECK(wrong.substr(0, nothing.size()) == nothing);
  CHECK(wrong.find("The excuse is wrong: the checks do find a mistake without line 31, "
                   "__syncwarp();  // 7") == nothing.size());
  CHECK(std::count(wrong.begin(), wrong.end(), '\n') == 2);
}
