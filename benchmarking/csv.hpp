// A benchmark's results on disk: a CSV file with the columns that README.md describes, one row a
// configuration.
//
// A row that is measured again replaces the old one, the others stay, and the file is whole at
// every moment: each change goes to a temporary file, which is renamed over the old one.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "benchmarking/program.hpp"
#include "common/error.hpp"

namespace flash {

// The file cannot be read, is not a table of this kind, or cannot be written. The message names it.
class CsvError : public Error {
 public:
  using Error::Error;
};

// Column name -> cell; an absent column is an empty cell. An empty cell of the key in the file
// equals every cell: a row of an older file, without that column, is replaced as well.
using CsvRow = std::map<std::string, std::string>;

struct CsvSchema {
  Strings columns;   // the header, in order
  Strings key;       // the columns that say which configuration a row is about
  Strings required;  // what an older file has to have
};

// The columns of <table>_benchmark.csv, as README.md's table describes them.
CsvSchema csv_schema(const std::string& table);

class CsvTable {
 public:
  // Checks the file before the first measurement; makes its folder. Throws CsvError when the file
  // has an unknown column, lacks a required one or is damaged, and then leaves it alone.
  CsvTable(std::filesystem::path path, CsvSchema schema);

  // Replaces the row with the same key, or appends. Reads the file again first, to keep what
  // another program added. Throws CsvError, with the file as it was; ArgumentError for a column
  // that the schema does not have.
  void record(const CsvRow& row);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::vector<CsvRow> load() const;

  std::filesystem::path path_;
  CsvSchema schema_;
};

}  // namespace flash
