// mutants.py numbers the calls of sample.cu, and the judge names those that no race betrays.
#include "mutants/sample.hpp"

#include <algorithm>
#include <sstream>

#include "harness/catch.hpp"

using namespace flash::mutants;

std::vector<Mutant> flash::mutants::all() {
  std::vector<Mutant> list;
  flash_mutants_sample(list);
  return list;
}

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
  CHECK(all().front().place.ends_with(".cu:16"));
}

TEST_CASE("a mutant without a race, and an excuse for one that has a race, are named") {
  std::string wrong;
  for (const std::string& sentence : judge(run_sample))
    wrong += sentence.substr(0, sentence.find('\n')) + '\n';
  CAPTURE(wrong);
  const auto first = wrong.find('\n');
  CHECK(wrong.substr(0, first).find("sample.cu:29, __syncwarp();     // 6: remove it") !=
        wrong.npos);
  CHECK(wrong.find("The excuse is wrong: the checks do find a mistake without ", first) ==
        first + 1);
  CHECK(wrong.find("sample.cu:31, __syncwarp();  // 7", first) != wrong.npos);
  CHECK(std::count(wrong.begin(), wrong.end(), '\n') == 2);
}
