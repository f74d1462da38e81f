// A benchmark's results on disk. See csv_table.hpp.
#include "benchmarking/csv_table.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace flash {
namespace {

// A cell as RFC 4180 wants it: quoted when it holds a comma, a quote or a line end.
std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string text = "\"";
  for (const char c : cell) text += c == '"' ? "\"\"" : std::string(1, c);
  return text + "\"";
}

std::string joined(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += (&cell == cells.data() ? "" : ",") + quoted(cell);
  return line;
}

// All records of `text`. Throws CsvError (without the file's name) where a quote or the last line is left open.
std::vector<std::vector<std::string>> parse(const std::string& text) {
  std::vector<std::vector<std::string>> records;
  std::vector<std::string> record(1);
  bool in_quotes = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_quotes) {
      if (c != '"')
        record.back() += c;
      else if (i + 1 < text.size() && text[i + 1] == '"')
        record.back() += text[++i];
      else
        in_quotes = false;
    } else if (c == '"') {
      in_quotes = true;
    } else if (c == ',') {
      record.emplace_back();
    } else if (c == '\n') {
      records.push_back(std::move(record));
      record.assign(1, "");
    } else if (c != '\r' || i + 1 == text.size() || text[i + 1] != '\n') {
      record.back() += c;
    }
  }
  if (in_quotes) throw CsvError("a quote is never closed");
  if (record.size() > 1 || !record.front().empty()) throw CsvError("its last line is cut off");
  return records;
}

CsvError system_error(const std::filesystem::path& path, const std::string& what) {
  return CsvError(path.string() + ": " + what + ": " + std::strerror(errno));
}

void write_all(int file, const std::string& text, const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw system_error(path, "cannot write");
    done += static_cast<std::size_t>(written);
  }
  if (::fsync(file) != 0) throw system_error(path, "cannot sync to disk");
}

}  // namespace

CsvTable::CsvTable(std::filesystem::path path, CsvSchema schema) : path_(std::move(path)), schema_(std::move(schema)) {
  load();
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw CsvError(path_.string() + ": cannot make its folder: " + error.message());
  if (::access(folder.c_str(), W_OK | X_OK) != 0) throw system_error(path_, "cannot write in its folder");
}

void CsvTable::load() {
  rows_.clear();
  std::error_code error;
  if (!std::filesystem::exists(path_, error)) return;
  if (!std::filesystem::is_regular_file(path_, error)) throw CsvError(path_.string() + " is not a file");

  std::ifstream file(path_, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw system_error(path_, "cannot read");

  const std::string advice = "; it is left as it is: move it away, or name another file with --output";
  std::vector<std::vector<std::string>> records;
  try {
    records = parse(text);
  } catch (const CsvError& damaged) {
    throw CsvError(path_.string() + " is damaged: " + damaged.what() + advice);
  }
  if (records.empty() || records.front() != schema_.columns)
    throw CsvError(path_.string() + " is another kind of table: it begins with '" +
                   (records.empty() ? "" : joined(records.front())) + "', not with '" + joined(schema_.columns) + "'" + advice);

  for (std::size_t r = 1; r < records.size(); ++r) {
    if (records[r].size() != schema_.columns.size())
      throw CsvError(path_.string() + " is damaged: row " + std::to_string(r) + " has " + std::to_string(records[r].size()) +
                     " cells, not " + std::to_string(schema_.columns.size()) + advice);
    CsvRow& row = rows_.emplace_back();
    for (std::size_t c = 0; c < schema_.columns.size(); ++c) row[schema_.columns[c]] = records[r][c];
  }
}

void CsvTable::record(const CsvRow& row) {
  CsvRow complete;
  for (const std::string& column : schema_.columns) complete[column] = "";
  for (const auto& [column, cell] : row) {
    if (!complete.count(column)) throw ArgumentError("the row has a column '" + column + "' that " + path_.string() + " lacks");
    complete[column] = cell;
  }

  load();
  const auto same_key = [&](const CsvRow& other) {
    return std::all_of(schema_.key.begin(), schema_.key.end(),
                       [&](const std::string& column) { return other.at(column) == complete.at(column); });
  };
  const auto place = std::find_if(rows_.begin(), rows_.end(), same_key);
  if (place == rows_.end())
    rows_.push_back(complete);
  else
    *place = complete;
  save();
}

void CsvTable::save() const {
  std::string text = joined(schema_.columns) + "\n";
  for (const CsvRow& row : rows_) {
    std::vector<std::string> cells;
    for (const std::string& column : schema_.columns) cells.push_back(row.at(column));
    text += joined(cells) + "\n";
  }

  // In the same folder, because a rename is atomic only within one file system.
  const std::filesystem::path temporary =
      path_.parent_path() / ("." + path_.filename().string() + "." + std::to_string(::getpid()) + ".tmp");
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) throw system_error(path_, "cannot write in its folder");
  try {
    write_all(file, text, path_);
    if (::rename(temporary.c_str(), path_.c_str()) != 0) throw system_error(path_, "cannot replace it");
  } catch (...) {
    ::close(file);
    ::unlink(temporary.c_str());
    throw;
  }
  ::close(file);
}

}  // namespace flash
