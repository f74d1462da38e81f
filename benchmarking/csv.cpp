#include "benchmarking/csv.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "common/error.hpp"

namespace flash {
namespace {

Error system_error(const std::filesystem::path& path, const std::string& what) {
  return Error(path.string() + ": " + what + ": " + std::strerror(errno));
}

// A line of the page's table: | `name` | type | meaning |
Strings columns_of(const std::string& table) {
  std::istringstream page(
#include "readme.inc"
  );
  Strings columns;
  bool here = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("#")) here = line == "### " + table + "_benchmark.csv";
    if (here && line.starts_with("| `")) columns.push_back(line.substr(3, line.find('`', 3) - 3));
  }
  return columns;
}

}  // namespace

CsvFile::CsvFile(std::filesystem::path path, const std::string& table)
    : path_(std::move(path)), columns_(columns_of(table)) {
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(path_.string() + ": cannot make its folder: " + error.message());
  (void)checked();
  if (::access((std::filesystem::exists(path_) ? path_ : folder).c_str(), W_OK) != 0)
    throw system_error(path_, "cannot write");
}

std::string CsvFile::checked() const {
  std::error_code error;
  if (!std::filesystem::exists(path_, error)) return "";
  if (!std::filesystem::is_regular_file(path_, error))
    throw Error(path_.string() + " is not a file");
  std::ifstream file(path_, std::ios::binary);
  if (!file) throw system_error(path_, "cannot read");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.empty()) return "";
  const auto refuse = [&](const std::string& why) {
    throw Error(path_.string() + " " + why +
                "; it is left as it is: move it away, or name another file with --output");
  };
  const std::string header = joined(columns_, ","), found = text.substr(0, text.find('\n'));
  if (found != header)
    refuse("has the wrong header: expected '" + header + "', found '" + found + "'");
  if (text.back() != '\n') refuse("is damaged: its last line is cut off");
  return text;
}

// No cell has a comma or a quote: they are numbers and the names of devices and passes.
void CsvFile::append(const CsvRow& row) const {
  const std::string before = checked();
  Strings cells;
  for (const auto& [column, cell] : row)
    if (!contains(columns_, column)) throw Error("benchmarking/README.md lacks " + column);
  for (const std::string& column : columns_) {
    if (!row.contains(column)) throw Error("no cell for the column " + column);
    cells.push_back(row.at(column));
  }
  std::ofstream file(path_, std::ios::binary | std::ios::app);
  if (before.empty()) file << joined(columns_, ",") + "\n";
  file << joined(cells, ",") + "\n" << std::flush;  // one write
  if (file) return;
  const Error failure = system_error(path_, "cannot write");
  file.close();
  std::error_code ignored;
  std::filesystem::resize_file(path_, before.size(), ignored);
  throw failure;
}

}  // namespace flash
