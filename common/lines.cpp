// Implements lines.hpp by libbacktrace, which comes with g++. Without it no line is known.
#include "common/lines.hpp"

#ifdef FLASH_BACKTRACE
#include FLASH_BACKTRACE  // the path of backtrace.h
#include <link.h>

#include <map>
#include <mutex>

// Of the loaded libraries libbacktrace would read all tables (with Debian's libc6-dbg that takes
// 140 ms). The linker gives it this function in place of dl_iterate_phdr(): nothing is loaded but
// the program, which is what it takes our file for, at address 0.
extern "C" int __wrap_dl_iterate_phdr(int (*use)(dl_phdr_info*, std::size_t, void*), void* data) {
  dl_phdr_info program = {};
  program.dlpi_name = "";
  return use(&program, sizeof program, data);
}

namespace flash {
namespace {

void ignore(void*, const char*, int) {}

int add(void* lines, std::uintptr_t, const char* file, int line, const char* function) {
  if (file != nullptr && line > 0)
    static_cast<std::vector<SourceLine>*>(lines)->push_back(
        {function != nullptr ? function : "", file, line});
  return 0;
}

}  // namespace

std::vector<SourceLine> source_lines(const std::string& path, std::uintptr_t offset) {
  static std::mutex mutex;
  static std::map<std::string, backtrace_state*> known;
  const std::scoped_lock lock(mutex);
  const auto [file, is_new] = known.try_emplace(path);
  if (is_new) file->second = backtrace_create_state(file->first.c_str(), 0, ignore, nullptr);
  std::vector<SourceLine> lines;
  if (file->second != nullptr) backtrace_pcinfo(file->second, offset, add, ignore, &lines);
  return lines;
}

}  // namespace flash

#else

namespace flash {
std::vector<SourceLine> source_lines(const std::string&, std::uintptr_t) { return {}; }
}  // namespace flash

#endif
