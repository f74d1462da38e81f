// Implements csv.hpp.
#include "benchmarking/csv.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace flash {
namespace {

// No cell has a comma or a quote: they are numbers and the names of devices and passes.
Strings split(const std::string& line) {
  Strings cells(1);
  for (const char c : line)
    if (c == ',')
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  return cells;
}

std::string cell_of(const CsvRow& row, const std::string& column) {
  const auto cell = row.find(column);
  return cell == row.end() ? "" : cell->second;
}

CsvError system_error(const std::filesystem::path& path, const std::string& what) {
  return CsvError(path.string() + ": " + what + ": " + std::strerror(errno));
}

}  // namespace

// A line of the page's table: | `name` | type, role | meaning |
CsvSchema csv_schema(const std::string& table) {
  std::istringstream page(
#include "readme.inc"
  );
  CsvSchema schema;
  bool here = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("#")) here = line == "### " + table + "_benchmark.csv";
    if (!here || !line.starts_with("| `")) continue;
    const std::string column = line.substr(3, line.find('`', 3) - 3);
    const std::string type = line.substr(0, line.find(" |", column.size() + 8));
    schema.columns.push_back(column);
    if (type.ends_with(", key"))
      schema.key.push_back(column);
    else if (!type.ends_with(", added"))
      schema.required.push_back(column);
  }
  return schema;
}

CsvTable::CsvTable(std::filesystem::path path, CsvSchema schema)
    : path_(std::move(path)), schema_(std::move(schema)) {
  (void)load();
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw CsvError(path_.string() + ": cannot make its folder: " + error.message());
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw system_error(path_, "cannot write in its folder");
}

std::vector<CsvRow> CsvTable::load() const {
  std::vector<CsvRow> rows;
  std::error_code error;
  if (!std::filesystem::exists(path_, error)) return rows;
  if (!std::filesystem::is_regular_file(path_, error))
    throw CsvError(path_.string() + " is not a file");

  std::ifstream file(path_, std::ios::binary);
  if (!file) throw system_error(path_, "cannot read");
  const auto refuse = [&](const std::string& why) {
    throw CsvError(path_.string() + " " + why +
                   "; it is left as it is: move it away, or name another file with --output");
  };
  std::string line;
  std::getline(file, line);
  const Strings header = split(line);
  const auto all_in = [](const Strings& some, const Strings& all) {
    return std::all_of(some.begin(), some.end(),
                       [&](const auto& one) { return contains(all, one); });
  };
  if (!all_in(schema_.required, header) || !all_in(header, schema_.columns))
    refuse("has the wrong header: expected '" + joined(schema_.columns, ",") + "', found '" + line +
           "'");
  while (std::getline(file, line)) {
    const Strings cells = split(line);
    if (file.eof()) refuse("is damaged: its last line is cut off");
    if (cells.size() != header.size())
      refuse("is damaged: row " + std::to_string(rows.size() + 1) + " has " +
             std::to_string(cells.size()) + " cells; it must have " +
             std::to_string(header.size()));
    CsvRow& row = rows.emplace_back();
    for (std::size_t c = 0; c < header.size(); ++c) row[header[c]] = cells[c];
  }
  return rows;
}

void CsvTable::record(const CsvRow& row) {
  for (const auto& [column, cell] : row)
    if (!contains(schema_.columns, column))
      throw ArgumentError("the row has a column '" + column + "'; it must be one of " +
                          path_.string());
  std::vector<CsvRow> rows = load();
  const auto place = std::find_if(rows.begin(), rows.end(), [&](const CsvRow& other) {
    return std::all_of(schema_.key.begin(), schema_.key.end(), [&](const std::string& column) {
      const std::string old = cell_of(other, column);
      return old.empty() || old == cell_of(row, column);
    });
  });
  if (place == rows.end())
    rows.push_back(row);
  else
    *place = row;

  std::string text = joined(schema_.columns, ",") + "\n";
  for (const CsvRow& one : rows) {
    Strings cells;
    for (const std::string& column : schema_.columns) cells.push_back(cell_of(one, column));
    text += joined(cells, ",") + "\n";
  }
  // In the same folder, because a rename is atomic only within one file system.
  const std::filesystem::path temporary =
      path_.parent_path() /
      ("." + path_.filename().string() + "." + std::to_string(::getpid()) + ".tmp");
  std::ofstream file(temporary, std::ios::binary);
  if (!file) throw system_error(path_, "cannot write in its folder");
  const bool written = static_cast<bool>(file << text << std::flush);
  if (written && ::rename(temporary.c_str(), path_.c_str()) == 0) return;
  const CsvError error = system_error(path_, written ? "cannot replace it" : "cannot write");
  std::filesystem::remove(temporary);
  throw error;
}

}  // namespace flash
