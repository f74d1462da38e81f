// Where the planted mistakes of the corpus are.
#pragma once

#include <fstream>
#include <set>
#include <string>

namespace flash::simt_corpus {

// The lines of `file` (from the repository's root) that are marked "// BUG name".
inline std::set<int> marked_lines(const std::string& file, const std::string& name) {
  std::ifstream source(FLASH_REPOSITORY "/" + file);
  std::set<int> lines;
  std::string text;
  for (int line = 1; std::getline(source, text); ++line) {
    const std::string mark = "// BUG " + name;
    const std::size_t at = text.find(mark);
    if (at != std::string::npos && at + mark.size() == text.size()) lines.insert(line);
  }
  return lines;
}

}  // namespace flash::simt_corpus
