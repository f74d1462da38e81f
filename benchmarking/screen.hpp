// What a benchmark shows: lines that stay, one line that moves, aligned tables. Standard output; no control codes unless it is
// a terminal.
#pragma once

#include <string>
#include <vector>

namespace flash {

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

class Screen {
 public:
  Screen();
  ~Screen() { clear(); }

  // A line that stays.
  void line(const std::string& text);

  // Replaces the moving line, at most ten times a second: "[####------] 12/32  what". Does nothing without a terminal.
  void progress(int done, int total, const std::string& what);

 private:
  void clear();

  bool is_terminal_;
  bool has_progress_ = false;
  double last_progress_s_ = 0;
};

// Rows of cells as lines, columns as wide as their widest cell; the first row is the header. Everything is right-aligned.
std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows);

}  // namespace flash
