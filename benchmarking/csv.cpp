// Implements csv.hpp.
#include "benchmarking/csv.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <utility>

namespace flash {
namespace {

// A cell as RFC 4180 wants it: quoted when it holds a comma, a quote or a line end.
std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::ostringstream text;
  text << std::quoted(cell, '"', '"');
  return text.str();
}

std::string joined(const Strings& cells) {
  std::string line;
  for (const std::string& cell : cells) line += (&cell == cells.data() ? "" : ",") + quoted(cell);
  return line;
}

// All records of a file. Throws CsvError (without the file's name) where a quote or the last line
// is left open.
std::vector<Strings> parse(std::istream& file) {
  std::vector<Strings> records;
  Strings record(1);
  bool in_quotes = false;
  char before = 0;
  for (char c = 0; file.get(c); before = c) {
    if (c == '"') {
      in_quotes = !in_quotes;
      if (in_quotes && before == '"') record.back() += c;  // a quote that is doubled
    } else if (in_quotes || (c != ',' && c != '\n')) {
      record.back() += c;
    } else if (c == ',') {
      record.emplace_back();
    } else {
      if (before == '\r') record.back().pop_back();
      records.push_back(std::exchange(record, {""}));
    }
  }
  if (in_quotes) throw CsvError("a quote is never closed");
  if (record.size() > 1 || !record.front().empty()) throw CsvError("its last line is cut off");
  return records;
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
  load();
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw CsvError(path_.string() + ": cannot make its folder: " + error.message());
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw system_error(path_, "cannot write in its folder");
}

void CsvTable::load() {
  rows_.clear();
  std::error_code error;
  if (!std::filesystem::exists(path_, error)) return;
  if (!std::filesystem::is_regular_file(path_, error))
    throw CsvError(path_.string() + " is not a file");

  std::ifstream file(path_, std::ios::binary);
  if (!file) throw system_error(path_, "cannot read");
  const std::string advice =
      "; it is left as it is: move it away, or name another file with --output";
  std::vector<Strings> records;
  try {
    records = parse(file);
  } catch (const CsvError& damaged) {
    throw CsvError(path_.string() + " is damaged: " + damaged.what() + advice);
  }
  const Strings header = records.empty() ? Strings{} : records[0];
  const auto all_in = [](const Strings& some, const Strings& all) {
    return std::all_of(some.begin(), some.end(),
                       [&](const auto& one) { return contains(all, one); });
  };
  if (header.empty() || !all_in(schema_.required, header) || !all_in(header, schema_.columns))
    throw CsvError(path_.string() + " has the wrong header: expected '" + joined(schema_.columns) +
                   "', found '" + joined(header) + "'" + advice);

  for (std::size_t r = 1; r < records.size(); ++r) {
    if (records[r].size() != header.size())
      throw CsvError(path_.string() + " is damaged: row " + std::to_string(r) + " has " +
                     std::to_string(records[r].size()) + " cells; it must have " +
                     std::to_string(header.size()) + advice);
    CsvRow& row = rows_.emplace_back();
    for (std::size_t c = 0; c < header.size(); ++c) row[header[c]] = records[r][c];
  }
}

void CsvTable::record(const CsvRow& row) {
  CsvRow complete;
  for (const std::string& column : schema_.columns) complete[column] = "";
  for (const auto& [column, cell] : row) {
    if (!complete.count(column))
      throw ArgumentError("the row has a column '" + column + "'; it must be one of " +
                          path_.string());
    complete[column] = cell;
  }

  load();
  const auto place = std::find_if(rows_.begin(), rows_.end(), [&](const CsvRow& other) {
    return std::all_of(schema_.key.begin(), schema_.key.end(), [&](const std::string& column) {
      const auto cell = other.find(column);
      return cell == other.end() || cell->second.empty() || cell->second == complete.at(column);
    });
  });
  if (place == rows_.end())
    rows_.push_back(complete);
  else
    *place = complete;
  save();
}

void CsvTable::save() const {
  std::string text = joined(schema_.columns) + "\n";
  for (const CsvRow& row : rows_) {
    Strings cells;
    for (const std::string& column : schema_.columns)
      cells.push_back(row.count(column) ? row.at(column) : "");
    text += joined(cells) + "\n";
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
