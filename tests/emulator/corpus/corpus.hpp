// Small kernels, each with one planted mistake or with none. A mistake's lines are marked in the
// source, `// BUG`: that is where the emulator has to point.
#pragma once

#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "emulator/run/simt.hpp"

namespace flash::simt_corpus {

enum class Group {
  kRight,
  kMistake,
  kByLuck,  // the results that it would have if variables began as zero: it must not have them
  kEarly,   // reads what it has not waited for: has known results, and with the checks is reported
};

struct Specimen {
  Group group;
  std::string name;                          // of the kernel, as its launch says it
  std::string file;                          // "tests/emulator/corpus/races.cu"
  std::optional<simt::FindingKind> mistake;  // of a mistake
  std::function<bool()> run;  // launches it; whether the result is right (of a right kernel)
};

// All of corpus/*.cu.
FLASH_EXPORT std::vector<Specimen>& specimens();

// Whether the corpus was built for the checks.
FLASH_EXPORT bool is_checked();

// The lines of the specimen's kernel that are marked.
inline std::set<int> marked_lines(const std::string& repository, const Specimen& specimen) {
  std::ifstream source(repository + "/" + specimen.file);
  std::set<int> lines;
  bool inside = false;
  std::string text;
  for (int line = 1; std::getline(source, text); ++line) {
    if (text.starts_with("MISTAKE(") || text.starts_with("__global__"))
      inside = text.find(" " + specimen.name + (text[0] == 'M' ? "," : "(")) != std::string::npos;
    if (text.starts_with("RIGHT(")) inside = false;
    if (inside && text.ends_with("// BUG")) lines.insert(line);
  }
  return lines;
}

}  // namespace flash::simt_corpus
