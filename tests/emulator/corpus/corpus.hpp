// Small kernels, each with one planted mistake or with none. A mistake's lines are marked in the
// source,
// `// BUG`: that is where the emulator has to point.
#pragma once

#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "emulator/run/simt.hpp"

namespace flash::simt_corpus {

struct Specimen {
  std::string name;                          // of the kernel, as its launch says it
  std::optional<simt::FindingKind> mistake;  // none: a right kernel
  std::function<bool()> run;  // launches it; whether the result is right (of a right kernel)
};

// The lists of corpus/NAME.cu.
FLASH_EXPORT std::vector<Specimen> races();
FLASH_EXPORT std::vector<Specimen> barriers();
FLASH_EXPORT std::vector<Specimen> warps();
FLASH_EXPORT std::vector<Specimen> memory();
FLASH_EXPORT std::vector<Specimen> language();
FLASH_EXPORT std::vector<Specimen> language_right();
FLASH_EXPORT std::vector<Specimen> builtins();
FLASH_EXPORT std::vector<Specimen> results();
FLASH_EXPORT std::vector<Specimen> results_right();
FLASH_EXPORT std::vector<Specimen> results_by_luck();
FLASH_EXPORT std::vector<Specimen> async();
FLASH_EXPORT std::vector<Specimen> async_right();
FLASH_EXPORT std::vector<Specimen> hopper_mistakes();
FLASH_EXPORT std::vector<Specimen> hopper_right();
FLASH_EXPORT std::vector<Specimen> hopper_early();
FLASH_EXPORT std::vector<Specimen> right();
FLASH_EXPORT std::vector<Specimen> limits();
FLASH_EXPORT std::vector<Specimen> refused();

// Whether the corpus was built for the checks.
FLASH_EXPORT bool is_checked();

// The lines of the kernel `name` in `file` that are marked.
inline std::set<int> marked_lines(const std::string& file, const std::string& name) {
  std::ifstream source(file);
  std::set<int> lines;
  bool inside = false;
  std::string text;
  for (int line = 1; std::getline(source, text); ++line) {
    if (text.starts_with("__global__")) inside = text.find(" " + name + "(") != std::string::npos;
    if (inside && text.ends_with("// BUG")) lines.insert(line);
  }
  return lines;
}

}  // namespace flash::simt_corpus
