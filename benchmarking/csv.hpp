// A benchmark's results on disk: a CSV file with the columns that README.md describes, a line a
// row. The programs only append to it: tools/lab/results.py finds out which rows are the latest.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "benchmarking/program.hpp"

namespace flash {

using CsvRow = std::map<std::string, std::string>;  // column name -> cell

// Its errors name the file.
class CsvFile {
 public:
  // <table>_benchmark.csv, by README.md's table. Checks the file before the first measurement, and
  // makes its folder. Throws Error when there is a file with another header or a cut-off last line,
  // and leaves that alone.
  CsvFile(std::filesystem::path path, const std::string& table);

  // `row` has a cell for each column. Checks the file again first. Throws Error, with the file as
  // it was.
  void append(const CsvRow& row) const;

 private:
  std::string checked() const;  // what is in the file; empty where there is none

  std::filesystem::path path_;
  Strings columns_;
};

}  // namespace flash
