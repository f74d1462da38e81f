#include "benchmarking/program.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <exception>
#include <iostream>

#include "benchmarking/options.hpp"
#include "common/error.hpp"

namespace flash {
namespace {

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

int run_program(const std::function<int()>& run) noexcept {
  try {
    return run();
  } catch (const NotYetImplemented& missing) {
    std::cerr << "task " << missing.what() << ", and the benchmark needs it; next: ./lab check "
              << missing.task() << " (or ./lab bench --solution)\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return dynamic_cast<const OptionError*>(&error) != nullptr ? 2 : 1;
  }
}

std::string format(const char* pattern, ...) {
  std::va_list arguments, again;
  va_start(arguments, pattern);
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, pattern, arguments);
  std::string text(static_cast<std::size_t>(std::max(0, length)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  va_end(arguments);
  return text;
}

Screen::Screen() : is_terminal_(isatty(STDOUT_FILENO) == 1) {}

void Screen::clear() {
  if (has_progress_) std::fputs("\r\x1b[K", stdout);
  has_progress_ = false;
  std::fflush(stdout);
}

void Screen::line(const std::string& text) {
  clear();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Screen::progress(int done, int total, const std::string& what) {
  const auto now = std::chrono::steady_clock::now();
  if (!is_terminal_ || (has_progress_ && now - last_progress_ < std::chrono::milliseconds(100)))
    return;
  constexpr int kWidth = 20;
  const int filled = total > 0 ? kWidth * done / total : 0;
  std::string text = "[" + std::string(filled, '#') + std::string(kWidth - filled, '-') + "] " +
                     std::to_string(done) + "/" + std::to_string(total) + "  " + what;
  text.resize(std::min(text.size(), terminal_width() - 1));  // a line that wraps stays
  std::printf("\r\x1b[K%s", text.c_str());
  std::fflush(stdout);
  has_progress_ = true;
  last_progress_ = now;
}

Strings aligned(const std::vector<Strings>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  Strings lines;
  for (const auto& row : rows) {
    std::string& line = lines.emplace_back();
    for (std::size_t c = 0; c < row.size(); ++c)
      line += std::string(widths[c] - row[c].size() + (c ? 3 : 0), ' ') + row[c];
  }
  return lines;
}

bool contains(const Strings& all, const std::string& one) {
  return std::ranges::find(all, one) != all.end();
}

std::string joined(const Strings& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (&word == words.data() ? "" : separator) + word;
  return text;
}

double quantile(std::vector<double> values, double share) {
  const auto place = values.begin() + std::lround(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace flash
