// What every benchmark program shares: main(), what it shows on the screen, quantiles.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace flash {

using Strings = std::vector<std::string>;

bool contains(const Strings& all, const std::string& one);
std::string joined(const Strings& words, const std::string& separator = ", ");

// Returns what run() does. An exception becomes one line on stderr and an exit status: 2 for a
// wrong command line, else 1.
int run_program(const std::function<int()>& run) noexcept;

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

// Standard output, with no control codes unless it is a terminal.
class Screen {
 public:
  Screen();
  ~Screen() { clear(); }

  // A line that stays.
  void line(const std::string& text);

  // Replaces the moving line, on a terminal only: "[####------] 12/32  what".
  void progress(int done, int total, const std::string& what);

 private:
  void clear();

  bool is_terminal_;
  bool has_progress_ = false;
  std::chrono::steady_clock::time_point last_progress_;
};

// Rows of cells as lines, aligned to the right; the first row is the header.
Strings aligned(const std::vector<Strings>& rows);

// The one of `values`, at least one, below which a share of them lies (0.5: the median).
double quantile(std::vector<double> values, double share);

}  // namespace flash
