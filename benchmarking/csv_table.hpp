// A benchmark's results on disk: a CSV file with a fixed header, one row per configuration.
//
// A row that is measured again replaces the old one, the others stay, and the file is whole at every moment: each change is
// written to a temporary file in the same folder, synced, and renamed over the old file. A benchmark that is killed leaves the
// rows it had finished.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/error.hpp"

namespace flash {

// The file cannot be read, is not a table of this kind, or cannot be written. The message names it.
class CsvError : public Error {
 public:
  using Error::Error;
};

// Column name -> cell. A column that is absent is an empty cell.
using CsvRow = std::map<std::string, std::string>;

struct CsvSchema {
  std::vector<std::string> columns;  // the header, in order
  std::vector<std::string> key;      // the columns that say which configuration a row is about
};

class CsvTable {
 public:
  // Checks what is there, so that a benchmark learns before its first measurement that it could not save it. The file need not
  // exist yet; its folder is made. Throws CsvError when the file has another header or a damaged row, and then leaves it alone.
  CsvTable(std::filesystem::path path, CsvSchema schema);

  // Replaces the row with the same key, or appends. Reads the file again first, so that what another program added meanwhile
  // is kept. Throws CsvError, with the file as it was; ArgumentError for a column that the schema does not have.
  void record(const CsvRow& row);

  // As of the last look at the file.
  const std::vector<CsvRow>& rows() const { return rows_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void load();
  void save() const;

  std::filesystem::path path_;
  CsvSchema schema_;
  std::vector<CsvRow> rows_;
};

}  // namespace flash
